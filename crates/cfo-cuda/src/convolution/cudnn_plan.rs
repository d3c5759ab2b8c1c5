//! Plans of cuDNN's graph interface: built, stored, measured and run. The library compiles a plan's kernels when it
//! builds the plan, which takes half a second. A serialised plan contains the kernels.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::cudnn::sys;
use cudarc::cudnn::sys::cudnnBackendAttributeName_t as Name;
use cudarc::cudnn::sys::cudnnBackendAttributeType_t as Kind;
use cudarc::cudnn::sys::cudnnBackendDescriptorType_t as Object;
use cudarc::driver::sys::CUstream;

use crate::convolution::conv::{ConvPass, Geometry};
use crate::convolution::cudnn::{WORKSPACE_LIMIT, check};
use crate::convolution::cudnn_graph::{
    Descriptor, FIRST, RESULT, SCALES, SECOND, configurations, deterministic, graph, shapes,
};
use crate::runtime::compile::{self, Digest};
use crate::runtime::driver::{Allocation, CudaContext, failure, quiet};
use crate::runtime::library::Library;
use cfo_engine::Result;

/// A plan that is ready to run.
struct Built {
    plan: Descriptor,
    workspace: usize,
}

impl Built {
    fn of(plan: Descriptor) -> Result<Self> {
        let mut bytes = [0_i64];
        plan.get(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, Kind::CUDNN_TYPE_INT64, &mut bytes)?;
        Ok(Self { plan, workspace: bytes[0].max(0) as usize })
    }

    fn empty(handle: sys::cudnnHandle_t) -> Result<Descriptor> {
        Descriptor::new(Object::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?.set(
            Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
            Kind::CUDNN_TYPE_HANDLE,
            &[handle],
        )
    }

    /// Builds the deterministic recommendations, each when the iterator reaches it.
    fn all(handle: sys::cudnnHandle_t, geometry: &Geometry) -> Result<impl Iterator<Item = Self>> {
        let graph = graph(handle, geometry)?;
        let build = move |configuration: &Descriptor| {
            let plan = Self::empty(handle)?
                .parts(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[configuration])?
                .finish()?;
            Self::of(plan)
        };
        let found = configurations(&graph, CONFIGURATIONS)?.into_iter();
        Ok(found
            .filter(|configuration| deterministic(configuration).unwrap_or(false))
            .filter_map(move |configuration| build(&configuration).ok())
            .filter(|built| built.workspace <= WORKSPACE_LIMIT))
    }

    /// Builds the first recommendation that works.
    fn build(handle: sys::cudnnHandle_t, geometry: &Geometry) -> Result<Self> {
        let none = || failure("cudnnBackendFinalize", "the library has no plan for the convolution");
        Self::all(handle, geometry)?.next().ok_or_else(none)
    }

    /// The library's serialisation of the plan with its compiled kernels.
    fn text(&self) -> Result<Vec<u8>> {
        let (name, kind) = (Name::CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, Kind::CUDNN_TYPE_CHAR);
        let mut text = vec![0_u8; self.plan.get::<u8>(name, kind, &mut [])?];
        let written = self.plan.get(name, kind, &mut text)?;
        text.truncate(written);
        Ok(text)
    }

    fn read(handle: sys::cudnnHandle_t, text: &[u8]) -> Result<Self> {
        let (name, kind) = (Name::CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, Kind::CUDNN_TYPE_CHAR);
        Self::of(Self::empty(handle)?.set(name, kind, text)?.finish()?)
    }
}

/// Maximum number of recommendations that are tried.
const CONFIGURATIONS: usize = 6;

/// Serialised plans by file name.
static TEXTS: Mutex<BTreeMap<String, Arc<Vec<u8>>>> = Mutex::new(BTreeMap::new());

fn texts() -> MutexGuard<'static, BTreeMap<String, Arc<Vec<u8>>>> {
    TEXTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Name of the file that stores a plan.
fn file_name(context: &CudaContext, geometry: &Geometry) -> String {
    let library = Library::Cudnn.version().map(|version| version.to_string()).unwrap_or_default();
    let mut digest = Digest::new();
    digest.add(geometry.key(&context.properties.name, &library).as_bytes());
    digest.add(&[u8::from(geometry.f16)]);
    format!("{}.plan", digest.finish())
}

/// A plan stored in memory or on disk.
fn kept(name: &str) -> Option<Arc<Vec<u8>>> {
    if let Some(text) = texts().get(name) {
        return Some(Arc::clone(text));
    }
    let text = Arc::new(std::fs::read(compile::folder()?.join(name)).ok()?);
    texts().insert(name.to_owned(), Arc::clone(&text));
    Some(text)
}

fn keep(name: String, text: Vec<u8>) {
    if let Some(folder) = compile::folder() {
        // A cache that cannot be written costs time, but does not change results.
        let _ = compile::store(&folder.join(&name), &text);
    }
    texts().insert(name, Arc::new(text));
}

/// Whether a plan is requested from the library.
pub(crate) fn takes(geometry: &Geometry) -> bool {
    let aligned = geometry.x[3].is_multiple_of(8) && geometry.y[3].is_multiple_of(8);
    let strided = geometry.stride != [1, 1];
    match (geometry.form, geometry.f16) {
        (ConvPass::Weight, _) => false,
        // With gaps between the gradients, kernels for f16 operands are slow to run and to compile. For other operands
        // some plans that are not among the library's usual calls are fast.
        (ConvPass::Input, f16) => aligned && f16 != strided,
        (ConvPass::Forward, f16) => aligned && f16,
    }
}

/// Builds plans that are not stored yet, in parallel, each thread with its own handle. Unsupported plans are skipped.
pub(crate) fn prepare(context: &Arc<CudaContext>, geometries: &[Geometry]) {
    let mut missing: Vec<(String, Geometry)> = geometries
        .iter()
        .filter(|geometry| geometry.f16 && takes(geometry))
        .map(|geometry| (file_name(context, geometry), *geometry))
        .filter(|(name, _)| kept(name).is_none())
        .collect();
    missing.sort_by(|a, b| a.0.cmp(&b.0));
    missing.dedup_by(|a, b| a.0 == b.0);
    if missing.is_empty() {
        return;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS).min(missing.len());
    let _quiet = quiet();
    std::thread::scope(|scope| {
        for first in 0..threads {
            let missing = &missing;
            scope.spawn(move || {
                for (name, geometry) in missing.iter().skip(first).step_by(threads) {
                    if let Ok(text) = build_alone(context, geometry) {
                        keep(name.clone(), text);
                    }
                }
            });
        }
    });
}

/// Number of threads that build plans in parallel.
const THREADS: usize = 8;

/// Builds a plan with a separate handle.
fn build_alone(context: &Arc<CudaContext>, geometry: &Geometry) -> Result<Vec<u8>> {
    context.enter()?;
    let mut handle = std::ptr::null_mut();
    // SAFETY: the library is loaded; the handle is written on success.
    check("cudnnCreate", unsafe { sys::cudnnCreate(&mut handle) })?;
    let text = Built::build(handle, geometry).and_then(|built| built.text());
    // SAFETY: the handle was created above and is no longer used.
    let _ = unsafe { sys::cudnnDestroy(handle) };
    text
}

/// Milliseconds and workspace of a convolution. For f16 operands it uses the prepared plan, otherwise the fastest of
/// the recommended plans, which is then stored.
pub(crate) fn measure(context: &Arc<CudaContext>, geometry: &Geometry) -> Result<(f32, usize)> {
    let name = file_name(context, geometry);
    context.enter()?;
    let handle = context.handles().convolutions(context.stream)?;
    if geometry.f16 {
        let text = kept(&name).ok_or_else(|| failure("cuDNN", "no plan for the convolution"))?;
        let built = Built::read(handle, &text)?;
        let workspace = built.workspace;
        return Ok((time(context, geometry, built)?, workspace));
    }
    let mut best: Option<(f32, usize, Vec<u8>)> = None;
    for built in Built::all(handle, geometry)? {
        let (text, workspace) = (built.text()?, built.workspace);
        let time = time(context, geometry, built)?;
        if best.as_ref().is_none_or(|best| time < best.0) {
            best = Some((time, workspace, text));
        }
    }
    let (time, workspace, text) = best.ok_or_else(|| failure("cuDNN", "no plan for the convolution"))?;
    keep(name, text);
    Ok((time, workspace))
}

fn time(context: &Arc<CudaContext>, geometry: &Geometry, built: Built) -> Result<f32> {
    let [a, b, c] = shapes(geometry).map(|shape| shape.iter().product::<usize>());
    let sizes: &[usize] = match geometry.f16 {
        true => &[2 * a, 2 * b, 4, 4, 4 * c, built.workspace],
        false => &[4 * a, 4 * b, 4 * c, built.workspace],
    };
    let memory: Vec<Allocation> =
        sizes.iter().map(|&bytes| Allocation::zeroed(context, bytes)).collect::<Result<_>>()?;
    let mut addresses: Vec<u64> = memory.iter().map(Allocation::address).collect();
    let workspace = (addresses.pop().unwrap_or(0), built.workspace);
    let prepared =
        PreparedPlan::bind(context, &Planned { geometry: *geometry, addresses, workspace }, built)?;
    let _quiet = quiet();
    let run = || context.time(|| prepared.run(context.stream));
    run()?;
    Ok(run()?.min(run()?))
}

/// A call of the library.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) geometry: Geometry,
    /// Addresses of both operands, of their inverse scales if they are f16, and of the result.
    pub(crate) addresses: Vec<u64>,
    pub(crate) workspace: (u64, usize),
}

/// A plan bound to its addresses.
pub(crate) struct PreparedPlan {
    built: Built,
    pack: Descriptor,
    handle: sys::cudnnHandle_t,
    _context: Arc<CudaContext>,
}

// SAFETY: used by one thread at a time.
unsafe impl Send for PreparedPlan {}
// SAFETY: as above.
unsafe impl Sync for PreparedPlan {}

impl PreparedPlan {
    pub(crate) fn new(context: &Arc<CudaContext>, call: &Planned) -> Result<Self> {
        context.enter()?;
        let handle = context.handles().convolutions(context.stream)?;
        let text = kept(&file_name(context, &call.geometry));
        let built = {
            let _quiet = quiet();
            match text.and_then(|text| Built::read(handle, &text).ok()) {
                Some(built) => built,
                None => Built::build(handle, &call.geometry)?,
            }
        };
        Self::bind(context, call, built)
    }

    fn bind(context: &Arc<CudaContext>, call: &Planned, built: Built) -> Result<Self> {
        let handle = context.handles().convolutions(context.stream)?;
        if built.workspace > call.workspace.1 {
            return Err(failure("cuDNN", "a convolution's plan needs more memory than was planned"));
        }
        let pointers: Vec<_> = call.addresses.iter().map(|&address| address as *mut c_void).collect();
        let identities: &[i64] = match call.geometry.f16 {
            true => &[FIRST, SECOND, SCALES, SCALES + 1, RESULT],
            false => &[FIRST, SECOND, RESULT],
        };
        let workspace = [call.workspace.0 as *mut c_void];
        let pack = Descriptor::new(Object::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, Kind::CUDNN_TYPE_VOID_PTR, &pointers)?
            .numbers(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, identities)?
            .set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, Kind::CUDNN_TYPE_VOID_PTR, &workspace)?
            .finish()?;
        Ok(Self { built, pack, handle, _context: Arc::clone(context) })
    }

    /// Enqueues the call on a stream.
    pub(crate) fn run(&self, stream: CUstream) -> Result<()> {
        // SAFETY: the handle is alive and used by one thread at a time.
        check("cudnnSetStream", unsafe { sys::cudnnSetStream(self.handle, stream.cast()) })?;
        // SAFETY: addresses are in the arena or in tensors that the executor keeps alive.
        let status = unsafe { sys::cudnnBackendExecute(self.handle, self.built.plan.0, self.pack.0) };
        check("cudnnBackendExecute", status)
    }
}
