//! The C ABI: a thin layer over [`crate::Client`] and [`crate::Ticket`], one file per C noun.
//!
//! `include/lockclient.h` is generated from these files, documentation included: what is written
//! above an exported function is written for C programmers, and is that function's safety
//! contract.
#![allow(unsafe_code, reason = "pointers come from C; each use says why it is sound")]
#![allow(non_camel_case_types, reason = "the names are C's")]
#![allow(clippy::missing_safety_doc, reason = "the header's text is the contract")]
#![allow(rustdoc::broken_intra_doc_links, reason = "brackets mean to C what they say")]

mod acquire;
mod boundary;
mod client;
mod config;
mod handle;
mod key;
mod last_error;
mod log;
mod release;
mod stats;
mod status;
mod ticket;
mod version;

pub use acquire::*;
pub use client::*;
pub use config::*;
pub use last_error::*;
pub use log::*;
pub use release::*;
pub use stats::*;
pub use status::*;
pub use ticket::*;
pub use version::*;
