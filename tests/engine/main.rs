//! The engine, rule by rule: virtual time, fake sockets, exact values.

mod cancel;
mod deadline;
mod harness;
mod nodes;
mod owner;
mod reading;
mod sent;
