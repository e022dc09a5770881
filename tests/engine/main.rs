//! The engine, rule by rule: virtual time, fake sockets, exact values.

mod auth;
mod cancel;
mod closing;
mod connections;
mod deadline;
mod grants;
mod harness;
mod nodes;
mod order;
mod owner;
mod places;
mod reading;
mod releases;
mod sent;
