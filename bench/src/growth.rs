//! How the cost of commands grows: with the first of a user, with files, skills, live views and users.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use crate::client;
use crate::error::Result;
use crate::execution::{execute, weaker};
use crate::fixture;
use crate::load::{self, Slice};
use crate::report::{Figure, Layout, Row, Unit};
use crate::service::Service;
use crate::sides::{Bench, Side, Tree};
use crate::workloads::{Lines, figure, megabytes};

/// Two tiers and the bare service.
pub(crate) const LAYOUT: Layout = Layout {
    columns: &["skill", "workspace", "skill, `landlock`", "workspace, `landlock`", "bare axum"],
    ratios: &[("skill ÷ bare axum", 0, 4), ("workspace ÷ bare axum", 1, 4)],
};

/// Skills that a command of a workspace sees, in the rows about that.
const SKILLS: [usize; 4] = [0, 1, 8, 64];
/// Users who come back after a pause, and the pause: too many for namespaces to be kept ready for each.
const PAUSED: usize = 100;
/// Users who come back again and again after the pause, as agents do whose models think in between: so few that namespaces are kept.
const AGENTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(2_500);
/// Clients that the many users come through.
const CLIENTS: usize = 32;
const ECHO: [&str; 2] = ["echo", "hi"];

/// All rows.
///
/// # Errors
/// Every [`Failure`](crate::error::Failure).
pub(crate) fn growth(bench: &Bench) -> Result<Vec<Row>> {
    let weaker = weaker(bench)?;
    let mut rows = first_runs(bench, &weaker)?;
    rows.extend(large_skill(bench, &weaker)?);
    rows.extend(many_skills(bench)?);
    rows.extend(writes(bench)?);
    rows.extend(many_users(bench, &weaker)?);
    rows.push(memory(bench, &weaker));
    Ok(rows)
}

/// The memory of the services after all that was asked of them.
fn memory(bench: &Bench, weaker: &Service) -> Row {
    let of = |service: &Service| Some(Figure::from(megabytes(service.resident_bytes())));
    let (service, bare) = (of(&bench.relaxed.filesecbox), of(&bench.relaxed.bare));
    Row {
        name: "memory after all of this, launcher included".to_owned(),
        unit: Unit::Megabytes,
        figures: vec![service, service, of(weaker), of(weaker), bare],
        goal: "≤ 40 MB",
    }
}

/// The four sides that are isolated.
fn isolated(bench: &Bench, weaker: &Service, skill: &'static str) -> [Side; 4] {
    let [skill_side, workspace, _] = bench.relaxed.sides(skill);
    let of_weaker = |tree| Side::new(weaker, tree);
    [skill_side, workspace, of_weaker(Tree::Skill(skill)), of_weaker(Tree::Workspace)]
}

/// The first command of a user, for which a view, a home and walls are made; the first after a pause, for which namespaces
/// and mounts are made; and those that follow another.
fn first_runs(bench: &Bench, weaker: &Service) -> Result<Vec<Row>> {
    let (mut lines, mut user) = (Lines::default(), 0);
    let first = bench.compare(isolated(bench, weaker, "tiny"), |side| {
        let sample = load::serial(lines.of(side)?, bench.effort.slice, &mut || {
            user += 1;
            execute(&side.of(format!("first-{user}")), &ECHO)
        })?;
        Ok(figure(&sample))
    })?;
    // Before the many, of whom some have what is kept ready for half a minute.
    let agents = bench.compare(isolated(bench, weaker, "tiny"), |side| {
        std::thread::sleep(PAUSE);
        let mut each = (0..AGENTS).map(|user| execute(&side.of(format!("agent-{user}")), &ECHO)).cycle();
        let slice = Slice { calls: AGENTS, ..bench.effort.slice };
        Ok(figure(&load::serial(lines.of(side)?, slice, &mut || each.next().unwrap_or_default())?))
    })?;
    let paused = bench.compare(isolated(bench, weaker, "tiny"), |side| {
        let pass = || (0..PAUSED).map(|user| execute(&side.of(format!("paused-{user}")), &ECHO));
        for request in pass() {
            lines.of(side)?.call(&request)?;
        }
        std::thread::sleep(PAUSE);
        let mut again = pass().cycle();
        let slice = Slice { calls: PAUSED, ..bench.effort.slice };
        Ok(figure(&load::serial(lines.of(side)?, slice, &mut || again.next().unwrap_or_default())?))
    })?;
    let sides = isolated(bench, weaker, "tiny");
    let later = bench.compare(sides, |side| latency(bench, &mut lines, side, &execute(side, &ECHO)))?;
    let row = |name: &str, figures: [Figure; 4], goal| Row {
        name: name.to_owned(),
        unit: Unit::Micros,
        figures: figures.map(Some).into_iter().chain([None]).collect(),
        goal,
    };
    Ok(vec![
        row(
            "`echo`, first command of a user, p50",
            first,
            "≤ 2.0 × a later one in a skill, 1.6 in a workspace",
        ),
        row("`echo`, the first after a pause, p50", paused, "≤ 1.3 × a later one"),
        row("`echo`, each after a pause, few users, p50", agents, "≤ 1.3 × a later one"),
        row("`echo`, one after the other, p50", later, "–"),
    ])
}

/// A command in a skill whose baseline has many files.
fn large_skill(bench: &Bench, weaker: &Service) -> Result<Vec<Row>> {
    let mut lines = Lines::default();
    let [skill, _, weaker, _] = isolated(bench, weaker, "many");
    let [.., bare] = bench.relaxed.sides("many");
    let [skill, weaker, bare] = bench
        .compare([skill, weaker, bare], |side| latency(bench, &mut lines, side, &execute(side, &ECHO)))?
        .map(Some);
    Ok(vec![Row {
        name: format!("`echo` in a skill of {} files, p50", bench.effort.many),
        unit: Unit::Micros,
        figures: vec![skill, None, weaker, None, bare],
        goal: "as in a small one",
    }])
}

/// A command in a workspace that sees skills.
fn many_skills(bench: &Bench) -> Result<Vec<Row>> {
    let [_, workspace, _] = bench.relaxed.sides("tiny");
    publish_several(bench, SKILLS.into_iter().max().unwrap_or_default())?;
    let figures = bench.compare(SKILLS, |skills| {
        let mut lines = Lines::default();
        latency(bench, &mut lines, &workspace, &seeing(*skills))
    })?;
    let row = |(skills, figure): (usize, Figure)| Row {
        name: format!("`echo` in a workspace that sees {}, p50", number_of(skills)),
        unit: Unit::Micros,
        figures: vec![None, Some(figure), None, None, None],
        goal: if skills == 0 { "–" } else { "≤ 1.2 × one that sees none" },
    };
    Ok(SKILLS.into_iter().zip(figures).map(row).collect())
}

/// Publishes `skills` skills of an agent of their own, for [`seeing`].
pub(crate) fn publish_several(bench: &Bench, skills: usize) -> Result<()> {
    let archive = fixture::several(skills)?;
    let upload = client::upload("/v1/skills/u/seer/upload?scope=baseline", "several.zip", &archive);
    bench.relaxed.filesecbox.connect()?.call(&upload).map(|_| ())
}

/// An `echo` that sees so many of them.
pub(crate) fn seeing(skills: usize) -> Vec<u8> {
    let skills: Vec<String> = (0..skills).map(fixture::several_name).collect();
    let body = serde_json::json!({ "command": "echo", "args": ["hi"], "skills": skills }).to_string();
    client::with_body("POST", "/v1/sandbox/u/seer/exec", "application/json", body.as_bytes())
}

fn number_of(skills: usize) -> String {
    match skills {
        0 => "no skill".to_owned(),
        1 => "1 skill".to_owned(),
        more => format!("{more} skills"),
    }
}

/// A write through the interface into a skill that is mounted for commands, and into one that is not.
fn writes(bench: &Bench) -> Result<Vec<Row>> {
    let bytes = fixture::small();
    let mut rows = Vec::new();
    for (pair, name) in [(&bench.relaxed, "relaxed"), (&bench.strict, "strict")] {
        let [skill, _, bare] = pair.sides("tiny");
        let mut lines = Lines::default();
        let write = |side: &Side| {
            let target = side.target("raw/written.txt?parents=true");
            client::with_body("PUT", &target, "application/octet-stream", &bytes)
        };
        let sides =
            [skill.of("still".to_owned()), skill.of("running".to_owned()), bare.of("still".to_owned())];
        let [still, mounted, bare] = bench.compare(sides, |side| {
            if side.user == "running" {
                lines.of(side)?.call(&execute(side, &ECHO))?;
            }
            latency(bench, &mut lines, side, &write(side))
        })?;
        for (what, skill) in [("without a view", still), ("through a live view", mounted)] {
            rows.push(Row {
                name: format!("write 4 KiB {what}, {name}, p50"),
                unit: Unit::Micros,
                figures: vec![Some(skill), None, None, None, Some(bare)],
                goal: "≤ 1.3",
            });
        }
    }
    Ok(rows)
}

/// Many users who each write a file and run a command that reads it, through few clients; and the same users again.
fn many_users(bench: &Bench, weaker: &Service) -> Result<Vec<Row>> {
    let [skill, workspace, weaker_skill, weaker_workspace] = isolated(bench, weaker, "tiny");
    let [.., bare] = bench.relaxed.sides("tiny");
    let mut crowds = 0;
    let each_round = bench.effort.crowd.div_ceil(bench.effort.rounds);
    let mut again = HashMap::new();
    let sides = [&skill, &workspace, &weaker_skill, &weaker_workspace, &bare];
    let first = bench.compare(sides, |side| {
        crowds += 1;
        again.insert((side.address, side.tree), crowds);
        crowd(side, crowds, each_round)
    })?;
    let again = bench.compare(sides, |side| {
        let crowd_of_side = again.get(&(side.address, side.tree)).copied().unwrap_or_default();
        crowd(side, crowd_of_side, each_round)
    })?;
    let users = each_round * bench.effort.rounds;
    let row = |name: String, figures: [Figure; 5]| Row {
        name,
        unit: Unit::PerSecond,
        figures: figures.map(Some).to_vec(),
        goal: "≥ 0.7 in a skill, ≥ 0.9 in a workspace",
    };
    Ok(vec![
        row(format!("{users} users, each a write and a run, {CLIENTS} clients"), first),
        row(format!("{each_round} of these users again"), again),
    ])
}

/// How many of `users` users a second write a file and run a command that reads it. Other crowds have other users.
fn crowd(side: &Side, number: usize, users: usize) -> Result<Figure> {
    let bytes = fixture::small();
    let mut users = 0..users;
    let mut writers: Vec<Option<Side>> = (0..CLIENTS).map(|_| None).collect();
    let sample = load::each(side.address, CLIENTS, &mut |client| {
        let writer = writers.get_mut(client)?;
        if let Some(side) = writer.take() {
            return Some(Cow::Owned(execute(&side, &["cat", "written.txt"])));
        }
        let side = side.of(format!("crowd-{number}-{}", users.next()?));
        let target = side.target("raw/written.txt?parents=true");
        *writer = Some(side);
        Some(Cow::Owned(client::with_body("PUT", &target, "application/octet-stream", &bytes)))
    })?;
    Ok((sample.per_second / 2.0).into())
}

fn latency(bench: &Bench, lines: &mut Lines, side: &Side, request: &[u8]) -> Result<Figure> {
    let sample = load::serial(lines.of(side)?, bench.effort.slice, &mut || request.to_vec())?;
    Ok(figure(&sample))
}
