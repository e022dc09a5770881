//! A peer that speaks the protocol byte by byte, and a server to speak to.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod program;
pub(crate) mod shim;

use lockclient::wire::{ClientFrame, Decoder, FromServer, ServerFrame};
use lockd::{Config, Server, Stats};
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than anything takes that works.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) fn start() -> Server {
    Server::start(Config::on_free_port()).expect("a server on a free port")
}

/// Waits until the server's numbers are as they should be.
pub(crate) fn eventually(server: &Server, what: &str, good: impl Fn(&Stats) -> bool) -> Stats {
    let end = Instant::now() + LONG;
    loop {
        let stats = server.stats();
        if good(&stats) {
            return stats;
        }
        assert!(Instant::now() < end, "never came true: {what}; {stats:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Acquired { owner: u64, token: u64, key: String },
    Plain { op: char, owner: u64, key: String },
    Error(String),
    Challenge([u8; 32]),
    Accepted([u8; 32]),
}

pub(crate) fn plain(op: char, owner: u64, key: &str) -> Answer {
    Answer::Plain { op, owner, key: key.into() }
}

pub(crate) fn error(code: &str) -> Answer {
    Answer::Error(code.into())
}

impl Answer {
    fn of(frame: ServerFrame<'_>) -> Answer {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text is UTF-8");
        let plain = |op, owner, key| Answer::Plain { op, owner, key: text(key) };
        match frame {
            ServerFrame::Acquired { owner, token, key } => {
                Answer::Acquired { owner, token, key: text(key) }
            }
            ServerFrame::TimedOut { owner, key } => plain('T', owner, key),
            ServerFrame::Busy { owner, key } => plain('B', owner, key),
            ServerFrame::Released { owner, key } => plain('R', owner, key),
            ServerFrame::NotHeld { owner, key } => plain('N', owner, key),
            ServerFrame::Error { code } => Answer::Error(text(code)),
            ServerFrame::Challenge { nonce } => Answer::Challenge(*nonce),
            ServerFrame::Accepted { proof } => Answer::Accepted(*proof),
            other => panic!("this server never sends {other:?}"),
        }
    }
}

/// One end of a connection, used by hand.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
}

impl Peer {
    pub(crate) fn connect(address: SocketAddr) -> Peer {
        Peer::try_connect(address).expect("connect")
    }

    pub(crate) fn try_connect(address: SocketAddr) -> io::Result<Peer> {
        Peer::elsewhere(TcpStream::connect(address)?)
    }

    /// A connection to a socket in the file system.
    pub(crate) fn connect_unix(path: &Path) -> Peer {
        let stream = UnixStream::connect(path).expect("connect");
        // The methods that are used on it are the same for both kinds.
        let stream = TcpStream::from(OwnedFd::from(stream));
        stream.set_read_timeout(Some(LONG)).expect("time-out");
        Peer { stream, received: Vec::new() }
    }

    /// A connection whose kernel takes little in before its end is read.
    pub(crate) fn connect_with_small_window(address: SocketAddr) -> Peer {
        Peer::try_connect_with_small_window(address).expect("connect")
    }

    pub(crate) fn try_connect_with_small_window(address: SocketAddr) -> io::Result<Peer> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_recv_buffer_size(4096)?;
        socket.connect(&address.into())?;
        Peer::elsewhere(socket.into())
    }

    /// Where nobody listens any more, a socket may come to be connected to itself.
    fn elsewhere(stream: TcpStream) -> io::Result<Peer> {
        if stream.local_addr()? == stream.peer_addr()? {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        Ok(Peer::of(stream))
    }

    fn of(stream: TcpStream) -> Peer {
        // Fails only on a connection that has ended already.
        let _ = stream.set_nodelay(true);
        stream.set_read_timeout(Some(LONG)).expect("time-out");
        Peer { stream, received: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        send_all(&self.stream, bytes).expect("send");
    }

    pub(crate) fn request(&mut self, frame: ClientFrame<'_>) {
        self.try_request(frame).expect("send");
    }

    fn try_request(&mut self, frame: ClientFrame<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        send_all(&self.stream, &bytes)
    }

    pub(crate) fn acquire(&mut self, owner: u64, key: &str, wait: u8, lease: u8) {
        self.request(ClientFrame::Acquire { wait, lease, owner, key: key.as_bytes() });
    }

    pub(crate) fn try_acquire(
        &mut self,
        owner: u64,
        key: &str,
        wait: u8,
        lease: u8,
    ) -> io::Result<()> {
        self.try_request(ClientFrame::Acquire { wait, lease, owner, key: key.as_bytes() })
    }

    pub(crate) fn try_release(&mut self, owner: u64, token: u64, key: &str) -> io::Result<()> {
        self.try_request(ClientFrame::Release { owner, token, key: key.as_bytes() })
    }

    pub(crate) fn release(&mut self, owner: u64, token: u64, key: &str) {
        self.request(ClientFrame::Release { owner, token, key: key.as_bytes() });
    }

    /// Acquires a key that must be free.
    pub(crate) fn take(&mut self, owner: u64, key: &str, lease: u8) -> u64 {
        self.acquire(owner, key, 0, lease);
        match self.answer() {
            Answer::Acquired { owner: echo, token, key: name } if echo == owner && name == key => {
                token
            }
            other => panic!("expected a grant of {key}, got {other:?}"),
        }
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> Answer {
        self.try_answer().expect("an answer").expect("an answer before the end")
    }

    /// The next answer; `None` at the end of the stream.
    pub(crate) fn try_answer(&mut self) -> io::Result<Option<Answer>> {
        loop {
            let mut decoder = Decoder::<FromServer>::default();
            let mut rest = &self.received[..];
            if let Some(frame) = decoder.next(&mut rest).expect("a well-formed stream") {
                let answer = Answer::of(frame);
                let used = self.received.len() - rest.len();
                self.received.drain(..used);
                return Ok(Some(answer));
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    assert!(self.received.is_empty(), "the stream ended inside a frame");
                    return Ok(None);
                }
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The server closes the connection without another answer.
    pub(crate) fn expect_end(&mut self) {
        match self.try_answer() {
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("expected the end, got {other:?}"),
        }
    }

    /// Nothing comes for a while.
    pub(crate) fn expect_silence(&mut self, duration: Duration) {
        self.stream.set_read_timeout(Some(duration)).expect("time-out");
        match self.try_answer() {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            other => panic!("expected silence, got {other:?}"),
        }
        self.stream.set_read_timeout(Some(LONG)).expect("time-out");
    }

    /// Still served: a probe is answered.
    pub(crate) fn expect_served(&mut self) {
        self.release(999, 0, "_probe");
        assert_eq!(self.answer(), plain('N', 999, "_probe"));
    }

    pub(crate) fn end_sending(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("shutdown");
    }
}

/// Sends all of `bytes`.
pub(crate) fn send_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;
    while !bytes.is_empty() {
        match (&*stream).write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
