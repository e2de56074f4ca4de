//! Preparing a workspace: a round that has nothing to do against one command, and a first one against unpacking.

use std::cell::Cell;
use std::fs;
use std::ops::Range;

use serde_json::json;

use crate::client;
use crate::error::{Failure, Result};
use crate::fixture;
use crate::load;
use crate::native;
use crate::report::{Figure, Layout, Row, Unit};
use crate::sides::{Bench, Side, Tree};
use crate::workloads::{Lines, figure, micros};

/// Skills of a round, each of [`fixture::PACKAGE_FILES`] files.
const SKILLS: usize = 10;

/// A round, a command, uploads to the service without checks, and a program that unpacks.
pub(crate) const LAYOUT: Layout = Layout {
    columns: &["prepare", "`exec` of `true`", "uploads to bare axum", "`bsdtar`"],
    ratios: &[("prepare ÷ command", 0, 1), ("prepare ÷ uploads", 0, 2)],
};

/// What a round is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Prepare,
    Command,
    Uploads,
    Unpack,
}

/// All rows.
///
/// # Errors
/// Every [`Failure`].
pub(crate) fn preparing(bench: &Bench) -> Result<Vec<Row>> {
    let side = Side::new(&bench.relaxed.filesecbox, Tree::Workspace);
    let plain = packages(&side, 0, false)?;
    packages(&side, SKILLS, true)?;
    Ok(vec![
        again(bench, &side, 0..0, "without a script")?,
        again(bench, &side, SKILLS..2 * SKILLS, "with 10 skills and their scripts")?,
        first(bench, &side, &plain)?,
        scripts(bench, &side)?,
    ])
}

/// Puts the packages of [`SKILLS`] versions, from the number `start` on.
fn packages(side: &Side, start: usize, has_script: bool) -> Result<Vec<Vec<u8>>> {
    let mut lines = Lines::default();
    (start..start + SKILLS)
        .map(|number| {
            let archive = fixture::package(number as u64, has_script)?;
            let target = format!("/v1/packages/{}", version(number));
            lines.of(side)?.call(&client::with_body("PUT", &target, "application/zip", &archive))?;
            Ok(archive)
        })
        .collect()
}

fn version(number: usize) -> String {
    format!("{number:024x}")
}

/// A round with the versions of these numbers.
fn round(side: &Side, versions: Range<usize>) -> Vec<u8> {
    let selected = |number| json!({ "skill_id": format!("skill-{number}"), "version_id": version(number) });
    let body = json!({ "skills": versions.map(selected).collect::<Vec<_>>() }).to_string();
    client::with_body("POST", &side.target("prepare"), "application/json", body.as_bytes())
}

/// The cheapest call of a provider whose commands are all that it offers.
fn command(side: &Side) -> Vec<u8> {
    client::with_body("POST", &side.target("exec"), "application/json", br#"{"shell":"true"}"#)
}

/// A round after which nothing is left to do, made again.
fn again(bench: &Bench, side: &Side, versions: Range<usize>, what: &str) -> Result<Row> {
    let side = side.of(format!("prepared-{}", versions.len()));
    let mut lines = Lines::default();
    let slice = bench.effort.slice;
    lines.of(&side)?.call(&round(&side, versions.clone()))?;
    let [prepare, command] = bench.compare([Work::Prepare, Work::Command], |work| {
        let request = if *work == Work::Prepare { round(&side, versions.clone()) } else { command(&side) };
        Ok(figure(&load::serial(lines.of(&side)?, slice, &mut || request.clone())?))
    })?;
    Ok(Row {
        name: format!("prepare {what}, nothing to do, p50"),
        unit: Unit::Micros,
        figures: vec![Some(prepare), Some(command), None, None],
        goal: "≤ 3 commands",
    })
}

/// The first round of a user, with all skills; the same archives uploaded one after the other, and unpacked by a program.
fn first(bench: &Bench, side: &Side, archives: &[Vec<u8>]) -> Result<Row> {
    let [.., bare] = bench.relaxed.sides("packages");
    let dir = bench.fresh()?;
    let mut works = [Some(Work::Prepare), Some(Work::Uploads), None];
    if native::has("bsdtar") {
        works = [Some(Work::Prepare), Some(Work::Uploads), Some(Work::Unpack)];
        for (number, archive) in archives.iter().enumerate() {
            fs::write(dir.path().join(format!("{number}.zip")), archive).map_err(Failure::io("write"))?;
        }
    }
    let (mut lines, user, number) = (Lines::default(), Cell::new(0), Cell::new(0));
    let next = |cell: &Cell<usize>| cell.replace(cell.get() + 1);
    let [prepare, uploads, unpack] = bench.compare_optional(works, |work| {
        let taken = native::median(bench.effort.slice, || match work {
            Work::Prepare => {
                let side = side.of(format!("unprepared-{}", next(&user)));
                lines.of(&side)?.call(&round(&side, 0..SKILLS)).map(drop)
            }
            Work::Uploads => archives.iter().try_for_each(|archive| {
                let name = format!("package-{}.zip", next(&number));
                let upload = client::upload("/v1/skills/u/a/upload?scope=baseline", &name, archive);
                lines.of(&bare)?.call(&upload).map(drop)
            }),
            Work::Unpack | Work::Command => (0..archives.len()).try_for_each(|archive| {
                let place = dir.path().join(format!("unpacked-{}", next(&number)));
                fs::create_dir(&place).map_err(Failure::io("mkdir"))?;
                native::run("bsdtar", &["-xf", &format!("../{archive}.zip")], &place)
            }),
        })?;
        Ok(Figure::from(micros(taken) / 1000.0))
    })?;
    Ok(Row {
        name: format!("first round of a user, {SKILLS} skills of {} files, p50", fixture::PACKAGE_FILES),
        unit: Unit::Millis,
        figures: vec![prepare, None, uploads, unpack],
        goal: "bounded by unpacking",
    })
}

/// The first round of a user with skills whose scripts run, against one command.
fn scripts(bench: &Bench, side: &Side) -> Result<Row> {
    let (mut lines, user) = (Lines::default(), Cell::new(0));
    let slice = bench.effort.slice;
    let [prepare, command] = bench.compare([Work::Prepare, Work::Command], |work| {
        let request = || {
            let side = side.of(format!("unscripted-{}", user.replace(user.get() + 1)));
            round(&side, SKILLS..2 * SKILLS)
        };
        let mut next = || if *work == Work::Prepare { request() } else { command(side) };
        Ok(figure(&load::serial(lines.of(side)?, slice, &mut next)?))
    })?;
    Ok(Row {
        name: format!("the same with {SKILLS} scripts, p50"),
        unit: Unit::Micros,
        figures: vec![Some(prepare), Some(command), None, None],
        goal: "–",
    })
}
