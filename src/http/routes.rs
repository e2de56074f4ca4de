//! All routes on one screen: a table of paths with their methods and handlers. The router is made of it, and tests compare the
//! same table with the promise, with `docs/API.md` and with what each role may do.

use std::collections::BTreeSet;

use axum::Router;

use super::methods::{Methods, any, delete, get, post, put};
use crate::http::service::{audit, meta, registry, tokens, whoami};
use crate::http::workspaces;
use crate::http::{App, compat, devbox, mcp, openapi, packages, runners, shares, skills, tree, users};

/// The paths of the two kinds of trees. `{u}`, `{a}`, `{s}` are user, agent and skill.
const SKILL: &str = "/v1/skills/{u}/{a}/{s}";
const WORKSPACE: &str = "/v1/sandbox/{u}/{a}";

/// Routes whose paths begin alike.
struct Group {
    /// Whether a service has them.
    is_there: fn(&App) -> bool,
    /// What their paths begin with. Of both kinds of trees, each has them.
    below: &'static [&'static str],
    /// Each with the rest of its path.
    routes: Vec<(&'static str, Methods)>,
}

/// Every route of the service.
fn table() -> [Group; 8] {
    let always: fn(&App) -> bool = |_| true;
    [
        Group { is_there: always, below: &[""], routes: fixed() },
        Group { is_there: always, below: &[SKILL], routes: of_skills() },
        Group { is_there: always, below: &[WORKSPACE], routes: of_workspaces() },
        Group { is_there: |app| app.service.devbox_table().is_some(), below: &[""], routes: of_devboxes() },
        Group { is_there: |app| app.mcp.is_some(), below: &[""], routes: of_mcp() },
        Group { is_there: |app| app.compat.is_some(), below: &["/compat"], routes: of_compat() },
        Group { is_there: |app| app.shares.is_some(), below: &[""], routes: of_shares() },
        Group { is_there: always, below: &[SKILL, WORKSPACE], routes: of_trees() },
    ]
}

fn fixed() -> Vec<(&'static str, Methods)> {
    vec![
        ("/", get(openapi::root)),
        ("/healthz", get(meta::healthz)),
        ("/readyz", get(meta::readyz)),
        ("/metrics", get(meta::metrics)),
        ("/openapi.json", get(openapi::json)),
        ("/docs", get(openapi::html)),
        ("/v1/info", get(meta::info)),
        ("/v1/whoami", get(whoami::whoami)),
        ("/v1/tokens", get(tokens::list).post(tokens::issue).delete(tokens::revoke_all)),
        ("/v1/tokens/{id}", delete(tokens::revoke)),
        ("/v1/audit", get(audit::list)),
        ("/v1/registry", get(registry::list)),
        ("/v1/registry/rebuild", post(registry::rebuild)),
        ("/v1/packages/{version}", get(packages::get).put(packages::put).head(packages::head)),
        ("/v1/users", get(users::list::list)),
        ("/v1/users/{u}", get(users::one::one).delete(users::remove::remove)),
        ("/v1/agents", get(users::agents::list)),
        (
            "/v1/agents/{a}/policy",
            get(users::policy::show).put(users::policy::set).delete(users::policy::unset),
        ),
        ("/v1/runs", get(users::runs::list)),
        ("/v1/usage", get(users::usage::list)),
        ("/ws/{u}", get(runners::connect::connect)),
        ("/v1/runners/{u}", get(runners::manage::list)),
        ("/v1/runners/{u}/{runner}", delete(runners::manage::revoke)),
        ("/v1/runners/{u}/{runner}/choose", post(runners::manage::choose)),
        ("/v1/runners/{u}/{runner}/cut", post(runners::manage::cut)),
        ("/v1/transfers/{transfer}", get(runners::transfer::fetch).put(runners::transfer::send)),
        ("/v1/transfers/{transfer}/received", get(runners::transfer::received)),
        ("/v1/skills/{u}/{a}/upload", post(skills::upload::upload)),
        ("/v1/skills/{u}/{a}/list", get(skills::list::list)),
        ("/v1/skills/{u}/{a}/catalog", get(skills::catalog::catalog)),
        ("/v1/sandbox", get(workspaces::list::list).delete(workspaces::remove::all)),
        ("/v1/sandbox/{u}", get(workspaces::list::list).delete(workspaces::remove::of_user)),
        ("/v1/ports/{token}/", any(tree::ports::pass::of_link)),
        ("/v1/ports/{token}/{*path}", any(tree::ports::pass::of_link)),
    ]
}

fn of_skills() -> Vec<(&'static str, Methods)> {
    vec![
        ("", delete(skills::remove::remove)),
        ("/reset", post(skills::reset::reset)),
        ("/download", get(skills::download::download)),
        ("/diff", get(skills::diff::diff)),
        ("/lint", get(skills::lint::lint)),
        ("/versions", get(skills::versions::list)),
        ("/versions/{v}", get(skills::versions::one).delete(skills::versions::remove)),
        ("/versions/{v}/pin", put(skills::versions::pin).delete(skills::versions::unpin)),
        ("/versions/{v}/download", get(skills::version_download::download)),
        ("/rollback", post(skills::versions::rollback)),
        ("/promote", post(skills::promote::promote)),
        ("/pull", post(skills::promote::pull)),
    ]
}

fn of_workspaces() -> Vec<(&'static str, Methods)> {
    vec![
        ("", get(workspaces::usage::usage).delete(workspaces::remove::one)),
        ("/prepare", post(workspaces::prepare::prepare)),
        ("/snapshots", get(workspaces::snapshots::list).post(workspaces::snapshots::take)),
        ("/snapshots/{snapshot}", get(workspaces::snapshots::one).delete(workspaces::snapshots::remove)),
        ("/snapshots/{snapshot}/restore", post(workspaces::restore::restore)),
        ("/snapshots/{snapshot}/fork", post(workspaces::restore::fork)),
    ]
}

/// The devbox dialect, where it is switched on.
fn of_devboxes() -> Vec<(&'static str, Methods)> {
    vec![
        ("/api/v1/devbox", post(devbox::life::create)),
        ("/api/v1/devbox/{name}", get(devbox::life::info).delete(devbox::life::delete)),
        ("/api/v1/devbox/{name}/pause", post(devbox::life::pause)),
        ("/api/v1/devbox/{name}/stop", post(devbox::life::stop)),
        ("/api/v1/devbox/{name}/resume", post(devbox::life::resume)),
        ("/api/v1/devbox/{name}/exec", post(devbox::exec::exec)),
        ("/api/v1/devbox/{name}/files/upload", post(devbox::files::upload)),
        ("/api/v1/devbox/{name}/files/download", get(devbox::files::download)),
    ]
}

/// The MCP server, where it is switched on.
fn of_mcp() -> Vec<(&'static str, Methods)> {
    vec![("/mcp", post(mcp::own)), ("/mcp/{u}/{a}", post(mcp::named))]
}

/// The doors for clients of other vendors' registries of skills, where they are switched on.
fn of_compat() -> Vec<(&'static str, Methods)> {
    vec![
        ("/anthropic/a/{a}/{*path}", any(compat::anthropic::serve)),
        ("/anthropic/u/{u}/a/{a}/{*path}", any(compat::anthropic::serve)),
        ("/openai/a/{a}/v1/{*path}", any(compat::openai::serve)),
        ("/openai/u/{u}/a/{a}/v1/{*path}", any(compat::openai::serve)),
    ]
}

/// Links by which installers read skills, where they are switched on.
fn of_shares() -> Vec<(&'static str, Methods)> {
    vec![
        ("/v1/shares/{u}/{a}", get(shares::manage::list).post(shares::manage::make)),
        ("/v1/shares/{u}/{a}/{share}", delete(shares::manage::revoke)),
        ("/s/{share}/", any(shares::read::by_link)),
        ("/s/{share}/{*path}", any(shares::read::by_link)),
        ("/catalog/{a}/", any(shares::read::of_agent)),
        ("/catalog/{a}/{*path}", any(shares::read::of_agent)),
    ]
}

/// What can be asked of a tree of either kind.
fn of_trees() -> Vec<(&'static str, Methods)> {
    vec![
        ("/info", get(tree::info::info)),
        ("/files", get(tree::files::files)),
        ("/content", get(tree::content::content)),
        ("/edit", put(tree::edit::edit)),
        ("/events", get(tree::events::events)),
        ("/execute", post(tree::execute::execute)),
        ("/exec", post(tree::exec::exec).get(tree::exec::list::list)),
        ("/exec/{exec_id}", get(tree::exec::one::get).delete(tree::exec::one::delete)),
        ("/exec/{exec_id}/commit", post(tree::exec::decide::commit)),
        ("/exec/{exec_id}/discard", post(tree::exec::decide::discard)),
        ("/exec/{exec_id}/stdin", post(tree::exec::stdin::stdin)),
        ("/exec/{exec_id}/signal", post(tree::exec::signal::signal)),
        ("/terminal", get(tree::terminal::terminal)),
        ("/ports", get(tree::ports::list).post(tree::ports::link)),
        ("/ports/{port}/", any(tree::ports::pass::of_tree)),
        ("/ports/{port}/{*path}", any(tree::ports::pass::of_tree)),
        ("/replace", post(tree::replace::replace)),
        ("/patch", post(tree::patch::patch)),
        ("/copy", post(tree::copy::copy)),
        ("/glob", get(tree::glob::glob)),
        ("/grep", post(tree::grep::grep)),
        ("/stat", get(tree::stat::stat)),
        ("/dir", get(tree::dir::dir)),
        ("/mkdir", post(tree::mkdir::mkdir)),
        ("/move", post(tree::rename::rename)),
        ("/file", delete(tree::remove::remove)),
        ("/archive", get(tree::archive::get).put(tree::archive::put)),
        (
            "/raw/{*path}",
            get(tree::raw::get).put(tree::raw::put).delete(tree::raw::delete).head(tree::raw::head),
        ),
    ]
}

/// The routes that this service has.
pub(super) fn router(app: &App) -> Router<App> {
    let groups = table().into_iter().filter(|group| (group.is_there)(app));
    groups.fold(Router::new(), |router, group| {
        let each = group.below.iter().flat_map(|below| group.routes.iter().map(move |route| (below, route)));
        each.fold(router, |router, (below, (rest, methods))| {
            router.route(&format!("{below}{rest}"), methods.router())
        })
    })
}

/// Every operation that a service can have, as `GET /path`; one of both kinds of trees as `GET T/path`. `ANY` is a route that takes
/// every method, because requests there are for another server, or in the words of another vendor.
#[must_use]
pub fn operations() -> BTreeSet<String> {
    let mut operations = BTreeSet::new();
    for group in table() {
        let below = match group.below {
            [below] => below,
            _ => "T",
        };
        for (rest, methods) in &group.routes {
            let path = format!("{below}{rest}").replace("{*path}", "{path}");
            operations.extend(methods.names().iter().map(|method| format!("{method} {path}")));
        }
    }
    operations
}
