//! The committed inputs, through what the fuzz targets run.

use std::fs;
use std::path::Path;

fn replay(target: &str, run: impl Fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut inputs: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    assert!(inputs.len() >= 10, "only {} inputs in {}", inputs.len(), directory.display());
    for path in inputs {
        let input = fs::read(&path).unwrap();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&input)));
        assert!(result.is_ok(), "{}", path.display());
    }
}

#[test]
fn streams_read_the_same_in_any_chunks() {
    replay("decode", lockclient_fuzz::decode::run);
}

#[test]
fn sessions_keep_the_servers_rules() {
    replay("session", lockclient_fuzz::session::run);
}
