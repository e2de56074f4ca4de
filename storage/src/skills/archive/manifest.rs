//! Names of plugins, from the manifests that lie beside skills.
//!
//! `.claude-plugin/plugin.json` names the plugin of its folder, and `.claude-plugin/marketplace.json` those of a whole
//! repository. They are read for names alone: to tell which plugin a skill belongs to, and to keep two skills of one
//! name apart. No path in them is opened, and a manifest that cannot be read is a warning.

use std::collections::BTreeMap;

use policy::skill_md;
use serde_json::Value;

use super::tree::{Directory, Node, PackedFile};
use crate::error::{Result, excerpt};

/// The directory of manifests in a plugin's or a marketplace's folder.
const DIRECTORY: &str = ".claude-plugin";
/// Manifests of one archive that are read; further ones are passed over with a warning.
const MANIFESTS_MAX: usize = 64;
/// The largest manifest that is read, in bytes.
const MANIFEST_BYTES_MAX: u64 = 256 * 1024;

/// The plugins of an archive.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    /// Names of plugins by the path of a skill that belongs to one.
    skills: BTreeMap<String, String>,
    /// Names of plugins by the path of a folder in which all belongs to one.
    folders: BTreeMap<String, String>,
    /// What was not read.
    pub(super) warnings: Vec<String>,
}

impl Plugins {
    /// Reads the manifests in `root`; `read` gives the content of a file.
    ///
    /// # Errors
    /// What `read` answers.
    pub(super) fn read(
        root: &Directory,
        read: &mut dyn FnMut(&PackedFile, &str) -> Result<Vec<u8>>,
    ) -> Result<Self> {
        let mut manifests = Vec::new();
        find(root, "", &mut manifests);
        let mut plugins = Self::default();
        if manifests.len() > MANIFESTS_MAX {
            let message = format!("of {} manifests of plugins {MANIFESTS_MAX} were read", manifests.len());
            plugins.warnings.push(message);
        }
        for Manifest { folder, name, file } in manifests.into_iter().take(MANIFESTS_MAX) {
            let path = joined(&folder, &format!("{DIRECTORY}/{name}"));
            let value = if file.size > MANIFEST_BYTES_MAX {
                None
            } else {
                serde_json::from_slice::<Value>(&read(file, &path)?).ok().filter(Value::is_object)
            };
            match value {
                Some(value) if name == "plugin.json" => plugins.plugin(&folder, &value),
                Some(value) => plugins.marketplace(&folder, &value),
                None => {
                    let path = excerpt(path.as_bytes());
                    let limit = MANIFEST_BYTES_MAX;
                    plugins.warnings.push(format!(
                        "`{path}` was not read: it is no JSON object, or has more than {limit} bytes"
                    ));
                }
            }
        }
        Ok(plugins)
    }

    /// The plugin that the skill at `path` belongs to.
    pub(super) fn of(&self, path: &str) -> Option<&str> {
        if let Some(name) = self.skills.get(path) {
            return Some(name);
        }
        let mut folder = path;
        loop {
            if let Some(name) = self.folders.get(folder) {
                return Some(name);
            }
            folder = match folder.rsplit_once('/') {
                Some((above, _)) => above,
                None if folder.is_empty() => return None,
                None => "",
            };
        }
    }

    fn plugin(&mut self, folder: &str, manifest: &Value) {
        if let Some(name) = plugin_name(manifest) {
            self.folders.insert(folder.to_owned(), name);
        }
    }

    /// Plugins of a marketplace; those that lie elsewhere (a repository, a URL) are passed over.
    fn marketplace(&mut self, folder: &str, manifest: &Value) {
        let plugins = manifest.get("plugins").and_then(Value::as_array);
        let above = manifest.get("metadata").and_then(|metadata| metadata.get("pluginRoot"));
        for plugin in plugins.into_iter().flatten() {
            let Some(name) = plugin_name(plugin) else { continue };
            let Some(source) = plugin.get("source").and_then(Value::as_str) else { continue };
            let root = above.and_then(Value::as_str).and_then(|above| beneath(folder, above));
            let place = beneath(root.as_deref().unwrap_or(folder), source);
            let Some(place) = place else { continue };
            let listed: Vec<&str> = match plugin.get("skills") {
                Some(Value::String(path)) => vec![path],
                Some(Value::Array(paths)) => paths.iter().filter_map(Value::as_str).collect(),
                _ => Vec::new(),
            };
            if listed.is_empty() {
                self.folders.entry(place).or_insert(name);
                continue;
            }
            for path in listed.iter().filter_map(|path| beneath(&place, path)) {
                self.skills.insert(path, name.clone());
            }
        }
    }
}

/// One manifest: the folder that it speaks of, its name and content.
struct Manifest<'tree> {
    folder: String,
    name: &'static str,
    file: &'tree PackedFile,
}

fn find<'tree>(directory: &'tree Directory, folder: &str, found: &mut Vec<Manifest<'tree>>) {
    for (name, below) in directory.directories() {
        if name != DIRECTORY {
            find(below, &joined(folder, name), found);
            continue;
        }
        for name in ["marketplace.json", "plugin.json"] {
            if let Some(Node::File(file)) = below.children.get(name) {
                found.push(Manifest { folder: folder.to_owned(), name, file });
            }
        }
    }
}

fn plugin_name(plugin: &Value) -> Option<String> {
    let name = plugin.get("name").and_then(Value::as_str).filter(|name| skill_md::is_name(name));
    name.map(str::to_owned)
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// The path `relative` from `folder`; `None` when it climbs or is absolute.
fn beneath(folder: &str, relative: &str) -> Option<String> {
    if relative.starts_with('/') || relative.contains('\\') {
        return None;
    }
    let mut path = folder.to_owned();
    for segment in relative.split('/').filter(|segment| !matches!(*segment, "" | ".")) {
        if segment == ".." {
            return None;
        }
        path = joined(&path, segment);
    }
    Some(path)
}
