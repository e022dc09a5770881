//! The C programs, each against servers of its own.

use crate::native::{Link, c_program, cxx, expect_done, is_here, launch, passes, program};
use crate::place::Place;
use crate::scripted::Scripted;
use lockd::{Config, Server};
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) fn server() -> Server {
    Server::start(Config::on_free_port()).expect("a server")
}

/// A port that is taken, so that nobody else listens there, and where nothing listens.
struct Nowhere(SocketAddr, #[expect(dead_code, reason = "keeps the port")] Socket);

impl Nowhere {
    fn new() -> Nowhere {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
        let address = socket.local_addr().expect("it is bound").as_socket().expect("IPv4");
        Nowhere(address, socket)
    }
}

#[test]
fn arguments() {
    passes("arguments", &[&server().addr().to_string()]);
}

#[test]
fn locking() {
    let (server, nowhere) = (server(), Nowhere::new());
    passes("locking", &[&server.addr().to_string(), &nowhere.0.to_string()]);
}

#[test]
fn a_socket_file() {
    let (place, missing) = (Place::new(), Place::new());
    let _server = place.serve();
    passes("socket_file", &[&place.endpoint(), &missing.endpoint()]);
}

#[test]
fn outcomes() {
    passes("outcomes", &[&Scripted::start().address()]);
}

#[test]
fn a_server_that_ends() {
    let server = server();
    let address = server.addr().to_string();
    let program = c_program("killed");
    thread::scope(|scope| {
        scope.spawn(|| expect_done(launch(&program).arg(&address)));
        let limit = Instant::now() + Duration::from_secs(60);
        while server.stats().locks.waiters == 0 && Instant::now() < limit {
            thread::sleep(Duration::from_millis(5));
        }
        server.stop().expect("it stops");
    });
}

#[test]
fn tickets() {
    let (server, scripted, nowhere) = (server(), Scripted::start(), Nowhere::new());
    let addresses = [server.addr().to_string(), scripted.address(), nowhere.0.to_string()];
    passes("tickets", &addresses.each_ref().map(String::as_str));
}

#[test]
fn closing() {
    let (server, scripted, nowhere) = (server(), Scripted::start(), Nowhere::new());
    let addresses = [server.addr().to_string(), scripted.address(), nowhere.0.to_string()];
    passes("closing", &addresses.each_ref().map(String::as_str));
}

#[test]
fn host_4_logging() {
    let (server, nowhere) = (server(), Nowhere::new());
    passes("logging", &[&server.addr().to_string(), &nowhere.0.to_string()]);
}

#[test]
fn host_2_forking() {
    let small = Config { max_connections: 3, ..Config::on_free_port() };
    let (server, small) = (server(), Server::start(small).expect("a server"));
    passes("forking", &[&server.addr().to_string(), &small.addr().to_string()]);
}

#[test]
fn host_1_sigpipe() {
    passes("sigpipe", &[&Scripted::start().address()]);
}

/// The C++ header, with what its users set: standards, compilers, no exceptions.
#[test]
fn raii() {
    let clang = "clang++".to_owned();
    let cases: [(&String, &str, &[&str]); 3] = [
        (&cxx(), "c++17", &["-fno-exceptions", "-fno-rtti"]),
        (&cxx(), "c++20", &[]),
        (&clang, "c++17", &[]),
    ];
    for (compiler, standard, flags) in cases {
        // Whoever chooses a compiler gets no other.
        if *compiler == clang && (!is_here(compiler) || std::env::var_os("CXX").is_some()) {
            continue;
        }
        let mut args = vec![format!("-std={standard}")];
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let name = format!("ffi-raii-{}-{standard}", compiler.replace(['/', ' '], "_"));
        let built = program(compiler, &name, "raii.cpp", &args, Link::Shared);
        let (server, scripted, nowhere) = (server(), Scripted::start(), Nowhere::new());
        expect_done(launch(&built).args([
            server.addr().to_string(),
            scripted.address(),
            nowhere.0.to_string(),
        ]));
    }
}

/// Apart from the rest: not every tool that watches it bears a fork with threads.
#[test]
fn host_2_raii() {
    let built = program(&cxx(), "ffi-raii-forks", "raii.cpp", &["-std=c++17"], Link::Shared);
    expect_done(launch(&built).args([&server().addr().to_string(), "forks"]));
}

/// The static library, with C and with C++, and without the shared one in sight.
#[test]
fn statically_linked() {
    let (server, nowhere) = (server(), Nowhere::new());
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = program(&cc, "ffi-static-locking", "locking.c", &[], Link::Static);
    let needed = Command::new("readelf").arg("-d").arg(&built).output().expect("readelf runs");
    assert!(!String::from_utf8_lossy(&needed.stdout).contains("liblockclient"));
    expect_done(launch(&built).args([server.addr().to_string(), nowhere.0.to_string()]));

    let scripted = Scripted::start();
    let built = program(&cxx(), "ffi-static-raii", "raii.cpp", &["-std=c++17"], Link::Static);
    expect_done(launch(&built).args([
        server.addr().to_string(),
        scripted.address(),
        nowhere.0.to_string(),
    ]));
}
