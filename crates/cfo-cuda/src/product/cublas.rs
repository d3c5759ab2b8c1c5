//! cuBLASLt: description, tuning and execution of products.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use cudarc::cublaslt::sys;
use cudarc::driver::sys::CUstream;

use crate::product::matmul::{Epilogue, Matrix, Product};
use crate::program::Scalar;
use crate::runtime::compile::{self, Digest};
use crate::runtime::driver::{Allocation, CudaContext, failure, quiet};
use crate::runtime::library::Library;
use crate::runtime::replay::Replay;
use cfo_engine::{Precision, Result};

/// Workspace of the library for one product, shared by all products of a stream.
pub(crate) const WORKSPACE: usize = 32 << 20;

impl Product {
    /// Key in the cache: everything but the addresses.
    fn key(&self, gpu: &str, library: &str) -> String {
        let mut plain = *self;
        for matrix in [&mut plain.a, &mut plain.b, &mut plain.d] {
            matrix.address = u64::from(alignment(matrix.address));
        }
        (plain.bias, plain.kept) = (u64::from(self.bias != 0), u64::from(self.kept != 0));
        plain.added = u64::from(self.added != 0);
        let mut digest = Digest::new();
        digest.add(format!("{gpu}|{library}|{WORKSPACE}|{plain:?}").as_bytes());
        digest.finish()
    }
}

/// The power of two, up to 256, that divides an address.
fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

const CANDIDATES: usize = 8;

type Tuned = BTreeMap<String, [u64; 8]>;

/// Measurements of this process and of earlier ones.
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

pub(crate) fn save_tuned() {
    if let Some(file) = file() {
        // A cache that cannot be written costs time, but does not change results.
        let _ = compile::store(&file, print(&tuned()).as_bytes());
    }
}

/// One line per product: the key and the algorithm's words.
fn print(tuned: &Tuned) -> String {
    let words = |words: &[u64; 8]| words.map(|word| format!("{word:x}")).join(" ");
    tuned.iter().map(|(key, algorithm)| format!("{key} {}\n", words(algorithm))).collect()
}

/// Invalid lines are skipped; their products are measured again.
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

pub(crate) fn check(call: &str, status: sys::cublasStatus_t) -> Result<()> {
    match status {
        sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        _ => Err(failure(call, format!("{status:?}"))),
    }
}

/// Calls a function of the library, whose name is that of the failed call in the error.
macro_rules! call {
    ($function:ident($($argument:expr),*)) => {
        check(stringify!($function), sys::$function($($argument),*))
    };
}

pub(crate) struct PreparedProduct {
    context: Arc<CudaContext>,
    handle: sys::cublasLtHandle_t,
    description: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    product: Product,
    workspace: u64,
}

// SAFETY: descriptors are only read after construction, by one thread at a time.
unsafe impl Send for PreparedProduct {}
// SAFETY: as above.
unsafe impl Sync for PreparedProduct {}

impl Drop for PreparedProduct {
    fn drop(&mut self) {
        // SAFETY: each was created or is null, which the library accepts.
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
        Scalar::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
        _ => sys::cudaDataType_t::CUDA_R_32F,
    }
}

impl PreparedProduct {
    pub(crate) fn new(context: &Arc<CudaContext>, product: Product, workspace: &Allocation) -> Result<Self> {
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        context.enter()?;
        let handle = context.handles().products()?;
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
            call!(cublasLtMatmulDescCreate(&mut prepared.description, compute, single))?;
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
                (Epilogue::GeluSlope, _) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DGELU,
                // The library's first factor is our second one.
                (Epilogue::Sums, _) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BGRADA,
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
        let value = std::ptr::from_ref(&value).cast();
        // SAFETY: by the caller; the description is alive.
        unsafe { call!(cublasLtMatmulDescSetAttribute(self.description, attribute, value, size_of::<T>())) }
    }

    fn candidates(&self, count: usize) -> Result<Vec<sys::cublasLtMatmulAlgo_t>> {
        let mut preference = std::ptr::null_mut();
        // SAFETY: results are as many as are requested; the preference is destroyed in any case.
        unsafe {
            call!(cublasLtMatmulPreferenceCreate(&mut preference))?;
            let mut results = vec![std::mem::zeroed::<sys::cublasLtMatmulHeuristicResult_t>(); count];
            let mut found = 0;
            use sys::cublasLtMatmulPreferenceAttributes_t as Preference;
            let set = |attribute: Preference, value: *const c_void, size: usize| {
                sys::cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, size)
            };
            let bytes = std::ptr::from_ref(&WORKSPACE).cast();
            let attribute = Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            let mut status = set(attribute, bytes, size_of::<usize>());
            let Product { a, b, d, .. } = self.product;
            for (attribute, matrix) in [
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, d),
                (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d),
            ] {
                let bytes = alignment(matrix.address);
                if status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
                    status = set(attribute, std::ptr::from_ref(&bytes).cast(), size_of::<u32>());
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

    /// Selects the fastest recommended algorithm: cached, or measured now, which overwrites the result.
    pub(crate) fn tune(&mut self, deterministic: bool) -> Result<()> {
        if deterministic {
            // The library's first recommendation, since measurements may change from run to run.
            return Ok(());
        }
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
            if let Ok(time) = self.measure(best.0)
                && time < best.0
            {
                best = (time, algorithm);
            }
        }
        self.algorithm = best.1;
        tuned().insert(key, self.algorithm.data);
        Ok(())
    }

    /// Milliseconds of a run with the selected algorithm; the result's memory is overwritten.
    pub(crate) fn time(&self) -> Result<f32> {
        self.measure(f32::INFINITY)
    }

    /// Milliseconds of a run. A slow one, or one much slower than the best so far, is measured once. A fast one is
    /// measured as several launches together, to exclude the host's time.
    fn measure(&self, best: f32) -> Result<f32> {
        const LONG: f32 = 0.2;
        let stream = self.context.stream;
        let once = {
            let _quiet = quiet();
            self.run(stream, 0)?;
            self.context.synchronize()?;
            self.context.time(|| self.run(stream, 0))?
        };
        if once > LONG || once > 4.0 * best + 0.02 {
            return Ok(once);
        }
        let replay = Replay::capture(&self.context, || (0..8).try_for_each(|_| self.run(stream, 0)))?;
        replay.launch()?;
        Ok(self.context.time(|| replay.launch())? / 8.0)
    }

    /// Enqueues the product on one of the streams, each of which has its own part of the workspace.
    pub(crate) fn run(&self, stream: CUstream, index: usize) -> Result<()> {
        let (one, share) = (1.0_f32, if self.product.added == 0 { 0.0_f32 } else { 1.0 });
        let pointer = |address: u64| address as *mut c_void;
        let d = pointer(self.product.d.address);
        let c = if self.product.added == 0 { d } else { pointer(self.product.added) };
        // SAFETY: addresses are in the arena or in tensors that the executor keeps alive.
        check("cublasLtMatmul", unsafe {
            sys::cublasLtMatmul(
                self.handle,
                self.description,
                std::ptr::from_ref(&one).cast(),
                pointer(self.product.a.address),
                self.layouts[0],
                pointer(self.product.b.address),
                self.layouts[1],
                std::ptr::from_ref(&share).cast(),
                c,
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
        let (rows, columns) = (matrix.rows as u64, matrix.columns as u64);
        let (kind, distance) = (data_type(matrix.scalar), matrix.distance as i64);
        call!(cublasLtMatrixLayoutCreate(&mut layout, kind, rows, columns, distance))?;
        if batch > 1 {
            let (count, stride) = (batch as i32, matrix.batch_stride as i64);
            let set = |attribute, value: *const c_void, size| {
                call!(cublasLtMatrixLayoutSetAttribute(layout, attribute, value, size))
            };
            set(Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::ptr::from_ref(&count).cast(), 4)?;
            let stride = std::ptr::from_ref(&stride).cast();
            set(Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride, 8)?;
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
