//! Log lines for the host: a bounded queue, and a thread of its own for the callback (HOST-4).

use crate::clock::Mono;
use crate::engine::Event;
use crate::io::sys;
use crate::outcome::Failure;
use crate::quiet::Quiet;
use crate::reason::ReasonKind;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::ticket::Condvar;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the background thread waits for the queue.
const MOMENT: Duration = Duration::from_millis(1);

/// Lines that wait at most; more are lost.
const MOST_LINES: usize = 1024;

/// The callback's business may need room.
const STACK: usize = 2 * 1024 * 1024;

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum LogLevel {
    /// Something failed for good.
    Error = 1,
    /// Something failed, and the client goes on.
    Warn = 2,
    /// What an operator may want to know.
    Info = 3,
    /// What helps to find a fault.
    Debug = 4,
}

/// A log callback.
pub(crate) type LogFn = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

thread_local! {
    /// The log that this thread calls back for, as an address; 0 for none.
    static CALLS_FOR: Cell<usize> = const { Cell::new(0) };
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Log {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Lines that were lost because the lock could not be had.
    unqueued: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    lines: VecDeque<Event>,
    lost: u64,
    /// No line comes any more; those that wait are still delivered.
    finishing: bool,
    /// No callback may begin any more.
    closed: bool,
    /// A callback runs.
    running: bool,
    /// The thread is past its last callback.
    ended: bool,
}

impl Log {
    pub(crate) fn new() -> Log {
        let inner = Mutex::new(Inner::default());
        Log { inner, changed: Condvar::new(), unqueued: AtomicU64::new(0) }
    }

    /// Starts the thread that calls back.
    pub(crate) fn start(
        self: &Arc<Log>,
        call: LogFn,
        endpoints: Arc<[Arc<str>]>,
    ) -> io::Result<JoinHandle<()>> {
        let log = self.clone();
        sys::spawn("lockclient-log", STACK, move || {
            let _quiet = Quiet::enter();
            CALLS_FOR.set(Arc::as_ptr(&log).addr());
            log.run(&call, &endpoints);
        })
    }

    /// Adds a line; loses it if too many wait, or if whoever closes the client was stopped with the
    /// lock (HOST-6).
    pub(crate) fn push(&self, event: Event) {
        let Some(mut inner) = self.inner.try_lock_for(MOMENT) else {
            self.unqueued.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if inner.lines.len() < MOST_LINES {
            inner.lines.push_back(event);
        } else {
            inner.lost += 1;
        }
        drop(inner);
        self.changed.notify_all();
    }

    /// Whether this thread is the one that calls back.
    pub(crate) fn is_calling(self: &Arc<Log>) -> bool {
        CALLS_FOR.get() == Arc::as_ptr(self).addr()
    }

    /// No line comes any more.
    pub(crate) fn finish(&self) {
        self.inner.lock().finishing = true;
        self.changed.notify_all();
    }

    /// Waits until the lines that wait are delivered, at most until `limit`; no callback begins
    /// afterwards. Says whether the thread is past its last one.
    pub(crate) fn close(&self, limit: Mono) -> bool {
        self.finish();
        let mut inner = loop {
            let epoch = self.changed.epoch();
            let inner = self.inner.lock();
            if inner.ended {
                break inner;
            }
            drop(inner);
            if self.changed.wait_until(epoch, limit) {
                break self.inner.lock();
            }
        };
        inner.closed = true;
        let idle = !inner.running;
        drop(inner);
        self.changed.notify_all();
        idle
    }

    fn run(&self, call: &LogFn, endpoints: &[Arc<str>]) {
        let process = std::process::id();
        while let Some((event, lost)) = self.next() {
            if lost > 0 {
                deliver(call, LogLevel::Warn, &format!("{lost} log lines were lost"));
            }
            let (level, text) = describe(event, endpoints);
            deliver(call, level, &text);
            if std::process::id() != process {
                // The callback has forked, and this is the child's only thread: no other will
                // ever wake it, and a lock that one held is held for ever.
                return;
            }
            self.inner.lock().running = false;
            self.changed.notify_all();
        }
        let mut inner = self.inner.lock();
        inner.ended = true;
        drop(inner);
        self.changed.notify_all();
    }

    /// The next line, and how many were lost before it.
    fn next(&self) -> Option<(Event, u64)> {
        loop {
            let epoch = self.changed.epoch();
            let mut inner = self.inner.lock();
            if inner.closed {
                return None;
            }
            if let Some(event) = inner.lines.pop_front() {
                inner.running = true;
                let lost = std::mem::take(&mut inner.lost);
                return Some((event, lost + self.unqueued.swap(0, Ordering::Relaxed)));
            }
            if inner.finishing {
                return None;
            }
            drop(inner);
            self.changed.wait_until(epoch, Mono(u64::MAX));
        }
    }
}

/// Calls back. A panic of the callback's is its own affair: it costs a line.
fn deliver(call: &LogFn, level: LogLevel, text: &str) {
    let _ = catch_unwind(AssertUnwindSafe(|| call(level, text)));
}

fn describe(event: Event, endpoints: &[Arc<str>]) -> (LogLevel, String) {
    let name = |at: u16| endpoints.get(usize::from(at)).map_or("?", |name| &**name);
    match event {
        Event::Ready { endpoint } => {
            (LogLevel::Info, format!("a connection to {} serves", name(endpoint)))
        }
        Event::Lost { reason } => {
            let level = match reason.kind {
                ReasonKind::Moved | ReasonKind::NoLeader | ReasonKind::NotActive => LogLevel::Info,
                ReasonKind::Auth => LogLevel::Error,
                _ => LogLevel::Warn,
            };
            (level, format!("a connection has ended: {}", Failure::new(reason, endpoints)))
        }
        Event::Hint { endpoint: Some(endpoint) } => {
            (LogLevel::Info, format!("{} is said to lead", name(endpoint)))
        }
        Event::Hint { endpoint: None } => {
            (LogLevel::Debug, "it is not known which node leads".to_owned())
        }
        Event::Compensated { token } => (
            LogLevel::Warn,
            format!("a grant could not be handed over; its token {token} is being released"),
        ),
        Event::CompensationDropped { token } => (
            LogLevel::Error,
            format!("no room to release the token {token}: it is held until its lease ends"),
        ),
        Event::Unconfirmed { token } => (
            LogLevel::Warn,
            format!(
                "the release of the token {token} was not confirmed: it may be held until its lease ends"
            ),
        ),
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::reason::Reason;
    use std::sync::mpsc;

    fn started(
        call: impl Fn(LogLevel, &str) + Send + Sync + 'static,
    ) -> (Arc<Log>, JoinHandle<()>) {
        let log = Arc::new(Log::new());
        let endpoints: Arc<[Arc<str>]> = Arc::new(["a:1".into(), "b:2".into()]);
        let thread = log.start(Arc::new(call), endpoints).unwrap();
        (log, thread)
    }

    fn in_a_minute() -> Mono {
        sys::mono() + Duration::from_secs(60)
    }

    #[test]
    fn lines_come_in_order_and_close_waits_for_them() {
        let (send, receive) = mpsc::channel();
        let (log, thread) =
            started(move |level, text| send.send((level, text.to_owned())).unwrap());
        log.push(Event::Ready { endpoint: 1 });
        let reason = Reason::new(ReasonKind::Connect).at(0).with_os_error(Some(libc::ECONNREFUSED));
        log.push(Event::Lost { reason });
        log.push(Event::Hint { endpoint: None });
        assert!(log.close(in_a_minute()));
        thread.join().unwrap();
        let lines: Vec<_> = receive.try_iter().collect();
        assert_eq!(lines[0], (LogLevel::Info, "a connection to b:2 serves".to_owned()));
        assert_eq!(lines[1].0, LogLevel::Warn);
        assert!(lines[1].1.contains("could not connect (a:1): Connection refused"), "{lines:?}");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn host_4_a_slow_callback_loses_lines_and_their_number_is_told() {
        let (go, gate) = mpsc::channel::<()>();
        let (entered, inside) = mpsc::channel();
        let (send, receive) = mpsc::channel();
        let gate = std::sync::Mutex::new(gate);
        let (log, thread) = started(move |_, text| {
            entered.send(()).unwrap();
            let _ = gate.lock().unwrap().recv();
            send.send(text.to_owned()).unwrap();
        });
        log.push(Event::Ready { endpoint: 0 });
        inside.recv().unwrap();
        for _ in 0..MOST_LINES + 7 {
            log.push(Event::Ready { endpoint: 0 });
        }
        drop(go);
        assert!(log.close(in_a_minute()));
        thread.join().unwrap();
        let lines: Vec<_> = receive.try_iter().collect();
        assert_eq!(lines.len(), 1 + 1 + MOST_LINES);
        assert_eq!(lines[1], "7 log lines were lost");
    }

    #[test]
    fn host_6_a_closer_that_is_stopped_costs_lines_and_delays_nobody() {
        let (send, receive) = mpsc::channel();
        let (log, thread) = started(move |_, text| send.send(text.to_owned()).unwrap());
        let (go, gate) = mpsc::channel::<()>();
        let (entered, inside) = mpsc::channel();
        std::thread::scope(|scope| {
            let held = &log.inner;
            scope.spawn(move || {
                let _held = held.lock();
                entered.send(()).unwrap();
                let _ = gate.recv_timeout(Duration::from_secs(10));
            });
            inside.recv().unwrap();
            let start = std::time::Instant::now();
            for _ in 0..3 {
                log.push(Event::Ready { endpoint: 0 });
            }
            assert!(start.elapsed() < Duration::from_secs(5));
            drop(go);
        });
        log.push(Event::Ready { endpoint: 1 });
        assert!(log.close(in_a_minute()));
        thread.join().unwrap();
        let lines: Vec<_> = receive.try_iter().collect();
        assert_eq!(lines, ["3 log lines were lost", "a connection to b:2 serves"]);
    }

    #[test]
    fn host_4_no_callback_begins_after_close_has_returned() {
        let (go, gate) = mpsc::channel::<()>();
        let (entered, inside) = mpsc::channel();
        let gate = std::sync::Mutex::new(gate);
        let (log, thread) = started(move |_, _| {
            entered.send(()).unwrap();
            let _ = gate.lock().unwrap().recv();
        });
        log.push(Event::Ready { endpoint: 0 });
        log.push(Event::Ready { endpoint: 0 });
        inside.recv().unwrap();
        // The callback does not return by the limit: close does, and says so.
        assert!(!log.close(sys::mono() + Duration::from_millis(20)));
        drop(go);
        thread.join().unwrap();
        assert!(inside.try_recv().is_err());
    }

    #[test]
    fn host_4_a_callback_that_panics_costs_one_line() {
        crate::quiet::install();
        let (send, receive) = mpsc::channel();
        let (log, thread) = started(move |level, _| {
            assert_ne!(level, LogLevel::Debug, "on purpose");
            send.send(level).unwrap();
        });
        log.push(Event::Hint { endpoint: None });
        log.push(Event::Ready { endpoint: 0 });
        assert!(log.close(in_a_minute()));
        thread.join().unwrap();
        assert_eq!(receive.try_iter().collect::<Vec<_>>(), [LogLevel::Info]);
    }

    #[test]
    fn only_the_log_thread_is_told_that_it_calls_back() {
        let (send, receive) = mpsc::channel();
        let slot: Arc<Mutex<Option<Arc<Log>>>> = Arc::new(Mutex::new(None));
        let known = slot.clone();
        let (log, thread) = started(move |_, _| {
            let known = known.lock().clone().unwrap();
            send.send(known.is_calling()).unwrap();
        });
        *slot.lock() = Some(log.clone());
        assert!(!log.is_calling());
        log.push(Event::Ready { endpoint: 0 });
        assert!(receive.recv().unwrap());
        assert!(log.close(in_a_minute()));
        thread.join().unwrap();
    }
}
