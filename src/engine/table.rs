//! What somebody else keeps for the engine's requests or releases, by their ids.

use super::slab::{Id, index};

/// Values under live ids. An id's place is used again only after the id is gone.
#[derive(Debug)]
pub(crate) struct Table<T>(Vec<Option<(Id, T)>>);

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table(Vec::new())
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, id: Id, value: T) {
        if self.0.len() <= index(id) {
            self.0.resize_with(index(id) + 1, || None);
        }
        self.0[index(id)] = Some((id, value));
    }

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        let (known, value) = self.0.get(index(id))?.as_ref()?;
        (*known == id).then_some(value)
    }

    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        let place = self.0.get_mut(index(id))?;
        place.take_if(|(known, _)| *known == id).map(|(_, value)| value)
    }

    /// All of them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.0.drain(..).flatten().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_id_finds_nothing() {
        let mut table = Table::default();
        let (old, new) = (1 << 32 | 3, 2 << 32 | 3);
        table.insert(old, 'a');
        assert_eq!((table.get(old), table.get(new)), (Some(&'a'), None));
        assert_eq!(table.remove(new), None);
        assert_eq!(table.remove(old), Some('a'));
        table.insert(new, 'b');
        assert_eq!(table.get(old), None);
        assert_eq!(table.remove(old), None);
        assert_eq!(table.drain().collect::<Vec<_>>(), ['b']);
    }
}
