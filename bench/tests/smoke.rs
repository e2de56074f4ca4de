//! The bench runs: every workload, against both services, in its quick form.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::path::Path;
use std::process::Command;

#[test]
fn every_workload_gives_a_row_with_figures() {
    let bench = Path::new(env!("CARGO_BIN_EXE_bench"));
    let filesecbox = bench.with_file_name("filesecbox");
    if !filesecbox.is_file() {
        let required = std::env::var("FILESECBOX_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "filesecbox"), "`filesecbox` is not built");
        let skipped = "SKIPPED: `filesecbox` is not built: cargo build --package filesecbox\n";
        std::io::stderr().write_all(skipped.as_bytes()).unwrap();
        return;
    }
    let output = Command::new(bench).arg("--quick").arg("--program").arg(filesecbox).output().unwrap();
    let (table, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{notes}");
    for workload in [
        "raw read 4 KiB",
        "`content`",
        "strict",
        "list ",
        "publish",
        "start",
        "users each edit",
        "`echo`, one client",
        "`echo`, 8 clients",
        "of output",
        "first command",
        "64 skills",
        "live view",
        "a write and a run",
        "`read_file`",
        "`exec` of `true`",
        "read 4 KiB, p50",
        "MB in",
        "MB out",
        "the runner grows",
        "runners at rest: the service grows",
    ] {
        let row = table.lines().find(|line| line.contains(workload));
        let has_figure =
            |cell: &str| ["µs", "ms", "/s", "MB"].iter().any(|unit| cell.contains(&format!(" {unit}")));
        assert!(row.is_some_and(|row| row.split('|').skip(2).any(has_figure)), "{workload}: {table}");
    }
}

#[test]
fn two_builds_are_compared_request_by_request() {
    let bench = Path::new(env!("CARGO_BIN_EXE_bench"));
    let filesecbox = bench.with_file_name("filesecbox");
    if !filesecbox.is_file() {
        // Whether that may be is the other test's concern.
        return;
    }
    let mut command = Command::new(bench);
    command.arg("--quick").arg("--program").arg(&filesecbox).arg("--against").arg(&filesecbox);
    let output = command.output().unwrap();
    let (table, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{notes}");
    for workload in
        ["raw read", "grep", "replace a skill", "`echo`, p50", "first command", "strict", "`landlock`"]
    {
        let row = table.lines().find(|line| line.contains(workload));
        let has_unit = |cell: &&str| cell.contains(" µs") || cell.contains(" ms");
        let figures = |row: &str| row.split('|').skip(2).take(4).filter(has_unit).count();
        assert!(row.is_some_and(|row| figures(row) == 4), "{workload}: {table}");
    }
}

#[test]
fn pictures_are_drawn_with_a_line_for_each_side() {
    let bench = Path::new(env!("CARGO_BIN_EXE_bench"));
    let filesecbox = bench.with_file_name("filesecbox");
    if !filesecbox.is_file() {
        // Whether that may be is the other test's concern.
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(bench);
    command.arg("--quick").arg("--program").arg(&filesecbox).arg("--plot").arg(directory.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = [
        ("latency-read", 3),
        ("latency-write", 3),
        ("latency-echo", 3),
        ("users", 5),
        ("files", 6),
        ("skills", 1),
        ("connections", 2),
    ];
    for (name, count) in lines {
        let picture = std::fs::read_to_string(directory.path().join(format!("{name}.svg"))).unwrap();
        // Two pixels wide: each line, and its piece in the key.
        let drawn = picture.matches("<polyline").count();
        let wide = picture.split("<polyline").filter(|part| part.contains("stroke-width=\"2\"")).count();
        assert_eq!(wide, 2 * count, "{name}: {drawn} lines");
    }
}
