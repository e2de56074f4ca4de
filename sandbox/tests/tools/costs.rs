//! What a hostile text costs: no file and no argument takes all the memory or all the time there is.

use std::time::{Duration, Instant};

use sandbox::catalogue::{Agent, front_matter};

/// Far more than any of these takes, and far less than each did before it was bounded.
const PATIENCE: Duration = Duration::from_secs(20);

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = work();
    assert!(begin.elapsed() < PATIENCE, "{what} took {:?}", begin.elapsed());
    done
}

#[test]
fn aliases_in_a_head_are_not_multiplied() {
    // 36 million values.
    let (list, aliases) = ("x,".repeat(6_000), "*a,".repeat(1_000));
    let list = &list[..list.len() / 2];
    let text =
        format!("---\nname: 名\ndescription: d\na: &a [{list}]\nb: [{aliases}]\nc: &c x\nd: *c\n---\n");
    let head = timed("aliases", || front_matter(&text));
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
        let head = timed(nested, || front_matter(&text));
        assert_eq!(head.name.as_deref(), Some("名"));
    }
}

#[test]
fn an_agent_whose_rights_cannot_be_read_has_none() {
    for head in [
        "name: a\ndescription: use: when b\ntools: [Read]",
        "name: a\ndescription: use: when b\ncapabilities:\n  spawn_agent: false",
        "name: a\nname: a\n\"tools\": Read",
        "name: a\ntools: !x [Read]",
    ] {
        let reason = Agent::parse("a", &format!("---\n{head}\n---\nDo it.\n")).unwrap_err();
        assert!(reason.contains("no YAML"), "{head}: {reason}");
    }
    let agent = Agent::parse("a", "---\nname: a\ndescription: use: when b\n---\nDo it.\n").unwrap();
    assert_eq!(agent.description, "use: when b");
}
