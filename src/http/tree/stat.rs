//! `GET T/stat?path&follow&layer&version`

use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::EntryFacts;
use crate::http::App;
use crate::http::answer::{Answer, success, tagged, tagged_if};
use crate::http::extract::{Params, SeenLayer, TreeRequest};
use crate::http::problem::{Code, Problem};
use crate::ops::remote;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    pub(in crate::http) path: Option<String>,
    /// Whether a link at the end of the path is followed.
    pub(in crate::http) follow: Option<bool>,
    pub(in crate::http) layer: Option<SeenLayer>,
    pub(in crate::http) version: Option<String>,
}

#[derive(Serialize)]
pub(in crate::http) struct Facts {
    pub(in crate::http) path: String,
    #[serde(flatten)]
    pub(in crate::http) facts: EntryFacts,
}

pub(in crate::http) async fn stat(
    State(app): State<App>,
    tree: TreeRequest,
    Params(query): Params<Query>,
) -> Answer {
    let tree = tree.seeing(&app, query.layer, query.version.as_deref()).await?;
    let place = tree.dir(&app, query.path.as_deref()).await?;
    let follows = query.follow.unwrap_or(true);
    if let Some(backend) = &place.backend {
        if !follows {
            let message = "`follow=false` is for workspaces that this service holds: leave it out";
            return Err(Problem::new(Code::Unsupported, message));
        }
        let info = backend.stat(&place.path).await?;
        let response = success(Facts { path: place.shown(), facts: EntryFacts::remote(&info) })?;
        return Ok(tagged_if(response, info.version.as_ref().map(remote::tag).as_ref()));
    }
    let (seen, path) = (place.seen(), place.path.clone());
    let (stat, layer, target) = match follows {
        true => app.service.stat(seen, path).await.map(|(stat, layer)| (stat, layer, None))?,
        false => app.service.look(seen, path).await?,
    };
    let owner = app.service.owner_seen(&place.id, &stat);
    let facts = EntryFacts::new(&stat, layer).pointing(target).owned(owner);
    let facts = Facts { path: place.shown(), facts };
    Ok(tagged(success(facts)?, &stat.etag()))
}
