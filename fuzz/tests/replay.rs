//! The committed inputs, through what the fuzz targets run.

mod corpus;

use corpus::replay;

#[test]
fn streams_read_the_same_in_any_chunks() {
    replay("decode", lockclient_fuzz::decode::run);
}

#[test]
fn the_engine_keeps_its_promises() {
    replay("engine", lockclient_fuzz::engine::run);
}

#[test]
fn sessions_keep_the_servers_rules() {
    replay("session", lockclient_fuzz::session::run);
}
