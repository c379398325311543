//! Texts of errors, and versions.

use crate::status::GANNET_API_VERSION;
use std::ffi::c_char;

/// With the zero that ends a text of C.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// Returns the version of the interface of this library: GANNET_API_VERSION of its header.
#[unsafe(no_mangle)]
pub extern "C" fn gannet_api_version() -> u32 {
    entry!(GANNET_API_VERSION, { GANNET_API_VERSION })
}

/// Returns the version of this library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn gannet_version() -> *const c_char {
    entry!(VERSION.as_ptr().cast(), { VERSION.as_ptr().cast() })
}

/// Returns the text of the last error of this thread, which says what was expected and what was
/// found; an empty one if there was none. The text stays where it is until a function fails in this
/// thread again, or the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn gannet_last_error() -> *const c_char {
    entry!(c"".as_ptr(), { crate::entry::last_error() })
}
