//! Attacks on the structure: each archive tells two programs two different things, or claims what is not there.

use storage::Error;
use storage::archive::ArchiveError::*;
use storage::archive::Options;

use super::builder::*;
use super::taking::{take, take_with, upload};
use crate::refused;

fn two() -> [Entry; 2] {
    [file("a/SKILL.md", b"one"), file("a/b.txt", b"two")]
}

#[test]
fn what_is_no_zip_is_called_so() {
    refused!(Vec::new(), NotZip);
    refused!(b"hello".to_vec(), NotZip);
    refused!(b"Rar!\x1A\x07\x01\x00".repeat(100), NotZip);
    refused!(vec![0; 70_000], NotZip);
}

#[test]
fn a_cut_archive_is_called_cut_wherever_it_is_cut() {
    let whole = zip(two());
    for bytes in [30, whole.len() / 2, whole.len() - 23, whole.len() - 5] {
        refused!(whole[..bytes].to_vec(), Truncated);
    }
    // One byte short: the end record is there but does not end where it says.
    let mut commented = archive(two());
    commented.comment = b"comment".to_vec();
    let bytes = commented.bytes();
    refused!(bytes[..bytes.len() - 1].to_vec(), Truncated);
}

#[test]
fn one_volume_of_several_is_refused() {
    refused!(Archive { disk: 1, ..archive(two()) }.bytes(), MultiVolume);
    let [mut one, two] = two();
    one.disk = 2;
    refused!(zip([one, two]), MultiVolume);
}

#[test]
fn a_second_end_record_is_refused_wherever_it_hides() {
    // In the comment, so that it ends the file as well: a search from the back finds another archive.
    let inner = zip([file("evil/SKILL.md", b"other")]);
    let end_record = inner[inner.len() - 22..].to_vec();
    refused!(Archive { comment: end_record.clone(), ..archive(two()) }.bytes(), SeveralEndRecords);
    // In the comment with bytes after it.
    let comment = [end_record, b"tail".to_vec()].concat();
    refused!(Archive { comment, ..archive(two()) }.bytes(), SeveralEndRecords);
}

#[test]
fn an_archive_inside_an_archive_is_a_file() {
    let inner = zip(two());
    let taken = take(&zip([file("a/SKILL.md", b""), stored("a/inner.zip", &inner)])).unwrap();
    assert_eq!(taken.tree["a/inner.zip"].as_ref().unwrap().1, inner);
}

#[test]
fn bytes_after_the_end_are_refused_and_counted() {
    refused!(Archive { suffix: b"tail!".to_vec(), ..archive(two()) }.bytes(), TrailingBytes { bytes: 5 });
    refused!(Archive { suffix: b"\0\0\n".to_vec(), ..archive(two()) }.bytes(), TrailingBytes { bytes: 3 });
}

#[test]
fn zeros_after_the_end_are_the_padding_of_a_tape_block() {
    assert!(take(&Archive { suffix: vec![0; 10_240], ..archive(two()) }.bytes()).is_ok());
}

#[test]
fn a_prefix_is_refused_whether_the_offsets_know_it_or_not() {
    refused!(
        Archive { prefix: b"MZ program".to_vec(), ..archive(two()) }.bytes(),
        LeadingBytes { bytes: 10 }
    );
    refused!(Archive { hidden_prefix: b"MZ program".to_vec(), ..archive(two()) }.bytes(), MisplacedDirectory);
    refused!(Archive { start_declared: Some(7), ..archive(two()) }.bytes(), MisplacedDirectory);
}

#[test]
fn an_end_record_must_count_as_many_entries_as_there_are() {
    let three = || archive([file("a/1", b""), file("a/2", b""), file("a/3", b"")]);
    let declare = |entries| Archive { entries_declared: Some(entries), ..three() }.bytes();
    refused!(declare(1), CountMismatch { declared: 1, found: 2 });
    refused!(declare(4), CountMismatch { declared: 4, found: 3 });
    refused!(declare(0), CountMismatch { declared: 0, found: 1 });
}

#[test]
fn an_entry_that_points_past_the_end_is_refused() {
    for offset in [0x7FFF_FFFF, 0xFFFF_FFFE, 200] {
        let [one, mut two] = two();
        two.offset = Some(offset);
        two.is_listed_only = true;
        refused!(zip([one, two]), PastEnd { .. });
    }
    let mut long = stored("a/x", b"data");
    long.packed = 100_000;
    long.size = 100_000;
    refused!(zip([long]), PastEnd { .. });
}

#[test]
fn an_entry_that_points_at_no_header_is_refused() {
    let [one, mut two] = two();
    two.offset = Some(3);
    refused!(zip([one, two]), Overlap { .. } | HeadersDisagree { .. });
}

#[test]
fn entries_that_share_their_data_are_an_overlap_bomb() {
    let mut entries = vec![file("a/0", &[0; 100_000])];
    for index in 1..200 {
        let mut again = file(format!("a/{index}"), &[0; 100_000]);
        again.offset = Some(0);
        again.is_listed_only = true;
        entries.push(again);
    }
    refused!(zip(entries), Overlap { .. } | HeadersDisagree { field: "name", .. });
}

#[test]
fn an_entry_quoted_inside_another_is_an_overlap_bomb() {
    // The inner entry is a true local header inside the outer one's stored data.
    let inner = zip([file("a/inner", &[0; 1000])]);
    let header_and_data =
        inner[..inner.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap()].to_vec();
    let outer = stored("a/outer", &header_and_data);
    let mut quoted = file("a/inner", &[0; 1000]);
    quoted.offset = Some(30 + 7);
    quoted.is_listed_only = true;
    refused!(zip([outer, quoted]), Overlap { .. });
}

#[test]
fn bytes_between_entries_are_refused_even_when_they_are_an_entry() {
    let hidden = Entry { is_unlisted: true, ..file("a/evil", b"seen by streaming readers only") };
    refused!(zip([file("a/SKILL.md", b""), hidden.clone(), file("a/b", b"")]), Unlisted { .. });
    refused!(zip([file("a/SKILL.md", b""), hidden.clone()]), Unlisted { .. });
    refused!(zip([hidden, file("a/SKILL.md", b"")]), LeadingBytes { .. });
    let mut padded = file("a/SKILL.md", b"");
    padded.after = vec![0; 3];
    refused!(zip([padded, file("a/b", b"")]), Unlisted { bytes: 3, .. });
}

#[test]
fn both_headers_must_agree_on_name_method_sizes_checksum_and_flags() {
    type Lie = fn(&mut Entry);
    let disagreeing: [(&str, Lie); 7] = [
        ("name", |entry| entry.local_name = Some(b"a/other.sh".to_vec())),
        ("name", |entry| entry.local_name = Some(b"a/b.txT".to_vec())),
        ("method", |entry| entry.local_method = Some(0)),
        ("packed size", |entry| entry.local_packed = Some(entry.packed + 1)),
        ("size", |entry| entry.local_size = Some(1)),
        ("checksum", |entry| entry.local_crc = Some(1)),
        ("flags", |entry| entry.local_flags = Some(1 << 11)),
    ];
    for (expected, lie) in disagreeing {
        let mut entry = file("a/b.txt", b"content");
        lie(&mut entry);
        let error = storage::archive::plan(&upload(&zip([entry])), &Options::default()).unwrap_err();
        assert!(
            matches!(&error, Error::Archive(HeadersDisagree { field, .. }) if *field == expected),
            "{expected}: {error:?}"
        );
    }
    // Zero is no number that a header without a descriptor may leave open.
    let mut open = file("a/b.txt", b"content");
    open.local_size = Some(0);
    refused!(zip([open]), HeadersDisagree { field: "size", .. });
}

#[test]
fn a_name_in_the_local_unicode_field_must_be_the_central_one() {
    let name = b"a/x";
    let mut entry = file(name, b"");
    entry.extra = unicode_path(name, "a/数据");
    entry.local_extra = Some(unicode_path(name, "a/别的"));
    refused!(zip([entry.clone()]), HeadersDisagree { field: "name", .. });
    entry.extra.clear();
    refused!(zip([entry]), HeadersDisagree { field: "name", .. });
}

#[test]
fn every_form_of_data_descriptor_is_read_and_a_wrong_one_refused() {
    use Descriptor::*;
    for descriptor in [Marked, Bare, MarkedWide, BareWide, Announced] {
        let entries = two().map(|entry| Entry { descriptor, ..entry });
        let taken = take(&zip(entries)).unwrap();
        assert_eq!(taken.text("a/b.txt"), "two");
    }
    let mut bytes = zip([Entry { descriptor: Marked, ..file("a/b", b"content") }]);
    let at = bytes.windows(4).position(|bytes| bytes == b"PK\x07\x08").unwrap();
    bytes[at + 5] ^= 1;
    refused!(bytes, HeadersDisagree { field: "data descriptor", .. });
}

#[test]
fn zip64_is_read_where_it_is_true() {
    let mut wide = file("a/SKILL.md", b"content");
    let numbers = [u64::from(wide.size), u64::from(wide.packed), 0].map(u64::to_le_bytes).concat();
    wide.local_extra = Some(extra(1, &numbers[..16]));
    wide.extra = extra(1, &numbers);
    wide.offset = Some(u32::MAX);
    let (size, packed) = (wide.size, wide.packed);
    wide.local_size = Some(u32::MAX);
    wide.local_packed = Some(u32::MAX);
    let mut bytes = Archive { zip64: Some([None; 3]), ..archive([wide]) }.bytes();
    // The central sizes are saturated in place, after the data was laid out by the true ones.
    let at = bytes.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
    assert_eq!(bytes[at + 20..at + 28], [packed.to_le_bytes(), size.to_le_bytes()].concat());
    bytes[at + 20..at + 28].fill(0xFF);
    assert_eq!(take(&bytes).unwrap().text("a/SKILL.md"), "content");
}

#[test]
fn zip64_lies_are_refused() {
    let with = |zip64| Archive { zip64: Some(zip64), ..archive(two()) }.bytes();
    refused!(with([Some(1), None, None]), CountMismatch { .. });
    refused!(with([Some(1 << 60), None, None]), TooManyEntries { .. });
    refused!(with([None, Some(1 << 60), None]), MisplacedDirectory);
    refused!(with([None, None, Some(u64::MAX)]), MisplacedDirectory);
    // The ordinary record contradicts the large one.
    let mut contradicting = archive(two());
    contradicting.zip64 = Some([None; 3]);
    contradicting.entries_declared = Some(1);
    refused!(contradicting.bytes(), Zip64 { .. });
    // A saturated count without the large record.
    refused!(Archive { entries_declared: Some(u16::MAX), ..archive(two()) }.bytes(), Zip64 { .. });
    // Saturated sizes without the field, and with two of them.
    let [mut one, other] = two();
    one.size = u32::MAX;
    refused!(zip([one.clone(), other.clone()]), Zip64 { .. });
    one.extra = [extra(1, &3_u64.to_le_bytes()), extra(1, &4_u64.to_le_bytes())].concat();
    refused!(zip([one, other]), Zip64 { .. });
    // A large record shorter than its own fields.
    let mut bytes = with([None; 3]);
    let at = bytes.windows(4).position(|bytes| bytes == b"PK\x06\x06").unwrap();
    bytes[at + 4] = 20;
    refused!(bytes, Zip64 { .. });
    // A locator that points nowhere.
    let mut bytes = with([None; 3]);
    let at = bytes.windows(4).position(|bytes| bytes == b"PK\x06\x07").unwrap();
    bytes[at + 8] ^= 1;
    refused!(bytes, Zip64 { .. });
}

#[test]
fn a_size_of_two_to_the_sixtieth_is_too_large_and_allocates_nothing() {
    let mut entry = file("a/x", b"123");
    entry.size = u32::MAX;
    entry.extra = extra(1, &(1_u64 << 60).to_le_bytes());
    entry.local_size = Some(u32::MAX);
    refused!(zip([entry]), FileTooLarge { .. });
}

#[test]
fn encrypted_entries_are_refused() {
    for flag in [1, 1 << 6, 1 << 13] {
        let mut entry = file("a/x", b"secret");
        entry.flags = flag;
        refused!(zip([entry]), Encrypted { .. });
    }
    let mut aes = file("a/x", b"secret");
    aes.method = 99;
    refused!(zip([aes]), Encrypted { .. });
}

#[test]
fn patches_are_refused() {
    let mut patch = file("a/x", b"");
    patch.flags = 1 << 5;
    refused!(zip([patch]), Patch { .. });
}

#[test]
fn other_methods_are_refused_by_number() {
    for number in [1, 6, 9, 12, 14, 93, 95, 98] {
        let mut entry = file("a/x", b"");
        entry.method = number;
        let error = take(&zip([entry])).unwrap_err();
        assert!(matches!(error, Error::Archive(Method { method, .. }) if method == number));
    }
}

#[test]
fn damaged_extra_fields_are_refused() {
    let mut entry = file("a/x", b"");
    entry.extra = vec![1, 0, 200, 0, 1];
    refused!(zip([entry]), BadExtra { .. });
}

#[test]
fn data_of_another_size_or_checksum_than_declared_is_refused() {
    // Declared 2 GiB with three real bytes passes no limit; declared 300 with three is caught while unpacking.
    let lying = |size: u32, real: &[u8]| {
        let mut entry = file("a/x", real);
        entry.size = size;
        zip([entry])
    };
    assert!(matches!(take(&lying(300, b"abc")), Err(Error::Archive(WrongSize { declared: 300, .. }))));
    assert!(matches!(take(&lying(3, &[0; 1_000_000])), Err(Error::Archive(WrongSize { declared: 3, .. }))));
    assert!(matches!(take(&lying(0, b"abc")), Err(Error::Archive(WrongSize { .. }))));
    let mut wrong = file("a/x", b"abc");
    wrong.crc ^= 1;
    assert!(matches!(take(&zip([wrong])), Err(Error::Archive(Checksum { .. }))));
    let mut stored_lie = stored("a/x", b"abc");
    stored_lie.size = 4;
    refused!(zip([stored_lie]), WrongSize { .. });
}

#[test]
fn damaged_or_incomplete_deflate_data_is_refused() {
    let mut cut = file("a/x", &b"hello, hello, hello, what a day".repeat(20));
    cut.data.truncate(cut.data.len() - 3);
    cut.packed -= 3;
    assert!(matches!(take(&zip([cut])), Err(Error::Archive(Corrupt { .. }))));
    let mut noise = stored("a/x", &[0xFF; 64]);
    noise.method = 8;
    assert!(matches!(take(&zip([noise])), Err(Error::Archive(Corrupt { .. }))));
    let mut longer = file("a/x", b"hello");
    longer.data.extend_from_slice(b"hidden behind the stream");
    longer.packed += 24;
    assert!(matches!(take(&zip([longer])), Err(Error::Archive(Corrupt { .. }))));
}

#[test]
fn limits_on_entries_sizes_depth_and_ratio_hold() {
    let mut options = Options::default();
    options.limits.entries = 5;
    options.limits.file_bytes = 1000;
    options.limits.total_bytes = 1500;
    options.limits.depth = 3;
    options.limits.ratio = 10;
    options.limits.ratio_from_bytes = 900;
    let refusal = |entries: Vec<Entry>| match take_with(&zip(entries), &options) {
        Err(Error::Archive(error)) => error,
        other => panic!("{other:?}"),
    };
    let noise: Vec<u8> = (0..1000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let many = (0..6).map(|n| file(format!("a/{n}"), b"")).collect();
    assert!(matches!(refusal(many), TooManyEntries { limit: 5 }));
    // Three entries that imply more directories than the limit has room for.
    let implied = (0..3).map(|n| file(format!("a/b{n}/c"), b"")).collect();
    assert!(matches!(refusal(implied), TooManyEntries { limit: 5 }));
    assert!(matches!(
        refusal(vec![stored("a/x", &[0; 1001])]),
        FileTooLarge { bytes: 1001, limit: 1000, .. }
    ));
    let both = vec![stored("a/x", &noise[..800]), stored("a/y", &noise[..800])];
    assert!(matches!(refusal(both), TotalTooLarge { limit: 1500 }));
    assert!(matches!(refusal(vec![file("a/x", &[0; 950])]), Ratio { limit: 10, .. }));
    assert!(matches!(refusal(vec![file("a/b/c/d/e/x", b"")]), TooManyEntries { .. } | TooDeep { .. }));
    options.limits.entries = 100;
    let deep = take_with(&zip([file("a/b/c/d/e/x", b"")]), &options);
    assert!(matches!(deep, Err(Error::Archive(TooDeep { limit: 3, .. }))));
    assert!(take_with(&zip([file("a/b/c/d/x", b"")]), &options).is_ok());
    assert!(take_with(&zip([file("a/x", &[0; 890])]), &options).is_ok(), "small files have no ratio");
}

#[test]
fn twenty_thousand_entries_are_too_many() {
    let entries = (0..20_001).map(|n| stored(format!("a/{n}"), b""));
    refused!(zip(entries), TooManyEntries { limit: 10_000 });
}

#[test]
fn a_path_of_five_hundred_levels_is_too_deep() {
    refused!(zip([file("a/".repeat(500) + "x", b"")]), TooDeep { .. });
}
