//! Matrix products through cuBLASLt, with bias and activation on the way out where the library has them.
//!
//! The library thinks in columns. A product whose rows lie one after another is therefore handed over transposed:
//! `c' = b' a'`, where `'` means the same memory read by columns.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use cudarc::cublaslt::sys;
use cudarc::driver::sys::CUstream;

use super::compile::{self, Digest};
use super::driver::{Allocation, Context, Replay, failure};
use super::expression;
use super::library::Library;
use super::lower::{File, Io, Lowering, Work, blocks, vector};
use super::scalar::Scalar;
use crate::device::Precision;
use crate::error::Result;
use crate::ops::{Activation, MatMul, Operand};

/// Memory that the library may use for one product; all products of a stream share it.
pub(super) const WORKSPACE: usize = 32 << 20;

/// One operand as the library sees it: `rows x columns`, stored by columns with the given distance between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Matrix {
    pub(super) address: u64,
    pub(super) scalar: Scalar,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) distance: usize,
    pub(super) batch_stride: usize,
    /// Whether the product takes its transpose.
    pub(super) transpose: bool,
}

/// What the library does to the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Epilogue {
    None,
    Bias,
    Relu,
    ReluBias,
    Gelu,
    GeluBias,
}

/// One call of the library: `d = epilogue(a b)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Product {
    pub(super) precision: Precision,
    pub(super) batch: usize,
    pub(super) a: Matrix,
    pub(super) b: Matrix,
    pub(super) d: Matrix,
    pub(super) epilogue: Epilogue,
    pub(super) bias: u64,
    /// Where the value before the activation goes; 0 for nowhere.
    pub(super) kept: u64,
}

impl Product {
    /// A name for it in the cache: everything but the addresses.
    fn key(&self, gpu: &str, library: &str) -> String {
        let mut plain = *self;
        for matrix in [&mut plain.a, &mut plain.b, &mut plain.d] {
            matrix.address = u64::from(alignment(matrix.address));
        }
        (plain.bias, plain.kept) = (u64::from(self.bias != 0), u64::from(self.kept != 0));
        let mut digest = Digest::new();
        digest.add(format!("{gpu}|{library}|{WORKSPACE}|{plain:?}").as_bytes());
        digest.finish()
    }
}

/// The power of two, up to 256, that divides an address.
fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

/// Algorithms that are measured of those that the library recommends.
const CANDIDATES: usize = 8;

type Tuned = BTreeMap<String, [u64; 8]>;

/// What was measured, by this process or before.
fn tuned() -> std::sync::MutexGuard<'static, Tuned> {
    static TUNED: OnceLock<Mutex<Tuned>> = OnceLock::new();
    TUNED
        .get_or_init(|| {
            let text = file().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
            Mutex::new(parse(&text))
        })
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn file() -> Option<PathBuf> {
    compile::folder().map(|folder| folder.join("products.txt"))
}

/// Keeps what was measured for the next process.
pub(super) fn save_tuned() {
    if let Some(file) = file() {
        // A cache that cannot be written costs time, not results.
        let _ = compile::store(&file, print(&tuned()).as_bytes());
    }
}

/// One line a product: the key and the algorithm's words.
fn print(tuned: &Tuned) -> String {
    let words = |words: &[u64; 8]| words.map(|word| format!("{word:x}")).join(" ");
    tuned.iter().map(|(key, algorithm)| format!("{key} {}\n", words(algorithm))).collect()
}

/// Lines that do not read are left out: they are measured again.
fn parse(text: &str) -> Tuned {
    text.lines()
        .filter_map(|line| {
            let mut parts = line.split(' ');
            let key = parts.next().filter(|key| key.len() == 32)?;
            let words: Vec<u64> =
                parts.map(|word| u64::from_str_radix(word, 16).ok()).collect::<Option<_>>()?;
            Some((key.to_owned(), words.try_into().ok()?))
        })
        .collect()
}

pub(super) fn lower(op: &MatMul, io: &Io, to: &mut Lowering) {
    if op.inner == 0 {
        return;
    }
    let (outer, inner_batch) = batches(op);
    let (mut fused, mut epilogue) = epilogue(op);
    if epilogue != Epilogue::None && !to.supports(&whole(op, io, to.precision, epilogue)) {
        (fused, epilogue) = (false, Epilogue::None);
    }
    // Without a fused activation the product goes where the activation reads it.
    let target = if op.keep_input && !fused { io.outputs[1] } else { io.outputs[0] };
    for step in 0..outer {
        let address =
            |value: u64, scalar: Scalar, stride: usize| value + (step * stride * scalar.bytes()) as u64;
        let [a, b, c] = [op.a, op.b, op.c].map(|operand| outer_stride(op, operand));
        let x = (address(io.inputs[0].address, io.inputs[0].scalar, a), io.inputs[0].scalar);
        let y = (address(io.inputs[1].address, io.inputs[1].scalar, b), io.inputs[1].scalar);
        let z = (address(target.address, target.scalar, c), target.scalar);
        let mut product = product(op, to.precision, (x, y, z), inner_batch);
        product.epilogue = epilogue;
        product.bias = if op.bias { io.inputs[2].address } else { 0 };
        product.kept = if fused && op.keep_input { io.outputs[1].address } else { 0 };
        to.append(Work::Product(product));
    }
    if !fused {
        finish(op, io, to);
    }
}

/// The fused product, to ask the library whether it can do it.
fn whole(op: &MatMul, io: &Io, precision: Precision, epilogue: Epilogue) -> Product {
    let at = |value: super::lower::Value| (value.address, value.scalar);
    let mut product =
        product(op, precision, (at(io.inputs[0]), at(io.inputs[1]), at(io.outputs[0])), batches(op).1);
    product.epilogue = epilogue;
    product.bias = if op.bias { io.inputs[2].address } else { 0 };
    product.kept = if op.keep_input { io.outputs[1].address } else { 0 };
    product
}

/// How often the library is called, and the matrices of one call.
fn batches(op: &MatMul) -> (usize, usize) {
    match op.batch {
        [p, 1] => (1, p),
        [p, q] if joined(op, q) => (1, p * q),
        [p, q] => (p, q),
    }
}

/// Whether both levels of the batch are one level of even strides.
fn joined(op: &MatMul, inner: usize) -> bool {
    [op.a, op.b, op.c].iter().all(|operand| operand.batch[0] == inner * operand.batch[1])
}

fn batch_stride(op: &MatMul, operand: Operand) -> usize {
    match op.batch {
        [_, 1] => operand.batch[0],
        _ => operand.batch[1],
    }
}

/// Distance between the calls, where there are several.
fn outer_stride(op: &MatMul, operand: Operand) -> usize {
    match op.batch {
        [_, 1] => 0,
        _ => operand.batch[0],
    }
}

/// What the library does on the way out, and whether that is all.
fn epilogue(op: &MatMul) -> (bool, Epilogue) {
    let aligned = op.columns.is_multiple_of(8) && op.c.column == 1 && op.c.row.is_multiple_of(8);
    match (op.activation, op.bias) {
        (Activation::Identity, false) => (true, Epilogue::None),
        (Activation::Identity, true) if aligned => (true, Epilogue::Bias),
        (Activation::Relu, bias) if aligned && !op.keep_input => {
            (true, if bias { Epilogue::ReluBias } else { Epilogue::Relu })
        }
        (Activation::Gelu, bias) if aligned && op.batch == [1, 1] => {
            (true, if bias { Epilogue::GeluBias } else { Epilogue::Gelu })
        }
        _ => (false, Epilogue::None),
    }
}

type Address = (u64, Scalar);

/// The library's view of a product; see the top of this file.
fn product(
    op: &MatMul,
    precision: Precision,
    (a, b, c): (Address, Address, Address),
    batch: usize,
) -> Product {
    let by_rows = op.c.column == 1;
    // A matrix of our kind, read by columns: itself if its rows are 1 apart, else its transpose.
    let matrix = |(address, scalar): Address, operand: Operand, rows: usize, columns: usize, wanted: bool| {
        let batch_stride = batch_stride(op, operand);
        let stored_by_rows = operand.column == 1 && !(operand.row == 1 && columns > 1);
        let (rows, columns, distance) = match stored_by_rows {
            true => (columns, rows, operand.row),
            false => (rows, columns, operand.column),
        };
        // `wanted`: whether the library should see the transpose of our matrix.
        let transpose = stored_by_rows != wanted;
        Matrix { address, scalar, rows, columns, distance: distance.max(rows), batch_stride, transpose }
    };
    let left = matrix(a, op.a, op.rows, op.inner, by_rows);
    let right = matrix(b, op.b, op.inner, op.columns, by_rows);
    let (rows, columns, distance) = match by_rows {
        true => (op.columns, op.rows, op.c.row),
        false => (op.rows, op.columns, op.c.column),
    };
    let d = Matrix {
        address: c.0,
        scalar: c.1,
        rows,
        columns,
        distance: distance.max(rows),
        batch_stride: batch_stride(op, op.c),
        transpose: false,
    };
    let (a, b) = if by_rows { (right, left) } else { (left, right) };
    Product { precision, batch, a, b, d, epilogue: Epilogue::None, bias: 0, kept: 0 }
}

/// Bias and activation that the library did not apply.
fn finish(op: &MatMul, io: &Io, to: &mut Lowering) {
    let from = if op.keep_input { io.outputs[1] } else { io.outputs[0] };
    let y = io.outputs[0];
    let width = vector(y.scalar == Scalar::Half, [op.columns, op.c.row]);
    let total = y.count / width;
    let bias = op.bias.then(|| io.inputs[2]);
    let mut parameters = format!("{0}* x, {0}* y", y.scalar.name());
    let mut arguments = vec![from.address.into(), y.address.into()];
    let mut add = String::new();
    if let Some(bias) = bias {
        parameters += &format!(", const {}* bias", bias.scalar.name());
        arguments.push(bias.address.into());
        add = format!(
            "float shift[{width}];\nload<{width}>(bias + (at % {}ull) * {width}u, shift);\n#pragma unroll\nfor (int i = 0; i < {width}; ++i) value[i] += shift[i];\n",
            op.columns / width
        );
        if op.keep_input {
            add += &format!("store<{width}>(x + at * {width}u, value);\n");
        }
    }
    let activate = op.activation.function().map_or_else(String::new, |function| {
        format!(
            "#pragma unroll\nfor (int i = 0; i < {width}; ++i) {{ const float v = value[i]; value[i] = {}; }}\n",
            expression::unary(function, "v")
        )
    });
    let body = format!(
        "const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
if (at >= {total}ull) return;
float value[{width}];
load<{width}>(x + at * {width}u, value);
{add}{activate}store<{width}>(y + at * {width}u, value);"
    );
    to.launch(File::Prelude, &parameters, body, blocks(total), arguments);
}

fn check(call: &str, status: sys::cublasStatus_t) -> Result<()> {
    match status {
        sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        _ => Err(failure(call, format!("{status:?}"))),
    }
}

/// A product with its descriptors and the algorithm chosen for it.
pub(super) struct Prepared {
    context: Arc<Context>,
    handle: sys::cublasLtHandle_t,
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    product: Product,
    workspace: u64,
}

// SAFETY: descriptors are only read after construction, by one thread at a time.
unsafe impl Send for Prepared {}
// SAFETY: as above.
unsafe impl Sync for Prepared {}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: each was created or is null, which the library takes.
        unsafe {
            for layout in self.layouts {
                if !layout.is_null() {
                    let _ = sys::cublasLtMatrixLayoutDestroy(layout);
                }
            }
            if !self.description.is_null() {
                let _ = sys::cublasLtMatmulDescDestroy(self.description);
            }
        }
    }
}

fn data_type(scalar: Scalar) -> sys::cudaDataType_t {
    match scalar {
        Scalar::Half => sys::cudaDataType_t::CUDA_R_16BF,
        _ => sys::cudaDataType_t::CUDA_R_32F,
    }
}

impl Prepared {
    pub(super) fn new(context: &Arc<Context>, product: Product, workspace: &Allocation) -> Result<Self> {
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        context.enter()?;
        let handle = context.handles.lock().unwrap_or_else(std::sync::PoisonError::into_inner).products()?;
        let mut prepared = Self {
            context: Arc::clone(context),
            handle,
            description: std::ptr::null_mut(),
            layouts: [std::ptr::null_mut(); 3],
            // SAFETY: an algorithm is plain data; it is filled before it is used.
            algorithm: unsafe { std::mem::zeroed() },
            product,
            workspace: workspace.address(),
        };
        let compute = match product.precision {
            Precision::Tf32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let single = sys::cudaDataType_t::CUDA_R_32F;
        // SAFETY: handles are written before they are used; attributes are given with their sizes.
        unsafe {
            check(
                "cublasLtMatmulDescCreate",
                sys::cublasLtMatmulDescCreate(&mut prepared.description, compute, single),
            )?;
            prepared.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(product.a.transpose))?;
            prepared.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(product.b.transpose))?;
            let epilogue = match (product.epilogue, product.kept != 0) {
                (Epilogue::None, _) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
                (Epilogue::Bias, _) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
                (Epilogue::Relu, _) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU,
                (Epilogue::ReluBias, _) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_RELU_BIAS,
                (Epilogue::Gelu, false) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU,
                (Epilogue::GeluBias, false) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS,
                (Epilogue::Gelu, true) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_AUX,
                (Epilogue::GeluBias, true) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
            };
            prepared.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)?;
            if product.bias != 0 && product.epilogue != Epilogue::None {
                prepared.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias)?;
            }
            if product.kept != 0 {
                prepared.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.kept)?;
                prepared.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.d.distance as i64)?;
            }
            for (slot, matrix) in [product.a, product.b, product.d].into_iter().enumerate() {
                prepared.layouts[slot] = layout(&matrix, product.batch)?;
            }
        }
        prepared.algorithm = prepared.candidates(1)?[0];
        Ok(prepared)
    }

    /// # Safety
    /// The value must be of the attribute's type.
    unsafe fn set<T>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: T) -> Result<()> {
        // SAFETY: by the caller; the description is alive.
        check("cublasLtMatmulDescSetAttribute", unsafe {
            sys::cublasLtMatmulDescSetAttribute(
                self.description,
                attribute,
                std::ptr::from_ref(&value).cast(),
                size_of::<T>(),
            )
        })
    }

    /// Algorithms that the library recommends, the best first.
    fn candidates(&self, count: usize) -> Result<Vec<sys::cublasLtMatmulAlgo_t>> {
        let mut preference = std::ptr::null_mut();
        // SAFETY: results are as many as are asked for; the preference is destroyed in any case.
        unsafe {
            check("cublasLtMatmulPreferenceCreate", sys::cublasLtMatmulPreferenceCreate(&mut preference))?;
            let bytes = WORKSPACE;
            let mut results = vec![std::mem::zeroed::<sys::cublasLtMatmulHeuristicResult_t>(); count];
            let mut found = 0;
            let attribute =
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            let mut status = sys::cublasLtMatmulPreferenceSetAttribute(
                preference,
                attribute,
                std::ptr::from_ref(&bytes).cast(),
                size_of::<usize>(),
            );
            use sys::cublasLtMatmulPreferenceAttributes_t as Preference;
            let Product { a, b, d, .. } = self.product;
            for (attribute, matrix) in [
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, d),
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d),
            ] {
                let bytes = alignment(matrix.address);
                if status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
                    status = sys::cublasLtMatmulPreferenceSetAttribute(
                        preference,
                        attribute,
                        std::ptr::from_ref(&bytes).cast(),
                        size_of::<u32>(),
                    );
                }
            }
            if status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
                let [a, b, d] = self.layouts;
                status = sys::cublasLtMatmulAlgoGetHeuristic(
                    self.handle,
                    self.description,
                    a,
                    b,
                    d,
                    d,
                    preference,
                    count as i32,
                    results.as_mut_ptr(),
                    &mut found,
                );
            }
            let _ = sys::cublasLtMatmulPreferenceDestroy(preference);
            if status != sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS || found == 0 {
                let problem = format!("{status:?}, no way to do {:?}", self.product);
                return Err(failure("cublasLtMatmulAlgoGetHeuristic", problem));
            }
            results.truncate(found as usize);
            results.retain(|result| result.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
            Ok(results.into_iter().map(|result| result.algo).collect())
        }
    }

    /// Takes the fastest of the algorithms that the library recommends: as the cache says, else as measured now. The
    /// result's memory is overwritten.
    pub(super) fn tune(&mut self) -> Result<()> {
        let library = Library::CublasLt.version().map(|version| version.to_string()).unwrap_or_default();
        let key = self.product.key(&self.context.properties.name, &library);
        if let Some(words) = tuned().get(&key) {
            self.algorithm.data = *words;
            return Ok(());
        }
        let first = self.algorithm;
        let mut best = (f32::INFINITY, first);
        for algorithm in self.candidates(CANDIDATES)? {
            self.algorithm = algorithm;
            if let Ok(time) = self.measure()
                && time < best.0
            {
                best = (time, algorithm);
            }
        }
        self.algorithm = best.1;
        tuned().insert(key, self.algorithm.data);
        Ok(())
    }

    /// Milliseconds of a few runs, launched at once so that the host's part does not count.
    fn measure(&self) -> Result<f32> {
        let stream = self.context.stream;
        self.run(stream, 0)?;
        self.context.synchronize()?;
        let replay = Replay::capture(&self.context, || (0..8).try_for_each(|_| self.run(stream, 0)))?;
        replay.launch()?;
        self.context.time(|| replay.launch())
    }

    /// Enqueues the product on one of the streams, which has its own part of the workspace.
    pub(super) fn run(&self, stream: CUstream, index: usize) -> Result<()> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let pointer = |address: u64| address as *mut std::ffi::c_void;
        let d = pointer(self.product.d.address);
        // SAFETY: addresses lie in the arena or in tensors that the executor keeps alive.
        check("cublasLtMatmul", unsafe {
            sys::cublasLtMatmul(
                self.handle,
                self.description,
                std::ptr::from_ref(&one).cast(),
                pointer(self.product.a.address),
                self.layouts[0],
                pointer(self.product.b.address),
                self.layouts[1],
                std::ptr::from_ref(&zero).cast(),
                d,
                self.layouts[2],
                d,
                self.layouts[2],
                &self.algorithm,
                pointer(self.workspace + (index * WORKSPACE) as u64),
                WORKSPACE,
                stream.cast(),
            )
        })
    }
}

fn layout(matrix: &Matrix, batch: usize) -> Result<sys::cublasLtMatrixLayout_t> {
    use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
    let mut layout = std::ptr::null_mut();
    // SAFETY: the layout is written on success; attributes are given with their sizes.
    unsafe {
        check(
            "cublasLtMatrixLayoutCreate",
            sys::cublasLtMatrixLayoutCreate(
                &mut layout,
                data_type(matrix.scalar),
                matrix.rows as u64,
                matrix.columns as u64,
                matrix.distance as i64,
            ),
        )?;
        if batch > 1 {
            let (count, stride) = (batch as i32, matrix.batch_stride as i64);
            let set = |attribute, value: *const std::ffi::c_void, size| {
                check(
                    "cublasLtMatrixLayoutSetAttribute",
                    sys::cublasLtMatrixLayoutSetAttribute(layout, attribute, value, size),
                )
            };
            set(Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::ptr::from_ref(&count).cast(), 4)?;
            set(
                Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                std::ptr::from_ref(&stride).cast(),
                8,
            )?;
        }
    }
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_reads_what_it_wrote_and_skips_what_is_damaged() {
        let mut tuned = Tuned::new();
        tuned.insert("0".repeat(32), [1, 2, 3, 4, 5, 6, 7, u64::MAX]);
        assert_eq!(parse(&print(&tuned)), tuned);
        assert_eq!(parse(&format!("{}short 1\n{} 1 2\n", print(&tuned), "1".repeat(32))), tuned);
    }
}
