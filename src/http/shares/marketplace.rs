//! A plugin marketplace of Claude Code: a list of plugins, each a package that the list says how to get from a registry of npm,
//! which is the link itself.
//!
//! # References
//! <https://code.claude.com/docs/en/plugin-marketplaces>; <https://github.com/npm/registry/blob/main/docs/responses/package-metadata.md>.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use policy::RelPath;
use serde_json::{Value, json};
use storage::ArtifactForm;

use super::by_link::{ByLink, missing};
use crate::http::answer::Answer;
use crate::http::answer::problem::Problem;
use crate::ops::shares::catalog::{SharedSkill, is_name};

/// The directory in a package that everything lies in (npm).
const TOP: &str = "package";

/// The plugins of a link: one for each skill.
pub(super) async fn marketplace(link: &ByLink) -> Answer {
    let catalog = link.app.service.shared(link.share.clone()).await?;
    let market = market(link);
    let plugin = |skill: SharedSkill| {
        let version = skill.package_version();
        json!({
            "name": skill.alias,
            "description": skill.description,
            "version": version,
            "source": {
                "source": "npm",
                "package": format!("@{market}/{}", skill.alias),
                "version": version,
                "registry": format!("{}/npm", link.base),
            },
        })
    };
    let plugins: Vec<Value> = catalog.skills.into_iter().map(plugin).collect();
    link.current(&json!({ "name": market, "owner": { "name": market }, "plugins": plugins }))
}

/// What npm says of a package.
pub(super) async fn package(link: &ByLink, name: &str) -> Answer {
    let market = market(link);
    let alias = name.strip_prefix('@').and_then(|name| name.strip_prefix(market.as_str()));
    let alias = alias.and_then(|name| name.strip_prefix('/')).ok_or_else(missing)?;
    let skill =
        link.app.service.shared_as(link.share.clone(), alias.to_owned()).await?.ok_or_else(missing)?;
    let digests = link.app.service.shared_digests(&link.share, &skill, &form(&market, &skill)?).await?;
    let digests = digests.map_err(|_| missing())?;
    let version = skill.package_version();
    let tarball = format!("{}/npm/-/{alias}/{alias}-{version}.tgz", link.base);
    let integrity = format!("sha512-{}", STANDARD.encode(digests.sha512));
    let one = json!({
        "name": name,
        "version": version,
        "description": skill.description,
        "dist": { "tarball": tarball, "integrity": integrity },
    });
    link.current(&json!({
        "name": name,
        "description": skill.description,
        "dist-tags": { "latest": version },
        "versions": { version: one },
    }))
}

/// A package: the skill as a plugin.
pub(super) async fn tarball(link: &ByLink, alias: &str, file: &str) -> Answer {
    let skill =
        link.app.service.shared_as(link.share.clone(), alias.to_owned()).await?.ok_or_else(missing)?;
    if file != format!("{alias}-{}.tgz", skill.package_version()) {
        return Err(missing());
    }
    let packed = link.app.service.pack_shared(&link.share, &skill, &form(&market(link), &skill)?).await?;
    link.archive(packed.map_err(|_| missing())?, "application/gzip", file, true)
}

/// The name of the marketplace: the agent's, where it is one.
fn market(link: &ByLink) -> String {
    let agent = link.share.agent.as_str();
    if is_name(agent) {
        return agent.to_owned();
    }
    let digits = blake3::hash(agent.as_bytes()).to_hex();
    format!("agent-{}", digits.get(..8).unwrap_or_default())
}

/// A plugin with one skill, as a package.
fn form(market: &str, skill: &SharedSkill) -> Result<ArtifactForm, Problem> {
    let (alias, version) = (&skill.alias, skill.package_version());
    let at = |path: &str| RelPath::parse(&format!("{TOP}/{path}"));
    let package = json!({
        "name": format!("@{market}/{alias}"),
        "version": version,
        "description": skill.description,
    });
    let plugin = json!({ "name": alias, "version": version, "description": skill.description });
    let beside = vec![
        (at("package.json")?, package.to_string().into_bytes()),
        (at(".claude-plugin/plugin.json")?, plugin.to_string().into_bytes()),
    ];
    Ok(ArtifactForm::Within { under: at(&format!("skills/{alias}"))?, beside })
}
