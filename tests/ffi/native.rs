//! Programs that link the library under test, and running them.

use crate::cc;
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// How the library gets into a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Shared,
    Static,
    /// Not at all: the program loads it.
    None,
}

/// What a program that links the static library has to link besides: what rustc prints for
/// `--print native-static-libs`, without what every compiler adds by itself.
const STATIC_NEEDS: [&str; 5] = ["-lgcc_s", "-lrt", "-lpthread", "-lm", "-ldl"];

/// The compiler of C++: `$CXX`, or `c++`.
pub(crate) fn cxx() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned())
}

pub(crate) fn include_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// The libraries that cargo built with this test: they lie beside it. Or others, that a script has
/// built, in `$LOCKCLIENT_LIBRARIES`.
pub(crate) fn built(file: &str) -> PathBuf {
    let me = std::env::current_exe().expect("this test has a path");
    let directory = std::env::var_os("LOCKCLIENT_LIBRARIES").map(PathBuf::from);
    let directory = directory.or_else(|| me.parent().map(Path::to_owned));
    let path = directory.expect("it lies in a directory").join(file);
    assert!(path.exists(), "{} was not built with the tests", path.display());
    path
}

/// A directory with the shared library under the names that a linker and a loader look for.
pub(crate) fn lib_dir() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lib");
        fs::create_dir_all(&directory).expect("a temporary directory");
        for name in ["liblockclient.so", "liblockclient.so.1"] {
            // Other test processes do the same at the same time: replace, never remove.
            let mine = directory.join(format!("{name}.{}", std::process::id()));
            let _ = fs::remove_file(&mine);
            symlink(built("liblockclient.so"), &mine).expect("a link can be made");
            fs::rename(&mine, directory.join(name)).expect("a link can be moved");
        }
        directory
    });
    &DIRECTORY
}

/// The compiler's arguments that link the library.
pub(crate) fn link_args(link: Link) -> Vec<String> {
    let mut args = vec!["-I".to_owned(), include_dir().display().to_string()];
    match link {
        Link::Shared => {
            let directory = lib_dir().display().to_string();
            args.push(format!("-L{directory}"));
            args.push(format!("-Wl,-rpath,{directory}"));
            args.push("-llockclient".to_owned());
            args.push("-lpthread".to_owned());
        }
        Link::None => {}
        Link::Static => {
            args.push(built("liblockclient.a").display().to_string());
            args.extend(STATIC_NEEDS.map(str::to_owned));
        }
    }
    args
}

/// A program from one C source in `ffi-tests/`, linked with the shared library.
pub(crate) fn c_program(name: &str) -> PathBuf {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    program(&compiler, &format!("ffi-{name}"), &format!("{name}.c"), &[], Link::Shared)
}

/// A program from one source in `ffi-tests/`.
pub(crate) fn program(
    compiler: &str,
    name: &str,
    source: &str,
    args: &[&str],
    link: Link,
) -> PathBuf {
    let linked = link_args(link);
    let mut all = if source.ends_with(".c") { vec!["-std=c11", "-D_GNU_SOURCE"] } else { vec![] };
    all.extend(args);
    all.extend(linked.iter().map(String::as_str));
    cc::compile(compiler, name, &[source], &all)
}

/// Whether a compiler is here.
pub(crate) fn is_here(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// A command that runs a program: under `$LOCKCLIENT_RUNNER` (a memory checker, say), if it is set.
pub(crate) fn launch(program: &Path) -> Command {
    let runner = std::env::var("LOCKCLIENT_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace();
    match words.next() {
        None => Command::new(program),
        Some(first) => {
            let mut command = Command::new(first);
            command.args(words).arg(program);
            command
        }
    }
}

/// What a program left behind.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Far more than any program here needs, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The same for a program that a tool runs step by step.
const SLOW_LIMIT: Duration = Duration::from_secs(900);

/// For what builds: on a machine that builds other things too.
#[allow(dead_code, reason = "not every test program that has this module builds something")]
pub(crate) const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// Runs a program to its end; one that hangs is killed, and that is a failure.
pub(crate) fn run(command: &mut Command) -> Finished {
    let slow = std::env::var_os("LOCKCLIENT_RUNNER").is_some();
    run_within(command, if slow { SLOW_LIMIT } else { LIMIT })
}

/// The same with another limit.
pub(crate) fn run_within(command: &mut Command, limit: Duration) -> Finished {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let stdout = reader(child.stdout.take().expect("piped"));
    let stderr = reader(child.stderr.take().expect("piped"));
    let (status, hung) = wait(&mut child, limit);
    let finished = Finished {
        status,
        stdout: stdout.join().expect("the reader does not panic"),
        stderr: stderr.join().expect("the reader does not panic"),
    };
    assert!(!hung, "{command:?} hung: {finished:#?}");
    finished
}

/// Runs a C program with arguments, and wants it to say that it is done, and nothing else.
pub(crate) fn passes(name: &str, args: &[&str]) {
    expect_done(launch(&c_program(name)).args(args));
}

/// The same for any command.
pub(crate) fn expect_done(command: &mut Command) {
    let finished = run(command);
    let (code, signal) = (finished.status.code(), finished.status.signal());
    assert!(
        code == Some(0) && finished.stdout == "done\n" && finished.stderr.is_empty(),
        "{command:?}: exit {code:?}, signal {signal:?}\n--- stdout\n{}\n--- stderr\n{}",
        finished.stdout,
        finished.stderr
    );
}

fn reader(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child, limit: Duration) -> (ExitStatus, bool) {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("the program can be waited for") {
            return (status, false);
        }
        if start.elapsed() > limit {
            child.kill().expect("the program can be killed");
            return (child.wait().expect("it ends"), true);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A program from a C source that a test has made.
pub(crate) fn c_program_of(name: &str, source: &str, args: &[String]) -> PathBuf {
    let file =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.c", std::process::id()));
    fs::write(&file, source).expect("a temporary file");
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let program = cc::program(name, &[file.to_str().expect("a path of text")], &args);
    fs::remove_file(&file).expect("the file is still there");
    program
}
