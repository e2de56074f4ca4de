//! `SKILL.md`: every file gives a name and a description within their bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use policy::skill_md;

fuzz_target!(|bytes: &[u8]| {
    let metadata = skill_md::parse(Some(bytes), None, "a-skill");
    assert!((1..=256).contains(&metadata.name.chars().count()), "{:?}", metadata.name);
    assert!((1..=4096).contains(&metadata.description.chars().count()), "{:?}", metadata.description);
    assert!(metadata.metadata.len() <= 64);
    let _ = skill_md::declared_name(bytes);
});
