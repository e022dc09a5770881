#!/bin/sh
# Compares lockclient with the least that is possible and with a lock on Redis: builds everything as
# users get it, measures all contenders interleaved, prints a table.
#
#   benches/compare.sh             all of it, within 10 minutes
#   benches/compare.sh --quick     within 2 minutes
#   benches/compare.sh --help      what can be chosen
#
# The first run takes some minutes more to build. See prepare.sh for PROFILE.
set -eu
cd "$(dirname "$0")/.."
. benches/prepare.sh

exec "$target/release/compare" --programs "$programs" --lockd "$lockd" \
    --json "$programs/compare.json" --svg "$programs/compare.svg" "$@"
