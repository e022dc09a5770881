//! How long things took, in fixed classes.

use std::time::Duration;

/// The upper bounds of the classes, in milliseconds; one more class is above the last.
pub const BOUNDS_MS: [u64; 15] =
    [1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 255_000];

/// Counts by duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram {
    /// How many were in each class: at most the class's bound and above the one before.
    pub counts: [u64; BOUNDS_MS.len() + 1],
    /// The sum of all durations, in nanoseconds.
    pub sum_nanos: u128,
}

impl Histogram {
    pub(crate) fn record(&mut self, duration: Duration) {
        // In 64 bits: this is done for every request.
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_nanos += u128::from(nanos);
        let class = BOUNDS_MS.iter().position(|bound| nanos <= bound * 1_000_000);
        self.counts[class.unwrap_or(BOUNDS_MS.len())] += 1;
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_first_class_that_holds_it() {
        let mut histogram = Histogram::default();
        for (micros, class) in
            [(0, 0), (1000, 0), (1001, 1), (5000, 1), (255_000_000, 14), (255_000_001, 15)]
        {
            let before = histogram.counts[class];
            histogram.record(Duration::from_micros(micros));
            assert_eq!(histogram.counts[class], before + 1, "{micros} µs");
        }
        assert_eq!(histogram.count(), 6);
        assert_eq!(histogram.sum_nanos, 510_007_002_000);
    }
}
