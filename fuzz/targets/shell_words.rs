//! Lines for the shell and arguments of programs: refused, or rewritten within their bounds; the second look at what was
//! rewritten changes nothing more.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use policy::command::ScanOf;
use policy::{Anchors, CommandPolicy, Profile};

static ANCHORS: LazyLock<Anchors> = LazyLock::new(|| Anchors {
    inside: "/data/tree".to_owned(),
    aliases: vec!["/workspace".to_owned(), "/data/baseline".to_owned()],
    temporary: None,
});

static POLICY: LazyLock<CommandPolicy> =
    LazyLock::new(|| CommandPolicy::new(Profile::Default, &[]).expect("a policy").with_scan(ScanOf::All));

fuzz_target!(|text: &str| {
    let _ = POLICY.rewrite_script(text, &ANCHORS);
    if let Ok(checked) = POLICY.line(text, &ANCHORS) {
        let line = checked.args.last().expect("a line");
        let again = POLICY.line(line, &ANCHORS).expect("what was allowed is allowed again");
        assert_eq!(again, checked, "rewriting settles");
    }
    let mut words = text.split('\n').map(str::to_owned);
    let command = words.next().unwrap_or_default();
    let _ = POLICY.check(&command, &words.collect::<Vec<_>>(), &ANCHORS);
});
