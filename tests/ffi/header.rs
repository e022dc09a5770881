//! The header by itself, with every compiler and standard that it promises.

use crate::native::{include_dir, is_here};
use std::process::Command;

const STRICT: [&str; 7] =
    ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only"];

/// Compiles a file that includes the header twice and nothing else, as `language`.
fn compiles_alone(compilers: &[&str], language: &str, standards: &[&str], header: &str) {
    let source = std::env::temp_dir()
        .join(format!("lockclient-alone-{language}-{header}-{}.c", std::process::id()));
    let twice = format!("#include \"{header}\"\n#include \"{header}\"\nint unused(void);\n");
    std::fs::write(&source, twice).expect("a temporary file");
    let mut tried = 0;
    for compiler in compilers {
        if !is_here(compiler) {
            continue;
        }
        tried += 1;
        for standard in standards {
            let output = Command::new(compiler)
                .args(STRICT)
                .args(["-x", language, &format!("-std={standard}"), "-I"])
                .arg(include_dir())
                .arg(&source)
                .output()
                .expect("the compiler runs");
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{compiler} -std={standard}:\n{complaint}");
        }
    }
    std::fs::remove_file(&source).expect("the file is still there");
    assert!(tried > 0, "none of {compilers:?} is here");
}

#[test]
fn it_compiles_alone_as_c() {
    let standards = ["c99", "c11", "c2x"];
    compiles_alone(&["cc", "gcc", "clang"], "c", &standards, "lockclient.h");
}

#[test]
fn it_compiles_alone_as_cxx() {
    let standards = ["c++11", "c++17", "c++20"];
    compiles_alone(&["c++", "g++", "clang++"], "c++", &standards, "lockclient.h");
}

#[test]
fn the_cxx_header_compiles_alone() {
    compiles_alone(&["c++", "g++", "clang++"], "c++", &["c++17", "c++20"], "lockclient.hpp");
}

/// What a C program must not ignore, it cannot ignore by accident.
#[test]
fn an_ignored_outcome_is_a_warning() {
    let source = std::env::temp_dir().join(format!("lockclient-ignored-{}.c", std::process::id()));
    let text = "#include \"lockclient.h\"\nvoid f(lockclient *c, lockclient_grant *g);\n\
                void f(lockclient *c, lockclient_grant *g) { lockclient_acquire(c, \"k\", 1, 0, \
                1, 0, g); }\n";
    std::fs::write(&source, text).expect("a temporary file");
    let output = Command::new("cc")
        .args(["-c", "-o", "/dev/null", "-I"])
        .arg(include_dir())
        .arg(&source)
        .output()
        .expect("the compiler runs");
    std::fs::remove_file(&source).expect("the file is still there");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("warn_unused_result"), "{complaint}");
}
