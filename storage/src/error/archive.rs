//! [`ArchiveError`]: one variant for each way an archive lies, breaks or asks for too much.

use encoding_rs::GBK;
use policy::{IdError, PathError};
use thiserror::Error;

/// Characters of an entry's name that a message shows.
const EXCERPT_CHARS: usize = 80;

/// Why an archive was refused. Whenever planning fails, nothing has been written.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// None of the formats that are read.
    #[error(
        "the upload is no archive that is read here: send a `.zip`, `.tar`, `.tar.gz` or `.tar.zst` (not RAR or 7z)"
    )]
    NotZip,
    /// It begins as a ZIP and has no end record.
    #[error("the archive ends too early: it was cut while being made or sent, send it again")]
    Truncated,
    /// Part of a set of volumes.
    #[error("the archive is one volume of several: pack it again as a single file")]
    MultiVolume,
    /// More than one end record could be meant, so that two programs would see different contents.
    #[error("the archive has several end records: pack the files again with an ordinary tool")]
    SeveralEndRecords,
    /// Bytes other than zero follow the end record.
    #[error("{bytes} bytes follow the end of the archive: remove them or pack the files again")]
    TrailingBytes {
        /// How many.
        bytes: u64,
    },
    /// The central directory is not where the end record says.
    #[error("the table of contents is not where the archive says: pack the files again")]
    MisplacedDirectory,
    /// Bytes stand before the first entry, as in a self-extracting program.
    #[error("{bytes} bytes stand before the first entry (a self-extracting program?): send a plain `.zip`")]
    LeadingBytes {
        /// How many.
        bytes: u64,
    },
    /// The number of entries is not the number declared.
    #[error("the archive declares {declared} entries and lists {found}: pack the files again")]
    CountMismatch {
        /// The number in the end record.
        declared: u64,
        /// The number in the central directory; counting stops one above the declared number.
        found: u64,
    },
    /// Something in the central directory is no central header.
    #[error("entry {index} in the table of contents is unreadable: pack the files again")]
    BadDirectory {
        /// Which, from 0.
        index: u64,
    },
    /// Something in a tar could be read in two ways, or in none.
    #[error("entry {index} of the tar cannot be read: {fault}; pack the files again with an ordinary tool")]
    BadTar {
        /// Which, from 0.
        index: usize,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// A file with holes that a tar leaves out.
    #[error("`{name}` is packed as a sparse file: pack it again without `--sparse`")]
    Sparse {
        /// The entry.
        name: String,
    },
    /// An entry's data would lie outside the file.
    #[error("`{name}` points past the end of the archive: the archive is damaged, send it again")]
    PastEnd {
        /// The entry.
        name: String,
    },
    /// An entry's data overlaps another's, as in an overlap bomb.
    #[error("the data of `{name}` overlaps another entry's: pack the files again with an ordinary tool")]
    Overlap {
        /// The entry.
        name: String,
    },
    /// Bytes between two entries that the central directory does not list.
    #[error("{bytes} bytes after `{after}` belong to no listed entry: pack the files again")]
    Unlisted {
        /// The entry before them.
        after: String,
        /// How many.
        bytes: u64,
    },
    /// The header before the data contradicts the table of contents.
    #[error("the two headers of `{name}` disagree about its {field}: pack the files again")]
    HeadersDisagree {
        /// The entry.
        name: String,
        /// The field about which they disagree.
        field: &'static str,
    },
    /// The large-file (zip64) fields are missing, doubled or contradict the ordinary ones.
    #[error("the large-file (zip64) fields of {place} are wrong: pack the files again without them")]
    Zip64 {
        /// Where.
        place: String,
    },
    /// The extra fields do not fill the space they declare.
    #[error("the extra fields of `{name}` are damaged: pack the files again")]
    BadExtra {
        /// The entry.
        name: String,
    },
    /// Needs a password.
    #[error("`{name}` is encrypted: pack the files without a password")]
    Encrypted {
        /// The entry.
        name: String,
    },
    /// A difference to a file of another archive.
    #[error("`{name}` is a patch for another archive: pack the whole file")]
    Patch {
        /// The entry.
        name: String,
    },
    /// A compression method other than store and deflate.
    #[error("`{name}` uses compression method {method}: pack the files with deflate (the usual method)")]
    Method {
        /// The entry.
        name: String,
        /// Its method (APPNOTE.TXT 4.4.5).
        method: u16,
    },
    /// The name would lead out of the place of extraction.
    #[error("`{name}` leads out of the archive: use paths without `..`, drive letter or leading slash")]
    Escape {
        /// The entry.
        name: String,
    },
    /// The name cannot be a path here.
    #[error("`{name}` cannot be stored under this name: rename it")]
    Path {
        /// The entry.
        name: String,
        /// The rule broken.
        #[source]
        source: PathError,
    },
    /// The name is in none of the encodings tried.
    #[error("`{name}` is not readable as {charset}: send `charset=utf-8` or `charset=gbk`, or rename it")]
    Undecodable {
        /// The entry.
        name: String,
        /// The charset that was tried.
        charset: &'static str,
    },
    /// The requested charset has no such name.
    #[error("`{0}` is not a charset of names: send `auto`, `utf-8` or `gbk`")]
    UnknownCharset(String),
    /// A link in a skill to something outside of it.
    #[error("`{name}` is a link to `{target}`, which is not in its skill: replace it by what it means")]
    LinkLeaves {
        /// The link.
        name: String,
        /// Where it leads, as it is written.
        target: String,
    },
    /// A link in a skill to something that is not there.
    #[error("`{name}` is a link to `{target}`, which is not in the archive: replace it or leave it out")]
    LinkDangling {
        /// The link.
        name: String,
        /// Where it leads, as it is written.
        target: String,
    },
    /// A link in a skill that leads to itself, to a directory around it, or through too many links.
    #[error(
        "`{name}` is a link that leads round in a circle, or through too many links: replace it by what it means"
    )]
    LinkLoop {
        /// The link.
        name: String,
    },
    /// A device, a socket, or a pipe without data.
    #[error("`{name}` is a device, pipe or socket: leave it out")]
    Device {
        /// The entry.
        name: String,
    },
    /// A directory with content of its own.
    #[error("the directory `{name}` has data: pack the files again")]
    DirectoryWithData {
        /// The entry.
        name: String,
    },
    /// Two files of one name, after decoding.
    #[error("`{name}` is in the archive twice: leave one out")]
    Duplicate {
        /// The path.
        name: String,
    },
    /// Two names that are one path to a program which takes `\\` for a separator.
    #[error("`{name}` and `{other}` are one file to some programs and two to others: rename one")]
    Ambiguous {
        /// The name.
        name: String,
        /// The other name.
        other: String,
    },
    /// One path is a file and a directory.
    #[error("`{name}` is both a file and a directory: rename one")]
    FileAndDirectory {
        /// The path.
        name: String,
    },
    /// More files and directories than allowed, implied directories included.
    #[error("the archive has more than {limit} files and directories: leave some out")]
    TooManyEntries {
        /// The limit.
        limit: usize,
    },
    /// Too many directory levels.
    #[error("`{name}` lies more than {limit} directories deep: move it up")]
    TooDeep {
        /// The entry.
        name: String,
        /// The limit.
        limit: usize,
    },
    /// The path is too long.
    #[error("the path `{name}` has more than {limit} bytes: shorten it")]
    PathTooLong {
        /// The entry.
        name: String,
        /// The limit, in bytes of UTF-8.
        limit: usize,
    },
    /// One file is too large.
    #[error("`{name}` has {bytes} bytes, at most {limit} are allowed: make it smaller or leave it out")]
    FileTooLarge {
        /// The entry.
        name: String,
        /// Its unpacked size.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// All files together are too large.
    #[error("the files have more than {limit} bytes together: leave some out")]
    TotalTooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// A large file that shrinks as no honest content does.
    #[error("`{name}` unpacks to more than {limit} times its packed size: leave it out")]
    Ratio {
        /// The entry.
        name: String,
        /// The limit, unpacked bytes per packed byte.
        limit: u64,
    },
    /// The compressed data is damaged.
    #[error("the compressed data of `{name}` is damaged: send the archive again")]
    Corrupt {
        /// The entry.
        name: String,
    },
    /// The data has another size than declared.
    #[error("`{name}` does not unpack to its declared {declared} bytes: pack the files again")]
    WrongSize {
        /// The entry.
        name: String,
        /// The declared size, in bytes.
        declared: u64,
    },
    /// The data has another CRC-32 than declared.
    #[error("the checksum of `{name}` is wrong: the archive is damaged, send it again")]
    Checksum {
        /// The entry.
        name: String,
    },
    /// No file at all.
    #[error("the archive has no files: add a directory with a `SKILL.md`")]
    Empty,
    /// Files in the root, none of which is a SKILL.md, and no directory.
    #[error("the archive has files but neither a directory nor a `SKILL.md`: put the skill into a directory")]
    NoSkill,
    /// A skill without a directory and without a usable name.
    #[error("`SKILL.md` lies in the root and nothing names the skill: put the files into a directory")]
    Nameless,
    /// Two skills of one name.
    #[error(
        "`{first}` and `{second}` are both the skill `{id}`: give one another `name` in its SKILL.md, or leave one out"
    )]
    SameSkill {
        /// The id that both would get.
        id: String,
        /// The folder of one.
        first: String,
        /// The folder of the other.
        second: String,
    },
    /// A directory whose name cannot be a skill's id.
    #[error("the directory `{name}` cannot become a skill: rename it, or give its SKILL.md a valid `name`")]
    SkillName {
        /// The directory.
        name: String,
        /// The rule broken.
        #[source]
        source: IdError,
    },
    /// The file is not the one that was planned.
    #[error("the archive changed while it was read: send it again")]
    Changed,
}

/// A bounded form of an entry's name for messages: control characters escaped, bytes that are not UTF-8 read as
/// GB18030, which is what they most likely are.
pub(crate) fn excerpt(name: &[u8]) -> String {
    let head = name.get(..EXCERPT_CHARS * 4).unwrap_or(name);
    // A character that the cut divides does not make the name another encoding's.
    let is_utf_8 = std::str::from_utf8(head).map_or_else(|error| error.error_len().is_none(), |_| true);
    let text = if is_utf_8 { String::from_utf8_lossy(head) } else { GBK.decode_without_bom_handling(head).0 };
    let mut shown = String::new();
    for character in text.chars().take(EXCERPT_CHARS) {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    if head.len() < name.len() || text.chars().nth(EXCERPT_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
