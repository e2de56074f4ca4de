//! Reading, writing, editing and listing files by their paths.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use axum::body::{Body, Bytes};
use axum::extract::{Query, RawPathParams, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::{Bare, Broken, blocking, success};

/// Files up to this size, in bytes, are sent in one piece.
const WHOLE_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of one piece of a larger file.
const PIECE_BYTES: usize = 512 * 1024;

#[derive(Deserialize)]
pub(super) struct Lines {
    path: String,
    start: Option<usize>,
    end: Option<usize>,
}

/// The directory that the segments `u`, `a` and `s` of the URL name.
pub(super) fn tree(bare: &Bare, params: &RawPathParams) -> PathBuf {
    let ids: Vec<&str> = params.iter().filter(|(name, _)| *name != "path").map(|(_, value)| value).collect();
    bare.tree(&ids)
}

fn target(bare: &Bare, params: &RawPathParams) -> PathBuf {
    let path = params.iter().find(|(name, _)| *name == "path").map_or("", |(_, value)| value);
    tree(bare, params).join(path)
}

pub(super) async fn read(State(bare): State<Bare>, params: RawPathParams) -> Result<Response, Broken> {
    let path = target(&bare, &params);
    let octets = [(header::CONTENT_TYPE, "application/octet-stream")];
    // On the spot, as handlers are written: another thread would take longer than the read.
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    if size <= WHOLE_BYTES_MAX {
        let mut whole = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        io::Read::read_to_end(&mut file, &mut whole)?;
        return Ok((octets, whole).into_response());
    }
    let mut file = tokio::fs::File::from_std(file);
    file.set_max_buf_size(PIECE_BYTES);
    let pieces = tokio_util::io::ReaderStream::with_capacity(file, PIECE_BYTES);
    Ok((octets, [(header::CONTENT_LENGTH, size)], Body::from_stream(pieces)).into_response())
}

pub(super) async fn write(
    State(bare): State<Bare>,
    params: RawPathParams,
    body: Bytes,
) -> Result<Response, Broken> {
    let path = target(&bare, &params);
    blocking(move || replace(&path, &body, bare.strict)).await?;
    Ok(success("File written."))
}

pub(super) async fn content(
    State(bare): State<Bare>,
    params: RawPathParams,
    Query(lines): Query<Lines>,
) -> Result<Response, Broken> {
    let path = tree(&bare, &params).join(&lines.path);
    let text = fs::read_to_string(path)?;
    if lines.start.is_none() && lines.end.is_none() {
        return Ok(success(text));
    }
    let (start, end) = (lines.start.unwrap_or(1), lines.end.unwrap_or(usize::MAX));
    let skipped = start.saturating_sub(1);
    Ok(success(text.lines().skip(skipped).take(end - skipped).collect::<Vec<_>>()))
}

pub(super) async fn edit(
    State(bare): State<Bare>,
    params: RawPathParams,
    Query(lines): Query<Lines>,
    body: String,
) -> Result<Response, Broken> {
    let path = tree(&bare, &params).join(&lines.path);
    blocking(move || {
        let text = fs::read_to_string(&path)?;
        let (start, end) = (lines.start.unwrap_or(1), lines.end.unwrap_or(usize::MAX));
        let mut edited = String::with_capacity(text.len() + body.len());
        for (line, number) in text.split_inclusive('\n').zip(1..) {
            if number == start {
                edited.push_str(&body);
            }
            if number < start || number > end {
                edited.push_str(line);
            }
        }
        replace(&path, edited.as_bytes(), bare.strict)
    })
    .await?;
    Ok(success("File updated successfully."))
}

/// Writes a file through a temporary name, so that no reader sees half of it.
fn replace(path: &Path, bytes: &[u8], strict: bool) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let parent = path.parent().unwrap_or(path);
    let draft = parent.join(format!(".draft-{number}"));
    let mut file = match File::create_new(&draft) {
        // The first file of a user.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(parent)?;
            File::create_new(&draft)?
        }
        created => created?,
    };
    file.write_all(bytes)?;
    if strict {
        file.sync_all()?;
    }
    fs::rename(&draft, path)?;
    if strict {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Listed {
    path: String,
    size: u64,
    modified_at: u64,
}

pub(super) async fn list(State(bare): State<Bare>, params: RawPathParams) -> Result<Response, Broken> {
    let root = tree(&bare, &params);
    let files = blocking(move || {
        let mut files = Vec::new();
        for entry in walkdir::WalkDir::new(&root).sort_by_file_name() {
            let entry = entry?;
            if !entry.file_type().is_file() {
                continue;
            }
            let metadata = entry.metadata()?;
            let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let path = entry.path().strip_prefix(&root).unwrap_or(entry.path());
            files.push(Listed {
                path: path.to_string_lossy().into_owned(),
                size: metadata.len(),
                modified_at: modified.as_secs(),
            });
        }
        Ok(files)
    })
    .await?;
    Ok(success(files))
}
