//! cuDNN's graph interface: convolutions, also of f16 operands, with an epilogue that multiplies the single-precision
//! result by both operands' inverse scales.
#![allow(unsafe_code)]

use cudarc::cudnn::sys;
use cudarc::cudnn::sys::cudnnBackendAttributeName_t as Name;
use cudarc::cudnn::sys::cudnnBackendAttributeType_t as Kind;
use cudarc::cudnn::sys::cudnnBackendDescriptorType_t as Object;

use crate::convolution::conv::{ConvPass, Geometry};
use crate::convolution::cudnn::check;
use cfo_engine::Result;

/// A descriptor of the library, destroyed when dropped.
pub(crate) struct Descriptor(pub(crate) sys::cudnnBackendDescriptor_t);

// SAFETY: a descriptor is used by one thread at a time.
unsafe impl Send for Descriptor {}
// SAFETY: as above; finalised descriptors are only read.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it was created and not destroyed yet.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0) };
    }
}

impl Descriptor {
    pub(crate) fn new(object: Object) -> Result<Self> {
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: the descriptor is written on success.
        let status = unsafe { sys::cudnnBackendCreateDescriptor(object, &mut descriptor) };
        check("cudnnBackendCreateDescriptor", status)?;
        Ok(Self(descriptor))
    }

    /// Sets an attribute to values whose type in memory corresponds to `kind`.
    pub(crate) fn set<T>(self, name: Name, kind: Kind, values: &[T]) -> Result<Self> {
        // SAFETY: the number of values is passed; the library copies them and checks name and kind.
        let status = unsafe {
            sys::cudnnBackendSetAttribute(self.0, name, kind, values.len() as i64, values.as_ptr().cast())
        };
        check("cudnnBackendSetAttribute", status)?;
        Ok(self)
    }

    pub(crate) fn numbers(self, name: Name, values: &[i64]) -> Result<Self> {
        self.set(name, Kind::CUDNN_TYPE_INT64, values)
    }

    pub(crate) fn parts(self, name: Name, parts: &[&Self]) -> Result<Self> {
        let parts: Vec<_> = parts.iter().map(|part| part.0).collect();
        self.set(name, Kind::CUDNN_TYPE_BACKEND_DESCRIPTOR, &parts)
    }

    pub(crate) fn finish(self) -> Result<Self> {
        // SAFETY: the descriptor is alive.
        check("cudnnBackendFinalize", unsafe { sys::cudnnBackendFinalize(self.0) })?;
        Ok(self)
    }

    /// Reads values, at most as many as `values` holds; returns their number.
    pub(crate) fn get<T>(&self, name: Name, kind: Kind, values: &mut [T]) -> Result<usize> {
        let mut count = 0;
        let pointer = if values.is_empty() { std::ptr::null_mut() } else { values.as_mut_ptr().cast() };
        // SAFETY: at most this number of values is written.
        let status = unsafe {
            sys::cudnnBackendGetAttribute(self.0, name, kind, values.len() as i64, &mut count, pointer)
        };
        check("cudnnBackendGetAttribute", status)?;
        Ok(count as usize)
    }
}

/// Identifiers of the tensors in a graph: the operation's inputs and output, both inverse scales, intermediate values.
pub(crate) const FIRST: i64 = 1;
pub(crate) const SECOND: i64 = 2;
pub(crate) const RESULT: i64 = 3;
pub(crate) const SCALES: i64 = 4;
const BETWEEN: i64 = 6;

fn tensor(
    data: sys::cudnnDataType_t,
    [n, h, w, c]: [usize; 4],
    identity: i64,
    between: bool,
) -> Result<Descriptor> {
    let [n, h, w, c] = [n, h, w, c].map(|length| length as i64);
    Descriptor::new(Object::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
        .set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Kind::CUDNN_TYPE_DATA_TYPE, &[data])?
        .numbers(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &[n, c, h, w])?
        .numbers(Name::CUDNN_ATTR_TENSOR_STRIDES, &[h * w * c, 1, w * c, c])?
        .numbers(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[identity])?
        .numbers(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[16])?
        .set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, Kind::CUDNN_TYPE_BOOLEAN, &[between])?
        .finish()
}

const SINGLE: sys::cudnnDataType_t = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
const SHORT: sys::cudnnDataType_t = sys::cudnnDataType_t::CUDNN_DATA_HALF;

/// The operation between its tensors.
fn convolution(geometry: &Geometry, [first, second, result]: [&Descriptor; 3]) -> Result<Descriptor> {
    let two = |values: [usize; 2]| values.map(|value| value as i64);
    let padding = two(geometry.padding);
    let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
    let description = Descriptor::new(Object::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
        .set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Kind::CUDNN_TYPE_DATA_TYPE, &[SINGLE])?
        .set(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, Kind::CUDNN_TYPE_CONVOLUTION_MODE, &[mode])?
        .numbers(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2])?
        .numbers(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &padding)?
        .numbers(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &padding)?
        .numbers(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &[1, 1])?
        .numbers(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &two(geometry.stride))?
        .finish()?;
    let (object, [description_name, a, b, c, alpha, beta]) = match geometry.form {
        ConvPass::Forward => (
            Object::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
            ],
        ),
        ConvPass::Input => (
            Object::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            ],
        ),
        ConvPass::Weight => (
            Object::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            [
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
            ],
        ),
    };
    Descriptor::new(object)?
        .parts(description_name, &[&description])?
        .parts(a, &[first])?
        .parts(b, &[second])?
        .parts(c, &[result])?
        .set(alpha, Kind::CUDNN_TYPE_FLOAT, &[1.0_f32])?
        .set(beta, Kind::CUDNN_TYPE_FLOAT, &[0.0_f32])?
        .finish()
}

/// `result = value scale`.
fn scaling(value: &Descriptor, scale: &Descriptor, result: &Descriptor) -> Result<Descriptor> {
    let mode = sys::cudnnPointwiseMode_t::CUDNN_POINTWISE_MUL;
    let description = Descriptor::new(Object::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
        .set(Name::CUDNN_ATTR_POINTWISE_MODE, Kind::CUDNN_TYPE_POINTWISE_MODE, &[mode])?
        .set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, Kind::CUDNN_TYPE_DATA_TYPE, &[SINGLE])?
        .finish()?;
    Descriptor::new(Object::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
        .parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[&description])?
        .parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[value])?
        .parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[scale])?
        .parts(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[result])?
        .finish()
}

/// Shapes of the operation's inputs and output.
pub(crate) fn shapes(geometry: &Geometry) -> [[usize; 4]; 3] {
    geometry.form.ordered([geometry.x, geometry.w, geometry.y])
}

pub(crate) fn graph(handle: sys::cudnnHandle_t, geometry: &Geometry) -> Result<Descriptor> {
    let [a, b, c] = shapes(geometry);
    let operand = if geometry.f16 { SHORT } else { SINGLE };
    let (first, second) = (tensor(operand, a, FIRST, false)?, tensor(operand, b, SECOND, false)?);
    let result = tensor(SINGLE, c, RESULT, false)?;
    let operations = match geometry.f16 {
        false => vec![convolution(geometry, [&first, &second, &result])?],
        true => {
            let (plain, halfway) = (tensor(SINGLE, c, BETWEEN, true)?, tensor(SINGLE, c, BETWEEN + 1, true)?);
            let scale = |index: i64| tensor(SINGLE, [1; 4], SCALES + index, false);
            vec![
                convolution(geometry, [&first, &second, &plain])?,
                scaling(&plain, &scale(0)?, &halfway)?,
                scaling(&halfway, &scale(1)?, &result)?,
            ]
        }
    };
    let operations: Vec<&Descriptor> = operations.iter().collect();
    Descriptor::new(Object::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
        .set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Kind::CUDNN_TYPE_HANDLE, &[handle])?
        .parts(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)?
        .finish()
}

/// The library's recommendations, best first.
pub(crate) fn configurations(graph: &Descriptor, most: usize) -> Result<Vec<Descriptor>> {
    let mode = sys::cudnnBackendHeurMode_t::CUDNN_HEUR_MODE_A;
    let heuristic = Descriptor::new(Object::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .parts(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph])?
        .set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, Kind::CUDNN_TYPE_HEUR_MODE, &[mode])?
        .finish()?;
    let mut found: Vec<Descriptor> = (0..most)
        .map(|_| Descriptor::new(Object::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR))
        .collect::<Result<_>>()?;
    let mut pointers: Vec<_> = found.iter().map(|descriptor| descriptor.0).collect();
    let kind = Kind::CUDNN_TYPE_BACKEND_DESCRIPTOR;
    let count = heuristic.get(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, kind, &mut pointers)?;
    found.truncate(count);
    Ok(found)
}

/// Whether a configuration's engine is deterministic.
pub(crate) fn deterministic(configuration: &Descriptor) -> Result<bool> {
    let engine = Descriptor::new(Object::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    let kind = Kind::CUDNN_TYPE_BACKEND_DESCRIPTOR;
    configuration.get(Name::CUDNN_ATTR_ENGINECFG_ENGINE, kind, &mut [engine.0])?;
    let mut notes = [u32::MAX; 32];
    let kind = Kind::CUDNN_TYPE_NUMERICAL_NOTE;
    let count = engine.get(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, kind, &mut notes)?;
    let wrong = sys::cudnnBackendNumericalNote_t::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC as u32;
    Ok(!notes[..count.min(notes.len())].contains(&wrong))
}
