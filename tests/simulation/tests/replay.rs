//! A seed is all there is to a run: in another process, too.

use std::process::Command;

fn replay(seed: u64) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_simulation"))
        .env("SEED", seed.to_string())
        .env("ACQUIRES", "1000")
        .output()
        .expect("the simulation starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("it prints text")
}

#[test]
fn the_same_seed_gives_the_same_log_in_two_processes() {
    let hashes: Vec<String> = (1..=8).map(replay).collect();
    for (seed, hash) in (1..=8).zip(&hashes) {
        assert!(hash.contains("log hash"), "{hash}");
        assert_eq!(&replay(seed), hash);
    }
    let mut different = hashes.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), hashes.len(), "seeds differ");
}
