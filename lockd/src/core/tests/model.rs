//! Random histories against a model that is too simple to be wrong.

use super::{Answer, Collected, Limits};
use crate::core::{Acquire, ConnectionId, Core, Time};
use std::collections::{BTreeMap, VecDeque};

const LIMITS: Limits =
    Limits { locks: 12, waiters: 30, waiters_per_key: 6, waiters_per_connection: 8 };

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

struct Waiting {
    to: u32,
    owner: u64,
    end: u64,
    lease: u64,
}

struct Held {
    token: u64,
    end: u64,
    queue: VecDeque<Waiting>,
}

/// The rules once more, by search instead of by index. Times are milliseconds.
struct Model {
    keys: BTreeMap<String, Held>,
    token: u64,
    open: bool,
    out: Vec<Answer>,
}

impl Model {
    fn waiters(&self) -> usize {
        self.keys.values().map(|held| held.queue.len()).sum()
    }

    fn waiters_of(&self, connection: u32) -> usize {
        let of = |held: &Held| held.queue.iter().filter(|waiting| waiting.to == connection).count();
        self.keys.values().map(of).sum()
    }

    fn admission(&mut self) {
        let used = [(self.keys.len(), LIMITS.locks), (self.waiters(), LIMITS.waiters)];
        if self.open {
            self.open = used.iter().all(|(used, max)| used * 10 < max * 9);
        } else {
            self.open = used.iter().all(|(used, max)| used * 4 < max * 3);
        }
    }

    fn plain(&mut self, op: char, to: u32, owner: u64, key: &str) {
        self.out.push(Answer::Plain { op, to, owner, key: key.into() });
    }

    fn end_grant(&mut self, key: &str, now: u64) {
        let mut held = self.keys.remove(key).expect("held");
        while let Some(next) = held.queue.pop_front() {
            if next.end <= now {
                self.plain('T', next.to, next.owner, key);
                continue;
            }
            self.token += 1;
            held.token = self.token;
            held.end = now + next.lease;
            self.out.push(Answer::Acquired {
                to: next.to,
                owner: next.owner,
                token: held.token,
                key: key.into(),
            });
            self.keys.insert(key.into(), held);
            break;
        }
        self.admission();
    }

    fn touch(&mut self, key: &str, now: u64) {
        if self.keys.get(key).is_some_and(|held| held.end <= now) {
            self.end_grant(key, now);
        }
    }

    fn acquire(&mut self, to: u32, owner: u64, key: &str, wait: u64, lease: u64, now: u64) {
        self.touch(key, now);
        if !self.open {
            return self.plain('B', to, owner, key);
        }
        let mine = self.waiters_of(to);
        let Some(held) = self.keys.get_mut(key) else {
            self.token += 1;
            let token = self.token;
            let held = Held { token, end: now + lease, queue: VecDeque::new() };
            self.keys.insert(key.into(), held);
            self.out.push(Answer::Acquired { to, owner, token, key: key.into() });
            return self.admission();
        };
        if wait == 0 {
            return self.plain('T', to, owner, key);
        }
        if held.queue.len() >= LIMITS.waiters_per_key || mine >= LIMITS.waiters_per_connection {
            return self.plain('B', to, owner, key);
        }
        held.queue.push_back(Waiting { to, owner, end: now + wait, lease });
        self.admission();
    }

    fn release(&mut self, to: u32, owner: u64, token: u64, key: &str, now: u64) {
        self.touch(key, now);
        if self.keys.get(key).is_some_and(|held| held.token == token) {
            self.plain('R', to, owner, key);
            self.end_grant(key, now);
        } else {
            self.plain('N', to, owner, key);
        }
    }

    fn undo(&mut self, token: u64, key: &str, now: u64) {
        self.touch(key, now);
        if self.keys.get(key).is_some_and(|held| held.token == token) {
            self.end_grant(key, now);
        }
    }

    fn disconnect(&mut self, connection: u32) {
        for held in self.keys.values_mut() {
            held.queue.retain(|waiting| waiting.to != connection);
        }
        self.admission();
    }

    fn advance(&mut self, now: u64) {
        let ended: Vec<String> = self
            .keys
            .iter()
            .filter(|(_, held)| held.end <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in ended {
            self.end_grant(&key, now);
        }
        let keys: Vec<String> = self.keys.keys().cloned().collect();
        for key in keys {
            let queue = &mut self.keys.get_mut(&key).expect("held").queue;
            let (over, still) =
                std::mem::take(queue).into_iter().partition(|waiting| waiting.end <= now);
            *queue = still;
            let over: VecDeque<Waiting> = over;
            for waiting in over {
                self.plain('T', waiting.to, waiting.owner, &key);
            }
        }
        self.admission();
    }
}

/// Tokens depend on the order in which keys are handled, which several keys' timers that are due
/// together leave open; so does the order of answers. Both are taken out for such a step.
fn without_order(mut answers: Vec<Answer>) -> Vec<Answer> {
    for answer in &mut answers {
        if let Answer::Acquired { token, .. } = answer {
            *token = 0;
        }
    }
    answers.sort_by_key(|answer| format!("{answer:?}"));
    answers
}

#[test]
fn random_histories_give_the_answers_that_the_rules_give() {
    let mut kinds: BTreeMap<char, u32> = BTreeMap::new();
    for seed in 1..=60u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut core = Core::new(LIMITS, 1, u64::MAX);
        let mut model = Model { keys: BTreeMap::new(), token: 0, open: true, out: Vec::new() };
        let mut now = 1000u64;
        for step in 0..2000u64 {
            let time = Time::from_nanos(now * 1_000_000);
            let mut out = Collected::default();
            let key = format!("k{}", random.below(14));
            let connection = random.below(6) as u32;
            let mut ordered = true;
            match random.below(20) {
                0..=7 => {
                    let wait = random.below(4) as u8;
                    let lease = 1 + random.below(5) as u8;
                    let request = Acquire { wait, lease, owner: step + 1, key: key.as_bytes() };
                    core.acquire(ConnectionId(connection), request, time, &mut out);
                    let (wait, lease) = (u64::from(wait) * 1000, u64::from(lease) * 1000);
                    model.acquire(connection, step + 1, &key, wait, lease, now);
                }
                8..=13 => {
                    let token = match model.keys.get(&key) {
                        Some(held) if random.below(4) > 0 => held.token,
                        _ => random.below(model.token + 2),
                    };
                    let bytes = key.as_bytes();
                    core.release(ConnectionId(connection), step + 1, token, bytes, time, &mut out);
                    model.release(connection, step + 1, token, &key, now);
                }
                14 => {
                    let token = model.keys.get(&key).map_or(0, |held| held.token);
                    core.undo(token, key.as_bytes(), time, &mut out);
                    model.undo(token, &key, now);
                }
                15 => {
                    core.disconnect(ConnectionId(connection));
                    model.disconnect(connection);
                }
                16 => now += random.below(3000),
                _ => {
                    // Punctual or late: whatever is due is handled now.
                    now += random.below(400);
                    core.advance(Time::from_nanos(now * 1_000_000), &mut out);
                    model.advance(now);
                    ordered = false;
                }
            }
            let expected = std::mem::take(&mut model.out);
            for answer in &expected {
                let kind = match answer {
                    Answer::Acquired { .. } => 'A',
                    Answer::Plain { op, .. } => *op,
                    Answer::Error { .. } => 'E',
                };
                *kinds.entry(kind).or_default() += 1;
            }
            if ordered {
                assert_eq!(out.0, expected, "seed {seed}, step {step}");
            } else {
                resolve_tokens(&mut model, &out.0);
                let (out, expected) = (without_order(out.0), without_order(expected));
                assert_eq!(out, expected, "seed {seed}, step {step}");
            }
            let stats = core.stats();
            assert_eq!(stats.held, model.keys.len(), "seed {seed}, step {step}");
            assert_eq!(stats.waiters, model.waiters(), "seed {seed}, step {step}");
            assert_eq!(stats.admitting, model.open, "seed {seed}, step {step}");
            let waiters = core.waiters_of(ConnectionId(connection));
            assert_eq!(waiters, model.waiters_of(connection), "seed {seed}, step {step}");
        }
    }
    for kind in ['A', 'T', 'B', 'R', 'N'] {
        assert!(kinds[&kind] > 500, "the histories must reach every answer: {kinds:?}");
    }
}

/// Gives the model's keys the tokens that the core chose, which must all be new and distinct.
fn resolve_tokens(model: &mut Model, answers: &[Answer]) {
    let mut tokens = std::collections::BTreeSet::new();
    for answer in answers {
        if let Answer::Acquired { token, key, .. } = answer {
            assert!(tokens.insert(*token), "token {token} twice");
            assert!(*token <= model.token, "token {token} skips ahead");
            model.keys.get_mut(key).expect("the model granted it too").token = *token;
        }
    }
}
