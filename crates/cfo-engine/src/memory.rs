//! The named tensors of one device: parameters, optimiser state, data sets, inputs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cfo_numerics::Philox;

use crate::cpu::{self, Buffer, as_bytes};
use crate::cuda;
use crate::device::{Device, Precision};
use crate::error::{EngineError, Result};
use crate::graph::Graph;
use crate::initial::Initial;
use crate::ops::Op;
use crate::shape::{Element, Shape, Type};

/// Numbers on the host, to or from a tensor.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// For real tensors, converted to the program's precision.
    F32(&'a [f32]),
    /// For real or double tensors.
    F64(&'a [f64]),
    /// For index tensors.
    Index(&'a [u32]),
}

impl Data<'_> {
    fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Index(values) => values.len(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::F32(_) => "single",
            Self::F64(_) => "double",
            Self::Index(_) => "index",
        }
    }
}

/// Where a tensor's elements are.
#[derive(Debug)]
enum Storage {
    Host(Buffer),
    Device(Arc<cuda::Allocation>),
}

impl Storage {
    fn len(&self) -> usize {
        match self {
            Self::Host(buffer) => buffer.len(),
            Self::Device(allocation) => allocation.len(),
        }
    }
}

/// One tensor: what it is and where its elements are.
#[derive(Debug)]
pub(crate) struct Stored {
    name: String,
    value_type: Type,
    storage: Storage,
}

impl Stored {
    /// The elements of a tensor that lies on the host.
    pub(crate) fn host(&mut self) -> &mut Buffer {
        match &mut self.storage {
            Storage::Host(buffer) => buffer,
            Storage::Device(_) => unreachable!("programs of the CPU are compiled for its memory only"),
        }
    }
}

/// Every tensor that outlives a run, under its name, on one device in one precision. Programs compiled against the
/// same memory share them: a rollout reads the weights that a training step has just written.
#[derive(Debug)]
pub struct Memory {
    device: Device,
    precision: Precision,
    /// The GPU in use, if it is one.
    context: Option<Arc<cuda::Context>>,
    identity: u64,
    deterministic: bool,
    pub(crate) tensors: Vec<Stored>,
    names: HashMap<String, usize>,
}

impl Memory {
    /// An empty memory.
    ///
    /// # Errors
    /// If the device cannot be used, or not in that precision.
    pub fn new(device: Device, precision: Precision) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let fits = match device {
            Device::Cpu => matches!(precision, Precision::F32 | Precision::F64),
            Device::Cuda(_) => precision != Precision::F64,
        };
        if !fits {
            return Err(EngineError::DeviceUnavailable {
                name: device.to_string(),
                reason: format!("it computes in `f32`, not in `{precision}`"),
            });
        }
        let context = match device {
            Device::Cpu => None,
            Device::Cuda(number) => Some(cuda::Context::open(number)?),
        };
        if let Some(context) = &context
            && precision != Precision::F32
            && context.properties.architecture < 80
        {
            let reason = format!("{} computes in `f32`, not in `{precision}`", context.properties.name);
            return Err(EngineError::DeviceUnavailable { name: device.to_string(), reason });
        }
        let identity = NEXT.fetch_add(1, Ordering::Relaxed);
        let (tensors, names, deterministic) = (Vec::new(), HashMap::new(), false);
        Ok(Self { device, precision, context, identity, deterministic, tensors, names })
    }

    /// The same with programs that yield the same bits in every run if asked for: on a GPU by libraries' algorithms that
    /// do and that are not chosen by measurement. The CPU always does.
    #[must_use]
    pub fn with_determinism(mut self, deterministic: bool) -> Self {
        self.deterministic = deterministic;
        self
    }

    pub(crate) fn is_deterministic(&self) -> bool {
        self.deterministic
    }

    /// The GPU that holds the tensors, if it is one.
    pub(crate) fn context(&self) -> Option<&Arc<cuda::Context>> {
        self.context.as_ref()
    }

    /// A number that no other memory of this process has.
    pub(crate) fn identity(&self) -> u64 {
        self.identity
    }

    /// The device memory of the tensor that a graph's leaf stands for.
    pub(crate) fn device_tensor(&self, name: &str, value_type: &Type) -> Result<Arc<cuda::Allocation>> {
        match &self.tensors[self.bind(name, value_type)?].storage {
            Storage::Device(allocation) => Ok(Arc::clone(allocation)),
            Storage::Host(_) => unreachable!("programs of a GPU are compiled for its memory only"),
        }
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The precision of real numbers.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes that a GPU has free; `None` for the CPU's memory.
    ///
    /// # Errors
    /// If the device fails.
    pub fn available(&self) -> Result<Option<u64>> {
        self.context.as_ref().map(|context| Ok(context.memory()?.0)).transpose()
    }

    /// Names of all tensors, in the order in which they came.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|tensor| tensor.name.as_str())
    }

    /// Whether there is a tensor of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Shape and element of a tensor.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn value_type(&self, name: &str) -> Result<&Type> {
        Ok(&self.tensors[self.find(name)?].value_type)
    }

    /// Bytes that all tensors take.
    pub fn bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.storage.len()).sum()
    }

    /// Adds a tensor, or replaces the values of one of the same type.
    ///
    /// # Errors
    /// If the data do not fit the shape, or the name stands for a tensor of another type.
    pub fn insert(
        &mut self,
        name: &str,
        element: Element,
        shape: impl Into<Shape>,
        data: Data<'_>,
    ) -> Result<()> {
        let value_type = Type { shape: shape.into(), element };
        self.check_data(name, &value_type, data)?;
        if let Some(&index) = self.names.get(name) {
            self.check_type(index, &value_type)?;
        } else {
            let bytes = value_type.shape.len() * self.element_bytes(element);
            let storage = match &self.context {
                None => Storage::Host(Buffer::zeroed(bytes)),
                Some(context) => Storage::Device(Arc::new(cuda::Allocation::zeroed(context, bytes)?)),
            };
            self.names.insert(name.into(), self.tensors.len());
            self.tensors.push(Stored { name: name.into(), value_type, storage });
        }
        self.write(name, data)
    }

    /// Adds a real tensor, or replaces its values.
    ///
    /// # Errors
    /// If the data do not fit the shape.
    pub fn insert_real(&mut self, name: &str, shape: impl Into<Shape>, values: &[f32]) -> Result<()> {
        self.insert(name, Element::Real, shape, Data::F32(values))
    }

    /// Adds a real tensor whose values are computed in place, where memory keeps single precision on the host, or on their
    /// way to it.
    ///
    /// # Errors
    /// If the name stands for a tensor, there is no room, or `fill` fails; there is no such tensor then.
    pub fn insert_filled<T, E: From<EngineError>>(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        fill: impl FnOnce(&mut [f32]) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let value_type = Type { shape: shape.into(), element: Element::Real };
        if let Some(&index) = self.names.get(name) {
            return Err(EngineError::TensorMismatch {
                name: name.into(),
                found: self.tensors[index].value_type.to_string(),
                needed: "none".into(),
            }
            .into());
        }
        let count = value_type.shape.len();
        let bytes = count * self.element_bytes(Element::Real);
        let (storage, found) = match &self.context {
            None if self.precision != Precision::F64 => {
                let mut buffer = Buffer::zeroed(bytes);
                let found = fill(&mut buffer.as_mut_slice::<f32>()[..count])?;
                (Storage::Host(buffer), found)
            }
            None => {
                let (mut buffer, mut values) = (Buffer::zeroed(bytes), vec![0.0; count]);
                let found = fill(&mut values)?;
                convert(&values, buffer.as_mut_slice::<f64>(), f64::from);
                (Storage::Host(buffer), found)
            }
            Some(context) => {
                let allocation = cuda::Allocation::zeroed(context, bytes)?;
                let mut values = vec![0.0; count];
                let found = fill(&mut values)?;
                allocation.write(as_bytes(&values))?;
                (Storage::Device(Arc::new(allocation)), found)
            }
        };
        self.names.insert(name.into(), self.tensors.len());
        self.tensors.push(Stored { name: name.into(), value_type, storage });
        Ok(found)
    }

    /// Replaces the values of a tensor.
    ///
    /// # Errors
    /// If there is no such tensor, or the data do not fit it.
    pub fn write(&mut self, name: &str, data: Data<'_>) -> Result<()> {
        let index = self.find(name)?;
        self.check_data(name, &self.tensors[index].value_type.clone(), data)?;
        let double =
            self.precision == Precision::F64 || self.tensors[index].value_type.element == Element::Double;
        match (&mut self.tensors[index].storage, data) {
            (Storage::Host(buffer), _) => fill(buffer, data, double),
            (Storage::Device(allocation), Data::F32(values)) if !double => {
                allocation.write(as_bytes(values))?;
            }
            (Storage::Device(allocation), _) => {
                let mut staged = Buffer::zeroed(allocation.len());
                fill(&mut staged, data, double);
                allocation.write(&staged.as_bytes()[..allocation.len()])?;
            }
        }
        Ok(())
    }

    /// The values of a real or double tensor in single precision.
    ///
    /// # Errors
    /// If there is no such tensor or it holds indices.
    pub fn read(&self, name: &str) -> Result<Vec<f32>> {
        let tensor = &self.tensors[self.find(name)?];
        if let (Storage::Host(buffer), Element::Real) = (&tensor.storage, tensor.value_type.element)
            && self.precision != Precision::F64
        {
            return Ok(buffer.as_slice::<f32>()[..tensor.value_type.shape.len()].to_vec());
        }
        Ok(self.read_f64(name)?.into_iter().map(|value| value as f32).collect())
    }

    /// The values of a real or double tensor in double precision.
    ///
    /// # Errors
    /// If there is no such tensor or it holds indices.
    pub fn read_f64(&self, name: &str) -> Result<Vec<f64>> {
        let tensor = &self.tensors[self.find(name)?];
        match tensor.value_type.element {
            Element::Index => Err(EngineError::DataMismatch {
                name: name.into(),
                found: "real numbers".into(),
                needed: "indices".into(),
            }),
            Element::Real if self.precision != Precision::F64 => self.numbers(tensor, |buffer| {
                buffer.as_slice::<f32>().iter().map(|&value| f64::from(value)).collect()
            }),
            _ => self.numbers(tensor, |buffer| buffer.as_slice::<f64>().to_vec()),
        }
    }

    /// A tensor's numbers, read off the host's memory or copied from the device.
    fn numbers(&self, tensor: &Stored, of: impl Fn(&Buffer) -> Vec<f64>) -> Result<Vec<f64>> {
        match &tensor.storage {
            Storage::Host(buffer) => Ok(of(buffer)),
            Storage::Device(allocation) => {
                let scalar = cuda::stored(&tensor.value_type);
                Ok(cuda::numbers(&allocation.read(0, allocation.len())?, scalar))
            }
        }
    }

    /// The values of an index tensor.
    ///
    /// # Errors
    /// If there is no such tensor or it does not hold indices.
    pub fn read_index(&self, name: &str) -> Result<Vec<u32>> {
        let tensor = &self.tensors[self.find(name)?];
        match tensor.value_type.element {
            Element::Index => {
                let numbers = self.numbers(tensor, |buffer| {
                    buffer.as_slice::<u32>().iter().map(|&index| f64::from(index)).collect()
                })?;
                Ok(numbers.into_iter().map(|index| index as u32).collect())
            }
            _ => Err(EngineError::DataMismatch {
                name: name.into(),
                found: "indices".into(),
                needed: "real numbers".into(),
            }),
        }
    }

    /// Adds what a graph keeps between runs and memory does not hold yet: parameters drawn from `seed`, optimiser
    /// state, counters at 0. A parameter's draw depends on the seed and on its position among the parameters.
    ///
    /// # Errors
    /// If a name stands for a tensor of another type, or all of it does not fit the memory that there is.
    pub fn initialize(&mut self, graph: &Graph, seed: u64) -> Result<()> {
        self.check_fits(graph)?;
        for (position, parameter) in graph.parameters().iter().enumerate() {
            if !self.contains(&parameter.name) {
                let values = draw(parameter.initial, parameter.shape.len(), seed, position as u64);
                self.insert(&parameter.name, Element::Real, parameter.shape.clone(), Data::F64(&values))?;
            }
        }
        for state in graph.states() {
            if !self.contains(&state.name) {
                let values = match &state.copy_of {
                    Some(parameter) => self.read_f64(parameter)?,
                    None => vec![0.0; state.shape.len()],
                };
                self.insert(&state.name, Element::Real, state.shape.clone(), Data::F64(&values))?;
            }
        }
        for entry in &graph.entries {
            if let Op::Tensor(tensor) = &entry.op
                && entry.outputs[0] == (Type { shape: Shape::scalar(), element: Element::Index })
                && !self.contains(&tensor.name)
            {
                self.insert(&tensor.name, Element::Index, Shape::scalar(), Data::Index(&[0]))?;
            }
        }
        Ok(())
    }

    /// Refuses what a graph keeps between runs if the host has no room for it; a GPU says so itself.
    fn check_fits(&self, graph: &Graph) -> Result<()> {
        if self.context.is_some() {
            return Ok(());
        }
        let missing = graph.kept().filter(|(name, _)| !self.contains(name));
        // Sizes from outside may be larger than any machine counts.
        let numbers = missing.map(|(_, shape)| {
            shape.axes().iter().fold(1u128, |count, &extent| count.saturating_mul(extent as u128))
        });
        let numbers = numbers.fold(0u128, u128::saturating_add);
        let bytes = numbers.saturating_mul(self.element_bytes(Element::Real) as u128);
        cpu::check_fits(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Position of the tensor that a graph's leaf stands for.
    pub(crate) fn bind(&self, name: &str, value_type: &Type) -> Result<usize> {
        let index = self.find(name)?;
        self.check_type(index, value_type)?;
        Ok(index)
    }

    pub(crate) fn element_bytes(&self, element: Element) -> usize {
        match element {
            Element::Double => 8,
            Element::Index => 4,
            Element::Real => {
                if self.precision == Precision::F64 {
                    8
                } else {
                    4
                }
            }
        }
    }

    fn find(&self, name: &str) -> Result<usize> {
        self.names.get(name).copied().ok_or_else(|| EngineError::TensorMissing { name: name.into() })
    }

    fn check_type(&self, index: usize, needed: &Type) -> Result<()> {
        let stored = &self.tensors[index];
        if stored.value_type == *needed {
            return Ok(());
        }
        Err(EngineError::TensorMismatch {
            name: stored.name.clone(),
            found: stored.value_type.to_string(),
            needed: needed.to_string(),
        })
    }

    fn check_data(&self, name: &str, value_type: &Type, data: Data<'_>) -> Result<()> {
        let kind_fits = matches!(
            (value_type.element, data),
            (Element::Index, Data::Index(_)) | (Element::Real | Element::Double, Data::F32(_) | Data::F64(_))
        );
        if kind_fits && data.len() == value_type.shape.len() {
            return Ok(());
        }
        Err(EngineError::DataMismatch {
            name: name.into(),
            found: format!("{} {} values", data.len(), data.name()),
            needed: format!("{} values for {value_type}", value_type.shape.len()),
        })
    }
}

fn fill(buffer: &mut Buffer, data: Data<'_>, double: bool) {
    match data {
        Data::Index(values) => buffer.as_mut_slice::<u32>().copy_from_slice(values),
        Data::F32(values) if double => convert(values, buffer.as_mut_slice::<f64>(), f64::from),
        Data::F32(values) => buffer.as_mut_slice::<f32>().copy_from_slice(values),
        Data::F64(values) if double => buffer.as_mut_slice::<f64>().copy_from_slice(values),
        Data::F64(values) => convert(values, buffer.as_mut_slice::<f32>(), |value| value as f32),
    }
}

fn convert<A: Copy, B>(from: &[A], to: &mut [B], convert: impl Fn(A) -> B) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = convert(from);
    }
}

/// First values of a parameter.
fn draw(initial: Initial, count: usize, seed: u64, position: u64) -> Vec<f64> {
    /// Keeps weights apart from the batches drawn with the same seed.
    const WEIGHTS: u64 = 1 << 32;
    let mut random = Philox::new(seed, WEIGHTS + position);
    (0..count)
        .map(|_| match initial {
            Initial::Constant(value) => value,
            Initial::Uniform(bound) => random.uniform_between(-bound, bound),
            Initial::Normal(deviation) => deviation * random.normal(),
        })
        .collect()
}
