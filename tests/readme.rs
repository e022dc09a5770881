//! The programs in README.md, compiled as they stand and run against a server.

#[path = "common/cc.rs"]
mod cc;
#[path = "ffi/native.rs"]
#[allow(dead_code, reason = "shared with the tests of the C ABI, which use the rest")]
mod native;

use lockd::{Config, Server};
use native::{Link, cxx, link_args, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The address that the programs name.
const ADDRESS: &str = "127.0.0.1:7420";

/// The one program of a language, with a server's address in the place of its own.
fn program(language: &str, server: &Server) -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(readme).expect("there is a README");
    let start = format!("```{language}\n");
    let mut programs = readme
        .split(&start)
        .skip(1)
        .map(|rest| rest.split("\n```").next().expect("the block ends"));
    let program = programs.next().unwrap_or_else(|| panic!("README has no {language} program"));
    assert!(programs.next().is_none(), "README has several {language} programs");
    assert!(program.contains(ADDRESS));
    program.replace(ADDRESS, &server.addr().to_string())
}

fn server() -> Server {
    Server::start(Config::on_free_port()).expect("a server")
}

fn source(name: &str, text: &str) -> PathBuf {
    let file =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    std::fs::write(&file, text).expect("a temporary file");
    file
}

/// Held, and given back.
fn expect_a_lock(program: &Path) {
    let finished = run(&mut Command::new(program));
    assert!(finished.status.success(), "{finished:?}");
    assert!(finished.stdout.starts_with("token 1, "), "{finished:?}");
    assert!(finished.stdout.ends_with("\nreleased\n"), "{finished:?}");
    assert_eq!(finished.stderr, "");
}

#[test]
fn the_c_program() {
    let server = server();
    let file = source("readme.c", &program("c", &server));
    let linked = link_args(Link::Shared);
    let mut args = vec!["-std=c99"];
    args.extend(linked.iter().map(String::as_str));
    let built = cc::program("readme-c", &[file.to_str().expect("text")], &args);
    std::fs::remove_file(file).expect("it is still there");
    expect_a_lock(&built);
}

#[test]
fn the_cxx_program() {
    let server = server();
    let file = source("readme.cpp", &program("cpp", &server));
    let linked = link_args(Link::Shared);
    let mut args = vec!["-std=c++17"];
    args.extend(linked.iter().map(String::as_str));
    let built = cc::compile(&cxx(), "readme-cxx", &[file.to_str().expect("text")], &args);
    std::fs::remove_file(file).expect("it is still there");
    expect_a_lock(&built);
}

#[test]
fn the_rust_program() {
    let server = server();
    let file = source("readme.rs", &program("rust", &server));
    let library = native::built("liblockclient.rlib");
    let built = file.with_extension("program");
    let output = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()))
        .args(["--edition", "2024", "--deny", "warnings", "--extern"])
        .arg(format!("lockclient={}", library.display()))
        .arg("-L")
        .arg(format!("dependency={}", library.parent().expect("a directory").display()))
        .arg("-o")
        .arg(&built)
        .arg(&file)
        .output()
        .expect("rustc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    expect_a_lock(&built);
    std::fs::remove_file(file).expect("it is still there");
    std::fs::remove_file(built).expect("it is still there");
}
