//! Files in pieces: for runners with [`Feature::Exact`](crate::wire::Feature::Exact).
//!
//! What is still to come of a large file goes over HTTP where the runner has [`Feature::Transfers`](crate::wire::Feature::Transfers). A few pieces are under way at once, so that a distant runner is not waited for once a piece; no more than those are in memory.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{BoxStream, FuturesOrdered};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::cutting::Pieces;
use super::files::{ask, info, nonsense};
use super::machine::Lent;
use super::moving;
use super::open_file::OpenFile;
use crate::wire::request::{Handle, OpenRead, OpenWrite, WritePiece};
use crate::wire::{Data, Request, Response, TRANSFER_BYTES_MIN};
use crate::{
    ByteStream, Error, ErrorKind, FileBody, ReadOptions, Result, SandboxPath, WriteMode, WriteOptions,
};

/// Pieces of one file that are under way at once.
const PIECES_AHEAD: usize = 4;

/// Opens a file. Its first piece comes with the answer, so that a small file costs one round trip.
pub(super) async fn read(link: Lent, path: &SandboxPath, options: &ReadOptions) -> Result<FileBody> {
    let request = Request::OpenRead(OpenRead {
        path: path.as_str().to_owned(),
        range: options.range.as_ref().map(|range| (range.start, range.end)),
        bytes_max: options.bytes_max,
    });
    let Response::Opened(opened) = ask(&link, "read_file", &request, path).await?.response else {
        return Err(nonsense("read_file", path));
    };
    let file = Arc::new(OpenFile::new(link, opened.handle, opened.last));
    let told = opened.info.map(|told| info(told, path)).ok_or_else(|| nonsense("read_file", path))?;
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
    Ok(FileBody { info: told, range: window, stream: state.stream(first, is_last, rest) })
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

/// Writes a file. One that fits a piece costs one round trip.
pub(super) async fn write(
    link: Lent,
    path: &SandboxPath,
    mut body: ByteStream,
    options: WriteOptions,
) -> Result<()> {
    let mut pieces = Pieces::new(path);
    let (first, is_last) = pieces.next(&mut body).await?;
    let open = Request::OpenWrite(OpenWrite {
        path: path.as_str().to_owned(),
        create: options.mode == WriteMode::Create,
        perm: options.permissions,
        data: Data(first),
        last: is_last,
    });
    let handle = match ask(&link, "write_file", &open, path).await?.response {
        Response::Ok if is_last => return Ok(()),
        Response::Opened(opened) if !is_last => opened.handle,
        _ => return Err(nonsense("write_file", path)),
    };
    let file = Arc::new(OpenFile::new(link, handle, false));
    let mut under_way = FuturesOrdered::new();
    let mut is_tried = false;
    loop {
        if !is_tried && pieces.total() > TRANSFER_BYTES_MIN {
            is_tried = true;
            while under_way.next().await.transpose()?.is_some() {}
            if moving::write(&file, path, &mut pieces, &mut body).await? {
                break;
            }
        }
        let (piece, is_last) = pieces.next(&mut body).await?;
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
    taken(finished?.response, path)
}

fn taken(response: Response, path: &SandboxPath) -> Result<()> {
    if response == Response::Ok { Ok(()) } else { Err(nonsense("write_file", path)) }
}
