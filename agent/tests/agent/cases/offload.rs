//! Areas `offload.*` and `recall.*`.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use agent::Place;
use agent::catalogue::{Clock, system_clock};
use agent::offload::{
    Call, Message, OffloadOptions, OffloadStore, Recall, estimated_tokens, is_id, json_field, page,
    read_is_partial, session_directory, session_key, summary,
};
use agent::tools::Toolbox;
use sandbox::{MemSandbox, SandboxExt, SandboxPath};
use serde_json::{Value, json};

use super::{Case, fits, run, same};
use crate::support::{Bench, user};

#[tokio::test]
async fn every_recorded_offload_is_as_expected() {
    let count = run(include_str!("../../cases/offload.jsonl"), &[], check).await;
    assert_eq!(count, 52);
}

const SESSION: &str = "cli:小明";

async fn stores(clock: Clock, options: OffloadOptions) -> (Bench, OffloadStore) {
    let bench = Bench::memory().await;
    // The server's own user of the same sandbox.
    let place =
        Place::in_workspace(Arc::clone(&bench.sandbox), user("server"), "offload_store").await.unwrap();
    (bench, OffloadStore::new(place, clock, options))
}

fn content(of: &Value) -> String {
    match of {
        Value::String(text) => text.clone(),
        other => {
            let times = other["times"].as_u64().unwrap() as usize;
            format!(
                "{}{}",
                other["repeat"].as_str().unwrap().repeat(times),
                other["then"].as_str().unwrap_or_default()
            )
        }
    }
}

fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| "a long line of text\n".repeat(1000));
    &LONG
}

fn call<'a>(
    tool: &'a str,
    arguments: &'a str,
    result: &'a str,
    read_path: Option<&'a SandboxPath>,
) -> Call<'a> {
    Call { tool, arguments, result, read_path }
}

async fn check(case: Case) -> Result<(), String> {
    let (bench, store) = stores(system_clock(), OffloadOptions::default()).await;
    let keep = async |session: &str, text: &str| {
        let kept = store.maybe_offload(
            &*bench.sandbox,
            bench.session.user(),
            session,
            call("Shell", "{}", text, None),
        );
        kept.await.unwrap().unwrap().0
    };
    match case.area.as_str() {
        "offload.defaults" => {
            let options = OffloadOptions::default();
            same(
                json!({
                    "max_result_tokens": options.result_tokens_min,
                    "max_result_bytes": options.result_bytes_min,
                    "cleanup_age_days": options.age_max.as_secs() / 86_400,
                    "store_dir": "offload_store",
                }),
                case.expected,
            )
        }
        "offload.maybe" => maybe(&case).await,
        "offload.recall" => {
            let id = keep(SESSION, long()).await;
            let (session, id) = match (case.text("session"), case.text("id")) {
                ("other", _) => ("cli:other", id.as_str()),
                (_, "") => (SESSION, id.as_str()),
                (_, other) => (SESSION, other),
            };
            let found = store.recall(session, id).await.unwrap();
            match case.expected.as_str() {
                Some(_) => same(found, Some(("Shell".into(), long().into()))),
                None => same(found, None),
            }
        }
        "offload.clean_session" => {
            let id = keep(SESSION, long()).await;
            store.clean_session(SESSION).await.unwrap();
            same(store.recall(SESSION, &id).await.unwrap(), None)?;
            same(store.clean_old().await.unwrap(), 0)
        }
        "offload.clean_stale" => clean(&case).await,
        "offload.session_dir" => {
            let name = session_directory(case.text("session"));
            for word in case.expected["not_contains"].as_array().unwrap() {
                same(format!("/{name}/").contains(word.as_str().unwrap()), false)?;
            }
            let store = SandboxPath::parse("/store").unwrap();
            same(store.join(&name).unwrap().below(&store).map(str::to_owned), Some(name))
        }
        "offload.index" => {
            let (first, second) = (keep(SESSION, long()).await, keep(SESSION, long()).await);
            let file = bench.path(&format!("offload_store/{}/index.json", session_directory(SESSION)));
            let index = bench.sandbox.read(&user("server"), &file).await.unwrap();
            let index: Vec<Value> = serde_json::from_slice(&index).unwrap();
            same(json!(index.len()), case.expected["entries"].clone())?;
            same(
                index.iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect(),
                vec![first, second],
            )
        }
        "offload.stale" => stale(&case).await,
        "offload.purge" => purge(&case).await,
        "offload.read_is_partial" => {
            same(json!(read_is_partial(case.input.as_str().unwrap())), case.expected)
        }
        "offload.json_field" => fits(&json_field(case.text("json"), case.text("field")), &case.expected),
        "offload.summary" => summed(&case),
        "recall.page" => recall(&case, bench, store).await,
        "recall.session_key" => {
            fits(&session_key(case.text("channel"), case.text("chat_id")), &case.expected)
        }
        other => Err(format!("no test for area {other}")),
    }
}

async fn maybe(case: &Case) -> Result<(), String> {
    let tokens = case.input.get("max_tokens").and_then(Value::as_u64);
    let mut options = OffloadOptions::default();
    options.result_tokens_min = tokens.map_or(options.result_tokens_min, |tokens| tokens as usize);
    let (bench, store) = stores(system_clock(), options).await;
    let text = content(&case.input["content"]);
    let kept =
        store.maybe_offload(&*bench.sandbox, bench.session.user(), SESSION, call("Read", "{}", &text, None));
    match (kept.await.unwrap(), case.expected.as_bool()) {
        (None, Some(false)) => Ok(()),
        (Some((id, text)), None) => {
            same((is_id(&id), text.contains("📂"), text.contains(&id)), (true, true, true))?;
            same(estimated_tokens(&text) > 0, true)
        }
        (kept, _) => Err(format!("{kept:?}")),
    }
}

async fn clean(case: &Case) -> Result<(), String> {
    let day = Duration::from_secs(86_400);
    let now = std::time::SystemTime::now();
    let (days, threshold) = (case.number("age_days") as u32, case.number("threshold_days") as u32);
    let options = OffloadOptions { age_max: day * threshold.max(1), ..OffloadOptions::default() };
    let place =
        Place::in_workspace(Arc::new(MemSandbox::new()), user("server"), "offload_store").await.unwrap();
    let bench = Bench::memory().await;
    let store = OffloadStore::new(place.clone(), Clock::new(move || now), options.clone());
    if !case.text("store_dir").is_empty() {
        return same(store.clean_old().await.unwrap(), 0);
    }
    let kept = store.maybe_offload(
        &*bench.sandbox,
        bench.session.user(),
        SESSION,
        call("Shell", "{}", long(), None),
    );
    kept.await.unwrap().unwrap();
    let earlier = OffloadStore::new(place.clone(), Clock::new(move || now + day / 2), options.clone());
    same(earlier.clean_old().await.unwrap(), 0)?;
    let later = OffloadStore::new(place, Clock::new(move || now + day * days), options);
    same(later.clean_old().await.unwrap(), 1)
}

async fn stale(case: &Case) -> Result<(), String> {
    let (bench, store) = stores(system_clock(), OffloadOptions::default()).await;
    let relative = case.text("path").strip_prefix("/workspace/").unwrap_or("main.go");
    bench.put(relative, "before").await;
    let path = bench.path(relative);
    let tool = if case.text("tool").is_empty() { "Read" } else { case.text("tool") };
    let kept = store.maybe_offload(
        &*bench.sandbox,
        bench.session.user(),
        SESSION,
        call(tool, "{}", long(), Some(&path)),
    );
    let (id, _) = kept.await.unwrap().unwrap();
    match case.text("change") {
        "none" => {}
        "deleted" => bench.sandbox.remove(bench.session.user(), &path).await.unwrap(),
        _ => bench.put(relative, "after").await,
    }
    let check =
        async || store.invalidate_stale(&*bench.sandbox, bench.session.user(), SESSION).await.unwrap();
    let mut found = check().await;
    if case.flag("second_call") {
        same(&found, &vec![id.clone()])?;
        found = check().await;
    }
    let expected = case.expected.as_array().unwrap().iter().map(|_| id.clone()).collect::<Vec<_>>();
    same(found, expected)
}

async fn purge(case: &Case) -> Result<(), String> {
    let (bench, store) = stores(system_clock(), OffloadOptions::default()).await;
    bench.put("main.go", "before").await;
    let path = bench.path("main.go");
    let kept = store.maybe_offload(
        &*bench.sandbox,
        bench.session.user(),
        SESSION,
        call("Read", "{}", long(), Some(&path)),
    );
    let (id, text) = kept.await.unwrap().unwrap();
    if case.flag("stale") {
        bench.put("main.go", "after").await;
    }
    store.invalidate_stale(&*bench.sandbox, bench.session.user(), SESSION).await.unwrap();
    let message = |role: &str| Message { role: role.into(), content: text.clone() };
    let messages = [message("user"), message("tool"), message("assistant")];
    let purged = store.purge_stale(SESSION, &messages).await.unwrap();
    if !case.flag("stale") {
        return same(purged, messages.to_vec());
    }
    same((&purged[0], &purged[2]), (&messages[0], &messages[2]))?;
    let prefix = case.expected["message_prefix"].as_str().unwrap().replace("<id>", &id);
    same(purged[1].content.starts_with(&prefix), true)
}

fn summed(case: &Case) -> Result<(), String> {
    let text = match case.input.get("content") {
        Some(of) => content(of),
        None if case.input.get("functions").is_some() => {
            let functions = case.input["functions"].as_array().unwrap();
            functions
                .iter()
                .map(|name| format!("func {}() {{\n\treturn\n}}\n", name.as_str().unwrap()))
                .collect()
        }
        None if case.number("single_line_runes") > 0 => {
            "字".repeat(case.number("single_line_runes") as usize)
        }
        None => format!("{}\n", "x".repeat(case.number("line_runes") as usize))
            .repeat(case.number("lines") as usize),
    };
    let arguments = case.input.get("args").map(Value::to_string).unwrap_or_default();
    let summary = summary(case.text("tool"), &arguments, &text);
    let longest = summary.lines().map(|line| line.chars().count()).max().unwrap_or_default() as u64;
    if let Some(max) = case.expected.get("line_runes_max").and_then(Value::as_u64) {
        same(longest <= max, true)?;
    }
    if let Some(max) = case.expected.get("total_runes_max").and_then(Value::as_u64) {
        same(summary.chars().count() as u64 <= max, true)?;
    }
    fits(&summary, &case.expected)
}

async fn recall(case: &Case, bench: Bench, store: OffloadStore) -> Result<(), String> {
    if let Some(raw) = case.input.get("raw").and_then(Value::as_str) {
        let toolbox = Toolbox::default().with(Recall::new(Arc::new(store), SESSION));
        let context = agent::tools::Context::new(&*bench.sandbox, &bench.session);
        return same(toolbox.call(&context, "offload_recall", raw).await.is_error, true);
    }
    let text = "字".repeat(case.number("len") as usize);
    let shown =
        page("ol_01234567", "Read", &text, case.number("offset") as usize, case.number("limit") as usize);
    fits(&shown, &case.expected)
}
