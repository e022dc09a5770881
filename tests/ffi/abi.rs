//! The ABI as a C compiler sees it, against the one that was committed: `ffi-tests/abi.xml`, written
//! by libabigail's abidw. To take over what was added:
//! `LOCKCLIENT_BLESS=1 cargo test --test ffi abi`; a change that breaks programs is refused.

use crate::cc;
use crate::native::{include_dir, is_here};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The header's functions, as definitions: a library of the same ABI, made by a C compiler, whose
/// debug information names C's types and no others.
fn definitions() -> String {
    let header = std::fs::read_to_string(include_dir().join("lockclient.h")).expect("a header");
    let mut code = String::new();
    let mut rest = header.as_str();
    while let Some(start) = rest.find("/*") {
        code.push_str(&rest[..start]);
        rest = &rest[start..];
        rest = &rest[rest.find("*/").expect("comments end") + 2..];
    }
    code.push_str(rest);
    let functions = code.split("extern \"C\" {\n#endif").nth(1).expect("functions");
    let mut text = "#include \"lockclient.h\"\n#include <stdlib.h>\n".to_owned();
    for declaration in functions.split(';').filter(|part| part.contains("lockclient_")) {
        let declaration = declaration.lines().filter(|line| !line.starts_with(['#', '/']));
        let declaration: Vec<&str> = declaration.collect();
        // A definition has no attributes in this place, and uses its parameters.
        let declaration = declaration.join("\n").replace("LOCKCLIENT_MUST_USE", "");
        writeln!(text, "{declaration}\n{{ abort(); }}").unwrap();
    }
    text
}

fn library() -> PathBuf {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("abi.c");
    std::fs::write(&source, definitions()).expect("a temporary file");
    let include = format!("-I{}", include_dir().display());
    // No path of this machine is the ABI's.
    let nowhere = format!("-ffile-prefix-map={}=.", env!("CARGO_TARGET_TMPDIR"));
    let header = format!("-ffile-prefix-map={}=.", include_dir().display());
    let args = [
        "-shared",
        "-fPIC",
        "-Wno-unused-parameter",
        "-Wl,-soname,liblockclient.so.1",
        &include,
        &nowhere,
        &header,
    ];
    cc::program("liblockclient-abi.so", &[source.to_str().expect("text")], &args)
}

/// Whether two ABIs differ, and how.
fn differs(options: &[&str], one: &Path, other: &Path) -> (bool, String) {
    let output =
        Command::new("abidiff").args(options).args([one, other]).output().expect("abidiff runs");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = output.status.code().expect("it ended by itself");
    assert!(code & 0b11 == 0, "abidiff failed: {report}");
    (code != 0, report)
}

#[test]
fn the_abi_is_the_committed_one() {
    if !is_here("abidw") {
        // Where everything has to be checked, its absence is a failure.
        assert!(std::env::var_os("CI").is_none(), "abidw is needed, from abigail-tools");
        return;
    }
    let library = library();
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("ffi-tests/abi.xml");
    let blessed = std::env::var_os("LOCKCLIENT_BLESS").is_some();
    if committed.exists() {
        let (changed, report) = differs(&["--no-added-syms"], &committed, &library);
        assert!(!changed, "programs may break; whoever means it removes the file: {report}");
        let (changed, report) = differs(&[], &committed, &library);
        assert!(!changed || blessed, "LOCKCLIENT_BLESS=1 takes what was added over: {report}");
        if !changed {
            return;
        }
    }
    assert!(blessed, "LOCKCLIENT_BLESS=1 writes the first one");
    let status = Command::new("abidw")
        .args(["--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--out-file"])
        .arg(&committed)
        .arg(&library)
        .status()
        .expect("abidw runs");
    assert!(status.success());
}
