//! The limit of 500 MiB.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::case::{Case, kind};
use crate::{ByteStream, ErrorKind, FILE_BYTES_MAX, ReadOptions, WriteOptions};

laws! {
    the_largest_file_is_written_and_read [Changes Huge] "500 MiB of zeros, streamed both ways";
    one_byte_more_is_refused_and_leaves_what_was_there [Changes Huge] "500 MiB and a byte over a file of three bytes";
}

/// Zeros that take the room of one piece.
fn zeros(bytes: u64) -> ByteStream {
    let piece = Bytes::from(vec![0; 1 << 20]);
    let whole = stream::iter(0..bytes >> 20).map({
        let piece = piece.clone();
        move |_| Ok(piece.clone())
    });
    let rest = usize::try_from(bytes % (1 << 20)).unwrap();
    whole.chain(stream::once(async move { Ok(piece.slice(..rest)) })).boxed()
}

async fn the_largest_file_is_written_and_read(case: Case) {
    let path = case.path("zeros");
    case.sandbox
        .write_file(&case.alice, &path, zeros(FILE_BYTES_MAX), WriteOptions::default())
        .await
        .unwrap();
    let mut body = case.sandbox.read_file(&case.alice, &path, ReadOptions::default()).await.unwrap();
    let mut came = 0;
    while let Some(piece) = body.stream.try_next().await.unwrap() {
        assert!(piece.iter().all(|byte| *byte == 0));
        came += piece.len() as u64;
    }
    assert_eq!((came, body.info.size), (FILE_BYTES_MAX, FILE_BYTES_MAX));
    drop(body);
    case.sandbox.remove(&case.alice, &path).await.unwrap();
}

async fn one_byte_more_is_refused_and_leaves_what_was_there(case: Case) {
    let path = case.put("file", "old").await;
    let body = zeros(FILE_BYTES_MAX + 1);
    let written = case.sandbox.write_file(&case.alice, &path, body, WriteOptions::default()).await;
    assert_eq!(kind(written), ErrorKind::TooLarge);
    assert_eq!(case.read(&path).await.unwrap(), "old");
    assert_eq!(case.names(&case.dir).await, ["file"]);
}
