//! The command line, the environment and the configuration file.

mod file;
mod inspect;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lockd::Config;
use serde::Deserialize;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tracing::level_filters::LevelFilter;

pub(crate) use inspect::Inspect;

const ABOUT: &str = "\
A lease-based lock server.

Clients acquire locks by name for a number of seconds, the lease, and release them \
with the token that they were given. A lock whose lease ends is taken back and goes \
to the next who waits, first come first served. Tokens grow with every grant, so a \
resource that remembers the highest token it has seen can refuse a former holder.

It needs no configuration: `lockd` alone listens on 127.0.0.1:7420 and holds its \
locks in memory.";

const AFTER: &str = "\
Restarts:
  Without --state-dir tokens begin at 1 at every start. With it they keep growing
  whatever ended the run before, and nothing is granted until leases of before have
  certainly ended: clients are told `not_active` until then. If the directory is lost
  or damaged, start with --first-token above every token ever granted; a copy of it
  may be used only if nothing was granted after the copy was made, and never by two
  servers.

Limits:
  From 90 % of --max-locks or --max-waiters on, acquires are answered `busy`, until
  below 75 %. Releases are always served.

Secrets:
  With --secret-file only clients that know a secret are served. To change it, start
  with the old and the new file, give clients the new secret, then drop the old file.
  SIGHUP reads the files again. A secret does not encrypt what is sent.
  From an address that fails to authenticate more than 20 times, and then more than
  once a second, further failures are answered a second late. Who knows a secret is
  let in at once all the same.

Signals:
  SIGTERM, SIGINT   stop: answer what has arrived, end within 2 seconds
  SIGHUP            read the secret files again

Settings come from the command line, else from the environment, else from the
--config file (TOML, with the options' long names as keys), else from the defaults.

Examples:
  lockd
  lockd --listen 0.0.0.0:7420 --listen '[::]:7420' --secret-file /etc/lockd/secret \\
        --state-dir /var/lib/lockd
  lockd --listen unix:/run/lockd/lockd.sock --metrics-listen 127.0.0.1:7421
  lockd inspect --admin-socket /run/lockd/admin.sock --prefix jobs/";

/// A lease-based lock server.
#[derive(Debug, Parser)]
#[command(
    name = "lockd",
    version,
    about = "A lease-based lock server",
    long_about = ABOUT,
    after_long_help = AFTER,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Task>,

    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// List the locks that a running server holds
    Inspect(Inspect),
}

/// How to serve. What is not given here may come from the configuration file.
#[derive(Debug, Args)]
struct Serve {
    /// Address to listen on, HOST:PORT or unix:PATH; may be given several times [default:
    /// 127.0.0.1:7420]
    ///
    /// `[::]` is every address of IPv6 and none of IPv4, for which 0.0.0.0 can be given beside it.
    /// Port 0 takes any free one. Each address is printed on standard output, as `listening on
    /// ADDRESS`, once connections are accepted. One server at a time can have a PATH: it keeps
    /// PATH.lock locked, a file that stays when it ends.
    #[arg(long, value_name = "ADDRESS", env = "LOCKD_LISTEN", value_delimiter = ',')]
    listen: Option<Vec<String>>,

    /// Keys that may be held [default: 1250000]
    #[arg(long, value_name = "N", env = "LOCKD_MAX_LOCKS")]
    max_locks: Option<usize>,

    /// Acquires that may wait, in all [default: 125000]
    #[arg(long, value_name = "N", env = "LOCKD_MAX_WAITERS")]
    max_waiters: Option<usize>,

    /// Acquires that may wait for one key [default: a tenth of --max-waiters]
    #[arg(long, value_name = "N", env = "LOCKD_MAX_WAITERS_PER_KEY")]
    max_waiters_per_key: Option<usize>,

    /// Acquires that may wait on one connection [default: 10000]
    ///
    /// Also bounds what is kept for a connection that does not read: this number times 146 bytes.
    #[arg(long, value_name = "N", env = "LOCKD_MAX_WAITERS_PER_CONNECTION")]
    max_waiters_per_connection: Option<usize>,

    /// Connections; one more is closed as soon as it is accepted [default: 10000]
    #[arg(long, value_name = "N", env = "LOCKD_MAX_CONNECTIONS")]
    max_connections: Option<usize>,

    /// Close a connection that sends nothing for this long while nothing waits on it; 0: never
    /// [default: 0]
    ///
    /// Keeps those who connect and say nothing from taking every place. It should be well above the
    /// ten seconds at which clients are heard from at the least: a request that is on its way when
    /// its connection is closed has an unknown outcome.
    #[arg(long, value_name = "SECONDS", env = "LOCKD_IDLE_TIMEOUT")]
    idle_timeout: Option<u32>,

    /// File with a secret that clients may prove to know; may be given several times
    ///
    /// 16 to 256 random bytes, a final line feed not counted. Make one with `head -c 32
    /// /dev/urandom > FILE`, readable for lockd's user only.
    #[arg(long, value_name = "FILE", env = "LOCKD_SECRET_FILE", value_delimiter = ',')]
    secret_file: Option<Vec<PathBuf>>,

    /// Directory that keeps tokens growing from one run to the next
    ///
    /// It is made if it is missing. One server at a time can use it.
    #[arg(long, value_name = "DIR", env = "LOCKD_STATE_DIR")]
    state_dir: Option<PathBuf>,

    /// Issue no token below this one [default: 1]
    ///
    /// For a state directory that was lost or damaged: when the server of before has ended, remove
    /// DIR/state if it is there, and start with a number above every token ever granted. Nothing is
    /// then granted for 255 seconds, the longest lease there is. Changes nothing once the state
    /// directory has come so far.
    #[arg(long, value_name = "N", env = "LOCKD_FIRST_TOKEN")]
    first_token: Option<u64>,

    /// Grant nothing for this long after the start [default: 0]
    ///
    /// Without a state directory, the longest lease in use here keeps leases of before from being
    /// granted twice.
    #[arg(long, value_name = "SECONDS", env = "LOCKD_QUARANTINE")]
    quarantine: Option<u32>,

    /// Address to serve /metrics (for Prometheus) and /healthz on, over HTTP [default: none]
    #[arg(long, value_name = "HOST:PORT", env = "LOCKD_METRICS_LISTEN")]
    metrics_listen: Option<String>,

    /// Path of a socket for `lockd inspect` [default: none]
    ///
    /// Only lockd's user can use it. It shows tokens, each of which is the authority to release.
    #[arg(long, value_name = "PATH", env = "LOCKD_ADMIN_SOCKET")]
    admin_socket: Option<PathBuf>,

    /// Least severe messages to log, on standard error [default: info]
    #[arg(long, value_name = "LEVEL", env = "LOCKD_LOG")]
    log: Option<Level>,

    /// How log messages are written [default: text]
    #[arg(long, value_name = "FORMAT", env = "LOCKD_LOG_FORMAT")]
    log_format: Option<LogFormat>,

    /// File with settings that are given neither here nor in the environment
    #[arg(long, value_name = "FILE", env = "LOCKD_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> LevelFilter {
        match level {
            Level::Off => LevelFilter::OFF,
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
            Level::Trace => LevelFilter::TRACE,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object a line.
    Json,
}

/// Everything that was settled, wherever it came from.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) log: Level,
    pub(crate) log_format: LogFormat,
}

impl Cli {
    /// Puts the sources together.
    ///
    /// # Errors
    /// The configuration file cannot be read or says something that is not understood. The message
    /// names it.
    pub(crate) fn settings(self) -> io::Result<Settings> {
        let given = self.serve;
        let file = match &given.config {
            Some(path) => file::read(path)?,
            None => file::File::default(),
        };
        let default = Config::default();
        let quarantine = given.quarantine.or(file.quarantine).unwrap_or(0);
        let idle_timeout = given.idle_timeout.or(file.idle_timeout).filter(|seconds| *seconds > 0);
        let config = Config {
            listen: given.listen.or(file.listen).unwrap_or(default.listen),
            max_locks: given.max_locks.or(file.max_locks).unwrap_or(default.max_locks),
            max_waiters: given.max_waiters.or(file.max_waiters).unwrap_or(default.max_waiters),
            max_waiters_per_key: given.max_waiters_per_key.or(file.max_waiters_per_key),
            max_waiters_per_connection: given
                .max_waiters_per_connection
                .or(file.max_waiters_per_connection)
                .unwrap_or(default.max_waiters_per_connection),
            max_connections: given
                .max_connections
                .or(file.max_connections)
                .unwrap_or(default.max_connections),
            idle_timeout: idle_timeout.map(|seconds| Duration::from_secs(seconds.into())),
            secret_files: given.secret_file.or(file.secret_file).unwrap_or_default(),
            secrets: Vec::new(),
            state_dir: given.state_dir.or(file.state_dir),
            first_token: given.first_token.or(file.first_token).unwrap_or(default.first_token),
            quarantine: Duration::from_secs(quarantine.into()),
            metrics_listen: given.metrics_listen.or(file.metrics_listen),
            admin_socket: given.admin_socket.or(file.admin_socket),
        };
        Ok(Settings {
            config,
            log: given.log.or(file.log).unwrap_or(Level::Info),
            log_format: given.log_format.or(file.log_format).unwrap_or(LogFormat::Text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn settings(arguments: &[&str]) -> io::Result<Settings> {
        Cli::try_parse_from([&["lockd"], arguments].concat()).expect("arguments").settings()
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_defaults_in_the_help_are_the_defaults() {
        let help = Cli::command().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for value in [
            lockd::DEFAULT_LISTEN.to_string(),
            lockd::DEFAULT_MAX_LOCKS.to_string(),
            lockd::DEFAULT_MAX_WAITERS.to_string(),
            lockd::DEFAULT_MAX_WAITERS_PER_CONNECTION.to_string(),
            lockd::DEFAULT_MAX_CONNECTIONS.to_string(),
        ] {
            assert!(help.contains(&format!("[default: {value}]")), "{value}");
        }
    }

    #[test]
    fn the_command_line_goes_before_the_file_and_the_file_before_the_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lockd.toml");
        std::fs::write(&path, "max-locks = 5\nmax-waiters = 6\nlisten = [\"127.0.0.1:0\"]\n")
            .unwrap();
        let path = path.to_str().unwrap();
        let config = settings(&["--config", path, "--max-locks", "7"]).unwrap().config;
        assert_eq!((config.max_locks, config.max_waiters), (7, 6));
        assert_eq!(config.listen, ["127.0.0.1:0"]);
        assert_eq!(config.max_connections, lockd::DEFAULT_MAX_CONNECTIONS);
    }

    #[test]
    fn every_option_can_be_given_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lockd.toml");
        let mut content = String::new();
        for argument in Cli::command().get_arguments() {
            let name = argument.get_long().expect("a long name");
            let value = match name {
                "config" | "help" | "version" => continue,
                "listen" | "secret-file" => "[\"a\", \"b\"]",
                "log" => "\"warn\"",
                "log-format" => "\"json\"",
                "state-dir" | "metrics-listen" | "admin-socket" => "\"x\"",
                _ => "3",
            };
            content.push_str(&format!("{name} = {value}\n"));
        }
        std::fs::write(&path, content).unwrap();
        let settings = settings(&["--config", path.to_str().unwrap()]).unwrap();
        assert_eq!(settings.config.secret_files.len(), 2);
        assert_eq!(settings.config.quarantine, Duration::from_secs(3));
        assert!(matches!(settings.log_format, LogFormat::Json));
    }

    #[test]
    fn a_misspelt_setting_in_the_file_is_an_error_that_names_both() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lockd.toml");
        std::fs::write(&path, "max-lokcs = 5\n").unwrap();
        let error = settings(&["--config", path.to_str().unwrap()]).unwrap_err().to_string();
        assert!(error.contains("max-lokcs") && error.contains("lockd.toml"), "{error}");
    }

    #[test]
    fn the_example_configuration_names_every_setting_and_its_defaults_are_the_defaults() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/dist/lockd.toml");
        let text = std::fs::read_to_string(path).unwrap();
        settings(&["--config", path]).unwrap();
        // What is commented out is a setting too, once it is not.
        let all: String = text
            .lines()
            .map(|line| line.strip_prefix("# ").filter(|rest| rest.contains(" = ")).unwrap_or(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("lockd.toml");
        std::fs::write(&whole, &all).unwrap();
        let config = settings(&["--config", whole.to_str().unwrap()]).unwrap().config;
        let default = Config::default();
        assert_eq!(config.max_locks, default.max_locks);
        assert_eq!(config.max_waiters, default.max_waiters);
        assert_eq!(config.max_waiters_per_key, Some(default.max_waiters / 10));
        assert_eq!(config.max_waiters_per_connection, default.max_waiters_per_connection);
        assert_eq!(config.max_connections, default.max_connections);
        for name in options() {
            assert!(name == "config" || all.contains(&format!("\n{name} = ")), "{name}");
        }
    }

    #[test]
    fn the_manual_names_every_option_and_its_default() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/man/lockd.8");
        let manual = std::fs::read_to_string(path).unwrap().replace('\\', "");
        for name in options() {
            assert!(manual.contains(&format!("--{name}")), "{name}");
        }
        for value in [
            lockd::DEFAULT_MAX_LOCKS,
            lockd::DEFAULT_MAX_WAITERS,
            lockd::DEFAULT_MAX_WAITERS_PER_CONNECTION,
            lockd::DEFAULT_MAX_CONNECTIONS,
        ] {
            assert!(manual.contains(&format!("Default: {value}.")), "{value}");
        }
    }

    /// The names of all options that say how to serve.
    fn options() -> Vec<String> {
        let command = Cli::command();
        let names = command.get_arguments().filter_map(|argument| argument.get_long());
        names.filter(|name| !["help", "version"].contains(name)).map(str::to_owned).collect()
    }
}
