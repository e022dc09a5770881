//! Bounds on what an acquire and a release of a free lock cost the client: instructions, system
//! calls and allocations of the client's whole process. They are counted, not timed, so a busy
//! machine does not change them.
//!
//! `cargo test --release -p lockclient-load`, after `cargo build -p lockd`

#[path = "gate/bounds.rs"]
mod bounds;
#[path = "gate/tools.rs"]
mod tools;

use lockclient_load::{Extent, Load};
use std::path::Path;
use tools::{Counter, SYSCALLS, c, check, is_skipped, lockd, rust, turn};

const MANY: usize = 64;

fn bounded(counter: &Counter, program: &Path, threads: usize, pairs: [u64; 2], bound: f64) {
    if is_skipped(counter.what) {
        return;
    }
    let _turn = turn();
    let counted = counter.per_pair(program, threads, pairs);
    check(counter.what, program, threads, counted, bound);
}

#[cfg(not(debug_assertions))]
mod instructions {
    use super::*;
    use tools::INSTRUCTIONS;

    #[test]
    fn one_thread() {
        bounded(&INSTRUCTIONS, &rust(), 1, [200, 700], bounds::INSTRUCTIONS_ONE);
    }

    #[test]
    fn one_thread_through_the_c_interface() {
        bounded(&INSTRUCTIONS, &c(), 1, [200, 700], bounds::INSTRUCTIONS_ONE_C);
    }

    #[test]
    fn many_threads() {
        bounded(&INSTRUCTIONS, &rust(), MANY, [2000, 4000], bounds::INSTRUCTIONS_MANY);
    }
}

mod system_calls {
    use super::*;

    #[test]
    fn one_thread() {
        bounded(&SYSCALLS, &rust(), 1, [200, 700], bounds::SYSCALLS_ONE);
    }

    #[test]
    fn many_threads() {
        bounded(&SYSCALLS, &rust(), MANY, [2000, 6000], bounds::SYSCALLS_MANY);
    }
}

mod allocations {
    use super::*;

    /// On all processors: threads must not get into each other's way.
    ///
    /// How many calls can be under way at the same moment, of which so many places are kept, shows
    /// only in time: with more threads it takes a few windows until there was the most.
    fn none(program: &Path, threads: usize, pairs: u64) {
        let _turn = turn();
        let extent = Extent::Pairs { warm_up: 200, measured: pairs, windows: 20 };
        let load = Load { threads, keys: 0, hold_us: 0, extent };
        let found = load.run(program, &lockd()).expect("a run");
        assert!(found.pairs >= pairs);
        let counted = found.allocations as f64 / found.pairs as f64;
        check("allocations", program, threads, counted, 0.0);
    }

    #[test]
    fn one_thread() {
        none(&rust(), 1, 10_000);
    }

    #[test]
    fn one_thread_through_the_c_interface() {
        none(&c(), 1, 10_000);
    }

    #[test]
    fn many_threads() {
        none(&rust(), MANY, 20_000);
    }

    #[test]
    fn many_threads_through_the_c_interface() {
        none(&c(), MANY, 20_000);
    }
}
