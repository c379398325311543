//! An MPI library that is loaded when it is needed, through one table of functions for each of the
//! binary interfaces that MPI libraries have (MPI Forum, 2025, "MPI: A Message-Passing Interface
//! Standard", version 5.0, chapter 20; `mpi.h` of Open MPI and of MPICH).
//!
//! Handles are pointers in the standard's interface and in Open MPI's, and numbers in MPICH's.
//! Outside this file they are [`Handle`]s.
//!
//! Invariant: a buffer that MPI reads or writes belongs to a [`Transfer`] until MPI has finished.
#![allow(unsafe_code)]

use super::interface::{Interface, interface};
use super::marks::Marks;
use crate::error::Error;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Bytes of the largest status of all interfaces, rounded up.
const STATUS: usize = 64;
/// Bytes of the longest text of all interfaces.
const TEXT: usize = 8192;

/// A communicator, request, type or error handler of an MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(usize);

/// A handle as a library has it.
trait RawHandle: Copy + 'static {
    fn of(handle: Handle) -> Self;
    fn handle(self) -> Handle;
}

impl RawHandle for c_int {
    fn of(handle: Handle) -> Self {
        handle.0 as Self
    }

    fn handle(self) -> Handle {
        Handle(self as usize)
    }
}

impl RawHandle for *mut c_void {
    fn of(handle: Handle) -> Self {
        std::ptr::without_provenance_mut(handle.0)
    }

    fn handle(self) -> Handle {
        Handle(self.expose_provenance())
    }
}

/// Functions of a library whose handles are `H`, as `mpi.h` declares them.
struct Functions<H> {
    init_thread: unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int,
    finalize: unsafe extern "C" fn() -> c_int,
    comm_rank: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    comm_size: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    comm_set_errhandler: unsafe extern "C" fn(H, H) -> c_int,
    error_string: unsafe extern "C" fn(c_int, *mut c_char, *mut c_int) -> c_int,
    #[rustfmt::skip]
    isend: unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int,
    irecv: unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int,
    test: unsafe extern "C" fn(*mut H, *mut c_int, *mut c_void) -> c_int,
    handles: Constants,
}

/// Constants of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Constants {
    /// The communicator of all ranks.
    pub world: Handle,
    /// The type of bytes.
    pub byte: Handle,
    /// The error handler by which calls return errors.
    pub errors_return: Handle,
    /// The level at which calls of several threads are serialised by the caller.
    pub serialized: c_int,
    /// The level at which several threads may call at once.
    pub multiple: c_int,
}

/// Constants of the interfaces in which handles are numbers.
impl Constants {
    /// Those of the MPI standard, version 5.0, annex A.
    pub const STANDARD: Self = Self {
        world: Handle(0x101),
        byte: Handle(0x247),
        errors_return: Handle(0x143),
        serialized: 2048,
        multiple: 4096,
    };

    /// Those of MPICH and of libraries with its interface.
    pub const MPICH: Self = Self {
        world: Handle(0x4400_0000),
        byte: Handle(0x4c00_010d),
        errors_return: Handle(0x5400_0001),
        serialized: 2,
        multiple: 3,
    };
}

/// What an MPI library does, whatever its handles are. Errors are numbers of MPI.
trait MpiCalls: Send + Sync {
    fn init(&self, level: c_int) -> Result<c_int, c_int>;
    fn finalize(&self) -> Result<(), c_int>;
    fn rank(&self) -> Result<c_int, c_int>;
    fn ranks(&self) -> Result<c_int, c_int>;
    fn return_errors(&self) -> Result<(), c_int>;
    fn text(&self, error: c_int) -> String;

    /// Begins to send `bytes` to a rank.
    ///
    /// # Safety
    /// The bytes stay there unchanged until [`test`](Self::test) says that the request has ended.
    unsafe fn send(&self, bytes: *const [u8], to: c_int, tag: c_int) -> Result<Handle, c_int>;

    /// Begins to receive at most as many bytes as there are from a rank.
    ///
    /// # Safety
    /// The bytes are valid for writes, and nothing else reads or writes them, until
    /// [`test`](Self::test) says that the request has ended.
    unsafe fn receive(&self, bytes: *mut [u8], from: c_int, tag: c_int) -> Result<Handle, c_int>;

    /// Whether a request has ended, after which it is no request any more.
    fn test(&self, request: &mut Handle) -> Result<bool, c_int>;
}

/// `MPI_SUCCESS`, in all interfaces.
fn checked(code: c_int) -> Result<(), c_int> {
    if code == 0 { Ok(()) } else { Err(code) }
}

impl<H: RawHandle> Functions<H> {
    /// Finds the functions in a library.
    fn new(library: &Library, handles: Constants) -> Result<Self, libloading::Error> {
        // SAFETY: a library with these names is an MPI library, whose functions have these types in
        // the interface whose handles are `H`.
        unsafe {
            Ok(Self {
                init_thread: *library.get(c"MPI_Init_thread".to_bytes_with_nul())?,
                finalize: *library.get(c"MPI_Finalize".to_bytes_with_nul())?,
                comm_rank: *library.get(c"MPI_Comm_rank".to_bytes_with_nul())?,
                comm_size: *library.get(c"MPI_Comm_size".to_bytes_with_nul())?,
                comm_set_errhandler: *library
                    .get(c"MPI_Comm_set_errhandler".to_bytes_with_nul())?,
                error_string: *library.get(c"MPI_Error_string".to_bytes_with_nul())?,
                isend: *library.get(c"MPI_Isend".to_bytes_with_nul())?,
                irecv: *library.get(c"MPI_Irecv".to_bytes_with_nul())?,
                test: *library.get(c"MPI_Test".to_bytes_with_nul())?,
                handles,
            })
        }
    }

    fn number(&self, read: unsafe extern "C" fn(H, *mut c_int) -> c_int) -> Result<c_int, c_int> {
        let mut number = 0;
        // SAFETY: the communicator is one of the library, and the number is there.
        checked(unsafe { read(H::of(self.handles.world), &raw mut number) })?;
        Ok(number)
    }
}

impl<H: RawHandle> MpiCalls for Functions<H> {
    fn init(&self, level: c_int) -> Result<c_int, c_int> {
        let mut provided = 0;
        // SAFETY: the standard allows no arguments, and the level is written to a place there.
        checked(unsafe { (self.init_thread)(null_mut(), null_mut(), level, &raw mut provided) })?;
        Ok(provided)
    }

    fn finalize(&self) -> Result<(), c_int> {
        // SAFETY: the function takes nothing.
        checked(unsafe { (self.finalize)() })
    }

    fn rank(&self) -> Result<c_int, c_int> {
        self.number(self.comm_rank)
    }

    fn ranks(&self) -> Result<c_int, c_int> {
        self.number(self.comm_size)
    }

    fn return_errors(&self) -> Result<(), c_int> {
        let Constants { world, errors_return, .. } = self.handles;
        // SAFETY: both are handles of the library.
        checked(unsafe { (self.comm_set_errhandler)(H::of(world), H::of(errors_return)) })
    }

    fn text(&self, error: c_int) -> String {
        let (mut text, mut length) = ([0u8; TEXT], 0);
        // SAFETY: no library writes a longer text.
        let code = unsafe { (self.error_string)(error, text.as_mut_ptr().cast(), &raw mut length) };
        if code != 0 {
            return format!("error {error}");
        }
        text_of(&text, length)
    }

    unsafe fn send(&self, bytes: *const [u8], to: c_int, tag: c_int) -> Result<Handle, c_int> {
        let Constants { world, byte, .. } = self.handles;
        let mut request = H::of(Handle(0));
        // SAFETY: the handles are the library's; the caller keeps the bytes.
        checked(unsafe {
            let (world, byte) = (H::of(world), H::of(byte));
            let length = length(bytes.len());
            (self.isend)(bytes.cast(), length, byte, to, tag, world, &raw mut request)
        })?;
        Ok(request.handle())
    }

    unsafe fn receive(&self, bytes: *mut [u8], from: c_int, tag: c_int) -> Result<Handle, c_int> {
        let Constants { world, byte, .. } = self.handles;
        let mut request = H::of(Handle(0));
        // SAFETY: as in `send`.
        checked(unsafe {
            let (world, byte) = (H::of(world), H::of(byte));
            let length = length(bytes.len());
            (self.irecv)(bytes.cast(), length, byte, from, tag, world, &raw mut request)
        })?;
        Ok(request.handle())
    }

    fn test(&self, request: &mut Handle) -> Result<bool, c_int> {
        let (mut raw, mut done, mut status) = (H::of(*request), 0, [0u64; STATUS / 8]);
        // SAFETY: the request is one of the library that has not ended, and the status is as large
        // as that of any interface.
        checked(unsafe { (self.test)(&raw mut raw, &raw mut done, status.as_mut_ptr().cast()) })?;
        *request = raw.handle();
        Ok(done != 0)
    }
}

/// A number of bytes as MPI counts them.
fn length(bytes: usize) -> c_int {
    c_int::try_from(bytes).expect("transfers are of few bytes")
}

/// The first `length` bytes as text.
fn text_of(bytes: &[u8], length: c_int) -> String {
    let length = usize::try_from(length).unwrap_or_default().min(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).trim_end_matches(['\0', '\n', ' ']).to_owned()
}

/// An MPI library that was loaded and not initialised.
pub(super) struct Loaded {
    path: PathBuf,
    calls: Box<dyn MpiCalls>,
    constants: Constants,
    version: String,
    library: Library,
}

/// An MPI library that was initialised. It is finalised with the last owner, unless a call failed:
/// ranks that are gone would be waited for.
pub(super) struct MpiLibrary {
    calls: Box<dyn MpiCalls>,
    pub rank: usize,
    pub ranks: usize,
    /// What the library says of its version.
    pub version: String,
    /// Whether several threads may call at once.
    pub is_concurrent: bool,
    /// Which rank is gone.
    pub marks: Marks,
    /// The highest tag of a group so far.
    pub tags: AtomicI32,
    failed: AtomicBool,
    /// Threads of the library may run until the process ends, so that it stays.
    _library: ManuallyDrop<Library>,
}

impl std::fmt::Debug for MpiLibrary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rank, ranks) = (&self.rank, &self.ranks);
        f.debug_struct("MpiLibrary").field("rank", rank).field("ranks", ranks).finish()
    }
}

impl Loaded {
    /// Loads the library at `path`.
    ///
    /// # Errors
    /// If it cannot be loaded, or has an interface that is not known.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let wrong = |problem: String| Error::Library { path: path.to_owned(), problem };
        // SAFETY: what a library does when it is loaded is for the user to choose, who names it or
        // has installed it. Open MPI's own plugins look for its names, which must be global.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(|error| wrong(described(&error)))?;
        let version = version(&library).map_err(|error| wrong(described(&error)))?;
        let found = match interface(
            path,
            &version,
            has_name(&library, c"ompi_mpi_byte".to_bytes_with_nul()),
        ) {
            Some(Interface::Standard) => functions::<*mut c_void>(&library, Constants::STANDARD),
            Some(Interface::Mpich) => functions::<c_int>(&library, Constants::MPICH),
            Some(Interface::OpenMpi) => {
                open_mpi(&library).and_then(|handles| functions::<*mut c_void>(&library, handles))
            }
            None => {
                let expected = "expected Open MPI 4 or 5, MPICH, or the interface of MPI 5";
                return Err(wrong(format!("{expected}, found {version}")));
            }
        };
        let (calls, constants) = found.map_err(|error| wrong(described(&error)))?;
        Ok(Self { path: path.to_owned(), calls, constants, version, library })
    }

    /// Initialises the library, once in a process.
    ///
    /// # Errors
    /// If it fails, or cannot be called by several threads.
    pub fn start(self) -> Result<MpiLibrary, Error> {
        let Self { path, calls, constants, version, library } = self;
        let said = |call: &'static str, code: c_int| Error::Library {
            path: path.clone(),
            problem: format!("{call}: {}", calls.text(code)),
        };
        let level = calls.init(constants.multiple).map_err(|it| said("MPI_Init_thread", it))?;
        calls.return_errors().map_err(|it| said("MPI_Comm_set_errhandler", it))?;
        let rank = calls.rank().map_err(|it| said("MPI_Comm_rank", it))?;
        let ranks = calls.ranks().map_err(|it| said("MPI_Comm_size", it))?;
        if level < constants.serialized {
            let problem = format!("expected a library for several threads, found level {level}");
            return Err(Error::Library { path, problem });
        }
        Ok(MpiLibrary {
            rank: rank as usize,
            ranks: ranks as usize,
            calls,
            version,
            is_concurrent: level >= constants.multiple,
            marks: Marks::default(),
            tags: AtomicI32::new(0),
            failed: AtomicBool::new(false),
            _library: ManuallyDrop::new(library),
        })
    }
}

impl MpiLibrary {
    /// What a call says, as an error of this rank.
    fn checked<T>(&self, call: &'static str, result: Result<T, c_int>) -> Result<T, Error> {
        result.map_err(|code| {
            self.fail();
            Error::Mpi { rank: self.rank, call, text: self.calls.text(code) }
        })
    }

    /// Marks the library as one that is not finalised.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

impl Drop for MpiLibrary {
    fn drop(&mut self) {
        if self.marks.check().is_ok() && !*self.failed.get_mut() {
            // Nothing is left to do about an error.
            let _ = self.calls.finalize();
        }
    }
}

unsafe extern "C" {
    /// Ends the process without what libraries do at its end.
    safe fn _exit(code: c_int) -> !;
}

/// Ends the process without ending the library, which waits for all ranks.
pub(super) fn abandon(code: u8) -> ! {
    _exit(c_int::from(code))
}

/// What is wrong, as the loader says it.
fn described(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}

type FoundCalls = Result<(Box<dyn MpiCalls>, Constants), libloading::Error>;

fn functions<H: RawHandle>(library: &Library, constants: Constants) -> FoundCalls {
    Ok((Box::new(Functions::<H>::new(library, constants)?), constants))
}

/// The constants of Open MPI: addresses of objects of the library.
fn open_mpi(library: &Library) -> Result<Constants, libloading::Error> {
    let address = |name: &[u8]| -> Result<Handle, libloading::Error> {
        // SAFETY: only the address is used.
        let symbol = unsafe { library.get::<*mut c_void>(name)? };
        Ok(symbol.as_raw_ptr().handle())
    };
    Ok(Constants {
        world: address(c"ompi_mpi_comm_world".to_bytes_with_nul())?,
        byte: address(c"ompi_mpi_byte".to_bytes_with_nul())?,
        errors_return: address(c"ompi_mpi_errors_return".to_bytes_with_nul())?,
        serialized: 2,
        multiple: 3,
    })
}

fn has_name(library: &Library, name: &[u8]) -> bool {
    // SAFETY: the value is not read.
    unsafe { library.get::<*mut c_void>(name).is_ok() }
}

/// What a library says of its version, which it may be asked before it is initialised.
fn version(library: &Library) -> Result<String, libloading::Error> {
    type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    let (mut text, mut length) = ([0u8; TEXT], 0);
    // SAFETY: the function has this type in all interfaces, and no library writes a longer text.
    unsafe {
        let read = library.get::<Version>(c"MPI_Get_library_version".to_bytes_with_nul())?;
        read(text.as_mut_ptr().cast(), &raw mut length);
    }
    // Later lines, or the rest of the first, say how it was built.
    let text = text_of(&text, length);
    Ok(text.lines().next().unwrap_or_default().split(',').next().unwrap_or_default().to_owned())
}

/// A buffer that is sent or received into, one transfer at a time.
#[derive(Debug)]
pub(super) struct Transfer {
    library: Arc<MpiLibrary>,
    /// The bytes, which are MPI's while there is a request.
    bytes: NonNull<[u8]>,
    request: Option<Handle>,
}

// SAFETY: the buffer is owned, and a library that was opened may be called by any thread.
unsafe impl Send for Transfer {}

impl Transfer {
    /// A buffer of so many bytes.
    pub fn new(library: Arc<MpiLibrary>, bytes: usize) -> Self {
        let bytes = Box::into_raw(vec![0; bytes].into_boxed_slice());
        let bytes = NonNull::new(bytes).expect("a box has an address");
        Self { library, bytes, request: None }
    }

    /// The bytes; none while they are MPI's.
    pub fn bytes(&mut self) -> &mut [u8] {
        match self.request {
            // SAFETY: the buffer is owned, and MPI has finished with it.
            None => unsafe { self.bytes.as_mut() },
            Some(_) => &mut [],
        }
    }

    /// Begins to send the first `length` bytes to a rank of the world.
    ///
    /// # Errors
    /// As MPI says.
    ///
    /// # Panics
    /// If it is under way, or has fewer bytes.
    pub fn send(&mut self, length: usize, to: usize, tag: i32) -> Result<(), Error> {
        let bytes: *const [u8] = &raw const self.bytes()[..length];
        // SAFETY: the buffer stays until `poll` says that the transfer has ended, and `bytes` gives
        // it to nobody until then.
        let request = unsafe { self.library.calls.send(bytes, to as c_int, tag) };
        self.request = Some(self.library.checked("MPI_Isend", request)?);
        Ok(())
    }

    /// Begins to receive from a rank of the world.
    ///
    /// # Errors
    /// As MPI says.
    ///
    /// # Panics
    /// If it is under way.
    pub fn receive(&mut self, from: usize, tag: i32) -> Result<(), Error> {
        assert!(self.request.is_none(), "one transfer at a time");
        // SAFETY: as in `send`.
        let request =
            unsafe { self.library.calls.receive(self.bytes.as_ptr(), from as c_int, tag) };
        self.request = Some(self.library.checked("MPI_Irecv", request)?);
        Ok(())
    }

    /// Checks that no rank is gone.
    ///
    /// # Errors
    /// The rank that is.
    pub fn check_ranks(&self) -> Result<(), Error> {
        self.library.marks.check()
    }

    /// Whether a transfer is under way.
    pub fn is_busy(&self) -> bool {
        self.request.is_some()
    }

    /// Whether no transfer is under way any more.
    ///
    /// # Errors
    /// As MPI says.
    pub fn poll(&mut self) -> Result<bool, Error> {
        let Some(request) = &mut self.request else { return Ok(true) };
        let done = self.library.calls.test(request);
        let done = self.library.checked("MPI_Test", done)?;
        if done {
            self.request = None;
        }
        Ok(done)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // What MPI may still read or write stays for ever.
        if self.request.is_none() {
            // SAFETY: the buffer came from a box, and MPI has finished with it.
            drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Prints the constants of an interface, and the sizes that buffers here must have.
    const PROGRAM: &str = r#"
        #include <mpi.h>
        #include <stdio.h>
        #define NUMBER(name) (unsigned long long)(size_t)(name)
        int main(void) {
            printf("%llu %llu %llu ", NUMBER(MPI_COMM_WORLD), NUMBER(MPI_BYTE),
                   NUMBER(MPI_ERRORS_RETURN));
            printf("%d %d ", MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE);
            printf("%zu %d %d %d\n", sizeof(MPI_Status), MPI_MAX_ERROR_STRING,
                   MPI_MAX_LIBRARY_VERSION_STRING, MPI_SUCCESS);
            return 0;
        }"#;

    /// What the program prints with a compiler of an MPI.
    fn printed(compiler: &Path) -> Vec<usize> {
        let folder = std::env::temp_dir().join(format!("gannet-mpi-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [source, program] = ["constants.c", "constants"].map(|name| folder.join(name));
        std::fs::write(&source, PROGRAM).unwrap();
        let ended = Command::new(compiler).arg("-o").arg(&program).arg(&source).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let libraries = compiler.parent().unwrap().parent().unwrap().join("lib");
        let said = Command::new(&program).env("LD_LIBRARY_PATH", libraries).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        said.split_whitespace().map(|number| number.parse().unwrap()).collect()
    }

    /// With the compilers beside the launchers that `GANNET_TEST_MPIRUN` names; none without it.
    #[test]
    fn constants_are_those_of_the_headers() {
        let named = std::env::var_os("GANNET_TEST_MPIRUN").unwrap_or_default();
        for launcher in std::env::split_paths(&named) {
            for (name, constants) in
                [("mpicc", Constants::MPICH), ("mpicc_abi", Constants::STANDARD)]
            {
                let compiler = launcher.with_file_name(name);
                if !compiler.is_file() {
                    continue;
                }
                let numbers = printed(&compiler);
                let Constants { world, byte, errors_return, serialized, multiple } = constants;
                // Those of Open MPI are addresses.
                if numbers[0] < 1 << 32 {
                    assert_eq!(numbers[..3], [world, byte, errors_return].map(|it| it.0));
                }
                assert_eq!(numbers[3..5], [serialized, multiple].map(|it| it as usize));
                assert!(numbers[5] <= STATUS && numbers[6] <= TEXT && numbers[7] <= TEXT);
                assert_eq!(numbers[8], 0);
            }
        }
    }
}
