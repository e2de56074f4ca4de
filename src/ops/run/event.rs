//! [`Event`]: one thing that a run did; [`Cutter`] cuts output into events without cutting characters.

use exec::{Stream, unfinished_character};

/// Longest payload of one event, in bytes.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 32 * 1024;

/// One thing that a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number, from 1, without gaps.
    pub seq: u64,
    /// Its kind.
    pub kind: Kind,
    /// Of output, bytes: whole characters wherever the output is UTF-8. Otherwise JSON.
    pub payload: Vec<u8>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The command's process is there.
    Started,
    /// It wrote to standard output, or to its terminal.
    Stdout,
    /// It wrote to standard error.
    Stderr,
    /// The run has ended; nothing follows.
    Exit,
}

impl Kind {
    pub(super) fn byte(self) -> u8 {
        match self {
            Self::Started => 0,
            Self::Stdout => 1,
            Self::Stderr => 2,
            Self::Exit => 3,
        }
    }

    /// The kind that has this byte; only bytes of [`Kind::byte`] are ever written.
    pub(super) fn of_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Started,
            1 => Self::Stdout,
            2 => Self::Stderr,
            _ => Self::Exit,
        }
    }

    /// As streams spell it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Exit => "exit",
        }
    }
}

impl From<Stream> for Kind {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Out => Self::Stdout,
            Stream::Err => Self::Stderr,
        }
    }
}

/// Cuts one stream into payloads. A character that has not arrived whole is held back until it has, or until nothing
/// more comes.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    held: Vec<u8>,
}

impl Cutter {
    /// Takes a piece; the payloads that are complete with it.
    pub(crate) fn push(&mut self, piece: Vec<u8>) -> Vec<Vec<u8>> {
        let mut bytes = if self.held.is_empty() {
            piece
        } else {
            let mut bytes = std::mem::take(&mut self.held);
            bytes.extend(piece);
            bytes
        };
        self.held = bytes.split_off(bytes.len() - unfinished_character(&bytes));
        let mut payloads = Vec::new();
        while bytes.len() > PAYLOAD_BYTES_MAX {
            let full = bytes.get(..PAYLOAD_BYTES_MAX).unwrap_or_default();
            let rest = bytes.split_off(PAYLOAD_BYTES_MAX - unfinished_character(full));
            payloads.push(std::mem::replace(&mut bytes, rest));
        }
        if !bytes.is_empty() {
            payloads.push(bytes);
        }
        payloads
    }

    /// The rest, when nothing more comes.
    pub(crate) fn finish(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.held)).filter(|held| !held.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_payload_cuts_a_character_however_the_text_arrives() {
        let text = "数据é😀a".repeat(9_000);
        for size in [1, 2, 3, 5, 4_096, 65_536] {
            let mut cutter = Cutter::default();
            let mut payloads: Vec<Vec<u8>> =
                text.as_bytes().chunks(size).flat_map(|piece| cutter.push(piece.to_vec())).collect();
            payloads.extend(cutter.finish());
            assert!(payloads.iter().all(|payload| std::str::from_utf8(payload).is_ok()), "pieces of {size}");
            assert!(payloads.iter().all(|payload| payload.len() <= PAYLOAD_BYTES_MAX));
            assert!(payloads.concat() == text.as_bytes(), "pieces of {size}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_pass_unchanged() {
        let mut cutter = Cutter::default();
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let mut payloads: Vec<Vec<u8>> =
            bytes.chunks(777).flat_map(|piece| cutter.push(piece.to_vec())).collect();
        payloads.extend(cutter.finish());
        assert!(payloads.concat() == bytes);
    }
}
