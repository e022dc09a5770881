//! The `lockd` binary.

#![forbid(unsafe_code)]

mod cli;
mod log;

use clap::Parser;
use cli::{Cli, LogFormat, Settings, Task};
use lockd::{Config, Server};
use log::Log;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::Duration;
use tracing::level_filters::LevelFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Some(Task::Inspect(inspect)) => inspect.run(),
        None => cli.settings().and_then(|settings| {
            let log = start_logging(&settings)?;
            let result = serve(settings.config);
            log.flush();
            result
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Also where logging is off: nothing else would say why there is no server.
            print(io::stderr(), format!("lockd: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

/// How long a reader of what is printed may keep this process waiting.
const PATIENCE: Duration = Duration::from_millis(500);

/// Prints on a thread of its own, and waits for that, but not for long: a reader that has stopped
/// reading, or the log's thread that such a one holds up, must keep this process neither from
/// serving nor from ending.
fn print(mut out: impl Write + Send + 'static, text: String) {
    let (done, receiver) = channel();
    let printer = std::thread::Builder::new().name("printer".into()).spawn(move || {
        // That nobody may be reading it is no reason to stop.
        let _ = write!(out, "{text}").and_then(|()| out.flush());
        let _ = done.send(());
    });
    if printer.is_ok() {
        let _ = receiver.recv_timeout(PATIENCE);
    }
}

fn serve(config: Config) -> io::Result<()> {
    // Before any thread runs and before it accepts: a signal is never lost.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    raise_descriptor_limit(config.max_connections);
    let server = Server::start(config)?;
    let mut lines = String::new();
    for address in server.listening() {
        lines.push_str(&format!("listening on {address}\n"));
    }
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        listening = %lines.trim_end().replace("listening on ", "").replace('\n', ", "),
        metrics = server.metrics_addr().map(tracing::field::display),
        "started"
    );
    print(io::stdout(), lines);
    tell_manager(NotifyState::Ready);
    let handle = server.handle();
    let closer = signals.handle();
    let watcher = std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if signal != SIGHUP {
                tracing::info!(signal, "stopping");
                tell_manager(NotifyState::Stopping);
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
    if result.is_ok() {
        tracing::info!("stopped");
    }
    result
}

/// Tells the service manager, if one wants to be told.
fn tell_manager(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

/// Descriptors for other things than connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// Lets the process have as many descriptors as it may: each connection takes one.
fn raise_descriptor_limit(connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let wanted = connections as u64 + OTHER_DESCRIPTORS;
    if let Some(allowed) = getrlimit(Resource::Nofile).current
        && allowed < wanted
    {
        tracing::warn!(
            allowed,
            wanted,
            "the descriptor limit is too low for as many connections as --max-connections allows"
        );
    }
}

fn start_logging(settings: &Settings) -> io::Result<Log> {
    let log = Log::start()?;
    let builder = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_max_level(LevelFilter::from(settings.log));
    match settings.log_format {
        LogFormat::Text => builder.with_ansi(false).with_target(false).init(),
        LogFormat::Json => builder.json().init(),
    }
    Ok(log)
}
