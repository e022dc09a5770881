//! What must hold of every run: each a named function over the log, with its text.
//!
//! A predicate sees each record that it watches before the ledger takes note of it.

use crate::ledger::{Ledger, Owner, Whereabouts};
use crate::record::{Answer, Decider, Outcome, Record, ReleaseEnd};
use crate::time::{MILLI, SECOND, Time};
use lockclient::ReasonKind;

/// What is wrong; nothing if all is well.
pub(crate) type Verdict = Result<(), String>;

/// A rule of the log.
#[derive(Debug, Clone, Copy)]
pub struct Predicate {
    /// Its name: the function's, and its canary's.
    pub name: &'static str,
    /// What it says.
    pub text: &'static str,
    /// Looks at one record.
    pub(crate) check: fn(&Ledger, Time, &Record) -> Verdict,
}

macro_rules! predicates {
    ($($name:ident: $text:literal;)*) => {
        /// Every predicate.
        pub const PREDICATES: &[Predicate] = &[
            $(Predicate { name: stringify!($name), text: $text, check: $name },)*
        ];
    };
}

predicates! {
    one_connection_contiguous:
        "the bytes of one owner go out on one connection, contiguous, no offset twice";
    owners_are_fresh:
        "each attempt has an owner of its own, and keeps it until a byte has left";
    unsent_never_went_out:
        "nothing of an acquire that returned NotSent or Cancelled ever went out, before or after, in \
         any of its attempts";
    one_return_in_time:
        "each call returns exactly once, by its deadline plus grace plus any injected stall";
    acquired_was_read_and_taken_in_time:
        "Acquired only for a grant that was read and taken by its deadline";
    every_grant_has_one_end:
        "every grant that was read is delivered once, or given back once, or was overtaken by the \
         loss of its connection";
    releases_are_legitimate:
        "a release goes out only for a token that was received and that no live caller holds";
    indeterminate_exactly:
        "Indeterminate exactly when a byte may have gone and no complete answer came before it was \
         decided, or the grant was late";
    a_last_read_decides:
        "a close that the client decides first reads the connection: an answer that has arrived by \
         then counts";
    definite_means_answered:
        "TimedOut and Busy only after that very answer, Acquired only with the token that was read";
    proven_lease_is_a_lower_bound:
        "the proven remaining lease is never above what the server still grants";
    leases_begin_after_their_requests:
        "a lease begins no earlier than the last byte of its request was sent";
    holders_never_overlap:
        "holding intervals of one key never overlap on the true clock, for holders who respect \
         their proven lease";
    tokens_grow:
        "the tokens of a key grow, as they are granted and as they are delivered";
    tokens_survive_restarts:
        "no token is granted twice or after a higher one, whatever restarts lie between";
    leases_outlive_restarts:
        "a server that was started again grants nothing while a lease of before still runs";
    refused_is_not_granted:
        "owners of TimedOut and Busy never appear in the server's grant log";
    wire_wait_is_what_is_left:
        "the wait on the wire is computed when the frame is about to go: 0 for a try alone, else \
         0 < wait <= ceil(deadline - then)";
    released_means_answered:
        "Released only with the R to that release, which the server then freed; NotHeld only with \
         its N, and it tells whether an earlier try may have worked";
    unconfirmed_exactly:
        "a release is Unconfirmed exactly when no answer to it was read before it returned";
    unsent_release_never_went_out:
        "nothing of a release that returned a definite error ever went out";
    own_release_goes_first:
        "a try that follows the release of one's own lock does not meet that lock";
    everything_drains:
        "with the faults over everything drains and a new acquire succeeds";
    nothing_spins:
        "a run has no more events than its calls can need: no timer fires again and again in vain";
    nothing_panics:
        "no order of events makes the client or the server panic";
}

fn unless(good: bool, why: impl FnOnce() -> String) -> Verdict {
    if good { Ok(()) } else { Err(why()) }
}

fn one_connection_contiguous(log: &Ledger, _: Time, record: &Record) -> Verdict {
    match *record {
        Record::Stray { owner, verbatim: false, .. } => {
            Err(format!("owner {owner}: the rest of its frame does not go out verbatim, first"))
        }
        Record::AcquireBytes { call, link, owner, from, to, len } => {
            let Some(attempt) = log.attempt_of(call) else {
                return Err(format!("call {call}: bytes without an attempt"));
            };
            unless(attempt.owner == owner && from == attempt.sent && to <= len, || {
                format!("owner {owner}: bytes {from}..{to} after {}", attempt.sent)
            })?;
            unless(attempt.sent == 0 || attempt.link == Some(link), || {
                format!("owner {owner}: on {link} after {:?}", attempt.link)
            })
        }
        Record::ReleaseBytes { client, link, owner, from, .. } => match log.owner(client, owner) {
            Owner::Unknown => unless(from == 0, || format!("owner {owner} begins at {from}")),
            Owner::Release { link: at, next, answered, .. } => {
                unless(link == at && next == from && !answered, || {
                    format!("owner {owner}: bytes from {from} on {link} after {next} on {at}")
                })
            }
            Owner::Attempt(_) => Err(format!("owner {owner} is an acquire's")),
        },
        _ => Ok(()),
    }
}

fn owners_are_fresh(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let Record::Encode { call, owner, .. } = *record else { return Ok(()) };
    match log.attempt_of(call) {
        Some(attempt) => unless(attempt.owner == owner, || {
            format!("call {call} had owner {} and has {owner}", attempt.owner)
        }),
        None => {
            let known = log.owner(log.call(call).client, owner);
            unless(owner != 0 && known == Owner::Unknown, || {
                format!("call {call} has owner {owner}, which was used: {known:?}")
            })
        }
    }
}

fn unsent_never_went_out(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let unsent = |outcome: Option<Outcome>| {
        use Outcome::{Auth, Cancelled, Ended, NotSent, OwnerExhausted};
        matches!(outcome, Some(NotSent | Cancelled | Auth | OwnerExhausted | Ended))
    };
    match *record {
        Record::Stray { owner, verbatim: true, .. } => {
            Err(format!("owner {owner}: a frame that nobody had claimed stands in a batch"))
        }
        Record::AcquireBytes { call, .. } => unless(!unsent(log.call(call).outcome), || {
            format!("call {call} had returned {:?}", log.call(call).outcome)
        }),
        Record::Return { call: number, outcome, .. } if unsent(Some(outcome)) => {
            // Of all its attempts: one that was refused and not sent again has `B` for its outcome.
            let sent = log.call(number).sent;
            unless(sent == 0, || format!("call {number}: {outcome:?} with {sent} bytes sent"))
        }
        _ => Ok(()),
    }
}

fn one_return_in_time(log: &Ledger, _: Time, record: &Record) -> Verdict {
    match *record {
        Record::Return { call: number, mono, late, .. } => {
            let call = log.call(number);
            unless(call.outcome.is_none(), || format!("call {number} returned twice"))?;
            let client = &log.clients[usize::from(call.client)];
            let mut end = call.deadline;
            // Of one that is unsent again too: its caller may sleep until then, if the thread is
            // stopped before it can tell.
            if let Some(wait) = call.wire_wait
                && !client.strict
            {
                let answered = call.claim_mono + u64::from(wait) * SECOND;
                end = end.max(answered) + log.grace;
            }
            // The caller's own timer, and what a clock that runs too fast makes of the stall.
            let limit = end + 100 * MILLI + late + late / 1_000;
            unless(mono <= limit, || {
                format!("call {number} returned {} us after its limit", (mono - limit) / 1_000)
            })
        }
        Record::End => {
            let missing = log.calls.iter().position(|call| call.outcome.is_none());
            unless(missing.is_none(), || format!("call {missing:?} never returned"))
        }
        _ => Ok(()),
    }
}

fn acquired_was_read_and_taken_in_time(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let Record::Return { call: number, outcome: Outcome::Acquired, mono, .. } = *record else {
        return Ok(());
    };
    let call = log.call(number);
    unless(mono <= call.deadline, || {
        format!("call {number} was taken {} us late", (mono - call.deadline) / 1_000)
    })?;
    let read = log.attempt_of(number).filter(|attempt| attempt.answer == Some(Answer::Acquired));
    unless(read.is_some_and(|attempt| attempt.read_mono <= call.deadline), || {
        format!("call {number} was read late, or never")
    })
}

fn every_grant_has_one_end(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let at = |token: u64| log.token(token).map(|token| token.at);
    match *record {
        Record::Hold { call, token, .. } => unless(at(token) == Some(Whereabouts::Read), || {
            format!("call {call}: token {token} was delivered, and is {:?}", at(token))
        }),
        Record::Compensate { token, .. } | Record::CompensationDropped { token, .. } => {
            unless(at(token) != Some(Whereabouts::Compensated), || {
                format!("token {token} is given back twice")
            })
        }
        Record::QuietServer { .. } => {
            let kept = log.tokens().find(|(_, token)| {
                token.at == Whereabouts::Read && !log.clients[usize::from(token.client)].ended
            });
            unless(kept.is_none(), || format!("read, and neither delivered nor back: {kept:?}"))
        }
        _ => Ok(()),
    }
}

fn releases_are_legitimate(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let (client, token) = match *record {
        Record::ReleaseBytes { client, token, from: 0, .. } if token != 0 => (client, token),
        Record::Compensate { client, token } => {
            let known = log.token(token);
            let at = known.filter(|known| known.client == client).map(|known| known.at);
            return unless(matches!(at, Some(Whereabouts::Read | Whereabouts::Overtaken)), || {
                format!("token {token} is given back by client {client}, and is {known:?}")
            });
        }
        _ => return Ok(()),
    };
    let known = log.token(token);
    let free = known.is_some_and(|known| {
        known.client == client
            && matches!(known.at, Whereabouts::GivenUp | Whereabouts::Compensated)
    });
    unless(free, || format!("token {token} is released by client {client}, and is {known:?}"))
}

fn indeterminate_exactly(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let Record::Return { call: number, outcome: Outcome::Indeterminate(why), mono, boot, .. } =
        *record
    else {
        return Ok(());
    };
    let call = log.call(number);
    let Some(decision) = call.decision else {
        return Err(format!("call {number} was never decided"));
    };
    unless(decision.claimed, || {
        format!("call {number}: {why:?}, and nothing of it can have been sent: {decision:?}")
    })?;
    let answer = log.attempt_of(number).filter(|_| decision.answered);
    let Some(attempt) = answer else { return Ok(()) };
    let fresh = || format!("call {number}: {why:?} after {:?}, {decision:?}", attempt.answer);
    unless(attempt.answer == Some(Answer::Acquired), fresh)?;
    match why {
        ReasonKind::LateGrant => {
            let late = attempt.read_mono > call.deadline
                || mono > call.deadline
                || decision.by == Decider::Lapse && decision.mono > call.deadline;
            unless(late, fresh)
        }
        ReasonKind::ShortLease => {
            // The lease began after the claim, whatever else can be proved.
            let lease = u64::from(call.lease) * SECOND;
            let elapsed = boot - call.claim_boot;
            let certain = lease.saturating_sub(elapsed + elapsed / 1_000 + 3 * MILLI);
            let wanted = match log.clients[usize::from(call.client)].enforce {
                true => u64::from(call.budget) * SECOND,
                false => 0,
            };
            unless(certain <= wanted, fresh)
        }
        ReasonKind::Cancelled => unless(decision.by == Decider::Cancel, fresh),
        _ => Err(fresh()),
    }
}

fn a_last_read_decides(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let Record::Overlooked { call, answer, mono } = *record else { return Ok(()) };
    // A late grant would not have counted either.
    let counts = answer != Answer::Acquired || mono <= log.call(call).deadline;
    unless(!counts, || format!("call {call}: Indeterminate with {answer:?} in the socket"))
}

fn definite_means_answered(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let (number, outcome, token) = match *record {
        Record::Return { call, outcome, .. } => (call, outcome, None),
        Record::Hold { call, token, .. } => (call, Outcome::Acquired, Some(token)),
        _ => return Ok(()),
    };
    let attempt = log.attempt_of(number);
    let answer = attempt.and_then(|attempt| attempt.answer);
    let good = match outcome {
        Outcome::TimedOut => answer == Some(Answer::TimedOut),
        Outcome::Busy => {
            let unsent = attempt.is_none_or(|attempt| attempt.sent == 0);
            answer == Some(Answer::Busy) || unsent && log.call(number).last_busy
        }
        Outcome::Acquired => attempt.is_some_and(|attempt| {
            attempt.answer == Some(Answer::Acquired)
                && token.is_none_or(|token| attempt.answer_token == token)
        }),
        _ => true,
    };
    unless(good, || format!("call {number} returned {outcome:?} {token:?}, and read {answer:?}"))
}

fn proven_lease_is_a_lower_bound(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let Record::Hold { call, token, told, left, until } = *record else { return Ok(()) };
    unless(told <= left, || format!("call {call}: token {token} has {left} ns, not {told} ns"))?;
    let end = log.token(token).map_or(0, |token| token.lease_end);
    unless(until <= end, || {
        format!("call {call}: token {token} is believed in {} us too long", (until - end) / 1_000)
    })
}

fn leases_begin_after_their_requests(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let Record::Grant { client, owner, token, begins, .. } = *record else { return Ok(()) };
    let Some(attempt) = log.attempt(client, owner) else {
        return Err(format!("token {token} is granted to owner {owner}, who asked for nothing"));
    };
    let Some(sent) = attempt.whole_at else {
        return Err(format!("token {token} is granted to a request that was sent in part"));
    };
    unless(sent <= begins, || {
        let early = (sent - begins) / 1_000;
        format!("token {token}: its lease begins {early} us before it was asked for")
    })
}

fn holders_never_overlap(log: &Ledger, t: Time, record: &Record) -> Verdict {
    let Record::Hold { call, token, .. } = *record else { return Ok(()) };
    let key = &log.keys[usize::from(log.call(call).key)];
    let other = key.holders.iter().find(|(_, end)| *end > t);
    unless(other.is_none(), || format!("token {token} is taken while {other:?} is held"))
}

fn tokens_grow(log: &Ledger, _: Time, record: &Record) -> Verdict {
    match *record {
        Record::Grant { key, token, .. } => {
            let last = log.keys[usize::from(key)].last_granted;
            unless(token > last, || format!("key {key}: token {token} granted after {last}"))
        }
        Record::Hold { call, token, .. } => {
            let last = log.keys[usize::from(log.call(call).key)].last_delivered;
            unless(token > last, || format!("call {call}: token {token} delivered after {last}"))
        }
        _ => Ok(()),
    }
}

fn tokens_survive_restarts(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let Record::Grant { token, .. } = *record else { return Ok(()) };
    unless(token > log.last_token, || format!("token {token} granted after {}", log.last_token))
}

fn leases_outlive_restarts(log: &Ledger, t: Time, record: &Record) -> Verdict {
    let Record::Grant { token, .. } = *record else { return Ok(()) };
    unless(t >= log.forgotten_until, || {
        let early = log.forgotten_until - t;
        format!("token {token} granted {} us before a lease of before ends", early / 1_000)
    })
}

fn refused_is_not_granted(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let refused = |outcome| matches!(outcome, Some(Outcome::TimedOut | Outcome::Busy));
    match *record {
        Record::Return { call, outcome, .. } if refused(Some(outcome)) => {
            let token = log.attempt_of(call).map_or(0, |attempt| attempt.granted);
            unless(token == 0, || format!("call {call}: {outcome:?}, but granted {token}"))
        }
        Record::Grant { client, owner, token, .. } => {
            let outcome = log.attempt(client, owner).and_then(|at| log.call(at.call).outcome);
            unless(!refused(outcome), || {
                format!("token {token} granted to owner {owner}, which returned {outcome:?}")
            })
        }
        _ => Ok(()),
    }
}

fn released_means_answered(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let Record::ReleaseReturn { token, end } = *record else { return Ok(()) };
    let Some(release) = log.token(token).map(|token| token.release) else {
        return Err(format!("token {token} is unknown, and was released"));
    };
    unless(release.returned.is_none(), || format!("token {token}: its release returned twice"))?;
    let good = match end {
        ReleaseEnd::Released => release.answer == Some(Answer::Released) && release.freed,
        ReleaseEnd::NotHeld { retried } => {
            release.answer == Some(Answer::NotHeld)
                && release.missed
                && retried == (release.tries > 1)
                && (retried || !release.freed)
        }
        _ => true,
    };
    unless(good, || format!("token {token}: {end:?} after {release:?}"))
}

fn unconfirmed_exactly(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let Record::ReleaseReturn { token, end: ReleaseEnd::Unconfirmed } = *record else {
        return Ok(());
    };
    let answer = log.token(token).and_then(|token| token.release.answer);
    unless(answer.is_none(), || format!("token {token}: Unconfirmed after {answer:?}"))
}

fn unsent_release_never_went_out(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let definite = |end| matches!(end, ReleaseEnd::Auth | ReleaseEnd::OwnerExhausted);
    match *record {
        Record::ReleaseReturn { token, end } if definite(end) => {
            let tries = log.token(token).map_or(0, |token| token.release.tries);
            unless(tries == 0, || format!("token {token}: {end:?}, and it went out"))
        }
        Record::ReleaseBytes { token, .. } if token != 0 => {
            let end = log.token(token).and_then(|token| token.release.returned);
            unless(!end.is_some_and(definite), || format!("token {token} goes out after {end:?}"))
        }
        _ => Ok(()),
    }
}

fn own_release_goes_first(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let Record::Return { call, outcome: Outcome::TimedOut, .. } = *record else { return Ok(()) };
    let token = log.attempt_of(call).and_then(|attempt| attempt.met_own);
    unless(token.is_none(), || format!("call {call}: {token:?}, given up before, was still held"))
}

fn wire_wait_is_what_is_left(log: &Ledger, _: Time, record: &Record) -> Verdict {
    let Record::Encode { call: number, wait, lease, key, mono, .. } = *record else {
        return Ok(());
    };
    let call = log.call(number);
    unless(lease == call.lease && key == call.key, || format!("call {number}: another frame"))?;
    if call.wait == 0 {
        return unless(wait == 0 && mono < call.deadline, || {
            format!("call {number}: a try with wait {wait}, or after its deadline")
        });
    }
    let left = call.deadline.saturating_sub(mono).div_ceil(SECOND);
    unless(wait > 0 && u64::from(wait) <= left, || {
        format!("call {number}: wait {wait} with {left} s left")
    })
}

fn everything_drains(_: &Ledger, _: Time, record: &Record) -> Verdict {
    match *record {
        Record::Quiet { client, queued, in_flight } => {
            unless(queued == 0 && in_flight == 0, || {
                format!("client {client} keeps {queued} queued and {in_flight} in flight")
            })
        }
        Record::QuietServer { waiters } => {
            unless(waiters == 0, || format!("the server keeps {waiters} waiters"))
        }
        Record::Fresh { client, acquired } => {
            unless(acquired, || format!("client {client} cannot acquire"))
        }
        Record::Drained { client, clean } => {
            unless(clean, || format!("client {client} does not drain"))
        }
        _ => Ok(()),
    }
}

fn nothing_spins(_: &Ledger, _: Time, record: &Record) -> Verdict {
    match *record {
        Record::Restless { events } => Err(format!("{events} events")),
        _ => Ok(()),
    }
}

fn nothing_panics(_: &Ledger, _: Time, record: &Record) -> Verdict {
    match record {
        Record::Panic => Err("see the message".to_owned()),
        _ => Ok(()),
    }
}
