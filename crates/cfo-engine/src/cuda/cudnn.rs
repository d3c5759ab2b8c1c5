//! cuDNN: convolutions described, measured once and run.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use cudarc::cudnn::sys;
use cudarc::driver::sys::CUstream;

use super::compile;
use super::conv::{Choice, Convolution, Form, Geometry};
use super::driver::{Allocation, Context, failure, quiet};
use super::few;
use super::library::Library;
use crate::device::Precision;
use crate::error::Result;

fn check(call: &str, status: sys::cudnnStatus_t) -> Result<()> {
    match status {
        sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS => Ok(()),
        _ => Err(failure(call, format!("{status:?}"))),
    }
}

/// Workspace that an algorithm may ask for.
const WORKSPACE_LIMIT: usize = 1 << 30;
/// Algorithms that are measured of those that the library recommends.
fn candidates_of(precision: Precision) -> usize {
    match precision {
        Precision::Tf32 => 6,
        _ => 3,
    }
}
/// A deterministic algorithm is taken if it takes no longer than this times the fastest one's time.
const DETERMINISM_COST: f32 = 1.1;

/// The descriptors of one convolution.
pub(super) struct Prepared {
    _context: Arc<Context>,
    handle: sys::cudnnHandle_t,
    x: sys::cudnnTensorDescriptor_t,
    w: sys::cudnnFilterDescriptor_t,
    y: sys::cudnnTensorDescriptor_t,
    convolution: sys::cudnnConvolutionDescriptor_t,
    call: Option<Convolution>,
}

// SAFETY: descriptors are only read after construction, by one thread at a time.
unsafe impl Send for Prepared {}
// SAFETY: as above.
unsafe impl Sync for Prepared {}

impl Drop for Prepared {
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

impl Prepared {
    pub(super) fn new(context: &Arc<Context>, call: &Convolution) -> Result<Self> {
        let mut prepared = Self::describe(context, &call.geometry.part())?;
        prepared.set_call(*call)?;
        Ok(prepared)
    }

    fn set_call(&mut self, call: Convolution) -> Result<()> {
        self.call = Some(call);
        // SAFETY: the descriptor is alive.
        check("cudnnSetConvolutionMathType", unsafe {
            sys::cudnnSetConvolutionMathType(self.convolution, math(call.math))
        })
    }

    fn describe(context: &Arc<Context>, geometry: &Geometry) -> Result<Self> {
        use sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC as CHANNELS_LAST;
        context.enter()?;
        let handle = context
            .handles
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .convolutions(context.stream)?;
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
        let data = match geometry.precision {
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
            check("cudnnCreateTensorDescriptor", sys::cudnnCreateTensorDescriptor(&mut it.x))?;
            check("cudnnCreateTensorDescriptor", sys::cudnnCreateTensorDescriptor(&mut it.y))?;
            check("cudnnCreateFilterDescriptor", sys::cudnnCreateFilterDescriptor(&mut it.w))?;
            check(
                "cudnnCreateConvolutionDescriptor",
                sys::cudnnCreateConvolutionDescriptor(&mut it.convolution),
            )?;
            let set = sys::cudnnSetTensor4dDescriptor;
            check("cudnnSetTensor4dDescriptor", set(it.x, CHANNELS_LAST, data, b, ci, h, w))?;
            check("cudnnSetTensor4dDescriptor", set(it.y, CHANNELS_LAST, data, b, co, ho, wo))?;
            check(
                "cudnnSetFilter4dDescriptor",
                sys::cudnnSetFilter4dDescriptor(it.w, data, CHANNELS_LAST, co, ci, kh, kw),
            )?;
            check(
                "cudnnSetConvolution2dDescriptor",
                sys::cudnnSetConvolution2dDescriptor(
                    it.convolution,
                    ph,
                    pw,
                    sh,
                    sw,
                    1,
                    1,
                    correlation,
                    single,
                ),
            )?;
            let math = match geometry.precision {
                Precision::Bf16 => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
                Precision::Tf32 => sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
                _ => sys::cudnnMathType_t::CUDNN_FMA_MATH,
            };
            check("cudnnSetConvolutionMathType", sys::cudnnSetConvolutionMathType(it.convolution, math))?;
        }
        Ok(it)
    }

    /// The algorithms that the library thinks best, the best first: algorithm, math, workspace, deterministic?
    fn candidates(&self, form: Form) -> Vec<(u32, u32, usize, bool)> {
        let mut found = 0;
        let mut candidates = Vec::new();
        macro_rules! ask {
            ($get:ident, $performance:ident, $($descriptor:expr),*) => {{
                // SAFETY: results are plain data, as many as are asked for.
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
        let Self { x, w, y, convolution, .. } = *self;
        match form {
            Form::Forward => {
                ask!(
                    cudnnGetConvolutionForwardAlgorithm_v7,
                    cudnnConvolutionFwdAlgoPerf_t,
                    x,
                    w,
                    convolution,
                    y
                )
            }
            Form::Input => {
                ask!(
                    cudnnGetConvolutionBackwardDataAlgorithm_v7,
                    cudnnConvolutionBwdDataAlgoPerf_t,
                    w,
                    y,
                    convolution,
                    x
                )
            }
            Form::Weight => {
                ask!(
                    cudnnGetConvolutionBackwardFilterAlgorithm_v7,
                    cudnnConvolutionBwdFilterAlgoPerf_t,
                    x,
                    y,
                    convolution,
                    w
                )
            }
        }
        candidates
    }

    /// Measures the library's best guesses; the best one if any works.
    fn measure(context: &Arc<Context>, geometry: &Geometry) -> Result<Choice> {
        // One part stands for all.
        let geometry = &geometry.part();
        let mut it = Self::describe(context, geometry)?;
        let candidates = worth_measuring(it.candidates(geometry.form), geometry.precision);
        let bytes = |sizes: [usize; 4]| {
            sizes.iter().product::<usize>() * if geometry.precision == Precision::Bf16 { 2 } else { 4 }
        };
        let [x, w, y] = [geometry.x, geometry.w, geometry.y].map(bytes);
        let sizes = match geometry.form {
            Form::Forward => [x, w, y],
            Form::Input => [y, w, x],
            Form::Weight => [x, y, w],
        };
        let buffers = sizes.map(|bytes| Allocation::zeroed(context, bytes));
        let [Ok(a), Ok(b), Ok(c)] = buffers else {
            // No room to measure in: the library's first guess, if it has one.
            return Ok(candidates.first().map_or(Choice::Plain, |&(algorithm, math, workspace, _)| {
                Choice::Library { algorithm, math, workspace }
            }));
        };
        let mut measured = Vec::new();
        for &(algorithm, math, workspace, deterministic) in
            candidates.iter().take(candidates_of(geometry.precision))
        {
            let Ok(memory) = Allocation::zeroed(context, workspace) else { continue };
            let addresses = [a.address(), b.address(), c.address()];
            let workspace = (memory.address(), workspace);
            it.set_call(Convolution { geometry: *geometry, algorithm, math, workspace, addresses })?;
            let _quiet = quiet();
            // Once to load it; one that is far behind even so is not run again.
            let run = || context.time(|| it.run(context.stream));
            let best = measured.iter().map(|known: &Measured| known.0).fold(f32::INFINITY, f32::min);
            if let Ok(cold) = run()
                && cold < 5.0 * best + 5.0
                && let (Ok(first), Ok(second)) = (run(), run())
            {
                measured.push((first.min(second), deterministic, algorithm, math, workspace.1));
            }
        }
        Ok(pick(&measured))
    }

    /// Enqueues the call on a stream, part after part of the batch; parts of a weight gradient are summed.
    pub(super) fn run(&self, stream: CUstream) -> Result<()> {
        let call = self.call.as_ref().expect("prepared with a call");
        let (parts, part) = (call.geometry.parts(), call.geometry.part());
        let element = if part.precision == Precision::Bf16 { 2 } else { 4 };
        let [x, y] = [part.x, part.y].map(|field| (element * field.iter().product::<usize>()) as u64);
        let strides = match part.form {
            Form::Forward => [x, 0, y],
            Form::Input => [y, 0, x],
            Form::Weight => [x, y, 0],
        };
        for index in 0..parts as u64 {
            let mut addresses = call.addresses;
            addresses.iter_mut().zip(strides).for_each(|(address, stride)| *address += index * stride);
            let kept = if part.form == Form::Weight && index > 0 { 1.0 } else { 0.0 };
            self.run_part(stream, call, addresses, kept)?;
        }
        Ok(())
    }

    /// Enqueues one part; `kept` times what the result's place holds is added.
    fn run_part(&self, stream: CUstream, call: &Convolution, addresses: [u64; 3], kept: f32) -> Result<()> {
        let one = 1.0_f32;
        let (alpha, beta): (*const c_void, *const c_void) =
            (std::ptr::from_ref(&one).cast(), std::ptr::from_ref(&kept).cast());
        let pointer = |address: u64| address as *mut c_void;
        let [a, b, c] = addresses.map(pointer);
        let (workspace, bytes) = (pointer(call.workspace.0), call.workspace.1);
        let Self { handle, x, w, y, convolution, .. } = *self;
        // SAFETY: the handle is alive and used by one thread at a time.
        check("cudnnSetStream", unsafe { sys::cudnnSetStream(handle, stream.cast()) })?;
        // SAFETY: addresses lie in the arena or in tensors that the executor keeps alive; algorithms came from the
        // library.
        unsafe {
            match call.geometry.form {
                Form::Forward => {
                    let algorithm =
                        std::mem::transmute::<u32, sys::cudnnConvolutionFwdAlgo_t>(call.algorithm);
                    let status = sys::cudnnConvolutionForward(
                        handle,
                        alpha,
                        x,
                        a,
                        w,
                        b,
                        convolution,
                        algorithm,
                        workspace,
                        bytes,
                        beta,
                        y,
                        c,
                    );
                    check("cudnnConvolutionForward", status)
                }
                Form::Input => {
                    let algorithm =
                        std::mem::transmute::<u32, sys::cudnnConvolutionBwdDataAlgo_t>(call.algorithm);
                    let status = sys::cudnnConvolutionBackwardData(
                        handle,
                        alpha,
                        w,
                        b,
                        y,
                        a,
                        convolution,
                        algorithm,
                        workspace,
                        bytes,
                        beta,
                        x,
                        c,
                    );
                    check("cudnnConvolutionBackwardData", status)
                }
                Form::Weight => {
                    let algorithm =
                        std::mem::transmute::<u32, sys::cudnnConvolutionBwdFilterAlgo_t>(call.algorithm);
                    let status = sys::cudnnConvolutionBackwardFilter(
                        handle,
                        alpha,
                        x,
                        a,
                        y,
                        b,
                        convolution,
                        algorithm,
                        workspace,
                        bytes,
                        beta,
                        w,
                        c,
                    );
                    check("cudnnConvolutionBackwardFilter", status)
                }
            }
        }
    }
}

/// In bf16 the algorithms on tensor cores alone if there is one: the others take up to a thousand times as long.
fn worth_measuring(
    mut candidates: Vec<(u32, u32, usize, bool)>,
    precision: Precision,
) -> Vec<(u32, u32, usize, bool)> {
    let on_cores = |candidate: &(u32, u32, usize, bool)| candidate.1 == 1;
    if precision == Precision::Bf16 && candidates.iter().any(on_cores) {
        candidates.retain(on_cores);
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

/// Milliseconds, deterministic?, algorithm, math, workspace.
type Measured = (f32, bool, u32, u32, usize);

/// The fastest, or a deterministic one that is almost as fast.
fn pick(candidates: &[Measured]) -> Choice {
    let fastest = candidates.iter().map(|candidate| candidate.0).fold(f32::INFINITY, f32::min);
    let best = |needed: bool| {
        candidates
            .iter()
            .filter(|candidate| candidate.1 || !needed)
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|candidate| !needed || candidate.0 <= DETERMINISM_COST * fastest)
    };
    match best(true).or_else(|| best(false)) {
        Some(&(_, _, algorithm, math, workspace)) => Choice::Library { algorithm, math, workspace },
        None => Choice::Plain,
    }
}

/// The first recommendation that always yields the same bits; our own kernel if there is none.
fn first_deterministic(candidates: &[(u32, u32, usize, bool)]) -> Choice {
    let found = candidates.iter().find(|candidate| candidate.3);
    found.map_or(Choice::Plain, |&(algorithm, math, workspace, _)| Choice::Library {
        algorithm,
        math,
        workspace,
    })
}

/// How to do a convolution on a GPU: as the cache says, else as measured now; without measurements and by algorithms that
/// always yield the same bits where that is asked for.
///
/// # Errors
/// If cuDNN is missing.
pub(super) fn choose(context: &Arc<Context>, geometry: &Geometry, deterministic: bool) -> Result<Choice> {
    if geometry.prefers_patches() {
        return Ok(Choice::Patches);
    }
    if let Some(choice) = few::choice(geometry, context.properties.multiprocessors) {
        return Ok(choice);
    }
    if deterministic {
        // Nothing measured: what is fastest may change from run to run.
        let candidates = Prepared::describe(context, &geometry.part())?.candidates(geometry.form);
        return Ok(first_deterministic(&candidates));
    }
    static KNOWN: Mutex<Option<BTreeMap<String, Choice>>> = Mutex::new(None);
    let library = Library::Cudnn.version().map(|version| version.to_string()).unwrap_or_default();
    let key = geometry.key(&context.properties.name, &library);
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let file = compile::folder().map(|folder| folder.join("convolutions.txt"));
    let known = known.get_or_insert_with(|| {
        file.as_ref()
            .and_then(|file| std::fs::read_to_string(file).ok())
            .map(|text| parse(&text))
            .unwrap_or_default()
    });
    if let Some(choice) = known.get(&key) {
        return Ok(*choice);
    }
    let choice = Prepared::measure(context, geometry)?;
    known.insert(key, choice);
    if let Some(file) = &file {
        // A cache that cannot be written costs time, not results.
        let _ = compile::store(file, print(known).as_bytes());
    }
    Ok(choice)
}

/// One line a convolution: the key, then algorithm, math and workspace, or `plain`.
fn print(known: &BTreeMap<String, Choice>) -> String {
    known
        .iter()
        .map(|(key, choice)| match choice {
            Choice::Plain => format!("{key}\tplain\n"),
            Choice::Patches => format!("{key}\tpatches\n"),
            Choice::Few { .. } | Choice::Line => String::new(),
            Choice::Library { algorithm, math, workspace } => {
                format!("{key}\t{algorithm} {math} {workspace}\n")
            }
        })
        .collect()
}

/// Lines that do not read are left out: they are measured again.
fn parse(text: &str) -> BTreeMap<String, Choice> {
    text.lines()
        .filter_map(|line| {
            let (key, rest) = line.split_once('\t')?;
            if rest == "plain" {
                return Some((key.to_owned(), Choice::Plain));
            }
            if rest == "patches" {
                return Some((key.to_owned(), Choice::Patches));
            }
            let numbers: Vec<usize> =
                rest.split(' ').map(|number| number.parse().ok()).collect::<Option<_>>()?;
            match numbers[..] {
                [algorithm, math, workspace] if algorithm < 8 && math < 4 && workspace <= WORKSPACE_LIMIT => {
                    let (algorithm, math) = (algorithm as u32, math as u32);
                    Some((key.to_owned(), Choice::Library { algorithm, math, workspace }))
                }
                _ => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_reads_what_it_wrote_and_skips_what_is_damaged() {
        let mut known = BTreeMap::new();
        known.insert("a|b".to_owned(), Choice::Plain);
        known.insert("c".to_owned(), Choice::Library { algorithm: 1, math: 3, workspace: 4096 });
        assert_eq!(parse(&print(&known)), known);
        let damaged = format!("{}junk\nd\t1 2\ne\t99 0 0\nf\t1 1 99999999999999\n", print(&known));
        assert_eq!(parse(&damaged), known);
    }

    #[test]
    fn a_deterministic_algorithm_is_taken_when_it_costs_little() {
        let library = |algorithm| Choice::Library { algorithm, math: 0, workspace: 0 };
        assert_eq!(pick(&[(1.0, false, 0, 0, 0), (1.05, true, 1, 0, 0)]), library(1));
        assert_eq!(pick(&[(1.0, false, 0, 0, 0), (2.0, true, 1, 0, 0)]), library(0));
        assert_eq!(pick(&[]), Choice::Plain);
    }

    #[test]
    fn slow_algorithms_are_not_measured_in_bf16() {
        let candidates = vec![(1, 1, 64, true), (1, 0, 64, true), (0, 0, 0, true)];
        assert_eq!(worth_measuring(candidates.clone(), Precision::Bf16), candidates[..1]);
        assert_eq!(worth_measuring(candidates.clone(), Precision::Tf32), candidates);
        assert_eq!(worth_measuring(candidates[1..].to_vec(), Precision::Bf16), candidates[1..]);
    }

    #[test]
    fn only_deterministic_algorithms_are_taken_where_that_is_asked() {
        let library = |algorithm| Choice::Library { algorithm, math: 1, workspace: 64 };
        let candidates = [(0, 1, 64, false), (3, 1, 64, true), (1, 1, 64, true)];
        assert_eq!(first_deterministic(&candidates), library(3));
        assert_eq!(first_deterministic(&candidates[..1]), Choice::Plain);
    }
}
