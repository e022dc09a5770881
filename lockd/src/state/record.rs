//! The state file's content: a few lines of text that end with their own checksum.

use std::fmt;
use std::time::Duration;

const HEADER: &str = "lockd state 1";
/// Longer than any record.
pub(super) const MAX_RECORD: usize = 512;

/// What a restart must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    /// Whether the server that wrote it has stopped cleanly since.
    pub(super) stopped: bool,
    /// No token above this one was issued.
    pub(super) tokens: u64,
    /// How long the next start must not grant: what was left at a clean stop, or else the longest
    /// lease that may have been granted.
    pub(super) quarantine: Duration,
}

/// The file holds something that no server wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged(&'static str);

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let status = if self.stopped { "stopped" } else { "running" };
        // Rounded up: never a millisecond too short.
        let quarantine = self.quarantine.as_nanos().div_ceil(1_000_000);
        let tokens = self.tokens;
        let body =
            format!("{HEADER}\nstatus {status}\ntokens {tokens}\nquarantine-ms {quarantine}\n");
        let sum = checksum(body.as_bytes());
        format!("{body}sha256 {sum}\n").into_bytes()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Record, Damaged> {
        let text = std::str::from_utf8(bytes).map_err(|_| Damaged("it is not text"))?;
        if !text.starts_with("lockd state ") {
            return Err(Damaged("it does not begin with \"lockd state\""));
        }
        if !text.starts_with(&format!("{HEADER}\n")) {
            return Err(Damaged("it was written by another version of lockd"));
        }
        let sum_at = text.rfind("sha256 ").ok_or(Damaged("it has no checksum"))?;
        let (body, sum) = text.split_at(sum_at);
        if sum != format!("sha256 {}\n", checksum(body.as_bytes())) {
            return Err(Damaged("its checksum does not match"));
        }
        let mut lines = body.lines().skip(1);
        let mut field = |name: &str| {
            let line = lines.next()?;
            line.strip_prefix(name)?.strip_prefix(' ')
        };
        let mut record = || {
            let stopped = match field("status")? {
                "stopped" => true,
                "running" => false,
                _ => return None,
            };
            let tokens = field("tokens")?.parse().ok()?;
            let quarantine = Duration::from_millis(field("quarantine-ms")?.parse().ok()?);
            Some(Record { stopped, tokens, quarantine })
        };
        record().ok_or(Damaged("a field is missing or wrong"))
    }
}

fn checksum(bytes: &[u8]) -> String {
    hmac_sha256::Hash::hash(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record =
        Record { stopped: false, tokens: 1_048_576, quarantine: Duration::from_millis(3000) };

    #[test]
    fn a_record_comes_back_as_it_was() {
        for stopped in [false, true] {
            for tokens in [0, 1, u64::MAX] {
                for quarantine in [Duration::ZERO, Duration::from_millis(1), Duration::MAX / 4] {
                    let quarantine = Duration::from_millis(quarantine.as_millis() as u64);
                    let record = Record { stopped, tokens, quarantine };
                    assert_eq!(Record::decode(&record.encode()), Ok(record));
                    assert!(record.encode().len() <= MAX_RECORD);
                }
            }
        }
    }

    #[test]
    fn a_quarantine_is_never_shortened() {
        let record = Record { quarantine: Duration::from_nanos(1), ..RECORD };
        let read = Record::decode(&record.encode()).unwrap();
        assert_eq!(read.quarantine, Duration::from_millis(1));
    }

    #[test]
    fn damage_to_any_byte_is_noticed() {
        let bytes = RECORD.encode();
        for at in 0..bytes.len() {
            for change in [1, 0x20, 0x80] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                assert!(Record::decode(&damaged).is_err(), "byte {at} changed by {change:#x}");
            }
        }
    }

    #[test]
    fn a_file_cut_anywhere_or_continued_is_noticed() {
        let bytes = RECORD.encode();
        for len in 0..bytes.len() {
            assert!(Record::decode(&bytes[..len]).is_err(), "cut after {len}");
        }
        assert!(Record::decode(&[&bytes[..], b"\n"].concat()).is_err());
        assert!(Record::decode(&[&bytes[..], &bytes[..]].concat()).is_err());
        assert!(Record::decode(&vec![0; bytes.len()]).is_err());
    }
}
