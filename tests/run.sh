#!/bin/sh
# Passes the tests. Needs Rust and a C compiler; does the rest of the set-up itself.
set -eu
cd "$(dirname "$0")/.."

# The tests of the C library need these, and the bounds on the client's cost valgrind and strace.
tests/needs.sh g++:g++ nm:binutils readelf:binutils make:make cmake:cmake pkg-config:pkg-config \
    abidw:abigail-tools valgrind:valgrind strace:strace

# The shared library and the server's binary are what the C programs are run against.
cargo build --locked --workspace
cargo test --locked --workspace --exclude lockclient-load
# What the client costs is bounded for what users get: an optimized build.
cargo test --locked --release -p lockclient-load
