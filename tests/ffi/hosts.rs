//! Hosts that are hard on a library (HOST-1 to HOST-7), each a C program.

use crate::native::{Link, c_program, expect_done, launch, lib_dir, passes, program};
use crate::programs::server;

#[test]
fn host_1_signals() {
    passes("signals", &[&server().addr().to_string()]);
}

#[test]
fn host_2_own_clients() {
    passes("own_clients", &[&server().addr().to_string()]);
}

#[test]
fn host_2_first_call() {
    passes("first_call", &[]);
}

#[test]
fn host_3_closefrom() {
    passes("closefrom", &[&server().addr().to_string()]);
}

/// The C library overwrites what is freed, so that whoever still uses it fails.
#[test]
fn host_3_fetched() {
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let args = ["-rdynamic", "-ldl", "-Wno-pedantic"];
    let built = program(&cc, "ffi-fetched", "fetched.c", &args, Link::Shared);
    let overwriting = "glibc.malloc.perturb=165:glibc.malloc.tcache_count=0";
    expect_done(launch(&built).arg(server().addr().to_string()).env("GLIBC_TUNABLES", overwriting));
}

#[test]
fn host_3_swapped() {
    passes("swapped", &[&server().addr().to_string()]);
}

#[test]
fn host_5_cancelling() {
    passes("cancelling", &[&server().addr().to_string()]);
}

#[test]
fn host_6_racing() {
    passes("racing", &[&server().addr().to_string()]);
}

#[test]
fn host_6_stopped() {
    passes("stopped", &[&server().addr().to_string()]);
}

#[test]
fn host_7_stacks() {
    passes("stacks", &[&server().addr().to_string()]);
}

#[test]
fn host_7_failing() {
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = program(&cc, "ffi-failing", "failing.c", &["-rdynamic", "-ldl"], Link::Shared);
    expect_done(launch(&built).arg(server().addr().to_string()));
}

#[test]
fn host_7_dlopened() {
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let args = ["-Wno-pedantic", "-ldl"];
    let built = program(&cc, "ffi-dlopened", "dlopened.c", &args, Link::None);
    let library = lib_dir().join("liblockclient.so");
    expect_done(launch(&built).arg(library).arg(server().addr().to_string()));
}

#[test]
fn host_7_two_copies() {
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let args = ["-Wno-pedantic"];
    let built = program(&cc, "ffi-two-copies", "two_copies.c", &args, Link::Static);
    let library = lib_dir().join("liblockclient.so");
    expect_done(launch(&built).arg(library).arg(server().addr().to_string()));
}

/// 200 processes that end with calls and tickets in flight, in four ways. Fewer if each of them is
/// watched by a tool, which makes its start and its end slow.
#[test]
fn host_7_exiting() {
    let server = server();
    let built = c_program("exiting");
    let watched = ["LOCKCLIENT_RUNNER", "LOCKCLIENT_LIBRARIES"];
    let watched = watched.iter().any(|name| std::env::var_os(name).is_some());
    for _ in 0..if watched { 5 } else { 50 } {
        for how in ["return", "thread", "atexit-use", "atexit-shutdown"] {
            expect_done(launch(&built).arg(server.addr().to_string()).arg(how));
        }
    }
}
