#!/bin/sh
# Runs the C and C++ programs, and the Rust tests that have threads, under checkers.
#
#   ffi-tests/sanitize.sh [TOOL]...      all of them if none is named
#
#   address        the programs, with AddressSanitizer and LeakSanitizer
#   valgrind       the programs, under valgrind's memory checker
#   thread         the programs, with ThreadSanitizer
#   rust-address   the Rust tests, with AddressSanitizer and LeakSanitizer
#   rust-thread    the Rust tests, with ThreadSanitizer
#
# The sanitizers instrument the library, which needs compiler options that are not stable yet:
# RUSTC_BOOTSTRAP lets a stable compiler take them, for that one build. ThreadSanitizer wants the
# Rust tests' standard library instrumented too, and that library's source comes with rustup.
set -eu
cd "$(dirname "$0")/.."

target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
export CARGO_TARGET_DIR="$target"
host=$(rustc -vV | sed -n 's/^host: //p')
suppressions="suppressions=$PWD/ffi-tests/tsan.supp"

# instrument NAME RUSTFLAGS: builds the libraries, and says where.
instrument() {
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="$2" CARGO_TARGET_DIR="$target/$1" \
        cargo build --quiet --locked --package lockclient --lib --target "$host"
    echo "$target/$1/$host/debug"
}

# programs ARGUMENT...: what is run, but for the program that replaces malloc, as the tools do.
programs() {
    cargo test --locked --test ffi -- programs:: hosts:: examples:: --skip failing "$@"
}

# rust NAME RUSTFLAGS OPTION... -- ARGUMENT...: the library's own tests and those of whole clients.
rust() {
    name=$1 flags=$2
    shift 2
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="$flags" CARGO_TARGET_DIR="$target/$name" \
        cargo test --locked --package lockclient --lib --test 'client_*' --target "$host" "$@"
}

for tool in ${*:-address valgrind thread rust-address rust-thread}; do
    echo "=== $tool"
    case $tool in
    address)
        tests/needs.sh gcc:gcc g++:g++ readelf:binutils
        LOCKCLIENT_LIBRARIES=$(instrument address '-Zsanitizer=address')
        export LOCKCLIENT_LIBRARIES CC='gcc -fsanitize=address' CXX='g++ -fsanitize=address'
        # A thread that is cancelled leaves its stack without a word to the sanitizer. And a child that
        # allocates may find the sanitizer's own locks held, by threads that it has not got.
        programs --skip host_3 --skip cancelling --skip host_2_own_clients --skip host_2_first_call \
            --skip host_2_raii
        # What a host has pulled from under the library is left alone on purpose, memory included.
        ASAN_OPTIONS=detect_leaks=0 cargo test --locked --test ffi -- host_3
        unset LOCKCLIENT_LIBRARIES CC CXX
        ;;
    valgrind)
        tests/needs.sh valgrind:valgrind g++:g++ readelf:binutils
        checked='valgrind --quiet --error-exitcode=99'
        export LOCKCLIENT_RUNNER="$checked --leak-check=full --show-leak-kinds=definite \
--errors-for-leak-kinds=definite"
        programs --test-threads 1 --skip host_2 --skip host_3 --skip host_7_exiting
        # A forked child has the memory of threads that it has not got, what a host has pulled from
        # under the library is left alone, and a process that ends with everything in use gives
        # nothing back: no leak is a finding there.
        export LOCKCLIENT_RUNNER="$checked"
        # One that starts 1,500 processes would take all too long.
        cargo test --locked --test ffi -- --test-threads 1 host_2 host_3 host_7_exiting \
            --skip host_2_first_call
        unset LOCKCLIENT_RUNNER
        ;;
    thread)
        tests/needs.sh gcc:gcc g++:g++ readelf:binutils
        LOCKCLIENT_LIBRARIES=$(instrument thread \
            '-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer')
        runtime=$(find "$(rustc --print sysroot)/lib/rustlib/$host/lib" -name '*_rt.tsan.a')
        # The runtime that fits the library; compilers bring others. It takes no fork with threads,
        # has a thread of its own with a mask of its own, knows nothing of cancelled threads, and calls
        # it a race when a host closes descriptors that are in use: so it is, but not the library's.
        with="-Wl,--whole-archive $runtime -Wl,--no-whole-archive -rdynamic -lm -ldl"
        export LOCKCLIENT_LIBRARIES CC="gcc $with" CXX="g++ $with" TSAN_OPTIONS="$suppressions"
        programs --skip host_2 --skip host_1_signals --skip host_3 --skip dlopened --skip daemon \
            --skip cancelling
        unset LOCKCLIENT_LIBRARIES CC CXX TSAN_OPTIONS
        ;;
    rust-address)
        rust address '-Zsanitizer=address' -- --skip host_3
        # Memory that is left alone on purpose, as above.
        ASAN_OPTIONS=detect_leaks=0 rust address '-Zsanitizer=address' -- host_3
        ;;
    rust-thread)
        source=$(rustc --print sysroot)/lib/rustlib/src/rust/library
        [ -d "$source" ] || rustup component add rust-src
        # No fork and no closed descriptors, as above.
        TSAN_OPTIONS="$suppressions" rust rust-thread '-Zsanitizer=thread' -Zbuild-std -- \
            --skip host_2 --skip host_3 --skip clo_2
        ;;
    *)
        echo "no such tool: $tool" >&2
        exit 2
        ;;
    esac
done
