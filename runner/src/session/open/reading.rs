//! Files that are read in pieces.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::future::Abortable;
use futures_util::{FutureExt, StreamExt, TryStreamExt, future, stream};
use sandbox::wire::request::OpenRead;
use sandbox::wire::response::{Failed, FileContent, Opened};
use sandbox::wire::{Data, Moved, PIECE_BYTES, Response, Transfer};
use sandbox::{ByteStream, ErrorKind, FileInfo, ReadOptions, SandboxPath};

use super::{Ask, Machine, OpenFiles, Requests, begin, invalid, no_transfers};
use crate::session::{Line, outcome, told};

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
        info: Some(told::info(&body.info, machine)),
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
    let file = File { path, info: body.info, end: body.range.end };
    let task = serve(Arc::clone(machine), requests, file, pieces);
    begin(files, room_out, id, &Response::Opened(opened), task);
    Ok(None)
}

/// The file, as it was when it was opened.
#[derive(Clone)]
struct File {
    path: SandboxPath,
    info: FileInfo,
    /// The byte after the last that is asked for.
    end: u64,
}

async fn serve(machine: Arc<Machine>, mut requests: Requests, file: File, mut pieces: Pieces) {
    let mut failed = None::<Failed>;
    while let Some((ask, slot)) = requests.next().await {
        let response = match (&failed, ask) {
            (Some(failed), Ask::Read) => Response::Error(failed.clone()),
            (None, Ask::Read) => match pieces.next().await {
                Ok((data, last)) => Response::FileContent(FileContent { data: Data(data), last }),
                Err(error) => Response::Error(failed.insert(error).clone()),
            },
            (Some(failed), Ask::Send(..)) => Response::Error(failed.clone()),
            (None, Ask::Send(transfer, abort)) => {
                let line = Line::of(&machine, "send_file", Some(&file.path));
                let sending = send(&machine, &file, &mut pieces, &transfer);
                // Given up: the file is closed as well.
                let Ok(sent) = Abortable::new(sending, abort).await else { break };
                let response = sent.map_or_else(Response::Error, Response::Moved);
                line.end(outcome(&response));
                if let Response::Error(error) = &response
                    && error.kind != Some(ErrorKind::Unsupported)
                {
                    failed = Some(error.clone());
                }
                response
            }
            (_, Ask::Write(_) | Ask::Finish | Ask::Fetch(..)) => {
                Response::Error(invalid("the file is open for reading"))
            }
        };
        machine.answers.say(slot.id(), &response).await;
    }
    requests.refuse_rest(&machine).await;
}

/// Sends what is left of the file over HTTP. When the service cannot be reached so, all of it is left.
async fn send(
    machine: &Arc<Machine>,
    file: &File,
    pieces: &mut Pieces,
    transfer: &Transfer,
) -> Result<Moved, Failed> {
    let courier = machine.courier.as_ref().ok_or_else(no_transfers)?;
    let total = pieces.left;
    let came = std::mem::take(&mut pieces.came);
    let stream = std::mem::replace(&mut pieces.stream, stream::empty().boxed());
    let came = stream::iter((!came.is_empty()).then_some(Ok(came)));
    let mut whole = Some(came.chain(stream).boxed());
    let mut open = |from: u64| match whole.take() {
        Some(whole) if from == 0 => future::ready(Ok(whole)).boxed(),
        _ => again(Arc::clone(machine), file.clone(), file.end - total + from).boxed(),
    };
    let sent = courier.send(transfer, &file.info.name, total, &mut open).await;
    if let Some(whole) = whole {
        pieces.stream = whole;
    }
    sent
}

/// Opens the file once more at the byte `start`; it must be the same still.
async fn again(machine: Arc<Machine>, file: File, start: u64) -> Result<ByteStream, Failed> {
    let options = ReadOptions { range: Some(start..file.end), bytes_max: None };
    let body = machine.sandbox.read_file(&machine.user, &file.path, options).await;
    let body = body.map_err(|error| Failed::of(&error))?;
    if body.info != file.info || body.range != (start..file.end) {
        return Err(Failed::new(ErrorKind::Busy, "the file was changed while it was read: read it again"));
    }
    Ok(body.stream)
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
