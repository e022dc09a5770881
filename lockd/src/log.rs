//! Log lines leave on a thread of their own: whoever reads standard error slowly, or not at all,
//! must not hold the server up. Lines that find no room are lost, and counted.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written.
const WAITING: usize = 1024;
/// How long the last lines may take to leave.
const FLUSH: Duration = Duration::from_millis(200);

enum Message {
    Line(Vec<u8>),
    /// Everything before this has been written.
    Flushed(Sender<()>),
}

/// Makes writers whose lines go to standard error.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    lines: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

impl Log {
    /// Starts the thread that writes.
    pub(crate) fn start() -> io::Result<Log> {
        let (lines, receiver) = sync_channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || write_all(&receiver, &counted, &mut io::stderr()))?;
        Ok(Log { lines, lost })
    }

    /// Waits until what was logged is written, but not for long.
    pub(crate) fn flush(&self) {
        let (done, receiver) = channel();
        if self.lines.try_send(Message::Flushed(done)).is_ok() {
            let _ = receiver.recv_timeout(FLUSH);
        }
    }
}

fn write_all(lines: &Receiver<Message>, lost: &AtomicU64, out: &mut impl Write) {
    for message in lines {
        match message {
            Message::Line(line) => write(out, &line),
            Message::Flushed(done) => {
                let _ = done.send(());
            }
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            write(out, format!("{lost} log lines were lost\n").as_bytes());
        }
    }
}

/// Writes a line. There is nobody to tell if that fails.
fn write(out: &mut impl Write, mut line: &[u8]) {
    while !line.is_empty() {
        match out.write(line) {
            Ok(0) => return,
            Ok(count) => line = &line[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Collects one line, and hands it over when it is dropped.
#[derive(Debug)]
pub(crate) struct Line {
    log: Log,
    bytes: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = Message::Line(std::mem::take(&mut self.bytes));
        if self.log.lines.try_send(line).is_err() {
            self.log.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { log: self.clone(), bytes: Vec::new() }
    }
}
