//! Numbers, sizes and offsets as Rust has them and as a C compiler sees them.

use crate::native::{Link, c_program_of, include_dir, link_args, run};
use lockclient::ffi as c;
use lockclient::ffi::{lockclient_grant, lockclient_stats, lockclient_status};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;

/// What C is asked, as an expression, and what Rust says.
type Facts = Vec<(String, i128)>;

macro_rules! constants {
    ($facts:ident: $($name:ident)*) => {
        $($facts.push((stringify!($name).to_owned(), i128::from(c::$name)));)*
    };
}

macro_rules! layout {
    ($facts:ident: $type:ident { $($field:ident: $width:ty),* $(,)? }) => {
        $facts.push((concat!("sizeof(", stringify!($type), ")").to_owned(),
            size_of::<$type>() as i128));
        $(
            $facts.push((
                concat!("offsetof(", stringify!($type), ", ", stringify!($field), ")").to_owned(),
                offset_of!($type, $field) as i128,
            ));
            $facts.push((
                concat!("sizeof(((", stringify!($type), " *)0)->", stringify!($field), ")")
                    .to_owned(),
                size_of::<$width>() as i128,
            ));
        )*
    };
}

fn facts() -> Facts {
    let mut facts = Facts::new();
    constants!(facts: LOCKCLIENT_OK LOCKCLIENT_TIMED_OUT LOCKCLIENT_BUSY LOCKCLIENT_NOT_HELD
        LOCKCLIENT_NOT_SENT LOCKCLIENT_CANCELLED LOCKCLIENT_PENDING LOCKCLIENT_INDETERMINATE
        LOCKCLIENT_E_INVALID_ARGUMENT LOCKCLIENT_E_BAD_KEY LOCKCLIENT_E_UNSUPPORTED_DURATION
        LOCKCLIENT_E_INSUFFICIENT_LEASE LOCKCLIENT_E_CLOSED LOCKCLIENT_E_AUTH
        LOCKCLIENT_E_OWNER_EXHAUSTED LOCKCLIENT_E_FORKED LOCKCLIENT_E_QUEUE_FULL
        LOCKCLIENT_E_SYSTEM LOCKCLIENT_E_WOULD_DEADLOCK LOCKCLIENT_E_TAKEN LOCKCLIENT_E_PANIC
        LOCKCLIENT_DEFAULT_LEASE_MS LOCKCLIENT_ABI_VERSION
        LOCKCLIENT_LOG_ERROR LOCKCLIENT_LOG_WARN LOCKCLIENT_LOG_INFO LOCKCLIENT_LOG_DEBUG);
    facts.push(("LOCKCLIENT_NUL_TERMINATED".to_owned(), usize::MAX as i128));
    facts.push(("sizeof(lockclient_status)".to_owned(), size_of::<lockclient_status>() as i128));
    facts.push(("(lockclient_status)-1 < 0".to_owned(), 1));
    layout!(facts: lockclient_grant { token: u64, owner: u64, remaining_ms: u64,
        reserved: [u64; 5] });
    layout!(facts: lockclient_stats { acquired: u64, timed_out: u64, busy: u64, not_sent: u64,
        cancelled: u64, indeterminate: u64, released: u64, not_held: u64, unconfirmed: u64,
        compensations: u64, compensations_dropped: u64, late_grants: u64, connects: u64,
        connects_failed: u64, connections_closed: u64, queued_now: u64, in_flight_now: u64,
        connections_now: u64 });
    facts
}

#[test]
fn c_sees_the_numbers_that_rust_has() {
    let facts = facts();
    let mut source = "#include \"lockclient.h\"\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for (expression, _) in &facts {
        writeln!(source, "  printf(\"%lld\\n\", (long long)({expression}));").unwrap();
    }
    source.push_str("  return 0;\n}\n");
    let program = c_program_of("layout", &source, &link_args(Link::Shared));
    let printed = run(&mut Command::new(program)).stdout;
    assert_eq!(printed.lines().count(), facts.len());
    for ((expression, rust), line) in facts.iter().zip(printed.lines()) {
        // NUL_TERMINATED does not fit in a long long; its bits do.
        assert_eq!(line.parse::<i64>().unwrap(), *rust as i64, "{expression}");
    }
}

/// A constant that is new in the header is new in this test too.
#[test]
fn every_constant_of_the_header_is_compared() {
    let header = std::fs::read_to_string(include_dir().join("lockclient.h")).expect("a header");
    let defined: BTreeSet<&str> = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define "))
        .filter_map(|line| line.split(' ').next())
        .filter(|name| !["LOCKCLIENT_H", "LOCKCLIENT_MUST_USE"].contains(name))
        .collect();
    let facts = facts();
    let compared: BTreeSet<&str> = facts
        .iter()
        .map(|(expression, _)| expression.as_str())
        .filter(|expression| expression.starts_with("LOCKCLIENT_"))
        .collect();
    assert_eq!(defined, compared);
}
