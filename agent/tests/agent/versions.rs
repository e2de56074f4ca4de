//! Edits of one file by callers who know nothing of each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use sandbox::MemSandbox;
use serde_json::json;

use crate::support::Bench;

/// Each toolbox has turns of its own, so that only versions keep their edits apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn edits_through_several_toolboxes_are_all_made() {
    let sandbox = Arc::new(MemSandbox::new());
    let first = Bench::over(sandbox.clone()).await;
    first.put("list", "begin\n").await;
    let callers = (0..4).map(|caller| {
        let sandbox = sandbox.clone();
        tokio::spawn(async move {
            let bench = Bench::over(sandbox).await;
            for number in 0..25 {
                let content = format!("{caller}-{number}\n");
                let line = json!({ "path": "list", "mode": "line", "action": "insert", "position": "end", "content": content });
                // One that meets others again and again says so, and is asked for once more.
                while bench.call("Edit", &line).await.is_error {}
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let text = String::from_utf8(first.get("list").await).unwrap();
    let lines: BTreeSet<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!((lines.len(), text.lines().filter(|line| !line.is_empty()).count()), (101, 101), "{text}");
}
