//! [`PermitKind`]: what permits are for, in the words of a refusal.

/// What permits are for, in the words of a refusal: "4 terminals of this user are open (`…`): close one".
#[derive(Clone, Copy, Debug)]
pub struct PermitKind {
    /// Several of them: `terminals`.
    pub many: &'static str,
    /// The state of those that have a permit: `are open`.
    pub state: &'static str,
    /// The setting that says how many one user has; empty where it is fixed.
    pub setting_per_user: &'static str,
    /// The setting that says how many there are in all; empty where it is fixed.
    pub setting: &'static str,
    /// The advice to a user who needs a permit.
    pub next: &'static str,
}

impl PermitKind {
    /// Commands whose callers wait for their ends.
    pub const COMMANDS: Self = Self {
        many: "commands",
        state: "run",
        setting_per_user: "limits.runs.runs_per_user",
        setting: "limits.runs.runs",
        next: "wait until one has ended",
    };
    /// Commands in the background.
    pub const BACKGROUND: Self = Self {
        many: "background runs",
        state: "are under way",
        setting_per_user: "limits.sessions.background_per_user",
        setting: "limits.sessions.background",
        next: "end one with `DELETE exec/{exec_id}`, or wait until one has ended",
    };
    /// Terminals.
    pub const TERMINALS: Self = Self {
        many: "terminals",
        state: "are open",
        setting_per_user: "limits.sessions.terminals_per_user",
        setting: "limits.sessions.terminals",
        next: "close one",
    };
    /// Commands that work on a copy until a caller decides.
    pub const UNDECIDED: Self = Self {
        many: "runs with `\"commit\": \"ask\"`",
        state: "are under way or wait for a decision",
        setting_per_user: "limits.sessions.undecided_per_user",
        setting: "limits.sessions.undecided",
        next: "commit or discard one",
    };
    /// Streams of events.
    pub const STREAMS: Self = Self {
        many: "streams of events",
        state: "are open",
        setting_per_user: "limits.events.listeners_per_user",
        setting: "limits.events.listeners",
        next: "close one",
    };
    /// Connections to ports.
    pub const PORTS: Self = Self {
        many: "connections to ports",
        state: "are open",
        setting_per_user: "limits.ports.connections_per_user",
        setting: "limits.ports.connections",
        next: "wait until one has ended",
    };
    /// Calls over MCP.
    pub const CALLS: Self = Self {
        many: "calls",
        state: "are under way",
        setting_per_user: "mcp.calls_per_user",
        setting: "limits.connections.connections",
        next: "wait until one has ended",
    };
    /// Searches.
    pub const SEARCHES: Self = Self {
        many: "searches",
        state: "run",
        setting_per_user: "",
        setting: "",
        next: "wait until one has ended",
    };
    /// Work on snapshots.
    pub const SNAPSHOTS: Self = Self {
        many: "snapshots",
        state: "are being worked on",
        setting_per_user: "",
        setting: "limits.snapshots.at_once",
        next: "wait until one is done",
    };
    /// Preparations of workspaces.
    pub const PREPARATIONS: Self = Self {
        many: "preparations",
        state: "are under way",
        setting_per_user: "",
        setting: "",
        next: "wait until one has ended",
    };
    /// Packages that are received.
    pub const PACKAGES: Self = Self {
        many: "packages",
        state: "are being received",
        setting_per_user: "",
        setting: "",
        next: "wait until one has ended",
    };
    /// Rests of bodies that are received for nothing. They wait in turn and are never refused.
    pub const RESTS: Self = Self {
        many: "rests of bodies",
        state: "are being received",
        setting_per_user: "",
        setting: "",
        next: "wait until one has ended",
    };
}
