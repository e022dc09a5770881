//! Listening sockets, over TCP and in the file system.

use super::connection::Peer;
use super::socket_file::SocketFile;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BACKLOG: i32 = 1024;
/// A silent peer is asked after this time whether it is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;
/// A peer that acknowledges nothing of what was sent is given up after this time.
const USER_TIMEOUT: Duration = Duration::from_secs(60);

/// What an address begins with that is a path.
const UNIX: &str = "unix:";

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// An internet address and a TCP port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[derive(Debug)]
enum Source {
    Tcp(mio::net::TcpListener),
    Unix { socket: mio::net::UnixListener, _file: SocketFile },
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    source: Source,
    address: Address,
}

impl Listener {
    /// Listens on every address that `name` (`HOST:PORT` or `unix:PATH`) stands for.
    ///
    /// # Errors
    /// An address that does not resolve, or cannot be bound. The message names it.
    pub(crate) fn bind(name: &str) -> io::Result<Vec<Listener>> {
        bind(name).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {name}: {error}"))
        })
    }

    /// Where it listens, with the port that was chosen.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.source {
            Source::Tcp(socket) => registry.register(socket, token, Interest::READABLE),
            Source::Unix { socket, .. } => registry.register(socket, token, Interest::READABLE),
        }
    }

    /// The next connection, which does not block.
    pub(crate) fn accept(&self) -> io::Result<(Socket, Peer)> {
        match &self.source {
            Source::Tcp(socket) => {
                let (stream, address) = socket.accept()?;
                let socket = OwnedFd::from(std::net::TcpStream::from(stream)).into();
                Ok((socket, Peer(Some(address))))
            }
            Source::Unix { socket, .. } => {
                let (stream, _) = socket.accept()?;
                let stream = std::os::unix::net::UnixStream::from(stream);
                Ok((OwnedFd::from(stream).into(), Peer(None)))
            }
        }
    }
}

fn bind(name: &str) -> io::Result<Vec<Listener>> {
    if let Some(path) = name.strip_prefix(UNIX) {
        return Ok(vec![bind_unix(Path::new(path))?]);
    }
    let mut addresses: Vec<SocketAddr> = name.to_socket_addrs()?.collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.into_iter().map(bind_tcp).collect()
}

fn bind_tcp(address: SocketAddr) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // So that `[::]` and `0.0.0.0` can be listened on side by side.
        socket.set_only_v6(true)?;
    }
    // Accepted connections inherit these, which saves system calls for each of them.
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    let socket = mio::net::TcpListener::from_std(socket.into());
    let address = SockRef::from(&socket)
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::other("a TCP socket has an internet address"))?;
    Ok(Listener { source: Source::Tcp(socket), address: Address::Tcp(address) })
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let _file = SocketFile::bind(&socket, path)?;
    socket.listen(BACKLOG)?;
    let socket = std::os::unix::net::UnixListener::from(OwnedFd::from(socket));
    let socket = mio::net::UnixListener::from_std(socket);
    Ok(Listener { source: Source::Unix { socket, _file }, address: Address::Unix(path.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn tcp(name: &str) -> (Listener, SocketAddr) {
        let listener = Listener::bind(name).unwrap().pop().unwrap();
        match listener.address {
            Address::Tcp(address) => (listener, address),
            Address::Unix(_) => panic!("{name} is not in the file system"),
        }
    }

    #[test]
    fn accepted_connections_have_the_options_that_the_listener_was_given() {
        let (listener, address) = tcp("127.0.0.1:0");
        let _peer = std::net::TcpStream::connect(address).unwrap();
        let begun = Instant::now();
        let socket = loop {
            match listener.accept() {
                Ok((socket, _)) => break socket,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            assert!(begun.elapsed() < Duration::from_secs(20));
        };
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
        assert!(socket.nonblocking().unwrap());
    }

    #[test]
    fn ipv4_and_ipv6_wildcards_share_a_port() {
        let (_v6, address) = tcp("[::]:0");
        tcp(&format!("0.0.0.0:{}", address.port()));
    }

    #[test]
    fn a_socket_in_the_file_system_is_removed_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let name = format!("unix:{}", path.display());
        let listeners = Listener::bind(&name).unwrap();
        assert_eq!(listeners[0].address().to_string(), name);
        assert!(path.exists());
        drop(listeners);
        assert!(!path.exists());
    }
}
