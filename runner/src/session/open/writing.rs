//! Files that are written in pieces. Nothing is seen of one before it is finished.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::future::{Abortable, Aborted};
use futures_util::{StreamExt, stream};
use sandbox::wire::request::OpenWrite;
use sandbox::wire::response::{Failed, Opened};
use sandbox::wire::{Moved, PIECE_BYTES, Response, Transfer};
use sandbox::{
    ByteStream, Error, ErrorKind, Result as SandboxResult, SandboxPath, Version, WriteMode, WriteOptions,
};
use tokio::sync::mpsc;

use super::{Ask, Machine, OpenFiles, Requests, begin, invalid, no_transfers};
use crate::session::files::once;
use crate::session::{Line, outcome, told};

const BITS: u32 = 0o777;

/// What the backend is fed with. A stream that ends without [`Fed::End`] fails, so that the file is not put in its place.
enum Fed {
    Piece(Bytes),
    End,
}

impl From<Bytes> for Fed {
    fn from(piece: Bytes) -> Self {
        Self::Piece(piece)
    }
}

/// Begins to write a file; one that is whole already is written at once.
pub(super) async fn open(
    files: &OpenFiles,
    machine: &Arc<Machine>,
    asked: OpenWrite,
    id: Option<&str>,
) -> Result<Option<Response>, Failed> {
    let path = machine.path(&asked.path)?;
    let mode = match (asked.create, asked.version) {
        (false, None) => WriteMode::Replace,
        (true, None) => WriteMode::Create,
        (false, Some(version)) if machine.has_versions => {
            WriteMode::Swap(Version::parse(&version).map_err(|error| invalid(&error.to_string()))?)
        }
        (false, Some(_)) => return Err(invalid("versions of files were not agreed on")),
        (true, Some(_)) => return Err(invalid("a file that is to be new has no version")),
    };
    let options = WriteOptions { mode, permissions: asked.perm.map(|bits| bits & BITS) };
    let first = asked.data.0;
    if first.len() > PIECE_BYTES {
        return Err(invalid(&format!("a piece has at most {PIECE_BYTES} bytes")));
    }
    if asked.last {
        let written = machine.sandbox.write_file(&machine.user, &path, once(first), options).await;
        let version = written.map_err(|error| Failed::of(&error))?;
        return Ok(Some(told::written(version.as_ref(), machine)));
    }
    let room = files.room()?;
    let Some(room_out) = machine.answers.room().await else { return Ok(None) };
    let requests = files.enter(room)?;
    let opened =
        Opened { handle: requests.handle, info: None, range: (0, 0), data: Default::default(), last: false };
    let task = serve(Arc::clone(machine), requests, path, options, first);
    begin(files, room_out, id, &Response::Opened(opened), task);
    Ok(None)
}

async fn serve(
    machine: Arc<Machine>,
    mut requests: Requests,
    path: SandboxPath,
    options: WriteOptions,
    first: Bytes,
) {
    let (feed, fed) = mpsc::channel(1);
    let _there_is_room = feed.try_send(Fed::Piece(first));
    {
        let mut write = pin!(machine.sandbox.write_file(&machine.user, &path, body(fed), options));
        let mut ended = None::<Result<Option<Version>, Failed>>;
        loop {
            let next = tokio::select! {
                written = &mut write, if ended.is_none() => {
                    ended = Some(written.map_err(|error| Failed::of(&error)));
                    continue;
                }
                next = requests.next() => next,
            };
            let Some((ask, slot)) = next else { break };
            let is_spoiled = requests.is_spoiled.load(Ordering::Acquire);
            let is_last = matches!(ask, Ask::Finish);
            let message = match ask {
                Ask::Fetch(transfer, abort) => {
                    let line = Line::of(&machine, "fetch_file", Some(&path));
                    let fetched = tokio::select! {
                        written = &mut write, if ended.is_none() => {
                            let early = invalid("the file was written before its end came");
                            let failed = written.map_or_else(|error| Failed::of(&error), |_| early);
                            ended = Some(Err(failed.clone()));
                            Err(failed)
                        }
                        fetched = Abortable::new(fetch(&machine, &transfer, &path, &feed), abort) => match fetched {
                            Ok(fetched) => fetched,
                            // Given up: the file is closed as well.
                            Err(Aborted) => break,
                        },
                    };
                    if fetched.as_ref().is_err_and(|failed| failed.kind != Some(ErrorKind::Unsupported)) {
                        requests.is_spoiled.store(true, Ordering::Release);
                    }
                    let response = fetched.map_or_else(Response::Error, Response::Moved);
                    line.end(outcome(&response));
                    machine.answers.say(slot.id(), &response).await;
                    continue;
                }
                Ask::Read | Ask::Send(..) => Err(invalid("the file is open for writing")),
                _ if is_spoiled => {
                    Err(Failed::new(ErrorKind::Internal, "a piece of the file was refused: write it again"))
                }
                Ask::Write(bytes) => Ok(Fed::Piece(bytes)),
                Ask::Finish => Ok(Fed::End),
            };
            let outcome = match message {
                Err(failed) => Err(failed),
                Ok(message) => {
                    if ended.is_none() {
                        tokio::select! {
                            written = &mut write => ended = Some(written.map_err(|error| Failed::of(&error))),
                            _sent = feed.send(message) => {}
                        }
                    }
                    if is_last && ended.is_none() {
                        ended = Some((&mut write).await.map_err(|error| Failed::of(&error)));
                    }
                    match &ended {
                        Some(Err(failed)) => Err(failed.clone()),
                        Some(Ok(version)) if is_last => Ok(told::written(version.as_ref(), &machine)),
                        _ => Ok(Response::Ok),
                    }
                }
            };
            let response = outcome.unwrap_or_else(Response::Error);
            machine.answers.say(slot.id(), &response).await;
            if is_last {
                break;
            }
        }
    }
    requests.refuse_rest(&machine).await;
}

async fn fetch(
    machine: &Machine,
    transfer: &Transfer,
    path: &SandboxPath,
    feed: &mpsc::Sender<Fed>,
) -> Result<Moved, Failed> {
    let name = path.file_name().unwrap_or_default();
    machine.courier.as_ref().ok_or_else(no_transfers)?.fetch(transfer, name, feed).await
}

fn body(fed: mpsc::Receiver<Fed>) -> ByteStream {
    stream::unfold(Some(fed), |fed| async {
        let mut fed = fed?;
        let next: SandboxResult<Bytes> = match fed.recv().await {
            Some(Fed::Piece(bytes)) => return Some((Ok(bytes), Some(fed))),
            Some(Fed::End) => return None,
            None => Err(Error::new(ErrorKind::Disconnected, "write_file", "the writer left before the end")),
        };
        Some((next, None))
    })
    .boxed()
}
