//! Faults and crashes at every step, on a disk that forgets what was not synced.

use super::disk::Disk;
use super::{BLOCK, Past, State};
use crate::core::{Acquire, Answers, ConnectionId, Core, Journal, Limits, Time};
use lockclient::wire::ServerFrame;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Content {
    bytes: Vec<u8>,
    synced: bool,
}

#[derive(Debug, Default)]
struct Model {
    state: Option<Content>,
    /// What the state file was before renames that are not synced yet.
    durable: Option<Content>,
    new: Option<Content>,
    steps: u64,
    /// The step that fails, and whether it takes effect all the same.
    fail_at: Option<(u64, bool)>,
    /// Whether every step after the failing one fails too: the machine has lost its power.
    fatal: bool,
    down: bool,
}

#[derive(Debug, Clone, Default)]
struct ModelDisk(Arc<Mutex<Model>>);

impl ModelDisk {
    fn model(&self) -> MutexGuard<'_, Model> {
        self.0.lock().unwrap()
    }

    fn step(&self, effect: impl FnOnce(&mut Model)) -> io::Result<()> {
        let mut model = self.model();
        if model.down {
            return Err(io::Error::other("no power"));
        }
        model.steps += 1;
        match model.fail_at {
            Some((step, takes_effect)) if step == model.steps => {
                if takes_effect {
                    effect(&mut model);
                }
                model.down = model.fatal;
                Err(io::Error::other("injected"))
            }
            _ => {
                effect(&mut model);
                Ok(())
            }
        }
    }

    /// What is found after the power came back: of what was not synced, any part may be missing.
    fn lose_power(&self, random: &mut Random) {
        let mut model = self.model();
        if random.below(2) == 0 {
            model.state = model.durable.clone();
        }
        if let Some(content) = &mut model.state
            && !content.synced
        {
            content.bytes.truncate(random.below(content.bytes.len() as u64 + 1) as usize);
        }
        model.durable = model.state.clone();
        model.new = None;
    }
}

impl Disk for ModelDisk {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.model().state.as_ref().map(|content| content.bytes.clone()))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let content = Content { bytes: bytes.to_vec(), synced: false };
        self.step(|model| model.new = Some(content))
    }

    fn sync_file(&mut self) -> io::Result<()> {
        self.step(|model| model.new.as_mut().expect("written").synced = true)
    }

    fn rename(&mut self) -> io::Result<()> {
        self.step(|model| model.state = model.new.take())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        self.step(|model| model.durable = model.state.clone())
    }
}

#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

const LIMITS: Limits =
    Limits { locks: 1000, waiters: 1000, waiters_per_key: 100, waiters_per_connection: 100 };

#[derive(Debug, Default)]
struct Granted(Vec<u64>);

impl Answers for Granted {
    fn answer(&mut self, _: ConnectionId, frame: ServerFrame<'_>) {
        if let ServerFrame::Acquired { token, .. } = frame {
            self.0.push(token);
        }
    }
}

/// What a series of servers on one disk has done.
#[derive(Debug, Default)]
struct History {
    last_token: u64,
    /// When the last of the leases of before has ended.
    leases_end: Time,
    /// The most that the next start may have to wait after a crash.
    longest: Duration,
    lives: u32,
    grants: u32,
    clean_stops: u32,
    refused: u32,
}

fn start(disk: &ModelDisk) -> io::Result<(State, Past)> {
    State::on(Box::new(disk.clone()), BLOCK)
}

/// One server's life. Returns whether it ended cleanly.
fn live(disk: &ModelDisk, now: &mut Time, random: &mut Random, history: &mut History) -> bool {
    let Ok((state, past)) = start(disk) else { return false };
    history.lives += 1;
    assert!(past.first_token > history.last_token, "{past:?} {history:?}");
    let quiet_until = now.after(past.quarantine);
    assert!(quiet_until >= history.leases_end, "{past:?} {history:?} at {now:?}");
    assert!(past.quarantine <= history.longest, "{past:?} {history:?}");
    let mut core = Core::with_journal(LIMITS, past.first_token, Box::new(state));
    core.quarantine(quiet_until);
    let mut mine = Duration::ZERO;
    for step in 0..random.below(40) {
        *now = now.after(Duration::from_millis(random.below(2500)));
        let mut out = Granted::default();
        core.advance(*now, &mut out);
        let lease = 1 + random.below(6) as u8;
        let key = format!("k{}", random.below(50));
        let request = Acquire { wait: 0, lease, owner: step + 1, key: key.as_bytes() };
        core.acquire(ConnectionId(0), request, *now, &mut out);
        if *now >= quiet_until {
            // Even a grant that fails may have been allowed on the disk.
            mine = mine.max(Duration::from_secs(u64::from(lease)));
            history.longest = history.longest.max(mine);
        }
        for token in out.0 {
            // Nothing of before is running, and the disk says so.
            history.longest = mine;
            assert!(*now >= quiet_until, "granted in quarantine");
            assert!(token > history.last_token, "token {token} again");
            history.last_token = token;
            history.leases_end = history.leases_end.max(now.after_seconds(lease));
            history.grants += 1;
        }
    }
    if random.below(3) > 0 {
        return false;
    }
    match core.stop(*now) {
        Ok(()) => {
            history.clean_stops += 1;
            // The record says exactly how long the leases still run.
            let remaining = history.leases_end.max(quiet_until).since(*now);
            history.longest = remaining + Duration::from_millis(1);
            true
        }
        Err(_) => false,
    }
}

#[test]
fn whatever_fails_or_crashes_no_token_is_issued_twice_and_no_lease_is_cut_short() {
    let mut totals = History::default();
    for seed in 1..=600u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let disk = ModelDisk::default();
        let mut now = Time::default().after_seconds(50);
        let mut history = History::default();
        for _ in 0..12 {
            {
                let mut model = disk.model();
                let step = model.steps + 1 + random.below(16);
                model.fail_at = (random.below(4) > 0).then(|| (step, random.below(2) == 0));
                model.fatal = random.below(2) == 0;
                model.down = false;
            }
            let clean = live(&disk, &mut now, &mut random, &mut history);
            // After a clean stop everything is on the disk; after a process crash at least in the
            // kernel; after a power failure only what was synced.
            if !clean && random.below(2) == 0 || disk.model().down {
                disk.lose_power(&mut random);
            }
            history.refused += u32::from(!clean);
        }
        totals.lives += history.lives;
        totals.grants += history.grants;
        totals.clean_stops += history.clean_stops;
        totals.refused += history.refused;
    }
    assert!(totals.grants > 10_000, "{totals:?}");
    assert!(totals.clean_stops > 500 && totals.refused > 1000, "{totals:?}");
}

/// A server that was started on `disk` and granted a lease of `lease` seconds.
fn granted(disk: &ModelDisk, lease: u8, now: Time) -> (Core, u64) {
    let (state, past) = start(disk).unwrap();
    let mut core = Core::with_journal(LIMITS, past.first_token, Box::new(state));
    core.quarantine(now.after(past.quarantine));
    let now = now.after(past.quarantine);
    let mut out = Granted::default();
    let request = Acquire { wait: 0, lease, owner: 1, key: b"k" };
    core.acquire(ConnectionId(0), request, now, &mut out);
    (core, out.0[0])
}

#[test]
fn the_first_start_issues_token_1_and_waits_for_nobody() {
    let (_, past) = start(&ModelDisk::default()).unwrap();
    assert_eq!(past, Past { first_token: 1, quarantine: Duration::ZERO, stopped: None });
}

#[test]
fn after_a_clean_stop_tokens_go_on_and_what_is_left_of_the_leases_is_waited_for() {
    let disk = ModelDisk::default();
    let now = Time::default().after_seconds(50);
    let (mut core, token) = granted(&disk, 9, now);
    core.stop(now.after_seconds(2)).unwrap();
    let (_, past) = start(&disk).unwrap();
    let quarantine = Duration::from_secs(7);
    assert_eq!(past, Past { first_token: token + 1, quarantine, stopped: Some(true) });
}

#[test]
fn after_a_clean_stop_with_nothing_held_nothing_is_waited_for() {
    let disk = ModelDisk::default();
    let now = Time::default().after_seconds(50);
    let (mut core, token) = granted(&disk, 9, now);
    core.release(ConnectionId(0), 2, token, b"k", now, &mut Granted::default());
    core.stop(now).unwrap();
    assert_eq!(start(&disk).unwrap().1.quarantine, Duration::ZERO);
}

#[test]
fn after_a_crash_the_longest_lease_is_waited_for_and_the_reserved_tokens_are_passed_over() {
    let disk = ModelDisk::default();
    let (core, _) = granted(&disk, 9, Time::default());
    drop(core);
    let (_, past) = start(&disk).unwrap();
    let quarantine = Duration::from_secs(9);
    assert_eq!(past, Past { first_token: BLOCK + 1, quarantine, stopped: Some(false) });
}

#[test]
fn a_crash_within_the_quarantine_waits_for_all_of_it_again() {
    let disk = ModelDisk::default();
    drop(granted(&disk, 9, Time::default()));
    for _ in 0..3 {
        let (_, past) = start(&disk).unwrap();
        assert_eq!(past.quarantine, Duration::from_secs(9));
    }
}

#[test]
fn a_crash_after_the_quarantine_waits_only_for_leases_of_its_own() {
    let disk = ModelDisk::default();
    drop(granted(&disk, 9, Time::default()));
    drop(granted(&disk, 2, Time::default()));
    assert_eq!(start(&disk).unwrap().1.quarantine, Duration::from_secs(2));
    // And for none if none was granted.
    let now = Time::default();
    let (state, past) = start(&disk).unwrap();
    let mut core = Core::with_journal(LIMITS, past.first_token, Box::new(state));
    core.quarantine(now.after(past.quarantine));
    assert_eq!(core.next_deadline(), Some(now.after(past.quarantine)));
    core.advance(now.after(past.quarantine), &mut Granted::default());
    drop(core);
    assert_eq!(start(&disk).unwrap().1.quarantine, Duration::ZERO);
}

#[test]
fn a_clean_stop_within_the_quarantine_leaves_what_is_left_of_it() {
    let disk = ModelDisk::default();
    drop(granted(&disk, 9, Time::default()));
    let now = Time::default().after_seconds(50);
    let (state, past) = start(&disk).unwrap();
    let mut core = Core::with_journal(LIMITS, past.first_token, Box::new(state));
    core.quarantine(now.after(past.quarantine));
    core.stop(now.after_seconds(4)).unwrap();
    assert_eq!(start(&disk).unwrap().1.quarantine, Duration::from_secs(5));
}

#[test]
fn tokens_are_reserved_in_blocks() {
    let disk = ModelDisk::default();
    let (mut state, _) = start(&disk).unwrap();
    assert_eq!(state.reserve(0, 5).unwrap(), BLOCK);
    assert_eq!(state.reserve(3, 9).unwrap(), BLOCK, "a longer lease takes no new tokens");
    assert_eq!(state.reserve(BLOCK, 9).unwrap(), 2 * BLOCK);
}

/// A start on `disk` that issues no token below `first_token`, and how long it grants nothing.
fn started_at(disk: &ModelDisk, first_token: u64) -> io::Result<(Core, Past)> {
    let (state, past) = State::from_token(Box::new(disk.clone()), BLOCK, first_token)?;
    let mut core = Core::with_journal(LIMITS, past.first_token, Box::new(state));
    core.quarantine(Time::default().after(past.quarantine));
    Ok((core, past))
}

/// What `core` grants for `lease` seconds at `now`: a token, or nothing.
fn grant(core: &mut Core, owner: u64, lease: u8, now: Time) -> Option<u64> {
    let mut out = Granted::default();
    let key = owner.to_be_bytes();
    core.acquire(ConnectionId(0), Acquire { wait: 0, lease, owner, key: &key }, now, &mut out);
    out.0.first().copied()
}

#[test]
fn a_lost_state_begins_at_the_first_token_once_the_longest_lease_has_ended() {
    let disk = ModelDisk::default();
    let begun = Time::default();
    let (mut core, past) = started_at(&disk, 5000).unwrap();
    let quarantine = Duration::from_secs(255);
    assert_eq!(past, Past { first_token: 5000, quarantine, stopped: None });
    assert_eq!(grant(&mut core, 1, 9, begun.after_seconds(254)), None);
    assert_eq!(grant(&mut core, 2, 9, begun.after_seconds(255)), Some(5000));
    assert_eq!(grant(&mut core, 3, 9, begun.after_seconds(255)), Some(5001));
    core.stop(begun.after_seconds(255).after_seconds(9)).unwrap();
    // Without it, with it still there, and with a lower one: nothing is changed.
    for first_token in [1, 5000, 4000, 5002] {
        let (mut core, past) = started_at(&disk, first_token).unwrap();
        let after = Past { first_token: 5002, quarantine: Duration::ZERO, stopped: Some(true) };
        assert_eq!(past, after, "{first_token}");
        core.stop(begun).unwrap();
    }
}

#[test]
fn tokens_set_forward_are_durable_before_one_is_issued() {
    let disk = ModelDisk::default();
    drop(started_at(&disk, 5000).unwrap());
    // The power fails at once, and the next start is not told again.
    disk.lose_power(&mut Random(7));
    let (mut core, past) = started_at(&disk, 1).unwrap();
    let quarantine = Duration::from_secs(255);
    assert_eq!(past, Past { first_token: 5000, quarantine, stopped: Some(false) });
    assert_eq!(grant(&mut core, 1, 9, Time::default().after(quarantine)), Some(5000));
    drop(core);
    disk.lose_power(&mut Random(7));
    assert_eq!(started_at(&disk, 5000).unwrap().1.first_token, 5000 + BLOCK);
}

#[test]
fn a_state_that_is_behind_the_first_token_is_taken_for_an_old_copy() {
    let disk = ModelDisk::default();
    let (mut core, token) = granted(&disk, 2, Time::default());
    core.stop(Time::default().after_seconds(9)).unwrap();
    let (_, past) = started_at(&disk, token + 2).unwrap();
    let quarantine = Duration::from_secs(255);
    assert_eq!(past, Past { first_token: token + 2, quarantine, stopped: Some(true) });
}

#[test]
fn the_first_token_may_be_the_last() {
    let disk = ModelDisk::default();
    let (mut core, past) = started_at(&disk, u64::MAX - 1).unwrap();
    let now = Time::default().after(past.quarantine);
    assert_eq!(grant(&mut core, 1, 9, now), Some(u64::MAX - 1));
    assert_eq!(grant(&mut core, 2, 9, now), None);
    core.stop(now).unwrap();
    let (mut core, past) = started_at(&disk, u64::MAX - 1).unwrap();
    assert_eq!(past.first_token, u64::MAX);
    assert_eq!(grant(&mut core, 3, 9, now.after(past.quarantine)), None);
}

#[test]
fn a_damaged_file_is_an_error_that_says_so() {
    let disk = ModelDisk::default();
    drop(start(&disk).unwrap());
    disk.model().state.as_mut().unwrap().bytes[20] ^= 1;
    let error = start(&disk).expect_err("damaged");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains("damaged"), "{error}");
    let advice = ["only if nothing was granted after", "--first-token"];
    assert!(advice.iter().all(|advice| error.to_string().contains(advice)), "{error}");
    started_at(&disk, 5000).expect_err("what it says may be right: somebody has to remove it");
}

#[test]
fn a_start_that_cannot_write_fails() {
    for step in 1..=4 {
        let disk = ModelDisk::default();
        disk.model().fail_at = Some((step, false));
        start(&disk).expect_err("it could never grant");
    }
}
