//! Seeded bugs, one for each predicate of the simulation: each shows that its predicate can fail.
//!
//! Nothing of this is compiled without `--cfg canary`. With it, one bug can be chosen at run time;
//! at first there is none.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The bugs' names; the first means none.
const NAMES: &[&str] = &[
    "",
    "one_connection_contiguous",
    "owners_are_fresh",
    "unsent_never_went_out",
    "one_return_in_time",
    "acquired_was_read_and_taken_in_time",
    "every_grant_has_one_end",
    "releases_are_legitimate",
    "indeterminate_exactly",
    "a_last_read_decides",
    "definite_means_answered",
    "proven_lease_is_a_lower_bound",
    "leases_begin_after_their_requests",
    "holders_never_overlap",
    "tokens_grow",
    "tokens_survive_restarts",
    "leases_outlive_restarts",
    "refused_is_not_granted",
    "wire_wait_is_what_is_left",
    "released_means_answered",
    "unconfirmed_exactly",
    "unsent_release_never_went_out",
    "own_release_goes_first",
    "everything_drains",
    "nothing_spins",
    "nothing_panics",
    "same_seed_same_log",
];

static CHOSEN: AtomicUsize = AtomicUsize::new(0);

const fn same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

const fn number(name: &str) -> usize {
    let mut at = 0;
    while !same(NAMES[at], name) {
        at += 1;
    }
    at
}

/// A bug, by its name. A name that is not in the list does not compile in a constant.
#[derive(Debug, Clone, Copy)]
pub struct Canary(usize);

impl Canary {
    /// The bug of this name.
    #[must_use]
    pub const fn new(name: &str) -> Canary {
        Canary(number(name))
    }

    /// Whether this bug is the one that was chosen.
    #[must_use]
    pub fn sings(self) -> bool {
        CHOSEN.load(Ordering::Relaxed) == self.0
    }
}

/// Whether the named bug was chosen. The name is looked up when this is compiled.
#[doc(hidden)]
#[macro_export]
macro_rules! canary {
    ($name:ident) => {{
        const CANARY: $crate::canary::Canary = $crate::canary::Canary::new(stringify!($name));
        CANARY.sings()
    }};
}

/// Chooses a bug for the whole process; none for an empty name.
///
/// # Panics
/// There is no such bug.
pub fn choose(name: &str) {
    CHOSEN.store(number(name), Ordering::Relaxed);
}

/// The bugs' names.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied().skip(1)
}
