//! MPI's functions, taken from whichever library there is.
#![allow(unsafe_code)]

mod abi;
mod search;

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::error::{RanksError, Result};
use crate::launcher::Launcher;
pub(crate) use abi::{Abi, Constants};

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!("handles of MPI are passed as 64-bit words, of which an integer is the first half");

/// Defines the functions that are called, and how they are found in a library.
macro_rules! functions {
    ($($field:ident: $name:literal ($($argument:ty),*);)*) => {
        /// The functions that are called, with handles as words.
        #[derive(Clone, Copy)]
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            /// The functions of a library, or the name of one that it lacks.
            fn of(library: &Library) -> std::result::Result<Self, &'static str> {
                // SAFETY: the types are those that the standard gives the functions of these names.
                Ok(unsafe { Self { $($field: *library.get($name.as_bytes()).map_err(|_| $name)?,)* } })
            }
        }
    };
}

functions! {
    init_thread: "MPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    finalize: "MPI_Finalize" ();
    abort: "MPI_Abort" (usize, c_int);
    comm_rank: "MPI_Comm_rank" (usize, *mut c_int);
    comm_size: "MPI_Comm_size" (usize, *mut c_int);
    set_errhandler: "MPI_Comm_set_errhandler" (usize, usize);
    library_version: "MPI_Get_library_version" (*mut c_char, *mut c_int);
    iallreduce: "MPI_Iallreduce" (*const c_void, *mut c_void, c_int, usize, usize, usize, *mut u64);
    ibcast: "MPI_Ibcast" (*mut c_void, c_int, usize, c_int, usize, *mut u64);
    iallgather: "MPI_Iallgather" (*const c_void, c_int, usize, *mut c_void, c_int, usize, usize, *mut u64);
    isend: "MPI_Isend" (*const c_void, c_int, usize, c_int, c_int, usize, *mut u64);
    irecv: "MPI_Irecv" (*mut c_void, c_int, usize, c_int, c_int, usize, *mut u64);
    iprobe: "MPI_Iprobe" (c_int, c_int, usize, *mut c_int, *mut c_void);
    test: "MPI_Test" (*mut u64, *mut c_int, *mut c_void);
}

/// Starts a communication in a function whose safety is the caller's duty.
macro_rules! start {
    ($mpi:ident, $name:literal, $function:ident($($argument:expr),*)) => {{
        let mut request = Transfer(0);
        // SAFETY: by the caller.
        let code = unsafe { ($mpi.functions.$function)($($argument,)* &mut request.0) };
        check($name, code).map(|()| request)
    }};
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// A node of a tree of sums.
    Shard = 11,
    Notice = 12,
    Heartbeat = 13,
}

/// Numbers of a message.
pub(crate) enum Packet<'a> {
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
    Bytes(&'a mut [u8]),
}

impl Packet<'_> {
    fn parts(&mut self, constants: &Constants) -> (*mut c_void, c_int, usize) {
        let count = |length: usize| c_int::try_from(length).expect("a message has fewer than 2^31 elements");
        match self {
            Packet::F32(values) => (values.as_mut_ptr().cast(), count(values.len()), constants.float),
            Packet::F64(values) => (values.as_mut_ptr().cast(), count(values.len()), constants.double),
            Packet::Bytes(values) => (values.as_mut_ptr().cast(), count(values.len()), constants.byte),
        }
    }
}

/// A communication under way. Its memory must stay where it is until it is done.
#[derive(Debug)]
pub(crate) struct Transfer(u64);

/// An MPI library, initialised by the thread that holds this value; all its calls are made there.
pub(crate) struct Mpi {
    functions: Functions,
    constants: Constants,
    pub(crate) file: PathBuf,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Keeps the functions where they are; never unloaded, because MPI's own threads may run on.
    _library: std::mem::ManuallyDrop<Library>,
    /// Calls belong to one thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Mpi {
    /// Finds the library that suits a launcher, and joins the others.
    ///
    /// # Errors
    /// If there is none, it cannot be used, or it sees other processes than the launcher started.
    pub(crate) fn join(launcher: Launcher, named: Option<PathBuf>) -> Result<Self> {
        let candidates = search::candidates(launcher.kind, named.clone());
        let opened = candidates.iter().find_map(|file| open(file).map(|library| (library, file)));
        let Some((library, file)) = opened else {
            return Err(match named {
                Some(library) => {
                    RanksError::BadLibrary { library, problem: "it cannot be opened as a library".into() }
                }
                None => RanksError::NoMpi {
                    launcher: launcher.name(),
                    size: launcher.size,
                    install: launcher.install(),
                },
            });
        };
        Self::initialize(library, file, launcher)
    }

    fn initialize(library: Library, file: &Path, launcher: Launcher) -> Result<Self> {
        let bad = |problem: String| RanksError::BadLibrary { library: file.into(), problem };
        let abi = Abi::of(&library, &file.file_name().unwrap_or_default().to_string_lossy());
        let missing = |name: &str| bad(format!("it has no `{name}`"));
        let constants = Constants::of(abi, &library).map_err(missing)?;
        let functions = Functions::of(&library).map_err(missing)?;
        let mut provided = 0;
        // SAFETY: null arguments are allowed; the functions have the types that the standard gives them.
        let code = unsafe {
            (functions.init_thread)(
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                constants.funneled,
                &mut provided,
            )
        };
        check("MPI_Init_thread", code)?;
        if provided < constants.funneled {
            return Err(bad("it was built without support for threads".into()));
        }
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI is initialised, by this thread.
        unsafe {
            (functions.set_errhandler)(constants.world, constants.errors_return);
            check("MPI_Comm_rank", (functions.comm_rank)(constants.world, &mut rank))?;
            check("MPI_Comm_size", (functions.comm_size)(constants.world, &mut size))?;
        }
        let (rank, size) = (rank as usize, size as usize);
        if let Some(expected) = launcher.size.filter(|&expected| expected != size) {
            // SAFETY: as above.
            unsafe { (functions.finalize)() };
            let launcher = launcher.name();
            return Err(RanksError::OtherLauncher { launcher, expected, found: size, library: file.into() });
        }
        let library = std::mem::ManuallyDrop::new(library);
        let here = std::marker::PhantomData;
        Ok(Self { functions, constants, file: file.into(), rank, size, _library: library, _here: here })
    }

    pub(crate) fn version(&self) -> String {
        let (mut text, mut length) = (vec![0_u8; 8192], 0);
        // SAFETY: the longest name of any of the libraries has room.
        unsafe { (self.functions.library_version)(text.as_mut_ptr().cast(), &mut length) };
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..end]).into_owned();
        let mut words = text.lines().next().unwrap_or_default().split(',');
        words.next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Starts to sum over all ranks in place.
    ///
    /// # Safety
    /// As for all that start: the values stay where they are, and nobody touches them, until the request is done.
    pub(crate) unsafe fn start_sum(&self, mut values: Packet<'_>) -> Result<Transfer> {
        let (pointer, count, kind) = values.parts(&self.constants);
        let Constants { sum, world, in_place, .. } = self.constants;
        start!(
            self,
            "MPI_Iallreduce",
            iallreduce(in_place as *const c_void, pointer, count, kind, sum, world)
        )
    }

    /// Starts to send rank 0's bytes to all.
    pub(crate) unsafe fn start_broadcast(&self, mut values: Packet<'_>) -> Result<Transfer> {
        let (pointer, count, kind) = values.parts(&self.constants);
        start!(self, "MPI_Ibcast", ibcast(pointer, count, kind, 0, self.constants.world))
    }

    /// Starts to gather the same number of bytes from every rank to all.
    pub(crate) unsafe fn start_gather(&self, own: &mut [u8], all: &mut [u8]) -> Result<Transfer> {
        let (from, count, kind) = Packet::Bytes(own).parts(&self.constants);
        let (to, world) = (all.as_mut_ptr().cast(), self.constants.world);
        start!(self, "MPI_Iallgather", iallgather(from, count, kind, to, count, kind, world))
    }

    /// Starts to send to a rank.
    pub(crate) unsafe fn start_send(&self, mut values: Packet<'_>, to: usize, tag: Tag) -> Result<Transfer> {
        let (pointer, count, kind) = values.parts(&self.constants);
        start!(
            self,
            "MPI_Isend",
            isend(pointer, count, kind, to as c_int, tag as c_int, self.constants.world)
        )
    }

    /// Starts to receive from a rank, or from any.
    pub(crate) unsafe fn start_receive(
        &self,
        mut values: Packet<'_>,
        from: Option<usize>,
        tag: Tag,
    ) -> Result<Transfer> {
        let (pointer, count, kind) = values.parts(&self.constants);
        let from = from.map_or(self.constants.any_source, |rank| rank as c_int);
        start!(self, "MPI_Irecv", irecv(pointer, count, kind, from, tag as c_int, self.constants.world))
    }

    pub(crate) fn has_message(&self, tag: Tag) -> bool {
        let Constants { any_source, world, status_ignore, .. } = self.constants;
        let mut found = 0;
        // SAFETY: the constant says that no status is wanted.
        let code = unsafe {
            (self.functions.iprobe)(any_source, tag as c_int, world, &mut found, status_ignore as *mut c_void)
        };
        code == 0 && found != 0
    }

    /// Whether a communication is done; drives it on.
    pub(crate) fn is_done(&self, request: &mut Transfer) -> Result<bool> {
        let mut done = 0;
        // SAFETY: the constant says that no status is wanted.
        let code = unsafe {
            (self.functions.test)(&mut request.0, &mut done, self.constants.status_ignore as *mut c_void)
        };
        check("MPI_Test", code).map(|()| done != 0)
    }

    /// Leaves the job in order; all ranks do.
    pub(crate) fn finalize(&self) {
        // SAFETY: nothing is called afterwards.
        unsafe { (self.functions.finalize)() };
    }

    /// Ends the processes of all ranks, this one included.
    pub(crate) fn abort(&self, code: i32) -> ! {
        // SAFETY: does not return where the library keeps to the standard.
        unsafe { (self.functions.abort)(self.constants.world, code) };
        std::process::exit(code)
    }
}

fn open(file: &Path) -> Option<Library> {
    // SAFETY: loading the library runs its initialisers, which is what it is loaded for. Its plug-ins look for its symbols.
    unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL).ok() }
}

fn check(call: &'static str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(RanksError::Call { call, code }),
    }
}
