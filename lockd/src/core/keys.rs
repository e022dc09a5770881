//! The bytes of long keys that are in use, kept in cells of four sizes.
//!
//! A key may have 128 bytes and mostly has a few dozen. A million of them in cells that fit cost
//! a fraction of what the largest cell would, and a freed cell is used again without the
//! allocator.

use lockclient::wire::MAX_KEY;

const CELLS: [usize; 4] = [32, 48, 80, MAX_KEY];
const NONE: u32 = u32::MAX;

/// Where a key's bytes are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) cell: u32,
    pub(crate) len: u8,
}

#[derive(Debug)]
struct Cells {
    bytes: Vec<u8>,
    /// The first free cell; each free cell begins with the number of the next.
    free: u32,
}

#[derive(Debug)]
pub(crate) struct Keys {
    classes: [Cells; CELLS.len()],
}

impl Keys {
    pub(crate) fn new() -> Keys {
        Keys { classes: CELLS.map(|_| Cells { bytes: Vec::new(), free: NONE }) }
    }

    /// Keeps a copy of `key`, which has 1 to 128 bytes.
    pub(crate) fn store(&mut self, key: &[u8]) -> Stored {
        let (cells, size) = self.class(key.len());
        let cell = if cells.free == NONE {
            let cell = cells.bytes.len() / size;
            cells.bytes.resize(cells.bytes.len() + size, 0);
            u32::try_from(cell).expect("fewer cells than locks, which are numbered by u32")
        } else {
            let cell = cells.free;
            let at = cell as usize * size;
            let next = cells.bytes[at..].first_chunk().expect("a cell has 32 bytes or more");
            cells.free = u32::from_ne_bytes(*next);
            cell
        };
        let at = cell as usize * size;
        cells.bytes[at..at + key.len()].copy_from_slice(key);
        Stored { cell, len: key.len() as u8 }
    }

    /// Gives back the cell of `stored`, which must not be used again.
    pub(crate) fn free(&mut self, stored: Stored) {
        let (cells, size) = self.class(usize::from(stored.len));
        let at = stored.cell as usize * size;
        cells.bytes[at..at + 4].copy_from_slice(&cells.free.to_ne_bytes());
        cells.free = stored.cell;
    }

    /// The key's bytes.
    pub(crate) fn get(&self, stored: Stored) -> &[u8] {
        let len = usize::from(stored.len);
        let class = class_of(len);
        let at = stored.cell as usize * CELLS[class];
        &self.classes[class].bytes[at..at + len]
    }

    fn class(&mut self, len: usize) -> (&mut Cells, usize) {
        let class = class_of(len);
        (&mut self.classes[class], CELLS[class])
    }
}

fn class_of(len: usize) -> usize {
    match len {
        0..=32 => 0,
        33..=48 => 1,
        49..=80 => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_come_back_as_they_were_and_cells_are_used_again() {
        let mut keys = Keys::new();
        let key = |len: usize, fill: u8| vec![fill; len];
        for round in 0..3u8 {
            let stored: Vec<_> =
                (1..=MAX_KEY).map(|len| (len, keys.store(&key(len, round + 1)))).collect();
            for (len, stored) in &stored {
                assert_eq!(keys.get(*stored), key(*len, round + 1));
            }
            for (_, stored) in stored {
                keys.free(stored);
            }
        }
        let cells: usize = keys.classes.iter().map(|cells| cells.bytes.len()).sum();
        assert_eq!(cells, 32 * 32 + 16 * 48 + 32 * 80 + 48 * 128);
    }
}
