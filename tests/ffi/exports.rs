//! What the shared library shows to a program that loads it.

use crate::native::{built, include_dir};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

fn tool(name: &str, args: &[&str]) -> String {
    let output = Command::new(name)
        .args(args)
        .arg(built("liblockclient.so"))
        .output()
        .unwrap_or_else(|error| panic!("{name} is needed, from binutils: {error}"));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn exported() -> BTreeSet<String> {
    let symbols = tool("nm", &["-D", "--defined-only"]);
    symbols.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

#[test]
fn it_exports_what_is_listed_and_nothing_else() {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("ffi-tests/exports.txt");
    let list = std::fs::read_to_string(list).expect("the list is committed");
    let listed: BTreeSet<String> = list.lines().map(str::to_owned).collect();
    assert_eq!(exported(), listed);
    assert!(listed.iter().all(|name| name.starts_with("lockclient_")));
}

#[test]
fn the_header_declares_every_export_and_no_other() {
    let header = std::fs::read_to_string(include_dir().join("lockclient.h")).expect("a header");
    let mut declared = BTreeSet::new();
    let mut comment = false;
    for line in header.lines() {
        comment |= line.starts_with("/*");
        if !comment
            && let Some((before, _)) = line.split_once('(')
            && let Some(name) = before.rsplit([' ', '*']).next()
            && name.starts_with("lockclient_")
        {
            declared.insert(name.to_owned());
        }
        comment &= !line.ends_with("*/");
    }
    assert_eq!(declared, exported());
}

#[test]
fn host_7_it_carries_its_abi_version_and_is_never_unmapped() {
    let dynamic = tool("readelf", &["-dW"]);
    assert!(dynamic.contains("Library soname: [liblockclient.so.1]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

/// Thread-local storage of a shared library that is loaded at start comes out of the stack of
/// every thread that the program makes.
#[test]
fn host_7_it_takes_little_of_every_threads_stack() {
    const BOUND: u64 = 512;
    let segments = tool("readelf", &["-lW"]);
    let tls = segments.lines().find(|line| line.trim_start().starts_with("TLS"));
    let size = tls.map_or(0, |line| {
        let size = line.split_whitespace().nth(5).expect("a size in memory");
        u64::from_str_radix(size.trim_start_matches("0x"), 16).expect("a number")
    });
    assert!(size > 0 && size <= BOUND, "{size} bytes of thread-local storage:\n{segments}");
}

#[test]
fn it_needs_nothing_but_the_c_library() {
    let dynamic = tool("readelf", &["-dW"]);
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let known = ["libc.so", "libgcc_s.so", "ld-linux", "libm.so", "libpthread.so", "libdl.so"];
        assert!(known.iter().any(|name| line.contains(name)), "{line}");
    }
}
