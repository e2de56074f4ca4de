//! A version is the same archive, byte for byte, through every client, and on another host where its files came at other times.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::clients::{PACKAGES, place, run};
use crate::doors::{ON, TOKENS};
use crate::npm;
use crate::support::{Client, Service, skill, skills};

const FILES: [(&str, &str); 3] = [
    ("数据统计/SKILL.md", "---\nname: 数据统计\ndescription: Counts lines.\n---\n# Counts\n"),
    ("数据统计/scripts/计数.py", "print(1)\n"),
    ("数据统计/empty", ""),
];

/// An archive of the skill, with a time and a way to pack of its own.
fn packed(year: u16, method: CompressionMethod, is_backwards: bool) -> Vec<u8> {
    let time = DateTime::from_date_and_time(year, 3, 4, 5, 6, 8).unwrap();
    let options = SimpleFileOptions::default().last_modified_time(time).compression_method(method);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let mut files = FILES.to_vec();
    if is_backwards {
        files.reverse();
    }
    for (name, text) in files {
        archive.start_file(name, options).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// A service where the skill is published, and its keeper.
fn host(archive: &[u8]) -> (Service, Client) {
    let service = Service::configured(&format!("{ON}{}", TOKENS.concat()));
    let keeper = service.client.with_token("keeper");
    keeper.upload(&skills("keeper", "demo"), "baseline", archive);
    (service, keeper)
}

fn native(keeper: &Client) -> String {
    let reply = keeper.get(format!("{}/versions/1/download", skill("keeper", "demo", "数据统计")));
    hex::encode(Sha256::digest(reply.bytes(200)))
}

#[test]
fn a_version_is_the_same_archive_through_every_client_and_on_another_host() {
    let (service, keeper) = host(&packed(2019, CompressionMethod::Deflated, false));
    let (_other, other_keeper) = host(&packed(2026, CompressionMethod::Stored, true));
    let mut digests = BTreeMap::from([
        ("our own route".to_owned(), native(&keeper)),
        ("another host".to_owned(), native(&other_keeper)),
    ]);
    let url = format!("http://{}", service.client.address);
    let digest =
        |told: String| told.lines().find_map(|line| line.strip_prefix("digest ")).unwrap().to_owned();
    for package in PACKAGES {
        let Some(place) = place(package) else { continue };
        let vendor = package.split('-').next().unwrap();
        let variables = [("PYTHONPATH", place.to_str().unwrap())];
        let told = run(&["python3", "download_client.py", vendor, &url], &variables);
        digests.insert(package.to_owned(), digest(told));
    }
    for (package, _, vendor) in npm::PACKAGES {
        let Some((modules, node)) = npm::place(package) else { continue };
        let told = run(&[&node, "download_client.cjs", vendor, &url], &[("NODE_PATH", &modules)]);
        digests.insert(package.to_owned(), digest(told));
    }
    let first = digests.values().next().unwrap();
    assert!(digests.values().all(|digest| digest == first), "{digests:#?}");
}
