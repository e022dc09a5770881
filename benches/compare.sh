#!/bin/sh
# Compares lockclient with the least that is possible and with a lock on Redis: builds everything as
# users get it, measures all contenders interleaved, prints a table.
#
#   benches/compare.sh             all of it, within 10 minutes
#   benches/compare.sh --quick     within 2 minutes
#   benches/compare.sh --help      what can be chosen
#
# PROFILE=release builds the library and the server faster, and not quite as users get them.
set -eu
cd "$(dirname "$0")/.."

missing=
for pair in gcc:gcc make:make pkg-config:pkg-config redis-server:redis-server; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
pkg-config --exists hiredis 2>/dev/null || missing="$missing libhiredis-dev"
if [ -n "$missing" ]; then
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of package names
    apt-get install -y -qq $missing
fi

target=${CARGO_TARGET_DIR:-target}
programs=$target/bench
mkdir -p "$programs"
# The library and the server as `make install` installs them; the Rust program as cargo builds it.
PROFILE=${PROFILE:-packaged}
make --no-print-directory shared server PROFILE="$PROFILE"
cargo build --locked --release -p lockclient-benches -p lockclient-load --bins
cp "$target/release/load-rust" "$programs/"
make --no-print-directory -B -C benches/load/c OUT="$(realpath "$programs")" \
    LIBRARY="$(realpath "$target/$PROFILE/liblockclient.so")"

exec "$target/release/compare" --programs "$programs" --lockd "$target/$PROFILE/lockd" \
    --json "$programs/compare.json" --svg "$programs/compare.svg" "$@"
