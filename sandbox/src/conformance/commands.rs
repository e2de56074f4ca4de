//! Commands: what they are given and what they leave.

use std::time::Duration;

use bytes::Bytes;

use super::case::{Case, kind};
use crate::{ErrorKind, ExecSpec, WriteOptions};

laws! {
    a_script_runs [Commands] "its output, exit code 0, no signal, no deadline";
    a_program_runs_without_a_shell [Commands] "dollar signs, stars, quotes and spaces reach it as they are";
    an_empty_argument_is_an_argument [Commands] "and so is one with a line end";
    the_exit_code_is_told [Commands] "0, 1, 42 and 255 are results";
    a_script_that_makes_no_sense_is_a_result [Commands] "an exit code and words on standard error";
    a_program_that_is_not_there_is_not_found [Commands] "an error, not an exit code";
    a_command_begins_in_the_workspace [Commands] "unless it says otherwise";
    a_command_begins_where_it_says [Commands] "in a directory with a difficult name";
    a_directory_that_is_not_there_is_not_found [Commands] "and nothing runs";
    a_variable_is_passed [Commands] "with line ends, quotes and Chinese in it";
    a_variable_of_one_command_is_not_in_the_next [Commands] "nothing of it is kept";
    the_environment_of_the_host_is_not_passed [Commands] "a variable of the process that asks";
    standard_input_comes_and_ends [Commands] "bytes of any kind, then its end";
    without_standard_input_there_is_its_end [Commands] "a command that reads does not wait";
    four_megabytes_of_standard_input_come [Commands] "while as much goes out: neither side waits for the other";
    standard_input_that_nobody_reads_is_no_error [Commands] "a megabyte to a command that ends at once";
    a_command_sees_written_files [Commands Changes] "by relative and by absolute path";
    files_of_a_command_are_seen [Commands] "read, listed and removed";
    a_file_made_executable_runs [Commands Changes] "a script of mode 755, not one of mode 644";
    the_shell_that_is_told_runs [Commands] "`shell -c`";
    the_duration_is_told [Commands] "at least as long as the command slept";
    a_hundred_arguments_come_in_order [Commands] "Chinese ones";
}

async fn a_script_runs(case: Case) {
    let result = case.shell("echo 你好; echo trouble >&2").await;
    assert_eq!((result.stdout_text(), result.stderr_text()), ("你好\n".into(), "trouble\n".into()));
    assert_eq!((result.exit_code, &result.signal, result.timed_out), (0, &None, false));
    assert_eq!((result.stdout_dropped_bytes, result.stderr_dropped_bytes), (0, 0));
}

async fn a_program_runs_without_a_shell(case: Case) {
    let result = case.exec(ExecSpec::argv("echo", ["$HOME", "*", "'a'  \"b\"", "`x`", ";"])).await.unwrap();
    assert_eq!(result.stdout_text(), "$HOME * 'a'  \"b\" `x` ;\n");
}

async fn an_empty_argument_is_an_argument(case: Case) {
    let script = "for each in \"$@\"; do printf '<%s>' \"$each\"; done";
    let result = case.exec(ExecSpec::argv("sh", ["-c", script, "sh", "", "a\nb", ""])).await.unwrap();
    assert_eq!(result.stdout_text(), "<><a\nb><>");
}

async fn the_exit_code_is_told(case: Case) {
    for code in [0, 1, 42, 255] {
        let result = case.shell(&format!("exit {code}")).await;
        assert_eq!((result.exit_code, result.signal, result.timed_out), (code, None, false));
    }
}

async fn a_script_that_makes_no_sense_is_a_result(case: Case) {
    let result = case.shell("if then fi (").await;
    assert!(result.exit_code > 0 && !result.stderr.is_empty(), "{result:?}");
}

async fn a_program_that_is_not_there_is_not_found(case: Case) {
    let run = case.exec(ExecSpec::argv("no-such-program-anywhere", ["x"])).await;
    assert_eq!(kind(run), ErrorKind::NotFound);
}

async fn a_command_begins_in_the_workspace(case: Case) {
    let law = case.dir.file_name().unwrap();
    let spec = ExecSpec::argv("ls", ["-d", law]);
    let result = case.sandbox.exec(&case.alice, spec).await.unwrap();
    assert_eq!(result.stdout_text(), format!("{law}\n"), "{}", result.stderr_text());
}

async fn a_command_begins_where_it_says(case: Case) {
    let directory = case.put_dir("a b'c/目录").await;
    case.put("a b'c/目录/here", "").await;
    let mut spec = ExecSpec::argv("ls", [] as [&str; 0]);
    spec.directory = Some(directory);
    assert_eq!(case.exec(spec).await.unwrap().stdout_text(), "here\n");
}

async fn a_directory_that_is_not_there_is_not_found(case: Case) {
    let mut spec = ExecSpec::shell("echo ran");
    spec.directory = Some(case.path("missing"));
    assert_eq!(kind(case.exec(spec).await), ErrorKind::NotFound);
}

async fn a_variable_is_passed(case: Case) {
    let value = "它说\n\"it's $HOME\" ";
    let mut spec = ExecSpec::shell("printf %s \"$LAW_VALUE\"");
    spec.environment.insert("LAW_VALUE".into(), value.into());
    assert_eq!(case.exec(spec).await.unwrap().stdout_text(), value);
}

async fn a_variable_of_one_command_is_not_in_the_next(case: Case) {
    let mut spec = ExecSpec::shell("LAW_OWN=2; export LAW_OWN; echo $LAW_VALUE");
    spec.environment.insert("LAW_VALUE".into(), "1".into());
    assert_eq!(case.exec(spec).await.unwrap().stdout_text(), "1\n");
    assert_eq!(case.shell("echo \"<$LAW_VALUE$LAW_OWN>\"").await.stdout_text(), "<>\n");
}

async fn the_environment_of_the_host_is_not_passed(case: Case) {
    // Cargo sets it for tests, and no backend for commands.
    assert_eq!(case.shell("echo \"<$CARGO_MANIFEST_DIR>\"").await.stdout_text(), "<>\n");
}

fn with_stdin(script: &str, stdin: impl Into<Bytes>) -> ExecSpec {
    ExecSpec { stdin: stdin.into(), ..ExecSpec::shell(script) }
}

async fn standard_input_comes_and_ends(case: Case) {
    let result = case.exec(with_stdin("cat; echo end", "一\n二\n")).await.unwrap();
    assert_eq!(result.stdout_text(), "一\n二\nend\n");
}

async fn without_standard_input_there_is_its_end(case: Case) {
    assert_eq!(case.shell("cat; echo end").await.stdout_text(), "end\n");
}

async fn four_megabytes_of_standard_input_come(case: Case) {
    let stdin: String = (0..4 << 17).map(|line| format!("{line:07}\n")).collect();
    let spec = ExecSpec { output_bytes_max: 8 << 20, ..with_stdin("cat", stdin.clone()) };
    let result = case.exec(spec).await.unwrap();
    assert!(result.stdout == stdin, "{} bytes of {}", result.stdout.len(), stdin.len());
}

async fn standard_input_that_nobody_reads_is_no_error(case: Case) {
    let result = case.exec(with_stdin("exit 3", vec![b'x'; 1 << 20])).await.unwrap();
    assert_eq!((result.exit_code, result.signal), (3, None));
}

async fn a_command_sees_written_files(case: Case) {
    let path = case.path("写.txt");
    case.write(&path, "written").await.unwrap();
    assert_eq!(case.shell("cat 写.txt").await.stdout_text(), "written");
    let result = case.exec(ExecSpec::argv("cat", [path.as_str()])).await.unwrap();
    assert_eq!(result.stdout_text(), "written", "{}", result.stderr_text());
}

async fn files_of_a_command_are_seen(case: Case) {
    let result = case.shell("mkdir -p 新/dir && printf made > 新/dir/file").await;
    assert!(result.is_success(), "{}", result.stderr_text());
    assert_eq!(case.read(&case.path("新/dir/file")).await.unwrap(), "made");
    assert_eq!(case.names(&case.dir).await, ["新"]);
    case.subject.furnisher().await.remove_all(&case.alice, &case.path("新")).await.unwrap();
    assert_eq!(case.shell("ls").await.stdout_text(), "");
}

async fn a_file_made_executable_runs(case: Case) {
    for (bits, expected) in [(0o755, true), (0o644, false)] {
        let path = case.path(&format!("{bits:o}.sh"));
        let options = WriteOptions { permissions: Some(bits), ..Default::default() };
        case.write_with(&path, b"#!/bin/sh\necho ran\n", options).await.unwrap();
        let result = case.shell(&format!("test -x {bits:o}.sh && echo yes")).await;
        assert_eq!(result.is_success(), expected, "{bits:o}");
    }
}

async fn the_shell_that_is_told_runs(case: Case) {
    let shell = case.sandbox.shell(&case.alice).await.unwrap();
    let program = shell.rsplit('/').next().unwrap();
    let result = case.exec(ExecSpec::argv(program, ["-c", "echo $((6 * 7))"])).await.unwrap();
    assert_eq!(result.stdout_text(), "42\n");
}

async fn the_duration_is_told(case: Case) {
    let result = case.shell("sleep 0.3").await;
    assert!(result.duration >= Duration::from_millis(290), "{:?}", result.duration);
}

async fn a_hundred_arguments_come_in_order(case: Case) {
    let arguments: Vec<String> = (1..=100).map(|number| format!("第{number}")).collect();
    let result = case.exec(ExecSpec::argv("echo", &arguments)).await.unwrap();
    assert_eq!(result.stdout_text(), arguments.join(" ") + "\n");
}
