//! [`Side`] and [`Bench`]: the services under test and how they are compared.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::client::{self, Connection};
use crate::error::{Failure, Result};
use crate::fixture;
use crate::load::Slice;
use crate::report::Figure;
use crate::service::{Kind, Service};

/// The user that the fixture is filled for.
const USER: &str = "u";

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Rounds that count; one before them warms up.
    pub rounds: usize,
    /// One side's part of a round.
    pub slice: Slice,
    /// Files of the skill that is listed.
    pub many: usize,
    /// Users who each change a line of a baseline skill.
    pub users: usize,
    /// Starts of a service.
    pub starts: usize,
    /// Bytes that a command writes where its output is measured.
    pub volume: usize,
    /// Users who each write and run.
    pub crowd: usize,
    /// Bytes of the file that goes to a lent machine and comes back.
    pub lent_bytes: usize,
    /// Lent machines that are connected at once.
    pub runners: usize,
}

impl Effort {
    /// A few minutes.
    pub(crate) const FULL: Self = Self {
        rounds: 5,
        slice: Slice { time: Duration::from_millis(400), calls: 4000, calls_min: 3 },
        many: fixture::MANY_FILES,
        users: 10_000,
        starts: 9,
        volume: 50_000_000,
        crowd: 1_000,
        lent_bytes: 500_000_000,
        runners: 1_000,
    };
    /// Half a minute: shows that everything runs, not how fast it is.
    pub(crate) const QUICK: Self = Self {
        rounds: 1,
        slice: Slice { time: Duration::from_millis(20), calls: 50, calls_min: 1 },
        many: 200,
        users: 50,
        starts: 1,
        volume: 1_000_000,
        crowd: 40,
        lent_bytes: 20_000_000,
        runners: 20,
    };
}

/// One tree of one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tree {
    /// The skill of that name.
    Skill(&'static str),
    /// The workspace.
    Workspace,
}

/// Where a request of a workload goes.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub address: SocketAddr,
    pub tree: Tree,
    pub user: Cow<'static, str>,
}

impl Side {
    /// A tree of the user that the fixture is filled for.
    #[must_use]
    pub(crate) fn new(service: &Service, tree: Tree) -> Self {
        Self { address: service.address, tree, user: Cow::Borrowed(USER) }
    }

    /// The same tree of another user.
    #[must_use]
    pub(crate) fn of(&self, user: String) -> Self {
        Self { user: Cow::Owned(user), ..self.clone() }
    }

    /// The URL path of something in the tree.
    #[must_use]
    pub(crate) fn target(&self, rest: &str) -> String {
        let user = &self.user;
        match self.tree {
            Tree::Skill(skill) => format!("/v1/skills/{user}/a/{skill}/{rest}"),
            Tree::Workspace => format!("/v1/sandbox/{user}/a/{rest}"),
        }
    }
}

/// Both services, each once relaxed and once strict, on fresh directories, filled with the same.
pub(crate) struct Bench {
    pub effort: Effort,
    pub relaxed: Pair,
    pub strict: Pair,
    pub programs: Programs,
    /// For the floors.
    pub scratch: TempDir,
    archives: Vec<(&'static str, Vec<u8>)>,
    place: PathBuf,
}

/// The programs that are started.
pub(crate) struct Programs {
    pub filesecbox: PathBuf,
    pub bare: PathBuf,
}

/// The service under test and the one to compare with.
pub(crate) struct Pair {
    pub filesecbox: Service,
    pub bare: Service,
    /// The directory of the service under test.
    pub root: TempDir,
    _bare_root: TempDir,
}

impl Bench {
    /// Starts everything below `place`.
    ///
    /// # Errors
    /// [`Failure::Io`], [`Failure::NotReady`], [`Failure::Answer`].
    pub(crate) fn start(effort: Effort, programs: Programs, place: &Path) -> Result<Self> {
        let relaxed = Pair::start(&programs, place, false)?;
        let strict = Pair::start(&programs, place, true)?;
        let archives = vec![
            ("demo.zip", fixture::demo()?),
            ("tiny.zip", fixture::tiny()?),
            ("many.zip", fixture::many(effort.many)?),
        ];
        let (scratch, place) = (fresh(place)?, place.to_owned());
        let bench = Self { effort, relaxed, strict, programs, scratch, archives, place };
        for pair in [&bench.relaxed, &bench.strict] {
            for service in [&pair.filesecbox, &pair.bare] {
                bench.fill(service)?;
            }
        }
        Ok(bench)
    }

    /// Fills a service with what the workloads use.
    ///
    /// # Errors
    /// [`Failure::Io`], [`Failure::Answer`].
    pub(crate) fn fill(&self, service: &Service) -> Result<()> {
        fill(&mut service.connect()?, &self.archives)
    }

    /// A fresh directory on the file system under test.
    ///
    /// # Errors
    /// [`Failure::Io`].
    pub(crate) fn fresh(&self) -> Result<TempDir> {
        fresh(&self.place)
    }

    /// The median of every side. The sides take turns, forwards and backwards, so that what the machine does
    /// besides meets all of them.
    ///
    /// # Errors
    /// The error of `measure`.
    pub(crate) fn compare<S, const N: usize>(
        &self,
        sides: [S; N],
        mut measure: impl FnMut(&S) -> Result<Figure>,
    ) -> Result<[Figure; N]> {
        let figures = self.compare_optional(sides.map(Some), |side| measure(side))?;
        Ok(figures.map(|figure| figure.unwrap_or(Figure { value: f64::NAN, tail: None })))
    }

    /// As [`Bench::compare`], where some sides may be absent.
    ///
    /// # Errors
    /// The error of `measure`.
    pub(crate) fn compare_optional<S, const N: usize>(
        &self,
        sides: [Option<S>; N],
        mut measure: impl FnMut(&S) -> Result<Figure>,
    ) -> Result<[Option<Figure>; N]> {
        let mut values = [const { Vec::new() }; N];
        for round in 0..=self.effort.rounds {
            let mut turns: Vec<_> = sides.iter().zip(&mut values).collect();
            if round % 2 == 1 {
                turns.reverse();
            }
            for (side, values) in turns {
                let Some(side) = side else { continue };
                let value = measure(side)?;
                if round > 0 {
                    values.push(value);
                }
            }
        }
        Ok(values.map(|figures: Vec<Figure>| {
            (!figures.is_empty()).then(|| Figure {
                value: median(figures.iter().map(|figure| figure.value).collect()),
                tail: figures.iter().map(|figure| figure.tail).collect::<Option<Vec<f64>>>().map(median),
            })
        }))
    }
}

impl Pair {
    fn start(programs: &Programs, place: &Path, strict: bool) -> Result<Self> {
        let (root, bare_root) = (fresh(place)?, fresh(place)?);
        let filesecbox =
            Service::start(Kind::Filesecbox { config: None }, &programs.filesecbox, root.path(), strict)?;
        let bare = Service::start(Kind::Bare, &programs.bare, bare_root.path(), strict)?;
        Ok(Self { filesecbox, bare, root, _bare_root: bare_root })
    }

    /// The trees that a workload compares: a skill, the workspace, and the skill of the bare service.
    #[must_use]
    pub(crate) fn sides(&self, skill: &'static str) -> [Side; 3] {
        [
            Side::new(&self.filesecbox, Tree::Skill(skill)),
            Side::new(&self.filesecbox, Tree::Workspace),
            Side::new(&self.bare, Tree::Skill(skill)),
        ]
    }
}

fn fresh(place: &Path) -> Result<TempDir> {
    tempfile::Builder::new().prefix("bench-").tempdir_in(place).map_err(Failure::io("make a directory"))
}

fn fill(connection: &mut Connection, archives: &[(&str, Vec<u8>)]) -> Result<()> {
    for (name, archive) in archives {
        connection.call(&client::upload("/v1/skills/u/a/upload?scope=baseline", name, archive))?;
    }
    let workspace = "/v1/sandbox/u/a/raw";
    let octets = "application/octet-stream";
    for (name, bytes) in [("small.txt", fixture::small()), ("lines.txt", fixture::lines())] {
        connection.call(&client::with_body(
            "PUT",
            &format!("{workspace}/{name}?parents=true"),
            octets,
            &bytes,
        ))?;
    }
    let large = vec![b'x'; fixture::LARGE_BYTES];
    connection.call(&client::with_body("PUT", &format!("{workspace}/large.bin"), octets, &large))?;
    Ok(())
}

/// The middle value.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
