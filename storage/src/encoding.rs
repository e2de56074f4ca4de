//! [`TextEncoding`]: text that is not UTF-8, shown as UTF-8 and written back as it was.
//!
//! How a file is read:
//!
//! 1. one that begins with a byte order mark of UTF-16 is UTF-16 (RFC 2781, section 3.2);
//! 2. what is valid UTF-8 is UTF-8, with or without a mark;
//! 3. what has no NUL, decodes as GB 18030 and mostly consists of characters that GB 2312 has, is GBK; or GB 18030, when
//!    it has characters that GBK has not. Text in a Western code page does not pass, because its letters do not come in
//!    pairs; text in another East Asian one may.
//!
//! In each case the text must encode to the very bytes that it came from. So after any guess, a change of a text
//! changes only the bytes of the changed characters.

use std::borrow::Cow;
use std::fmt;

use encoding_rs::{Encoding, GB18030, GBK};
use serde::Serialize;

/// Of a hundred characters that are not ASCII, how many GB 2312 must have for bytes to be taken for Chinese.
const COMMON_PERCENT: usize = 70;

/// How a text lies on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum TextEncoding {
    /// UTF-8; a byte order mark is part of the text.
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    /// GBK: one or two bytes a character.
    #[serde(rename = "gbk")]
    Gbk,
    /// GB 18030, with characters of four bytes.
    #[serde(rename = "gb18030")]
    Gb18030,
    /// UTF-16, low byte first, with a byte order mark, which is no part of the text.
    #[serde(rename = "utf-16le")]
    Utf16Le,
    /// UTF-16, high byte first, with a byte order mark, which is no part of the text.
    #[serde(rename = "utf-16be")]
    Utf16Be,
}

/// A character that an encoding lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unencodable {
    /// The encoding.
    pub encoding: TextEncoding,
    /// The character.
    pub character: char,
    /// Its line, 1-based.
    pub line: u64,
}

/// A text that is no name of a [`TextEncoding`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an encoding of texts: send `utf-8`, `gbk`, `gb18030`, `utf-16le` or `utf-16be`")]
pub struct UnknownEncoding(String);

impl std::str::FromStr for TextEncoding {
    type Err = UnknownEncoding;

    fn from_str(text: &str) -> Result<Self, UnknownEncoding> {
        match text.to_ascii_lowercase().as_str() {
            "utf-8" => Ok(Self::Utf8),
            "gbk" => Ok(Self::Gbk),
            "gb18030" => Ok(Self::Gb18030),
            "utf-16le" => Ok(Self::Utf16Le),
            "utf-16be" => Ok(Self::Utf16Be),
            _ => Err(UnknownEncoding(text.chars().take(40).collect())),
        }
    }
}

impl fmt::Display for TextEncoding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Utf8 => "utf-8",
            Self::Gbk => "gbk",
            Self::Gb18030 => "gb18030",
            Self::Utf16Le => "utf-16le",
            Self::Utf16Be => "utf-16be",
        })
    }
}

/// Reads the text that `bytes` are; `None` when they are none.
#[must_use]
pub fn decode(bytes: Vec<u8>) -> Option<(String, TextEncoding)> {
    match String::from_utf8(bytes) {
        Ok(text) => Some((text, TextEncoding::Utf8)),
        Err(error) => decode_other(error.as_bytes()),
    }
}

/// As [`decode`], of bytes that are not UTF-8.
fn decode_other(bytes: &[u8]) -> Option<(String, TextEncoding)> {
    if let Some((encoding, rest)) = utf_16(bytes) {
        return utf_16_text(rest, encoding).map(|text| (text, encoding));
    }
    if !is_chinese(bytes) {
        return None;
    }
    let text = GB18030.decode_without_bom_handling_and_without_replacement(bytes)?;
    let reads_back = |encoding| encode_gb(&text, encoding).is_ok_and(|encoded| encoded == bytes);
    let encoding =
        [TextEncoding::Gbk, TextEncoding::Gb18030].into_iter().find(|encoding| reads_back(*encoding))?;
    Some((text.into_owned(), encoding))
}

/// The encoding that a byte order mark names, and the bytes after it.
pub(crate) fn utf_16(bytes: &[u8]) -> Option<(TextEncoding, &[u8])> {
    let little = bytes.strip_prefix(b"\xFF\xFE").map(|rest| (TextEncoding::Utf16Le, rest));
    little.or_else(|| bytes.strip_prefix(b"\xFE\xFF").map(|rest| (TextEncoding::Utf16Be, rest)))
}

fn utf_16_text(bytes: &[u8], encoding: TextEncoding) -> Option<String> {
    let (pairs, odd) = bytes.as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    let unit = |pair: &[u8; 2]| match encoding {
        TextEncoding::Utf16Be => u16::from_be_bytes(*pair),
        _ => u16::from_le_bytes(*pair),
    };
    let text: String = char::decode_utf16(pairs.iter().map(unit)).collect::<Result<_, _>>().ok()?;
    // Data that happens to begin with a mark; no text has it.
    (!text.contains('\0')).then_some(text)
}

/// Tells whether bytes that are not UTF-8 look like Chinese text in GBK or GB 18030, or like the beginning of one.
pub(crate) fn is_chinese(bytes: &[u8]) -> bool {
    let (mut common, mut others) = (0_usize, 0_usize);
    let mut rest = bytes;
    loop {
        let ascii = rest.iter().position(|byte| !byte.is_ascii()).unwrap_or(rest.len());
        let (plain, from) = rest.split_at(ascii);
        if plain.contains(&0) {
            return false;
        }
        rest = match from {
            [] => break,
            [0xA1..=0xA9 | 0xB0..=0xF7, 0xA1..=0xFE, after @ ..] => {
                common += 1;
                after
            }
            [0x81..=0xFE, 0x30..=0x39, 0x81..=0xFE, 0x30..=0x39, after @ ..] => {
                others += 1;
                after
            }
            [0x81..=0xFE, 0x40..=0x7E | 0x80..=0xFE, after @ ..] => {
                others += 1;
                after
            }
            // The end of what was read cut a character in two.
            [0x81..=0xFE] | [0x81..=0xFE, 0x30..=0x39] | [0x81..=0xFE, 0x30..=0x39, 0x81..=0xFE] => break,
            _ => return false,
        };
    }
    common.saturating_mul(100) >= common.saturating_add(others).saturating_mul(COMMON_PERCENT) && common > 0
}

/// Writes `text` as it lies on the disk in `encoding`.
///
/// # Errors
/// [`Unencodable`] for the first character that the encoding lacks.
pub fn encode(text: &str, encoding: TextEncoding) -> Result<Cow<'_, [u8]>, Unencodable> {
    match encoding {
        TextEncoding::Utf8 => Ok(Cow::Borrowed(text.as_bytes())),
        TextEncoding::Gbk | TextEncoding::Gb18030 => {
            let encoded = encode_gb(text, encoding).map_err(|at| {
                let before = text.get(..at).unwrap_or_default();
                let character = text.get(at..).and_then(|rest| rest.chars().next()).unwrap_or_default();
                let line = u64::try_from(before.matches('\n').count()).unwrap_or(u64::MAX).saturating_add(1);
                Unencodable { encoding, character, line }
            })?;
            Ok(Cow::Owned(encoded))
        }
        TextEncoding::Utf16Le => {
            let units = text.encode_utf16().flat_map(u16::to_le_bytes);
            Ok(b"\xFF\xFE".iter().copied().chain(units).collect())
        }
        TextEncoding::Utf16Be => {
            let units = text.encode_utf16().flat_map(u16::to_be_bytes);
            Ok(b"\xFE\xFF".iter().copied().chain(units).collect())
        }
    }
}

/// Encodes to GBK or GB 18030, or tells where the first character is that cannot be.
fn encode_gb(text: &str, encoding: TextEncoding) -> Result<Vec<u8>, usize> {
    let table: &'static Encoding = if encoding == TextEncoding::Gbk { GBK } else { GB18030 };
    let mut encoder = table.new_encoder();
    let mut bytes = Vec::with_capacity(text.len().saturating_add(16));
    let mut rest = text;
    loop {
        let (result, read) = encoder.encode_from_utf8_to_vec_without_replacement(rest, &mut bytes, true);
        rest = rest.get(read..).unwrap_or_default();
        match result {
            encoding_rs::EncoderResult::InputEmpty => return Ok(bytes),
            encoding_rs::EncoderResult::OutputFull => bytes.reserve(rest.len().saturating_mul(2).max(64)),
            // The encoder has read the character already.
            encoding_rs::EncoderResult::Unmappable(character) => {
                return Err(text.len() - rest.len() - character.len_utf8());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gbk(text: &str) -> Vec<u8> {
        GBK.encode(text).0.into_owned()
    }

    fn read(bytes: &[u8]) -> Option<(String, TextEncoding)> {
        decode(bytes.to_vec())
    }

    #[test]
    fn each_encoding_is_recognised_and_written_back_byte_for_byte() {
        let text = "第一行: 数据分析\r\n第二行，统计。\nascii only\n";
        let all = [TextEncoding::Utf8, TextEncoding::Gbk, TextEncoding::Utf16Le, TextEncoding::Utf16Be];
        for encoding in all {
            let bytes = encode(text, encoding).unwrap().into_owned();
            assert_eq!(read(&bytes), Some((text.to_owned(), encoding)), "{encoding}");
        }
        let rare = "数据分析统计报告说明文档😀\n";
        let bytes = encode(rare, TextEncoding::Gb18030).unwrap().into_owned();
        assert_eq!(read(&bytes), Some((rare.to_owned(), TextEncoding::Gb18030)));
        // GBK as Windows writes the euro sign, and as GB 18030 does.
        assert_eq!(read(&[gbk("数据分析").as_slice(), b"\x80"].concat()), None);
        let euro = [gbk("数据分析").as_slice(), b"\xA2\xE3"].concat();
        assert_eq!(read(&euro), Some(("数据分析€".to_owned(), TextEncoding::Gb18030)));
        assert_eq!(read("\u{feff}数".as_bytes()), Some(("\u{feff}数".to_owned(), TextEncoding::Utf8)));
        assert_eq!(read(b""), Some((String::new(), TextEncoding::Utf8)));
    }

    #[test]
    fn western_text_and_data_are_no_chinese() {
        for bytes in [
            &b"caf\xE9\n"[..],
            b"na\xEFve r\xE9sum\xE9s of \xFCber-cool \xE4pple",
            b"\xFF\xFE\x00",
            b"\xFF\xFE\x00\xD8",
            b"\xFF\xFEa\x00\x00\x00",
            b"\x89PNG\r\n\x1a\n\x00\x00",
            b"\xB0\xA1\x00\xB0\xA1",
            b"\x80",
            b"\xFF",
        ] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_character_that_the_encoding_lacks_is_named_with_its_line() {
        match encode("好\n坏😀", TextEncoding::Gbk) {
            Err(Unencodable { character: '😀', line: 2, encoding: TextEncoding::Gbk }) => {}
            other => panic!("{other:?}"),
        }
        assert!(encode("好😀", TextEncoding::Gb18030).is_ok());
        assert!(matches!(encode("\u{e5e5}", TextEncoding::Gb18030), Err(Unencodable { line: 1, .. })));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_back_as_it_was(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some((text, encoding)) = read(&bytes) {
                prop_assert_eq!(encode(&text, encoding).unwrap().into_owned(), bytes);
            }
        }

        #[test]
        fn chinese_text_in_gbk_is_read_as_what_it_is(text in "[的一是不了人我在有他这中大来上国说们为子a-z \n]{4,60}") {
            let bytes = gbk(&text);
            if std::str::from_utf8(&bytes).is_err() {
                prop_assert_eq!(read(&bytes), Some((text, TextEncoding::Gbk)));
            }
        }
    }
}
