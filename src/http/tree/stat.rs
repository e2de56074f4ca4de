//! `GET T/stat?path`

use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::EntryFacts;
use crate::http::App;
use crate::http::answer::{Answer, success, tagged};
use crate::http::extract::{Params, TreeRequest, dir_of};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Query {
    pub(in crate::http) path: Option<String>,
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
    let path = dir_of(&tree.id, query.path.as_deref())?;
    if let Some(backend) = tree.backend {
        let facts = EntryFacts::remote(&backend.stat(&path).await?);
        return success(Facts { path: path.to_string(), facts });
    }
    let (stat, layer) = app.service.stat(tree.id, path.clone()).await?;
    let facts = Facts { path: path.to_string(), facts: EntryFacts::new(&stat, layer) };
    Ok(tagged(success(facts)?, &stat.etag()))
}
