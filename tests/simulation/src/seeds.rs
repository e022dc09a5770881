//! Seeds that once found something: they run first, for ever.

use crate::faults::Skip;
use crate::world::Orders;

/// The file: a seed and a number of acquires on each line, then what it found.
const FILE: &str = include_str!("../seeds.txt");

/// What to run for each of them.
pub fn regressions() -> Vec<Orders> {
    let lines = FILE.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(orders).collect()
}

fn orders(line: &str) -> Orders {
    let mut words = line.split_whitespace();
    let mut number = || words.next().and_then(|word| word.parse().ok());
    let (Some(seed), Some(acquires)) = (number(), number()) else {
        panic!("not a seed and a number of acquires: {line}");
    };
    let acquires = u32::try_from(acquires).expect("a run has fewer acquires");
    Orders { seed, acquires, skip: Skip::default(), only: None, keep: false }
}
