//! Who wants to know how a release ends, by the release's id.

use super::commands::Audience;
use crate::engine::ReleaseId;

#[derive(Debug, Default)]
pub(super) struct Audiences {
    /// By [`ReleaseId::slot`].
    table: Vec<Option<(ReleaseId, Audience)>>,
}

impl Audiences {
    pub(super) fn insert(&mut self, id: ReleaseId, audience: Audience) {
        if self.table.len() <= id.slot() {
            self.table.resize_with(id.slot() + 1, || None);
        }
        self.table[id.slot()] = Some((id, audience));
    }

    pub(super) fn remove(&mut self, id: ReleaseId) -> Option<Audience> {
        let place = self.table.get_mut(id.slot())?;
        place.take_if(|(known, _)| *known == id).map(|(_, audience)| audience)
    }

    /// All of them.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Audience> + use<> {
        std::mem::take(&mut self.table).into_iter().flatten().map(|(_, audience)| audience)
    }
}
