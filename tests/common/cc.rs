//! C programs for tests, compiled with the system's compiler.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// What every C program of this project must compile with, without a warning.
const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"];

/// Compiles `sources`, paths in `ffi-tests/`, into a program called `name`, and gives its path.
///
/// The compiler is `$CC`, which may carry arguments of its own (`gcc -fsanitize=address`), or `cc`.
/// `args` come after the sources: a standard, and what is to be linked.
///
/// # Panics
/// There is no compiler, or it refuses the sources; its messages are in the panic's.
pub(crate) fn program(name: &str, sources: &[&str], args: &[&str]) -> PathBuf {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    compile(&compiler, name, sources, args)
}

/// The same with a compiler of C or C++, which may carry arguments of its own.
pub(crate) fn compile(compiler: &str, name: &str, sources: &[&str], args: &[&str]) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("ffi-tests");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Tests may compile the same program at once: each makes its own and then moves it into place.
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let mine = built.with_extension(format!("{}-{serial}", std::process::id()));

    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().expect("the compiler has a name"));
    // Memory checkers do not read what newer compilers write by default, and complain.
    command.args(words).args(STRICT).arg("-gdwarf-4").arg("-O1").arg("-I").arg(&directory);
    command.args(sources.iter().map(|source| directory.join(source))).args(args);
    command.arg("-o").arg(&mine);

    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {compiler} ({error}): CC and CXX name compilers, if cc and c++ do not")
    });
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::rename(&mine, &built).expect("the compiler made the program");
    built
}
