//! Budgets of a template: bytes written and bytes read.
//!
//! The template engine counts instructions; these two budgets bound the work of one instruction.
//! Both grow with the input, so that long conversations render and endless ones do not.

use minijinja::{Error, ErrorKind, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that a template may write, and how many more for each byte of input.
const MAKE_BASE: u64 = 24 << 20;
const MAKE_PER_INPUT_BYTE: u64 = 64;
/// The same for bytes that operations read.
const READ_BASE: u64 = 512 << 20;
const READ_PER_INPUT_BYTE: u64 = 1024;
/// Bytes that one element of a list counts for.
const ELEMENT: u64 = 32;

/// The remaining budgets of one rendering.
#[derive(Debug, Clone)]
pub(super) struct Budget(Arc<Remaining>);

#[derive(Debug)]
struct Remaining {
    make: AtomicU64,
    read: AtomicU64,
}

impl Budget {
    /// Budgets for an input of this many bytes.
    pub fn for_input(bytes: usize) -> Self {
        let bytes = bytes as u64;
        let scale = |base: u64, per: u64| base.saturating_add(per.saturating_mul(bytes));
        let make = AtomicU64::new(scale(MAKE_BASE, MAKE_PER_INPUT_BYTE));
        let read = AtomicU64::new(scale(READ_BASE, READ_PER_INPUT_BYTE));
        Budget(Arc::new(Remaining { make, read }))
    }

    /// Charges for `bytes` bytes, if possible before they are written.
    ///
    /// # Errors
    /// If the budget is used up.
    pub fn make(&self, bytes: usize) -> Result<(), Error> {
        spend(&self.0.make, bytes as u64, "the text it makes is too long")
    }

    /// Charges for `bytes` bytes that are read again.
    ///
    /// # Errors
    /// If the budget is used up.
    pub fn read(&self, bytes: usize) -> Result<(), Error> {
        spend(&self.0.read, bytes as u64, "it works on too much text")
    }

    /// Charges for a list of `count` elements.
    ///
    /// # Errors
    /// If the budget is used up.
    pub fn make_list(&self, count: usize) -> Result<(), Error> {
        spend(&self.0.make, ELEMENT.saturating_mul(count as u64), "a list is too long")
    }

    /// Charges for a value that has been made, and returns it.
    ///
    /// # Errors
    /// If the budget is used up.
    pub fn made(&self, value: Value) -> Result<Value, Error> {
        match value.as_str() {
            Some(text) => self.make(text.len())?,
            None => self.make_list(if is_cheap(&value) { 1 } else { value.len().unwrap_or(1) })?,
        }
        Ok(value)
    }

    /// Charges for reading `value`, and returns it.
    ///
    /// # Errors
    /// If the budget is used up.
    pub fn touch(&self, value: Value) -> Result<Value, Error> {
        let size = match value.as_str() {
            Some(text) => text.len() as u64,
            None if is_cheap(&value) => 1,
            None => ELEMENT * value.len().unwrap_or(1) as u64,
        };
        self.read(usize::try_from(size).unwrap_or(usize::MAX))?;
        Ok(value)
    }
}

/// Whether a value has no length to charge for.
fn is_cheap(value: &Value) -> bool {
    value.is_number() || value.is_none() || value.is_undefined()
}

fn spend(left: &AtomicU64, amount: u64, why: &str) -> Result<(), Error> {
    let spent = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(amount));
    spent.map(|_| ()).map_err(|_| {
        Error::new(ErrorKind::OutOfFuel, format!("the template exceeds its limits: {why}"))
    })
}
