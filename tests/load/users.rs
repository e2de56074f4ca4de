//! Many users who each write and run once: no user is turned away, and each sees what it wrote.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::json;

use crate::client::Client;
use crate::random;
use crate::service::Service;
use crate::skill;

/// Clients through which the users come.
const CLIENTS: usize = 32;

#[test]
fn a_thousand_users_each_write_and_run_without_any_error() {
    let users = random::setting("FILESECBOX_LOAD_USERS", 1_000);
    let temp = tempfile::tempdir().unwrap();
    let service = Service::start_with("relaxed", &temp.path().join("root"), &temp.path().join("log"));
    let client = Client::new(&service.url);
    assert!(client.upload("user-0/agent", "baseline", &skill::archive(&["shared"], 1)).unwrap().is_success());
    for (what, tree) in
        [("workspaces", "/v1/sandbox/{user}/agent"), ("skills", "/v1/skills/{user}/agent/shared")]
    {
        let (next, began) = (AtomicUsize::new(0), Instant::now());
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let client = Client::new(&service.url);
                    loop {
                        let user = next.fetch_add(1, Ordering::Relaxed);
                        if user >= users {
                            return;
                        }
                        let user = format!("user-{user}");
                        write_and_run(&client, &tree.replace("{user}", &user), &user);
                    }
                });
            }
        });
        let rate = users as f64 / began.elapsed().as_secs_f64();
        random::tell(&format!("users: {users} in {what}, {rate:.0} a second"));
    }
}

fn write_and_run(client: &Client, tree: &str, user: &str) {
    let text = skill::proof(user);
    let written = client.put(&format!("{tree}/raw/own/note.txt?parents=true"), &text).unwrap();
    assert_eq!(written.status, 201, "{user}: {}", written.text());
    let command = json!({ "command": "cp", "args": ["-v", "own/note.txt", "own/copy.txt"] });
    let ran = client.post(&format!("{tree}/exec"), &command).unwrap();
    assert_eq!(ran.status, 200, "{user}: {}", ran.text());
    assert_eq!(ran.json()["data"]["exit_code"], 0, "{user}: {}", ran.text());
    let read = client.get(&format!("{tree}/raw/own/copy.txt")).unwrap();
    assert_eq!(read.status, 200, "{user}: {}", read.text());
    assert_eq!(skill::mark_of("own/copy.txt", &read.body), user);
}
