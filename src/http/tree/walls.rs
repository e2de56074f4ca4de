//! [`Walls`]: how much a result tells of what confined its run.
//!
//! `GET /v1/info` tells all of it once. A result tells the tier, and what was otherwise for this run.

use exec::{Enforcement, ExecResult};
use serde::Deserialize;
use serde_json::Value;

use crate::http::App;
use crate::ops::run::confined::Confined;

/// How much a caller wants to be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum Told {
    /// The tier, and what differs from `GET /v1/info`.
    #[default]
    Differing,
    /// All of it.
    Full,
}

/// What results tell of the walls around their runs.
pub(in crate::http) struct Walls {
    told: Told,
    /// The walls that `GET /v1/info` tells of.
    host: Value,
}

impl Walls {
    pub(in crate::http) fn of(app: &App, told: Told) -> Self {
        let host: &Enforcement = &app.service.host().enforcement;
        Self { told, host: serde_json::to_value(host).unwrap_or_default() }
    }

    /// A result as a caller is told it.
    pub(in crate::http) fn result(&self, result: ExecResult<Confined>) -> ExecResult<Value> {
        result.confined_by(|confined| {
            let mut walls = serde_json::to_value(confined).unwrap_or_default();
            self.shorten(&mut walls);
            walls
        })
    }

    /// How a run ended as a caller is told it.
    pub(in crate::http) fn exit(&self, exit: &Value) -> Value {
        let mut exit = exit.clone();
        if let Some(walls) = exit.get_mut("enforcement") {
            self.shorten(walls);
        }
        exit
    }

    /// Takes away what is the same for every run of this host. What another backend says of a run stays.
    fn shorten(&self, walls: &mut Value) {
        let (Told::Differing, Some(fields)) = (self.told, walls.as_object_mut()) else { return };
        if fields.contains_key("backend") {
            return;
        }
        if let (Some(Value::Array(notes)), Some(Value::Array(known))) =
            (fields.get_mut("notes"), self.host.get("notes"))
        {
            notes.retain(|note| !known.contains(note));
        }
        fields.retain(|name, value| match value {
            Value::Array(notes) if name == "notes" => !notes.is_empty(),
            value => name == "tier" || self.host.get(name) != Some(value),
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_the_same_for_every_run_is_left_out_and_nothing_else() {
        let kept = json!({"state": "enforced"});
        let host = json!({"tier": "namespaces", "files": kept, "network": kept, "notes": ["a", "b"]});
        let told = |told, mut walls: Value| {
            Walls { told, host: host.clone() }.shorten(&mut walls);
            walls
        };
        assert_eq!(told(Told::Differing, host.clone()), json!({"tier": "namespaces"}));
        let other = json!({"tier": "landlock", "files": kept, "network": {"state": "unavailable", "reason": "r"},
                           "memory": kept, "notes": ["b", "c"]});
        let differing = json!({"tier": "landlock", "network": {"state": "unavailable", "reason": "r"},
                               "memory": kept, "notes": ["c"]});
        assert_eq!(told(Told::Differing, other.clone()), differing);
        assert_eq!(told(Told::Full, other.clone()), other);
        let elsewhere = json!({"tier": "elsewhere", "backend": "docker", "notes": ["a"]});
        assert_eq!(told(Told::Differing, elsewhere.clone()), elsewhere);
    }
}
