//! The commands with which the platform's adapter does what the dialect has no call for, at each tier.

use serde_json::{Value, json};

use crate::adapter::{API, Adapter, data, failed, service};
use crate::support::{Entry, granted, have, zip};

/// Settings of the tiers, from the strongest.
const TIERS: [&str; 3] = [
    "",
    "[isolation]\nmaximum = \"landlock\"\n",
    "[isolation]\nminimum = \"process\"\nmaximum = \"process\"\n",
];

#[test]
fn the_shell_idioms_of_the_adapter_run_at_every_tier() {
    for config in TIERS {
        let service = service(config);
        let one = Adapter::new(&service, "one");
        one.create();
        one.upload("/workspace/dir/a b.txt", "0640", b"line 1\nline 2\nline 3\n");
        one.upload(
            "/workspace/p.zip",
            "0644",
            &zip(&[Entry::file("in/x.txt", "12345"), Entry::file("y", "")]),
        );
        for (line, output) in [
            ("sh -c 'echo inner'", "inner\n"),
            (
                "stat -c '%n|%F|%s|%a' -- '/workspace/dir/a b.txt' | sed 's|.*/||'",
                "a b.txt|regular file|21|640\n",
            ),
            ("ls -1 --time-style=+%s dir", "a b.txt\n"),
            ("find /workspace/dir -type f -print0 | tr '\\0' ';' | sed 's|.*/||'", "a b.txt;"),
            ("base64 -w0 'dir/a b.txt' | base64 -d | head -n 1", "line 1\n"),
            ("printf '%s' 'ZWNobyBkb25l' | base64 -d | bash", "done\n"),
            (
                "sed -i 's/line 2/second/' '/workspace/dir/a b.txt' && tail -n +2 'dir/a b.txt' | head -n 1",
                "second\n",
            ),
            ("awk 'NR==3{print $2}' 'dir/a b.txt'", "3\n"),
            ("mkdir -p deep/er && mv 'dir/a b.txt' deep/er/ && ls deep/er", "a b.txt\n"),
            ("unzip -Z -1 p.zip", "in/x.txt\ny\n"),
            ("unzip -Z -t p.zip | awk '{print $1, $3}'", "2 5\n"),
            ("unzip -q -o p.zip -d out && cat out/in/x.txt", "12345"),
            ("[ -f out/y ] && echo there", "there\n"),
            (
                "echo tail > /tmp/fastgpt-bash-1.log; tail -c 8192 /tmp/fastgpt-bash-1.log; rm /tmp/fastgpt-bash-1.log",
                "tail\n",
            ),
            ("export A='x y'; printf '%s' \"$A\"", "x y"),
            ("rm -rf deep out dir p.zip && ls -A", ""),
            ("printf \"%s\" \"$HOME\" | grep -c /", "1\n"),
        ] {
            if line.starts_with("unzip") && !have("unzip") {
                continue;
            }
            assert_eq!(one.line(line), output, "{line} with {config:?}");
        }
    }
}

#[test]
fn an_argument_list_reaches_its_program_as_it_is() {
    let service = service("");
    let one = Adapter::new(&service, "one");
    one.create();
    let told = one.exec(&["echo", "a  b", "$HOME", "*", "'q'", "; ls"]);
    assert_eq!(told["stdout"], "a  b $HOME * 'q' ; ls\n");
    let told = one.exec(&["sh", "-c", "echo $1", "sh", "a  b"]);
    assert_eq!(told["stdout"], "a b\n");
    // A program that callers of the service's own routes do not start.
    let told = one.exec(&["printf", "%s|", "a  b", "$HOME", "-x"]);
    assert_eq!((&told["stdout"], &told["exitCode"]), (&json!("a  b|$HOME|-x|"), &json!(0)));
    let body = json!({ "command": ["cat"], "stdin": "in\n" });
    assert_eq!(data(&service.client.post_json(one.url("/exec"), &body))["stdout"], "in\n");
    for (command, code) in [
        (vec!["sh", "-c", "exit 7"], 7),
        (vec!["sh", "-c", "kill -9 $$"], 137),
        (vec!["sh", "-c", "no-such-program"], 127),
    ] {
        let told = one.exec(&command);
        assert_eq!(told["exitCode"], code, "{told}");
    }
}

#[test]
fn a_deadline_ends_a_command_and_is_told() {
    let service = service("[limits.runs]\ntimeout_ms = 3000\n");
    let one = Adapter::new(&service, "one");
    one.create();
    let ask = |seconds: Value| {
        let body = json!({ "command": ["sleep", "60"], "timeoutSeconds": seconds });
        service.client.post_json(one.url("/exec"), &body)
    };
    let told = data(&ask(json!(1)));
    assert_eq!(
        (&told["timedOut"], &told["exitCode"], &told["timeoutSeconds"]),
        (&json!(true), &json!(124), &json!(1))
    );
    // The service's own limit is in force where it is lower.
    let told = data(&ask(json!(600)));
    assert_eq!((&told["timedOut"], &told["timeoutSeconds"]), (&json!(true), &json!(3)));
    for wrong in [json!(0), json!(601), json!(-1), json!("30"), json!(1.5)] {
        failed(&ask(wrong), 400);
    }
}

#[test]
fn files_are_found_under_the_path_that_the_platform_knows() {
    let service = service("work_directory = \"/home/devbox/workspace\"\n");
    let one = Adapter::new(&service, "one");
    one.create();
    let known = "/home/devbox/workspace/dir/a.txt";
    assert_eq!(one.upload(known, "0644", b"x")["path"], known);
    for path in [known, "/workspace/dir/a.txt", "dir/a.txt"] {
        assert_eq!(one.download(path).bytes(200), b"x");
    }
    assert_eq!(one.line("cat dir/a.txt"), "x");
    for outside in ["/home/devbox/workspace2/a", "/home/devbox", "/etc/hostname", "/"] {
        let told = failed(&one.download(outside), 403);
        assert!(told.contains("devbox.work_directory"), "{told}");
        failed(&one.try_upload(outside, "0644", b"x"), 403);
    }
    let reply = one.download(known);
    assert_eq!(reply.header("content-length"), Some("1"));
    assert_eq!(reply.header("content-type"), Some("application/octet-stream"));
}
