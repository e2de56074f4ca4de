//! The rest of a large open file over HTTP, as the methods see it.
//!
//! A transfer ends when nothing moves for [`SILENCE`], and when its caller leaves. The last part of a file that is read is given to the
//! caller, and a file that is written is put in its place, only after the digests of both ends have turned out the same.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::mpsc;

use super::cutting::Pieces;
use super::files::{failure, nonsense};
use super::link::Call;
use super::open_file::OpenFile;
use super::transfer::{Fed, Ticket};
use crate::wire::transfer::TRANSFER_SECONDS_MAX;
use crate::wire::{Moved, Request, Response, Transfer};
use crate::{ByteStream, Error, ErrorKind, Result, SandboxPath};

/// How long nothing may move: a runner whose connection is cut comes back sooner.
const SILENCE: Duration = Duration::from_secs(30);
/// How long the runner may take for what both kernels have buffered and for its answer.
const ENDING: Duration = Duration::from_secs(50);
/// The longest that a transfer may take.
const LONGEST: Duration = Duration::from_secs(TRANSFER_SECONDS_MAX);

/// The answer of the runner to a transfer.
type Answer = BoxFuture<'static, Result<Moved>>;

/// Asks the runner to carry the file, and waits until it has connected: `false` when it finds no way to do so, before any byte has
/// moved.
async fn begins(ticket: &mut Ticket, answer: &mut Answer, file: &OpenFile) -> Result<bool> {
    tokio::select! {
        answered = answer => match answered {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                file.link.has_no_way();
                Ok(false)
            }
            Err(error) => Err(error),
            Ok(_) => Err(Error::new(ErrorKind::Internal, "transfer", "the runner answered before it connected")),
        },
        begun = &mut ticket.begun => Ok(begun.is_ok()),
        () = tokio::time::sleep(SILENCE) => Err(silent("transfer")),
    }
}

fn silent(operation: &'static str) -> Error {
    let message = format!("nothing of the file has moved for {} s", SILENCE.as_secs());
    Error::new(ErrorKind::Timeout, operation, message)
}

fn damaged(operation: &'static str, path: &SandboxPath) -> Error {
    let message = "the file did not arrive as it was sent: transfer it again";
    Error::new(ErrorKind::Internal, operation, message).at(path)
}

fn ask(file: &Arc<OpenFile>, operation: &'static str, request: Request, path: &SandboxPath) -> Answer {
    let (link, path) = (Arc::clone(&file.link.link), path.clone());
    async move {
        let call = Call { operation, request: &request, patience: LONGEST, output_bytes_max: 0 };
        match link.call(call).await.map_err(|error| error.at(&path))?.response {
            Response::Moved(moved) => Ok(moved),
            Response::Error(told) => Err(failure(operation, &told, &path)),
            _ => Err(nonsense(operation, &path)),
        }
    }
    .boxed()
}

fn transfer(file: &OpenFile, ticket: &Ticket) -> Transfer {
    Transfer { handle: file.handle, id: ticket.id.clone(), token: ticket.token.clone() }
}

/// A file that comes over HTTP.
struct Coming {
    file: Arc<OpenFile>,
    path: SandboxPath,
    _ticket: Ticket,
    came: mpsc::Receiver<Bytes>,
    answer: Option<Answer>,
    moved: Option<Moved>,
    digest: blake3::Hasher,
    bytes: u64,
    left: u64,
    /// The last part that came: it is given when another follows, or when the digest is right.
    held: Option<Bytes>,
}

/// The next `bytes` of a file that is open for reading, and with each part whether it is the last; `None` when they have to come in
/// pieces.
pub(super) async fn read(
    file: &Arc<OpenFile>,
    bytes: u64,
    path: &SandboxPath,
) -> Result<Option<BoxStream<'static, Result<(Bytes, bool)>>>> {
    let Some(transfers) = file.link.transfers() else { return Ok(None) };
    let Some((mut ticket, came)) = transfers.send(file.link.user(), bytes) else { return Ok(None) };
    let mut answer = ask(file, "read_file", Request::SendFile(transfer(file, &ticket)), path);
    if !begins(&mut ticket, &mut answer, file).await.map_err(|error| error.at(path))? {
        return Ok(None);
    }
    let coming = Coming {
        file: Arc::clone(file),
        path: path.clone(),
        _ticket: ticket,
        came,
        answer: Some(answer),
        moved: None,
        digest: blake3::Hasher::new(),
        bytes,
        left: bytes,
        held: None,
    };
    let parts = stream::try_unfold(Some(coming), |coming| async move {
        let Some(mut coming) = coming else { return Ok(None) };
        let (part, is_last) = coming.next().await?;
        Ok(Some(((part, is_last), (!is_last).then_some(coming))))
    });
    Ok(Some(parts.boxed()))
}

impl Coming {
    async fn next(&mut self) -> Result<(Bytes, bool)> {
        while self.left > 0 {
            let came = tokio::select! {
                biased;
                came = self.came.recv() => came,
                moved = answered(&mut self.answer) => {
                    self.moved = Some(moved?);
                    self.answer = None;
                    continue;
                }
                () = tokio::time::sleep(SILENCE) => return Err(silent("read_file").at(&self.path)),
            };
            let Some(part) = came else {
                // The runner's own reason, if it tells one.
                if let Some(answer) = &mut self.answer {
                    tokio::time::timeout(SILENCE, answer).await.map_err(|_| silent("read_file"))??;
                }
                let message = "the runner told another number of bytes than the file has";
                return Err(Error::new(ErrorKind::Internal, "read_file", message).at(&self.path));
            };
            let left = self.left.checked_sub(part.len() as u64);
            self.left = left.ok_or_else(|| nonsense("read_file", &self.path))?;
            self.digest.update(&part);
            if let Some(before) = self.held.replace(part) {
                return Ok((before, false));
            }
        }
        if let Some(answer) = self.answer.take() {
            let moved = tokio::time::timeout(ENDING, answer).await;
            self.moved = Some(moved.map_err(|_| silent("read_file").at(&self.path))??);
        }
        let digest = self.digest.finalize().to_hex();
        match (&self.moved, self.held.take()) {
            (Some(moved), Some(last)) if moved.bytes == self.bytes && moved.digest == digest.as_str() => {
                self.file.is_over();
                Ok((last, true))
            }
            _ => Err(damaged("read_file", &self.path)),
        }
    }
}

/// The runner's answer; never, once it is there.
async fn answered(answer: &mut Option<Answer>) -> Result<Moved> {
    match answer {
        Some(answer) => answer.await,
        None => std::future::pending().await,
    }
}

/// Has the runner fetch the rest of a file that is open for writing, `parts` of `body`; `false` when it has to go in pieces, and
/// nothing was taken of it. The file is not in its place yet.
pub(super) async fn write(
    file: &Arc<OpenFile>,
    path: &SandboxPath,
    parts: &mut Pieces<'_>,
    body: &mut ByteStream,
) -> Result<bool> {
    let Some(transfers) = file.link.transfers() else { return Ok(false) };
    let Some((mut ticket, feed)) = transfers.fetch(file.link.user()) else { return Ok(false) };
    let mut answer = ask(file, "write_file", Request::FetchFile(transfer(file, &ticket)), path);
    if !begins(&mut ticket, &mut answer, file).await.map_err(|error| error.at(path))? {
        return Ok(false);
    }
    let mut sent = Moved { bytes: 0, digest: String::new() };
    let feeding = async {
        let mut digest = blake3::Hasher::new();
        while let Some(part) = parts.any(body).await? {
            digest.update(&part);
            sent.bytes += part.len() as u64;
            put(&feed, Fed::Part(part), path).await?;
        }
        put(&feed, Fed::End, path).await?;
        sent.digest = digest.finalize().to_hex().to_string();
        Ok::<_, Error>(())
    };
    tokio::select! {
        // The caller's failure comes first: it is why the runner gives up.
        biased;
        fed = feeding => fed?,
        answered = &mut answer => {
            answered?;
            return Err(damaged("write_file", path));
        }
    }
    let moved = tokio::time::timeout(ENDING, answer).await.map_err(|_| silent("write_file").at(path))??;
    if moved == sent { Ok(true) } else { Err(damaged("write_file", path)) }
}

async fn put(feed: &mpsc::Sender<Fed>, fed: Fed, path: &SandboxPath) -> Result<()> {
    let put = tokio::time::timeout(SILENCE, feed.send(fed)).await;
    // The table keeps the other end as long as the ticket is there.
    put.map_err(|_| silent("write_file").at(path))?.map_err(|_| nonsense("write_file", path))
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;

    use super::*;
    use crate::Link;
    use crate::remote::transfer::{Direction, Transfers};
    use crate::wire::{Feature, Frame, Register};
    use crate::{ReadOptions, RemoteSandbox, Sandbox, UserId, WriteOptions};

    const SIZE: usize = 5 << 20;

    /// A backend whose runner opens files, and does `carry` when it is asked to move one.
    fn backend(
        carry: impl Fn(Arc<Transfers>, Transfer) + Send + 'static,
    ) -> (RemoteSandbox, UserId, Arc<Transfers>) {
        let (user, transfers) = (UserId::parse("alice").unwrap(), Arc::<Transfers>::default());
        let register = Register { workspace: "/w".to_owned(), ..Register::default() };
        let features = [Feature::Exact, Feature::Transfers];
        let (link, mut asked) =
            Link::with_transfers(user.clone(), &register, &features, Some(Arc::clone(&transfers))).unwrap();
        let sandbox = RemoteSandbox::new();
        sandbox.attach(Arc::clone(&link));
        let of_runner = Arc::clone(&transfers);
        tokio::spawn(async move {
            while let Some(frame) = asked.recv().await {
                let frame = Frame::parse(&frame.text).unwrap();
                let id = frame.id.as_deref().unwrap_or_default();
                match Request::read(&frame).unwrap() {
                    Request::OpenRead(_) => link.receive(&format!(
                        r#"{{"id":"{id}","type":"opened","body":{{"handle":1,"range":[0,{SIZE}],"data":"eA==","info":{{"name":"f","size":{SIZE},"mode":420}}}}}}"#
                    )),
                    Request::OpenWrite(_) => {
                        link.receive(&format!(r#"{{"id":"{id}","type":"opened","body":{{"handle":2}}}}"#));
                    }
                    Request::WritePiece(_) => link.receive(&format!(r#"{{"id":"{id}","type":"ok"}}"#)),
                    Request::SendFile(transfer) | Request::FetchFile(transfer) => {
                        carry(Arc::clone(&of_runner), transfer);
                    }
                    _ => {}
                }
            }
        });
        (sandbox, user, transfers)
    }

    async fn read(sandbox: &RemoteSandbox, user: &UserId) -> Result<Bytes> {
        let path = SandboxPath::parse("/w/f").unwrap();
        sandbox.read_file(user, &path, ReadOptions::default()).await?.bytes().await
    }

    async fn write(sandbox: &RemoteSandbox, user: &UserId) -> Result<()> {
        let path = SandboxPath::parse("/w/f").unwrap();
        let parts = stream::repeat_with(|| Ok(Bytes::from(vec![0; 1 << 20]))).take(40).boxed();
        sandbox.write_file(user, &path, parts, WriteOptions::default()).await.map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn a_runner_that_does_not_connect_is_given_up() {
        let (sandbox, user, transfers) = backend(|_, _| {});
        let begun = tokio::time::Instant::now();
        assert_eq!(read(&sandbox, &user).await.unwrap_err().kind(), ErrorKind::Timeout);
        assert_eq!(write(&sandbox, &user).await.unwrap_err().kind(), ErrorKind::Timeout);
        assert!(begun.elapsed() < 3 * SILENCE, "{:?}", begun.elapsed());
        assert_eq!(transfers.under_way(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_transfer_in_which_nothing_moves_is_given_up_and_a_slow_one_is_not() {
        let (sandbox, user, transfers) = backend(|transfers, asked| {
            tokio::spawn(async move {
                if let Some(transfer) = transfers.find(&asked.id, &asked.token, Direction::Send) {
                    let slow = stream::iter(0..5).then(|_| async {
                        tokio::time::sleep(SILENCE - Duration::from_secs(1)).await;
                        Ok::<_, ()>(Bytes::from_static(b"x"))
                    });
                    let _ = transfer.take(0, slow.chain(stream::pending())).await;
                } else if let Some(transfer) = transfers.find(&asked.id, &asked.token, Direction::Fetch) {
                    let mut given = transfer.give(0).await.unwrap();
                    for _ in 0..5 {
                        tokio::time::sleep(SILENCE - Duration::from_secs(1)).await;
                        given.try_next().await.unwrap();
                    }
                    std::future::pending::<()>().await;
                }
            });
        });
        for is_read in [true, false] {
            let begun = tokio::time::Instant::now();
            let failed = match is_read {
                true => read(&sandbox, &user).await.map(drop),
                false => write(&sandbox, &user).await,
            };
            assert_eq!(failed.unwrap_err().kind(), ErrorKind::Timeout);
            let took = begun.elapsed();
            assert!(
                took > 5 * (SILENCE - Duration::from_secs(1)) && took < 8 * SILENCE,
                "{is_read} {took:?}"
            );
        }
        assert_eq!(transfers.under_way(), 0);
    }
}
