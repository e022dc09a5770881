#!/bin/sh
# The places where threads meet, under a scheduler that the test holds: small ones in every order
# (loom), the client without its sockets in many orders drawn at random (shuttle). MIXES is the
# number of schedules of each mix and of each way to draw them; there are four mixes and two ways.
set -eu
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
CARGO_TARGET_DIR=$target/loom RUSTFLAGS="--cfg loom" \
    cargo test --locked --release -p lockclient --lib models
CARGO_TARGET_DIR=$target/shuttle RUSTFLAGS="--cfg shuttle" MIXES=${MIXES:-20000} \
    cargo test --locked --release -p lockclient --lib mixes
