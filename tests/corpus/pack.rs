//! [`Packed`]: the ways in which people pack a skill.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Deserialize;

use crate::zip::{Entry, zip};

/// A way to pack a skill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Packed {
    /// A ZIP of the folder.
    Folder,
    /// The same as macOS makes it, with `__MACOSX` and `.DS_Store`.
    Mac,
    /// A ZIP of what is in the folder, with `SKILL.md` at the root.
    Root,
    /// "Download ZIP" of a repository that has the skill in `skills/`.
    Repository,
    /// A ZIP of a project that has the skill in `.claude/skills/`.
    Project,
    /// A plugin bundle with a manifest.
    Plugin,
    /// A ZIP with a folder of a category around the skill.
    Category,
    /// A tar.gz of the folder, with `./` before the names.
    TarGz,
    /// A tar.zst of the folder.
    TarZst,
}

/// One file of a skill.
struct File {
    /// Relative to the skill.
    path: String,
    mode: u32,
    data: Vec<u8>,
}

impl Packed {
    /// The words of the table.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Folder => "folder in a ZIP",
            Self::Mac => "ZIP of macOS",
            Self::Root => "ZIP with `SKILL.md` at the root",
            Self::Repository => "repository's ZIP",
            Self::Project => "`.claude/skills` of a project",
            Self::Plugin => "plugin bundle",
            Self::Category => "folder of a category",
            Self::TarGz => "tar.gz",
            Self::TarZst => "tar.zst",
        }
    }

    /// The name under which a browser uploads the archive of the skill `name`.
    pub(crate) fn file_name(self, name: &str) -> String {
        match self {
            Self::Folder | Self::Mac | Self::Category => format!("{name}.zip"),
            Self::Root => "archive (1).zip".to_owned(),
            Self::Repository => "tools-main.zip".to_owned(),
            Self::Project | Self::Plugin => "bundle.zip".to_owned(),
            Self::TarGz => format!("{name}.tar.gz"),
            Self::TarZst => format!("{name}.tar.zst"),
        }
    }

    /// The archive of the skill `name` in `directory`.
    pub(crate) fn pack(self, name: &str, directory: &Path) -> Vec<u8> {
        let files = files(directory);
        let extra = |path: &str, text: &str| Entry::file(path, text);
        let zipped = |prefix: &str, beside: Vec<Entry>| {
            let entries = files
                .iter()
                .map(|file| Entry::file(&format!("{prefix}{}", file.path), &file.data).mode(file.mode));
            zip(&beside.into_iter().chain(entries).collect::<Vec<_>>())
        };
        let readme = "# Tools\n\nA collection of skills.\n";
        match self {
            Self::Folder => {
                zipped(&format!("{name}/"), vec![extra(&format!("{name}/"), "").mode(0o755).directory()])
            }
            Self::Mac => zipped(
                &format!("{name}/"),
                vec![
                    extra(&format!("{name}/.DS_Store"), "Bud1"),
                    extra(&format!("__MACOSX/._{name}"), "Mac OS X"),
                    extra(&format!("__MACOSX/{name}/._SKILL.md"), "Mac OS X"),
                ],
            ),
            Self::Root => zipped("", Vec::new()),
            Self::Repository => zipped(
                &format!("tools-main/skills/{name}/"),
                vec![
                    extra("tools-main/README.md", readme),
                    extra("tools-main/LICENSE", "Apache-2.0\n"),
                    extra("tools-main/package.json", "{\"name\": \"tools\", \"private\": true}\n"),
                    extra("tools-main/.github/workflows/test.yml", "on: push\n"),
                ],
            ),
            Self::Project => zipped(
                &format!("project/.claude/skills/{name}/"),
                vec![extra("project/README.md", readme), extra("project/src/index.js", "export {};\n")],
            ),
            Self::Plugin => zipped(
                &format!("office-plugin/skills/{name}/"),
                vec![
                    extra(
                        "office-plugin/.claude-plugin/plugin.json",
                        "{\"name\": \"office-plugin\", \"version\": \"1.0.0\"}\n",
                    ),
                    extra("office-plugin/commands/help.md", "Tell what the plugin can do.\n"),
                    extra("office-plugin/README.md", readme),
                ],
            ),
            Self::Category => {
                zipped(&format!("documents/{name}/"), vec![extra("documents/README.md", readme)])
            }
            Self::TarGz => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(&tarred(&format!("./{name}/"), &files)).unwrap();
                encoder.finish().unwrap()
            }
            Self::TarZst => zstd::encode_all(&tarred(&format!("{name}/"), &files)[..], 3).unwrap(),
        }
    }
}

/// The files of a skill, sorted.
fn files(directory: &Path) -> Vec<File> {
    let walk = walkdir::WalkDir::new(directory).sort_by_file_name().into_iter().map(Result::unwrap);
    let files = walk.filter(|entry| entry.file_type().is_file()).map(|entry| {
        let is_executable = entry.metadata().unwrap().permissions().mode() & 0o100 != 0;
        File {
            path: entry.path().strip_prefix(directory).unwrap().to_str().unwrap().to_owned(),
            mode: if is_executable { 0o755 } else { 0o644 },
            data: fs::read(entry.path()).unwrap(),
        }
    });
    files.collect()
}

fn tarred(prefix: &str, files: &[File]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for file in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(file.data.len() as u64);
        header.set_mode(file.mode);
        header.set_mtime(1_709_208_000);
        // `append_data` would take the leading `./` away.
        let path = format!("{prefix}{}", file.path);
        let name = &mut header.as_old_mut().name;
        assert!(path.len() < name.len(), "{path} is too long for a plain header");
        name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        builder.append(&header, &file.data[..]).unwrap();
    }
    builder.into_inner().unwrap()
}
