//! Convolutions through cuDNN, channels last, by the algorithm that was fastest when it was first asked; padding.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use cudarc::cudnn::sys;
use cudarc::driver::sys::CUstream;

use super::compile;
use super::driver::{Allocation, Context, failure};
use super::library::Library;
use super::lower::{File, Io, Lowering, Value, Work, blocks, vector};
use super::matmul;
use super::scalar::Scalar;
use crate::device::Precision;
use crate::error::Result;
use crate::graph::Graph;
use crate::ops::{MatMul, Op, Operand, PadMode};
use crate::shape::Shape;

/// Which of the three tensors is computed from the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    Forward,
    Input,
    Weight,
}

/// Sizes of a convolution: `x [b, h, w, ci]`, `w [co, kh, kw, ci]`, `y [b, ho, wo, co]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Geometry {
    pub(super) form: Form,
    x: [usize; 4],
    w: [usize; 4],
    y: [usize; 4],
    stride: [usize; 2],
    padding: [usize; 2],
    precision: Precision,
}

fn four(shape: &Shape) -> [usize; 4] {
    shape.axes().try_into().expect("the graph checked that fields have four axes")
}

impl Geometry {
    /// Of an operation of a graph, if it is a convolution.
    pub(super) fn of(graph: &Graph, id: usize, precision: Precision) -> Option<Self> {
        let entry = &graph.entries[id];
        let input = |index: usize| four(graph.shape(entry.inputs[index]));
        let output = || four(&entry.outputs[0].shape);
        let (form, x, w, y, stride, padding) = match &entry.op {
            Op::Conv(op) => (Form::Forward, input(0), input(1), output(), op.stride, op.padding),
            Op::ConvInput(op) => (Form::Input, output(), input(1), input(0), op.stride, op.padding),
            Op::ConvWeight(op) => (Form::Weight, input(0), output(), input(1), op.stride, op.padding),
            _ => return None,
        };
        Some(Self { form, x, w, y, stride, padding, precision })
    }

    /// A name for it in the cache.
    fn key(&self, gpu: &str, library: &str) -> String {
        let Self { form, x, w, y, stride, padding, precision } = self;
        format!("{gpu}|{library}|{form:?}|{precision}|{x:?}|{w:?}|{y:?}|{stride:?}|{padding:?}")
            .replace(' ', "")
    }

    /// Rows and columns of the matrix of patches.
    fn patches(&self) -> [usize; 2] {
        [self.y[0] * self.y[1] * self.y[2], self.w[1] * self.w[2] * self.w[3]]
    }

    /// Whether the field itself is the matrix of patches.
    fn is_product(&self) -> bool {
        self.w[1..3] == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0]
    }

    fn bytes(&self) -> usize {
        let [rows, columns] = self.patches();
        rows * columns * if self.precision == Precision::Bf16 { 2 } else { 4 }
    }

    /// Bytes of scratch memory.
    pub(super) fn scratch(&self, choice: Choice) -> usize {
        match choice {
            Choice::Library { workspace, .. } => workspace,
            Choice::Patches if !self.is_product() => self.bytes(),
            Choice::Patches | Choice::Plain => 0,
        }
    }

    /// Fields of one row are small, and the library's kernels for them slow: their patches are gathered.
    fn prefers_patches(&self) -> bool {
        self.is_product() || (self.x[1] == 1 && self.bytes() <= PATCHES_LIMIT)
    }

    /// Template arguments of the plain kernels.
    fn numbers(&self) -> String {
        let ([b, h, w, ci], [co, kh, kw, _], [_, ho, wo, _]) = (self.x, self.w, self.y);
        let ([sh, sw], [ph, pw]) = (self.stride, self.padding);
        format!("{b}u, {h}u, {w}u, {ci}u, {co}u, {kh}u, {kw}u, {ho}u, {wo}u, {sh}, {sw}, {ph}, {pw}")
    }
}

/// How a convolution is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// By the library.
    Library { algorithm: u32, math: u32, workspace: usize },
    /// As a product with patches gathered beforehand.
    Patches,
    /// By our kernel that follows the definition.
    Plain,
}

/// Bytes of patches up to which they are gathered.
const PATCHES_LIMIT: usize = 96 << 20;

/// A call of the library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Convolution {
    geometry: Geometry,
    algorithm: u32,
    math: u32,
    workspace: (u64, usize),
    /// In the order of the operation's inputs and output.
    addresses: [u64; 3],
}

pub(super) fn lower(geometry: &Geometry, choice: Choice, io: &Io, to: &mut Lowering) {
    let [a, b, c] = [io.inputs[0], io.inputs[1], io.outputs[0]];
    match choice {
        Choice::Library { algorithm, math, workspace } => {
            let addresses = [a, b, c].map(|value| value.address);
            let workspace = (io.scratch, workspace);
            to.append(Work::Convolution(Convolution {
                geometry: *geometry,
                algorithm,
                math,
                workspace,
                addresses,
            }));
        }
        Choice::Patches => by_patches(geometry, io, to),
        Choice::Plain => {
            let (name, grid) = match geometry.form {
                Form::Forward => ("conv_forward", blocks(c.count)),
                Form::Input => ("conv_input", blocks(c.count)),
                Form::Weight => ("conv_weight", [c.count as u32, 1, 1]),
            };
            let scalar = c.scalar.name();
            let parameters = format!("const {scalar}* a, const {scalar}* b, {scalar}* c");
            let body = format!("{name}<{scalar}, Geometry<{}>>(a, b, c);", geometry.numbers());
            let arguments = [a, b, c].map(|value| value.address.into()).to_vec();
            to.launch(File::Conv, &parameters, body, grid, arguments);
        }
    }
}

/// A convolution as a product of its patches.
fn by_patches(geometry: &Geometry, io: &Io, to: &mut Lowering) {
    let [a, b, c] = [io.inputs[0], io.inputs[1], io.outputs[0]];
    let ([rows, columns], outputs) = (geometry.patches(), geometry.w[0]);
    let scalar = c.scalar.name();
    let width = vector(c.scalar == Scalar::Half, [geometry.x[3]]);
    let own = if geometry.form == Form::Input { c } else { a };
    let patches = match geometry.is_product() {
        true => own,
        false => Value { address: io.scratch, scalar: c.scalar, count: rows * columns },
    };
    let move_patches = |to: &mut Lowering| {
        if geometry.is_product() {
            return;
        }
        let (name, from, into) = match geometry.form {
            Form::Input => ("scatter_patches", patches, c),
            _ => ("gather_patches", a, patches),
        };
        to.launch(
            File::Conv,
            &format!("const {scalar}* from, {scalar}* into"),
            format!("{name}<{scalar}, {width}, Geometry<{}>>(from, into);", geometry.numbers()),
            blocks(into.count / width),
            vec![from.address.into(), into.address.into()],
        );
    };
    let dense = |columns: usize| Operand::dense(0, columns);
    let (sizes, operands, inputs, output) = match geometry.form {
        // y = patches w', w being [outputs, columns].
        Form::Forward => (
            [rows, columns, outputs],
            [dense(columns), dense(columns).transposed(), dense(outputs)],
            [patches, b],
            c,
        ),
        // dpatches = dy w.
        Form::Input => {
            ([rows, outputs, columns], [dense(outputs), dense(columns), dense(columns)], [a, b], patches)
        }
        // dw = dy' patches.
        Form::Weight => (
            [outputs, rows, columns],
            [dense(outputs).transposed(), dense(columns), dense(columns)],
            [b, patches],
            c,
        ),
    };
    let product = MatMul::plain([1, 1], sizes, operands, Shape::from([sizes[0], sizes[2]]));
    let product_io = Io { inputs: inputs.to_vec(), outputs: vec![output], scratch: 0 };
    if geometry.form != Form::Input {
        move_patches(to);
    }
    matmul::lower(&product, &product_io, to);
    if geometry.form == Form::Input {
        move_patches(to);
    }
}

/// Padding (`folded` false) or its adjoint. `field` is the smaller of both shapes, `padded` the larger.
pub(super) fn pad(
    mode: PadMode,
    before: [usize; 2],
    (field, padded): (&Shape, &Shape),
    folded: bool,
    io: &Io,
    to: &mut Lowering,
) {
    let ([_, h, w, c], [_, hp, wp, _]) = (four(field), four(padded));
    let (x, y) = (io.inputs[0], io.outputs[0]);
    let half = x.scalar == Scalar::Half || y.scalar == Scalar::Half;
    let width = vector(half, [c]);
    let number = match mode {
        PadMode::Zero => 0,
        PadMode::Circular => 1,
        PadMode::Replicate => 2,
    };
    let count = y.count / width;
    let body = format!(
        "{}<{}, {}, {width}, {number}, {h}u, {w}u, {c}u, {}u, {}u, {hp}u, {wp}u, {count}ull>(x, y);",
        if folded { "fold" } else { "pad" },
        x.scalar.name(),
        y.scalar.name(),
        before[0],
        before[1]
    );
    let parameters = format!("const {}* x, {}* y", x.scalar.name(), y.scalar.name());
    to.launch(File::Conv, &parameters, body, blocks(count), vec![x.address.into(), y.address.into()]);
}

fn check(call: &str, status: sys::cudnnStatus_t) -> Result<()> {
    match status {
        sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS => Ok(()),
        _ => Err(failure(call, format!("{status:?}"))),
    }
}

/// Workspace that an algorithm may ask for.
const WORKSPACE_LIMIT: usize = 1 << 30;
/// Algorithms that are measured of those that the library recommends.
const CANDIDATES: usize = 4;
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
        let mut prepared = Self::describe(context, &call.geometry)?;
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
        let mut it = Self::describe(context, geometry)?;
        let candidates = it.candidates(geometry.form);
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
        for &(algorithm, math, workspace, deterministic) in candidates.iter().take(CANDIDATES) {
            let Ok(memory) = Allocation::zeroed(context, workspace) else { continue };
            let addresses = [a.address(), b.address(), c.address()];
            let workspace = (memory.address(), workspace);
            it.set_call(Convolution { geometry: *geometry, algorithm, math, workspace, addresses })?;
            let run = |times: usize| (0..times).try_for_each(|_| it.run(context.stream));
            if run(1).and_then(|()| context.synchronize()).is_ok()
                && let Ok(time) = context.time(|| run(3))
            {
                measured.push((time, deterministic, algorithm, math, workspace.1));
            }
        }
        Ok(pick(&measured))
    }

    /// Enqueues the call on a stream.
    pub(super) fn run(&self, stream: CUstream) -> Result<()> {
        let call = self.call.as_ref().expect("prepared with a call");
        let (one, zero) = (1.0_f32, 0.0_f32);
        let (alpha, beta): (*const c_void, *const c_void) =
            (std::ptr::from_ref(&one).cast(), std::ptr::from_ref(&zero).cast());
        let pointer = |address: u64| address as *mut c_void;
        let [a, b, c] = call.addresses.map(pointer);
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

fn math(number: u32) -> sys::cudnnMathType_t {
    match number {
        1 => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
        2 => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
        3 => sys::cudnnMathType_t::CUDNN_FMA_MATH,
        _ => sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
    }
}

/// The fastest, or a deterministic one that is almost as fast. Candidates: time, deterministic?, algorithm, math,
/// workspace.
fn pick(candidates: &[(f32, bool, u32, u32, usize)]) -> Choice {
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

/// How to do a convolution on a GPU: as the cache says, else as measured now.
///
/// # Errors
/// If cuDNN is missing.
pub(super) fn choose(context: &Arc<Context>, geometry: &Geometry) -> Result<Choice> {
    if geometry.prefers_patches() {
        return Ok(Choice::Patches);
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
}
