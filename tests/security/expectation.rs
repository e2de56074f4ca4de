//! The expectation of each tier for an attack, and the outcome.

use std::fmt;

/// The promise of a tier about one attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The attack gets nothing.
    Stopped,
    /// The tier does not promise to stop it, and why.
    NotStopped(&'static str),
    /// Not tried at this tier, and why; without a reason because nothing there would stop it.
    NotRun(&'static str),
}

/// The outcome of an attack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// No canary was obtained and no side effect was found.
    Stopped,
    /// The attack got through; the evidence.
    Through(String),
    /// It could not be tried here, and what is lacking.
    Skipped(String),
}

/// A tier, as a column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Tier {
    /// Rules, environment, limits, deadline.
    Process,
    /// Landlock and seccomp.
    Landlock,
    /// Own namespaces besides.
    Namespaces,
}

impl Tier {
    /// All of them, weakest first.
    pub(crate) const ALL: [Self; 3] = [Self::Process, Self::Landlock, Self::Namespaces];

    /// The tier of a name as the service writes it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.to_string() == name)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Process => "process",
            Self::Landlock => "landlock",
            Self::Namespaces => "namespaces",
        })
    }
}

/// The expectations of all tiers: `[as root, without root]` for each.
///
/// "As root" means that the service is root; its commands never are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectations {
    process: [Expected; 2],
    landlock: [Expected; 2],
    namespaces: [Expected; 2],
}

impl Expectations {
    /// For what is stopped by walls: everywhere but at tier `process`, where it is not even tried.
    pub(crate) const WALLED: Self = Self {
        process: [Expected::NotRun(""); 2],
        landlock: [Expected::Stopped; 2],
        namespaces: [Expected::Stopped; 2],
    };

    /// For attacks that the service itself stops, at every tier.
    pub(crate) const EVERYWHERE: Self = Self {
        process: [Expected::Stopped; 2],
        landlock: [Expected::Stopped; 2],
        namespaces: [Expected::Stopped; 2],
    };

    /// The same, but at tier `process`.
    pub(crate) const fn process(self, expected: Expected) -> Self {
        Self { process: [expected; 2], ..self }
    }

    /// The same, but at tier `landlock`.
    pub(crate) const fn landlock(self, expected: Expected) -> Self {
        Self { landlock: [expected; 2], ..self }
    }

    /// The same, but at tier `landlock` of a service without root.
    pub(crate) const fn landlock_without_root(self, expected: Expected) -> Self {
        Self { landlock: [self.landlock[0], expected], ..self }
    }

    /// The same, but at tier `namespaces`.
    pub(crate) const fn namespaces(self, expected: Expected) -> Self {
        Self { namespaces: [expected; 2], ..self }
    }

    /// The same, but at tier `namespaces` of a service without root.
    pub(crate) const fn namespaces_without_root(self, expected: Expected) -> Self {
        Self { namespaces: [self.namespaces[0], expected], ..self }
    }

    /// The promise of `tier`, `[as root, without root]`.
    pub(crate) fn of(&self, tier: Tier) -> [Expected; 2] {
        match tier {
            Tier::Process => self.process,
            Tier::Landlock => self.landlock,
            Tier::Namespaces => self.namespaces,
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => formatter.write_str("stopped"),
            Self::NotStopped(why) => write!(formatter, "**not stopped**: {why}"),
            Self::NotRun("") => formatter.write_str("not run"),
            Self::NotRun(why) => write!(formatter, "not run: {why}"),
        }
    }
}
