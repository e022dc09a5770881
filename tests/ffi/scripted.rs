//! A server that does with each request what its key says: `grant/...`, `busy/...`,
//! `timeout/...`, `silent/...`, `drop/...`, `reset/...`, `break/...`, `malformed/...`, `gone/...`,
//! `retried/...`; an acquire of `seen/KEY` is granted once a release of KEY has come. It serves
//! probes as a leader does.

use lockclient::wire::{ClientFrame, Decoder, FromClient, ServerFrame};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub(crate) struct Scripted {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    stopped: AtomicBool,
    tokens: AtomicU64,
    /// Keys of releases that have come.
    released: Mutex<HashSet<Vec<u8>>>,
    open: Mutex<Vec<TcpStream>>,
}

/// What to do with the connection after a frame.
enum Next {
    Answer(Vec<u8>),
    Drop,
    Reset,
    /// An end of stream, and then a reset: what is sent in between meets a broken pipe.
    Break,
}

impl Scripted {
    pub(crate) fn start() -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State::default());
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                if shared.stopped.load(Ordering::Relaxed) {
                    return;
                }
                shared.open.lock().unwrap().extend(stream.try_clone());
                let shared = shared.clone();
                thread::spawn(move || serve(stream, &shared));
            }
        });
        Scripted { address, state }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Relaxed);
        // Wakes the listener, and then the readers.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn serve(mut stream: TcpStream, state: &State) {
    let _ = stream.set_nodelay(true);
    let mut decoder = Decoder::<FromClient>::default();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        let mut input = &buffer[..read];
        let mut out = Vec::new();
        let mut next = None;
        while let Ok(Some(frame)) = decoder.next(&mut input) {
            match answer(frame, state) {
                Next::Answer(bytes) => out.extend(bytes),
                end => {
                    next = Some(end);
                    break;
                }
            }
        }
        #[allow(clippy::disallowed_methods, reason = "a test's own server, in the test's process")]
        if stream.write_all(&out).is_err() {
            return;
        }
        match next {
            None => {}
            Some(end @ (Next::Reset | Next::Break)) => {
                if matches!(end, Next::Break) {
                    let _ = stream.shutdown(Shutdown::Write);
                }
                let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                // The clone that is kept for the end would keep the socket open.
                state.open.lock().unwrap().retain(|open| {
                    open.peer_addr().ok() != stream.peer_addr().ok() || open.peer_addr().is_err()
                });
                return;
            }
            Some(_) => {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

fn answer(frame: ClientFrame<'_>, state: &State) -> Next {
    let mut out = Vec::new();
    let (owner, key) = match frame {
        ClientFrame::Acquire { owner, key, .. } | ClientFrame::Release { owner, key, .. } => {
            (owner, key)
        }
        ClientFrame::Proof { .. } => return Next::Drop,
    };
    let releases = matches!(frame, ClientFrame::Release { .. });
    let mut released = state.released.lock().unwrap();
    let first = releases && released.insert(key.to_vec());
    let script = key.split(|&byte| byte == b'/').next().unwrap_or_default();
    let reply = match script {
        b"_probe" => ServerFrame::NotHeld { owner, key },
        b"silent" => return Next::Answer(out),
        b"drop" => return Next::Drop,
        b"reset" if !releases => return Next::Reset,
        b"break" if !releases => return Next::Break,
        b"malformed" => return Next::Answer(b"?\n".to_vec()),
        b"gone" => ServerFrame::NotHeld { owner, key },
        b"retried" if first => return Next::Drop,
        b"retried" => ServerFrame::NotHeld { owner, key },
        b"busy" if !releases => ServerFrame::Busy { owner, key },
        b"seen" if !released.contains(&key[b"seen/".len()..]) => {
            ServerFrame::TimedOut { owner, key }
        }
        b"timeout" if !releases => ServerFrame::TimedOut { owner, key },
        _ if releases => ServerFrame::Released { owner, key },
        _ => {
            let token = state.tokens.fetch_add(1, Ordering::Relaxed) + 1;
            ServerFrame::Acquired { owner, token, key }
        }
    };
    reply.encode(&mut out);
    Next::Answer(out)
}
