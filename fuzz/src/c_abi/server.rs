//! A server in this process that behaves as it is told to. All inputs share it, and its one thread.

use lockclient::wire::{ClientFrame, Decoder, FromClient, PROBE_KEY, ServerFrame};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::SockRef;
use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// How the server behaves from now on: a number below [`MOODS`].
pub(super) static MOOD: AtomicU8 = AtomicU8::new(0);
pub(super) const MOODS: usize = 12;

static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);

const LISTENER: Token = Token(0);

/// Where it listens.
pub(super) static ADDRESS: LazyLock<String> = LazyLock::new(|| {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = TcpListener::bind(any).expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || run(listener));
    address
});

/// Whether a grant with this token was ever made.
pub(super) fn has_granted(token: u64) -> bool {
    (1..NEXT_TOKEN.load(Ordering::SeqCst)).contains(&token)
}

struct Peer {
    stream: TcpStream,
    decoder: Decoder<FromClient>,
}

fn run(mut listener: TcpListener) {
    let mut poll = Poll::new().expect("a poll");
    let mut events = Events::with_capacity(64);
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE).expect("a new socket");
    let mut peers = HashMap::new();
    let mut next = 1;
    loop {
        if let Err(error) = poll.poll(&mut events, None) {
            assert_eq!(error.kind(), ErrorKind::Interrupted);
            continue;
        }
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    let token = Token(next);
                    next += 1;
                    let _ = stream.set_nodelay(true);
                    let registry = poll.registry();
                    registry.register(&mut stream, token, Interest::READABLE).expect("a new one");
                    peers.insert(token, Peer { stream, decoder: Decoder::default() });
                }
            } else if let Some(peer) = peers.get_mut(&event.token())
                && !peer.serve()
            {
                peers.remove(&event.token());
            }
        }
    }
}

impl Peer {
    /// Answers all that there is. False: the connection is to be closed.
    fn serve(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            let count = match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            };
            let mut input = &buffer[..count];
            while let Some(frame) = self.decoder.next(&mut input).expect("a client's good frames") {
                let mood = MOOD.load(Ordering::SeqCst);
                if mood == 4 {
                    let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
                    return false;
                }
                let answer = answer(frame, mood);
                // A client that has gone does not want it. The fuzzer's process keeps the default
                // for SIGPIPE, as a C host does: nothing here may raise it, and nothing of the
                // client's.
                let _ = SockRef::from(&self.stream).send_with_flags(&answer, libc::MSG_NOSIGNAL);
                if answer.is_empty() && mood == 10 {
                    return false;
                }
            }
        }
    }
}

fn answer(frame: ClientFrame<'_>, mood: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    match frame {
        ClientFrame::Release { owner, token: 0, key: PROBE_KEY } => match mood {
            3 => {}
            9 => ServerFrame::Error { code: b"no_leader" }.encode(&mut bytes),
            11 => ServerFrame::Challenge { nonce: &[1; 32] }.encode(&mut bytes),
            _ => ServerFrame::NotHeld { owner, key: PROBE_KEY }.encode(&mut bytes),
        },
        ClientFrame::Release { owner, key, .. } => match mood {
            2 | 3 => {}
            1 | 6 => ServerFrame::NotHeld { owner, key }.encode(&mut bytes),
            5 => bytes.extend_from_slice(b"?\n"),
            _ => ServerFrame::Released { owner, key }.encode(&mut bytes),
        },
        ClientFrame::Acquire { owner, key, .. } => match mood {
            1 => ServerFrame::Busy { owner, key }.encode(&mut bytes),
            2 | 3 | 10 => {}
            5 => bytes.extend_from_slice(b"A\0\0"),
            6 => ServerFrame::TimedOut { owner, key }.encode(&mut bytes),
            7 => ServerFrame::Moved { leader: b"127.0.0.1:9" }.encode(&mut bytes),
            8 => ServerFrame::Released { owner, key }.encode(&mut bytes),
            9 => ServerFrame::Error { code: b"not_active" }.encode(&mut bytes),
            _ => {
                let token = NEXT_TOKEN.fetch_add(1, Ordering::SeqCst);
                ServerFrame::Acquired { owner, token, key }.encode(&mut bytes);
            }
        },
        ClientFrame::Proof { .. } => {}
    }
    bytes
}
