//! `GET T/stat?path&follow&layer&version`

use serde::{Deserialize, Serialize};

use super::entry_facts::EntryFacts;
use crate::http::answer::{Answer, success, tagged_if};
use crate::http::extract::{Params, SeenLayer, TreeRequest};

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

pub(in crate::http) async fn stat(tree: TreeRequest, Params(query): Params<Query>) -> Answer {
    let tree = tree.seeing(query.layer, query.version.as_deref()).await?;
    let place = tree.dir(query.path.as_deref()).await?;
    let facts = match query.follow.unwrap_or(true) {
        true => place.tree.stat(&place.path).await?,
        false => place.tree.look(&place.path).await?,
    };
    let etag = facts.etag();
    let facts = Facts { path: place.shown(), facts: facts.into() };
    Ok(tagged_if(success(facts)?, etag.as_ref()))
}
