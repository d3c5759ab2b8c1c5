//! Loading, launching, capture and replay of kernels.
#![allow(unsafe_code)]

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys;

use crate::runtime::driver::{CudaContext, check, quiet};
use cfo_engine::Result;

/// Declares types of handles that any thread may use with the context current, one at a time where they are changed.
macro_rules! shared {
    ($($handle:ty),*) => {
        $(
            // SAFETY: the driver allows it; `&mut` ensures that graphs are replayed by one thread at a time.
            unsafe impl Send for $handle {}
            // SAFETY: as above.
            unsafe impl Sync for $handle {}
        )*
    };
}

shared!(Module, KernelFunction, Stream, Replay);

pub(crate) struct Module {
    module: sys::CUmodule,
    context: Arc<CudaContext>,
}

impl Module {
    pub(crate) fn load(context: &Arc<CudaContext>, image: &[u8]) -> Result<Self> {
        context.enter()?;
        let mut module = std::ptr::null_mut();
        let _quiet = quiet();
        // SAFETY: the image is a complete cubin, which contains its length.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut module, image.as_ptr().cast()) })?;
        Ok(Self { module, context: Arc::clone(context) })
    }

    /// The address of a kernel, valid while the module lives.
    pub(crate) fn function(&self, name: &str, shared: u32, cluster: u32) -> Result<KernelFunction> {
        self.context.enter()?;
        let name = CString::new(name).expect("kernel names hold no zero");
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded and the name ends with a zero.
        unsafe {
            check(
                "cuModuleGetFunction",
                sys::cuModuleGetFunction(&mut function, self.module, name.as_ptr()),
            )?;
            // More than 48 KiB, static shared memory included, must be requested.
            if shared > 0 {
                let attribute =
                    sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                check("cuFuncSetAttribute", sys::cuFuncSetAttribute(function, attribute, shared as i32))?;
            }
            if cluster > 8 {
                let attribute =
                    sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
                check("cuFuncSetAttribute", sys::cuFuncSetAttribute(function, attribute, 1))?;
            }
        }
        Ok(KernelFunction(function))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the module's kernels are no longer launched: their owner is dropped with it.
        self.context.release(|| unsafe {
            let _ = sys::cuStreamSynchronize(self.context.stream);
            let _ = sys::cuModuleUnload(self.module);
        });
    }
}

#[derive(Clone, Copy)]
pub(crate) struct KernelFunction(sys::CUfunction);

impl KernelFunction {
    /// Enqueues a launch. Each argument is a word, of which the kernel reads the bytes of its parameter.
    pub(crate) fn launch(
        self,
        stream: sys::CUstream,
        grid: [u32; 3],
        block: u32,
        shared: u32,
        arguments: &[u64],
    ) -> Result<()> {
        let mut pointers: Vec<*mut c_void> =
            arguments.iter().map(|word| std::ptr::from_ref(word).cast_mut().cast()).collect();
        // SAFETY: the kernel has this number of parameters, none longer than a word, and the words outlive the call.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                self.0,
                grid[0],
                grid[1],
                grid[2],
                block,
                1,
                1,
                shared,
                stream,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        })
    }
}

pub(crate) struct Stream {
    stream: sys::CUstream,
    context: Arc<CudaContext>,
}

impl Stream {
    pub(crate) fn new(context: &Arc<CudaContext>) -> Result<Self> {
        context.enter()?;
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the handle is written on success.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
        Ok(Self { stream, context: Arc::clone(context) })
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.stream
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is owned and nothing runs on it outside of captures.
        self.context.release(|| unsafe {
            let _ = sys::cuStreamDestroy_v2(self.stream);
        });
    }
}

/// A point in a stream for which other streams can wait.
pub(crate) struct Event {
    event: sys::CUevent,
}

// SAFETY: event handles may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    pub(crate) fn record(context: &CudaContext, stream: sys::CUstream) -> Result<Self> {
        context.enter()?;
        let mut event = std::ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the handle is written before it is used; the stream is alive.
        unsafe {
            check("cuEventCreate", sys::cuEventCreate(&mut event, flags))?;
            let event = Self { event };
            check("cuEventRecord", sys::cuEventRecord(event.event, stream))?;
            Ok(event)
        }
    }

    /// Waits until the device reaches the event.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the event is alive and was recorded.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.event) })
    }

    pub(crate) fn hold(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: event and stream are alive.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream, self.event, 0) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is owned; destroying one while streams wait for it is allowed.
        let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
    }
}

/// A captured sequence of launches, ready for replay.
pub(crate) struct Replay {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
    context: Arc<CudaContext>,
}

impl Replay {
    /// Captures the work that `work` enqueues instead of running it.
    pub(crate) fn capture(context: &Arc<CudaContext>, work: impl FnOnce() -> Result<()>) -> Result<Self> {
        context.enter()?;
        let (mut graph, mut executable) = (std::ptr::null_mut(), std::ptr::null_mut());
        let _quiet = quiet();
        // SAFETY: the stream is alive; capture is ended in any case.
        unsafe {
            let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
            check("cuStreamBeginCapture", sys::cuStreamBeginCapture_v2(context.stream, mode))?;
            let worked = work();
            let ended = check("cuStreamEndCapture", sys::cuStreamEndCapture(context.stream, &mut graph));
            worked?;
            ended?;
            let status = sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0);
            if let Err(error) = check("cuGraphInstantiate", status) {
                let _ = sys::cuGraphDestroy(graph);
                return Err(error);
            }
        }
        Ok(Self { graph, executable, context: Arc::clone(context) })
    }

    pub(crate) fn launch(&self) -> Result<()> {
        // SAFETY: graph and stream are alive.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.executable, self.context.stream) })
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        // SAFETY: replays still running are waited for.
        self.context.release(|| unsafe {
            let _ = sys::cuStreamSynchronize(self.context.stream);
            let _ = sys::cuGraphExecDestroy(self.executable);
            let _ = sys::cuGraphDestroy(self.graph);
        });
    }
}
