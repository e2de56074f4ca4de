//! Which files on this host are the programs that may run.
//!
//! Names become files when the launcher is prepared. A program that the host upgrades later is another file and is refused,
//! until a run fails and the programs are looked up again: what may run is what was looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use policy::command::{CommandPolicy, Profile};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::walls::binary::{self, Binary};

/// What a run may execute, where that is not what the launcher's configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Which programs may run.
    pub whitelist: Whitelist,
    /// Whether code is run from what the run can write to. Where it is not and the launcher's configuration says
    /// otherwise, native code in memory files can be mapped all the same: by an allowed program, behind the same walls.
    pub code_in_trees: bool,
}

/// Which programs may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whitelist {
    /// Only these.
    Listed {
        /// Names that a caller may start.
        direct: Vec<String>,
        /// Further names that running programs may start.
        helpers: Vec<String>,
        /// Further names of direct programs: the name, and the program's.
        aliases: Vec<(String, String)>,
        /// Directories, absolute, whose programs running programs may start.
        directories: Vec<PathBuf>,
    },
    /// A caller may start these; running programs may start every program in the system directories.
    Open {
        /// Names that a caller may start.
        direct: Vec<String>,
        /// Further names of direct programs: the name, and the program's.
        aliases: Vec<(String, String)>,
    },
}

impl From<&CommandPolicy> for Whitelist {
    fn from(policy: &CommandPolicy) -> Self {
        let direct = policy.direct().map(str::to_owned).collect();
        let aliases =
            policy.aliases().map(|(alias, program)| (alias.to_owned(), program.to_owned())).collect();
        match policy.profile() {
            Profile::Strict | Profile::Default | Profile::Developer => Self::Listed {
                direct,
                helpers: policy.helpers().map(str::to_owned).collect(),
                aliases,
                directories: policy.directories().map(PathBuf::from).collect(),
            },
            Profile::Open => Self::Open { direct, aliases },
        }
    }
}

impl Whitelist {
    fn direct(&self) -> &[String] {
        match self {
            Self::Listed { direct, .. } | Self::Open { direct, .. } => direct,
        }
    }

    fn helpers(&self) -> &[String] {
        match self {
            Self::Listed { helpers, .. } => helpers,
            Self::Open { .. } => &[],
        }
    }

    fn directories(&self) -> &[PathBuf] {
        match self {
            Self::Listed { directories, .. } => directories,
            Self::Open { .. } => &[],
        }
    }

    fn aliases(&self) -> &[(String, String)] {
        match self {
            Self::Listed { aliases, .. } | Self::Open { aliases, .. } => aliases,
        }
    }
}

/// Where further names of programs are in mounted runs, such as `python`.
pub const ALIASES: &str = "/run/aliases";

/// The search path of a host whose administrator says nothing.
pub const SEARCH_PATH: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// How many interpreters an interpreter may have; the kernel's own bound (execve(2)).
const INTERPRETERS_MAX: usize = 4;

/// The programs of a whitelist as files of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// The file by which each direct name is started; `None` when the host has none.
    direct: BTreeMap<String, Option<PathBuf>>,
    /// Names that the host's search path lacks, or under which it has a shim first, and the file of each.
    aliases: BTreeMap<String, PathBuf>,
    /// All that may be executed, resolved: programs, loaders, interpreters.
    executable: BTreeSet<PathBuf>,
    /// Libraries of programs outside the system's directories.
    libraries: BTreeSet<PathBuf>,
    /// Directories whose programs may be executed.
    directories: Vec<PathBuf>,
    /// Names of helpers that the host lacks.
    missing_helpers: Vec<String>,
    /// The names a run may use, for messages.
    names: BTreeSet<String>,
    search_path: Vec<PathBuf>,
    open: bool,
    /// The device, inode and change time of each file that may be executed, by which a replaced one is known.
    identities: BTreeMap<PathBuf, (u64, u64, i64)>,
}

impl Programs {
    /// Looks for every name of `whitelist` in `search_path`, in order.
    ///
    /// A real program is preferred over a script of the same name that comes earlier: such scripts are version
    /// managers' shims, which choose another program by rules and files that a run cannot see.
    #[must_use]
    pub fn resolve(whitelist: &Whitelist, search_path: &[PathBuf]) -> Self {
        let mut programs = Self {
            direct: BTreeMap::new(),
            aliases: BTreeMap::new(),
            executable: BTreeSet::new(),
            libraries: BTreeSet::new(),
            directories: whitelist.directories().iter().filter(|path| path.is_dir()).cloned().collect(),
            missing_helpers: Vec::new(),
            names: BTreeSet::new(),
            search_path: search_path.to_vec(),
            open: matches!(whitelist, Whitelist::Open { .. }),
            identities: BTreeMap::new(),
        };
        let mut real = RealPaths::default();
        for name in whitelist.direct() {
            let file = programs.admit(name, &mut real, INTERPRETERS_MAX);
            programs.direct.insert(name.clone(), file);
        }
        for name in whitelist.helpers() {
            if programs.admit(name, &mut real, INTERPRETERS_MAX).is_none() {
                programs.missing_helpers.push(name.clone());
            }
        }
        for (alias, name) in whitelist.aliases() {
            // A program of that name that the host has is the one that scripts mean.
            if programs.admit(alias, &mut real, INTERPRETERS_MAX).is_none()
                && let Some(Some(file)) = programs.direct.get(name)
            {
                programs.aliases.insert(alias.clone(), file.clone());
                programs.names.insert(alias.clone());
            }
        }
        let identity = |file: &PathBuf| {
            let meta = file.metadata().ok()?;
            Some((file.clone(), (meta.dev(), meta.ino(), meta.ctime())))
        };
        programs.identities = programs.executable.iter().filter_map(identity).collect();
        programs
    }

    /// Names that the host's search path lacks, such as `python`, or under which it has a shim first, and the file of each:
    /// for a directory that comes first on the search path of runs.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.aliases.iter().map(|(alias, file)| (alias.as_str(), file.as_path()))
    }

    /// The file to start for the direct name `name`.
    ///
    /// # Errors
    /// * [`Error::ProgramNotAllowed`]: the name is not on the list (paths never are).
    /// * [`Error::ProgramMissing`]: it is, but the host lacks it.
    pub fn file(&self, name: &str) -> Result<&Path, Error> {
        match self.direct.get(name) {
            Some(Some(file)) => Ok(file),
            Some(None) => Err(Error::ProgramMissing { program: name.to_owned() }),
            None => {
                let allowed: Vec<&str> = self.direct.keys().map(String::as_str).collect();
                Err(Error::ProgramNotAllowed { program: shorten(name), allowed: allowed.join(" ") })
            }
        }
    }

    /// The names on the list that this host lacks, direct ones first.
    #[must_use]
    pub fn missing(&self) -> Vec<&str> {
        let direct = self.direct.iter().filter(|(_, file)| file.is_none()).map(|(name, _)| name.as_str());
        direct.chain(self.missing_helpers.iter().map(String::as_str)).collect()
    }

    /// All names that a process of a run may execute, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Tells whether running programs may start every program in the system directories.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The directories searched, in order.
    #[must_use]
    pub fn search_path(&self) -> &[PathBuf] {
        &self.search_path
    }

    /// The files that may be executed.
    pub(crate) fn executable(&self) -> impl Iterator<Item = &Path> {
        self.executable.iter().map(PathBuf::as_path)
    }

    /// The libraries of programs outside the system's directories.
    pub(crate) fn libraries(&self) -> impl Iterator<Item = &Path> {
        self.libraries.iter().map(PathBuf::as_path)
    }

    /// The directories whose programs may be executed.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directories.iter().map(PathBuf::as_path)
    }

    /// Allows the program called `name` and all that it needs; the file by which it is started.
    fn admit(&mut self, name: &str, real: &mut RealPaths, depth: usize) -> Option<PathBuf> {
        if name.is_empty() || name.contains('/') {
            return None;
        }
        // The first of that name, unless a later one is an ELF file.
        let mut chosen: Option<(PathBuf, Binary)> = None;
        let mut is_shimmed = false;
        for path in self.search_path.iter().map(|directory| directory.join(name)) {
            if !is_program(&path) {
                continue;
            }
            let binary = binary::inspect(&path).unwrap_or(Binary::Unknown);
            let is_elf = matches!(binary, Binary::Elf { .. });
            if chosen.is_none() || is_elf {
                is_shimmed = chosen.replace((path, binary)).is_some();
            }
            if is_elf {
                break;
            }
        }
        let (path, binary) = chosen?;
        self.admit_file(&path, binary, real, depth)?;
        self.names.insert(name.to_owned());
        if is_shimmed {
            // Shells find the shim first, which may not run.
            self.aliases.insert(name.to_owned(), path.clone());
        }
        Some(path)
    }

    /// Allows the file at `path`, which is `binary`, its loader and its interpreters.
    fn admit_file(&mut self, path: &Path, binary: Binary, real: &mut RealPaths, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let file = real.of(path)?;
        match binary {
            Binary::Elf { loader } => {
                if let Some(loader) = loader {
                    self.executable.insert(real.of(&loader)?);
                }
            }
            Binary::Script { interpreter, argument } => {
                let binary = binary::inspect(&interpreter).ok()?;
                self.admit_file(&interpreter, binary, real, depth)?;
                if interpreter.file_name().is_some_and(|name| name == "env") {
                    let name = argument.as_deref().and_then(env_program)?.to_owned();
                    self.admit(&name, real, depth)?;
                }
            }
            Binary::Unknown => return None,
        }
        self.libraries.extend(own_libraries(&file));
        self.executable.insert(file);
        Some(())
    }
}

/// Paths without links. Each directory is looked up once: most programs are in one, and have one loader.
#[derive(Default)]
struct RealPaths {
    known: HashMap<PathBuf, Option<PathBuf>>,
}

impl RealPaths {
    /// As [`Path::canonicalize`], of an absolute path; `None` where there is nothing.
    fn of(&mut self, path: &Path) -> Option<PathBuf> {
        if let Some(known) = self.known.get(path) {
            return known.clone();
        }
        let real = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => self.of(parent).map(|parent| parent.join(name)).and_then(followed),
            _ => path.canonicalize().ok(),
        };
        self.known.insert(path.to_path_buf(), real.clone());
        real
    }
}

/// The file that `path` leads to, in a directory that is no link; `None` where there is nothing.
fn followed(path: PathBuf) -> Option<PathBuf> {
    match path.read_link() {
        Ok(_) => path.canonicalize().ok(),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Some(path),
        Err(_) => None,
    }
}

/// The program that `env` starts for the rest of a first line, such as `-S python3 -I`.
fn env_program(argument: &str) -> Option<&str> {
    argument.split_ascii_whitespace().find(|word| !word.starts_with('-') && !word.contains('='))
}

/// The library directories that belong to a program installed under a prefix of its own, such as `/opt/python`.
fn own_libraries(file: &Path) -> Vec<PathBuf> {
    let prefix =
        file.parent().filter(|bin| bin.file_name().is_some_and(|name| name == "bin")).and_then(Path::parent);
    match prefix {
        Some(prefix) if !["/", "/usr", "/usr/local"].iter().any(|system| prefix == Path::new(system)) => {
            ["lib", "lib64", "share", "include"].iter().map(|name| prefix.join(name)).collect()
        }
        _ => Vec::new(),
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The beginning of a text from outside, for a message.
pub(crate) fn shorten(text: &str) -> String {
    const CHARACTERS: usize = 80;
    match text.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn listed(direct: &[&str], helpers: &[&str]) -> Whitelist {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Whitelist::Listed {
            direct: own(direct),
            helpers: own(helpers),
            aliases: Vec::new(),
            directories: Vec::new(),
        }
    }

    fn executable(directory: &Path, name: &str, text: &str) {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_program_brings_its_loader_and_a_script_its_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        executable(directory.path(), "tool", "#!/bin/sh\n");
        let path = [directory.path().to_path_buf()];
        let programs = Programs::resolve(&listed(&["tool"], &[]), &path);
        assert_eq!(programs.file("tool").unwrap(), directory.path().join("tool"));
        let shell = Path::new("/bin/sh").canonicalize().unwrap();
        assert!(programs.executable().any(|file| file == shell));
        assert!(programs.executable().count() >= 3, "tool, shell, loader");
    }

    #[test]
    fn a_shim_before_the_real_program_is_passed_over() {
        let (shims, real) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        executable(shims.path(), "python3", "#!/usr/bin/env bash\n");
        fs::copy("/bin/sh", real.path().join("python3")).unwrap();
        let path = [shims.path().to_path_buf(), real.path().to_path_buf()];
        let programs = Programs::resolve(&listed(&["python3"], &[]), &path);
        let chosen = real.path().join("python3");
        assert_eq!(programs.file("python3").unwrap(), chosen);
        // In a shell, too: its name comes first on the search path of runs.
        assert_eq!(programs.aliases().collect::<Vec<_>>(), [("python3", chosen.as_path())]);
    }

    #[test]
    fn a_further_name_leads_to_the_program_unless_the_host_has_one_of_that_name() {
        let directory = tempfile::tempdir().unwrap();
        executable(directory.path(), "real", "#!/bin/sh\n");
        let path = [directory.path().to_path_buf()];
        let aliases = vec![("other".to_owned(), "real".to_owned()), ("none".to_owned(), "absent".to_owned())];
        let whitelist = Whitelist::Listed {
            direct: vec!["real".to_owned(), "absent".to_owned()],
            helpers: Vec::new(),
            aliases,
            directories: Vec::new(),
        };
        let real = directory.path().join("real");
        let programs = Programs::resolve(&whitelist, &path);
        assert_eq!(programs.aliases().collect::<Vec<_>>(), [("other", real.as_path())]);
        executable(directory.path(), "other", "#!/bin/sh\n");
        assert_eq!(Programs::resolve(&whitelist, &path).aliases().count(), 0);
    }

    #[test]
    fn names_off_the_list_and_missing_ones_have_different_errors() {
        let programs = Programs::resolve(
            &listed(&["sh", "no-such-program"], &["nor-this"]),
            &SEARCH_PATH.map(Into::into),
        );
        assert!(matches!(programs.file("perl"), Err(Error::ProgramNotAllowed { .. })));
        assert!(matches!(programs.file("/bin/sh"), Err(Error::ProgramNotAllowed { .. })));
        assert!(matches!(programs.file("no-such-program"), Err(Error::ProgramMissing { .. })));
        assert_eq!(programs.missing(), ["no-such-program", "nor-this"]);
    }

    #[test]
    fn scripts_that_interpret_each_other_end() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("a").display().to_string();
        executable(directory.path(), "a", &format!("#!{name}\n"));
        executable(directory.path(), "b", "#!/usr/bin/env b\n");
        let programs = Programs::resolve(&listed(&["a", "b"], &[]), &[directory.path().to_path_buf()]);
        assert_eq!(programs.missing(), ["a", "b"]);
    }
}
