//! The engine, rule by rule: virtual time, fake sockets, exact values.

mod auth;
mod busy;
mod cancel;
mod churn;
mod closing;
mod connections;
mod deadline;
mod grants;
mod harness;
mod hints;
mod nodes;
mod order;
mod outcomes;
mod owner;
mod places;
mod random;
mod reading;
mod releases;
mod sent;
mod shutdown;
