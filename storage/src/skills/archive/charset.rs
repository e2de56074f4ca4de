//! Reads the names of an archive: one decision for the whole archive, made before anything is written.
//!
//! A ZIP says of a name either that it is UTF-8 or nothing, and what says nothing is in the code page of the
//! machine that packed it; for archives made on Chinese systems that is GBK. Names are too short to guess one by
//! one: 14 % of one-character and 3.5 % of two-character words in GBK are valid UTF-8 (一, 系统, 学校), and a third
//! of Chinese words in UTF-8 are valid GBK. All unmarked names together decide:
//!
//! 1. a name in extra field 0x7075 whose checksum fits is that name;
//! 2. a name marked UTF-8 (bit 11) that is UTF-8 is that name, under any wish of the sender: programs that mark
//!    names mark those their code page cannot hold, beside unmarked ones in the code page;
//! 3. if any other name is not UTF-8, all others are GB18030 (a superset of GBK);
//! 4. if all are UTF-8 but made only of two-byte characters, packed on an MS-DOS or Windows file system, and are
//!    GB2312 as well, they are GBK: such programs do not write unmarked UTF-8, and Greek or Cyrillic that happens
//!    to spell GB2312 is rarer than Chinese. Otherwise they are UTF-8;
//! 5. a name that cannot be GB18030 in such an archive is UTF-8, else code page 437 without its line-drawing
//!    characters, else the archive is refused.
//!
//! A request for `utf-8` or `gbk` replaces 3 to 5 and admits no other reading.

use std::fmt;
use std::str::FromStr;

use encoding_rs::GBK;
use serde::Serialize;

use super::entry::{RawEntry, flag};
use crate::error::{ArchiveError, excerpt};

/// Systems whose file names follow MS-DOS: FAT, NTFS, NTFS as Info-ZIP numbers it, VFAT (APPNOTE.TXT 4.4.2).
const FAT_HOSTS: [u8; 4] = [0, 10, 11, 14];

/// Code page 437 from 0x80 to 0xAF; what follows to 0xDF draws lines.
const CP437_LETTERS: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»";
/// Code page 437 from 0xE0 to 0xFF.
const CP437_SYMBOLS: &str = "αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{A0}";

/// The encoding of names that the sender asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    /// Decide by the rules of this module.
    #[default]
    Auto,
    /// Unmarked names are UTF-8.
    Utf8,
    /// Unmarked names are GBK (read as GB18030).
    Gbk,
}

impl FromStr for Charset {
    type Err = ArchiveError;

    /// Reads `auto`, `utf-8` or `gbk`, in any case; also the aliases `utf8` and `gb18030`.
    fn from_str(text: &str) -> Result<Self, ArchiveError> {
        match text.to_ascii_lowercase().as_str() {
            "auto" | "" => Ok(Self::Auto),
            "utf-8" | "utf8" => Ok(Self::Utf8),
            "gbk" | "gb18030" => Ok(Self::Gbk),
            _ => Err(ArchiveError::UnknownCharset(excerpt(text.as_bytes()))),
        }
    }
}

/// The encoding in which the unmarked names of an archive were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum NameEncoding {
    /// UTF-8; also when all names are ASCII or marked.
    #[serde(rename = "utf-8")]
    Utf8,
    /// GBK, read as GB18030.
    #[serde(rename = "gbk")]
    Gbk,
    /// Code page 437, and none in GBK.
    #[serde(rename = "cp437")]
    Cp437,
    /// Some in GBK, others in code page 437.
    #[serde(rename = "gbk+cp437")]
    GbkAndCp437,
}

impl NameEncoding {
    /// Its name, as a request has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Gbk => "gbk",
            Self::Cp437 => "cp437",
            Self::GbkAndCp437 => "gbk+cp437",
        }
    }
}

impl fmt::Display for NameEncoding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Tells whether `entry` was packed on a file system with MS-DOS conventions.
pub(super) fn is_fat(entry: &RawEntry) -> bool {
    FAT_HOSTS.contains(&entry.host)
}

/// Decodes the names of all entries, in their order.
///
/// # Errors
/// [`ArchiveError::Undecodable`].
pub(super) fn decode_all(
    entries: &[RawEntry],
    asked: Charset,
) -> Result<(Vec<String>, NameEncoding), ArchiveError> {
    let encoding = match asked {
        Charset::Auto => decide(entries),
        Charset::Utf8 => NameEncoding::Utf8,
        Charset::Gbk => NameEncoding::Gbk,
    };
    let utf_8 = |name: &[u8]| std::str::from_utf8(name).ok().map(str::to_owned);
    let (mut has_gbk, mut has_cp437) = (false, false);
    let mut names = Vec::with_capacity(entries.len());
    for entry in entries {
        let unmarked = &entry.name;
        let name = match (marked(entry), encoding) {
            (Some(name), _) => Some(name.to_owned()),
            (None, NameEncoding::Utf8) => utf_8(unmarked),
            (None, _) => {
                let read = gbk(unmarked);
                has_gbk |= read.is_some();
                read.or_else(|| if asked == Charset::Auto { utf_8(unmarked) } else { None }).or_else(|| {
                    let read = if asked == Charset::Auto { cp437(unmarked) } else { None };
                    has_cp437 |= read.is_some();
                    read
                })
            }
        };
        let undecodable = || ArchiveError::Undecodable { name: entry.shown(), charset: encoding.as_str() };
        names.push(name.ok_or_else(undecodable)?);
    }
    let told = match (has_gbk, has_cp437) {
        (false, true) => NameEncoding::Cp437,
        (true, true) => NameEncoding::GbkAndCp437,
        (_, false) => encoding,
    };
    Ok((names, told))
}

/// The name that the archive itself says how to read.
fn marked(entry: &RawEntry) -> Option<&str> {
    if let Some(name) = &entry.unicode_name {
        return Some(name);
    }
    let is_marked = entry.flags & flag::UTF_8 != 0 || entry.name.is_ascii();
    is_marked.then(|| std::str::from_utf8(&entry.name).ok()).flatten()
}

/// Rules 3 and 4 over all unmarked names.
fn decide(entries: &[RawEntry]) -> NameEncoding {
    let mut unmarked = entries.iter().filter(|entry| marked(entry).is_none()).peekable();
    if unmarked.peek().is_none() {
        return NameEncoding::Utf8;
    }
    let is_chinese_in_disguise = |entry: &RawEntry| match std::str::from_utf8(&entry.name) {
        Err(_) => None,
        Ok(name) => {
            let only_short = name.chars().all(|character| character.len_utf8() <= 2);
            Some(only_short && is_fat(entry) && is_gb2312(&entry.name))
        }
    };
    let mut all = true;
    for entry in unmarked {
        match is_chinese_in_disguise(entry) {
            None => return NameEncoding::Gbk,
            Some(in_disguise) => all &= in_disguise,
        }
    }
    if all { NameEncoding::Gbk } else { NameEncoding::Utf8 }
}

/// Tells whether `name` is ASCII and pairs of the rows that GB 2312 fills (symbols 1 to 9, hanzi 16 to 87).
fn is_gb2312(name: &[u8]) -> bool {
    let mut bytes = name.iter();
    while let Some(lead) = bytes.next() {
        match lead {
            0..=0x7F => {}
            0xA1..=0xA9 | 0xB0..=0xF7 if bytes.next().is_some_and(|trail| (0xA1..=0xFE).contains(trail)) => {}
            _ => return false,
        }
    }
    true
}

/// The text of a link in an archive whose names were read as `encoding`.
pub(super) fn text(bytes: &[u8], encoding: NameEncoding) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) if encoding == NameEncoding::Utf8 => String::from_utf8_lossy(bytes).into_owned(),
        Err(_) => GBK.decode_without_bom_handling(bytes).0.into_owned(),
    }
}

fn gbk(name: &[u8]) -> Option<String> {
    GBK.decode_without_bom_handling_and_without_replacement(name).map(std::borrow::Cow::into_owned)
}

/// The end of rule 5.
fn cp437(name: &[u8]) -> Option<String> {
    name.iter()
        .map(|byte| match byte {
            0..=0x7F => Some(char::from(*byte)),
            0x80..=0xAF => CP437_LETTERS.chars().nth(usize::from(byte - 0x80)),
            0xB0..=0xDF => None,
            0xE0..=0xFF => CP437_SYMBOLS.chars().nth(usize::from(byte - 0xE0)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::entry::Method;
    use super::*;

    const FAT: u8 = 0;
    const UNIX: u8 = 3;

    fn entry(name: &[u8], host: u8, flags: u16) -> RawEntry {
        RawEntry {
            name: name.to_vec(),
            unicode_name: None,
            host,
            flags,
            method: Method::Store,
            crc: 0,
            packed: 0,
            size: 0,
            header_at: 0,
            attributes: 0,
            modified: None,
        }
    }

    fn gbk_bytes(text: &str) -> Vec<u8> {
        GBK.encode(text).0.into_owned()
    }

    fn read(entries: &[RawEntry]) -> (Vec<String>, NameEncoding) {
        decode_all(entries, Charset::Auto).unwrap()
    }

    #[test]
    fn the_tables_of_code_page_437_have_their_lengths() {
        assert_eq!(CP437_LETTERS.chars().count(), 48);
        assert_eq!(CP437_SYMBOLS.chars().count(), 32);
    }

    #[test]
    fn one_clear_gbk_name_settles_the_ambiguous_ones() {
        let entries = [entry(&gbk_bytes("一"), UNIX, 0), entry(&gbk_bytes("数据分析"), UNIX, 0)];
        assert_eq!(read(&entries), (vec!["一".into(), "数据分析".into()], NameEncoding::Gbk));
    }

    #[test]
    fn names_that_are_both_are_gbk_from_fat_and_utf_8_from_unix() {
        for word in ["一", "系统", "学校", "统一"] {
            let bytes = gbk_bytes(word);
            assert!(std::str::from_utf8(&bytes).is_ok(), "{word} is not ambiguous");
            assert_eq!(read(&[entry(&bytes, FAT, 0)]), (vec![word.into()], NameEncoding::Gbk));
            assert_eq!(read(&[entry(&bytes, UNIX, 0)]).1, NameEncoding::Utf8);
        }
    }

    #[test]
    fn unmarked_utf_8_stays_utf_8_even_from_fat() {
        for name in ["数据/说明.md", "é数", "😀"] {
            assert_eq!(read(&[entry(name.as_bytes(), FAT, 0)]), (vec![name.into()], NameEncoding::Utf8));
        }
    }

    #[test]
    fn a_marked_name_is_utf_8_beside_unmarked_gbk() {
        let entries = [entry("表情😀".as_bytes(), FAT, flag::UTF_8), entry(&gbk_bytes("说明"), FAT, 0)];
        assert_eq!(read(&entries), (vec!["表情😀".into(), "说明".into()], NameEncoding::Gbk));
        let (names, _) = decode_all(&entries, Charset::Gbk).unwrap();
        assert_eq!(names, ["表情😀", "说明"]);
    }

    #[test]
    fn a_false_mark_counts_as_none() {
        let entries = [entry(&gbk_bytes("数据"), FAT, flag::UTF_8)];
        assert_eq!(read(&entries), (vec!["数据".into()], NameEncoding::Gbk));
    }

    #[test]
    fn a_name_that_cannot_be_gb18030_falls_back_by_itself() {
        let entries =
            [entry(&gbk_bytes("数据"), FAT, 0), entry(b"caf\x82", FAT, 0), entry("é€".as_bytes(), FAT, 0)];
        let (names, encoding) = read(&entries);
        assert_eq!(encoding, NameEncoding::GbkAndCp437);
        assert_eq!(read(&[entry(b"caf\x82", FAT, 0)]), (vec!["café".into()], NameEncoding::Cp437));
        assert_eq!(names.first().unwrap(), "数据");
        assert_eq!(names.get(1).unwrap(), "café");
        let hopeless = [entry(&gbk_bytes("数据"), FAT, 0), entry(b"line\xC4", FAT, 0)];
        assert!(matches!(decode_all(&hopeless, Charset::Auto), Err(ArchiveError::Undecodable { .. })));
    }

    #[test]
    fn a_request_overrides_the_decision_and_admits_nothing_else() {
        let bytes = gbk_bytes("一");
        let (names, _) = decode_all(&[entry(&bytes, FAT, 0)], Charset::Utf8).unwrap();
        assert_eq!(names, ["һ"]);
        let (names, _) = decode_all(&[entry(&bytes, UNIX, 0)], Charset::Gbk).unwrap();
        assert_eq!(names, ["一"]);
        let clear = [entry(&gbk_bytes("数据分析"), FAT, 0)];
        assert!(matches!(
            decode_all(&clear, Charset::Utf8),
            Err(ArchiveError::Undecodable { charset: "utf-8", .. })
        ));
    }

    #[test]
    fn charsets_are_read_from_their_names_and_unknown_ones_are_named() {
        for (text, charset) in [("auto", Charset::Auto), ("UTF-8", Charset::Utf8), ("GBK", Charset::Gbk)] {
            assert_eq!(text.parse::<Charset>().unwrap(), charset);
        }
        let error = "big5".parse::<Charset>().unwrap_err();
        assert_eq!(error.to_string(), "`big5` is not a charset of names: send `auto`, `utf-8` or `gbk`");
    }
}
