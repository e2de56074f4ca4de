//! [`Attack`]: one thing that a command or a caller must not be able to do, and how it is tried.

use crate::expectation::{Expectations, Expected, Finding};
use crate::payload;
use crate::scene::Scene;

/// One attack. Its name is what the report, the document and the payload call it.
pub(crate) struct Attack {
    /// Its name, in words joined by underscores.
    pub(crate) name: &'static str,
    /// The expectation for each tier.
    pub(crate) expectations: Expectations,
    /// Whether nothing else may run meanwhile, because it measures time, memory or processes.
    pub(crate) alone: bool,
    /// Whether it waits more than it works, so that it is made on all stages at once.
    pub(crate) waits: bool,
    how: How,
}

enum How {
    /// The function of this name in a file of `payloads/`, once on something of its own and once on what it is after.
    Payload { file: &'static str, prey: fn(&Scene<'_>) -> Option<Prey> },
    /// Code that acts as the caller, and looks at the host.
    Driven(fn(&Scene<'_>) -> Finding),
}

/// The input of a payload, once for its control and once for the attack.
#[derive(Default)]
pub(crate) struct Prey {
    /// Arguments with which it must obtain something.
    pub(crate) control: Vec<String>,
    /// Arguments with which it must not.
    pub(crate) evil: Vec<String>,
}

impl Prey {
    /// One argument each.
    pub(crate) fn one(control: impl Into<String>, evil: impl Into<String>) -> Self {
        Self { control: vec![control.into()], evil: vec![evil.into()] }
    }
}

impl Attack {
    /// An attack made by a payload that needs to be told nothing.
    pub(crate) const fn payload(file: &'static str, name: &'static str) -> Self {
        Self::hunting(file, name, |_| Some(Prey::default()))
    }

    /// An attack made by a payload on a prey; without one it is skipped.
    pub(crate) const fn hunting(
        file: &'static str,
        name: &'static str,
        prey: fn(&Scene<'_>) -> Option<Prey>,
    ) -> Self {
        Self {
            name,
            expectations: Expectations::WALLED,
            alone: false,
            waits: false,
            how: How::Payload { file, prey },
        }
    }

    /// An attack made by code on this side.
    pub(crate) const fn driven(name: &'static str, attack: fn(&Scene<'_>) -> Finding) -> Self {
        Self {
            name,
            expectations: Expectations::WALLED,
            alone: false,
            waits: false,
            how: How::Driven(attack),
        }
    }

    /// The same with other expectations.
    pub(crate) const fn expecting(self, expectations: Expectations) -> Self {
        Self { expectations, ..self }
    }

    /// The same, stopped at every tier.
    pub(crate) const fn everywhere(self) -> Self {
        self.expecting(Expectations::EVERYWHERE)
    }

    /// The same, with nothing else at the same time.
    pub(crate) const fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// The same, on all stages at once.
    pub(crate) const fn waiting(self) -> Self {
        Self { waits: true, ..self }
    }

    /// Makes the attack.
    ///
    /// # Panics
    /// When the control fails: then nothing is known about the attack.
    pub(crate) fn make(&self, scene: &Scene<'_>) -> Finding {
        match &self.how {
            How::Payload { file, prey } => match prey(scene) {
                Some(prey) => payload::hunt(scene, file, &prey),
                None => Finding::Skipped("what it is after is not here, or needs a look at the host".into()),
            },
            How::Driven(attack) => attack(scene),
        }
    }

    /// The expectation in a scene.
    pub(crate) fn expected(&self, scene: &Scene<'_>) -> Expected {
        let [root, without] = self.expectations.of(scene.stage.tier);
        if scene.stage.is_root { root } else { without }
    }
}
