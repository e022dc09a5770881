#!/bin/sh
# Shows that every predicate of the simulation catches the bug that was seeded for it, and that
# none of these bugs is in what is built without asking for them.
set -eu
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-target}
cargo build --locked --release
if grep -aq "holders_never_overlap" "$target"/release/liblockclient.so "$target"/release/lockd; then
    echo "a seeded bug is in the product" >&2
    exit 1
fi
CARGO_TARGET_DIR=$target/canary RUSTFLAGS="--cfg canary" \
    cargo test --locked --release -p lockclient-simulation --test canaries -- --nocapture --test-threads=1
