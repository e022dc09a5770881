//! Asking a running server what is held.

use super::http;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A held lock, as a line of the list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockLine {
    /// The lock's name.
    pub key: String,
    /// The current grant's token.
    pub token: u64,
    /// How long the current lease still runs, in milliseconds.
    pub remaining_ms: u64,
    /// How many acquires wait for it.
    pub waiters: usize,
}

/// Asks the server whose admin socket is `path` which locks are held, at most `limit` (1 or
/// more) of those whose key begins with `prefix`, and gives them to `each` once all have arrived:
/// however long it takes, the list is whole.
///
/// # Errors
/// Nobody answers on the socket, or not with such a list, or the list is cut short: then `each`
/// has got nothing. And the first error of `each`.
pub fn inspect(
    path: &Path,
    prefix: &str,
    limit: usize,
    mut each: impl FnMut(LockLine) -> io::Result<()>,
) -> io::Result<()> {
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("admin socket {}: {error}", path.display()))
    };
    let stream = UnixStream::connect(path).map_err(named)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(named)?;
    let request =
        format!("GET /locks?limit={limit}&prefix={} HTTP/1.0\r\n\r\n", http::encode(prefix));
    send(&stream, request.as_bytes()).map_err(named)?;
    let mut answer = BufReader::new(&stream);
    let mut status = String::new();
    answer.by_ref().take(8192).read_line(&mut status).map_err(named)?;
    let mut line = String::new();
    let mut length = None;
    loop {
        line.clear();
        if answer.by_ref().take(8192).read_line(&mut line).map_err(named)? == 0 {
            return Err(named(io::ErrorKind::UnexpectedEof.into()));
        }
        if line.trim_end().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
    if !status.contains(" 200 ") {
        line.clear();
        answer.take(8192).read_line(&mut line).map_err(named)?;
        return Err(named(io::Error::other(line.trim_end().to_owned())));
    }
    let list = read_list(answer, length).map_err(named)?;
    for line in list.lines() {
        let lock = serde_json::from_str(line).map_err(io::Error::from);
        each(lock.map_err(named)?)?;
    }
    Ok(())
}

/// Reads a list of as many bytes as the answer's head said.
fn read_list(answer: impl Read, length: Option<u64>) -> io::Result<String> {
    let length =
        length.ok_or_else(|| io::Error::other("the answer does not say how long it is"))?;
    let mut list = Vec::new();
    answer.take(length).read_to_end(&mut list)?;
    let arrived = list.len() as u64;
    if arrived < length {
        let what = format!("the list was cut short: {arrived} of {length} bytes arrived");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
    }
    String::from_utf8(list).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn send(mut stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        bytes = &bytes[stream.write(bytes)?..];
    }
    Ok(())
}
