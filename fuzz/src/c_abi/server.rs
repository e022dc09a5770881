//! A server in this process that behaves as it is told to. All inputs share it.

use lockclient::wire::{ClientFrame, Decoder, FromClient, PROBE_KEY, ServerFrame};
use socket2::SockRef;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// How the server behaves from now on: a number below [`MOODS`].
pub(super) static MOOD: AtomicU8 = AtomicU8::new(0);
pub(super) const MOODS: usize = 12;

static TOKEN: AtomicU64 = AtomicU64::new(1);

/// Where it listens.
pub(super) static ADDRESS: LazyLock<String> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(&stream));
        }
    });
    address
});

/// Whether a grant with this token was ever made.
pub(super) fn has_granted(token: u64) -> bool {
    (1..TOKEN.load(Ordering::SeqCst)).contains(&token)
}

fn serve(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut decoder = Decoder::<FromClient>::default();
    let mut buffer = [0; 4096];
    let mood = || MOOD.load(Ordering::SeqCst);
    let mut reader = stream;
    while let Ok(count @ 1..) = reader.read(&mut buffer) {
        let mut input = &buffer[..count];
        while let Some(frame) = decoder.next(&mut input).expect("the client sends good frames") {
            if mood() == 4 {
                let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
                return;
            }
            let answer = answer(frame, mood());
            // A client that has gone does not want it. The fuzzer's process keeps the default for
            // SIGPIPE, as a C host does: nothing here may raise it, and nothing of the client's.
            let _ = SockRef::from(stream).send_with_flags(&answer, libc::MSG_NOSIGNAL);
            if answer.is_empty() && mood() == 10 {
                return;
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
                let token = TOKEN.fetch_add(1, Ordering::SeqCst);
                ServerFrame::Acquired { owner, token, key }.encode(&mut bytes);
            }
        },
        ClientFrame::Proof { .. } => {}
    }
    bytes
}
