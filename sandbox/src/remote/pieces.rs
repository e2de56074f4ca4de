//! Files in pieces: for runners with [`Feature::Exact`](crate::wire::Feature::Exact).
//!
//! What is still to come of a large file goes over HTTP where the runner has [`Feature::Transfers`](crate::wire::Feature::Transfers). A few pieces are under way at once, so that a distant runner is not waited for once a piece; no more than those are in memory.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{BoxStream, FuturesOrdered};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::PATIENCE;
use super::cutting::Pieces;
use super::files::{ask, failure, info, no_versions, nonsense, version};
use super::link::Call;
use super::machine::{Lent, RETURNS};
use super::moving;
use super::open_file::OpenFile;
use crate::wire::request::{Handle, OpenRead, OpenWrite, WritePiece};
use crate::wire::{Data, Request, Response, TRANSFER_BYTES_MIN};
use crate::{
    ByteStream, Error, ErrorKind, FileBody, FileInfo, ReadOptions, Result, SandboxPath, Version, WriteMode,
    WriteOptions,
};

/// Pieces of one file that are under way at once.
const PIECES_AHEAD: usize = 4;

/// Opens a file. Its first piece comes with the answer, so that a small file costs one round trip. When the connection is lost, reading
/// goes on with the next one, as long as the file is the same.
pub(super) async fn read(link: Lent, path: &SandboxPath, options: &ReadOptions) -> Result<FileBody> {
    let (link, body) = open(link, path, options).await?;
    let FileBody { info, range, stream } = body;
    let lasting =
        Lasting { link, stream, at: range.start, end: range.end, info: info.clone(), path: path.clone() };
    Ok(FileBody { info, range, stream: lasting.stream() })
}

/// A file that is read across connections.
struct Lasting {
    link: Lent,
    stream: ByteStream,
    /// The byte that comes next, and the one after the last.
    at: u64,
    end: u64,
    info: FileInfo,
    path: SandboxPath,
}

impl Lasting {
    fn stream(self) -> ByteStream {
        stream::try_unfold((self, 0), |(mut file, mut returns)| async move {
            loop {
                match file.stream.try_next().await {
                    Ok(None) => return Ok(None),
                    Ok(Some(bytes)) => {
                        file.at += bytes.len() as u64;
                        return Ok(Some((bytes, (file, 0))));
                    }
                    Err(lost) if lost.kind() == ErrorKind::Disconnected && returns < RETURNS => {
                        returns += 1;
                        file.open_again(lost).await?;
                    }
                    Err(error) => return Err(error),
                }
            }
        })
        .boxed()
    }

    async fn open_again(&mut self, lost: Error) -> Result<()> {
        let link = self.link.again(lost).await?;
        let options = ReadOptions { range: Some(self.at..self.end), bytes_max: None };
        let (link, body) = open(link, &self.path, &options).await?;
        if body.info != self.info {
            let message = "the file was changed while it was read: read it again";
            return Err(Error::new(ErrorKind::Busy, "read_file", message).at(&self.path));
        }
        (self.link, self.stream) = (link, body.stream);
        Ok(())
    }
}

/// Opens a file, and tells on which connection it is open.
async fn open(link: Lent, path: &SandboxPath, options: &ReadOptions) -> Result<(Lent, FileBody)> {
    let request = Request::OpenRead(OpenRead {
        path: path.as_str().to_owned(),
        range: options.range.as_ref().map(|range| (range.start, range.end)),
        bytes_max: options.bytes_max,
    });
    let call = Call { operation: "read_file", request: &request, patience: PATIENCE, output_bytes_max: 0 };
    let (link, answer) = link.look(call).await.map_err(|error| error.at(path))?;
    let opened = match answer.response {
        Response::Opened(opened) => opened,
        Response::Error(told) => return Err(failure("read_file", &told, path)),
        _ => return Err(nonsense("read_file", path)),
    };
    let file = Arc::new(OpenFile::new(link.clone(), opened.handle, opened.last));
    let told = opened.info.map(|told| info(&link, told, path)).ok_or_else(|| nonsense("read_file", path))?;
    let window = options.window(told.size, path)?;
    if (window.start, window.end) != opened.range {
        return Err(nonsense("read_file", path));
    }
    let left = window.end - window.start;
    let (first, is_last) = (opened.data.0, opened.last);
    let rest = match left.saturating_sub(first.len() as u64) {
        rest @ TRANSFER_BYTES_MIN.. if !is_last => moving::read(&file, rest, path).await?,
        _ => None,
    };
    let state = Reading { file, left, path: path.clone() };
    Ok((link, FileBody { info: told, range: window, stream: state.stream(first, is_last, rest) }))
}

/// Bytes, and whether they are the last.
type Parts = BoxStream<'static, Result<(Bytes, bool)>>;

/// A file that is being read.
struct Reading {
    file: Arc<OpenFile>,
    /// Bytes that are still to come.
    left: u64,
    path: SandboxPath,
}

impl Reading {
    /// All bytes, `first` of them; the others come as `rest`, or in pieces.
    fn stream(self, first: Bytes, is_last: bool, rest: Option<Parts>) -> ByteStream {
        let (file, path) = (Arc::clone(&self.file), self.path.clone());
        let first = stream::once(async move { Ok((first, is_last)) });
        let pieces = stream::repeat_with(move || {
            let (file, path) = (Arc::clone(&file), path.clone());
            async move {
                let request = Request::ReadPiece(Handle { handle: file.handle });
                match ask(&file.link, "read_file", &request, &path).await?.response {
                    Response::FileContent(content) => Ok((content.data.0, content.last)),
                    _ => Err(nonsense("read_file", &path)),
                }
            }
        });
        // The first answer may be the last; then nothing more is asked for.
        let rest = match rest {
            Some(parts) => parts,
            None if is_last => stream::empty().boxed(),
            None => pieces.buffered(PIECES_AHEAD).boxed(),
        };
        stream::try_unfold(Some((self, first.chain(rest).boxed())), |state| async move {
            let Some((mut reading, mut pieces)) = state else { return Ok(None) };
            let Some((piece, is_last)) = pieces.try_next().await? else { return Ok(None) };
            let bytes = piece.len() as u64;
            let is_whole = bytes == reading.left;
            if bytes > reading.left || is_last != is_whole || bytes == 0 && !is_last {
                let message =
                    "the runner told another number of bytes than the file has: it was changed meanwhile";
                return Err(Error::new(ErrorKind::Internal, "read_file", message).at(&reading.path));
            }
            reading.left -= bytes;
            Ok(Some((piece, (!is_last).then_some((reading, pieces)))))
        })
        .boxed()
    }
}

/// Writes a file. One that fits a piece costs one round trip. When the connection is lost before more than [`TRANSFER_BYTES_MIN`] have
/// come from the caller, it is begun again on the next one: nothing is seen of a file that is not finished.
pub(super) async fn write(
    link: Lent,
    path: &SandboxPath,
    body: ByteStream,
    options: &WriteOptions,
) -> Result<Option<Version>> {
    let mut source = Source::new(path, body);
    let mut link = link;
    for _ in 0..RETURNS {
        let lost = match write_once(&link, path, &mut source, options).await {
            Err(lost) if lost.kind() == ErrorKind::Disconnected && source.rewind() => lost,
            ended => return ended,
        };
        link = link.again(lost).await?;
    }
    write_once(&link, path, &mut source, options).await
}

/// A caller's stream in pieces. The first are kept, so that they can be sent again.
struct Source<'a> {
    pieces: Pieces<'a>,
    body: ByteStream,
    /// The pieces so far; `None` when there were too many to keep, or the caller's stream has failed.
    kept: Option<Vec<(Bytes, bool)>>,
    /// How many of them have gone on this connection.
    gone: usize,
}

impl<'a> Source<'a> {
    fn new(path: &'a SandboxPath, body: ByteStream) -> Self {
        Self { pieces: Pieces::new(path), body, kept: Some(Vec::new()), gone: 0 }
    }

    /// The next piece, and whether it is the last.
    async fn next(&mut self) -> Result<(Bytes, bool)> {
        if let Some(piece) = self.kept.as_ref().and_then(|kept| kept.get(self.gone)) {
            self.gone += 1;
            return Ok(piece.clone());
        }
        // Until the piece is there, the stream may end with a failure of its own.
        let kept = self.kept.take();
        let piece = self.pieces.next(&mut self.body).await?;
        self.kept = kept.filter(|_| self.pieces.total() <= TRANSFER_BYTES_MIN);
        if let Some(kept) = &mut self.kept {
            kept.push(piece.clone());
        }
        self.gone += 1;
        Ok(piece)
    }

    /// Begins anew; `false` where that is not possible any more.
    fn rewind(&mut self) -> bool {
        self.gone = 0;
        self.kept.is_some()
    }
}

/// Writes a file on one connection.
async fn write_once(
    link: &Lent,
    path: &SandboxPath,
    source: &mut Source<'_>,
    options: &WriteOptions,
) -> Result<Option<Version>> {
    let expected = match &options.mode {
        WriteMode::Replace | WriteMode::Create => None,
        WriteMode::Swap(_) if !link.has_versions() => return Err(no_versions(path)),
        WriteMode::Swap(expected) => Some(expected.to_string()),
    };
    let (first, is_last) = source.next().await?;
    let open = Request::OpenWrite(OpenWrite {
        path: path.as_str().to_owned(),
        create: options.mode == WriteMode::Create,
        version: expected,
        perm: options.permissions,
        data: Data(first),
        last: is_last,
    });
    let handle = match ask(link, "write_file", &open, path).await?.response {
        response @ (Response::Ok | Response::Written(_)) if is_last => return written(link, response, path),
        Response::Opened(opened) if !is_last => opened.handle,
        _ => return Err(nonsense("write_file", path)),
    };
    let file = Arc::new(OpenFile::new(link.clone(), handle, false));
    let mut under_way = FuturesOrdered::new();
    let mut is_tried = false;
    loop {
        if !is_tried && source.pieces.total() > TRANSFER_BYTES_MIN {
            is_tried = true;
            while under_way.next().await.transpose()?.is_some() {}
            if moving::write(&file, path, &mut source.pieces, &mut source.body).await? {
                break;
            }
        }
        let (piece, is_last) = source.next().await?;
        let link = file.link.clone();
        under_way.push_back(async move {
            let request = Request::WritePiece(WritePiece { handle, data: Data(piece) });
            taken(ask(&link, "write_file", &request, path).await?.response, path)
        });
        while under_way.len() >= PIECES_AHEAD || is_last && !under_way.is_empty() {
            under_way.next().await.transpose()?;
        }
        if is_last {
            break;
        }
    }
    drop(under_way);
    let finish = Request::FinishWrite(Handle { handle });
    let finished = ask(&file.link, "write_file", &finish, path).await;
    // An answer that did not come may have been lost after the file was put in its place: closing takes nothing back.
    if finished.is_ok() {
        file.is_over();
    }
    written(&file.link, finished?.response, path)
}

/// The version of a file that is in its place.
fn written(link: &Lent, response: Response, path: &SandboxPath) -> Result<Option<Version>> {
    match response {
        Response::Ok => Ok(None),
        Response::Written(told) => Ok(version(link, told.version)),
        _ => Err(nonsense("write_file", path)),
    }
}

fn taken(response: Response, path: &SandboxPath) -> Result<()> {
    if response == Response::Ok { Ok(()) } else { Err(nonsense("write_file", path)) }
}
