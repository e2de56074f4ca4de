//! The output of commands: any bytes, bounded, never in the way.

use super::case::Case;
use crate::ExecSpec;

laws! {
    bytes_that_are_no_text_come [Commands] "all 256 values, on both streams";
    output_within_the_bound_is_whole [Commands] "exactly as many bytes as may be kept";
    of_ten_megabytes_the_ends_are_kept [Commands] "half of the bound from each end, the rest counted";
    a_bound_of_nothing_keeps_nothing [Commands] "and counts all";
    an_odd_bound_is_kept_to [Commands] "seven bytes of ten";
    each_stream_has_its_own_bound [Commands] "two megabytes on each, written in turn";
    more_than_the_usual_bound_can_be_asked_for [Commands] "three megabytes, whole";
    output_without_a_line_end_comes [Commands] "the last line is not waited for";
}

async fn bounded(case: &Case, script: &str, output_bytes_max: usize) -> crate::ExecResult {
    case.exec(ExecSpec { output_bytes_max, ..ExecSpec::shell(script) }).await.unwrap()
}

async fn bytes_that_are_no_text_come(case: Case) {
    let all: Vec<u8> = (0..=255).collect();
    case.put("bytes", all.clone()).await;
    let result = case.shell("cat bytes; cat bytes >&2").await;
    assert_eq!((result.stdout.as_ref(), result.stderr.as_ref()), (all.as_slice(), all.as_slice()));
}

async fn output_within_the_bound_is_whole(case: Case) {
    let result = bounded(&case, "printf 0123456789", 10).await;
    assert_eq!((result.stdout_text(), result.stdout_dropped_bytes), ("0123456789".into(), 0));
}

async fn of_ten_megabytes_the_ends_are_kept(case: Case) {
    let result = bounded(&case, "echo first; head -c 10000000 /dev/zero; echo last", 100_000).await;
    assert_eq!(result.stdout.len() as u64 + result.stdout_dropped_bytes, 10_000_011);
    assert_eq!(result.stdout.len(), 100_000);
    assert!(result.stdout.starts_with(b"first\n\0") && result.stdout.ends_with(b"\0last\n"));
    assert_eq!(result.stdout[6..99_995], [0; 99_989]);
    assert_eq!((result.exit_code, result.stderr_dropped_bytes), (0, 0));
}

async fn a_bound_of_nothing_keeps_nothing(case: Case) {
    let result = bounded(&case, "printf 0123456789; printf 01234 >&2", 0).await;
    assert_eq!((result.stdout_text(), result.stdout_dropped_bytes), ("".into(), 10));
    assert_eq!((result.stderr_text(), result.stderr_dropped_bytes), ("".into(), 5));
}

async fn an_odd_bound_is_kept_to(case: Case) {
    let result = bounded(&case, "printf 0123456789", 7).await;
    assert_eq!((result.stdout_text(), result.stdout_dropped_bytes), ("0126789".into(), 3));
}

async fn each_stream_has_its_own_bound(case: Case) {
    let script =
        "for each in 1 2 3 4; do head -c 500000 /dev/zero; head -c 500000 /dev/zero >&2; done; exit 7";
    let result = bounded(&case, script, 1000).await;
    assert_eq!((result.stdout.len(), result.stdout_dropped_bytes), (1000, 1_999_000));
    assert_eq!((result.stderr.len(), result.stderr_dropped_bytes), (1000, 1_999_000));
    assert_eq!(result.exit_code, 7);
}

async fn more_than_the_usual_bound_can_be_asked_for(case: Case) {
    let result = bounded(&case, "head -c 3000000 /dev/zero", 4_000_000).await;
    assert_eq!((result.stdout.len(), result.stdout_dropped_bytes), (3_000_000, 0));
}

async fn output_without_a_line_end_comes(case: Case) {
    assert_eq!(case.shell("printf 没有换行").await.stdout_text(), "没有换行");
}
