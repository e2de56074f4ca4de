//! The wire between a service and a runner: JSON in WebSocket text frames. No I/O is done here.
//!
//! A runner connects to the service and registers; then the service asks and the runner answers, many requests at once and in any
//! order. `docs/RUNNER.md` specifies every frame.
//!
//! * [`frame`]: the envelope `{"id","type","user_id","body"}`, and the flat form of the founding document.
//! * [`register`]: how a connection begins, and which [`Feature`]s both sides have.
//! * [`request`], [`response`]: what is asked, and what is answered.
//! * [`live`]: commands in which a caller takes part, across connections. [`founding`]: the same as services of August 2026 ask for it.
//! * [`transfer`]: large files over HTTP.
//! * [`code`]: the error codes. [`mode`]: Go's numbers for file modes. [`data`]: bytes as base64.
//!
//! Three dialects meet here. The first runners (2026-03) handle one request at a time; those that followed (2026-08) many. Both lose
//! bytes that are no UTF-8, carry a file in one frame and know no times below a second. A runner with [`Feature::Exact`] is asked in
//! pieces and answers byte for byte. Unknown fields are ignored by all of them.

pub mod code;
mod data;
mod exec;
pub mod founding;
pub mod frame;
pub mod live;
pub mod mode;
pub mod register;
pub mod request;
pub mod response;
pub mod transfer;

pub use self::data::Data;
pub use self::founding::Founding;
pub use self::frame::{Frame, Malformed};
pub use self::register::{Feature, Register, Registered};
pub use self::request::Request;
pub use self::response::{Failed, Response};
pub use self::transfer::{Moved, TRANSFER_BYTES_MIN, Transfer};

/// The largest frame that either side sends or takes, in bytes: a file of 12 MiB in base64, for runners without pieces.
pub const FRAME_BYTES_MAX: usize = 16 << 20;

/// The largest file for a runner that has no pieces, in bytes.
pub const ONE_FRAME_BYTES_MAX: u64 = 11 << 20;

/// The bytes of a piece of a file, or of output, before base64.
pub const PIECE_BYTES: usize = 512 << 10;

/// Requests of one connection that wait for their answers, at most.
pub const CALLS_MAX: usize = 256;

/// Files that one connection has open, at most.
pub const FILES_MAX: usize = 64;
