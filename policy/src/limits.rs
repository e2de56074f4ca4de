//! Every bound of the service as data, each with its unit.

use std::time::Duration;

use serde::{Deserialize, Serialize};

const MIB: u64 = 1024 * 1024;

/// Bounds on an uploaded archive. The defaults refuse none of 29 818 real skills.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArchiveLimits {
    /// Size of the upload itself, in bytes.
    pub upload_bytes: u64,
    /// Entries in the archive, directories included.
    pub entries: usize,
    /// Unpacked size of all files together, in bytes really written.
    pub total_bytes: u64,
    /// Unpacked size of one file, in bytes really written.
    pub file_bytes: u64,
    /// Directory levels below the skill.
    pub depth: usize,
    /// Length of one path, in bytes of UTF-8.
    pub path_bytes: usize,
    /// Unpacked bytes per packed byte, applied only to files above [`ArchiveLimits::ratio_from_bytes`].
    pub ratio: u64,
    /// Unpacked size from which `ratio` counts, in bytes: a small and very regular CSV is no bomb.
    pub ratio_from_bytes: u64,
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        Self {
            upload_bytes: 200 * MIB,
            entries: 10_000,
            total_bytes: 200 * MIB,
            file_bytes: 50 * MIB,
            depth: 32,
            path_bytes: 1024,
            ratio: 200,
            ratio_from_bytes: 32 * MIB,
        }
    }
}

/// Bounds on file operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileLimits {
    /// Size of a file written through `raw`, in bytes.
    pub raw_bytes: u64,
    /// Size of a file read or changed as text (`content`, `edit`, `replace`), in bytes.
    pub text_bytes: u64,
    /// Entries in one listing answer.
    pub list_entries: usize,
    /// Entries of one tree that a walk visits before it gives up.
    pub tree_entries: usize,
    /// Size of a merged view that is copied for a run, in bytes.
    pub view_bytes: u64,
    /// Size of a skill that is downloaded, in bytes before they are packed: each name by itself, holes of files included.
    pub download_bytes: u64,
    /// Longest that comparing and taking in what a run did to a copy may take, in milliseconds: the rest is left out.
    pub absorb_ms: u64,
    /// Longest search (`glob`, `grep`), in milliseconds: what was found by then is answered.
    pub search_ms: u64,
}

impl Default for FileLimits {
    fn default() -> Self {
        Self {
            raw_bytes: 500 * MIB,
            text_bytes: 32 * MIB,
            list_entries: 100_000,
            tree_entries: 200_000,
            view_bytes: 1024 * MIB,
            download_bytes: 512 * MIB,
            absorb_ms: 10_000,
            search_ms: 10_000,
        }
    }
}

/// Bounds on what lies on the disk: for each tree, for all that a user has, and for the file system.
///
/// A tree is the overlay of one skill, or a workspace together with the home directory and the temporary files of its
/// user and agent. All that a user has is every tree with every agent, the snapshots, and what was thrown away of them and
/// is not removed yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskLimits {
    /// The room that one tree takes on the disk, in bytes of whole blocks.
    pub bytes: u64,
    /// Names in one tree: files, directories, links, and marks of what was removed from a baseline.
    pub files: u64,
    /// The room that the temporary files of one user and agent take on the disk, in bytes of whole blocks. They count for the
    /// workspace, too.
    pub tmp_bytes: u64,
    /// The room that all of a user takes on the disk together, in bytes of whole blocks.
    pub user_bytes: u64,
    /// Names in all that a user has; a file that keeps a snapshot or the content of one is a name, too.
    pub user_files: u64,
    /// The room that the file system keeps free, in bytes: below it nothing is written. 0 is no floor.
    pub free_bytes: u64,
    /// The room that a user's unfinished changes, uploads and downloads take on the disk together, in bytes.
    pub in_flight_bytes: u64,
}

impl Default for DiskLimits {
    fn default() -> Self {
        Self {
            bytes: 2048 * MIB,
            files: 100_000,
            tmp_bytes: 1024 * MIB,
            user_bytes: 16_384 * MIB,
            user_files: 1_000_000,
            free_bytes: 256 * MIB,
            in_flight_bytes: 1024 * MIB,
        }
    }
}

/// Bounds on the snapshots of one workspace. They count for [`DiskLimits::user_bytes`], and not for the workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnapshotLimits {
    /// Snapshots of one workspace.
    pub per_workspace: usize,
    /// The room that all snapshots of one workspace take on the disk together, in bytes of whole blocks: contents that
    /// several have are there once.
    pub bytes: u64,
    /// Files that keep them: one for each content, and one for each snapshot.
    pub files: u64,
    /// Snapshots that are taken, restored or removed at once, of all users.
    pub at_once: usize,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self { per_workspace: 32, bytes: 4096 * MIB, files: 200_000, at_once: 4 }
    }
}

/// Bounds on one run of a command, and on how many there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunLimits {
    /// Longest run, and the default, in milliseconds.
    pub timeout_ms: u64,
    /// Kept output per stream (half from the beginning, half from the end), in bytes.
    pub output_bytes: usize,
    /// Standard input, in bytes.
    pub stdin_bytes: usize,
    /// All arguments and environment variables together, in bytes.
    pub arguments_bytes: usize,
    /// Address space of one process, in bytes.
    pub memory_bytes: u64,
    /// Memory of all processes of one run together, in bytes.
    pub run_memory_bytes: u64,
    /// Processes and threads of one sandbox at once.
    pub processes: u64,
    /// What the runs of one user may write to the disk in a second, in the long run and while another user is there, in bytes; 0 for
    /// any amount.
    pub write_bytes_per_second: u64,
    /// Processor time of one process, in seconds.
    pub cpu_seconds: u64,
    /// Size of a file that a command writes, in bytes.
    pub file_bytes: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// Runs of one user at once.
    pub runs_per_user: usize,
    /// Runs of all users at once.
    pub runs: usize,
    /// Longest wait for a free place before `busy`, in milliseconds.
    pub queue_ms: u64,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            timeout_ms: 300_000,
            output_bytes: 1024 * 1024,
            stdin_bytes: 8 * 1024 * 1024,
            arguments_bytes: 128 * 1024,
            memory_bytes: 4096 * MIB,
            run_memory_bytes: 2048 * MIB,
            processes: 256,
            write_bytes_per_second: 32 * MIB,
            cpu_seconds: 302,
            file_bytes: 500 * MIB,
            open_files: 1024,
            runs_per_user: 8,
            runs: 64,
            queue_ms: 10_000,
        }
    }
}

/// Bounds on runs that are remembered, on those that go on in the background, and on terminals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionLimits {
    /// Events kept of one run, in bytes; the oldest give way.
    pub log_bytes: u64,
    /// Events kept of all runs together, in bytes on the disk.
    pub logs_bytes: u64,
    /// How long a run waits for a reader that takes nothing, once its log is full, in milliseconds.
    pub patience_ms: u64,
    /// Ended runs that are remembered, of all users.
    pub ended: usize,
    /// Ended runs of one user that are remembered.
    pub ended_per_user: usize,
    /// How long an ended run is remembered, in milliseconds.
    pub ended_ms: u64,
    /// Longest background run, and the default, in milliseconds.
    pub background_ms: u64,
    /// Background runs of one user at once.
    pub background_per_user: usize,
    /// Background runs of all users at once.
    pub background: usize,
    /// Longest life of a terminal, in milliseconds.
    pub terminal_ms: u64,
    /// How long a terminal lives in which nothing is typed and nothing is written, in milliseconds.
    pub terminal_idle_ms: u64,
    /// How long a terminal that no caller is connected to waits for the next one, in milliseconds; 0: it ends with its
    /// connection.
    pub terminal_resume_ms: u64,
    /// Terminals of one user at once.
    pub terminals_per_user: usize,
    /// Terminals of all users at once.
    pub terminals: usize,
    /// Runs of one user whose changes are neither committed nor discarded, those under way included.
    pub undecided_per_user: usize,
    /// The same of all users.
    pub undecided: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            log_bytes: 64 * MIB,
            logs_bytes: 1024 * MIB,
            patience_ms: 10_000,
            ended: 256,
            ended_per_user: 64,
            ended_ms: 600_000,
            background_ms: 3_600_000,
            background_per_user: 4,
            background: 32,
            terminal_ms: 3_600_000,
            terminal_idle_ms: 600_000,
            terminal_resume_ms: 60_000,
            terminals_per_user: 4,
            terminals: 32,
            undecided_per_user: 4,
            undecided: 32,
        }
    }
}

/// Bounds on the network namespaces that are kept for users and agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkLimits {
    /// Namespaces of all users, those with a run in them included.
    pub held: usize,
    /// The same of one user.
    pub held_per_user: usize,
    /// How long one is kept that no run uses, in milliseconds.
    pub idle_ms: u64,
}

impl Default for NetworkLimits {
    fn default() -> Self {
        Self { held: 256, held_per_user: 32, idle_ms: 600_000 }
    }
}

/// Bounds on connections to what commands serve, and on links to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PortLimits {
    /// Connections to ports of one user at once.
    pub connections_per_user: usize,
    /// Connections to ports of all users at once.
    pub connections: usize,
    /// How long a server may take to begin its answer, once nothing more of the request comes, in milliseconds.
    pub head_ms: u64,
    /// How long nothing may come of an answer that has begun, and nothing go through a WebSocket, in milliseconds.
    pub idle_ms: u64,
    /// The longest time for which a link counts, in seconds; at most a day.
    pub link_seconds_max: u64,
}

impl PortLimits {
    /// The most that [`PortLimits::link_seconds_max`] can be.
    pub const LINK_SECONDS_MAX: u64 = 86_400;
}

impl Default for PortLimits {
    fn default() -> Self {
        Self {
            connections_per_user: 64,
            connections: 512,
            head_ms: 60_000,
            idle_ms: 600_000,
            link_seconds_max: Self::LINK_SECONDS_MAX,
        }
    }
}

/// Bounds on streams of what becomes of the files of trees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventLimits {
    /// Streams of all users at once, and trees that are watched.
    pub listeners: usize,
    /// Streams of one user's trees at once, and trees of one user that are watched.
    pub listeners_per_user: usize,
    /// Entries of a tree that is watched; each directory of the user's own among them takes a watch of the kernel.
    pub entries: usize,
    /// Events of one tree that are kept for listeners that reconnect.
    pub history: usize,
}

impl Default for EventLimits {
    fn default() -> Self {
        Self { listeners: 100, listeners_per_user: 16, entries: 50_000, history: 4096 }
    }
}

/// Bounds on the work that requests for files and skills make, which goes on in threads.
///
/// Work has one of three weights: *light* work is one small file or one directory, a *scan* looks through a whole tree or
/// works on a whole text, and *long* work moves the bytes of whole trees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkLimits {
    /// Light work of one user at once.
    pub light_per_user: usize,
    /// Light work of all users at once.
    pub light: usize,
    /// Scans of one user at once.
    pub scans_per_user: usize,
    /// Scans of all users at once.
    pub scans: usize,
    /// Long work of one user at once.
    pub long_per_user: usize,
    /// Long work of all users at once.
    pub long: usize,
    /// Longest wait for a place, and for other requests on the same tree, before `busy`, in milliseconds.
    pub queue_ms: u64,
    /// How long any work may take, in milliseconds: then it ends, and nothing was changed.
    pub long_ms: u64,
    /// Request bodies of one user that are held in memory at once, in bytes. Bodies of up to 64 KiB do not count.
    pub bodies_bytes_per_user: usize,
    /// Request bodies of all users that are held in memory at once, in bytes.
    pub bodies_bytes: usize,
}

impl Default for WorkLimits {
    fn default() -> Self {
        Self {
            light_per_user: 16,
            light: 128,
            scans_per_user: 4,
            scans: 32,
            long_per_user: 4,
            long: 24,
            queue_ms: 10_000,
            long_ms: 120_000,
            bodies_bytes_per_user: 96 * 1024 * 1024,
            bodies_bytes: 384 * 1024 * 1024,
        }
    }
}

impl RunLimits {
    /// The deadline of a run that asked for `requested_ms`: never longer than the limit, never zero.
    #[must_use]
    pub fn deadline(&self, requested_ms: Option<u64>) -> Duration {
        Duration::from_millis(requested_ms.unwrap_or(self.timeout_ms).clamp(1, self.timeout_ms.max(1)))
    }
}
