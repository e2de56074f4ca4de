//! [`Inputs`]: what a caller sends to a command on a runner, cut into pieces that the runner takes once each.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::asked::Asked;
use crate::live::Input;
use crate::wire::Data;
use crate::wire::live::{self, EVENT_BYTES_MAX};

/// What a caller sends to standard input, on its way.
pub(super) struct Inputs {
    pub(super) asked: Asked,
    is_open: bool,
    is_terminal: bool,
    /// Those that the runner has not taken.
    pub(super) pieces: VecDeque<live::Input>,
    /// Bytes, and ends, which count as one each, that came from the caller so far.
    count: u64,
}

impl Inputs {
    pub(super) fn new(asked: Asked, is_open: bool, is_terminal: bool) -> Self {
        Self { asked, is_open, is_terminal, pieces: VecDeque::new(), count: 0 }
    }

    /// Whether the caller's next input has room: the runner has taken all that came before.
    pub(super) fn takes_more(&self) -> bool {
        self.is_open && self.pieces.is_empty()
    }

    /// Cuts what the caller sends into pieces; `None`: the caller sends no more.
    pub(super) fn take(&mut self, run: &str, input: Option<Input>) {
        let piece = |at, data, end| live::Input { run: run.to_owned(), at, data: Data(data), end };
        match input {
            Some(Input::Bytes(mut bytes)) => {
                while !bytes.is_empty() {
                    let part = bytes.split_to(bytes.len().min(EVENT_BYTES_MAX));
                    let length = part.len() as u64;
                    self.pieces.push_back(piece(self.count, part, false));
                    self.count += length;
                }
            }
            Some(Input::End) => {
                self.pieces.push_back(piece(self.count, Bytes::new(), true));
                self.count += 1;
                if !self.is_terminal {
                    self.close();
                }
            }
            None if self.is_terminal => self.close(),
            None => self.take(run, Some(Input::End)),
        }
    }

    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.asked.close();
    }
}
