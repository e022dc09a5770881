//! `make install` into a directory of the test's own, and programs that find the library there with
//! pkg-config, with CMake, and statically. `packaging/check.sh` does the same to what is shipped.

#[path = "common/cc.rs"]
mod cc;
#[path = "ffi/native.rs"]
#[allow(dead_code, reason = "shared with the tests of the C ABI, which use the rest")]
mod native;

use lockd::{Config, Server};
use native::{BUILD_LIMIT, cxx, is_here, run_within};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("packaging").join(name)
}

fn succeeds(command: &mut Command) -> String {
    let finished = run_within(command, BUILD_LIMIT);
    assert!(finished.status.success(), "{command:?}: {finished:#?}");
    finished.stdout
}

/// Where it is installed: by the Makefile, once for all tests here.
fn prefix() -> &'static Path {
    static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| {
        let prefix = temporary("prefix");
        let _ = fs::remove_dir_all(&prefix);
        // A target directory of its own: the libraries that other tests use just now must stay.
        succeeds(
            Command::new("make")
                .current_dir(root())
                .args(["--no-print-directory", "install-lib", "install-dev", "PROFILE=dev"])
                .arg(format!("PREFIX={}", prefix.display()))
                .arg(format!("CARGO_TARGET_DIR={}", temporary("target").display()))
                .env_remove("MAKEFLAGS")
                .env_remove("DESTDIR"),
        );
        prefix
    });
    &PREFIX
}

/// README's program in a language, which takes a lock and gives it back.
fn readme_program(language: &str, extension: &str, server: &Server) -> PathBuf {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README");
    let program = readme.split(&format!("```{language}\n")).nth(1).expect("a program");
    let program = program.split("\n```").next().expect("the block ends");
    let address = server.addr().to_string();
    let name = format!("readme-{}.{extension}", address.replace(['.', ':'], "-"));
    let file = temporary(&name);
    fs::create_dir_all(temporary("")).expect("a directory");
    fs::write(&file, program.replace("127.0.0.1:7420", &address)).expect("a temporary file");
    file
}

fn takes_a_lock(program: &Path) {
    let printed = succeeds(
        Command::new(program).env("LD_LIBRARY_PATH", prefix().join("lib")).env_remove("LANG"),
    );
    assert!(printed.ends_with("\nreleased\n"), "{printed}");
}

fn server() -> Server {
    Server::start(Config::on_free_port()).expect("a server")
}

fn pkg_config(args: &[&str]) -> Vec<String> {
    let flags = succeeds(
        Command::new("pkg-config")
            .args(args)
            .arg("lockclient")
            .env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")),
    );
    flags.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn it_installs_what_programs_need_and_nothing_else() {
    let mut files = Vec::new();
    let mut left = vec![prefix().to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).expect("it is installed") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(prefix()).expect("it lies there");
                files.push(name.display().to_string());
            }
        }
    }
    files.sort();
    assert_eq!(
        files,
        [
            "include/lockclient.h",
            "include/lockclient.hpp",
            "lib/cmake/lockclient/lockclientConfig.cmake",
            "lib/cmake/lockclient/lockclientConfigVersion.cmake",
            "lib/liblockclient.a",
            "lib/liblockclient.so",
            "lib/liblockclient.so.1",
            "lib/pkgconfig/lockclient.pc",
        ]
    );
    let link = fs::read_link(prefix().join("lib/liblockclient.so")).expect("a link");
    assert_eq!(link, Path::new("liblockclient.so.1"));
}

#[test]
fn with_pkg_config() {
    if !is_here("pkg-config") {
        assert!(std::env::var_os("CI").is_none(), "pkg-config is needed");
        return;
    }
    assert_eq!(pkg_config(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let server = server();
    let flags = pkg_config(&["--cflags", "--libs"]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let source = readme_program("c", "c", &server);
    let mut args = vec!["-std=c11"];
    args.extend(&flags);
    takes_a_lock(&cc::program("pkg-config-c", &[source.to_str().expect("text")], &args));

    let server = self::server();
    let source = readme_program("cpp", "cpp", &server);
    let mut args = vec!["-std=c++17"];
    args.extend(&flags);
    let sources = [source.to_str().expect("text")];
    takes_a_lock(&cc::compile(&cxx(), "pkg-config-cxx", &sources, &args));
}

#[test]
fn statically_by_pkg_configs_word() {
    if !is_here("pkg-config") {
        assert!(std::env::var_os("CI").is_none(), "pkg-config is needed");
        return;
    }
    let server = server();
    let source = readme_program("c", "c", &server);
    // What `--static` names besides the library itself; the library as a file, so that the shared
    // one beside it is not taken.
    let flags = pkg_config(&["--static", "--cflags", "--libs"]);
    let archive = prefix().join("lib/liblockclient.a").display().to_string();
    let flags: Vec<&str> = flags
        .iter()
        .map(|flag| if flag == "-llockclient" { archive.as_str() } else { flag.as_str() })
        .collect();
    let mut args = vec!["-std=c11"];
    args.extend(&flags);
    let program = cc::program("static-c", &[source.to_str().expect("text")], &args);
    let dynamic = succeeds(Command::new("readelf").arg("-d").arg(&program));
    assert!(!dynamic.contains("liblockclient"), "{dynamic}");
    takes_a_lock(&program);
}

#[test]
fn with_cmake() {
    if !is_here("cmake") {
        assert!(std::env::var_os("CI").is_none(), "cmake is needed");
        return;
    }
    let server = server();
    let (c, cpp) = (readme_program("c", "c", &server), readme_program("cpp", "cpp", &server));
    let project = temporary("cmake-project");
    let _ = fs::remove_dir_all(&project);
    fs::create_dir_all(&project).expect("a directory");
    let text = format!(
        "cmake_minimum_required(VERSION 3.13)\n\
         project(user C CXX)\n\
         set(CMAKE_CXX_STANDARD 17)\n\
         find_package(lockclient {} REQUIRED)\n\
         add_executable(shared_c {})\n\
         target_link_libraries(shared_c lockclient::lockclient)\n\
         add_executable(static_cxx {})\n\
         target_link_libraries(static_cxx lockclient::static)\n",
        env!("CARGO_PKG_VERSION"),
        c.display(),
        cpp.display()
    );
    fs::write(project.join("CMakeLists.txt"), text).expect("a temporary file");
    let built = project.join("build");
    succeeds(
        Command::new("cmake")
            .args(["-S".as_ref(), project.as_os_str(), "-B".as_ref(), built.as_os_str()])
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())),
    );
    succeeds(Command::new("cmake").arg("--build").arg(&built));
    let printed = succeeds(&mut Command::new(built.join("shared_c")));
    assert!(printed.starts_with("token 1, ") && printed.ends_with("\nreleased\n"), "{printed}");
    let printed = succeeds(&mut Command::new(built.join("static_cxx")));
    assert!(printed.starts_with("token 2, ") && printed.ends_with("\nreleased\n"), "{printed}");
}
