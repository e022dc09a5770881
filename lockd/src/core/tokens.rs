//! Fencing tokens: a counter that grows with every grant and fails closed.

/// The last token there is: the counter stops before it would overflow.
const END: u64 = u64::MAX - 1;

/// Issues tokens from the range that it was given.
#[derive(Debug, Clone)]
pub(crate) struct Tokens {
    next: u64,
    /// The last token that may be issued; below `next` when there is none.
    last: u64,
}

impl Tokens {
    /// Issues from `first` (at least 1) to `last`.
    pub(crate) fn new(first: u64, last: u64) -> Tokens {
        Tokens { next: first.max(1), last: last.min(END) }
    }

    /// The next token, or `None` when there is none left.
    pub(crate) fn take(&mut self) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let token = self.next;
        self.next += 1;
        Some(token)
    }

    /// Whether there is no token left.
    pub(crate) fn is_empty(&self) -> bool {
        self.next > self.last
    }

    /// Tokens left.
    pub(crate) fn left(&self) -> u64 {
        if self.is_empty() { 0 } else { self.last - self.next + 1 }
    }

    /// Lets the range go on to `last`. Never shortens it.
    pub(crate) fn extend(&mut self, last: u64) {
        self.last = self.last.max(last.min(END));
    }

    /// Issues no more, ever.
    pub(crate) fn exhaust(&mut self) {
        self.next = END + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_token_is_never_0_and_they_grow_by_one() {
        let mut tokens = Tokens::new(0, 3);
        let issued: Vec<_> = std::iter::from_fn(|| tokens.take()).collect();
        assert_eq!(issued, [1, 2, 3]);
        tokens.extend(5);
        assert_eq!(tokens.left(), 2);
        assert_eq!(tokens.take(), Some(4));
    }

    #[test]
    fn it_stops_before_it_would_overflow() {
        let mut tokens = Tokens::new(u64::MAX - 2, u64::MAX);
        assert_eq!(tokens.take(), Some(u64::MAX - 2));
        assert_eq!(tokens.take(), Some(u64::MAX - 1));
        assert_eq!(tokens.take(), None);
        tokens.extend(u64::MAX);
        assert_eq!((tokens.take(), tokens.left()), (None, 0));
    }

    #[test]
    fn once_exhausted_it_stays_so() {
        let mut tokens = Tokens::new(1, 100);
        assert_eq!(tokens.take(), Some(1));
        tokens.exhaust();
        tokens.extend(1000);
        assert_eq!((tokens.take(), tokens.left()), (None, 0));
    }
}
