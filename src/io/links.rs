//! The connections' sockets by the connections' ids. A client has a handful, so that looking
//! through them all is the fastest way to one.

use super::dial::Dial;
use super::socket::Socket;
use crate::engine::ConnId;

/// A connection, from its dial to its close.
#[derive(Debug)]
pub(super) enum Link {
    Dialing(Dial),
    Open(Socket),
}

#[derive(Debug, Default)]
pub(super) struct Links(Vec<(ConnId, Link)>);

impl Links {
    pub(super) fn get(&self, conn: ConnId) -> Option<&Link> {
        self.0.iter().find(|(id, _)| *id == conn).map(|(_, link)| link)
    }

    pub(super) fn get_mut(&mut self, conn: ConnId) -> Option<&mut Link> {
        self.0.iter_mut().find(|(id, _)| *id == conn).map(|(_, link)| link)
    }

    /// The socket of a connection that is open.
    pub(super) fn open(&mut self, conn: ConnId) -> Option<&mut Socket> {
        match self.get_mut(conn)? {
            Link::Open(socket) => Some(socket),
            Link::Dialing(_) => None,
        }
    }

    /// Adds a connection, or gives one another link.
    pub(super) fn insert(&mut self, conn: ConnId, link: Link) {
        match self.get_mut(conn) {
            Some(place) => *place = link,
            None => self.0.push((conn, link)),
        }
    }

    pub(super) fn remove(&mut self, conn: ConnId) -> Option<Link> {
        let at = self.0.iter().position(|(id, _)| *id == conn)?;
        Some(self.0.swap_remove(at).1)
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Link> {
        self.0.drain(..).map(|(_, link)| link)
    }
}
