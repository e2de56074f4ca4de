//! Tars that real programs make of the tree of `tools`, and what they put into them besides files.

use super::taking::{Tree, take};
use super::tools::{SKILL, expected, made_by, run, source};

#[test]
fn tars_of_gnu_tar_are_taken_in_whole() {
    for format in ["gnu", "oldgnu", "ustar", "pax", "v7"] {
        let option = format!("--format={format}");
        let Some(taken) = made_by("tar", &[&option, "-cf", "out.tar", SKILL]) else { return };
        assert_eq!(taken.tree, expected(true), "{format}");
    }
    for arguments in [
        &["-czf", "out.tar.gz", SKILL][..],
        &["-cf", "out.tar.zst", "--zstd", SKILL],
        &["-cf", "out.tar.zst", "--use-compress-program", "zstd -19 -T0", SKILL],
        &["-cf", "-", "-b", "64", SKILL],
        &["-czf", "-", SKILL],
    ] {
        let Some(taken) = made_by("tar", arguments) else { return };
        assert_eq!(taken.tree, expected(true), "{arguments:?}");
    }
    // A window of 128 MiB is more memory than an upload may take.
    let place = source();
    let long = "dd if=/dev/zero bs=1M count=20 2>&- | tar -cf - -C . . | zstd -q --ultra -22 --long=27";
    let Some(_) = run(&place, "zstd", &["--version"]) else { return };
    let bytes = run(&place, "sh", &["-c", long]).unwrap();
    let error = take(&bytes).unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
}

#[test]
fn tars_of_bsdtar_python_seven_zip_and_git_are_taken_in_whole() {
    for arguments in [
        &["-cf", "out.tar", SKILL][..],
        &["--format=ustar", "-cf", "out.tar", SKILL],
        &["--format=gnutar", "-cf", "out.tar", SKILL],
        &["-czf", "out.tgz", SKILL],
        &["-cf", "out.tzst", "--zstd", SKILL],
        // Into a pipe it fills the last block with zeros.
        &["-czf", "-", SKILL],
        &["--zstd", "-cf", "-", SKILL],
    ] {
        let Some(taken) = made_by("bsdtar", arguments) else { return };
        assert_eq!(taken.tree, expected(true), "{arguments:?}");
    }
    const PYTHON_TAR: &str = "import sys, tarfile\nkind, mode, skill, out = sys.argv[1:5]\n\
        with tarfile.open(out, mode, format=getattr(tarfile, kind)) as archive: archive.add(skill)";
    for (kind, mode) in [("PAX_FORMAT", "w"), ("GNU_FORMAT", "w:gz"), ("USTAR_FORMAT", "w")] {
        let Some(taken) = made_by("python3", &["-c", PYTHON_TAR, kind, mode, SKILL, "out.tar"]) else {
            return;
        };
        assert_eq!(taken.tree, expected(true), "{kind}");
    }
    if let Some(taken) = made_by("7zz", &["a", "-bd", "-ttar", "out.tar", SKILL]) {
        assert_eq!(taken.tree, expected(true));
    }
    let place = source();
    let script = "git init -q && git add . && git -c user.name=x -c user.email=x@example.org commit -qm x && \
                  git archive --format=tar.gz --prefix=repo-main/ HEAD";
    let Some(_) = run(&place, "git", &["--version"]) else { return };
    let bytes = run(&place, "sh", &["-c", script]).unwrap();
    assert_eq!(take(&bytes).unwrap().tree, expected(false));
}

#[test]
fn archives_made_from_within_are_taken_in_whole() {
    // `.` and `./` before every name, as `tar` of macOS and Windows writes them into a ZIP.
    for (program, arguments) in [
        ("bsdtar", &["-a", "-cf", "out.zip", "-C", SKILL, "."][..]),
        ("bsdtar", &["-a", "-cf", "out.tar.gz", "-C", SKILL, "."]),
        ("tar", &["-czf", "out.tar.gz", "-C", SKILL, "."]),
    ] {
        let Some(taken) = made_by(program, arguments) else { return };
        assert_eq!(taken.tree, expected(true), "{program} {arguments:?}");
    }
}

#[test]
fn links_long_names_and_odd_files_of_real_programs_become_what_they_mean_or_are_refused_by_name() {
    let place = source();
    let long = "长".repeat(60);
    let script = format!(
        "cd {SKILL} && ln -s SKILL.md AGENTS.md && ln data.bin same.bin && mkdir -p d/{long}/{long}/{long} && \
         echo deep > d/{long}/{long}/{long}/x && ln -s ../../{long}/{long}/{long}/x d/{long}/{long}/link && ln -s 脚本 scripts"
    );
    run(&place, "sh", &["-c", &script]).unwrap();
    let mut tree = expected(true);
    let copy = |tree: &mut Tree, from: &str, to: &str| {
        let content = tree[&format!("{SKILL}/{from}")].clone();
        tree.insert(format!("{SKILL}/{to}"), content);
    };
    for (from, to) in [("SKILL.md", "AGENTS.md"), ("data.bin", "same.bin")] {
        copy(&mut tree, from, to);
    }
    for (from, to) in [("脚本", "scripts"), ("脚本/运行.sh", "scripts/运行.sh"), ("脚本/空", "scripts/空")]
    {
        copy(&mut tree, from, to);
    }
    let mut path = "d".to_owned();
    tree.insert(format!("{SKILL}/d"), None);
    for _ in 0..3 {
        path = format!("{path}/{long}");
        tree.insert(format!("{SKILL}/{path}"), None);
    }
    for file in [format!("{path}/x"), format!("d/{long}/{long}/link")] {
        tree.insert(format!("{SKILL}/{file}"), Some((0o644, b"deep\n".to_vec())));
    }
    for (program, arguments) in [
        ("tar", &["--format=gnu", "-cf", "-", SKILL][..]),
        ("tar", &["--format=pax", "-cf", "-", SKILL]),
        ("bsdtar", &["-cf", "-", SKILL]),
        ("bsdtar", &["--format=gnutar", "-cf", "-", SKILL]),
        ("bsdtar", &["--format=zip", "-cf", "-", SKILL]),
        ("zip", &["-qry", "-", SKILL]),
    ] {
        let Some(bytes) = run(&place, program, arguments) else { continue };
        assert_eq!(take(&bytes).unwrap().tree, tree, "{program} {arguments:?}");
    }
    let refusal = |script: &str| {
        let bytes = run(&place, "sh", &["-c", script]).unwrap();
        take(&bytes).map(|_| "taken in").unwrap_err().to_string()
    };
    let sparse = format!("truncate -s 1M {SKILL}/holes && tar -S -cf - {SKILL} && rm {SKILL}/holes");
    assert!(refusal(&sparse).contains("holes` is packed as a sparse file"));
    let sparse =
        format!("truncate -s 1M {SKILL}/holes && tar -S --format=pax -cf - {SKILL} && rm {SKILL}/holes");
    assert!(refusal(&sparse).contains("is packed as a sparse file"));
    let pipe = format!("mkfifo {SKILL}/pipe && tar -cf - {SKILL} && rm {SKILL}/pipe");
    assert!(refusal(&pipe).contains("pipe` is a device, pipe or socket"));
    let appended = format!("tar -cf a.tar {SKILL} && tar -rf a.tar {SKILL}/SKILL.md && cat a.tar");
    assert!(refusal(&appended).contains("SKILL.md` is in the archive twice"));
    let joined = format!("tar -cf a.tar {SKILL}/SKILL.md && cat a.tar a.tar");
    assert!(refusal(&joined).contains("follow the end of the archive"));
    let cut = format!("tar -cf - {SKILL} | head -c 4096");
    assert!(refusal(&cut).contains("ends too early"));
    let cut = format!("tar -czf - {SKILL} | head -c 1000");
    assert!(refusal(&cut).contains("ends too early"));
}
