//! cuDNN: description, measurement and execution of convolutions.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cudnn::sys;
use cudarc::driver::sys::CUstream;

use crate::convolution::algorithm::{MeasuredAlgorithm, TimedAlgorithm, is_special, pick};
use crate::convolution::conv::{ConvPass, Convolution, Geometry};
use crate::program::scalar::f16_to_f64;
use crate::runtime::driver::{Allocation, CudaContext, failure, quiet};
use cfo_engine::{Precision, Result};

pub(crate) fn check(call: &str, status: sys::cudnnStatus_t) -> Result<()> {
    match status {
        sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS => Ok(()),
        _ => Err(failure(call, format!("{status:?}"))),
    }
}

/// Calls a function of the library, whose name is that of the failed call in the error.
macro_rules! call {
    ($function:ident($($argument:expr),*)) => {
        check(stringify!($function), sys::$function($($argument),*))
    };
}

/// Maximum workspace of an algorithm.
pub(crate) const WORKSPACE_LIMIT: usize = 1 << 30;
/// Number of the library's recommendations that are measured.
fn candidates_of(geometry: &Geometry) -> usize {
    match geometry.precision {
        // Other algorithms are measured in addition.
        Precision::Tf32 if !geometry.f16 && is_special(geometry) => 2,
        Precision::Tf32 if !geometry.f16 => 6,
        _ => 3,
    }
}

/// A large number in 16 bits, 5/4 times 2^14.
const PROBE: u16 = 0x7500;

/// Whether a weight gradient is correct for operands that are all [`PROBE`]. An algorithm that rounds its sums before
/// it multiplies them by the scaling factor overflows. One that multiplies its operands by the factor loses accuracy.
fn is_held_down(geometry: &Geometry, gradient: &Allocation) -> bool {
    let [_, kernel_height, kernel_width, inputs] = geometry.w;
    let [top, left] = geometry.padding;
    if top >= kernel_height || left >= kernel_width {
        return false;
    }
    // The weight that is multiplied with an element of the field for every gradient.
    let Ok(bytes) = gradient.read(2 * inputs * (top * kernel_width + left), 2) else { return false };
    let found = f16_to_f64(u16::from_le_bytes([bytes[0], bytes[1]]));
    let terms = geometry.y[..3].iter().product::<usize>() as f64;
    let expected = terms * f16_to_f64(PROBE).powi(2) * geometry.power();
    // Sums of equal terms have a bias that sums of terms of both signs do not have.
    (found / expected - 1.0).abs() < 0.1
}

/// The descriptors of one convolution.
pub(crate) struct PreparedConvolution {
    _context: Arc<CudaContext>,
    handle: sys::cudnnHandle_t,
    x: sys::cudnnTensorDescriptor_t,
    w: sys::cudnnFilterDescriptor_t,
    y: sys::cudnnTensorDescriptor_t,
    convolution: sys::cudnnConvolutionDescriptor_t,
    call: Option<Convolution>,
}

// SAFETY: descriptors are only read after construction, by one thread at a time.
unsafe impl Send for PreparedConvolution {}
// SAFETY: as above.
unsafe impl Sync for PreparedConvolution {}

impl Drop for PreparedConvolution {
    fn drop(&mut self) {
        // SAFETY: each was created or is null.
        unsafe {
            for tensor in [self.x, self.y] {
                if !tensor.is_null() {
                    let _ = sys::cudnnDestroyTensorDescriptor(tensor);
                }
            }
            if !self.w.is_null() {
                let _ = sys::cudnnDestroyFilterDescriptor(self.w);
            }
            if !self.convolution.is_null() {
                let _ = sys::cudnnDestroyConvolutionDescriptor(self.convolution);
            }
        }
    }
}

impl PreparedConvolution {
    pub(crate) fn new(context: &Arc<CudaContext>, call: &Convolution) -> Result<Self> {
        let mut prepared = Self::describe(context, &call.geometry.part())?;
        prepared.set_call(*call)?;
        Ok(prepared)
    }

    fn set_call(&mut self, call: Convolution) -> Result<()> {
        self.call = Some(call);
        // SAFETY: the descriptor is alive.
        unsafe { call!(cudnnSetConvolutionMathType(self.convolution, math(call.math))) }
    }

    pub(crate) fn describe(context: &Arc<CudaContext>, geometry: &Geometry) -> Result<Self> {
        context.enter()?;
        let handle = context.handles().convolutions(context.stream)?;
        let null: *mut c_void = std::ptr::null_mut();
        let mut it = Self {
            _context: Arc::clone(context),
            handle,
            x: null.cast(),
            w: null.cast(),
            y: null.cast(),
            convolution: null.cast(),
            call: None,
        };
        it.create(geometry)?;
        Ok(it)
    }

    /// Creates and sets the descriptors.
    fn create(&mut self, geometry: &Geometry) -> Result<()> {
        use sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC as CHANNELS_LAST;
        let data = match geometry.precision {
            _ if geometry.f16 => sys::cudnnDataType_t::CUDNN_DATA_HALF,
            Precision::Bf16 => sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
            _ => sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
        };
        let single = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
        let correlation = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
        let [b, h, w, ci] = geometry.x.map(|n| n as i32);
        let [co, kh, kw, _] = geometry.w.map(|n| n as i32);
        let [_, ho, wo, _] = geometry.y.map(|n| n as i32);
        let ([sh, sw], [ph, pw]) = (geometry.stride.map(|n| n as i32), geometry.padding.map(|n| n as i32));
        // SAFETY: descriptors are created before they are set; the library checks the sizes.
        unsafe {
            call!(cudnnCreateTensorDescriptor(&mut self.x))?;
            call!(cudnnCreateTensorDescriptor(&mut self.y))?;
            call!(cudnnCreateFilterDescriptor(&mut self.w))?;
            call!(cudnnCreateConvolutionDescriptor(&mut self.convolution))?;
            call!(cudnnSetTensor4dDescriptor(self.x, CHANNELS_LAST, data, b, ci, h, w))?;
            call!(cudnnSetTensor4dDescriptor(self.y, CHANNELS_LAST, data, b, co, ho, wo))?;
            call!(cudnnSetFilter4dDescriptor(self.w, data, CHANNELS_LAST, co, ci, kh, kw))?;
            let conv = self.convolution;
            call!(cudnnSetConvolution2dDescriptor(conv, ph, pw, sh, sw, 1, 1, correlation, single))?;
            let math = match geometry.precision {
                _ if geometry.f16 => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
                Precision::Bf16 => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
                Precision::Tf32 => sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
                _ => sys::cudnnMathType_t::CUDNN_FMA_MATH,
            };
            call!(cudnnSetConvolutionMathType(conv, math))?;
        }
        Ok(())
    }

    /// The library's recommended algorithms in order: algorithm, math, workspace, deterministic?
    pub(crate) fn candidates(&self, form: ConvPass) -> Vec<(u32, u32, usize, bool)> {
        let mut found = 0;
        let mut candidates = Vec::new();
        macro_rules! ask {
            ($get:ident, $performance:ident: $($descriptor:expr),*) => {{
                // SAFETY: results are plain data, as many as are requested.
                let mut results: [sys::$performance; 16] = unsafe { std::mem::zeroed() };
                let status = unsafe {
                    sys::$get(self.handle, $($descriptor),*, 16, &mut found, results.as_mut_ptr())
                };
                if status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS {
                    for result in &results[..found as usize] {
                        if result.status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS
                            && result.memory <= WORKSPACE_LIMIT
                        {
                            let deterministic =
                                result.determinism == sys::cudnnDeterminism_t::CUDNN_DETERMINISTIC;
                            let (algorithm, math) = (result.algo as u32, result.mathType as u32);
                            candidates.push((algorithm, math, result.memory, deterministic));
                        }
                    }
                }
            }};
        }
        let Self { x, w, y, convolution: conv, .. } = *self;
        match form {
            ConvPass::Forward => {
                ask!(cudnnGetConvolutionForwardAlgorithm_v7, cudnnConvolutionFwdAlgoPerf_t: x, w, conv, y)
            }
            ConvPass::Input => {
                ask!(cudnnGetConvolutionBackwardDataAlgorithm_v7, cudnnConvolutionBwdDataAlgoPerf_t: w, y, conv, x)
            }
            ConvPass::Weight => {
                ask!(cudnnGetConvolutionBackwardFilterAlgorithm_v7, cudnnConvolutionBwdFilterAlgoPerf_t: x, y, conv, w)
            }
        }
        candidates
    }

    /// Measures the library's recommendations; returns the fastest that works.
    pub(crate) fn measure(context: &Arc<CudaContext>, geometry: &Geometry) -> Result<TimedAlgorithm> {
        // One part represents all.
        let geometry = &geometry.part();
        let mut it = Self::describe(context, geometry)?;
        let mut candidates = worth_measuring(it.candidates(geometry.form), geometry);
        // An algorithm that adds 16-bit results in arbitrary order loses accuracy.
        candidates.retain(|candidate| candidate.3 || !geometry.f16);
        let half = geometry.f16 || geometry.precision == Precision::Bf16;
        let bytes = |sizes: [usize; 4]| sizes.iter().product::<usize>() * if half { 2 } else { 4 };
        let [x, w, y] = [geometry.x, geometry.w, geometry.y].map(bytes);
        let buffers = geometry.form.ordered([x, w, y]).map(|bytes| Allocation::zeroed(context, bytes));
        let [Ok(a), Ok(b), Ok(c)] = buffers else {
            // Without memory for measurements: the library's first recommendation, if there is one.
            let first = candidates.first().map(|&(algorithm, math, workspace, deterministic)| {
                (f32::INFINITY, deterministic, algorithm, math, workspace)
            });
            return Ok(pick(first.as_slice()));
        };
        if geometry.f16 {
            a.fill(PROBE)?;
            b.fill(PROBE)?;
        }
        let mut measured: Vec<MeasuredAlgorithm> = Vec::new();
        for &(algorithm, math, workspace, deterministic) in candidates.iter().take(candidates_of(geometry)) {
            let Ok(memory) = Allocation::zeroed(context, workspace) else { continue };
            let addresses = [a.address(), b.address(), c.address()];
            let workspace = (memory.address(), workspace);
            it.set_call(Convolution { geometry: *geometry, algorithm, math, workspace, addresses })?;
            let _quiet = quiet();
            // One run to load it. If this is already much slower than the best, it is not run again.
            let run = || context.time(|| it.run(context.stream));
            let best = measured.iter().map(|known: &MeasuredAlgorithm| known.0).fold(f32::INFINITY, f32::min);
            if let Ok(cold) = run()
                && cold < 5.0 * best + 5.0
                && let (Ok(first), Ok(second)) = (run(), run())
                && (!geometry.f16 || is_held_down(geometry, &c))
            {
                measured.push((first.min(second), deterministic, algorithm, math, workspace.1));
            }
        }
        Ok(pick(&measured))
    }

    /// Enqueues the call on a stream, for all parts of the batch in order; parts of a weight gradient are summed.
    pub(crate) fn run(&self, stream: CUstream) -> Result<()> {
        let call = self.call.as_ref().expect("prepared with a call");
        let (parts, part) = (call.geometry.parts(), call.geometry.part());
        let element = if part.precision == Precision::Bf16 { 2 } else { 4 };
        let [x, y] = [part.x, part.y].map(|field| (element * field.iter().product::<usize>()) as u64);
        let strides = match part.form {
            ConvPass::Forward => [x, 0, y],
            ConvPass::Input => [y, 0, x],
            ConvPass::Weight => [x, y, 0],
        };
        for index in 0..parts as u64 {
            let mut addresses = call.addresses;
            addresses.iter_mut().zip(strides).for_each(|(address, stride)| *address += index * stride);
            let kept = if part.form == ConvPass::Weight && index > 0 { 1.0 } else { 0.0 };
            self.run_part(stream, call, addresses, kept)?;
        }
        Ok(())
    }

    /// Enqueues one part; `kept` times the existing result is added.
    fn run_part(&self, stream: CUstream, call: &Convolution, addresses: [u64; 3], kept: f32) -> Result<()> {
        let one = call.geometry.power() as f32;
        let (alpha, beta): (*const c_void, *const c_void) =
            (std::ptr::from_ref(&one).cast(), std::ptr::from_ref(&kept).cast());
        let pointer = |address: u64| address as *mut c_void;
        let [a, b, c] = addresses.map(pointer);
        let (space, bytes) = (pointer(call.workspace.0), call.workspace.1);
        let Self { handle, x, w, y, convolution: conv, .. } = *self;
        // SAFETY: the handle is alive and used by one thread at a time.
        unsafe { call!(cudnnSetStream(handle, stream.cast()))? };
        // SAFETY: addresses are in the arena or in tensors that the executor keeps alive; algorithms come from the
        // library.
        unsafe {
            match call.geometry.form {
                ConvPass::Forward => {
                    let how = std::mem::transmute::<u32, sys::cudnnConvolutionFwdAlgo_t>(call.algorithm);
                    call!(cudnnConvolutionForward(
                        handle, alpha, x, a, w, b, conv, how, space, bytes, beta, y, c
                    ))
                }
                ConvPass::Input => {
                    let how = std::mem::transmute::<u32, sys::cudnnConvolutionBwdDataAlgo_t>(call.algorithm);
                    call!(cudnnConvolutionBackwardData(
                        handle, alpha, w, b, y, a, conv, how, space, bytes, beta, x, c
                    ))
                }
                ConvPass::Weight => {
                    let how =
                        std::mem::transmute::<u32, sys::cudnnConvolutionBwdFilterAlgo_t>(call.algorithm);
                    call!(cudnnConvolutionBackwardFilter(
                        handle, alpha, x, a, y, b, conv, how, space, bytes, beta, w, c
                    ))
                }
            }
        }
    }
}

/// A recommended algorithm: its number, math, workspace, deterministic?
type Candidate = (u32, u32, usize, bool);

/// For 16-bit operands only algorithms on tensor cores, if there are any: the others take up to a thousand times as
/// long.
fn worth_measuring(mut candidates: Vec<Candidate>, geometry: &Geometry) -> Vec<Candidate> {
    let on_cores = |candidate: &Candidate| candidate.1 == 1;
    let half = geometry.f16 || geometry.precision == Precision::Bf16;
    if half && candidates.iter().any(on_cores) {
        candidates.retain(on_cores);
    }
    // In tf32 the library does not report which algorithms use tensor cores; the plain ones of these forms do not.
    let plain = |candidate: &Candidate| candidate.0 == 0;
    if is_special(geometry) && geometry.form != ConvPass::Weight && !candidates.iter().all(plain) {
        candidates.retain(|candidate| !plain(candidate));
    }
    candidates
}

fn math(number: u32) -> sys::cudnnMathType_t {
    match number {
        1 => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
        2 => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
        3 => sys::cudnnMathType_t::CUDNN_FMA_MATH,
        _ => sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_algorithms_are_not_measured_for_operands_of_16_bits() {
        let candidates = vec![(1, 1, 64, true), (1, 0, 64, true), (0, 0, 0, true)];
        let geometry = |precision: Precision, f16: bool| Geometry {
            form: ConvPass::Weight,
            x: [1; 4],
            w: [1; 4],
            y: [1; 4],
            stride: [1; 2],
            padding: [0; 2],
            precision,
            periodic: false,
            f16,
        };
        for geometry in [geometry(Precision::Bf16, false), geometry(Precision::Tf32, true)] {
            assert_eq!(worth_measuring(candidates.clone(), &geometry), candidates[..1]);
            assert_eq!(worth_measuring(candidates[1..].to_vec(), &geometry), candidates[1..]);
        }
        assert_eq!(worth_measuring(candidates.clone(), &geometry(Precision::Tf32, false)), candidates);
    }
}
