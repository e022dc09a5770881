//! How connections come about: an effect of the engine's, a name, addresses, a socket.

use super::Driver;
use crate::engine::ConnId;
use crate::io::links::Link;
use crate::io::socket::{Progress, Socket};
use crate::io::sys;
use crate::reason::{Reason, ReasonKind};
use mio::Token;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

impl Driver {
    pub(super) fn dial(&mut self, conn: ConnId, endpoint: u16) {
        match self.dialer.begin(conn, endpoint, &self.shared) {
            Ok(dial) => {
                let waits = !dial.has_addresses();
                self.links.insert(conn, Link::Dialing(dial));
                if !waits {
                    self.attempt(conn);
                }
            }
            Err(error) => self.fail_dial(conn, endpoint, ReasonKind::Resolve, &error),
        }
    }

    /// A name was looked up.
    pub(super) fn resolved(&mut self, endpoint: u16, result: io::Result<Vec<SocketAddr>>) {
        for conn in self.dialer.resolved(endpoint) {
            match &result {
                Ok(addresses) => {
                    if let Some(Link::Dialing(dial)) = self.links.get_mut(conn) {
                        self.dialer.supply(dial, addresses);
                        self.attempt(conn);
                    }
                }
                Err(error) => self.fail_dial(conn, endpoint, ReasonKind::Resolve, error),
            }
        }
    }

    /// Tries a dial's next address, and the next, until one is under way.
    fn attempt(&mut self, conn: ConnId) {
        let Some(Link::Dialing(dial)) = self.links.get_mut(conn) else { return };
        while let Some(address) = dial.next() {
            let token = Token(conn.0 as usize);
            match Socket::connect(&address, self.poll.registry(), token, self.period) {
                Ok(socket) => {
                    dial.attempt = Some((address, socket));
                    return;
                }
                Err(error) => dial.error = error,
            }
        }
        let endpoint = dial.endpoint;
        let error = std::mem::replace(&mut dial.error, ErrorKind::Other.into());
        self.fail_dial(conn, endpoint, ReasonKind::Connect, &error);
    }

    /// Something has happened to a socket that is connecting.
    pub(super) fn progress(&mut self, conn: ConnId) {
        let Some(Link::Dialing(dial)) = self.links.get_mut(conn) else { return };
        let Some((address, mut socket)) = dial.attempt.take() else { return };
        match socket.progress(self.period) {
            Progress::Waiting => dial.attempt = Some((address, socket)),
            Progress::Failed(error) => {
                dial.error = error;
                socket.close(self.poll.registry());
                self.attempt(conn);
            }
            Progress::Done => {
                let endpoint = dial.endpoint;
                self.dialer.worked(endpoint, address);
                let mut nonce = [0; 32];
                if let Err(error) = sys::random(&mut nonce) {
                    socket.close(self.poll.registry());
                    self.fail_dial(conn, endpoint, ReasonKind::Connect, &error);
                    return;
                }
                self.links.insert(conn, Link::Open(socket));
                self.engine.dialed(conn, Ok(nonce), sys::now());
            }
        }
    }

    fn fail_dial(&mut self, conn: ConnId, endpoint: u16, kind: ReasonKind, error: &io::Error) {
        self.links.remove(conn);
        let reason = Reason::new(kind).at(endpoint).with_os_error(error.raw_os_error());
        self.engine.dialed(conn, Err(reason), sys::now());
    }
}
