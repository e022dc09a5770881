//! Sockets: one thread, one poll, and the sans-IO parts in between.

mod clock;
mod connection;
mod event_loop;
mod listener;
mod notice;
mod outputs;
mod penalties;
mod reading;
mod socket_file;
mod writing;

pub(crate) use clock::now;
pub(crate) use event_loop::{Command, EventLoop, Setup};
pub use listener::Address;
pub(crate) use listener::Listener;
pub(crate) use socket_file::SocketFile;
