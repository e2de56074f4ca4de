//! The table of the corpus in `docs/SKILLS.md`: each skill, how it is packed, and where it cannot work.

use std::sync::Arc;

use crate::plan::Plan;
use crate::stage::Tier;

/// Where the table stands.
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/SKILLS.md");
/// The Debian packages of the corpus.
const PACKAGES: &str = include_str!("packages.txt");
const BEGIN: &str = "<!-- table: begin -->\n";
const END: &str = "<!-- table: end -->\n";

/// Compares the document's table with the plans; with `FILESECBOX_BLESS=1` writes it instead.
///
/// # Panics
/// When they differ.
pub(crate) fn check_document(plans: &[Arc<Plan>]) {
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let (head, rest) = document.split_once(BEGIN).expect("the begin of the table");
    let (table, tail) = rest.split_once(END).expect("the end of the table");
    let expected = format!("\n{}\n", of(plans));
    if std::env::var("FILESECBOX_BLESS").is_ok() {
        std::fs::write(DOCUMENT, format!("{head}{BEGIN}{expected}{END}{tail}")).unwrap();
        return;
    }
    assert!(
        table == expected,
        "docs/SKILLS.md has another table than the suite: run `FILESECBOX_BLESS=1 cargo test --test corpus -- the_document`"
    );
}

/// Compares the packages that tests install with those that the document tells operators.
///
/// # Panics
/// When the document lacks one.
pub(crate) fn check_packages() {
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let told: Vec<&str> = document.split_whitespace().collect();
    let lacking: Vec<&str> = PACKAGES.lines().filter(|package| !told.contains(package)).collect();
    assert!(lacking.is_empty(), "docs/SKILLS.md does not name {lacking:?}");
}

fn of(plans: &[Arc<Plan>]) -> String {
    let mut text =
        "| Skill | Packed as | Programs | `namespaces` | `landlock` |\n| --- | --- | --- | --- | --- |\n"
            .to_owned();
    for plan in plans {
        let cell = |tier| {
            plan.refusal(tier).map_or("works".to_owned(), |refusal| format!("refused: {}", refusal.because))
        };
        let programs: Vec<String> =
            plan.programs.iter().chain(&plan.modules).map(|name| format!("`{name}`")).collect();
        text += &format!(
            "| `{}`: {} | {} | {} | {} | {} |\n",
            plan.name,
            plan.does,
            plan.packed.words(),
            programs.join(" "),
            cell(Tier::Namespaces),
            cell(Tier::Landlock)
        );
    }
    text
}
