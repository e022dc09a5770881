//! The codec against a second one, in C, that was written from the protocol's text alone.

#[path = "common/cc.rs"]
mod cc;
#[path = "common/vectors.rs"]
mod vectors;

use lockclient::wire::{FromClient, FromServer, Key};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use vectors::{Side, data_lines, good_vectors, hex, outcome, unhex, verdict};

/// Runs the C program over `file` and gives the lines that it prints.
fn c_lines(mode: &str, file: &Path) -> Vec<String> {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        cc::program("wire_vectors", &["wire_decoder.c", "wire_vectors.c"], &["-std=c99"])
    });
    let output = Command::new(&*PROGRAM).arg(mode).arg(file).output().expect("the program runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complaint}", output.status);
    let printed = String::from_utf8(output.stdout).expect("text");
    printed.lines().map(str::to_owned).collect()
}

/// The same for lines that are in no file yet.
fn c_lines_for(mode: &str, lines: &[String]) -> Vec<String> {
    let name = format!("wire-{mode}-{}.txt", std::process::id());
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, lines.join("\n") + "\n").expect("a temporary file");
    let printed = c_lines(mode, &file);
    std::fs::remove_file(&file).expect("the file is still there");
    printed
}

/// What this codec makes of a line `sender name frame ...`.
fn rust_line(line: &str) -> String {
    let [sender, name, frame] = line.split(' ').take(3).collect::<Vec<_>>()[..] else {
        panic!("short line: {line}");
    };
    let bytes = unhex(frame);
    let outcome = match sender {
        "client" => outcome::<FromClient>(&bytes),
        "server" => outcome::<FromServer>(&bytes),
        other => panic!("no such sender: {other}"),
    };
    format!("{sender} {name} {frame} {outcome}")
}

fn assert_same_lines(c: &[String], rust: &[String]) {
    for (c, rust) in c.iter().zip(rust) {
        assert_eq!(c, rust);
    }
    assert_eq!(c.len(), rust.len());
}

fn data_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire").join(name)
}

#[test]
fn both_codecs_read_and_write_every_vector_alike() {
    let file: Vec<&str> = data_lines(include_str!("wire/vectors.txt")).collect();
    let rust: Vec<String> = file.iter().map(|line| rust_line(line)).collect();
    let c = c_lines("frames", &data_file("vectors.txt"));
    assert_same_lines(&c, &rust);
    assert_eq!(c, file);
}

#[test]
fn both_codecs_judge_every_key_alike() {
    let file: Vec<&str> = data_lines(include_str!("wire/keys.txt")).collect();
    assert_eq!(c_lines("keys", &data_file("keys.txt")), file);
}

/// The vectors are what somebody thought of. Damage finds what nobody did.
#[test]
fn both_codecs_read_damaged_streams_alike() {
    fn streams<D: Side>(lines: &mut Vec<String>) {
        let good = good_vectors::<D>();
        for seed in 0..5_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut stream = Vec::new();
            for _ in 0..random.usize(1..5) {
                stream.extend_from_slice(&good[random.usize(..good.len())].frame);
            }
            for _ in 0..random.usize(..4) {
                let at = random.usize(..stream.len());
                match random.u8(..4) {
                    0 => stream[at] = random.u8(..),
                    1 => stream.insert(at, random.choice([0, b'\n', b'\r', b'x']).unwrap()),
                    2 => stream.truncate(at + 1),
                    _ => stream[at] = b'\n',
                }
            }
            lines.push(format!("{} seed/{seed} {}", D::SENDER, hex(&stream)));
        }
    }
    let mut lines = Vec::new();
    streams::<FromClient>(&mut lines);
    streams::<FromServer>(&mut lines);
    let c = c_lines_for("frames", &lines);
    let rust: Vec<String> = lines.iter().map(|line| rust_line(line)).collect();
    assert_same_lines(&c, &rust);
    // Damage that never made an error, or always made one, would have tested half of it.
    let failed = rust.iter().filter(|line| line.contains("error=")).count();
    assert!((1_000..9_000).contains(&failed), "{failed} of {} streams failed", rust.len());
}

/// Every string of two bytes, and longer ones around the edges: two readings of UTF-8.
#[test]
fn both_codecs_judge_short_keys_alike() {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for first in 0..=u8::MAX {
        for second in 0..=u8::MAX {
            keys.push(vec![first, second]);
            if first >= 0xe0 {
                for third in [0x00, 0x20, 0x7f, 0x80, 0xbf, 0xc0, 0xff] {
                    keys.push(vec![first, second, third]);
                    keys.push(vec![first, second, 0x80, third]);
                }
            }
        }
    }
    let rust: Vec<String> =
        keys.iter().map(|key| format!("key {} {}", hex(key), verdict(&Key::new(key)))).collect();
    assert_same_lines(&c_lines_for("keys", &rust), &rust);
}
