//! The configuration file.

use super::{Level, LogFormat};
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};

/// What the file says; everything is optional.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct File {
    pub(super) listen: Option<Vec<String>>,
    pub(super) max_locks: Option<usize>,
    pub(super) max_waiters: Option<usize>,
    pub(super) max_waiters_per_key: Option<usize>,
    pub(super) max_waiters_per_connection: Option<usize>,
    pub(super) max_connections: Option<usize>,
    pub(super) idle_timeout: Option<u32>,
    pub(super) secret_file: Option<Vec<PathBuf>>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) first_token: Option<u64>,
    pub(super) quarantine: Option<u32>,
    pub(super) metrics_listen: Option<String>,
    pub(super) admin_socket: Option<PathBuf>,
    pub(super) log: Option<Level>,
    pub(super) log_format: Option<LogFormat>,
}

/// Reads the file.
pub(super) fn read(path: &Path) -> io::Result<File> {
    let named = |kind, what: String| {
        io::Error::new(kind, format!("configuration file {}: {what}", path.display()))
    };
    let text =
        std::fs::read_to_string(path).map_err(|error| named(error.kind(), error.to_string()))?;
    toml::from_str(&text).map_err(|error| named(io::ErrorKind::InvalidData, error.to_string()))
}
