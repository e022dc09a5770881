//! Looking at a running server: over HTTP, on sockets of its own and threads of its own.
//!
//! What is asked is asked of the loop in small pieces, between turns, so that serving goes on.

mod http;
mod inspect;
mod metrics;
mod places;

pub use inspect::{LockLine, inspect};

use crate::core::Held;
use crate::net::SocketFile;
use crate::server::Handle;
use http::{Request, Response};
use places::Places;
use rustix::fs::Mode;
use socket2::{Domain, Socket, Type};
use std::fmt::Write;
use std::io;
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const BACKLOG: i32 = 64;
/// Locks that one answer lists unless it is asked for another number.
pub(crate) const DEFAULT_LIMIT: usize = 1000;

/// What a socket shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Numbers.
    Metrics,
    /// Numbers and locks with their tokens, each of which is the authority to release.
    Everything,
}

/// A socket bound for looking at the server. Serves once it is started.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: Socket,
    scope: Scope,
    file: Option<SocketFile>,
}

impl Bound {
    /// A TCP socket for the numbers, on the first address that `name` stands for.
    pub(crate) fn metrics(name: &str) -> io::Result<Bound> {
        let bind = || {
            let address = name.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            io::Result::Ok(Bound { socket, scope: Scope::Metrics, file: None })
        };
        bind().map_err(|error| named(&error, "cannot serve metrics on", name))
    }

    /// A socket in the file system for everything, that only the server's user may use.
    pub(crate) fn admin(path: &Path) -> io::Result<Bound> {
        let bind = || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            // Before it is bound: there is no moment at which others could connect.
            rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            let file = Some(SocketFile::bind(&socket, path)?);
            socket.listen(BACKLOG)?;
            io::Result::Ok(Bound { socket, scope: Scope::Everything, file })
        };
        let shown = path.display().to_string();
        bind().map_err(|error| named(&error, "cannot make the admin socket", &shown))
    }

    /// Where it listens, if that is a TCP address.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok().and_then(|address| address.as_socket())
    }

    pub(crate) fn serve(self, handle: Handle) -> io::Result<Admin> {
        let socket = Arc::new(self.socket);
        let over = Arc::new(AtomicBool::new(false));
        let (listener, ended, scope) = (socket.clone(), over.clone(), self.scope);
        let thread = std::thread::Builder::new()
            .name("lockd-admin".into())
            .spawn(move || accept_all(&listener, &ended, scope, &handle))?;
        Ok(Admin { socket, over, _file: self.file, thread: Some(thread) })
    }
}

fn named(error: &io::Error, what: &str, name: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {name}: {error}"))
}

/// A socket on which the server is looked at, until this is dropped.
#[derive(Debug)]
pub(crate) struct Admin {
    socket: Arc<Socket>,
    over: Arc<AtomicBool>,
    _file: Option<SocketFile>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // Makes `accept` return. Requests that are being served end within their own limits.
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept_all(listener: &Socket, over: &AtomicBool, scope: Scope, handle: &Handle) {
    let places = Arc::new(Places::default());
    while !over.load(Ordering::Acquire) {
        let Ok((socket, _)) = listener.accept() else {
            // No descriptor, or the end. Neither gets better by trying at once.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let socket = Arc::new(socket);
        let Some(place) = places.take(socket.clone()) else { continue };
        let handle = handle.clone();
        // Without a thread the place is free again, and the connection closed.
        let _ = std::thread::Builder::new().name("lockd-request".into()).spawn(move || {
            // A peer that went away has no use for an answer.
            let _ = http::serve(&socket, |request| {
                place.asked();
                respond(request, scope, &handle)
            });
        });
    }
}

fn respond(request: &Request, scope: Scope, handle: &Handle) -> Response {
    const STOPPED: &str = "503 Service Unavailable";
    match (request.path.as_str(), scope) {
        ("/metrics", _) => match handle.stats() {
            Some(stats) => Response {
                status: "200 OK",
                content_type: metrics::CONTENT_TYPE,
                body: metrics::render(&stats).into_bytes(),
            },
            None => Response::text(STOPPED, "the server does not answer\n"),
        },
        ("/healthz", _) => match handle.stats() {
            Some(stats) if stats.locks.active => Response::text("200 OK", "ok\n"),
            Some(_) => Response::text(STOPPED, "not active: it grants nothing now\n"),
            None => Response::text(STOPPED, "the server does not answer\n"),
        },
        ("/locks", Scope::Everything) => locks(request, handle),
        _ => Response::text("404 Not Found", "there is /metrics and /healthz\n"),
    }
}

/// The held locks, a JSON object a line.
fn locks(request: &Request, handle: &Handle) -> Response {
    let limit = match request.field("limit").map(str::parse) {
        None => DEFAULT_LIMIT,
        Some(Ok(limit)) if limit > 0 => limit,
        Some(_) => return Response::text("400 Bad Request", "limit is a number from 1 on\n"),
    };
    let prefix = request.field("prefix").unwrap_or("");
    let mut body = String::new();
    let mut listed = 0;
    let mut from = Some(0);
    while let Some(place) = from
        && listed < limit
    {
        let Some((held, next)) = handle.inspect(prefix, place, limit - listed) else {
            let what = "the server does not answer\n";
            return Response::text("503 Service Unavailable", what);
        };
        from = next;
        listed += held.len();
        for Held { key, token, remaining, waiters } in held {
            let remaining_ms = remaining.as_millis() as u64;
            let line = LockLine { key, token, remaining_ms, waiters };
            // Writing to a string cannot fail.
            let _ = writeln!(body, "{}", serde_json::json!(line));
        }
    }
    Response { status: "200 OK", content_type: "application/x-ndjson", body: body.into_bytes() }
}
