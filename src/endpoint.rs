//! Endpoints as normalized text: the form in which a leader hint is compared with the
//! configuration, so that one spelling stands for each address.

use socket2::SockAddr;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// What an endpoint begins with that is a socket in the file system.
const UNIX: &str = "unix:";

/// The longest path of a socket, in bytes: what an address has room for, less its final NUL.
const MAX_PATH: usize = 107;

/// Why an endpoint was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It is neither `host:port` nor `unix:/path`.
    #[error("an endpoint is host:port, with an IPv6 address in brackets, or unix:/path")]
    Shape,
    /// The port is not a decimal number in 1..=65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// The host is empty, too long, or has a character that no host name has.
    #[error("the host is not a name or an address")]
    Host,
    /// The path of a socket is not absolute, is over 107 bytes long, or has a NUL in it.
    #[error("the path of a socket is absolute, of at most 107 bytes, and without NUL")]
    Path,
}

/// An endpoint in the one spelling that stands for it. Of `host:port`: names in lower case without
/// a final dot, addresses in their shortest form, the port without leading zeros. A path stays as
/// it is, byte for byte: what else leads to the same file only the system knows, when it is asked.
///
/// # Errors
/// The text is neither `host:port` nor `unix:/path`.
pub(crate) fn normalize(text: &str) -> Result<String, EndpointError> {
    // A host may be called `unix`; no port has anything but digits.
    if let Some(path) = text.strip_prefix(UNIX)
        && (path.is_empty() || !path.bytes().all(|byte| byte.is_ascii_digit()))
    {
        let good = path.starts_with('/') && path.len() <= MAX_PATH && !path.contains('\0');
        return if good { Ok(text.to_owned()) } else { Err(EndpointError::Path) };
    }
    let (host, port) = text.rsplit_once(':').ok_or(EndpointError::Shape)?;
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(EndpointError::Port);
    }
    let port: u16 = port.parse().map_err(|_| EndpointError::Port)?;
    if port == 0 {
        return Err(EndpointError::Port);
    }
    Ok(format!("{}:{port}", normalize_host(host)?))
}

fn normalize_host(host: &str) -> Result<String, EndpointError> {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().map_err(|_| EndpointError::Host)?;
        return Ok(format!("[{address}]"));
    }
    if host.contains(':') {
        return Err(EndpointError::Shape);
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Ok(address.to_string());
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    // 253 is the longest name that DNS can carry.
    if name.is_empty() || name.len() > 253 || !name.bytes().all(allowed) {
        return Err(EndpointError::Host);
    }
    Ok(name.to_ascii_lowercase())
}

/// The address that a normalized endpoint spells out, if it is not a host name.
pub(crate) fn literal(endpoint: &str) -> Option<SockAddr> {
    match endpoint.strip_prefix(UNIX) {
        // A path that was checked has room in an address.
        Some(path) if path.starts_with('/') => SockAddr::unix(path).ok(),
        _ => endpoint.parse::<SocketAddr>().ok().map(SockAddr::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_told_apart() {
        assert!(literal("127.0.0.1:1").is_some());
        assert!(literal("[::1]:1").is_some());
        assert!(literal("localhost:1").is_none());
        assert!(literal("unix:1").is_none());
    }

    #[test]
    fn con_2_a_path_is_kept_byte_for_byte() {
        let longest = format!("unix:/{}", "x".repeat(106));
        for text in ["unix:/", "unix:/run/Lockd.sock", "unix:/a//b/../c d:1/.", "unix:/ö", &longest]
        {
            assert_eq!(normalize(text).as_deref(), Ok(text));
            let address = literal(text).unwrap();
            assert_eq!(address.as_pathname(), Some(std::path::Path::new(&text[5..])));
        }
    }

    #[test]
    fn con_2_what_is_no_path_is_refused() {
        let long = format!("unix:/{}", "x".repeat(107));
        for text in ["unix:", "unix:run/lockd.sock", "unix:./x", "unix:/a\0b", "unix:\0a", &long] {
            assert_eq!(normalize(text), Err(EndpointError::Path), "{text:?}");
        }
        assert_eq!(normalize("UNIX:/run/lockd.sock"), Err(EndpointError::Port));
        assert_eq!(normalize("/run/lockd.sock"), Err(EndpointError::Shape));
    }

    #[test]
    fn con_2_a_host_may_be_called_unix() {
        assert_eq!(normalize("unix:07420").as_deref(), Ok("unix:7420"));
        assert_eq!(normalize("unix:0"), Err(EndpointError::Port));
    }

    #[test]
    fn con_2_one_spelling_stands_for_each_endpoint() {
        for (given, expected) in [
            ("127.0.0.1:7420", "127.0.0.1:7420"),
            ("Node-1.Example.:07420", "node-1.example:7420"),
            ("[0:0::1]:7420", "[::1]:7420"),
            ("[2001:DB8::0:1]:1", "[2001:db8::1]:1"),
        ] {
            assert_eq!(normalize(given).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn con_2_what_is_no_endpoint_is_refused() {
        use EndpointError::{Host, Port, Shape};
        for (given, expected) in [
            ("", Shape),
            ("host", Shape),
            ("::1:7420", Shape),
            ("host:", Port),
            ("host:0", Port),
            ("host:65536", Port),
            ("host:+1", Port),
            (":7420", Host),
            ("a b:7420", Host),
            ("[::zz]:7420", Host),
            ("[::1:7420", Shape),
        ] {
            assert_eq!(normalize(given), Err(expected), "{given:?}");
        }
    }
}
