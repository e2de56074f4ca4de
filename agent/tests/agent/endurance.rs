//! The pure functions answer every input, and in bounds.

use agent::catalogue::Agent;
use agent::offload::{is_id, page, session_directory, summary};
use agent::tools::edit::{Action, Change, Position, Replacement, apply, fuzzy_match, hint, reindent};
use agent::tools::glob::{Pattern, glob_to_find_args};
use agent::tools::grep::re2_to_ere;
use agent::tools::read::numbered;
use agent::tools::shell::{exports, parse_environment, shell_quote};
use agent::tools::{braces, truncate};
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("\t".to_owned()),
        Just("    ".to_owned()),
        Just("fn a() {".to_owned()),
        Just("}".to_owned()),
        Just("字".to_owned()),
        Just("---\n".to_owned()),
        Just("name: x\n".to_owned()),
        Just("export A='".to_owned()),
        Just("{a,".to_owned()),
        Just("[!".to_owned()),
        Just("**/".to_owned()),
        Just("(?i".to_owned()),
        Just("\\".to_owned()),
        any::<char>().prop_map(String::from),
        "[ -~]{0,8}".prop_map(String::from),
    ];
    proptest::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

fn change() -> impl Strategy<Value = Change> {
    let action = prop_oneof![
        Just(Action::InsertBefore),
        Just(Action::InsertAfter),
        (0..4_usize).prop_map(Action::Replace),
        (0..4_usize).prop_map(Action::Delete)
    ];
    let replacement = (
        text(),
        text(),
        any::<bool>(),
        any::<bool>(),
        proptest::option::of(0..5_usize),
        proptest::option::of(0..9_usize),
    );
    prop_oneof![
        (0..6_usize, action, text()).prop_map(|(line, action, text)| Change::Lines { line, action, text }),
        (any::<bool>(), text()).prop_map(|(start, text)| Change::Insert {
            position: if start { Position::Start } else { Position::End },
            text
        }),
        replacement.prop_map(|(old, new, is_regex, all, first_line, last_line)| {
            Change::Replace(Replacement { old, new, is_regex, all, first_line, last_line })
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_edit_ends_and_keeps_line_ends(content in text(), change in change()) {
        let unix = content.replace('\r', "");
        let windows = unix.replace('\n', "\r\n");
        let sent = match change.clone() {
            Change::Replace(replacement) => Change::Replace(Replacement {
                old: replacement.old.replace('\r', ""), new: replacement.new.replace('\r', ""), ..replacement
            }),
            Change::Lines { line, action, text } => Change::Lines { line, action, text: text.replace('\r', "") },
            Change::Insert { position, text } => Change::Insert { position, text: text.replace('\r', "") },
            create @ Change::Create { .. } => create,
        };
        let _ = apply(&content, &change);
        let (one, two) = (apply(&unix, &sent), apply(&windows, &sent));
        prop_assert_eq!(one.is_ok(), two.is_ok());
        // A file of one line says nothing about how its lines end.
        if let (Ok((one, _)), Ok((two, _)), true) = (one, two, unix.contains('\n')) {
            prop_assert_eq!(one.replace('\n', "\r\n"), two);
        }
    }

    #[test]
    fn a_block_that_is_found_is_the_only_one_and_differs_in_white_space_alone(content in text(), old in text()) {
        if let Some(found) = fuzzy_match(&content, &old) {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(words(found), words(&old));
            prop_assert!(content.contains(found));
        }
        let _ = hint(&content, &old);
        let (old, actual): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), content.split('\n').collect());
        prop_assert_eq!(reindent(&old, &actual, &content, usize::MAX).unwrap().matches('\n').count(), content.matches('\n').count());
    }

    #[test]
    fn what_is_shown_is_bounded(text in text(), times in 1..400_usize, number in 0..50_usize) {
        let long = text.repeat(times);
        let _ = numbered(&long, number, number);
        for tool in ["Read", "Grep", "Shell", "Glob", "Other"] {
            let summary = summary(tool, &text, &long);
            prop_assert!(summary.chars().count() <= 3200, "{} has {}", tool, summary.chars().count());
        }
        prop_assert!(page("ol_00000000", "Read", &long, number, 0).chars().count() < 8200);
        prop_assert!(truncate(&text, number).chars().count() <= number.max(3));
    }

    #[test]
    fn texts_of_strangers_are_read_or_refused(text in text()) {
        let head = policy::front_matter::head(&text);
        prop_assert!(head.body.len() <= text.len());
        if let Ok(agent) = Agent::parse("stem", &text) {
            prop_assert!(!agent.name.contains(['/', '.', ' ']));
        }
        let directory = session_directory(&text);
        prop_assert!(!directory.contains(['/', '.', ':', '\\']) && directory.len() < 255 && directory.chars().all(|letter| !letter.is_control()));
        prop_assert!(!is_id(&text) || text.len() == 11);
        for variable in exports(&text) {
            prop_assert!(variable.contains('='));
        }
        let _ = (parse_environment(&text), re2_to_ere(&text), glob_to_find_args(&text), braces::expand(&text));
        if let Ok(pattern) = Pattern::new(&text) {
            let _ = pattern.matches(&text);
        }
        let quoted = shell_quote(&text);
        prop_assert_eq!(quoted[1..quoted.len() - 1].replace("'\\''", "\u{0}").contains('\''), false);
    }
}
