//! Admission: refuse early and until there is room again, rather than at the very limit.

/// Whether new acquires are let in. Releases never ask.
///
/// Usage is the larger of two shares: keys held of their limit, and waiters of theirs.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    max_locks: u64,
    max_waiters: u64,
    open: bool,
}

impl Admission {
    pub(crate) fn new(max_locks: usize, max_waiters: usize) -> Admission {
        Admission { max_locks: max_locks as u64, max_waiters: max_waiters as u64, open: true }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Takes note of the usage after a change: closes at 90 %, reopens below 75 %.
    pub(crate) fn update(&mut self, locks: usize, waiters: usize) {
        let used = [(locks as u64, self.max_locks), (waiters as u64, self.max_waiters)];
        if self.open {
            self.open = !used.iter().any(|(used, max)| used * 10 >= max * 9);
        } else {
            self.open = used.iter().all(|(used, max)| used * 4 < max * 3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closes_at_90_percent_and_reopens_below_75() {
        let mut admission = Admission::new(100, 1000);
        for (locks, waiters, open) in [
            (89, 0, true),
            (90, 0, false),
            (89, 0, false),
            (75, 0, false),
            (74, 0, true),
            (0, 899, true),
            (0, 900, false),
            (0, 750, false),
            (0, 749, true),
            (90, 0, false),
            (74, 800, false),
            (74, 749, true),
        ] {
            admission.update(locks, waiters);
            assert_eq!(admission.is_open(), open, "at {locks} locks and {waiters} waiters");
        }
    }
}
