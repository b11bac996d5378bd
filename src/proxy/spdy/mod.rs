//! SPDY/3.1 as far as kubelets speak it: several streams of bytes on one connection (SPDY/3.1
//! draft, `github.com/moby/spdystream`).
//!
//! There is no flow control: kubelets know none, and a connection that is not read holds all its
//! streams. Header blocks are written in stored blocks of zlib, which need neither the protocol's
//! dictionary nor memory, and those of the other side are skipped: nothing in them is of use.

mod read;
mod write;

pub use read::{Frame, FrameReader};
pub use write::FrameWriter;

/// The name of the protocol in upgrades.
pub const PROTOCOL: &str = "SPDY/3.1";
/// The version in control frames.
const VERSION: u16 = 3;
/// The longest control frame of the other side.
pub const MAX_CONTROL: usize = 64 * 1024;
/// The longest part of a data frame that is read at once.
pub const MAX_DATA: usize = 32 * 1024;
/// The flag of the last frame of a stream.
const FIN: u8 = 1;

/// The types of control frames.
mod kind {
    pub const SYN_STREAM: u16 = 1;
    pub const SYN_REPLY: u16 = 2;
    pub const RST_STREAM: u16 = 3;
    pub const PING: u16 = 6;
    pub const GOAWAY: u16 = 7;
}

#[cfg(test)]
mod tests;
