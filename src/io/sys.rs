//! What the standard library and socket2 do not offer. The only `unsafe` outside the C ABI.
#![allow(unsafe_code, reason = "system calls without a safe wrapper; each says why it is sound")]

use crate::clock::{Boot, Mono, Now};

/// Both clocks.
pub(crate) fn now() -> Now {
    Now { mono: mono(), boot: Boot(clock(libc::CLOCK_BOOTTIME)) }
}

/// The monotonic clock.
pub(crate) fn mono() -> Mono {
    Mono(clock(libc::CLOCK_MONOTONIC))
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to. Both clocks exist on every supported kernel,
    // so the call cannot fail.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    u64::try_from(time.tv_sec)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}
