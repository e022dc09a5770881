//! Linker arguments of the shared library; nothing is generated here.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // rustc sets no SONAME, and without one a program records the path it was linked with.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblockclient.so.1");
        // The background thread runs this library's code: dlclose must not unmap it.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
