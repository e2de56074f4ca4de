//! [`Answer`]: what a runner answers to one request, whose parts may come ahead of its end.

use crate::DIR_ENTRIES_MAX;
use crate::live::Stream;
use crate::process::HeadTail;
use crate::wire::Response;
use crate::wire::response::DirEntry;

/// An answer that makes no sense.
#[derive(Debug)]
pub(super) struct Unusable;

/// An answer, with the parts that came ahead of it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: Response,
    pub(super) stdout: HeadTail,
    pub(super) stderr: HeadTail,
    pub(super) entries: Vec<DirEntry>,
}

impl Answer {
    pub(super) fn new(output_bytes_max: usize) -> Self {
        Self {
            response: Response::Ok,
            stdout: HeadTail::new(output_bytes_max),
            stderr: HeadTail::new(output_bytes_max),
            entries: Vec::new(),
        }
    }

    /// Takes a part.
    pub(super) fn take(&mut self, part: Response) -> Result<(), Unusable> {
        match part {
            Response::ExecOutput(output) => match output.stream {
                Stream::Stdout => self.stdout.push(&output.data.0),
                Stream::Stderr => self.stderr.push(&output.data.0),
            },
            Response::DirPart(part) => {
                if self.entries.len() + part.entries.len() > DIR_ENTRIES_MAX {
                    return Err(Unusable);
                }
                self.entries.extend(part.entries);
            }
            _ => return Err(Unusable),
        }
        Ok(())
    }
}
