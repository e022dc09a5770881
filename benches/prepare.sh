# Sourced by the benchmarks, in the project's directory: installs what is missing and builds
# everything as users get it. Sets `programs` and `lockd`.
#
# PROFILE=release builds the library and the server faster, and not quite as users get them.

tests/needs.sh gcc:gcc make:make pkg-config:pkg-config redis-server:redis-server
pkg-config --exists hiredis 2>/dev/null || {
    apt-get update -qq
    apt-get install -y -qq libhiredis-dev
}

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
profile=${PROFILE:-packaged}
programs=$target/bench
lockd=$programs/server/$profile/lockd
mkdir -p "$programs"
# The library and the server as `make install` installs them; what is Rust as cargo builds it. Each
# in a directory of its own: in one, cargo builds the other again each time.
for what in shared server; do
    make --no-print-directory "$what" PROFILE="$profile" CARGO_TARGET_DIR="$programs/$what"
done
cargo build --locked --release -p lockclient-benches -p lockclient-load --bins
cp "$target/release/load-rust" "$programs/"
# All of it each time: it takes a second, and PROFILE may be another than the last time.
make --no-print-directory -s -B -C benches/load/c OUT="$programs" \
    LIBRARY="$programs/shared/$profile/liblockclient.so"
