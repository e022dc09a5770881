//! Peers that misbehave, each in its own way, against a server that may die and come back
//! elsewhere.

use super::common::{Peer, plain, send_all};
use lockclient::wire::ClientFrame;
use socket2::SockRef;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

#[derive(Clone)]
pub(crate) struct Attack {
    /// Where the server is; it moves with each restart.
    address: Arc<Mutex<SocketAddr>>,
    over: Arc<AtomicBool>,
    /// The longest lease that the attackers may be granted, in seconds.
    lease: u8,
    /// Whether the server may end at any moment.
    mortal: bool,
}

impl Attack {
    /// On a server that stays.
    pub(crate) fn on(address: SocketAddr) -> Attack {
        Attack::new(address, 255, false)
    }

    /// On a server that is killed now and then, with leases that it can wait for.
    pub(crate) fn on_mortal(address: SocketAddr, lease: u8) -> Attack {
        Attack::new(address, lease, true)
    }

    fn new(address: SocketAddr, lease: u8, mortal: bool) -> Attack {
        Attack { address: Arc::new(Mutex::new(address)), over: Arc::default(), lease, mortal }
    }

    /// All kinds at once.
    pub(crate) fn begin(&self) -> Vec<JoinHandle<()>> {
        let attacks: [fn(&Attack); 7] =
            [deaf, deaf, dripping, flooding, babbling, storming, silent];
        let spawn = |attack: fn(&Attack)| {
            let this = self.clone();
            std::thread::spawn(move || attack(&this))
        };
        attacks.into_iter().map(spawn).collect()
    }

    pub(crate) fn end(&self, threads: Vec<JoinHandle<()>>) {
        self.over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("an attacker");
        }
    }

    /// The server was started again.
    pub(crate) fn moved(&self, address: SocketAddr) {
        *self.address.lock().expect("an address") = address;
    }

    fn address(&self) -> SocketAddr {
        *self.address.lock().expect("an address")
    }

    pub(crate) fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// A new connection; none once the attack is over.
    pub(crate) fn connect(&self) -> Option<Peer> {
        self.connect_by(Peer::try_connect)
    }

    fn connect_by(&self, connect: fn(SocketAddr) -> std::io::Result<Peer>) -> Option<Peer> {
        while self.goes_on() {
            match connect(self.address()) {
                Ok(peer) => return Some(peer),
                Err(error) => assert!(self.mortal, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

/// Asks and never reads, until it is closed.
fn deaf(attack: &Attack) {
    let mut request = Vec::new();
    ClientFrame::Release { owner: 1, token: 0, key: &[b'x'; 128] }.encode(&mut request);
    let requests = request.repeat(100);
    while let Some(peer) = attack.connect_by(Peer::try_connect_with_small_window) {
        peer.stream.set_write_timeout(Some(Duration::from_millis(200))).expect("time-out");
        while attack.goes_on()
            && !matches!(send_all(&peer.stream, &requests), Err(error)
            if error.kind() != ErrorKind::WouldBlock)
        {}
    }
}

/// Sends frames a byte at a time, on many connections, and never ends one.
fn dripping(attack: &Attack) {
    let mut peers: Vec<Peer> = (0..20).map_while(|_| attack.connect()).collect();
    let mut sent = 0u64;
    while attack.goes_on() {
        for peer in &mut peers {
            let byte = if sent == 0 { b'A' } else { 1 };
            if send_all(&peer.stream, &[byte]).is_err() {
                let Some(another) = attack.connect() else { return };
                *peer = another;
            }
        }
        sent = (sent + 1) % 8;
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Asks as fast as it can, and reads.
fn flooding(attack: &Attack) {
    let mut requests = Vec::new();
    for owner in 1..=500 {
        ClientFrame::Release { owner, token: 0, key: b"k" }.encode(&mut requests);
    }
    while let Some(mut peer) = attack.connect() {
        while attack.goes_on() && flood(&mut peer, &requests, attack.mortal) {}
    }
}

/// Returns whether the server is still there, and serves.
fn flood(peer: &mut Peer, requests: &[u8], mortal: bool) -> bool {
    if !mortal {
        send_all(&peer.stream, requests).expect("send");
    } else if send_all(&peer.stream, requests).is_err() {
        return false;
    }
    for owner in 1..=500 {
        match peer.try_answer() {
            Ok(Some(answer)) if answer == plain('N', owner, "k") => {}
            // It ended, or it is in quarantine.
            _ if mortal => {
                std::thread::sleep(Duration::from_millis(20));
                return false;
            }
            other => panic!("{other:?}"),
        }
    }
    true
}

/// Sends what is no frame.
fn babbling(attack: &Attack) {
    let mut random = 88172645463325252u64;
    while let Some(mut peer) = attack.connect() {
        let bytes: Vec<u8> = (0..2000)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random >> 32) as u8
            })
            // Where leases must be short, chance must not make up an acquire.
            .map(|byte| if attack.lease < 255 && byte == b'A' { b'a' } else { byte })
            .collect();
        // It may be closed before all is sent, and must be in the end.
        let _ = send_all(&peer.stream, &bytes);
        let _ = peer.stream.shutdown(std::net::Shutdown::Write);
        while let Ok(Some(_)) = peer.try_answer() {}
    }
}

/// Connects, waits for a lock that is rarely free or never, and goes, in every manner.
fn storming(attack: &Attack) {
    let mut bytes = Vec::new();
    let lease = attack.lease;
    ClientFrame::Acquire { wait: 255, lease, owner: 1, key: b"hot" }.encode(&mut bytes);
    ClientFrame::Acquire { wait: 255, lease: 1, owner: 2, key: b"warm" }.encode(&mut bytes);
    let mut round = 0u64;
    while attack.goes_on() {
        let peers: Vec<Peer> = (0..20).map_while(|_| attack.connect()).collect();
        for peer in &peers {
            let _ = send_all(&peer.stream, &bytes);
        }
        for peer in peers {
            round += 1;
            if round.is_multiple_of(2) {
                // It may be gone already.
                let _ = SockRef::from(&peer.stream).set_linger(Some(Duration::ZERO));
            }
        }
    }
}

/// Connects and says nothing.
fn silent(attack: &Attack) {
    while attack.goes_on() {
        let address = attack.address();
        let peers: Vec<Peer> = (0..50).map_while(|_| attack.connect()).collect();
        while attack.goes_on() && attack.address() == address {
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(peers);
    }
}
