//! Descriptors that the process inherited: an open file or socket is a way past all rules.
//!
//! What this program opened is closed when it executes another, by the standard library's flag, so
//! that what lacks the flag came from outside, as terminals and editors leave some open.

use std::path::Path;

use crate::error::ConfineError;

/// Closes all descriptors from 3 on that a child would inherit.
pub(crate) fn close_inherited() -> Result<(), ConfineError> {
    for number in inherited().map_err(ConfineError::step("list open descriptors"))? {
        nix::unistd::close(number).map_err(ConfineError::step("close a descriptor"))?;
    }
    Ok(())
}

fn inherited() -> std::io::Result<Vec<i32>> {
    let folder = Path::new("/proc/self/fdinfo");
    let entries = folder.read_dir()?.collect::<std::io::Result<Vec<_>>>()?;
    let numbers = entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = |number: &i32| *number > 2 && is_inherited(&folder.join(number.to_string()));
    Ok(numbers.filter(own).collect())
}

/// Whether the kernel's description of a descriptor lacks the flag. The one of the listing itself
/// is gone by now.
fn is_inherited(info: &Path) -> bool {
    let info = std::fs::read_to_string(info).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_CLOEXEC.cast_unsigned() == 0)
}
