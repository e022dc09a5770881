#!/bin/sh
# Builds the client, the server and both quickstart programs, and runs them.
# Needs cargo and a C compiler (CC, or cc).
set -eu
cd "$(dirname "$0")/.."

cargo build --quiet --workspace --lib --bins
cargo build --quiet --example quickstart
target=${CARGO_TARGET_DIR:-target}/debug

${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -O1 -Iinclude -o "$target/examples/quickstart-c" \
    examples/quickstart.c "$target/liblockclient.a" -lgcc_s -lpthread -lm -ldl -lrt

echo '=== Rust: examples/quickstart.rs'
"$target/examples/quickstart"
echo
echo '=== C: examples/quickstart.c'
"$target/examples/quickstart-c" "$target/lockd"
