#!/bin/sh
# Builds the Debian packages as they are shipped, and checks what is in them: size, exports, names,
# and that C programs build and run against them, shared and static.
#
#   packaging/check.sh [DIRECTORY]
set -eu
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
directory=${1:-$target/deb}
most=614400 # bytes of the stripped shared library: what a careful host accepts

make --no-print-directory deb CARGO_TARGET_DIR="$target" >/dev/null
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
for package in "$directory"/*.deb; do
    dpkg-deb -x "$package" "$root"
done
libdir=$(dirname "$(find "$root" -name liblockclient.so.1)")

fail() {
    echo "packaging/check.sh: $*" >&2
    exit 1
}

size=$(stat -c %s "$libdir/liblockclient.so.1")
echo "liblockclient.so.1: $size bytes"
[ "$size" -le "$most" ] || fail "more than $most bytes"
nm -D --defined-only "$libdir/liblockclient.so.1" | awk '{print $3}' | LC_ALL=C sort |
    cmp - ffi-tests/exports.txt || fail 'it exports something else than ffi-tests/exports.txt'
readelf -dW "$libdir/liblockclient.so.1" | grep -q 'soname: \[liblockclient.so.1\]' ||
    fail 'no soname'
readelf -dW "$libdir/liblockclient.so.1" | grep -q NODELETE || fail 'it can be unloaded'

# The example's own server comes out of the third package.
build() {
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -I"$root/usr/include" \
        -o "$root/$1" examples/quickstart.c "$2" -lgcc_s -lpthread -lm -ldl -lrt
    LD_LIBRARY_PATH=$libdir "$root/$1" "$root/usr/bin/lockd" > "$root/$1.out"
    grep -q 'closed: LOCKCLIENT_OK' "$root/$1.out" || fail "$1 did not end well"
}
build shared "$libdir/liblockclient.so"
build static "$libdir/liblockclient.a"
echo 'the packages are as they should be'
