//! The first command that a newcomer runs: `examples/quickstart.sh`.

#[path = "common/cc.rs"]
#[allow(dead_code, reason = "shared; this test compiles by the script")]
mod cc;
#[path = "ffi/native.rs"]
#[allow(dead_code, reason = "shared with the tests of the C ABI, which use the rest")]
mod native;

use std::path::Path;
use std::process::Command;

#[test]
fn it_builds_both_programs_and_they_show_every_outcome() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart.sh");
    // Where this test was built, so that little is left to build.
    let me = std::env::current_exe().expect("this test has a path");
    let target = me.ancestors().nth(3).expect("it lies in target/debug/deps");
    let finished = native::run_within(
        Command::new(script).env("CARGO_TARGET_DIR", target),
        native::BUILD_LIMIT,
    );
    assert!(finished.status.success(), "{finished:#?}");
    let (rust, c) = finished.stdout.split_once("=== C").expect("both ran");

    let outcomes = ["TimedOut", "acquired", "unknown", "busy", "Released", "NotHeld", "Clean"];
    for word in outcomes {
        assert!(rust.contains(word), "no {word} in\n{rust}");
    }
    for word in ["TIMED_OUT", "PENDING", "INDETERMINATE", "BUSY", "NOT_HELD"] {
        assert!(c.contains(&format!("LOCKCLIENT_{word}")), "no {word} in\n{c}");
    }
    for program in [rust, c] {
        // Four held it, each with a greater token than the one before.
        let held = program.lines().filter(|line| line.contains("holds it, token"));
        let tokens: Vec<u64> = held
            .map(|line| line.split("token ").nth(1).expect("a token"))
            .map(|rest| rest.split(',').next().expect("a number").parse().expect("a number"))
            .collect();
        assert_eq!(tokens, [1, 2, 3, 4], "{program}");
    }
}
