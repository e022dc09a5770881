use super::*;
use mio::{Events, Poll};
use socket2::SockRef;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

fn wait(poll: &mut Poll, ready: impl Fn(&mio::event::Event) -> bool) {
    let start = Instant::now();
    let mut events = Events::with_capacity(8);
    loop {
        assert!(start.elapsed() < Duration::from_secs(30), "nothing came");
        poll.poll(&mut events, Some(Duration::from_secs(1))).unwrap();
        if events.iter().any(&ready) {
            return;
        }
    }
}

fn connected() -> (Poll, Socket, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut poll = Poll::new().unwrap();
    let address = listener.local_addr().unwrap();
    let mut socket = Socket::connect(&address.into(), poll.registry(), Token(1), 0).unwrap();
    wait(&mut poll, mio::event::Event::is_writable);
    assert!(matches!(socket.progress(0), Progress::Done));
    let (peer, _) = listener.accept().unwrap();
    (poll, socket, peer)
}

/// The same through a socket file. What is used of the peer is the same for both kinds.
fn connected_by_file() -> (Poll, Socket, std::net::TcpStream) {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let name = format!("lockclient-socket-{}-{serial}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let listener = UnixListener::bind(&path).unwrap();
    let address = SockAddr::unix(&path).unwrap();
    let mut poll = Poll::new().unwrap();
    let socket = Socket::connect(&address, poll.registry(), Token(1), 0);
    std::fs::remove_file(&path).unwrap();
    let mut socket = socket.unwrap();
    wait(&mut poll, mio::event::Event::is_writable);
    assert!(matches!(socket.progress(0), Progress::Done));
    let (peer, _) = listener.accept().unwrap();
    (poll, socket, OwnedFd::from(peer).into())
}

#[test]
fn connecting_reading_and_sending() {
    for connected in [connected, connected_by_file] {
        connects_reads_and_sends(connected());
    }
}

fn connects_reads_and_sends((mut poll, mut socket, mut peer): (Poll, Socket, std::net::TcpStream)) {
    let mut buffer = [0; 16];
    assert_eq!(socket.receive(&mut buffer, 0).unwrap(), None);
    assert_eq!(socket.send(b"hello", 0).unwrap(), 5);
    let mut heard = [0; 5];
    peer.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    assert_eq!(peer.write(b"hi").unwrap(), 2);
    wait(&mut poll, mio::event::Event::is_readable);
    assert_eq!(socket.receive(&mut buffer, 0).unwrap(), Some(2));
    drop(peer);
    wait(&mut poll, mio::event::Event::is_read_closed);
    assert_eq!(socket.receive(&mut buffer, 0).unwrap(), Some(0));
}

#[test]
fn snd_1_a_full_socket_takes_a_part_and_then_nothing() {
    for connected in [connected, connected_by_file] {
        fills_up(connected());
    }
}

fn fills_up((mut poll, mut socket, mut peer): (Poll, Socket, std::net::TcpStream)) {
    let bytes = vec![7; 1 << 20];
    let mut taken = 0;
    loop {
        match socket.send(&bytes, 0).unwrap() {
            0 => break,
            accepted => taken += accepted,
        }
        assert!(taken < 1 << 30);
    }
    assert!(taken > 0);
    // Room is told of.
    peer.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let start = Instant::now();
    let mut events = Events::with_capacity(8);
    while !events.iter().any(mio::event::Event::is_writable) {
        while peer.read(&mut buffer).is_ok() {}
        assert!(start.elapsed() < Duration::from_secs(30), "nothing came");
        poll.poll(&mut events, Some(Duration::from_millis(1))).unwrap();
    }
    assert!(socket.send(&bytes, 0).unwrap() > 0);
}

#[test]
fn host_1_a_send_to_a_peer_that_has_reset_is_an_error_and_no_signal() {
    for connected in [connected, connected_by_file] {
        fails_without_a_signal(connected());
    }
}

fn fails_without_a_signal((mut poll, mut socket, peer): (Poll, Socket, std::net::TcpStream)) {
    SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    wait(&mut poll, |event| event.is_error() || event.is_read_closed());
    crate::io::sys::let_sigpipe_kill();
    assert!(socket.send(b"x", 0).is_err());
    assert!(socket.send(b"x", 0).is_err());
}

#[test]
fn a_refused_connection_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut poll = Poll::new().unwrap();
    let error = match Socket::connect(&address.into(), poll.registry(), Token(1), 0) {
        Err(error) => error,
        Ok(mut socket) => {
            wait(&mut poll, |_| true);
            match socket.progress(0) {
                Progress::Failed(error) => error,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_connection_to_itself_is_none() {
    // Bound and connected to one address: what the kernel may do by chance when it picks ports.
    let raw = RawSocket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    raw.bind(&any.into()).unwrap();
    let own = raw.local_addr().unwrap();
    raw.connect(&own).unwrap();
    let stream = Own::new(raw).unwrap();
    let mut socket = Socket { stream, checked: 0, ending: false };
    let Progress::Failed(error) = socket.progress(0) else { panic!("it is connected") };
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn clo_2_closing_ends_the_connection_though_another_holds_its_descriptor() {
    for connected in [connected, connected_by_file] {
        ends_though_held(connected());
    }
}

fn ends_though_held((mut poll, socket, mut peer): (Poll, Socket, std::net::TcpStream)) {
    // What a forked child has.
    let held = socket.stream.unchecked().unwrap().try_clone().unwrap();
    socket.close(poll.registry());
    peer.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
    // Nothing of it is heard any more.
    drop(peer);
    let mut events = Events::with_capacity(8);
    poll.poll(&mut events, Some(Duration::from_millis(20))).unwrap();
    assert!(events.is_empty(), "{events:?}");
    drop(held);
}

#[test]
fn host_3_a_socket_whose_number_means_another_file_is_never_used_again() {
    let (poll, mut socket, peer) = connected();
    let number = socket.stream.number();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let host = std::net::TcpStream::connect(address).unwrap();
    let (mut other, _) = listener.accept().unwrap();
    // SAFETY: both numbers are open; the test owns both files.
    #[allow(unsafe_code)]
    let duplicate = unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&host), number) };
    assert_eq!(duplicate, number);
    // After a sleep it looks first.
    assert_eq!(socket.send(b"x", 1).unwrap_err().raw_os_error(), Some(libc::EBADF));
    assert!(socket.receive(&mut [0; 4], 1).is_err());
    socket.half_close(1);
    socket.close(poll.registry());
    drop((host, peer));
    other.set_nonblocking(true).unwrap();
    // Nothing was sent, nothing shut down, nothing closed: the duplicate keeps it open.
    assert_eq!(other.read(&mut [0; 4]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(other.write(b"y").unwrap(), 1);
    // SAFETY: the duplicate is the test's, and nobody else owns it any more.
    #[allow(unsafe_code)]
    unsafe {
        libc::close(number);
    }
}
