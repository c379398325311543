//! The version of the interface, and the statuses that its functions return.

/// The version of the interface, for gannet_open. It grows when programs must be compiled anew.
pub const GANNET_API_VERSION: u32 = 1;

/// What a function returns.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "the names are those of C")]
pub enum GannetStatus {
    /// All went well.
    GANNET_OK = 0,
    /// An argument is not what was expected.
    GANNET_INVALID = 1,
    /// A handle is null, was freed, is of another kind, or is none of this library.
    GANNET_HANDLE = 2,
    /// A buffer is too small; the size that it needs is returned.
    GANNET_TOO_SMALL = 3,
    /// Nothing came in time.
    GANNET_TIMEOUT = 4,
    /// The body of a response has ended.
    GANNET_END = 5,
    /// A model cannot be found or loaded.
    GANNET_MODEL = 6,
    /// A request was refused.
    GANNET_REQUEST = 7,
    /// The engine has ended, or was closed.
    GANNET_STOPPED = 8,
    /// An engine that was closed is still in use by another thread.
    GANNET_IN_USE = 9,
    /// The program was made for another version of the interface.
    GANNET_VERSION = 10,
    /// The system refuses something, or there are too many handles.
    GANNET_SYSTEM = 11,
    /// An error of the library itself. The engine that was used answers nothing more.
    GANNET_INTERNAL = 12,
}
