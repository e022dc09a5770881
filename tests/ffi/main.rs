//! The C ABI as C and C++ programs meet it: what the header says, what the library exports, and
//! how both behave in programs from `ffi-tests/`, compiled against the header and the freshly
//! built library.

mod abi;
#[path = "../common/cc.rs"]
mod cc;
mod examples;
mod exports;
mod header;
mod hosts;
mod layout;
mod native;
#[path = "../common/place.rs"]
#[allow(dead_code, reason = "shared with the Rust tests, which use the rest")]
mod place;
mod programs;
mod scripted;
