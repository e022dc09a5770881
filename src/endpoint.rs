//! Endpoints as normalized text: the form in which a leader hint is compared with the
//! configuration, so that one spelling stands for each address.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Why an endpoint was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It is not `host:port`.
    #[error("an endpoint is host:port, with an IPv6 address in brackets")]
    Shape,
    /// The port is not a decimal number in 1..=65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// The host is empty, too long, or has a character that no host name has.
    #[error("the host is not a name or an address")]
    Host,
}

/// `host:port` in the one spelling that stands for it: names in lower case without a final dot,
/// addresses in their shortest form, the port without leading zeros.
///
/// # Errors
/// The text is not `host:port`.
pub(crate) fn normalize(text: &str) -> Result<String, EndpointError> {
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
pub(crate) fn literal(endpoint: &str) -> Option<SocketAddr> {
    endpoint.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_told_apart() {
        assert!(literal("127.0.0.1:1").is_some());
        assert!(literal("[::1]:1").is_some());
        assert!(literal("localhost:1").is_none());
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
