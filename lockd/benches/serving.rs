//! What a request costs the server over TCP, by how many are in flight and how many locks are
//! held.
//!
//! `cargo bench -p lockd --bench serving`
//!
//! The server's processor time is what counts on a machine that also runs the clients.

use lockclient::wire::{ClientFrame, Decoder, FromServer, ServerFrame};
use lockd::{Config, Server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const REQUESTS: usize = 200_000;

/// Processor time that the server's thread has used.
fn server_time() -> Duration {
    for task in std::fs::read_dir("/proc/self/task").expect("tasks") {
        let path = task.expect("task").path();
        let name = std::fs::read_to_string(path.join("comm")).expect("a name");
        if name.trim_end() == "lockd" {
            let stat = std::fs::read_to_string(path.join("schedstat")).expect("schedstat");
            let nanos = stat.split(' ').next().expect("a number").parse().expect("a number");
            return Duration::from_nanos(nanos);
        }
    }
    panic!("no server thread");
}

struct Client {
    stream: TcpStream,
    number: usize,
    owner: u64,
    request: Vec<u8>,
    received: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr, number: usize) -> Client {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        let (request, received) = (Vec::new(), Vec::new());
        Client { stream, number, owner: 0, request, received }
    }

    /// Acquires `depth` locks in one write, then releases them in one write.
    fn round(&mut self, depth: usize) {
        let key = |slot: usize, number: usize| format!("bench/{number:04}/{slot:06}/name");
        self.request.clear();
        for slot in 0..depth {
            self.owner += 1;
            let key = key(slot, self.number);
            ClientFrame::Acquire { wait: 0, lease: 200, owner: self.owner, key: key.as_bytes() }
                .encode(&mut self.request);
        }
        let tokens = self.exchange(depth);
        self.request.clear();
        for (slot, token) in tokens.into_iter().enumerate() {
            self.owner += 1;
            let key = key(slot, self.number);
            ClientFrame::Release { owner: self.owner, token, key: key.as_bytes() }
                .encode(&mut self.request);
        }
        self.exchange(depth);
    }

    fn exchange(&mut self, answers: usize) -> Vec<u64> {
        let mut bytes = &self.request[..];
        while !bytes.is_empty() {
            bytes = &bytes[self.stream.write(bytes).expect("write")..];
        }
        let mut tokens = Vec::with_capacity(answers);
        let mut buffer = [0; 16 * 1024];
        let mut seen = 0;
        while seen < answers {
            let count = self.stream.read(&mut buffer).expect("read");
            assert!(count > 0, "the server closed the connection");
            self.received.extend_from_slice(&buffer[..count]);
            let mut at = 0;
            let mut decoder = Decoder::<FromServer>::default();
            loop {
                let mut rest = &self.received[at..];
                let frame = decoder.next(&mut rest).expect("a frame");
                let used = self.received.len() - rest.len();
                match frame {
                    Some(ServerFrame::Acquired { token, .. }) => tokens.push(token),
                    Some(ServerFrame::Released { .. }) => {}
                    Some(other) => panic!("unexpected {other:?}"),
                    None => break,
                }
                seen += 1;
                at = used;
            }
            self.received.drain(..at);
        }
        tokens
    }
}

fn measure(address: SocketAddr, held: usize, connections: usize, depth: usize) {
    let mut clients: Vec<Client> =
        (0..connections).map(|number| Client::connect(address, number)).collect();
    for client in &mut clients {
        client.round(depth);
    }
    let rounds = REQUESTS / (2 * depth * connections).max(1);
    let (wall, processor) = (Instant::now(), server_time());
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(move || (0..rounds).for_each(|_| client.round(depth)));
        }
    });
    let requests = (rounds * 2 * depth * connections) as f64;
    println!(
        "{held:>8} held, {connections:>3} connections, {depth:>3} in flight on each: \
         {:>8.0} requests/s, {:>5.0} ns of the server's processor a request",
        requests / wall.elapsed().as_secs_f64(),
        (server_time() - processor).as_nanos() as f64 / requests,
    );
}

fn main() {
    for held in [0usize, 1_000_000] {
        let server = Server::start(Config::on_free_port()).expect("a server");
        let mut filler = Client::connect(server.addr(), 9999);
        for first in (0..held).step_by(64) {
            filler.request.clear();
            for number in first..first + 64 {
                let key = format!("held/{number:012}/name");
                ClientFrame::Acquire { wait: 0, lease: 255, owner: 1, key: key.as_bytes() }
                    .encode(&mut filler.request);
            }
            filler.exchange(64);
        }
        for (connections, depth) in [(1, 1), (16, 1), (1, 16), (1, 64), (16, 64)] {
            measure(server.addr(), held, connections, depth);
        }
        let stats = server.stats().locks;
        assert!(stats.held >= held, "leases ended while measuring");
    }
}
