//! Files that are read in pieces.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::TryStreamExt;
use sandbox::wire::request::OpenRead;
use sandbox::wire::response::{Failed, FileContent, Opened};
use sandbox::wire::{Data, PIECE_BYTES, Response};
use sandbox::{ByteStream, ErrorKind, ReadOptions};

use super::{Ask, Machine, OpenFiles, Requests, begin, invalid};
use crate::session::told;

/// Opens a file; the first piece comes with the answer, and a file without more is not kept open.
pub(super) async fn open(
    files: &OpenFiles,
    machine: &Arc<Machine>,
    asked: OpenRead,
    id: Option<&str>,
) -> Result<Option<Response>, Failed> {
    let path = machine.path(&asked.path)?;
    let room = files.room()?;
    let range = asked.range.map(|(start, end)| start..end);
    let options = ReadOptions { range, bytes_max: asked.bytes_max };
    let body = machine.sandbox.read_file(&machine.user, &path, options).await;
    let body = body.map_err(|error| Failed::of(&error))?;
    let left = body.range.end.saturating_sub(body.range.start);
    let mut pieces = Pieces { stream: body.stream, came: Bytes::new(), left };
    let (first, last) = pieces.next().await?;
    let mut opened = Opened {
        handle: 0,
        info: Some(told::info(&body.info, true)),
        range: (body.range.start, body.range.end),
        data: Data(first),
        last,
    };
    if last {
        return Ok(Some(Response::Opened(opened)));
    }
    let Some(room_out) = machine.answers.room().await else { return Ok(None) };
    let requests = files.enter(room)?;
    opened.handle = requests.handle;
    let task = serve(Arc::clone(machine), requests, pieces);
    begin(files, room_out, id, &Response::Opened(opened), task);
    Ok(None)
}

async fn serve(machine: Arc<Machine>, mut requests: Requests, mut pieces: Pieces) {
    let mut failed = None::<Failed>;
    while let Some((ask, slot)) = requests.next().await {
        let response = match (&failed, ask) {
            (Some(failed), Ask::Read) => Response::Error(failed.clone()),
            (None, Ask::Read) => match pieces.next().await {
                Ok((data, last)) => Response::FileContent(FileContent { data: Data(data), last }),
                Err(error) => Response::Error(failed.insert(error).clone()),
            },
            (_, Ask::Write(_) | Ask::Finish) => Response::Error(invalid("the file is open for reading")),
        };
        machine.answers.say(slot.id(), &response).await;
    }
    requests.refuse_rest(&machine).await;
}

/// A stream cut into pieces of [`PIECE_BYTES`], but for the last.
struct Pieces {
    stream: ByteStream,
    came: Bytes,
    left: u64,
}

impl Pieces {
    /// The next piece, and whether it is the last; after that, nothing.
    async fn next(&mut self) -> Result<(Bytes, bool), Failed> {
        let wanted = usize::try_from(self.left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let mut gathered = BytesMut::new();
        while self.came.len() + gathered.len() < wanted {
            gathered.extend_from_slice(&self.came);
            self.came = match self.stream.try_next().await.map_err(|error| Failed::of(&error))? {
                Some(bytes) => bytes,
                None => return Err(Failed::new(ErrorKind::Busy, "the file became shorter: read it again")),
            };
        }
        let piece = if gathered.is_empty() {
            self.came.split_to(wanted)
        } else {
            let missing = wanted - gathered.len();
            gathered.extend_from_slice(self.came.get(..missing).unwrap_or_default());
            self.came.advance(missing);
            gathered.freeze()
        };
        self.left -= piece.len() as u64;
        Ok((piece, self.left == 0))
    }
}
