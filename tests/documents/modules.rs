//! No two modules beside each other use each other, directly or through others, so that each can be understood with
//! only those below it in mind; and the floors of a crate know only the floors below them.
//!
//! What a module uses is what the paths in its files name. Methods are no paths: one that is called through a value is
//! not seen here. So the type that every floor of `storage` has in its hands gets no methods from the floors above its
//! own, but for one each that leads to theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, ImplItem, Item, ItemUse, Type, UseTree};

/// The crates; `service` is the one at the root of the workspace.
const CRATES: &[&str] =
    &["policy", "dirfd", "storage", "exec", "egress", "sandbox", "agent", "runner", "service", "bench"];

/// The floors of a crate, the highest first. The modules of one floor do not know each other.
type Floors = &'static [&'static [&'static str]];

/// The crates; the one at the root of the workspace is `filesecbox`.
const WORKSPACE: Floors = &[
    &["filesecbox"],
    &["agent", "bench", "runner"],
    &["egress", "exec", "sandbox", "storage"],
    &["dirfd"],
    &["policy"],
];

const DIRFD: Floors = &[
    &["remove", "unnamed"],
    &["attributes", "closed", "frozen", "list", "make", "open", "rename", "sync"],
    &["fixture"],
    &["beneath", "dir"],
    &["error", "stat", "trace"],
];

const STORAGE: Floors = &[
    &["open"],
    &["runs"],
    &["skills", "workspaces"],
    &["files"],
    &["core"],
    &["layers"],
    &["version"],
    &["dir", "interrupt", "layout"],
    &["error"],
    &["encoding", "stat"],
];

const EXEC: Floors = &[
    &["fuzzing", "service", "zygote"],
    &["walls", "supervisor"],
    &["wire", "error"],
    &["loopback", "workloads"],
    &["census", "company", "limit", "network_owner", "socket_tables", "step", "sys", "tier"],
];

const SERVICE: Floors = &[
    &["cli"],
    &["serve"],
    &["http", "local", "confine"],
    &["mcp"],
    &["ops", "serve_error"],
    &["audit", "telemetry", "config", "log_lines"],
    &["access", "metrics", "registry"],
];

/// A module, by the names that lead to it from the root of its crate.
type Module = Vec<String>;

/// Which module uses which beside it, and a file and a path that say so.
type Uses = BTreeMap<(Module, Module), String>;

#[test]
fn modules_beside_each_other_form_no_cycle() {
    for name in CRATES {
        let uses = uses_in(name);
        assert!(uses.len() > 10, "{name}: only {} uses were found", uses.len());
        let mut done = BTreeSet::new();
        for (from, _) in uses.keys() {
            if let Some(cycle) = cycle_from(from, &uses, &mut Vec::new(), &mut done) {
                let steps = cycle.iter().zip(cycle.iter().skip(1));
                let told: Vec<&str> = steps
                    .filter_map(|(from, to)| uses.get(&(from.clone(), to.clone())))
                    .map(String::as_str)
                    .collect();
                panic!("{name}: {}", told.join(",\n  "));
            }
        }
    }
}

#[test]
fn floors_know_only_those_below() {
    for (name, floors) in [("dirfd", DIRFD), ("storage", STORAGE), ("exec", EXEC), ("service", SERVICE)] {
        let floor = |module: &str| floors.iter().position(|row| row.contains(&module));
        for ((from, to), told) in uses_in(name) {
            let ([from], [to]) = (from.as_slice(), to.as_slice()) else { continue };
            let (above, below) = (floor(from), floor(to));
            assert!(above.is_some() && below.is_some(), "{name}: `{from}` or `{to}` is on no floor: {told}");
            assert!(above < below, "{name}: `{from}` may not know `{to}`: {told}");
        }
    }
}

#[test]
fn crates_know_only_those_below() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let members = WORKSPACE.iter().copied().flatten().copied();
    let floor = |name: &str| WORKSPACE.iter().position(|row| row.contains(&name));
    let mut known = BTreeSet::new();
    for name in members {
        let directory = if name == "filesecbox" { "." } else { name };
        let text = fs::read_to_string(root.join(directory).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        for dependency in manifest["dependencies"].as_table().unwrap().keys() {
            let Some(below) = floor(dependency) else { continue };
            assert!(floor(name) < Some(below), "`{name}` may not know `{dependency}`");
            known.insert(dependency.clone());
        }
        let listed = manifest.get("workspace").and_then(|workspace| workspace["members"].as_array());
        assert!(
            listed.is_none_or(|listed| listed.len() + 1 == WORKSPACE.concat().len()),
            "a crate is on no floor"
        );
    }
    assert!(known.contains("policy") && known.contains("sandbox"), "no uses were found");
}

/// A floor above the core has a type of its own for what it does, as `Files`. To the core's `Store` it adds a method that
/// gives one, and `open` adds the way to get a store.
#[test]
fn a_store_has_no_methods_of_the_floors_above_it_but_those_that_lead_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("storage/src");
    let mut added = BTreeSet::new();
    for (module, file) in modules(&root) {
        if module.first().is_some_and(|floor| floor == "core") {
            continue;
        }
        let text = fs::read_to_string(file).unwrap();
        for item in syn::parse_file(&text).unwrap().items {
            let Item::Impl(block) = item else { continue };
            let Type::Path(of) = *block.self_ty else { continue };
            if block.trait_.is_none() && of.path.is_ident("Store") {
                let methods = block.items.iter().map(|item| match item {
                    ImplItem::Fn(method) => method.sig.ident.to_string(),
                    _ => "no method".to_owned(),
                });
                added.extend(methods.map(|method| format!("{}: {method}", module.join("::"))));
            }
        }
    }
    let expected = [
        "files: files",
        "open: open",
        "runs: runs",
        "skills: skills",
        "skills::packages: packages",
        "workspaces: workspaces",
        "workspaces::snapshots: snapshots",
    ];
    assert_eq!(added, expected.map(str::to_owned).into());
}

/// The way from `module` back to one that is on the way already.
fn cycle_from(
    module: &Module,
    uses: &Uses,
    way: &mut Vec<Module>,
    done: &mut BTreeSet<Module>,
) -> Option<Vec<Module>> {
    if let Some(at) = way.iter().position(|before| before == module) {
        let mut cycle = way.split_off(at);
        cycle.push(module.clone());
        return Some(cycle);
    }
    if done.contains(module) {
        return None;
    }
    way.push(module.clone());
    for (from, to) in uses.keys() {
        if from == module
            && let Some(cycle) = cycle_from(to, uses, way, done)
        {
            return Some(cycle);
        }
    }
    way.pop();
    done.insert(module.clone());
    None
}

/// The neighbours that the modules of a crate use.
fn uses_in(crate_name: &str) -> Uses {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root =
        if crate_name == "service" { workspace.to_owned() } else { workspace.join(crate_name) }.join("src");
    let files = modules(&root);
    let mut uses = Uses::new();
    for (module, file) in &files {
        let text = fs::read_to_string(file).unwrap();
        let mut paths = Paths::default();
        paths.visit_file(&syn::parse_file(&text).unwrap());
        for path in paths.found {
            let Some(used) = resolve(module, &path, &files) else { continue };
            let shared = module.iter().zip(&used).take_while(|(one, other)| one == other).count();
            // One within the other is no neighbour of it.
            let (Some(_), Some(_)) = (module.get(shared), used.get(shared)) else { continue };
            let neighbours = (module[..=shared].to_vec(), used[..=shared].to_vec());
            let shown = file.strip_prefix(&root).unwrap().display();
            uses.entry(neighbours).or_insert_with(|| format!("{shown} uses `{}`", path.join("::")));
        }
    }
    uses
}

/// The files of a crate by module.
fn modules(root: &Path) -> BTreeMap<Module, PathBuf> {
    let files = walkdir::WalkDir::new(root).into_iter().flatten().map(walkdir::DirEntry::into_path);
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let module = |path: &Path| {
        let path = path.strip_prefix(root).unwrap().with_extension("");
        let mut names: Module = path.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
        if names.last().is_some_and(|name| name == "mod")
            || ["lib", "main"].contains(&names.join("/").as_str())
        {
            names.pop();
        }
        names
    };
    files.map(|path| (module(&path), path)).collect()
}

/// The module that holds what `path`, written in `module`, names.
fn resolve(module: &Module, path: &[String], files: &BTreeMap<Module, PathBuf>) -> Option<Module> {
    let (first, mut rest) = path.split_first()?;
    let mut whole = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.clone(),
        "super" => module.split_last()?.1.to_vec(),
        _ => return None,
    };
    while let [name, after @ ..] = rest
        && name == "super"
    {
        whole.pop();
        rest = after;
    }
    whole.extend(rest.iter().cloned());
    while !files.contains_key(&whole) {
        whole.pop()?;
    }
    Some(whole)
}

/// The paths in a file, without those of tests and of documentation.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl Paths {
    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: String| before.iter().cloned().chain([name]).collect::<Vec<_>>();
        match tree {
            UseTree::Path(path) => self.add_tree(&with(path.ident.to_string()), &path.tree),
            UseTree::Name(name) => self.found.push(with(name.ident.to_string())),
            UseTree::Rename(rename) => self.found.push(with(rename.ident.to_string())),
            UseTree::Glob(_) => self.found.push(before.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree)),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes: &[Attribute] = match item {
            Item::Mod(module) => &module.attrs,
            Item::Use(import) => &import.attrs,
            Item::Fn(function) => &function.attrs,
            Item::Impl(block) => &block.attrs,
            _ => &[],
        };
        if !attributes.iter().any(is_left_out) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        self.add_tree(&[], &import.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.found.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// `#[cfg(test)]` and `#[cfg(doc)]`.
fn is_left_out(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Ident>().is_ok_and(|what| what == "test" || what == "doc")
}
