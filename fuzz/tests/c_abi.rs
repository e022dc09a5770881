//! The committed inputs of the C ABI's target. In a process of their own: it counts the threads.

mod corpus;

#[test]
fn the_c_abi_returns_what_its_header_says() {
    corpus::replay("c_abi", lockclient_fuzz::c_abi::run);
}
