//! The engine, rule by rule: virtual time, fake sockets, exact values.

mod cancel;
mod closing;
mod deadline;
mod grants;
mod harness;
mod nodes;
mod owner;
mod reading;
mod releases;
mod sent;
