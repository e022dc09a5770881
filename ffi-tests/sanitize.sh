#!/bin/sh
# Runs the C and C++ programs under valgrind, AddressSanitizer with LeakSanitizer, and
# ThreadSanitizer.
#
#   ffi-tests/sanitize.sh [valgrind|address|thread]...      all three if none is named
#
# The sanitizers instrument the library, which needs compiler options that are not stable yet:
# RUSTC_BOOTSTRAP lets a stable compiler take them, for that one build.
set -eu
cd "$(dirname "$0")/.."

target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
export CARGO_TARGET_DIR="$target"
host=$(rustc -vV | sed -n 's/^host: //p')

# instrument NAME RUSTFLAGS: builds the libraries, and says where.
instrument() {
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="$2" CARGO_TARGET_DIR="$target/$1" \
        cargo build --quiet --locked --package lockclient --lib --target "$host"
    echo "$target/$1/$host/debug"
}

# programs ARGUMENT...: what is run, but for the program that replaces malloc, as the tools do.
programs() {
    cargo test --locked --test ffi -- programs:: hosts:: --skip failing "$@"
}

for tool in ${*:-valgrind address thread}; do
    echo "=== $tool"
    case $tool in
    valgrind)
        checked='valgrind --quiet --error-exitcode=99'
        export LOCKCLIENT_RUNNER="$checked --leak-check=full --show-leak-kinds=definite \
--errors-for-leak-kinds=definite"
        cargo test --locked --test ffi -- programs:: --test-threads 1 --skip host_2
        # A forked child has the memory of threads that it has not got: no leak is a finding there.
        export LOCKCLIENT_RUNNER="$checked"
        cargo test --locked --test ffi -- host_2
        unset LOCKCLIENT_RUNNER
        ;;
    address)
        LOCKCLIENT_LIBRARIES=$(instrument address '-Zsanitizer=address')
        export LOCKCLIENT_LIBRARIES CC='gcc -fsanitize=address' CXX='g++ -fsanitize=address'
        programs --skip host_3
        # What a host has pulled from under the library is left alone on purpose, memory included.
        ASAN_OPTIONS=detect_leaks=0 cargo test --locked --test ffi -- host_3
        unset LOCKCLIENT_LIBRARIES CC CXX
        ;;
    thread)
        LOCKCLIENT_LIBRARIES=$(instrument thread \
            '-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer')
        runtime=$(find "$(rustc --print sysroot)/lib/rustlib/$host/lib" -name '*_rt.tsan.a')
        # The runtime that fits the library; compilers bring others. It takes no fork with threads,
        # has a thread of its own with a mask of its own, and calls it a race when a host closes
        # descriptors that are in use: so it is, but not the library's.
        with="-Wl,--whole-archive $runtime -Wl,--no-whole-archive -rdynamic -lm -ldl"
        export LOCKCLIENT_LIBRARIES CC="gcc $with" CXX="g++ $with"
        export TSAN_OPTIONS="suppressions=$PWD/ffi-tests/tsan.supp"
        programs --skip host_2 --skip host_1_signals --skip host_3 --skip dlopened
        unset LOCKCLIENT_LIBRARIES CC CXX TSAN_OPTIONS
        ;;
    *)
        echo "no such tool: $tool" >&2
        exit 2
        ;;
    esac
done
