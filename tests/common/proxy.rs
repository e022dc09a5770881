//! A TCP proxy that does to a connection what a network may do to it.
//!
//! One thread carries every link. What is forwarded to the server is read along, frame by frame,
//! so that a test can count what the server was given, whoever the server is.

use super::door::Door;
use lockclient::wire::{ClientFrame, Decoder, FromClient};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::SockRef;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The bytes that wait in the proxy for one direction of a link, at most.
const ROOM: usize = 1024 * 1024;

const WAKE: Token = Token(0);
const ACCEPT: Token = Token(1);

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// What happens to the bytes of one direction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Course {
    /// They wait in the proxy; what has come by the time of the release goes out in one write.
    pub(crate) hold: bool,
    /// They are not even read, so that the sender's socket fills.
    pub(crate) stall: bool,
    /// They are read and vanish.
    pub(crate) swallow: bool,
    /// Each is forwarded so long after it came.
    pub(crate) delay: Duration,
    /// They are forwarded one at a time, this far apart.
    pub(crate) dribble: Option<Duration>,
    /// After so many forwarded bytes, this happens.
    pub(crate) end: Option<(u64, End)>,
}

/// How a link, or one direction of it, ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides get an end of stream.
    Cut,
    /// The client gets a reset, the server an end of stream.
    Reset,
    /// The direction's receiver gets an end of stream; the other direction goes on.
    HalfClose,
    /// The direction's bytes vanish from here on.
    Swallow,
}

/// What happens to a link's two directions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plan {
    pub(crate) up: Course,
    pub(crate) down: Course,
}

/// A whole frame that was forwarded to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forwarded {
    /// Links are counted from 0, in the order of their accept.
    pub(crate) link: usize,
    pub(crate) op: char,
    /// 0 for a proof.
    pub(crate) owner: u64,
    /// Of a release.
    pub(crate) token: u64,
    pub(crate) key: String,
}

#[derive(Debug, Default)]
struct Flow {
    course: Course,
    /// With the instant at which each may leave.
    pending: VecDeque<(Instant, Vec<u8>)>,
    waiting: usize,
    forwarded: u64,
    /// The sender has ended its stream.
    ended: bool,
    /// The receiver was given the end of the stream.
    closed: bool,
    /// Nothing leaves before this.
    next: Option<Instant>,
    /// The receiver's socket is full.
    full: bool,
}

struct Link {
    /// The client's side and the server's; `None` once the link is gone.
    streams: Option<(TcpStream, TcpStream)>,
    up: Flow,
    down: Flow,
    decoder: Decoder<FromClient>,
}

type Planner = Box<dyn FnMut(usize) -> Plan + Send>;

struct State {
    target: SocketAddr,
    planner: Planner,
    refuses: bool,
    stopped: bool,
    links: Vec<Link>,
    forwarded: Vec<Forwarded>,
}

/// The proxy. Dropping it ends its links and its thread.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy that forwards faithfully.
    pub(crate) fn start(target: SocketAddr) -> Proxy {
        Proxy::start_with(target, |_| Plan::default())
    }

    /// A proxy that asks what to do with each new link.
    pub(crate) fn start_with(
        target: SocketAddr,
        planner: impl FnMut(usize) -> Plan + Send + 'static,
    ) -> Proxy {
        Proxy::behind(&Door::open(), target, Box::new(planner))
    }

    /// The same; what it does not read soon fills the client's socket.
    pub(crate) fn start_narrow(
        target: SocketAddr,
        planner: impl FnMut(usize) -> Plan + Send + 'static,
    ) -> Proxy {
        Proxy::behind(&Door::narrow(), target, Box::new(planner))
    }

    fn behind(door: &Door, target: SocketAddr, planner: Planner) -> Proxy {
        let poll = Poll::new().expect("a poll");
        let waker = Arc::new(Waker::new(poll.registry(), WAKE).expect("a waker"));
        let mut listener = TcpListener::from_std(door.listener().expect("a listener"));
        poll.registry().register(&mut listener, ACCEPT, Interest::READABLE).expect("register");
        let state = Arc::new(Mutex::new(State {
            target,
            planner,
            refuses: false,
            stopped: false,
            links: Vec::new(),
            forwarded: Vec::new(),
        }));
        let address = door.address();
        let thread = std::thread::spawn({
            let state = state.clone();
            move || carry(poll, &listener, &state)
        });
        Proxy { address, state, waker, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// Changes what happens to the new links.
    pub(crate) fn plan(&self, planner: impl FnMut(usize) -> Plan + Send + 'static) {
        self.state().planner = Box::new(planner);
    }

    /// Changes where new links lead.
    pub(crate) fn retarget(&self, target: SocketAddr) {
        self.state().target = target;
    }

    /// From now on every new connection is reset at once, or no longer so.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.state().refuses = refuses;
    }

    /// How many links there were.
    pub(crate) fn links(&self) -> usize {
        self.state().links.len()
    }

    /// How many links there are.
    pub(crate) fn open_links(&self) -> usize {
        self.state().links.iter().filter(|link| link.streams.is_some()).count()
    }

    /// Changes what happens to one direction of one link.
    pub(crate) fn change(&self, link: usize, way: Way, change: impl FnOnce(&mut Course)) {
        let mut state = self.state();
        change(&mut state.links[link].flow(way).course);
        drop(state);
        self.wake();
    }

    /// Changes what happens to one direction of every link that there is.
    pub(crate) fn change_all(&self, way: Way, change: impl Fn(&mut Course)) {
        for link in 0..self.links() {
            self.change(link, way, &change);
        }
    }

    /// Ends a link now.
    pub(crate) fn end(&self, link: usize, end: End) {
        let mut state = self.state();
        state.links[link].end(Way::Up, end);
        drop(state);
        self.wake();
    }

    /// Ends every link that there is now.
    pub(crate) fn end_all(&self, end: End) {
        for link in 0..self.links() {
            self.end(link, end);
        }
    }

    /// The whole frames that were forwarded to the server, in that order.
    pub(crate) fn forwarded(&self) -> Vec<Forwarded> {
        self.state().forwarded.clone()
    }

    /// The acquires among them.
    pub(crate) fn acquires(&self) -> Vec<Forwarded> {
        self.forwarded().into_iter().filter(|frame| frame.op == 'A').collect()
    }

    /// The bytes that were forwarded on one link in one direction.
    pub(crate) fn bytes(&self, link: usize, way: Way) -> u64 {
        self.state().links[link].flow(way).forwarded
    }

    /// The bytes of one direction of a link that wait here.
    pub(crate) fn waiting(&self, link: usize, way: Way) -> usize {
        self.state().links[link].flow(way).waiting
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the proxy's own thread does not panic")
    }

    fn wake(&self) {
        self.waker.wake().expect("wake");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner()).stopped = true;
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry(mut poll: Poll, listener: &TcpListener, state: &Mutex<State>) {
    let mut events = Events::with_capacity(256);
    let mut sleep = None;
    loop {
        match poll.poll(&mut events, sleep) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return,
            _ => {}
        }
        let Ok(mut guard) = state.lock() else { return };
        let state = &mut *guard;
        if state.stopped {
            return;
        }
        while let Ok((client, _)) = listener.accept() {
            state.accept(client, &poll);
        }
        // Whatever woke it: every link is looked at, so no event can be missed.
        let State { links, forwarded, .. } = state;
        let now = Instant::now();
        let next = links.iter_mut().enumerate().filter_map(|(at, link)| {
            link.pump(at, forwarded, now);
            link.next()
        });
        sleep = next.min().map(|next| next.saturating_duration_since(Instant::now()));
    }
}

impl State {
    fn accept(&mut self, client: TcpStream, poll: &Poll) {
        if self.refuses {
            let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
            return;
        }
        let at = self.links.len();
        let plan = (self.planner)(at);
        let flow = |course| Flow { course, ..Flow::default() };
        let (up, down) = (flow(plan.up), flow(plan.down));
        // On the loopback interface it takes no time.
        let server = std::net::TcpStream::connect_timeout(&self.target, Duration::from_secs(5));
        let streams = server.ok().map(|server| {
            server.set_nonblocking(true).expect("nonblocking");
            (client, TcpStream::from_std(server))
        });
        let streams = streams.map(|(mut client, mut server)| {
            let both = Interest::READABLE | Interest::WRITABLE;
            for (side, stream) in [&mut client, &mut server].into_iter().enumerate() {
                stream.set_nodelay(true).expect("nodelay");
                poll.registry().register(stream, Token(2 + 2 * at + side), both).expect("register");
            }
            (client, server)
        });
        self.links.push(Link { streams, up, down, decoder: Decoder::default() });
    }
}

impl Link {
    fn flow(&mut self, way: Way) -> &mut Flow {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }

    /// Moves what can be moved now.
    fn pump(&mut self, at: usize, forwarded: &mut Vec<Forwarded>, now: Instant) {
        for way in [Way::Up, Way::Down] {
            let Some((client, server)) = &self.streams else { return };
            let decoder = &mut self.decoder;
            let moved = match way {
                Way::Up => self.up.run(client, server, now, |bytes| {
                    read_along(decoder, bytes, at, forwarded);
                }),
                Way::Down => self.down.run(server, client, now, |_| {}),
            };
            if let Some(end) = moved {
                self.end(way, end);
            }
        }
        // Both ends have been passed on.
        if self.up.closed && self.down.closed && self.up.ended && self.down.ended {
            self.streams = None;
        }
    }

    fn end(&mut self, way: Way, end: End) {
        match end {
            End::Cut => {
                for way in [Way::Up, Way::Down] {
                    self.end(way, End::HalfClose);
                }
            }
            End::HalfClose => {
                let Some((client, server)) = &self.streams else { return };
                let to = if way == Way::Up { server } else { client };
                let _ = to.shutdown(Shutdown::Write);
                let flow = self.flow(way);
                flow.closed = true;
                flow.swallow();
            }
            End::Swallow => self.flow(way).swallow(),
            End::Reset => {
                if let Some((client, _)) = self.streams.take() {
                    let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
                }
            }
        }
    }

    /// When something is due here by itself.
    fn next(&self) -> Option<Instant> {
        self.streams.as_ref()?;
        let due = |flow: &Flow| {
            let (due, _) = flow.pending.front()?;
            let held = flow.course.hold || flow.full;
            (!held).then(|| flow.next.map_or(*due, |next| next.max(*due)))
        };
        [due(&self.up), due(&self.down)].into_iter().flatten().min()
    }
}

impl Flow {
    /// Reads and writes as long as something moves. Whether the direction or the link ends now.
    fn run(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        now: Instant,
        mut note: impl FnMut(&[u8]),
    ) -> Option<End> {
        loop {
            let read = self.read(from, now);
            match self.write(to, now, &mut note) {
                Ok(None) => {}
                Ok(end) => return end,
                Err(()) => return Some(End::Reset),
            }
            match read {
                Err(()) => return Some(End::Reset),
                Ok(more) if more && self.waiting < ROOM => {}
                Ok(_) => return None,
            }
        }
    }

    /// Reads what there is. Whether there may be more. An error: the sender has reset.
    fn read(&mut self, mut from: &TcpStream, now: Instant) -> Result<bool, ()> {
        let mut buffer = [0; 64 * 1024];
        while !self.ended && !self.course.stall {
            if self.waiting >= ROOM {
                return Ok(true);
            }
            match from.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(_) if self.closed || self.course.swallow => {}
                Ok(count) => {
                    self.waiting += count;
                    self.pending.push_back((now + self.course.delay, buffer[..count].to_vec()));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(()),
            }
        }
        Ok(false)
    }

    /// Writes what may leave. An error: the receiver has gone.
    fn write(
        &mut self,
        mut to: &TcpStream,
        now: Instant,
        note: &mut impl FnMut(&[u8]),
    ) -> Result<Option<End>, ()> {
        self.full = false;
        while !self.course.hold && !self.closed {
            let mut most = usize::MAX;
            if let Some((at, end)) = self.course.end {
                if self.forwarded >= at {
                    self.course.end = None;
                    return Ok(Some(end));
                }
                most = (at - self.forwarded) as usize;
            }
            if self.course.dribble.is_some() {
                most = 1;
            }
            if self.next.is_some_and(|next| now < next) {
                break;
            }
            let mut bytes = self.take_due(now);
            if bytes.is_empty() {
                if self.ended && self.pending.is_empty() {
                    let _ = to.shutdown(Shutdown::Write);
                    self.closed = true;
                }
                break;
            }
            let written = to.write(&bytes[..bytes.len().min(most)]);
            let count = *written.as_ref().unwrap_or(&0);
            note(&bytes[..count]);
            self.forwarded += count as u64;
            bytes.drain(..count);
            self.waiting -= count;
            if !bytes.is_empty() {
                self.pending.push_front((now, bytes));
            }
            match written {
                Ok(_) => self.next = self.course.dribble.map(|apart| now + apart),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.full = true;
                    break;
                }
                Err(_) => return Err(()),
            }
        }
        Ok(None)
    }

    /// What may leave now, in one piece.
    fn take_due(&mut self, now: Instant) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.pending.front().is_some_and(|(due, _)| *due <= now) {
            bytes.extend(self.pending.pop_front().into_iter().flat_map(|(_, bytes)| bytes));
        }
        bytes
    }

    fn swallow(&mut self) {
        self.course.swallow = true;
        self.pending.clear();
        self.waiting = 0;
    }
}

fn read_along(
    decoder: &mut Decoder<FromClient>,
    mut bytes: &[u8],
    link: usize,
    forwarded: &mut Vec<Forwarded>,
) {
    // What is no frame any more is nothing to count.
    while let Ok(Some(frame)) = decoder.next(&mut bytes) {
        let (op, owner, token, key) = match frame {
            ClientFrame::Acquire { owner, key, .. } => ('A', owner, 0, key),
            ClientFrame::Release { owner, token, key } => ('R', owner, token, key),
            ClientFrame::Proof { .. } => ('H', 0, 0, &[][..]),
        };
        let key = String::from_utf8_lossy(key).into_owned();
        forwarded.push(Forwarded { link, op, owner, token, key });
    }
}
