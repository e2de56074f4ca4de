//! The cost of hostile texts: no file and no argument takes all the memory or all the time there is.

use std::time::{Duration, Instant};

use agent::Place;
use agent::catalogue::{Agent, AgentStore, SkillStore, system_clock};
use agent::offload::{Call, OffloadOptions, OffloadStore};
use agent::tools::edit::{Replacement, fuzzy_match, reindent, replace};
use rustix::time::ClockId;
use sandbox::{AgentId, ServiceOptions, ServiceSandbox};
use serde_json::json;

use crate::support::{Bench, user};

/// Far more than any of these takes, and far less than each did before it was bounded.
const PATIENCE: Duration = Duration::from_secs(20);

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    // Of this thread's processor: what the machine does besides counts for nothing.
    let used = || rustix::time::clock_gettime(ClockId::ThreadCPUTime);
    let begin = used();
    let done = work();
    let taken = Duration::try_from(used() - begin).unwrap();
    assert!(taken < PATIENCE, "{what} took {taken:?}");
    done
}

#[test]
fn aliases_in_a_head_are_not_multiplied() {
    // 36 million values.
    let (list, aliases) = ("x,".repeat(6_000), "*a,".repeat(1_000));
    let list = &list[..list.len() / 2];
    let text =
        format!("---\nname: 名\ndescription: d\na: &a [{list}]\nb: [{aliases}]\nc: &c x\nd: *c\n---\n");
    let head = timed("aliases", || policy::front_matter::head(&text));
    assert_eq!((head.name.as_deref(), head.description.as_deref()), (Some("名"), Some("d")));
    // Those that stand for little are as good as ever.
    let text = "---\nname: &n 名\ndescription: *n\ntools: [&r Read, *r]\n---\n";
    let agent = Agent::parse("x", text).unwrap();
    assert_eq!(
        (agent.description.as_str(), agent.tools.as_slice()),
        ("名", &["Read".into(), "Read".into()][..])
    );
}

#[test]
fn brackets_in_a_head_take_no_time_by_the_square_of_its_length() {
    for nested in ["[", "{", "? ", "{a: ", "&a ["] {
        let text = format!("---\nname: 名\nx: {}\n---\n", nested.repeat(250_000 / nested.len()));
        let head = timed(nested, || policy::front_matter::head(&text));
        assert_eq!(head.name.as_deref(), Some("名"));
    }
}

#[test]
fn an_agent_whose_rights_cannot_be_read_has_none() {
    for head in [
        "name: a\ndescription: use: when b\ntools: [Read]",
        "name: a\ndescription: use: when b\ncapabilities:\n  spawn_agent: false",
        "name: a\nname: a\n\"tools\": Read",
    ] {
        let reason = Agent::parse("a", &format!("---\n{head}\n---\nDo it.\n")).unwrap_err();
        assert!(reason.contains("no YAML"), "{head}: {reason}");
    }
    let agent = Agent::parse("a", "---\nname: a\ndescription: use: when b\n---\nDo it.\n").unwrap();
    assert_eq!(agent.description, "use: when b");
    // A tag says nothing of its own.
    let tagged = Agent::parse("a", "---\nname: a\ntools: !x [Read]\n---\nDo it.\n").unwrap();
    assert_eq!(tagged.tools, ["Read"]);
}

#[test]
fn a_template_that_repeats_what_it_found_makes_no_file_of_gigabytes() {
    let content = "一二三四\n".repeat(400_000);
    let every = |old: &str, new: &str| {
        let replacement = Replacement {
            old: old.into(),
            new: new.into(),
            is_regex: true,
            all: true,
            ..Replacement::default()
        };
        timed(old, || replace(&content, &replacement))
    };
    for (old, new) in
        [("(?s)(.*)", "$0$1".repeat(5_000)), ("一", "x".repeat(1_000)), ("(..)", "$1".repeat(1_000))]
    {
        assert_eq!(
            every(old, &new).unwrap_err(),
            "the file would be larger than 32 MB: replace less",
            "{old}"
        );
    }
    let (doubled, _) = every("(?s)^(.*)$", "$1$1").unwrap();
    assert_eq!(doubled.len(), 2 * content.len());
}

#[test]
fn matches_that_take_time_by_the_square_are_given_up() {
    // Each search goes to the end, and finds one character.
    let content = "a".repeat(2 << 20);
    for all in [true, false] {
        let replacement =
            Replacement { old: ".*[^a]|a".into(), is_regex: true, all, ..Replacement::default() };
        let reason = timed("a square", || replace(&content, &replacement)).unwrap_err();
        assert!(reason.contains("takes more than"), "{reason}");
    }
}

#[test]
fn lines_that_are_all_alike_are_compared_once() {
    let content = "a\n".repeat(200_000);
    let old = format!("{}b", "a \n".repeat(100_000));
    assert_eq!(timed("alike", || fuzzy_match(&content, &old)), None);
    let once = format!("{content}b\n");
    assert_eq!(fuzzy_match(&once, &old).map(str::len), Some(200_001));
    assert_eq!(fuzzy_match("a\na\na", "a \na"), None); // twice, one over the other
    assert_eq!(fuzzy_match("b\na\na\nb\n", "a \n a"), Some("a\na"));
}

#[test]
fn indentation_by_megabytes_is_not_multiplied() {
    let wide = format!("{}x", " ".repeat(1 << 20));
    for new in ["  x\n".repeat(100_000), format!("{}x", " ".repeat(1 << 20))] {
        assert_eq!(timed("indents", || reindent(&[" x"], &[&wide], &new, 32 << 20)), None);
    }
    let (old, indents): (Vec<String>, Vec<String>) = (1..3_000)
        .map(|depth| (format!("{}x", " ".repeat(depth)), format!("{}\ty", " ".repeat(depth))))
        .unzip();
    let old: Vec<&str> = old.iter().map(String::as_str).collect();
    assert!(timed("many", || reindent(&old, &old, &indents.join("\n"), 32 << 20)).is_some());
}

#[tokio::test]
async fn a_search_that_takes_too_long_ends_and_others_go_on_meanwhile() {
    let bench = Bench::memory().await;
    bench.put("slow.txt", "ab".repeat(500_000) + "\nneedle\n").await;
    let (hard, easy) = (json!({ "pattern": "(a|b)*a(a|b){4000}c|needle" }), json!({ "path": "slow.txt" }));
    let slow = bench.call("Grep", &hard);
    let other = async {
        tokio::task::yield_now().await;
        let begin = Instant::now();
        let output = bench.call("Read", &easy).await;
        (output, begin.elapsed())
    };
    let (slow, (read, took)) =
        tokio::time::timeout(3 * PATIENCE, futures_util::future::join(slow, other)).await.unwrap();
    assert!(!slow.is_error && !read.is_error, "{} {}", slow.text, read.text);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn patterns_of_many_braces_and_stars_end() {
    let bench = Bench::memory().await;
    let deep = "d/".repeat(60);
    for number in 0..200 {
        bench.put(&format!("{deep}{number}.txt"), "x").await;
    }
    for pattern in ["{a,b}".repeat(8) + &"*/".repeat(450), "{a,}".repeat(7) + &"**/".repeat(300) + "x"] {
        let begin = Instant::now();
        let output = bench.call("Glob", &json!({ "pattern": pattern })).await;
        assert_eq!(output.text, "No files matched the pattern.", "{pattern}");
        assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn what_is_remembered_of_a_user_is_no_more_than_can_be_shown() {
    let bench = Bench::memory().await;
    let long = "长".repeat(15_000);
    for number in 0..100 {
        bench.put(&format!("skills/s{number}/SKILL.md"), format!("---\ndescription: {long}\n---\n")).await;
        bench.put(&format!("agents/a{number}.md"), format!("---\nname: a{number}\n---\n{long}{long}")).await;
    }
    let store = SkillStore::new(Vec::new(), bench.sandbox.clone(), system_clock());
    let skills = store.skills(bench.session.user()).await.unwrap();
    assert_eq!(skills.skills.len(), 100);
    assert!(skills.skills.iter().all(|skill| skill.description.chars().count() == 1024));
    let store = AgentStore::new(Vec::new(), bench.sandbox.clone(), system_clock());
    let agents = store.agents(bench.session.user()).await.unwrap();
    let bytes: usize = agents.agents.iter().map(|agent| agent.system_prompt.len()).sum();
    assert!((3 << 20..4 << 20).contains(&bytes), "{bytes}");
    assert!(agents.problems.iter().any(|problem| problem.contains("are not told")), "{:?}", agents.problems);
}

#[tokio::test]
async fn a_sandbox_that_does_not_answer_keeps_no_other_conversation_waiting() {
    let (bench, other) = (Bench::memory().await, Bench::memory().await);
    let place = Place::in_workspace(other.sandbox.clone(), user("server"), "kept").await.unwrap();
    let store = OffloadStore::new(place, system_clock(), OffloadOptions::default());
    bench.put("a.txt", "old").await;
    let (path, result) = (bench.path("a.txt"), "x".repeat(20_000));
    let call = Call { tool: "Read", arguments: "{}", result: &result, read_path: Some(&path) };
    let owner = bench.session.user();
    let (id, _) = store.maybe_offload(&*bench.sandbox, owner, "slow", call).await.unwrap().unwrap();
    // Takes connections, and says nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let agent = AgentId::parse("demo").unwrap();
    let silent =
        ServiceSandbox::new(ServiceOptions { address, authorities: None, token: None, agent, skills: false })
            .unwrap();
    let slow = store.invalidate_stale(&silent, owner, "slow");
    let quick = async {
        let _connection = listener.accept().await.unwrap();
        let call = Call { tool: "Shell", arguments: "{}", result: &result, read_path: None };
        store.maybe_offload(&*other.sandbox, owner, "quick", call).await.unwrap().unwrap()
    };
    tokio::select! {
        done = slow => panic!("the silent service was not waited for: {done:?}"),
        _ = quick => {}
    }
    // And a file that is larger than can be read is another one.
    bench.put("a.txt", vec![b'x'; 11 << 20]).await;
    assert_eq!(store.invalidate_stale(&*bench.sandbox, owner, "slow").await.unwrap(), [id]);
}
