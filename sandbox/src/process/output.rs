//! [`HeadTail`]: what is kept of a stream of any length.

use std::collections::VecDeque;

use bytes::Bytes;

/// The first and the last bytes of a stream, half of the bound each, and how many were dropped in between.
#[derive(Clone, Debug)]
pub struct HeadTail {
    head: Vec<u8>,
    head_bytes_max: usize,
    tail: VecDeque<u8>,
    tail_bytes_max: usize,
    dropped_bytes: u64,
}

impl HeadTail {
    /// Keeps at most `bytes_max` bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let head_bytes_max = bytes_max / 2;
        let tail_bytes_max = bytes_max - head_bytes_max;
        Self { head: Vec::new(), head_bytes_max, tail: VecDeque::new(), tail_bytes_max, dropped_bytes: 0 }
    }

    /// Takes what comes next.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = self.head_bytes_max - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let (beyond, last) = rest.split_at(rest.len().saturating_sub(self.tail_bytes_max));
        let surplus = (self.tail.len() + last.len()).saturating_sub(self.tail_bytes_max);
        self.tail.drain(..surplus.min(self.tail.len()));
        self.tail.extend(last);
        self.dropped_bytes += (beyond.len() + surplus) as u64;
    }

    /// The kept bytes, and how many were not kept.
    #[must_use]
    pub fn finish(self) -> (Bytes, u64) {
        let (front, back) = self.tail.as_slices();
        ([&self.head, front, back].concat().into(), self.dropped_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::HeadTail;

    #[test]
    fn the_ends_are_kept_and_the_rest_is_counted_however_it_comes() {
        let stream: Vec<u8> = (0..=99).collect();
        for bytes_max in [0, 1, 2, 7, 10, 98, 99, 100, 101, 1000] {
            for piece in [1, 2, 3, 7, 49, 50, 51, 100] {
                let mut kept = HeadTail::new(bytes_max);
                stream.chunks(piece).for_each(|bytes| kept.push(bytes));
                let most = bytes_max.min(100);
                let head = if bytes_max >= 100 { 100 } else { most / 2 };
                let expected = [&stream[..head], &stream[100 - (most - head)..]].concat();
                let (bytes, dropped) = kept.finish();
                assert_eq!(
                    (bytes.as_ref(), dropped),
                    (&expected[..], 100 - most as u64),
                    "{bytes_max} {piece}"
                );
            }
        }
    }
}
