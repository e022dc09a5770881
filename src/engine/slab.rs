//! Values under ids that are small, never reused and cheap to look up.

/// Index in the low half, generation in the high one.
pub(super) type Id = u64;

/// A small number that no other live value's id has.
pub(super) fn index(id: Id) -> usize {
    id as u32 as usize
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(super) fn insert(&mut self, value: T) -> Id {
        self.len += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value: None });
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        // Four thousand million reuses of one entry bring an old id back: nobody keeps one so long.
        entry.generation = entry.generation.wrapping_add(1).max(1);
        entry.value = Some(value);
        u64::from(entry.generation) << 32 | u64::from(index)
    }

    pub(super) fn get(&self, id: Id) -> Option<&T> {
        let entry = self.entries.get(index(id))?;
        if entry.generation != (id >> 32) as u32 {
            return None;
        }
        entry.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let entry = self.entries.get_mut(index(id))?;
        if entry.generation != (id >> 32) as u32 {
            return None;
        }
        entry.value.as_mut()
    }

    /// Drops a value where it lies: whoever wants something of it takes that first.
    pub(super) fn remove(&mut self, id: Id) {
        if self.get(id).is_some() {
            self.entries[index(id)].value = None;
            self.free.push(id as u32);
            self.len -= 1;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The ids of the values that `wanted` picks.
    pub(super) fn ids(&self, wanted: impl Fn(&T) -> bool) -> Vec<Id> {
        let id = |(index, entry): (usize, &Entry<T>)| {
            let value = entry.value.as_ref()?;
            wanted(value).then_some(u64::from(entry.generation) << 32 | index as u64)
        };
        self.entries.iter().enumerate().filter_map(id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_id_finds_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        slab.remove(first);
        let second = slab.insert('b');
        assert_eq!(second as u32, first as u32, "the place is used again");
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        slab.remove(first);
        assert_eq!((slab.get(second), slab.len()), (Some(&'b'), 1));
    }
}
