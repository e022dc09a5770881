//! One connection, over TCP or through a socket file: how it is made, and the one place that sends.

use super::sys::Own;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockAddr, Socket as RawSocket, TcpKeepalive, Type};
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Probes find a silent server much sooner; this is for one whose probes are answered by nobody
/// because the client itself stood still.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How a connection attempt stands.
#[derive(Debug)]
pub(super) enum Progress {
    /// Connected.
    Done,
    /// Not yet.
    Waiting,
    /// It failed.
    Failed(io::Error),
}

/// A socket that is registered with the poll.
#[derive(Debug)]
pub(super) struct Socket {
    stream: Own<RawSocket>,
    /// The period in which the socket's identity was last looked at (HOST-3).
    checked: u64,
    /// The peer's end of stream, or an error, was reported: a read goes on until it shows.
    pub(super) ending: bool,
}

impl Socket {
    /// Begins to connect.
    pub(super) fn connect(
        address: &SockAddr,
        registry: &Registry,
        token: Token,
        period: u64,
    ) -> io::Result<Socket> {
        let domain = address.domain();
        let is_tcp = domain != Domain::UNIX;
        // Close-on-exec is set by socket2 in the same system call.
        let protocol = is_tcp.then_some(Protocol::TCP);
        let raw = RawSocket::new(domain, Type::STREAM.nonblocking(), protocol)?;
        if is_tcp {
            raw.set_tcp_nodelay(true)?;
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
            raw.set_tcp_keepalive(&keepalive)?;
        }
        match raw.connect(address) {
            Ok(()) => {}
            // Not EAGAIN: a socket file whose queue of new connections is full says that, and
            // nothing would come of waiting for it.
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let stream = Own::new(raw)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut SourceFd(&stream.number()), token, interest)?;
        Ok(Socket { stream, checked: period, ending: false })
    }

    /// How the attempt stands, after the socket became writable.
    pub(super) fn progress(&mut self, period: u64) -> Progress {
        match self.try_progress(period) {
            Ok(progress) => progress,
            Err(error) => Progress::Failed(error),
        }
    }

    fn try_progress(&mut self, period: u64) -> io::Result<Progress> {
        let stream = self.stream(period)?;
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        let peer = match stream.peer_addr() {
            Ok(peer) => peer,
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(Progress::Waiting),
            Err(error) => return Err(error),
        };
        // A connect to a local port that nobody listens on can meet itself: the kernel picked the
        // same port for this end. It would then hear its own requests.
        let peer = peer.as_socket();
        if peer.is_some() && stream.local_addr()?.as_socket() == peer {
            return Err(io::Error::from_raw_os_error(libc::ECONNREFUSED));
        }
        Ok(Progress::Done)
    }

    /// Sends once. How many bytes the kernel took; 0 if it is full.
    pub(super) fn send(&mut self, bytes: &[u8], period: u64) -> io::Result<usize> {
        loop {
            let stream = self.stream(period)?;
            // Without the flag a peer that has gone raises SIGPIPE in the host (HOST-1).
            match stream.send_with_flags(bytes, libc::MSG_NOSIGNAL) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                result => return result,
            }
        }
    }

    /// Reads once. `None`: it would block.
    pub(super) fn receive(&mut self, buffer: &mut [u8], period: u64) -> io::Result<Option<usize>> {
        loop {
            let mut stream = self.stream(period)?;
            match stream.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                result => return result.map(Some),
            }
        }
    }

    /// Ends the writing side; what the peer still sends can be read.
    pub(super) fn half_close(&mut self, period: u64) {
        if let Ok(stream) = self.stream(period) {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    /// CLO-2: out of the poll, then shut down, then closed. A forked child that holds the
    /// descriptor too neither keeps the connection alive nor keeps its events coming.
    pub(super) fn close(self, registry: &Registry) {
        if let Ok(stream) = self.stream.get() {
            let _ = registry.deregister(&mut SourceFd(&stream.as_raw_fd()));
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn stream(&mut self, period: u64) -> io::Result<&RawSocket> {
        if self.checked == period {
            return self.stream.unchecked();
        }
        let stream = self.stream.get()?;
        self.checked = period;
        Ok(stream)
    }
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
