//! Damaged archives by the thousand: each is taken in or refused, none panics, leaves its place or its limits.

use proptest::test_runner::{Config, TestRunner};
use proptest::{prelude::*, sample};
use storage::Error;
use storage::archive::Options;

use super::builder::*;
use super::taking::take_with;

/// One change to an archive's bytes; positions are fractions of its length in 1/65536.
#[derive(Clone, Debug)]
enum Mutation {
    Set {
        at: u16,
        byte: u8,
    },
    Flip {
        at: u16,
        bit: u8,
    },
    /// Near the end, where the end record and the table of contents are.
    SetNearEnd {
        back: u8,
        byte: u8,
    },
    Cut {
        at: u16,
    },
    Remove {
        at: u16,
        bytes: u8,
    },
    Repeat {
        from: u16,
        bytes: u16,
        to: u16,
    },
    /// Overwrites a number with one that readers stumble on.
    Number {
        at: u16,
        number: u32,
    },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let numbers = sample::select(vec![
        0_u32,
        1,
        0xFFFF,
        0xFFFF_FFFF,
        0x7FFF_FFFF,
        0x8000_0000,
        0x0403_4B50,
        0x0605_4B50,
    ]);
    prop_oneof![
        (any::<u16>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set { at, byte }),
        (any::<u16>(), 0..8_u8).prop_map(|(at, bit)| Mutation::Flip { at, bit }),
        (any::<u8>(), any::<u8>()).prop_map(|(back, byte)| Mutation::SetNearEnd { back, byte }),
        any::<u16>().prop_map(|at| Mutation::Cut { at }),
        (any::<u16>(), any::<u8>()).prop_map(|(at, bytes)| Mutation::Remove { at, bytes }),
        (any::<u16>(), any::<u16>(), any::<u16>()).prop_map(|(from, bytes, to)| Mutation::Repeat {
            from,
            bytes: bytes % 300,
            to
        }),
        (any::<u16>(), numbers).prop_map(|(at, number)| Mutation::Number { at, number }),
    ]
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        let place = |at: u16| usize::from(at) * length / 65_536;
        match *self {
            _ if length < 8 => {}
            Self::Set { at, byte } => bytes[place(at)] = byte,
            Self::Flip { at, bit } => bytes[place(at)] ^= 1 << bit,
            Self::SetNearEnd { back, byte } => bytes[length - 1 - usize::from(back) % length] = byte,
            Self::Cut { at } => bytes.truncate(place(at)),
            Self::Remove { at, bytes: count } => {
                let from = place(at);
                bytes.drain(from..(from + usize::from(count)).min(length));
            }
            Self::Repeat { from, bytes: count, to } => {
                let from = place(from);
                let part = bytes[from..(from + usize::from(count)).min(length)].to_vec();
                let to = place(to);
                bytes.splice(to..to, part);
            }
            Self::Number { at, number } => {
                let at = place(at).min(length - 4);
                bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let text = "The quick brown fox. 敏捷的棕色狐狸。\n".repeat(40);
    let ordinary = || {
        vec![
            directory("skill/"),
            file("skill/SKILL.md", b"---\nname: skill\n---\n"),
            file("skill/text.md", text.as_bytes()),
            stored("skill/data.bin", &[7; 300]),
            file("skill/sub/deep/x", b"x"),
        ]
    };
    let described = ordinary().into_iter().map(|entry| Entry { descriptor: Descriptor::Marked, ..entry });
    let gbk = |name: &str| encoding_rs::GBK.encode(name).0.into_owned();
    let mut renamed = file("b/y", b"y");
    renamed.extra = unicode_path(b"b/y", "b/名字");
    vec![
        zip(ordinary()),
        zip(described),
        Archive { zip64: Some([None; 3]), comment: b"a comment".to_vec(), ..archive(ordinary()) }.bytes(),
        zip([dos(gbk("数据\\SKILL.md"), b"x"), dos(gbk("数据\\系统\\一.md"), text.as_bytes())]),
        zip([file("a/SKILL.md", b""), renamed, file("SKILL.md", b"---\nname: root\n---\n")]),
    ]
}

#[test]
fn no_damage_panics_or_breaks_a_limit() {
    let mut options = Options::default();
    options.limits.total_bytes = 20_000;
    options.limits.file_bytes = 10_000;
    options.limits.entries = 50;
    let mut runner = TestRunner::new(Config { cases: 6000, failure_persistence: None, ..Config::default() });
    let cases = (sample::select(seeds()), proptest::collection::vec(mutation(), 1..4));
    let taken = std::cell::Cell::new(0_u32);
    runner
        .run(&cases, |(mut bytes, mutations)| {
            for mutation in &mutations {
                mutation.apply(&mut bytes);
            }
            match take_with(&bytes, &options) {
                Ok(result) => {
                    taken.set(taken.get() + 1);
                    let total: usize = result.tree.values().flatten().map(|(_, content)| content.len()).sum();
                    prop_assert!(total <= 20_000 && result.tree.len() <= 51 + result.plan.skills.len());
                }
                Err(Error::Archive(error)) => prop_assert!(error.to_string().len() < 500),
                Err(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
            }
            Ok(())
        })
        .unwrap();
    assert!(taken.get() > 0, "some damage is harmless (a time, a comment)");
}

/// Entries that are sound in structure, under names that mix ordinary segments with a few of every other kind.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let system_in_gbk: &[u8] = b"\xCF\xB5\xCD\xB3";
    let ordinary = vec![b"a".as_slice(), b"a", b"b", b"SKILL.md", b"skill.md", b"README.md", "数".as_bytes()];
    let strange: Vec<&[u8]> = vec![
        system_in_gbk,
        b"\xD5\x5C",
        b"__MACOSX",
        b"._a",
        b".h",
        b" ",
        b"",
        b".",
        b"..",
        b"C:",
        b"\xFF",
        b"\0",
    ];
    let segment = prop_oneof![12 => sample::select(ordinary), 1 => sample::select(strange)];
    let separator = prop_oneof![8 => Just(b"/".as_slice()), 1 => Just(b"\\".as_slice())];
    let ending = prop_oneof![8 => Just(b"".as_slice()), 1 => Just(b"/".as_slice())];
    let name = (proptest::collection::vec(segment, 1..5), separator, ending)
        .prop_map(|(segments, separator, ending)| [&segments.join(separator), ending].concat());
    let type_bits = prop_oneof![
        12 => Just(0o100_000_u32),
        1 => sample::select(vec![0, 0o040_000, 0o120_000, 0o010_000]),
    ];
    let kind = (sample::select(vec![0_u8, 3, 3, 11, 19]), type_bits, any::<bool>(), any::<bool>());
    let entry = (name, kind).prop_map(|(name, (host, type_bits, is_marked, is_empty))| Entry {
        host,
        attributes: (type_bits | 0o755) << 16,
        flags: if is_marked { 1 << 11 } else { 0 },
        ..file(name, if is_empty { b"" } else { b"content" })
    });
    proptest::collection::vec(entry, 1..6)
}

#[test]
fn what_is_planned_can_always_be_extracted_and_stays_inside() {
    let mut runner = TestRunner::new(Config { cases: 1500, failure_persistence: None, ..Config::default() });
    let taken = std::cell::Cell::new(0_u32);
    runner
        .run(&entries(), |entries| {
            let options = Options { file_name: Some("root".to_owned()), ..Options::default() };
            match take_with(&zip(entries), &options) {
                Ok(result) => {
                    taken.set(taken.get() + 1);
                    for path in result.paths() {
                        let id = path.split('/').next().unwrap_or_default();
                        prop_assert!(result.ids().contains(&id), "{}", path);
                        prop_assert!(policy::RelPath::parse(path).is_ok(), "{}", path);
                    }
                }
                Err(Error::Archive(_)) => {}
                Err(other) => return Err(TestCaseError::fail(format!("{other:?}"))),
            }
            Ok(())
        })
        .unwrap();
    assert!(taken.get() > 300, "too few archives were sound: {}", taken.get());
}

#[test]
fn no_random_bytes_panic() {
    proptest!(Config { cases: 2000, failure_persistence: None, ..Config::default() }, |(
        head in proptest::collection::vec(any::<u8>(), 0..200),
        tail in proptest::collection::vec(any::<u8>(), 18),
    )| {
        let bytes = [b"PK\x03\x04".as_slice(), &head, b"PK\x05\x06", &tail].concat();
        prop_assert!(take_with(&bytes, &Options::default()).is_err());
    });
}
