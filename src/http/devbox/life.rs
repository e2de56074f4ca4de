//! `POST /api/v1/devbox`, `GET` and `DELETE /api/v1/devbox/{name}`, and `POST` of its `pause`, `stop` and `resume`

use std::collections::BTreeMap;

use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::dialect::success;
use crate::http::App;
use crate::http::answer::Answer;
use crate::http::answer::time::{nanoseconds, rfc3339};
use crate::http::extract::bounded;
use crate::http::extract::{DevboxCaller, DevboxRequest, JsonBody, JsonLimit, NoParams};
use crate::ops::devbox::life::Wanted;
use crate::ops::devbox::name::DevboxName;
use crate::ops::devbox::table::{Devbox, Phase};

/// A devbox as its creator describes it. What else adapters send (`cpu`, `labels`, `pauseAt`, …) means nothing here.
#[derive(Deserialize)]
pub(in crate::http) struct Creation {
    name: String,
    image: Option<String>,
    #[serde(default, deserialize_with = "bounded::named_texts")]
    env: BTreeMap<String, String>,
}

impl JsonLimit for Creation {}

/// What is told after a change.
#[derive(Serialize)]
struct Changed<'a> {
    name: &'a str,
    namespace: &'a str,
    state: &'a str,
}

/// What is told after a removal.
#[derive(Serialize)]
struct Deleted<'a> {
    name: &'a str,
    namespace: &'a str,
    status: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Facts<'a> {
    name: &'a str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    creation_timestamp: String,
    deletion_timestamp: Option<String>,
    state: States<'a>,
    /// There is no SSH.
    ssh: Option<()>,
    gateway: Gateway<'a>,
}

/// What a devbox is to be, and what it is in two words of the dialect that mean the same here.
#[derive(Serialize)]
struct States<'a> {
    spec: &'a str,
    status: &'a str,
    phase: &'a str,
}

/// There is no gateway: its address is empty.
#[derive(Serialize)]
struct Gateway<'a> {
    url: &'a str,
    #[serde(rename = "uniqueID")]
    unique_id: &'a str,
}

pub(in crate::http) async fn create(
    State(app): State<App>,
    caller: DevboxCaller,
    _: NoParams,
    JsonBody(creation): JsonBody<Creation>,
) -> Answer {
    let name = DevboxName::parse(&creation.name)?;
    caller.about(&app, &name)?;
    let wanted = Wanted { image: creation.image, env: creation.env };
    changed(&app, &app.service.create_devbox(name, wanted).await?)
}

pub(in crate::http) async fn info(
    State(app): State<App>,
    DevboxRequest { name, devboxes }: DevboxRequest,
    _: NoParams,
) -> Answer {
    let devbox = devboxes.get(&name)?;
    success(Facts {
        name: name.as_str(),
        namespace: namespace(&app),
        image: devbox.image.as_deref(),
        creation_timestamp: rfc3339(nanoseconds(devbox.created)),
        deletion_timestamp: devbox.deleted.map(nanoseconds).map(rfc3339),
        state: States { spec: devbox.wanted, status: devbox.phase, phase: devbox.phase },
        ssh: None,
        gateway: Gateway { url: "", unique_id: name.as_str() },
    })
}

pub(in crate::http) async fn pause(State(app): State<App>, request: DevboxRequest, _: NoParams) -> Answer {
    changed(&app, &app.service.bring_devbox(request.name, Phase::Paused).await?)
}

pub(in crate::http) async fn stop(State(app): State<App>, request: DevboxRequest, _: NoParams) -> Answer {
    changed(&app, &app.service.bring_devbox(request.name, Phase::Stopped).await?)
}

pub(in crate::http) async fn resume(State(app): State<App>, request: DevboxRequest, _: NoParams) -> Answer {
    changed(&app, &app.service.bring_devbox(request.name, Phase::Running).await?)
}

pub(in crate::http) async fn delete(
    State(app): State<App>,
    DevboxRequest { name, .. }: DevboxRequest,
    _: NoParams,
) -> Answer {
    app.service.delete_devbox(name.clone()).await?;
    success(Deleted { name: name.as_str(), namespace: namespace(&app), status: "deleted" })
}

fn changed(app: &App, devbox: &Devbox) -> Answer {
    success(Changed { name: devbox.name.as_str(), namespace: namespace(app), state: devbox.phase })
}

/// What the dialect calls the space of names: the agent.
pub(super) fn namespace(app: &App) -> &str {
    app.service.devbox_table().map_or("", |devboxes| devboxes.agent.as_str())
}
