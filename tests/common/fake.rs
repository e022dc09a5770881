//! A server that does what a test tells it to.

use lockclient::wire::{ClientFrame, Decoder, FromClient, PROBE_KEY, ServerFrame};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A request that is not a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Acquire { wait: u8, lease: u8, owner: u64, key: Vec<u8> },
    Release { owner: u64, token: u64, key: Vec<u8> },
    Proof,
}

/// One connection, for the test's answers. Answers may be given later, from another thread.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    stream: Arc<TcpStream>,
}

impl Peer {
    pub(crate) fn send(&self, frame: ServerFrame<'_>) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.send_bytes(&bytes);
    }

    pub(crate) fn send_bytes(&self, bytes: &[u8]) {
        // Whoever has gone does not want the answer.
        #[allow(clippy::disallowed_methods, reason = "a test's server, which owns its process")]
        let _ = (&*self.stream).write_all(bytes);
    }

    pub(crate) fn grant(&self, owner: u64, token: u64, key: &[u8]) {
        self.send(ServerFrame::Acquired { owner, token, key });
    }

    /// Ends its side of the connection, behind what was sent.
    pub(crate) fn finish(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Closes the connection as a killed process does whose socket holds unread bytes.
    pub(crate) fn reset(&self) {
        super::reset(&self.stream);
    }
}

#[derive(Default)]
struct State {
    /// Probes are answered.
    serves: AtomicBool,
    ended: AtomicBool,
    accepted: AtomicUsize,
    peers: Mutex<Vec<Peer>>,
}

/// The server. It answers probes by itself.
pub(crate) struct Fake {
    address: SocketAddr,
    state: Arc<State>,
}

type Handler = dyn Fn(&Peer, Request) + Send + Sync;

impl Fake {
    /// Starts one that hands every request to `handler`.
    pub(crate) fn start(handler: impl Fn(&Peer, Request) + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State { serves: AtomicBool::new(true), ..State::default() });
        let (shared, handler): (_, Arc<Handler>) = (state.clone(), Arc::new(handler));
        std::thread::spawn(move || accept(&listener, &shared, &handler));
        Fake { address, state }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether probes are answered.
    pub(crate) fn serve(&self, on: bool) {
        self.state.serves.store(on, Ordering::SeqCst);
    }

    /// Connections accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }

    /// Every connection that was accepted.
    pub(crate) fn peers(&self) -> Vec<Peer> {
        self.state.peers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Accepts nothing more, and resets every connection.
    pub(crate) fn kill(&self) {
        if !self.state.ended.swap(true, Ordering::SeqCst) {
            let _ = TcpStream::connect(self.address);
        }
        self.peers().iter().for_each(Peer::reset);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.kill();
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>, handler: &Arc<Handler>) {
    for stream in listener.incoming() {
        if state.ended.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { return };
        let _ = stream.set_nodelay(true);
        let peer = Peer { stream: Arc::new(stream) };
        state.peers.lock().unwrap_or_else(PoisonError::into_inner).push(peer.clone());
        state.accepted.fetch_add(1, Ordering::SeqCst);
        let (state, handler) = (state.clone(), handler.clone());
        std::thread::spawn(move || serve(&peer, &state, &handler));
    }
}

fn serve(peer: &Peer, state: &State, handler: &Arc<Handler>) {
    let mut decoder = Decoder::<FromClient>::default();
    let mut buffer = [0; 4096];
    loop {
        let count = match (&*peer.stream).read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let mut input = &buffer[..count];
        while let Some(frame) = decoder.next(&mut input).expect("the client sends good frames") {
            let request = match frame {
                ClientFrame::Release { owner, token: 0, key: PROBE_KEY } => {
                    if state.serves.load(Ordering::SeqCst) {
                        peer.send(ServerFrame::NotHeld { owner, key: PROBE_KEY });
                    }
                    continue;
                }
                ClientFrame::Acquire { wait, lease, owner, key } => {
                    Request::Acquire { wait, lease, owner, key: key.to_vec() }
                }
                ClientFrame::Release { owner, token, key } => {
                    Request::Release { owner, token, key: key.to_vec() }
                }
                ClientFrame::Proof { .. } => Request::Proof,
            };
            handler(peer, request);
        }
    }
}
