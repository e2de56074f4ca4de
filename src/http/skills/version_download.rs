//! `GET /v1/skills/{u}/{a}/{s}/versions/{v}/download?layout`

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use policy::TreeId;
use serde::Deserialize;
use storage::ETag;

use crate::http::App;
use crate::http::answer::Answer;
use crate::http::extract::conditional::{Fresh, of_read};
use crate::http::extract::{Params, VersionRequest};
use crate::http::tree::archive::attached;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    #[serde(default)]
    layout: Layout,
}

/// Where the files of the skill stand in the archive.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Layout {
    /// In a directory of the skill's name.
    #[default]
    Wrapped,
    /// At the top.
    Flat,
}

pub(in crate::http) async fn download(
    State(app): State<App>,
    request: VersionRequest,
    headers: HeaderMap,
    Params(query): Params<Query>,
) -> Answer {
    let VersionRequest { skills, skill, name } = request;
    let (with_staged, agent) = (skills.may_publish(), skills.agent.clone());
    let (kept, _) = app.service.version(&skills.user, agent, skill.clone(), with_staged, name).await?;
    let version = kept.version;
    let is_flat = query.layout == Layout::Flat;
    // The archive follows from the version and the layout.
    let etag = ETag::from_opaque(&if is_flat { format!("{version}-flat") } else { version.to_string() });
    let tag = HeaderValue::try_from(etag.to_string()).ok();
    let mut response = match of_read(&headers, Some(&etag), version.as_str())? {
        Fresh::NotModified => StatusCode::NOT_MODIFIED.into_response(),
        Fresh::Send => {
            let id = TreeId::Skill(skills.user, skills.agent, skill.clone());
            let reads = app.service.admission().reads_of(id.user());
            let packed = app.service.pack_version(id, version, is_flat).await?;
            attached(packed, reads, "application/zip", &format!("{skill}.zip"))
        }
    };
    if let Some(tag) = tag {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}
