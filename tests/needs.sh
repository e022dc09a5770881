#!/bin/sh
# Installs what is missing, on a Debian machine. Elsewhere whoever needs it complains.
#
#   tests/needs.sh COMMAND:PACKAGE...
set -eu

missing=
for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
if [ -n "$missing" ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of package names
    apt-get install -y -qq $missing
fi
