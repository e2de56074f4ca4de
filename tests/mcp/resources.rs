//! The files of a workspace as resources.

use base64::Engine;
use serde_json::{Value, json};

use crate::client::{ERAS, Era, Post, called, service};
use crate::support::{Client, Service, encoded, landlocked};

const TREE: &str = "/v1/sandbox/alice/demo";

fn list(client: &Client, cursor: Option<&str>) -> Value {
    let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
    Post::method(client, Era::Modern, "resources/list", params).result()
}

fn uris(result: &Value) -> Vec<String> {
    let resources = result["resources"].as_array().unwrap().iter();
    resources.map(|resource| resource["uri"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn read(client: &Client, era: Era, uri: &str) -> Post {
    let post = Post::method(client, era, "resources/read", json!({ "uri": uri }));
    // As the protocol has it for what a header cannot carry.
    let name = base64::engine::general_purpose::STANDARD.encode(uri);
    if era == Era::Modern { post.header("mcp-name", &format!("=?base64?{name}?=")) } else { post }
}

#[test]
fn files_are_listed_by_path_and_read_as_they_are() {
    let service = service();
    let client = &service.client;
    let odd = "目录/你好 \"x\" %2F.txt";
    client.write(TREE, odd, "数据");
    client.write(TREE, "b.md", "# b\n");
    client.put(format!("{TREE}/raw/a.png"), [0x89, b'P', 0, 0xff]).ok();
    client.write(TREE, ".hidden/x", "x");
    client.write(TREE, "d/.env", "x");
    let listed = list(client, None);
    assert_eq!((&listed["ttlMs"], &listed["cacheScope"]), (&json!(0), &json!("private")));
    assert!(listed.get("nextCursor").is_none() && listed.get("_meta").is_none());
    let odd_uri = "workspace:///%E7%9B%AE%E5%BD%95/%E4%BD%A0%E5%A5%BD%20%22x%22%20%252F.txt";
    assert_eq!(uris(&listed), ["workspace:///a.png", "workspace:///b.md", odd_uri]);
    let first = json!({ "uri": "workspace:///a.png", "name": "a.png", "mimeType": "image/png", "size": 4 });
    assert_eq!(listed["resources"][0], first);
    assert_eq!(listed["resources"][2]["name"], odd);
    for era in ERAS {
        for (uri, mime, text) in [
            ("workspace:///b.md", "text/markdown", "# b\n"),
            (odd_uri, "text/plain", "数据"),
            ("workspace:///目录/你好 \"x\" %252F.txt", "text/plain", "数据"),
            // Not listed, and read by who knows of it.
            ("workspace:///d/.env", "text/plain", "x"),
        ] {
            let result = read(client, era, uri).result();
            let content = json!([{ "uri": uri, "mimeType": mime, "text": text }]);
            assert_eq!(result["contents"], content, "{era:?}");
        }
        let result = read(client, era, "workspace:///a.png").result();
        let content = json!([{ "uri": "workspace:///a.png", "mimeType": "image/png", "blob": "iVAA/w==" }]);
        assert_eq!(result["contents"], content);
    }
    let templates = Post::method(client, Era::Modern, "resources/templates/list", json!({})).result();
    assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], "workspace:///{+path}");
    assert_eq!(templates["ttlMs"], 3_600_000);
}

#[test]
fn what_is_not_there_or_outside_is_no_resource() {
    let service = service();
    let client = &service.client;
    client.write(TREE, "d/f", "x");
    let secret = service.outside().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    if landlocked(client) {
        let command = format!("ln -s {} link && ln -s /etc/passwd other && ls -l link", secret.display());
        let made = called(client, "Shell", json!({ "command": command }));
        assert_eq!(made["structuredContent"]["exit_code"], 0, "{made}");
    }
    let outside = format!("workspace://{}", secret.display());
    for era in ERAS {
        let code = if era == Era::Modern { -32602 } else { -32002 };
        for uri in [
            "workspace:///none",
            "workspace:///d/f/g",
            "workspace:///link",
            "workspace:///other",
            "workspace:///../../../etc/passwd",
            "workspace:///%2e%2e/%2e%2e/etc/passwd",
            "workspace:////etc/passwd",
            "file:///etc/passwd",
            "skill://s/SKILL.md",
            outside.as_str(),
            "",
        ] {
            let error = read(client, era, uri).error(200);
            assert_eq!(
                (&error["code"], &error["data"]["uri"]),
                (&json!(code), &json!(uri)),
                "{era:?} {error}"
            );
        }
        assert_eq!(read(client, era, "workspace:///d").error(200)["code"], -32602);
    }
    // Another user's workspace has none of it.
    let bob = read(client, Era::Modern, "workspace:///d/f").to("/mcp/bob/demo").error(200);
    assert_eq!(bob["code"], -32602);
}

#[test]
fn a_file_that_is_too_large_is_refused_with_its_size() {
    let service = service();
    let client = &service.client;
    let most = 3 << 20;
    client.put(format!("{TREE}/raw/most"), vec![0; most]).ok();
    client.put(format!("{TREE}/raw/more"), vec![b'x'; most + 1]).ok();
    let blob = read(client, Era::Modern, "workspace:///most").result();
    assert_eq!(blob["contents"][0]["blob"].as_str().unwrap().len(), most / 3 * 4);
    let error = read(client, Era::Modern, "workspace:///more").error(200);
    let data = json!({ "code": "too_large", "uri": "workspace:///more", "size": most + 1, "limit": most });
    assert_eq!((&error["code"], &error["data"]), (&json!(-32602), &data));
}

#[test]
fn pages_go_through_ten_thousand_in_order_without_doubles_while_files_come_and_go() {
    let service = service();
    let client = &service.client;
    // As many as one archive may have, and some more.
    for (directory, count) in [("all", 9_000), ("more", 1_200)] {
        let entry =
            |number: usize| crate::support::Entry::file(&format!("d{:02}/f{number:05}", number / 200), "");
        let archive = crate::support::zip(&(0..count).map(entry).collect::<Vec<_>>());
        let put = client.request("PUT", format!("{TREE}/archive?path={directory}"));
        put.header("content-type", "application/zip").body(&archive).send().ok();
    }
    let (mut seen, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
    loop {
        let page = list(client, cursor.as_deref());
        let uris = uris(&page);
        assert!(uris.len() <= 500);
        seen.extend(uris);
        pages += 1;
        // Behind and before the place that has been reached.
        client.write(TREE, &format!("all/d00/new{pages}"), "");
        client.delete(format!("{TREE}/file?path={}", encoded(format!("all/d00/f{pages:05}")))).ok();
        match page["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => {
                assert!(page["_meta"]["filesecbox/left-out"].as_u64().unwrap() >= 200, "{page}");
                break;
            }
        }
    }
    assert!(seen.len() >= 9_900 && seen.len() <= 10_000 && pages >= 20, "{} in {pages}", seen.len());
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "in order, none twice");
    for cursor in ["x", "", "../..", "Li4vLi4"] {
        let params = json!({ "cursor": cursor });
        let error = Post::method(client, Era::Modern, "resources/list", params).error(200);
        assert_eq!(error["code"], -32602, "{cursor}");
    }
}
