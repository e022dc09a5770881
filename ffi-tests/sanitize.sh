#!/bin/sh
# Runs the C and C++ programs under valgrind, AddressSanitizer with LeakSanitizer, and
# ThreadSanitizer.
#
#   ffi-tests/sanitize.sh [valgrind|address|thread]...      all three if none is named
#
# The sanitizers instrument the library too, which needs compiler options that are not stable yet:
# RUSTC_BOOTSTRAP lets a stable compiler take them, for this script alone.
set -eu
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
host=$(rustc -vV | sed -n 's/^host: //p')

# Without the program that replaces malloc, as the sanitizers do themselves.
instrumented() {
    host=$1
    shift
    cargo test --locked --target "$host" --test ffi -- programs:: hosts:: "$@"
}

for tool in ${*:-valgrind address thread}; do
    echo "=== $tool"
    case $tool in
    valgrind)
        checked='valgrind --quiet --error-exitcode=99'
        LOCKCLIENT_RUNNER="$checked --leak-check=full --show-leak-kinds=definite \
--errors-for-leak-kinds=definite" cargo test --locked --test ffi -- programs:: --test-threads 1 \
            --skip host_2
        # A forked child has the memory of threads that it has not got: no leak is a finding there.
        LOCKCLIENT_RUNNER="$checked" cargo test --locked --test ffi -- host_2
        ;;
    address)
        RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=address' CC='gcc -fsanitize=address' \
            CXX='g++ -fsanitize=address' ASAN_OPTIONS=detect_leaks=1 \
            CARGO_TARGET_DIR="$target/address" \
            instrumented "$host" --skip failing --skip host_3
        # What a host has pulled from under the library is left alone on purpose, memory included.
        RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=address' CC='gcc -fsanitize=address' \
            CXX='g++ -fsanitize=address' ASAN_OPTIONS=detect_leaks=0 \
            CARGO_TARGET_DIR="$target/address" instrumented "$host" --skip failing --skip programs
        ;;
    thread)
        RUSTC_BOOTSTRAP=1 \
            RUSTFLAGS='-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer' \
            CC='gcc -fsanitize=thread' CXX='g++ -fsanitize=thread' \
            TSAN_OPTIONS="suppressions=$PWD/ffi-tests/tsan.supp" \
            CARGO_TARGET_DIR="$target/thread" \
            instrumented "$host" --skip failing --skip host_2
        ;;
    *)
        echo "no such tool: $tool" >&2
        exit 2
        ;;
    esac
done
