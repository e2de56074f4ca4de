//! [`Rules`]: which paths commands may use.
//!
//! # References
//! `landlock(7)`.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
    make_bitflags,
};

/// The hidden first argument of the launcher.
pub const SUBCOMMAND: &str = "confined-command";
/// The word between the rules and the command.
pub(super) const END_OF_RULES: &str = "--";

/// The newest rights asked for; the crate leaves out what the kernel lacks.
const NEWEST: ABI = ABI::V7;

const LIST: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadDir});
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
const RUN: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});
const DEVICE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev});
// No devices: a file system that lets users make them would lead around all rules.
const OWN: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | Execute | MakeReg | MakeDir | MakeSym | MakeFifo | MakeSock | RemoveFile | RemoveDir | Refer
});

/// The system, without what is a person's.
const SYSTEM: [&str; 13] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/etc",
    "/nix/store",
    "/gnu/store",
    "/snap",
    "/run/current-system",
];
/// What the kernel tells, and where names of hosts are looked up.
const TOLD: [&str; 4] = ["/proc", "/sys", "/run/systemd/resolve", "/run/NetworkManager/resolv.conf"];
/// Devices with nothing behind them, and the command's own terminal.
const DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// What is a command's own, and what it may run beside the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// Directories that commands may do everything in.
    pub(super) own: Vec<PathBuf>,
    /// Directories with programs.
    pub(super) read: Vec<PathBuf>,
}

impl Rules {
    /// The words of the launcher, before those of the command.
    pub(super) fn to_words(&self) -> Vec<String> {
        // The very program that runs, also when its file was replaced meanwhile.
        let mut words = vec!["/proc/self/exe".to_owned(), SUBCOMMAND.to_owned()];
        let mut add = |kind: char, paths: &[PathBuf]| {
            // A path that is no text cannot be told, and is not granted.
            words.extend(paths.iter().filter_map(|path| Some(format!("{kind}{}", path.to_str()?))));
        };
        add('w', &self.own);
        add('r', &self.read);
        words.push(END_OF_RULES.to_owned());
        words
    }

    /// Reads a word of [`Rules::to_words`].
    pub(super) fn add(&mut self, word: &str) -> bool {
        match (word.strip_prefix('w'), word.strip_prefix('r')) {
            (Some(path), _) => self.own.push(path.into()),
            (_, Some(path)) => self.read.push(path.into()),
            _ => return false,
        }
        true
    }

    /// Confines this thread, and what it becomes, for ever.
    pub(super) fn enforce(&self) -> Result<RestrictionStatus, RulesetError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?;
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        let granted = [
            (paths(&["/dev"]), LIST),
            (paths(&SYSTEM), RUN),
            (self.read.clone(), RUN),
            (paths(&TOLD), READ),
            (paths(&DEVICES), DEVICE | LIST),
            (self.own.clone(), OWN),
        ];
        for (paths, access) in granted {
            for path in paths {
                // What is not there needs no rule.
                let Ok(place) = PathFd::new(&path) else { continue };
                // Rights of directories mean nothing for a file; the crate leaves them out.
                ruleset = ruleset.add_rule(PathBeneath::new(place, access))?;
            }
        }
        ruleset.restrict_self()
    }
}

/// The Landlock ABI that would hold commands, if any.
pub(super) fn probe() -> Option<i32> {
    // Landlock confines a thread, so that one can be spent on finding out.
    let spent = std::thread::spawn(|| Rules { own: Vec::new(), read: Vec::new() }.enforce());
    let status = spent.join().ok()?.ok()?;
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if status.ruleset != RulesetStatus::NotEnforced => {
            Some(effective_abi as i32)
        }
        _ => None,
    }
}
