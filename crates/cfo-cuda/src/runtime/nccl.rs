//! NCCL: sums over GPUs, with a library that is loaded at run time.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;
use libloading::os::unix::{Library as Shared, RTLD_LOCAL, RTLD_NOW};

use crate::runtime::driver::{CudaContext, failure, quiet};
use crate::runtime::library::{self, Version};
use cfo_engine::Result;

/// NCCL's constants for single precision and for a sum.
const FLOAT: c_int = 7;
const SUM: c_int = 0;
/// The first version whose sums can be captured in a graph, in the library's numbering.
const LEAST: c_int = 2_11_04;

/// Identifier shared by the ranks of a communicator.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([u8; 128]);

type Status = c_int;
type Handle = *mut c_void;

macro_rules! functions {
    ($($name:ident = $symbol:literal($($argument:ty),*) -> $result:ty;)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            fn load(library: &Shared) -> Option<Self> {
                // SAFETY: the types are those of NCCL's header.
                unsafe { Some(Self { $($name: *library.get($symbol.as_bytes()).ok()?,)* }) }
            }
        }
    };
}

functions! {
    get_version = "ncclGetVersion"(*mut c_int) -> Status;
    get_unique_id = "ncclGetUniqueId"(*mut UniqueId) -> Status;
    init_rank = "ncclCommInitRank"(*mut Handle, c_int, UniqueId, c_int) -> Status;
    destroy = "ncclCommDestroy"(Handle) -> Status;
    all_reduce = "ncclAllReduce"(*const c_void, *mut c_void, usize, c_int, c_int, Handle, sys::CUstream) -> Status;
    group_start = "ncclGroupStart"() -> Status;
    group_end = "ncclGroupEnd"() -> Status;
    error_string = "ncclGetErrorString"(Status) -> *const c_char;
}

/// The library, loaded once and never unloaded.
pub(crate) struct Nccl {
    functions: Functions,
    version: c_int,
    /// The loaded file.
    pub(crate) file: PathBuf,
}

impl Nccl {
    /// The library, if there is a usable one: by its usual name, otherwise in the folders of NVIDIA's other libraries.
    pub(crate) fn find() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Nccl>> = OnceLock::new();
        let load = || library::files("nccl", "libnccl.so.2").into_iter().find_map(Self::load);
        FOUND.get_or_init(load).as_ref()
    }

    fn load(file: PathBuf) -> Option<Self> {
        // SAFETY: loading the library runs its initialisers, as intended.
        let library = unsafe { Shared::open(Some(&file), RTLD_NOW | RTLD_LOCAL) }.ok()?;
        let functions = Functions::load(&library)?;
        // It stays loaded, because it has its own threads.
        std::mem::forget(library);
        let mut version = 0;
        // SAFETY: one number is written.
        let status = unsafe { (functions.get_version)(&mut version) };
        let file = library::loaded_file("nccl").unwrap_or(file);
        (status == 0 && version >= LEAST).then_some(Self { functions, version, file })
    }

    /// Major and minor version.
    pub(crate) fn version(&self) -> Version {
        Version { major: self.version as u32 / 10_000, minor: self.version as u32 % 10_000 / 100 }
    }

    fn check(&self, call: &str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library returns a static text for every status.
        let text = unsafe {
            let text = (self.functions.error_string)(status);
            if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy().into_owned()) }
        };
        Err(failure(call, text.unwrap_or_else(|| format!("status {status}"))))
    }

    /// The identifier that rank 0 creates and the others need to join.
    pub(crate) fn unique_id(&self) -> Result<Vec<u8>> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the number of bytes written is the type's size.
        self.check("ncclGetUniqueId", unsafe { (self.functions.get_unique_id)(&mut id) })?;
        Ok(id.0.to_vec())
    }
}

/// Values to sum: their address, the address of the sum, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) count: usize,
}

/// This GPU among those of all ranks.
pub(crate) struct Communicator {
    handle: Handle,
    nccl: &'static Nccl,
    context: Arc<CudaContext>,
}

// SAFETY: the handle may be used from any thread, one at a time; programs are run through `&mut`.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl Communicator {
    /// Joins the communicator; all ranks must do so at the same time.
    pub(crate) fn new(
        nccl: &'static Nccl,
        context: &Arc<CudaContext>,
        id: &[u8],
        (rank, size): (usize, usize),
    ) -> Result<Self> {
        context.enter()?;
        let id = UniqueId(id.try_into().map_err(|_| failure("ncclCommInitRank", "no id came from rank 0"))?);
        let mut handle = std::ptr::null_mut();
        let _quiet = quiet();
        // SAFETY: the handle is written on success; the context is current.
        let status = unsafe { (nccl.functions.init_rank)(&mut handle, size as c_int, id, rank as c_int) };
        nccl.check("ncclCommInitRank", status)?;
        Ok(Self { handle, nccl, context: Arc::clone(context) })
    }

    /// Enqueues the sums of all messages as one.
    pub(crate) fn sum(&self, messages: &[Message], stream: sys::CUstream) -> Result<()> {
        let functions = &self.nccl.functions;
        // SAFETY: the program owns the memory, and the stream preserves the order.
        unsafe {
            self.nccl.check("ncclGroupStart", (functions.group_start)())?;
            for message in messages {
                let (from, to) = (message.from as *const c_void, message.to as *mut c_void);
                let status = (functions.all_reduce)(from, to, message.count, FLOAT, SUM, self.handle, stream);
                self.nccl.check("ncclAllReduce", status)?;
            }
            self.nccl.check("ncclGroupEnd", (functions.group_end)())
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if self.context.enter().is_ok() && self.context.synchronize().is_ok() {
            let _quiet = quiet();
            // SAFETY: the communicator is no longer used: the graph that used it was dropped before.
            let _ = unsafe { (self.nccl.functions.destroy)(self.handle) };
        }
    }
}
