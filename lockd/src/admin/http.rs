//! As much of HTTP as it takes to be scraped and asked.

use socket2::Socket;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// How long a request may take to arrive, and an answer to leave.
const PATIENCE: Duration = Duration::from_secs(2);
const MAX_HEAD: usize = 8 * 1024;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Whether only the head of the answer is wanted.
    pub(super) head_only: bool,
    /// The path, without the query.
    pub(super) path: String,
    /// The query's fields, decoded.
    pub(super) query: Vec<(String, String)>,
}

impl Request {
    /// A field of the query.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// An answer's status line, type and content.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
}

impl Response {
    pub(super) fn text(status: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }
}

/// Reads one request, and writes what `respond` makes of it.
pub(super) fn serve(socket: &Socket, respond: impl FnOnce(&Request) -> Response) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    let end = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > MAX_HEAD {
            return Ok(());
        }
        socket.set_read_timeout(Some(left))?;
        let mut buffer = [0; 1024];
        let mut reader = socket;
        match reader.read(&mut buffer)? {
            0 => return Ok(()),
            count => head.extend_from_slice(&buffer[..count]),
        }
    }
    let (response, head_only) = match parse(&head) {
        Some(request) => (respond(&request), request.head_only),
        None => (Response::text("400 Bad Request", "only GET and HEAD\n"), false),
    };
    let mut bytes = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        response.status,
        response.content_type,
        response.body.len()
    )
    .into_bytes();
    if !head_only {
        bytes.extend_from_slice(&response.body);
    }
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        socket.set_write_timeout(Some(PATIENCE))?;
        let count = socket.send_with_flags(rest, libc::MSG_NOSIGNAL)?;
        rest = &rest[count..];
    }
    socket.shutdown(std::net::Shutdown::Write)
}

fn parse(head: &[u8]) -> Option<Request> {
    let head = std::str::from_utf8(head).ok()?;
    let mut words = head.lines().next()?.split(' ');
    let head_only = match words.next()? {
        "GET" => false,
        "HEAD" => true,
        _ => return None,
    };
    let target = words.next()?;
    if !words.next()?.starts_with("HTTP/1.") || words.next().is_some() {
        return None;
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = query
        .split('&')
        .filter(|field| !field.is_empty())
        .map(|field| {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            Some((decode(name)?, decode(value)?))
        })
        .collect::<Option<_>>()?;
    Some(Request { head_only, path: path.into(), query })
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Percent-encodes everything that could mean something in a query.
pub(super) fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).into() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_its_method_path_and_query() {
        let request =
            parse(b"GET /locks?prefix=a%2Fb%EA%B0%80&limit=5 HTTP/1.1\r\nHost: x\r\n\r\n");
        let request = request.expect("a request");
        assert_eq!((request.head_only, request.path.as_str()), (false, "/locks"));
        assert_eq!(request.field("prefix"), Some("a/b가"));
        assert_eq!(request.field("limit"), Some("5"));
        assert_eq!(request.field("other"), None);
        assert!(parse(b"HEAD / HTTP/1.0\r\n\r\n").expect("a request").head_only);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for head in [
            &b"POST / HTTP/1.1\r\n\r\n"[..],
            b"GET /\r\n\r\n",
            b"GET / HTTP/2\r\n\r\n",
            b"GET / HTTP/1.1 more\r\n\r\n",
            b"GET /?a=%4 HTTP/1.1\r\n\r\n",
            b"GET /?a=%zz HTTP/1.1\r\n\r\n",
            b"GET /?a=%FF HTTP/1.1\r\n\r\n",
            b"\xFF\r\n\r\n",
            b"\r\n\r\n",
        ] {
            assert_eq!(parse(head), None, "{:?}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn encoding_and_decoding_are_inverse() {
        for text in ["", "plain", "a b&c=d%?#/", "한글\n"] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
    }
}
