#!/bin/sh
# Passes the tests. Needs Rust and a C compiler; does the rest of the set-up itself.
set -eu
cd "$(dirname "$0")/.."

# The tests of the C library need these, and the bounds on the client's cost valgrind and strace; a
# Debian machine without them gets them.
missing=
for pair in g++:g++ nm:binutils readelf:binutils make:make cmake:cmake pkg-config:pkg-config \
    abidw:abigail-tools valgrind:valgrind strace:strace; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
if [ -n "$missing" ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of package names
    apt-get install -y -qq $missing
fi

# The shared library and the server's binary are what the C programs are run against.
cargo build --locked --workspace
cargo test --locked --workspace --exclude lockclient-load
# What the client costs is bounded for what users get: an optimized build.
cargo test --locked --release -p lockclient-load
