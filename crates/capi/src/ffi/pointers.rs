//! Reads what pointers of callers point at, and writes there.
//!
//! Invariant: null pointers, lengths that no memory has, addresses that are not aligned, and texts
//! that are not UTF-8 are errors before anything is read.

use crate::error::CapiError;
use std::ffi::c_char;
use std::slice;

/// Maximum bytes of an argument that is read.
const MAX_READ: usize = 1 << 30;
/// Maximum bytes of a struct: a larger size is none.
const MAX_STRUCT: usize = 4096;

/// A struct of the interface, whose first field is its size in bytes.
///
/// # Safety
/// It is `repr(C)`, begins with a `usize`, has no padding, and holds a value whatever bytes it has.
pub(crate) unsafe trait SizedStruct: Copy {
    /// The size of its first version.
    const MIN_SIZE: usize;
}

/// The array of `count` values at `from`; empty where there are none.
///
/// # Safety
/// If it is not null, `from` points to `count` values that nothing changes during the call.
pub(crate) unsafe fn array<'a, T: Copy>(
    name: &'static str,
    from: *const T,
    count: usize,
) -> Result<&'a [T], CapiError> {
    if count == 0 {
        return Ok(&[]);
    }
    let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| *bytes <= MAX_READ);
    if bytes.is_none() {
        let most = MAX_READ / size_of::<T>();
        let problem = format!("expected a length of at most {most}, found {count}");
        return Err(CapiError::invalid(name, problem));
    }
    check(name, from)?;
    // SAFETY: the caller passes `count` values there, and the checks above leave a slice that is
    // not null, aligned, and no longer than an address can count.
    Ok(unsafe { slice::from_raw_parts(from, count) })
}

/// The text of `length` bytes at `from`.
///
/// # Safety
/// As [`array`].
pub(crate) unsafe fn text<'a>(
    name: &'static str,
    from: *const c_char,
    length: usize,
) -> Result<&'a str, CapiError> {
    // SAFETY: as promised by the caller.
    let bytes = unsafe { array(name, from.cast::<u8>(), length) }?;
    str::from_utf8(bytes).map_err(|error| {
        let problem =
            format!("expected UTF-8, found other bytes from byte {}", error.valid_up_to());
        CapiError::invalid(name, problem)
    })
}

/// The texts of `count` pointers and lengths.
///
/// # Safety
/// As [`text`], for both arrays and each text.
pub(crate) unsafe fn texts<'a>(
    name: &'static str,
    from: *const *const c_char,
    lengths: *const usize,
    count: usize,
) -> Result<Vec<&'a str>, CapiError> {
    // SAFETY: as promised by the caller.
    let (from, lengths) = unsafe { (array(name, from, count)?, array("lengths", lengths, count)?) };
    let pairs = from.iter().zip(lengths);
    // SAFETY: as promised by the caller.
    pairs.map(|(from, length)| unsafe { text(name, *from, *length) }).collect()
}

/// The values of an optional struct: of what the caller's version of it has, over the default.
///
/// # Safety
/// If it is not null, `from` points to as many bytes as its first field says.
pub(crate) unsafe fn options<T: SizedStruct + Default>(
    name: &'static str,
    from: *const T,
) -> Result<T, CapiError> {
    let mut value = T::default();
    if from.is_null() {
        return Ok(value);
    }
    check(name, from)?;
    // SAFETY: a struct begins with its size.
    let size = unsafe { struct_size(name, from) }?;
    let known = size.min(size_of::<T>());
    // SAFETY: the caller has `size` bytes there, and any bytes are a value of `T`.
    unsafe { from.cast::<u8>().copy_to_nonoverlapping((&raw mut value).cast(), known) };
    // SAFETY: the same bytes of the caller.
    let newer = unsafe { slice::from_raw_parts(from.cast::<u8>().add(known), size - known) };
    match newer.iter().all(|byte| *byte == 0) {
        true => Ok(value),
        false => Err(CapiError::invalid(name, "a newer version of the library knows more fields")),
    }
}

/// Writes `value` to `to`, as far as the caller's version of the struct goes.
///
/// # Safety
/// If it is not null, `to` points to as many bytes as its first field says.
pub(crate) unsafe fn give_struct<T: SizedStruct>(
    name: &'static str,
    to: *mut T,
    value: T,
) -> Result<(), CapiError> {
    check(name, to)?;
    // SAFETY: a struct begins with its size.
    let size = unsafe { struct_size(name, to) }?.min(size_of::<T>());
    let head = size_of::<usize>();
    // SAFETY: both have `size` bytes, of which the first are the caller's size of it.
    unsafe {
        let from = (&raw const value).cast::<u8>().add(head);
        from.copy_to_nonoverlapping(to.cast::<u8>().add(head), size - head);
    }
    Ok(())
}

/// The size that a struct has as its first field.
///
/// # Safety
/// `from` points to at least that field, and is aligned.
unsafe fn struct_size<T: SizedStruct>(
    name: &'static str,
    from: *const T,
) -> Result<usize, CapiError> {
    // SAFETY: as promised by the caller; the struct is `repr(C)` and begins with the size.
    let size = unsafe { from.cast::<usize>().read() };
    match (T::MIN_SIZE..=MAX_STRUCT).contains(&size) {
        true => Ok(size),
        false => {
            let problem = format!("expected its size in its first field, found {size}");
            Err(CapiError::invalid(name, problem))
        }
    }
}

/// Checks a place for a result before it is computed.
pub(crate) fn check<T>(name: &'static str, place: *const T) -> Result<(), CapiError> {
    if place.is_null() {
        return Err(CapiError::invalid(name, "expected a pointer, found null"));
    }
    match place.is_aligned() {
        true => Ok(()),
        false => Err(CapiError::invalid(name, "the address is not aligned for its type")),
    }
}

/// Writes `value` to `to`.
///
/// # Safety
/// If it is not null, `to` points to memory for a value.
pub(crate) unsafe fn give<T>(name: &'static str, to: *mut T, value: T) -> Result<(), CapiError> {
    check(name, to)?;
    // SAFETY: as promised by the caller, and checked.
    unsafe { to.write(value) };
    Ok(())
}

/// The same where `to` is not null.
///
/// # Safety
/// As [`give`].
pub(crate) unsafe fn give_if_asked<T>(
    name: &'static str,
    to: *mut T,
    value: T,
) -> Result<(), CapiError> {
    // SAFETY: as promised by the caller.
    if to.is_null() { Ok(()) } else { unsafe { give(name, to, value) } }
}

/// A buffer of the caller, and where the size that it needs goes.
#[derive(Clone, Copy)]
pub(crate) struct Buffer<T> {
    pub name: &'static str,
    pub to: *mut T,
    pub capacity: usize,
    /// May be null.
    pub needed: *mut usize,
}

impl<T: Copy> Buffer<T> {
    /// Whether nothing fits, and the caller asks for the size only.
    pub(crate) fn is_empty(&self) -> bool {
        self.to.is_null() || self.capacity == 0
    }

    /// Returns the size that is needed, and an error if the buffer is smaller.
    ///
    /// # Safety
    /// If it is not null, `needed` points to memory for a value.
    pub(crate) unsafe fn check(&self, needed: usize) -> Result<(), CapiError> {
        // SAFETY: as promised by the caller.
        unsafe { give_if_asked("needed", self.needed, needed) }?;
        let capacity = if self.to.is_null() { 0 } else { self.capacity };
        match needed <= capacity {
            true => Ok(()),
            false => Err(CapiError::TooSmall { name: self.name, needed, capacity }),
        }
    }

    /// Writes `values`, if all of them fit.
    ///
    /// # Safety
    /// As [`check`](Self::check), and the buffer has memory for `capacity` values.
    pub(crate) unsafe fn give(&self, values: &[T]) -> Result<(), CapiError> {
        // SAFETY: as promised by the caller.
        unsafe { self.check(values.len()) }?;
        if values.is_empty() {
            return Ok(());
        }
        check(self.name, self.to)?;
        // SAFETY: the buffer has memory for the values, which lie elsewhere.
        unsafe { values.as_ptr().copy_to_nonoverlapping(self.to, values.len()) };
        Ok(())
    }
}
