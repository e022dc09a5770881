//! A list that grows a page at a time: nothing in it ever moves, so no insertion pays for all the
//! rest, and memory is taken in small steps.

/// Elements of a page, as a power of two.
const PAGE_BITS: usize = 12;
const PAGE: usize = 1 << PAGE_BITS;

#[derive(Debug)]
pub(crate) struct Pages<T> {
    /// All full but the last.
    pages: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Pages<T> {
    fn default() -> Pages<T> {
        Pages { pages: Vec::new(), len: 0 }
    }
}

impl<T> Pages<T> {
    /// Adds an element, and gives its number.
    pub(crate) fn push(&mut self, element: T) -> u32 {
        let number = u32::try_from(self.len).expect("the limits keep every list below 2^32");
        if self.len.is_multiple_of(PAGE) {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        self.pages[self.len >> PAGE_BITS].push(element);
        self.len += 1;
        number
    }

    pub(crate) fn get(&self, number: u32) -> &T {
        &self.pages[number as usize >> PAGE_BITS][number as usize % PAGE]
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        &mut self.pages[number as usize >> PAGE_BITS][number as usize % PAGE]
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_keep_their_number_and_their_place_while_it_grows() {
        let mut pages = Pages::default();
        assert_eq!(pages.push(7usize), 0);
        let first: *const usize = pages.get(0);
        for number in 1..3 * PAGE {
            assert_eq!(pages.push(number * 2), number as u32);
        }
        assert_eq!(pages.len(), 3 * PAGE);
        assert!(std::ptr::eq(first, pages.get(0)), "it has not moved");
        for number in [1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE - 1] {
            assert_eq!(*pages.get(number as u32), number * 2);
            *pages.get_mut(number as u32) += 1;
            assert_eq!(*pages.get(number as u32), number * 2 + 1);
        }
    }
}
