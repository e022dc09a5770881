//! Listening sockets.

use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Duration;

const BACKLOG: i32 = 1024;
/// A silent peer is asked after this time whether it is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 3;

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: mio::net::TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on every address that `name` (`HOST:PORT`) stands for.
    ///
    /// # Errors
    /// An address that does not resolve, or cannot be bound. The message names it.
    pub(crate) fn bind(name: &str) -> io::Result<Vec<Listener>> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot listen on {name}: {error}"))
        };
        let mut listeners: Vec<Listener> = Vec::new();
        for address in name.to_socket_addrs().map_err(named)? {
            if listeners.iter().all(|listener| listener.address != address) {
                listeners.push(bind_one(address).map_err(named)?);
            }
        }
        Ok(listeners)
    }

    /// Where it listens, with the port that was chosen.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE)
    }

    /// The next connection, which does not block.
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        let (stream, _) = self.socket.accept()?;
        Ok(Socket::from(OwnedFd::from(std::net::TcpStream::from(stream))))
    }
}

fn bind_one(address: SocketAddr) -> io::Result<Listener> {
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
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    let socket = mio::net::TcpListener::from_std(socket.into());
    let address = SockRef::from(&socket)
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::other("a TCP socket has an internet address"))?;
    Ok(Listener { socket, address })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn accepted_connections_have_the_options_that_the_listener_was_given() {
        let listener = Listener::bind("127.0.0.1:0").unwrap().pop().unwrap();
        let _peer = std::net::TcpStream::connect(listener.address()).unwrap();
        let begun = Instant::now();
        let socket = loop {
            match listener.accept() {
                Ok(socket) => break socket,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            assert!(begun.elapsed() < Duration::from_secs(20));
        };
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
        assert!(socket.nonblocking().unwrap());
    }

    #[test]
    fn ipv4_and_ipv6_wildcards_share_a_port() {
        let v6 = Listener::bind("[::]:0").unwrap().pop().unwrap();
        let port = v6.address().port();
        Listener::bind(&format!("0.0.0.0:{port}")).unwrap();
    }
}
