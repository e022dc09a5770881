//! Compiles the load generator that all contenders share, for the one that is written in Rust.

fn main() {
    let files = ["c/load.c", "c/allocations.c"];
    for file in files.iter().chain(&["c/load.h", "c/histogram.h"]) {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new()
        .files(files)
        .define("_GNU_SOURCE", None)
        .std("gnu11")
        // As c/Makefile compiles it for the others.
        .opt_level(2)
        .cargo_metadata(false)
        .compile("load");
    let directory = std::env::var("OUT_DIR").expect("cargo sets it");
    println!("cargo::rustc-link-arg-bin=load-rust={directory}/libload.a");
}
