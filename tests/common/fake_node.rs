//! A server that does what a test tells it to, and remembers every frame that it was sent.

use super::door::Door;
use lockclient::wire::{
    Block, ClientFrame, Decoder, FromClient, PROBE_KEY, ServerFrame, client_proof, server_proof,
};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything takes that works.
const LONG: Duration = Duration::from_secs(20);

/// What a client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Acquire { wait: u8, lease: u8, owner: u64, key: String },
    Release { owner: u64, token: u64, key: String },
    Probe { owner: u64 },
    Proof { nonce: Block, proof: Block },
}

/// A frame, and where and when it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Connections are counted from 0, in the order of their accept.
    pub(crate) connection: usize,
    pub(crate) at: Instant,
    pub(crate) request: Request,
}

/// What a node does about a frame.
#[derive(Debug)]
pub(crate) enum Reaction {
    /// These bytes are the answer.
    Say(Vec<u8>),
    /// No answer, or a later one by [`FakeNode::say`].
    Hold,
    /// These bytes, and the end of the stream.
    SayAndClose(Vec<u8>),
}

impl Seen {
    /// Its owner, unless it is a proof.
    pub(crate) fn owner(&self) -> Option<u64> {
        match self.request {
            Request::Acquire { owner, .. }
            | Request::Release { owner, .. }
            | Request::Probe { owner } => Some(owner),
            Request::Proof { .. } => None,
        }
    }

    /// Its key, if it asks for or gives back a lock.
    pub(crate) fn key(&self) -> Option<&str> {
        match &self.request {
            Request::Acquire { key, .. } | Request::Release { key, .. } => Some(key),
            _ => None,
        }
    }

    pub(crate) fn is_acquire(&self) -> bool {
        matches!(self.request, Request::Acquire { .. })
    }

    pub(crate) fn is_probe(&self) -> bool {
        matches!(self.request, Request::Probe { .. })
    }

    fn echo(&self) -> (u64, &[u8]) {
        match &self.request {
            Request::Acquire { owner, key, .. } | Request::Release { owner, key, .. } => {
                (*owner, key.as_bytes())
            }
            Request::Probe { owner } => (*owner, PROBE_KEY),
            Request::Proof { .. } => panic!("a proof has no owner"),
        }
    }

    pub(crate) fn granted(&self, token: u64) -> Vec<u8> {
        let (owner, key) = self.echo();
        frame(ServerFrame::Acquired { owner, token, key })
    }

    pub(crate) fn timed_out(&self) -> Vec<u8> {
        let (owner, key) = self.echo();
        frame(ServerFrame::TimedOut { owner, key })
    }

    pub(crate) fn busy(&self) -> Vec<u8> {
        let (owner, key) = self.echo();
        frame(ServerFrame::Busy { owner, key })
    }

    pub(crate) fn released(&self) -> Vec<u8> {
        let (owner, key) = self.echo();
        frame(ServerFrame::Released { owner, key })
    }

    pub(crate) fn not_held(&self) -> Vec<u8> {
        let (owner, key) = self.echo();
        frame(ServerFrame::NotHeld { owner, key })
    }

    /// What a server says whose every lock is free: `A`, `R` or `N`.
    pub(crate) fn served(&self, token: u64) -> Reaction {
        Reaction::Say(match self.request {
            Request::Acquire { .. } => self.granted(token),
            Request::Release { .. } => self.released(),
            Request::Probe { .. } => self.not_held(),
            Request::Proof { .. } => return Reaction::SayAndClose(error("auth_failed")),
        })
    }
}

pub(crate) fn frame(frame: ServerFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

pub(crate) fn moved(leader: &str) -> Vec<u8> {
    frame(ServerFrame::Moved { leader: leader.as_bytes() })
}

pub(crate) fn leader(leader: &str) -> Vec<u8> {
    frame(ServerFrame::Leader { leader: leader.as_bytes() })
}

pub(crate) fn error(code: &str) -> Vec<u8> {
    frame(ServerFrame::Error { code: code.as_bytes() })
}

/// Every lock is free, tokens grow.
pub(crate) fn serve() -> impl FnMut(&Seen) -> Reaction + Send + 'static {
    let mut token = 0;
    move |seen| {
        token += 1;
        seen.served(token)
    }
}

type React = Box<dyn FnMut(&Seen) -> Reaction + Send>;

struct Link {
    stream: Arc<TcpStream>,
    ended: bool,
    /// The bytes behind its last whole frame, once it has ended.
    cut: usize,
}

struct State {
    react: React,
    greeting: Vec<u8>,
    secret: Option<(Vec<u8>, Block)>,
    refuses: bool,
    stopped: bool,
    links: Vec<Link>,
    seen: Vec<Seen>,
    readers: Vec<JoinHandle<()>>,
}

struct Shared {
    door: Door,
    state: Mutex<State>,
    changed: Condvar,
}

/// The server. Dropping it ends its connections and its threads.
pub(crate) struct FakeNode {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl FakeNode {
    /// A node whose every lock is free.
    pub(crate) fn start() -> FakeNode {
        FakeNode::start_with(serve())
    }

    /// A node that does as it is told.
    pub(crate) fn start_with(react: impl FnMut(&Seen) -> Reaction + Send + 'static) -> FakeNode {
        FakeNode::behind(Door::open(), false, Box::new(react))
    }

    /// A node that refuses connections until [`FakeNode::listen`].
    pub(crate) fn refusing() -> FakeNode {
        FakeNode::behind(Door::closed(), true, Box::new(serve()))
    }

    fn behind(door: Door, refuses: bool, react: React) -> FakeNode {
        let state = State {
            react,
            greeting: Vec::new(),
            secret: None,
            refuses,
            stopped: false,
            links: Vec::new(),
            seen: Vec::new(),
            readers: Vec::new(),
        };
        let shared = Arc::new(Shared { door, state: Mutex::new(state), changed: Condvar::new() });
        let acceptor = std::thread::spawn({
            let shared = shared.clone();
            move || accept(&shared)
        });
        FakeNode { shared, acceptor: Some(acceptor) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.shared.door.address()
    }

    pub(crate) fn endpoint(&self) -> String {
        self.address().to_string()
    }

    /// What it does from now on.
    pub(crate) fn react(&self, react: impl FnMut(&Seen) -> Reaction + Send + 'static) {
        self.state().react = Box::new(react);
    }

    /// What it says first on every connection from now on.
    pub(crate) fn greet(&self, greeting: Vec<u8>) {
        self.state().greeting = greeting;
    }

    /// From now on every connection has to prove that it knows the secret.
    pub(crate) fn demand(&self, secret: &[u8]) {
        let nonce = [7; 32];
        let mut state = self.state();
        state.greeting = frame(ServerFrame::Challenge { nonce: &nonce });
        state.secret = Some((secret.to_vec(), nonce));
    }

    /// Connections are refused from now on; those that there are stay.
    pub(crate) fn refuse(&self) {
        self.state().refuses = true;
        self.shared.door.refuse();
    }

    /// Connections are accepted again.
    pub(crate) fn listen(&self) {
        self.shared.door.listen();
        self.state().refuses = false;
        self.shared.changed.notify_all();
    }

    /// Says something on a connection.
    pub(crate) fn say(&self, connection: usize, bytes: &[u8]) {
        let stream = self.state().links[connection].stream.clone();
        // A client that has gone does not hear it.
        let _ = send_all(&stream, bytes);
    }

    /// Says something on every connection that there is.
    pub(crate) fn say_to_all(&self, bytes: &[u8]) {
        for connection in 0..self.connections() {
            self.say(connection, bytes);
        }
    }

    /// Ends a connection; what was said before still arrives.
    pub(crate) fn close(&self, connection: usize) {
        let _ = self.state().links[connection].stream.shutdown(Shutdown::Both);
    }

    /// Resets a connection.
    pub(crate) fn reset(&self, connection: usize) {
        crate::common::reset(&self.state().links[connection].stream);
    }

    /// Ends every connection that there is.
    pub(crate) fn close_all(&self) {
        for connection in 0..self.connections() {
            self.close(connection);
        }
    }

    /// How many connections it has accepted.
    pub(crate) fn connections(&self) -> usize {
        self.state().links.len()
    }

    /// How many connections have not ended.
    pub(crate) fn open_connections(&self) -> usize {
        self.state().links.iter().filter(|link| !link.ended).count()
    }

    /// The length of the unfinished frame that a connection ended in; `None` while it goes on.
    pub(crate) fn cut(&self, connection: usize) -> Option<usize> {
        let state = self.state();
        let link = state.links.get(connection)?;
        link.ended.then_some(link.cut)
    }

    /// Every frame so far, in the order in which they came.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state().seen.clone()
    }

    /// The acquires among them.
    pub(crate) fn acquires(&self) -> Vec<Seen> {
        self.seen().into_iter().filter(Seen::is_acquire).collect()
    }

    /// Waits until what it has seen is as it should be.
    pub(crate) fn wait_for(&self, what: &str, good: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        self.wait_until(what, |state| good(&state.seen)).seen.clone()
    }

    /// Waits until a connection has ended; the length of the unfinished frame at its end.
    pub(crate) fn wait_for_end(&self, connection: usize) -> usize {
        let ended = |state: &State| state.links.get(connection).is_some_and(|link| link.ended);
        self.wait_until("the end of a connection", ended).links[connection].cut
    }

    fn wait_until(&self, what: &str, good: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let end = Instant::now() + LONG;
        let mut state = self.state();
        while !good(&state) {
            let left = end.saturating_duration_since(Instant::now());
            let last = state.seen.len().saturating_sub(10);
            assert!(!left.is_zero(), "never came: {what}; last seen: {:?}", &state.seen[last..]);
            state = self.shared.changed.wait_timeout(state, left).expect("the state").0;
        }
        state
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("the node's own threads do not panic")
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        // A test that fails may have poisoned the lock: it must not be made to abort here.
        let mut state = self.shared.state.lock().unwrap_or_else(|poison| poison.into_inner());
        state.stopped = true;
        let readers = std::mem::take(&mut state.readers);
        for link in &state.links {
            let _ = link.stream.shutdown(Shutdown::Both);
        }
        drop(state);
        self.shared.changed.notify_all();
        self.shared.door.refuse();
        for thread in self.acceptor.take().into_iter().chain(readers) {
            let _ = thread.join();
        }
    }
}

fn accept(shared: &Arc<Shared>) {
    loop {
        let accepted = shared.door.accept();
        let Ok(mut state) = shared.state.lock() else { return };
        while accepted.is_err() && state.refuses && !state.stopped {
            let Ok(woken) = shared.changed.wait(state) else { return };
            state = woken;
        }
        if state.stopped {
            return;
        }
        let Ok(stream) = accepted else { continue };
        let _ = stream.set_write_timeout(Some(LONG));
        let stream = Arc::new(stream);
        let _ = send_all(&stream, &state.greeting);
        let connection = state.links.len();
        state.links.push(Link { stream: stream.clone(), ended: false, cut: 0 });
        let shared = shared.clone();
        state.readers.push(std::thread::spawn(move || read(&shared, connection, &stream)));
    }
}

fn read(shared: &Shared, connection: usize, stream: &TcpStream) {
    let mut decoder = Decoder::<FromClient>::default();
    let mut buffer = [0; 16 * 1024];
    // Since the last whole frame.
    let mut cut = 0;
    loop {
        let count = match { stream }.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let mut input = &buffer[..count];
        loop {
            let before = input.len();
            let next = decoder.next(&mut input).expect("a client that speaks the protocol");
            cut += before - input.len();
            let Some(frame) = next else { break };
            cut = 0;
            let seen = Seen { connection, at: Instant::now(), request: request(frame) };
            heard(shared, stream, seen);
        }
    }
    if let Ok(mut state) = shared.state.lock() {
        state.links[connection].ended = true;
        state.links[connection].cut = cut;
        let _ = stream.shutdown(Shutdown::Both);
    }
    shared.changed.notify_all();
}

fn heard(shared: &Shared, stream: &TcpStream, seen: Seen) {
    let Ok(mut state) = shared.state.lock() else { return };
    let reaction = match (&seen.request, &state.secret) {
        (Request::Proof { nonce, proof }, Some((secret, challenge))) => {
            if client_proof(secret, challenge, nonce) == *proof {
                let proof = &server_proof(secret, challenge, nonce);
                Reaction::Say(frame(ServerFrame::Accepted { proof }))
            } else {
                Reaction::SayAndClose(error("auth_failed"))
            }
        }
        _ => (state.react)(&seen),
    };
    state.seen.push(seen);
    match reaction {
        Reaction::Hold => {}
        Reaction::Say(bytes) => {
            let _ = send_all(stream, &bytes);
        }
        Reaction::SayAndClose(bytes) => {
            let _ = send_all(stream, &bytes);
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
    drop(state);
    shared.changed.notify_all();
}

fn request(frame: ClientFrame<'_>) -> Request {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("a key is UTF-8");
    match frame {
        ClientFrame::Acquire { wait, lease, owner, key } => {
            Request::Acquire { wait, lease, owner, key: text(key) }
        }
        ClientFrame::Release { owner, token: 0, key: PROBE_KEY } => Request::Probe { owner },
        ClientFrame::Release { owner, token, key } => {
            Request::Release { owner, token, key: text(key) }
        }
        ClientFrame::Proof { nonce, proof } => Request::Proof { nonce: *nonce, proof: *proof },
    }
}

fn send_all(mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
