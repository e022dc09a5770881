//! Endpoints as text: `host:port`, `[v6]:port`. Two texts that name the same endpoint become one.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The longest host name, in bytes.
const MAX_HOST: usize = 253;

/// Why a text is not an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// There is no `:port` at its end.
    #[error("it has no port")]
    NoPort,
    /// The port is not a decimal number from 1 to 65535.
    #[error("its port is not a number from 1 to 65535")]
    BadPort,
    /// The host is empty, too long, or has bytes that no host name has.
    #[error("its host is not a host name, an IPv4 address or an IPv6 address in brackets")]
    BadHost,
}

/// The one text of an endpoint: host names in lower case without a final dot, addresses in their
/// canonical form, the port without leading zeros.
///
/// # Errors
/// The text is not an endpoint.
pub fn normalize(text: &str) -> Result<String, EndpointError> {
    let (host, port) = text.rsplit_once(':').ok_or(EndpointError::NoPort)?;
    if port.is_empty() || port.len() > 16 || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(EndpointError::BadPort);
    }
    let port: u16 = port.parse().map_err(|_| EndpointError::BadPort)?;
    if port == 0 {
        return Err(EndpointError::BadPort);
    }
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or(EndpointError::BadHost)?;
        let address: Ipv6Addr = inner.parse().map_err(|_| EndpointError::BadHost)?;
        return Ok(SocketAddr::new(IpAddr::V6(address), port).to_string());
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if host.is_empty() || host.len() > MAX_HOST || !host.bytes().all(legal) {
        return Err(EndpointError::BadHost);
    }
    Ok(format!("{}:{port}", host.to_ascii_lowercase()))
}

/// The address that a normalized endpoint spells out, if it is not a host name.
pub(crate) fn literal(endpoint: &str) -> Option<SocketAddr> {
    endpoint.parse().ok()
}

/// Host and port of a normalized endpoint.
pub(crate) fn split(endpoint: &str) -> (&str, u16) {
    let (host, port) = endpoint.rsplit_once(':').unwrap_or((endpoint, ""));
    (host, port.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_one_endpoint_become_one() {
        for (text, normal) in [
            ("localhost:7420", "localhost:7420"),
            ("LocalHost.:7420", "localhost:7420"),
            ("a-b_c.example:0080", "a-b_c.example:80"),
            ("127.0.0.1:65535", "127.0.0.1:65535"),
            ("[::1]:1", "[::1]:1"),
            ("[2001:DB8:0:0:0:0:0:1]:7", "[2001:db8::1]:7"),
        ] {
            assert_eq!(normalize(text).as_deref(), Ok(normal), "{text}");
            assert_eq!(normalize(normal).as_deref(), Ok(normal), "{normal}");
        }
    }

    #[test]
    fn what_is_not_an_endpoint_says_why() {
        for (text, why) in [
            ("", EndpointError::NoPort),
            ("localhost", EndpointError::NoPort),
            ("localhost:", EndpointError::BadPort),
            ("localhost:0", EndpointError::BadPort),
            ("localhost:65536", EndpointError::BadPort),
            ("localhost:+1", EndpointError::BadPort),
            ("localhost:1 ", EndpointError::BadPort),
            (":1", EndpointError::BadHost),
            (".:1", EndpointError::BadHost),
            ("::1:1", EndpointError::BadHost),
            ("[::1:1", EndpointError::BadHost),
            ("[localhost]:1", EndpointError::BadHost),
            ("a b:1", EndpointError::BadHost),
            ("a\0b:1", EndpointError::BadHost),
            ("h\u{e9}:1", EndpointError::BadHost),
        ] {
            assert_eq!(normalize(text), Err(why), "{text:?}");
        }
        assert_eq!(normalize(&format!("{}:1", "a".repeat(254))), Err(EndpointError::BadHost));
        assert!(normalize(&format!("{}:1", "a".repeat(253))).is_ok());
    }

    #[test]
    fn literals_and_names_are_told_apart() {
        assert!(literal("127.0.0.1:1").is_some());
        assert!(literal("[::1]:1").is_some());
        assert!(literal("localhost:1").is_none());
        assert_eq!(split("localhost:17"), ("localhost", 17));
    }
}
