//! The background thread and what it owns.

pub(crate) mod sys;
