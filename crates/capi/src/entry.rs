//! The way into the library: every function of the interface runs its code through [`run`].
//!
//! Invariant: no panic leaves [`run`] or [`plain`], and the engine that a panicking function used
//! answers nothing more.

use crate::error::CapiError;
use crate::handles;
use crate::objects::{EngineObject, OfEngine};
use crate::status::GannetStatus;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

thread_local! {
    /// The text of the last error of this thread.
    static LAST: RefCell<CString> = RefCell::default();
}

/// One use of the interface.
#[derive(Default)]
pub(crate) struct EntryContext {
    /// The engine that it uses.
    engine: RefCell<Option<Arc<EngineObject>>>,
}

impl EntryContext {
    /// The engine of a handle.
    pub(crate) fn engine(&self, handle: usize) -> Result<Arc<EngineObject>, CapiError> {
        let engine = handles::get::<EngineObject>(handle)?;
        *self.engine.borrow_mut() = Some(Arc::clone(&engine));
        Ok(engine)
    }

    /// The object of a handle that belongs to an engine.
    pub(crate) fn object<T: OfEngine>(&self, handle: usize) -> Result<Arc<T>, CapiError> {
        let object = handles::get::<T>(handle)?;
        *self.engine.borrow_mut() = Some(Arc::clone(object.engine()));
        Ok(object)
    }
}

/// Runs the code of a function that returns a status.
pub(crate) fn run(body: impl FnOnce(&EntryContext) -> Result<(), CapiError>) -> GannetStatus {
    let entry = EntryContext::default();
    match catch_unwind(AssertUnwindSafe(|| body(&entry))) {
        Ok(Ok(())) => GannetStatus::GANNET_OK,
        Ok(Err(error)) => {
            keep(&error.to_string());
            error.status()
        }
        Err(panic) => {
            entry.engine.borrow().iter().for_each(|engine| engine.stop());
            keep(&format!("internal error: {}", message(&*panic)));
            // Its destructor is foreign code, which could panic as well.
            std::mem::forget(panic);
            GannetStatus::GANNET_INTERNAL
        }
    }
}

/// Runs the code of a function that cannot fail; `otherwise` if it panics.
pub(crate) fn plain<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        std::mem::forget(panic);
        otherwise
    })
}

/// The text of the last error of this thread, which stays where it is until the next.
pub(crate) fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn keep(text: &str) {
    let text: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    // A thread that ends has no place for it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use calls::{LocalServer, OpenOptions};
    use std::ffi::CStr;

    fn last() -> String {
        LAST.with(|last| CStr::to_string_lossy(&last.borrow()).into_owned())
    }

    #[test]
    fn no_panic_crosses_the_border() {
        let json = br#"{"model": "builtin", "threads": 1, "kv_memory": "16MiB"}"#;
        let server = LocalServer::open(&OpenOptions::from_json(json).unwrap()).unwrap();
        let other = EngineObject::new(server.clone());
        let handle = handles::add(Arc::new(EngineObject::new(server))).unwrap();
        let status = run(|_| panic!("before an engine is known"));
        assert_eq!(status, GannetStatus::GANNET_INTERNAL);
        assert_eq!(last(), "internal error: before an engine is known");
        assert!(other.running().is_ok());
        let number = 7;
        let status = run(|entry| {
            entry.engine(handle)?;
            panic!("with {number}")
        });
        assert_eq!(
            (status, last().as_str()),
            (GannetStatus::GANNET_INTERNAL, "internal error: with 7")
        );
        // The engine is dead, and its handle is still one.
        assert!(matches!(other.running(), Err(CapiError::Stopped)));
        let status = run(|entry| entry.engine(handle)?.running().map(drop));
        assert_eq!(status, GannetStatus::GANNET_STOPPED);
        assert_eq!(plain(7, || panic!("in a function without a status")), 7);
        drop(other);
        handles::take::<EngineObject>(handle).unwrap().close().unwrap();
    }

    #[test]
    fn the_text_of_an_error_is_that_of_its_thread() {
        run(|_| Err(CapiError::invalid("a", "with a \0 inside")));
        std::thread::spawn(|| assert_eq!(last(), "")).join().unwrap();
        assert_eq!(last(), "a: with a  inside");
    }
}
