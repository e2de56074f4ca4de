//! How far the failures of a backend are believed.

use sandbox::ErrorKind;

/// Whether `operation`, which is the name of a method of backends, can fail so. The routes promise no more.
pub(super) fn is_possible(operation: &str, kind: ErrorKind) -> bool {
    use ErrorKind::{AlreadyExists, IsDirectory, NotADirectory, NotEmpty, Quota, Stale, TooLarge};
    match operation {
        // Only a swap can find another version, and what it finds is told in other words.
        _ if kind == Stale => false,
        "workspace" | "shell" => {
            !matches!(kind, AlreadyExists | IsDirectory | NotADirectory | NotEmpty | Quota | TooLarge)
        }
        "stat" => !matches!(kind, AlreadyExists | IsDirectory | NotEmpty | Quota | TooLarge),
        "read_dir" => !matches!(kind, AlreadyExists | IsDirectory | NotEmpty | Quota),
        "read_file" => !matches!(kind, AlreadyExists | NotEmpty | Quota),
        "mkdir_all" => kind != IsDirectory,
        "remove" | "remove_all" => kind != AlreadyExists,
        "exec" => !matches!(kind, AlreadyExists | NotEmpty),
        _ => true,
    }
}
