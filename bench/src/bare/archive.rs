//! Unpacking an upload: into a directory aside, then one rename. Nothing is made durable.

use std::fs::{self, File};
use std::io;

use axum::extract::{Multipart, RawPathParams, State};
use axum::response::Response;

use super::{Bare, Broken, blocking, files, success};

pub(super) async fn upload(
    State(bare): State<Bare>,
    params: RawPathParams,
    mut form: Multipart,
) -> Result<Response, Broken> {
    let agent = files::tree(&bare, &params);
    let part = form.next_field().await.map_err(io::Error::other)?;
    let part = part.ok_or_else(|| io::Error::other("the form is empty"))?;
    let name = part.file_name().unwrap_or_default().trim_end_matches(".zip").to_owned();
    let archive = part.bytes().await.map_err(io::Error::other)?;
    let count = blocking(move || {
        let (draft, skill) = (agent.join(format!(".draft-{name}")), agent.join(&name));
        fs::create_dir_all(&draft)?;
        let mut archive = zip::ZipArchive::new(io::Cursor::new(archive))?;
        for index in 0..archive.len() {
            let mut entry = archive.by_index(index)?;
            let Some(path) = entry.enclosed_name() else { continue };
            let path = draft.join(path);
            if entry.is_dir() {
                fs::create_dir_all(&path)?;
                continue;
            }
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            io::copy(&mut entry, &mut File::create_new(&path)?)?;
        }
        // A skill that is there is moved aside and removed, as a user would do by hand.
        let old = agent.join(format!(".old-{name}"));
        if fs::rename(&skill, &old).is_ok() {
            fs::rename(&draft, &skill)?;
            fs::remove_dir_all(&old)?;
        } else {
            fs::rename(&draft, &skill)?;
        }
        Ok(archive.len())
    })
    .await?;
    Ok(success(count))
}
