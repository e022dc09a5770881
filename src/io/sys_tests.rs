use super::*;
use std::fs::File;
use std::sync::mpsc;
use std::time::Duration;

/// Whether `fd` is readable now.
fn readable(fd: RawFd) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready == 1 && poll.revents & libc::POLLIN != 0
}

fn mask() -> Vec<bool> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is valid to write to, and is filled before it is read.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), set.as_mut_ptr());
        let set = set.assume_init();
        (1..=31).map(|signal| libc::sigismember(&raw const set, signal) == 1).collect()
    }
}

#[test]
fn clocks_run_forward() {
    let first = now();
    std::thread::sleep(Duration::from_millis(2));
    let second = now();
    assert!(second.mono.since(first.mono) >= Duration::from_millis(2));
    assert!(second.boot.since(first.boot) >= Duration::from_millis(2));
}

#[test]
fn an_event_is_readable_until_it_is_cleared() {
    let event = EventFd::new().unwrap();
    assert!(!readable(event.number()));
    event.signal();
    event.signal();
    assert!(readable(event.number()));
    event.clear();
    assert!(!readable(event.number()));
    event.clear();
}

#[test]
fn host_3_a_number_that_means_another_file_is_found_out() {
    let file = Own::new(File::open("/proc/self/maps").unwrap()).unwrap();
    assert!(file.get().is_ok());
    let number = file.number();
    let other = File::open("/dev/null").unwrap();
    // SAFETY: both numbers are open; the test owns the files behind them. Afterwards `file`'s
    // number means `/dev/null`, as if the host had closed it and opened a file of its own.
    assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
    assert_eq!(file.get().unwrap_err().raw_os_error(), Some(libc::EBADF));
    drop(file);
    assert!(Identity::of(number).is_ok(), "the host's file was closed");
    // SAFETY: the duplicate is the test's, and nobody else owns it any more.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    assert!(Identity::of(-1).is_err());
}

#[test]
fn what_is_ours_is_closed() {
    let file = Own::new(File::open("/proc/self/maps").unwrap()).unwrap();
    let identity = Identity::of(file.number()).unwrap();
    let number = file.number();
    drop(file);
    // Another test's thread may have opened a file under that number by now.
    assert!(!identity.is(number));
}

#[test]
fn host_2_the_mark_is_wiped_in_a_forked_child() {
    let mark = ForkMark::new().unwrap();
    assert!(!mark.is_forked());
    // SAFETY: the child only loads a word and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = if mark.is_forked() { 7 } else { 8 };
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(code) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: our own child, and `status` is valid to write to.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status));
    assert_eq!(libc::WEXITSTATUS(status), 7);
    assert!(!mark.is_forked());
}

#[test]
fn host_1_only_faults_and_the_profiler_reach_our_threads() {
    let before = mask();
    let (send, receive) = mpsc::channel();
    let thread = spawn("test", 256 * 1024, move || send.send(mask()).unwrap()).unwrap();
    let inside = receive.recv().unwrap();
    thread.join().unwrap();
    for signal in 1..=31 {
        let blockable = ![libc::SIGKILL, libc::SIGSTOP].contains(&signal);
        let expected = blockable && !OPEN_SIGNALS.contains(&signal);
        assert_eq!(inside[signal as usize - 1], expected, "signal {signal}");
    }
    assert_eq!(mask(), before);
}
