//! [`Events`]: the messages in a stream of server-sent events, which comes in pieces of any size.

/// The bytes of a stream that are no whole event yet.
#[derive(Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

/// An event has more bytes than may be held.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Events {
    /// Takes the next piece of the stream, and gives the data of the events that it ends. One event has at most `limit` bytes.
    ///
    /// # Errors
    /// [`TooLong`].
    pub(super) fn take(&mut self, piece: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut events = Vec::new();
        let mut lines = piece.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = lines.next() {
            if self.line.len() + self.data.len() + part.len() > limit {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            if lines.peek().is_some() {
                let line = std::mem::take(&mut self.line);
                events.extend(self.end_line(line.strip_suffix(b"\r").unwrap_or(&line)));
            }
        }
        Ok(events)
    }

    /// Takes a whole line, and gives the data of the event that it ends.
    fn end_line(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        if line.is_empty() {
            self.has_data = false;
            let data = std::mem::take(&mut self.data);
            return (!data.is_empty()).then_some(data);
        }
        // Comments keep a connection awake; the other fields are for clients that resume.
        if let Some(data) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ": awake\n\nid: 1\nretry: 3000\ndata:\n\ndata: {\"a\":\ndata: 1}\r\n\r\nevent: message\ndata:b\n\ndata: never ended";

    #[test]
    fn events_are_found_however_the_stream_is_cut() {
        for size in 1..STREAM.len() {
            let mut events = Events::default();
            let found: Vec<_> =
                STREAM.as_bytes().chunks(size).flat_map(|piece| events.take(piece, 1000).unwrap()).collect();
            assert_eq!(found, [b"{\"a\":\n1}".to_vec(), b"b".to_vec()], "{size}");
        }
    }

    #[test]
    fn an_event_is_not_held_beyond_its_limit() {
        for long in ["data: 123456", "data: 1\ndata: 2\ndata: 3\ndata: 4\n", "123456789012"] {
            let mut events = Events::default();
            let mut taken = long.as_bytes().chunks(1).map(|piece| events.take(piece, 10));
            assert!(taken.any(|taken| taken == Err(TooLong)), "{long}");
        }
    }
}
