//! The `lockd` binary.

#![forbid(unsafe_code)]

mod cli;

use clap::Parser;
use cli::{Cli, LogFormat};
use lockd::Server;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging(&cli);
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Also where logging is off: nothing else would say why there is no server.
            eprintln!("lockd: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> io::Result<()> {
    // Before any thread runs and before it accepts: a signal is never lost.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    raise_descriptor_limit();
    let server = Server::start(cli.config())?;
    let mut lines = String::new();
    for address in server.listening() {
        lines.push_str(&format!("listening on {address}\n"));
    }
    announce(&lines);
    let handle = server.handle();
    let closer = signals.handle();
    let watcher = std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if signal != SIGHUP {
                tracing::info!(signal, "stopping");
                return handle.stop();
            }
            match handle.reload_secrets() {
                Ok(secrets) => tracing::info!(secrets, "secret files read again"),
                Err(error) => tracing::error!(%error, "the secrets stay as they were"),
            }
        }
    })?;
    let result = server.wait();
    closer.close();
    // It has nothing left to do but to return.
    let _ = watcher.join();
    result
}

/// Prints to standard output. That nobody may be reading it is no reason to stop.
fn announce(lines: &str) {
    let mut stdout = io::stdout().lock();
    let _ = write!(stdout, "{lines}").and_then(|()| stdout.flush());
}

/// Lets the process have as many descriptors as it may: each connection takes one.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Without it there are fewer connections, which is said when it matters.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn start_logging(cli: &Cli) {
    let level = LevelFilter::from(cli.log);
    let builder = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(level)
        // Reporting on standard error that standard error failed would panic.
        .log_internal_errors(false);
    match cli.log_format {
        LogFormat::Text => builder.with_ansi(false).with_target(false).init(),
        LogFormat::Json => builder.json().init(),
    }
}
