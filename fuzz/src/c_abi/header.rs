//! What the header says that each function may return.

use ::lockclient::ffi::{
    LOCKCLIENT_OK, LOCKCLIENT_PENDING, lockclient_last_error, lockclient_status_name,
};
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::LazyLock;

/// Each function's `@retval` names.
static DOCUMENTED: LazyLock<HashMap<&'static str, Vec<&'static str>>> = LazyLock::new(|| {
    let header = include_str!("../../../include/lockclient.h");
    let mut documented = HashMap::new();
    for block in header.split("/**").skip(1) {
        let Some((comment, rest)) = block.split_once("*/") else { continue };
        let names = comment.split("@retval ").skip(1);
        let names = names.filter_map(|text| text.split_whitespace().next());
        let Some((before, _)) = rest.split_once('(') else { continue };
        let function = before.rsplit([' ', '*', '\n']).next().unwrap_or_default();
        documented.insert(function, names.collect());
    }
    documented
});

/// Whether `function` may end so here: the header says it, and it is none of those that would mean
/// a fault of the library or of the machine.
pub(super) fn check(function: &str, status: i32) -> i32 {
    let name = lockclient_status_name(status);
    // SAFETY: the header: never NULL, and a constant.
    let name = unsafe { CStr::from_ptr(name) }.to_str().expect("ASCII");
    let documented = DOCUMENTED.get(function).unwrap_or_else(|| panic!("{function} is unknown"));
    assert!(documented.contains(&name), "{function} returned {name} ({status})");
    let faults = [
        "LOCKCLIENT_E_PANIC",
        "LOCKCLIENT_E_SYSTEM",
        "LOCKCLIENT_E_FORKED",
        "LOCKCLIENT_E_OWNER_EXHAUSTED",
        "LOCKCLIENT_E_WOULD_DEADLOCK",
    ];
    // SAFETY: the header: never NULL, and valid until this thread's next call.
    let error = unsafe { CStr::from_ptr(lockclient_last_error()) };
    assert!(!faults.contains(&name), "{function} returned {name}: {error:?}");
    if ![LOCKCLIENT_OK, LOCKCLIENT_PENDING].contains(&status) {
        assert!(error.to_str().is_ok_and(|text| !text.is_empty()), "{function}: {error:?}");
    }
    status
}
