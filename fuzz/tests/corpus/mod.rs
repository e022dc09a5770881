//! Running the committed inputs of a target.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

pub(crate) fn replay(target: &str, run: impl Fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut inputs: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    assert!(inputs.len() >= 10, "only {} inputs in {}", inputs.len(), directory.display());
    for path in inputs {
        let input = fs::read(&path).unwrap();
        let result = catch_unwind(AssertUnwindSafe(|| run(&input)));
        assert!(result.is_ok(), "{}", path.display());
    }
}
