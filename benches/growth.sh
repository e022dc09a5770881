#!/bin/sh
# Measures what acquires in flight cost one thread, from 1 to 100,000 of them: about a minute, after
# the build. `--help` says what can be chosen; see prepare.sh for PROFILE.
set -eu
cd "$(dirname "$0")/.."
. benches/prepare.sh

exec "$target/release/growth" --programs "$programs" --lockd "$lockd" "$@"
