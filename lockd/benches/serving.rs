//! What a request costs the server over TCP: by how many are in flight, how many locks are held,
//! and how many connections there are.
//!
//! `cargo bench -p lockd --bench serving`
//!
//! The server is a process of its own, and its processor time is what counts: on a machine that
//! also runs the clients it is what they lose. Every request is one of a pair, an acquire and the
//! release of the same lock.

use lockclient::wire::{ClientFrame, Decoder, FromServer, ServerFrame};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const REQUESTS: usize = 200_000;
/// Requests that are under way at once where the number is not what is measured.
const IN_FLIGHT: usize = 64;

struct Program {
    child: Child,
    address: SocketAddr,
}

impl Program {
    fn start() -> Program {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lockd"))
            .args(["--listen", "127.0.0.1:0", "--log", "error"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("lockd");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        stdout.read_line(&mut line).expect("a line");
        let address = line.strip_prefix("listening on ").expect("an address").trim_end();
        Program { child, address: address.parse().expect("an address") }
    }

    /// Processor time that it has used.
    fn processor_time(&self) -> Duration {
        let tasks = format!("/proc/{}/task", self.child.id());
        let tasks = std::fs::read_dir(tasks).expect("tasks");
        let nanos = tasks.map(|task| {
            let path = task.expect("task").path().join("schedstat");
            let stat = std::fs::read_to_string(path).expect("schedstat");
            stat.split(' ').next().expect("a number").parse::<u64>().expect("a number")
        });
        Duration::from_nanos(nanos.sum())
    }

    /// Memory that it has in use, in bytes.
    fn resident(&self) -> usize {
        let path = format!("/proc/{}/statm", self.child.id());
        let statm = std::fs::read_to_string(path).expect("statm");
        let pages: usize = statm.split(' ').nth(1).expect("pages").parse().expect("a number");
        pages * 4096
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client {
    stream: TcpStream,
    owner: u64,
    request: Vec<u8>,
    received: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        Client { stream, owner: 0, request: Vec::new(), received: Vec::new() }
    }

    fn acquire(&mut self, key: &str) {
        self.owner += 1;
        ClientFrame::Acquire { wait: 0, lease: 255, owner: self.owner, key: key.as_bytes() }
            .encode(&mut self.request);
    }

    fn release(&mut self, token: u64, key: &str) {
        self.owner += 1;
        ClientFrame::Release { owner: self.owner, token, key: key.as_bytes() }
            .encode(&mut self.request);
    }

    fn send(&mut self) {
        let mut bytes = &self.request[..];
        while !bytes.is_empty() {
            bytes = &bytes[self.stream.write(bytes).expect("send")..];
        }
        self.request.clear();
    }

    /// Reads as many answers, and gives the tokens of the grants among them.
    fn receive(&mut self, answers: usize) -> Vec<u64> {
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

    /// Acquires locks in one write, then releases them in one write.
    fn round(&mut self, keys: &[String]) {
        keys.iter().for_each(|key| self.acquire(key));
        self.send();
        let tokens = self.receive(keys.len());
        keys.iter().zip(tokens).for_each(|(key, token)| self.release(token, key));
        self.send();
        self.receive(keys.len());
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    /// Different numbers below `bound`.
    fn some_below(&mut self, bound: usize) -> Vec<usize> {
        let mut numbers: Vec<usize> = Vec::new();
        while numbers.len() < IN_FLIGHT.min(bound) {
            let number = self.below(bound);
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        numbers
    }
}

/// Runs `requests` and says what each took.
fn report(what: &str, program: &Program, count: usize, requests: impl FnOnce()) {
    let (wall, processor) = (Instant::now(), program.processor_time());
    requests();
    println!(
        "{what}: {:>8.0} requests/s, {:>5.0} ns of the server's processor a request",
        count as f64 / wall.elapsed().as_secs_f64(),
        (program.processor_time() - processor).as_nanos() as f64 / count as f64,
    );
}

fn in_flight(connections: usize, depth: usize) {
    let program = Program::start();
    let mut clients: Vec<(Client, Vec<String>)> = (0..connections)
        .map(|client| {
            let keys = (0..depth).map(|slot| format!("bench/{client:04}/{slot:06}/name"));
            (Client::connect(program.address), keys.collect())
        })
        .collect();
    clients.iter_mut().for_each(|(client, keys)| client.round(keys));
    let rounds = REQUESTS / (2 * depth * connections);
    let what = format!("{connections:>3} connections, {depth:>3} in flight on each");
    report(&what, &program, rounds * 2 * depth * connections, || {
        std::thread::scope(|scope| {
            for (client, keys) in &mut clients {
                scope.spawn(move || (0..rounds).for_each(|_| client.round(keys)));
            }
        });
    });
}

/// Random ones of the locks that are held are released and acquired again.
fn held(count: usize) {
    let program = Program::start();
    let mut client = Client::connect(program.address);
    client.round(&["first".into()]);
    let before = program.resident();
    let key = |number: usize| format!("tenant/00/job/{number:010}");
    let mut tokens = Vec::with_capacity(count);
    while tokens.len() < count {
        let first = tokens.len();
        let last = count.min(first + IN_FLIGHT);
        (first..last).for_each(|number| client.acquire(&key(number)));
        client.send();
        tokens.extend(client.receive(last - first));
    }
    let bytes = program.resident().saturating_sub(before) / count;
    let mut random = Random(88172645463325252);
    let rounds: Vec<Vec<usize>> =
        (0..REQUESTS / (2 * IN_FLIGHT)).map(|_| random.some_below(count)).collect();
    let what = format!("{count:>8} held, {bytes:>4} bytes each");
    report(&what, &program, rounds.len() * 2 * IN_FLIGHT, || {
        for numbers in &rounds {
            numbers.iter().for_each(|number| client.release(tokens[*number], &key(*number)));
            client.send();
            client.receive(IN_FLIGHT);
            numbers.iter().for_each(|number| client.acquire(&key(*number)));
            client.send();
            let granted = client.receive(IN_FLIGHT);
            numbers.iter().zip(granted).for_each(|(number, token)| tokens[*number] = token);
        }
    });
}

/// Random ones of the connections acquire and release a lock of their own.
fn connections(count: usize) {
    let program = Program::start();
    let mut first = Client::connect(program.address);
    first.round(&["first".into()]);
    let before = program.resident();
    let mut clients: Vec<(Client, String)> = (0..count)
        .map(|number| (Client::connect(program.address), format!("own/{number:06}/name")))
        .collect();
    // Accepted, and read from once.
    for (client, key) in &mut clients {
        client.round(std::slice::from_ref(key));
    }
    let bytes = program.resident().saturating_sub(before) / count;
    let mut random = Random(88172645463325252);
    let rounds: Vec<Vec<usize>> =
        (0..REQUESTS / (2 * IN_FLIGHT)).map(|_| random.some_below(count)).collect();
    let requests = rounds.iter().map(|numbers| 2 * numbers.len()).sum();
    let what = format!("{count:>6} connections, {bytes:>5} bytes each");
    report(&what, &program, requests, || {
        for numbers in &rounds {
            for number in numbers {
                let (client, key) = &mut clients[*number];
                client.acquire(key);
                client.send();
            }
            for number in numbers {
                let (client, key) = &mut clients[*number];
                let token = client.receive(1)[0];
                client.release(token, key);
                client.send();
            }
            for number in numbers {
                clients[*number].0.receive(1);
            }
        }
    });
}

fn main() {
    let limit = getrlimit(Resource::Nofile);
    // As many as it may have: each connection takes one.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    for (clients, depth) in [(1, 1), (16, 1), (1, 16), (1, 64), (16, 64)] {
        in_flight(clients, depth);
    }
    println!("random ones of the locks held, {IN_FLIGHT} in flight on one connection");
    for count in [1_000, 10_000, 100_000, 1_000_000] {
        held(count);
    }
    println!("random ones of the connections, {IN_FLIGHT} at a time, one in flight on each");
    // One below the default limit, for the first one.
    for count in [1, 10, 100, 1_000, 9_999] {
        connections(count);
    }
}
