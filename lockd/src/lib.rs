//! A lease-based lock server.
