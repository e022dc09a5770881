//! Looking at text eight bytes at a time.

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);

/// Marks the bytes of a word that equal `byte` by their high bits. Above the lowest of them others
/// may be marked wrongly; where none is equal none is marked.
const fn marks(word: u64, byte: u8) -> u64 {
    let zero_where_equal = word ^ (ONES * byte as u64);
    zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & HIGHS
}

/// Where `byte` is for the first time.
pub(super) fn position(bytes: &[u8], byte: u8) -> Option<usize> {
    let first = |word: &[u8; 8]| {
        let marks = marks(u64::from_le_bytes(*word), byte);
        (marks != 0).then(|| marks.trailing_zeros() as usize / 8)
    };
    let (words, rest) = bytes.as_chunks();
    for (number, word) in words.iter().enumerate() {
        if let Some(at) = first(word) {
            return Some(number * 8 + at);
        }
    }
    match bytes.last_chunk() {
        // It overlaps the word before, in which there is none.
        Some(last) => first(last).map(|at| bytes.len() - 8 + at),
        None => rest.iter().position(|&other| other == byte),
    }
}

/// Whether all bytes are ASCII, and neither a space nor a newline.
pub(super) fn is_plain(bytes: &[u8]) -> bool {
    let good = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        (word & HIGHS) | marks(word, b' ') | marks(word, b'\n') == 0
    };
    let (words, rest) = bytes.as_chunks();
    let good_rest = match bytes.last_chunk() {
        Some(last) => good(last),
        None => rest.iter().all(|&byte| byte.is_ascii() && byte != b' ' && byte != b'\n'),
    };
    good_rest && words.iter().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of every length up to three words, all of one byte but for one other.
    fn texts(fill: u8, other: u8) -> impl Iterator<Item = (Vec<u8>, usize)> {
        (1..=24).flat_map(move |len| {
            (0..len).map(move |at| {
                let mut text = vec![fill; len];
                text[at] = other;
                (text, at)
            })
        })
    }

    #[test]
    fn the_first_of_equal_bytes_is_found_wherever_it_is() {
        for fill in (0..=255).filter(|fill| *fill != b'\n') {
            for (mut text, at) in texts(fill, b'\n') {
                assert_eq!(position(&text, b'\n'), Some(at), "{text:?}");
                text[at..].fill(b'\n');
                assert_eq!(position(&text, b'\n'), Some(at), "{text:?}");
                text.fill(fill);
                assert_eq!(position(&text, b'\n'), None, "{text:?}");
            }
        }
        assert_eq!(position(b"", b'\n'), None);
    }

    #[test]
    fn plain_text_has_no_space_no_newline_and_nothing_beyond_ascii() {
        for other in 0..=255 {
            let plain = other < 128 && other != b' ' && other != b'\n';
            for fill in [b'k', b'!', 0, 127, b'\t'] {
                for (text, _) in texts(fill, other) {
                    assert_eq!(is_plain(&text), plain, "{text:?}");
                }
            }
        }
        assert!(is_plain(b""));
    }
}
