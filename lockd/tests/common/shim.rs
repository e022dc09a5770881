//! The C library between `lockd` and its system, which makes the system misbehave.

use super::program::Lockd;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// What every C program of this project must compile with, without a warning.
const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"];

/// Where the shim is, compiled with `$CC`, which may carry arguments of its own, or `cc`.
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim.c");
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lockd-shim.so");
        // Test programs may compile it at once: each makes its own and then moves it into place.
        let mine = built.with_extension(std::process::id().to_string());
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let mut words = compiler.split_whitespace();
        let mut command = Command::new(words.next().expect("the compiler has a name"));
        command.args(words).args(STRICT).args(["-std=gnu11", "-O1", "-shared", "-fPIC"]);
        command.arg(source).arg("-ldl").arg("-o").arg(&mine);
        let output = command.output().expect("a C compiler; CC names it, if cc does not");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(&mine, &built).expect("the compiler made it");
        built
    })
}

/// `lockd` on a free port with the shim, which is told `name=value`.
pub(crate) fn command(arguments: &[&str], (name, value): (&str, &str)) -> Command {
    let mut command = Lockd::command(arguments);
    command.env("LD_PRELOAD", shim()).env(name, value).stderr(Stdio::null());
    command
}

/// A wall clock that can be set.
pub(crate) struct WallClock {
    file: File,
    path: PathBuf,
}

impl WallClock {
    pub(crate) fn new(directory: &Path) -> WallClock {
        let path = directory.join("clock");
        std::fs::write(&path, [0; 24]).expect("a file");
        let file = File::options().read(true).write(true).open(&path).expect("the file");
        WallClock { file, path }
    }

    /// For [`command`].
    pub(crate) fn setting(&self) -> (&str, &str) {
        ("SHIM_CLOCK", self.path.to_str().expect("a UTF-8 path"))
    }

    /// Sets it to so many hours after, or before, what it really is.
    pub(crate) fn set_hours(&self, hours: i64) {
        self.file.write_all_at(&(hours * 3600).to_ne_bytes(), 0).expect("write");
    }

    /// How often it was read.
    pub(crate) fn reads(&self) -> i64 {
        self.number(8)
    }

    /// How often something was to wait for a moment on it.
    pub(crate) fn waits(&self) -> i64 {
        self.number(16)
    }

    fn number(&self, at: u64) -> i64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).expect("read");
        i64::from_ne_bytes(bytes)
    }
}
