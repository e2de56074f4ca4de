//! `GET /v1/users?limit&cursor`

use axum::extract::State;
use policy::UserId;
use serde::Serialize;

use crate::http::App;
use crate::http::answer::page;
use crate::http::answer::problem::{Code, Problem};
use crate::http::answer::{Answer, success_with};
use crate::http::extract::{PageQuery, Params, WorkspacesRequest};

#[derive(Serialize)]
struct Listed {
    user: UserId,
}

pub(in crate::http) async fn list(
    State(app): State<App>,
    _request: WorkspacesRequest,
    Params(query): Params<PageQuery>,
) -> Answer {
    let most = app.service.file_limits().list_entries;
    let span = page::span(query.limit, most)?;
    let after = query.cursor.as_deref().map(UserId::parse).transpose();
    let after = after.map_err(|_| Problem::invalid("the `cursor` is none that this list gave out"))?;
    let is_paged = query.limit.is_some() || after.is_some();
    let (users, more) = app.service.users(after, span).await?;
    if more && !is_paged {
        let message = format!("there are more than {most} users: send `limit`");
        return Err(Problem::new(Code::TooLarge, message).with("limit_entries", most));
    }
    let next = is_paged.then(|| users.last().filter(|_| more).map(UserId::to_string));
    let users: Vec<Listed> = users.into_iter().map(|user| Listed { user }).collect();
    success_with(users, page::Beside::new(next))
}
