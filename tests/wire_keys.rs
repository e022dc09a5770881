//! The key rule against `tests/wire/keys.txt`, as a client and as a server apply it.

#[path = "common/vectors.rs"]
mod vectors;

use lockclient::wire::Key;
use vectors::{data_lines, unhex, verdict};

#[test]
fn in_4_every_key_of_the_file_gets_its_verdict() {
    let mut seen = Vec::new();
    for line in data_lines(include_str!("wire/keys.txt")) {
        let [name, key, expected] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("not three columns: {line}");
        };
        let bytes = unhex(key);
        let client = Key::new(&bytes);
        assert_eq!(verdict(&client), expected, "{name}");
        let server = Key::from_wire(&bytes);
        let by_server = if expected == "cr" { "ok" } else { expected };
        assert_eq!(verdict(&server), by_server, "{name}, by a server");
        for key in [client, server].into_iter().flatten() {
            assert_eq!(key.as_bytes(), bytes, "{name}");
            assert_eq!(key.as_str().as_bytes(), bytes, "{name}");
        }
        seen.push(expected);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, ["cr", "empty", "newline", "not_utf8", "ok", "space", "too_long"]);
}
