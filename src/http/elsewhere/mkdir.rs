//! `POST /v1/sandbox/{u}/{a}/mkdir`

use super::{Answer, Elsewhere};
use crate::http::answer::success_with;
use crate::http::request::{JsonBody, NoParams, path_of};
use crate::http::tree::mkdir::{Beside, Body, MADE, mode_of};

pub(super) async fn mkdir(tree: Elsewhere, _: NoParams, JsonBody(body): JsonBody<Body>) -> Answer {
    let path = path_of(&tree.id, Some(&body.path))?;
    let created = tree.backend.make_dir(&path, mode_of(&body)?, body.parents).await?;
    success_with(MADE, Beside { created })
}
