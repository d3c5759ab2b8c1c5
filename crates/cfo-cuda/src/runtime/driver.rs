//! The driver: contexts, memory, streams, modules and graphs, each freed when it is dropped.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::sys;

use crate::runtime::handles::Handles;
use crate::runtime::library::Library;
use cfo_engine::{EngineError, Result};

pub(crate) fn check(call: &str, status: sys::CUresult) -> Result<()> {
    if status == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: the driver writes a pointer to a static string, or leaves it null.
    let problem = unsafe {
        let _ = sys::cuGetErrorString(status, &mut text);
        if text.is_null() {
            format!("{status:?}")
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    };
    Err(failure(call, problem))
}

pub(crate) fn failure(call: &str, problem: impl Into<String>) -> EngineError {
    EngineError::DeviceFailure { device: "cuda".into(), call: call.into(), problem: problem.into() }
}

/// Lock held while a thread captures, and during all other calls that would break a capture. Libraries synchronise the
/// whole device when handles, modules and memory are created and freed. A thread must not take it twice.
pub(crate) fn quiet() -> MutexGuard<'static, ()> {
    static QUIET: Mutex<()> = Mutex::new(());
    QUIET.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn unavailable(ordinal: usize, reason: String) -> EngineError {
    EngineError::DeviceUnavailable { name: format!("cuda:{ordinal}"), reason }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) name: String,
    /// Compute capability, such as 90 for 9.0.
    pub(crate) architecture: u32,
    pub(crate) multiprocessors: u32,
    pub(crate) shared: u32,
    pub(crate) bytes: u64,
    /// Globally unique identifier.
    pub(crate) uuid: String,
}

/// Number of GPUs that the driver reports, or the reason why it is unknown.
pub(crate) fn count() -> Result<usize, String> {
    if !Library::Driver.loaded() {
        return Err("the driver's library `libcuda.so.1` was not found".into());
    }
    let mut count = 0;
    // SAFETY: the library is loaded; the calls write one number.
    unsafe {
        let status = sys::cuInit(0);
        if status == sys::CUresult::CUDA_ERROR_NO_DEVICE {
            return Ok(0);
        }
        check("cuInit", status).map_err(|error| error.to_string())?;
        check("cuDeviceGetCount", sys::cuDeviceGetCount(&mut count)).map_err(|error| error.to_string())?;
    }
    Ok(count as usize)
}

fn device(ordinal: usize) -> Result<sys::CUdevice> {
    let found = count().map_err(|reason| unavailable(ordinal, reason))?;
    if ordinal >= found {
        let reason = match found {
            0 => "the driver shows no GPU".into(),
            1 => "there is one GPU, `cuda:0`".into(),
            _ => format!("there are {found} GPUs, the last is `cuda:{}`", found - 1),
        };
        return Err(unavailable(ordinal, reason));
    }
    let mut device = 0;
    // SAFETY: the driver is initialised and the index is in range.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) })?;
    Ok(device)
}

/// Properties of a GPU, read without using it.
pub(crate) fn properties(ordinal: usize) -> Result<Properties> {
    use sys::CUdevice_attribute_enum as Attribute;
    let device = device(ordinal)?;
    let attribute = |attribute| -> Result<u32> {
        let mut value = 0;
        // SAFETY: the device exists; one number is written.
        check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) })?;
        Ok(value as u32)
    };
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let shared = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    let mut name = [0; 128];
    let mut bytes = 0;
    // SAFETY: the buffer has the given length, and the driver terminates the name with a zero.
    let name = unsafe {
        check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device))?;
        check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&mut bytes, device))?;
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    };
    let architecture = 10 * major + minor;
    let uuid = uuid(device)?;
    Ok(Properties { name, architecture, multiprocessors, shared, bytes: bytes as u64, uuid })
}

fn uuid(device: sys::CUdevice) -> Result<String> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the number of bytes written is the type's size.
    check("cuDeviceGetUuid", unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) })?;
    Ok(uuid.bytes.iter().map(|&byte| format!("{:02x}", byte as u8)).collect())
}

/// A GPU in use: its context and the main stream.
pub(crate) struct CudaContext {
    pub(crate) ordinal: usize,
    pub(crate) properties: Properties,
    context: sys::CUcontext,
    pub(crate) stream: sys::CUstream,
    handles: Mutex<Handles>,
}

// SAFETY: the driver's handles may be used from any thread; every use first makes the context current.
unsafe impl Send for CudaContext {}
// SAFETY: as above; calls on one stream are ordered by the driver.
unsafe impl Sync for CudaContext {}

impl std::fmt::Debug for CudaContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaContext(cuda:{}, {})", self.ordinal, self.properties.name)
    }
}

impl CudaContext {
    /// Opens a GPU with a new stream and new handles, so that several users of the same GPU do not block each other.
    ///
    /// # Errors
    /// If the GPU or a library that every program needs is missing.
    pub(crate) fn open(ordinal: usize) -> Result<Arc<Self>> {
        Self::new(ordinal).map(Arc::new)
    }

    fn new(ordinal: usize) -> Result<Self> {
        let device = device(ordinal)?;
        for library in [Library::Nvrtc, Library::CublasLt] {
            if !library.loaded() {
                let reason = format!("{} was not found; {}", library.name(), library.install());
                return Err(unavailable(ordinal, reason));
            }
        }
        let properties = properties(ordinal)?;
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        let _quiet = quiet();
        // SAFETY: the device exists; handles are written before they are used.
        unsafe {
            // Never released: creating it again costs more than keeping it until the process ends.
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
            let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
            check("cuStreamCreate", sys::cuStreamCreate(&mut stream, flags))?;
        }
        Ok(Self { ordinal, properties, context, stream, handles: Mutex::default() })
    }

    /// Makes the context current on the calling thread.
    pub(crate) fn enter(&self) -> Result<()> {
        // SAFETY: the context is alive as long as `self`.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Calls `destroy` with the context current, if it can be made current.
    pub(crate) fn release(&self, destroy: impl FnOnce()) {
        if self.enter().is_ok() {
            let _quiet = quiet();
            destroy();
        }
    }

    /// The libraries' handles, for one thread at a time.
    pub(crate) fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Free and total bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: two numbers are written.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// Waits until all enqueued work is finished.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream is alive as long as `self`.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream) })
    }

    pub(crate) fn copy_to_device(&self, address: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: the caller owns `bytes.len()` bytes at the address; the copy ends before the slice is released.
        check("cuMemcpyHtoD", unsafe {
            sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), self.stream)
        })?;
        self.synchronize()
    }

    pub(crate) fn copy_to_host(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: the caller owns `bytes.len()` bytes at the address; the copy is finished before the slice is read.
        check("cuMemcpyDtoH", unsafe {
            sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), address, bytes.len(), self.stream)
        })?;
        self.synchronize()
    }

    /// Milliseconds of device time for the work that `work` enqueues.
    pub(crate) fn time(&self, work: impl FnOnce() -> Result<()>) -> Result<f32> {
        self.enter()?;
        let mut events = [std::ptr::null_mut(); 2];
        let mut milliseconds = 0.0;
        // SAFETY: events are created, recorded on a living stream, waited for and destroyed.
        unsafe {
            for event in &mut events {
                check("cuEventCreate", sys::cuEventCreate(event, 0))?;
            }
            let result = (|| {
                check("cuEventRecord", sys::cuEventRecord(events[0], self.stream))?;
                work()?;
                check("cuEventRecord", sys::cuEventRecord(events[1], self.stream))?;
                check("cuEventSynchronize", sys::cuEventSynchronize(events[1]))?;
                check(
                    "cuEventElapsedTime",
                    sys::cuEventElapsedTime_v2(&mut milliseconds, events[0], events[1]),
                )
            })();
            for event in events {
                let _ = sys::cuEventDestroy_v2(event);
            }
            result?;
        }
        Ok(milliseconds)
    }
}

impl Drop for CudaContext {
    fn drop(&mut self) {
        let _quiet = quiet();
        // SAFETY: no user of the context outlives it, since all of them hold it by an `Arc`.
        unsafe {
            let _ = sys::cuCtxSetCurrent(self.context);
            let _ = sys::cuStreamSynchronize(self.stream);
            self.handles().close();
            let _ = sys::cuStreamDestroy_v2(self.stream);
        }
    }
}

/// Device memory of a fixed size, initially zero.
pub(crate) struct Allocation {
    context: Arc<CudaContext>,
    address: u64,
    bytes: usize,
}

impl std::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Allocation({} bytes)", self.bytes)
    }
}

impl Allocation {
    pub(crate) fn zeroed(context: &Arc<CudaContext>, bytes: usize) -> Result<Self> {
        context.enter()?;
        let mut address = 0;
        if bytes > 0 {
            let _quiet = quiet();
            // SAFETY: the context is current; the address is written on success.
            let status = unsafe { sys::cuMemAlloc_v2(&mut address, bytes) };
            if status == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
                let (available, _) = context.memory()?;
                return Err(EngineError::OutOfMemory { needed: bytes as u64, available });
            }
            check("cuMemAlloc", status)?;
        }
        let allocation = Self { context: Arc::clone(context), address, bytes };
        if bytes > 0 {
            // SAFETY: the memory was just allocated with that size.
            check("cuMemsetD8", unsafe { sys::cuMemsetD8Async(address, 0, bytes, context.stream) })?;
        }
        Ok(allocation)
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() <= self.bytes, "more bytes than the allocation holds");
        self.context.copy_to_device(self.address, bytes)
    }

    /// Copies the bytes of another allocation of the same size, after all work enqueued before.
    pub(crate) fn copy_from(&self, from: &Self) -> Result<()> {
        assert_eq!(self.bytes, from.bytes, "tensors of one type have one size");
        if self.bytes == 0 {
            return Ok(());
        }
        self.context.enter()?;
        // SAFETY: both allocations have this number of bytes and outlive the stream's work: dropping one waits for it.
        check("cuMemcpyDtoD", unsafe {
            sys::cuMemcpyDtoDAsync_v2(self.address, from.address, self.bytes, self.context.stream)
        })
    }

    /// Fills it with a two-byte number.
    pub(crate) fn fill(&self, number: u16) -> Result<()> {
        self.context.enter()?;
        // SAFETY: only as many numbers as fit are written.
        check("cuMemsetD16", unsafe {
            sys::cuMemsetD16Async(self.address, number, self.bytes / 2, self.context.stream)
        })
    }

    pub(crate) fn read(&self, offset: usize, bytes: usize) -> Result<Vec<u8>> {
        assert!(offset + bytes <= self.bytes, "more bytes than the allocation holds");
        let mut host = vec![0; bytes];
        self.context.copy_to_host(self.address + offset as u64, &mut host)?;
        Ok(host)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.address != 0 {
            // SAFETY: the memory is owned; work on the stream that may still use it is waited for.
            self.context.release(|| unsafe {
                let _ = sys::cuStreamSynchronize(self.context.stream);
                let _ = sys::cuMemFree_v2(self.address);
            });
        }
    }
}
