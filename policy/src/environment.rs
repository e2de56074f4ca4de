//! The environment a command starts with: built from an allow list, never inherited.
//!
//! Three sources, later ones winning: the fixed variables of [`RunDirs`], those of the configuration
//! ([`Configured`]), those of the request. No source can pass a variable that could carry a secret of the
//! platform, or that makes the loader or an interpreter run other code than the one that was named.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::command::Refusal;

/// Longest value, in bytes: `MAX_ARG_STRLEN` of execve(2) less the longest name, `=` and NUL.
const VALUE_BYTES_MAX: usize = 130_000;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Beginnings of names that belong to the platform, in any case of letters.
const SECRET_PREFIXES: [&str; 3] = ["KUBERNETES_", "SERVICE_", "SECRET_"];

/// Beginnings of names that the dynamic loader or the shell acts on before the program does
/// (ld.so(8); bash(1), FUNCTIONS).
const LOADER_PREFIXES: [&str; 2] = ["LD_", "BASH_FUNC_"];

/// Names that make a loader or an interpreter run, read or write files that the command line does not name.
const LOADER_NAMES: [&str; 26] = [
    "BASHOPTS",
    "BASH_ENV",
    "BASH_XTRACEFD",
    "CDPATH",
    "ENV",
    "GCONV_PATH",
    "GETCONF_DIR",
    "GLIBC_TUNABLES",
    "GLOBIGNORE",
    "HOSTALIASES",
    "IFS",
    "LOCALDOMAIN",
    "LOCPATH",
    "MALLOC_CHECK_",
    "MALLOC_PERTURB_",
    "MALLOC_TRACE",
    "NLSPATH",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHONBREAKPOINT",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONSTARTUP",
    "RESOLV_HOST_CONF",
    "RES_OPTIONS",
    "SHELLOPTS",
];

/// Names whose value the service alone knows.
const OWN_NAMES: [&str; 3] = ["OLDPWD", "PWD", "WORKSPACE"];

/// Where a run finds its directories, as absolute paths inside the run.
#[derive(Clone, Copy, Debug)]
pub struct RunDirs<'a> {
    /// The tree, given to the command as `WORKSPACE`.
    pub tree: &'a str,
    /// The working directory: the tree or a directory in it.
    pub dir: &'a str,
    /// The private home directory, which also holds caches and installed packages.
    pub home: &'a str,
    /// The private directory for temporary files.
    pub tmp: &'a str,
    /// The directories of the system's programs, separated by `:`. Those of packages in the home come before them, those
    /// of packages in the tree after them.
    pub programs: &'a str,
    /// The run could write the system's Python packages, as far as access(2) tells: it is root, and neither a
    /// change of user nor a read-only system stands in between.
    pub system_is_writable: bool,
}

/// Variables from the configuration, each proven fit to be passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configured(Vec<(String, String)>);

/// A variable of the configuration that can never be passed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the configured environment variable `{name}` {problem}")]
pub struct ConfiguredError {
    /// The name as configured, shortened.
    pub name: String,
    /// The fault of the variable.
    pub problem: VariableProblem,
}

/// Why a variable cannot be passed to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VariableProblem {
    /// Not `[A-Za-z_][A-Za-z0-9_]*`, or longer than 255 bytes.
    #[error(
        "has no valid name: use at most {NAME_BYTES_MAX} letters, digits and `_`, not beginning with a digit"
    )]
    Name,
    /// Begins with a prefix reserved for the platform.
    #[error(
        "begins with a prefix reserved for the platform (`KUBERNETES_`, `SERVICE_`, `SECRET_`): rename it"
    )]
    Secret,
    /// Changes what the loader or an interpreter runs.
    #[error("changes what the loader, the shell or python runs: leave it out, or set it inside the script")]
    Loader,
    /// Set by the service.
    #[error("is set by the service: leave it out")]
    Own,
    /// The value holds a NUL byte.
    #[error("has a NUL byte in its value: remove it")]
    Nul,
    /// The value is too long.
    #[error("has a value of more than {VALUE_BYTES_MAX} bytes: write it to a file")]
    TooLong,
}

impl Configured {
    /// Takes the variables of the configuration.
    ///
    /// # Errors
    /// The first variable that can never be passed.
    pub fn new(variables: Vec<(String, String)>) -> Result<Self, ConfiguredError> {
        for (name, value) in &variables {
            check(name, value).map_err(|problem| ConfiguredError { name: shown(name), problem })?;
        }
        Ok(Self(variables))
    }
}

/// Builds the environment of a run: sorted by name, each name once.
///
/// `requested` are the variables that the caller sent; all names and values together are at most
/// `environment_bytes` (each counts 10 more for `=`, NUL and its pointer, as execve(2) does).
///
/// # Errors
/// [`Refusal::Invalid`]: a requested variable may not be passed, or all together are too long.
pub fn build(
    dirs: RunDirs<'_>,
    configured: &Configured,
    requested: &[(String, String)],
    environment_bytes: usize,
) -> Result<Vec<(String, String)>, Refusal> {
    let mut variables = BTreeMap::new();
    if dirs.system_is_writable {
        // Else pip finds out itself and installs below `PYTHONUSERBASE`. Forcing it always would break
        // `pip install --target` and virtual environments, which refuse to be combined with it.
        variables.insert("PIP_USER".to_owned(), "1".to_owned());
    }
    for (name, value) in fixed(dirs) {
        variables.insert(name.to_owned(), value);
    }
    variables.extend(configured.0.iter().cloned());
    for (name, value) in requested {
        check(name, value).map_err(|problem| {
            Refusal::invalid(format!("the environment variable `{}` {problem}", shown(name)))
        })?;
        variables.insert(name.clone(), value.clone());
    }
    let total: usize = variables.iter().map(|(name, value)| name.len() + value.len() + 10).sum();
    if total > environment_bytes {
        return Err(Refusal::invalid(format!(
            "the environment takes {total} bytes, at most {environment_bytes} are possible: write long values to a file"
        )));
    }
    Ok(variables.into_iter().collect())
}

/// The variables that every run has.
fn fixed(dirs: RunDirs<'_>) -> [(&'static str, String); 22] {
    let RunDirs { tree, dir, home, tmp, programs, .. } = dirs;
    [
        ("PATH", format!("{home}/.local/bin:{programs}:{tree}/node_modules/.bin")),
        // The characters alone: for `LANG` or `LC_ALL` every program opens a dozen files more, a tenth of a millisecond,
        // to learn that all else is as in C.
        ("LC_CTYPE", "C.UTF-8".to_owned()),
        ("HOME", home.to_owned()),
        ("USER", "sandbox".to_owned()),
        ("LOGNAME", "sandbox".to_owned()),
        ("SHELL", "/bin/bash".to_owned()),
        ("TERM", "dumb".to_owned()),
        ("TMPDIR", tmp.to_owned()),
        ("PWD", dir.to_owned()),
        ("WORKSPACE", tree.to_owned()),
        ("XDG_CACHE_HOME", format!("{home}/.cache")),
        ("XDG_CONFIG_HOME", format!("{home}/.config")),
        ("XDG_DATA_HOME", format!("{home}/.local/share")),
        // Python: packages below the home, on Debian too, which guards the system's own against pip (PEP 668);
        // no byte code, so that running a script changes no file of the tree. What pip installs is compiled then.
        ("PYTHONUSERBASE", format!("{home}/.local")),
        ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
        ("PYTHONUTF8", "1".to_owned()),
        ("PYTHONIOENCODING", "utf-8".to_owned()),
        ("PIP_BREAK_SYSTEM_PACKAGES", "1".to_owned()),
        ("PIP_CACHE_DIR", format!("{home}/.cache/pip")),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1".to_owned()),
        ("PIP_NO_INPUT", "1".to_owned()),
        ("PIP_ROOT_USER_ACTION", "ignore".to_owned()),
    ]
}

fn check(name: &str, value: &str) -> Result<(), VariableProblem> {
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && name.len() <= NAME_BYTES_MAX;
    if !is_name {
        return Err(VariableProblem::Name);
    }
    let upper = name.to_ascii_uppercase();
    if SECRET_PREFIXES.iter().any(|prefix| upper.starts_with(prefix)) {
        return Err(VariableProblem::Secret);
    }
    if LOADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || LOADER_NAMES.contains(&name) {
        return Err(VariableProblem::Loader);
    }
    if OWN_NAMES.contains(&name) {
        return Err(VariableProblem::Own);
    }
    if value.contains('\0') {
        return Err(VariableProblem::Nul);
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(VariableProblem::TooLong);
    }
    Ok(())
}

/// A name fit for one line of a message.
fn shown(name: &str) -> String {
    name.chars().take(64).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRS: RunDirs<'_> = RunDirs {
        tree: "/workspace",
        dir: "/workspace/src",
        home: "/scratch/home",
        tmp: "/scratch/tmp",
        programs: "/usr/bin:/bin",
        system_is_writable: false,
    };

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    fn requested(name: &str, value: &str) -> Result<Vec<(String, String)>, Refusal> {
        build(DIRS, &Configured::default(), &[pair(name, value)], 100_000)
    }

    #[test]
    fn the_environment_is_sorted_unique_and_points_into_the_sandbox() {
        let configured = Configured::new(vec![pair("TERM", "xterm"), pair("A", "1")]).unwrap();
        let environment = build(DIRS, &configured, &[pair("A", "2"), pair("A", "3")], 100_000).unwrap();
        let names: Vec<&String> = environment.iter().map(|(name, _)| name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        for wanted in [
            pair("PATH", "/scratch/home/.local/bin:/usr/bin:/bin:/workspace/node_modules/.bin"),
            pair("HOME", "/scratch/home"),
            pair("PIP_CACHE_DIR", "/scratch/home/.cache/pip"),
            pair("PYTHONUSERBASE", "/scratch/home/.local"),
            pair("PWD", "/workspace/src"),
            pair("WORKSPACE", "/workspace"),
            pair("TERM", "xterm"),
            pair("A", "3"),
        ] {
            assert!(environment.contains(&wanted), "{wanted:?}");
        }
    }

    #[test]
    fn pip_is_kept_from_the_system_only_where_nothing_else_keeps_it() {
        for system_is_writable in [false, true] {
            let dirs = RunDirs { system_is_writable, ..DIRS };
            let environment = build(dirs, &Configured::default(), &[], 100_000).unwrap();
            assert_eq!(environment.contains(&pair("PIP_USER", "1")), system_is_writable);
        }
    }

    #[test]
    fn names_of_the_platform_never_pass_in_any_case_from_any_source() {
        for name in ["KUBERNETES_SERVICE_HOST", "service_token", "Secret_Key", "SECRET_"] {
            let message = requested(name, "x").unwrap_err().to_string();
            assert!(message.contains("reserved for the platform"), "{message}");
            let error = Configured::new(vec![pair(name, "x")]).unwrap_err();
            assert_eq!(error, ConfiguredError { name: name.to_owned(), problem: VariableProblem::Secret });
        }
        assert!(requested("MY_SECRET_KEY", "x").is_ok());
        assert!(requested("SERVICES", "x").is_ok());
    }

    #[test]
    fn variables_that_hijack_a_loader_or_shell_are_refused_with_a_reason() {
        for name in
            ["LD_PRELOAD", "LD_LIBRARY_PATH", "GLIBC_TUNABLES", "BASH_ENV", "ENV", "IFS", "PYTHONSTARTUP"]
        {
            let message = requested(name, "x").unwrap_err().to_string();
            assert!(message.contains(name) && message.contains("leave it out"), "{message}");
        }
        assert!(requested("PYTHONPATH", "/workspace/lib").is_ok());
        assert!(requested("PWD", "/").is_err());
    }

    #[test]
    fn a_bad_name_or_value_is_refused() {
        let long = "x".repeat(300);
        for name in ["", "A=B", "1A", "A B", "A\0", "名", "BASH_FUNC_x%%", &long] {
            assert!(requested(name, "x").is_err(), "{name:?}");
        }
        assert!(requested("A", "x\0").is_err());
        assert!(requested("A", &"x".repeat(99_999)).is_err());
        assert!(requested("A", "多行\n值").is_ok());
    }
}
