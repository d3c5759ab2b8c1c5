//! The named tensors of a device: parameters, optimiser state, data sets, inputs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cfo_ranks::Collective;

use crate::backend::{Backend, Open, Storage};
use crate::data::{Data, Number};
use crate::error::{EngineError, Result};
use crate::precision::Precision;
use crate::role::Role;
use crate::shape::{Element, Shape, Type};

/// A tensor's type, role and storage.
#[derive(Debug)]
struct Stored {
    name: String,
    value_type: Type,
    role: Role,
    storage: Box<dyn Storage>,
}

/// All named tensors that are kept between runs, on one device in one precision. Programs compiled for the same memory
/// share them: a rollout reads the weights that a training step has just written.
#[derive(Debug)]
pub struct Memory {
    backend: Arc<dyn Backend>,
    precision: Precision,
    identity: u64,
    deterministic: bool,
    collective: Option<Arc<dyn Collective>>,
    tensors: Vec<Stored>,
    names: HashMap<String, usize>,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Memory {
    /// Creates an empty memory.
    ///
    /// # Errors
    /// If the device cannot be used, or does not support the precision.
    pub fn new(device: impl Open, precision: Precision) -> Result<Self> {
        let backend = device.open()?;
        backend.check(precision)?;
        let (identity, tensors, names) = (NEXT.fetch_add(1, Ordering::Relaxed), Vec::new(), HashMap::new());
        Ok(Self { backend, precision, identity, deterministic: false, collective: None, tensors, names })
    }

    /// Sets whether programs give bit-identical results in every run. On a GPU this selects library algorithms that do
    /// and disables selection by measurement. The CPU is always deterministic.
    #[must_use]
    pub fn with_determinism(mut self, deterministic: bool) -> Self {
        self.deterministic = deterministic;
        self
    }

    /// Sets the ranks over which [`Graph::all_reduce`](crate::Graph::all_reduce) sums.
    #[must_use]
    pub fn with_collective(mut self, collective: Option<Arc<dyn Collective>>) -> Self {
        self.collective = collective;
        self
    }

    /// The ranks that run the same programs; `None` without others.
    pub fn collective(&self) -> Option<&Arc<dyn Collective>> {
        self.collective.as_ref()
    }

    /// Whether programs must give bit-identical results in every run.
    pub fn is_deterministic(&self) -> bool {
        self.deterministic
    }

    /// The device that holds the tensors.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// A number that is unique among the memories of this process.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    pub(crate) fn require(&self, identity: u64) -> Result<()> {
        match self.identity == identity {
            true => Ok(()),
            false => Err(EngineError::OtherMemory),
        }
    }

    /// The storage of the tensor at the position returned by [`Memory::bind`].
    pub fn storage(&self, position: usize) -> &dyn Storage {
        &*self.tensors[position].storage
    }

    /// The storage of the tensor at a position, mutable.
    pub fn storage_mut(&mut self, position: usize) -> &mut dyn Storage {
        &mut *self.tensors[position].storage
    }

    /// The device's name, as users write it.
    pub fn device_name(&self) -> String {
        self.backend.name()
    }

    /// Whether a run may return before its work is done, so that many runs should be queued at once.
    pub fn is_asynchronous(&self) -> bool {
        self.backend.is_asynchronous()
    }

    /// The precision of real numbers.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Free bytes of the device; `None` if it does not report them.
    ///
    /// # Errors
    /// If the device fails.
    pub fn available(&self) -> Result<Option<u64>> {
        self.backend.available()
    }

    /// Names of all tensors, in the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|tensor| tensor.name.as_str())
    }

    /// Purpose of a tensor.
    ///
    /// # Errors
    /// If there is no tensor of this name.
    pub fn role(&self, name: &str) -> Result<Role> {
        Ok(self.tensors[self.find(name)?].role)
    }

    pub(crate) fn set_role(&mut self, name: &str, role: Role) -> Result<()> {
        let index = self.find(name)?;
        self.tensors[index].role = role;
        Ok(())
    }

    /// Names of the tensors with a chosen role, in the order in which they were added.
    pub fn names_where(&self, chosen: impl Fn(Role) -> bool) -> impl Iterator<Item = &str> {
        self.tensors.iter().filter(move |tensor| chosen(tensor.role)).map(|tensor| tensor.name.as_str())
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// Shape and element type of a tensor.
    ///
    /// # Errors
    /// If there is no tensor of this name.
    pub fn value_type(&self, name: &str) -> Result<&Type> {
        Ok(&self.tensors[self.find(name)?].value_type)
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.storage.len()).sum()
    }

    /// Adds a tensor as [`Role::Data`], or replaces the values of a tensor of the same type, which keeps its role.
    ///
    /// # Errors
    /// If the data do not fit the shape, or the name belongs to a tensor of another type.
    pub fn insert(
        &mut self,
        name: &str,
        element: Element,
        shape: impl Into<Shape>,
        data: Data<'_>,
    ) -> Result<()> {
        let role = self.role(name).unwrap_or(Role::Data);
        self.insert_as(role, name, element, shape, data)
    }

    /// Adds a tensor with a role, or replaces the role and the values of a tensor of the same type.
    ///
    /// # Errors
    /// If the data do not fit the shape, or the name belongs to a tensor of another type.
    pub fn insert_as(
        &mut self,
        role: Role,
        name: &str,
        element: Element,
        shape: impl Into<Shape>,
        data: Data<'_>,
    ) -> Result<()> {
        let value_type = Type { shape: shape.into(), element };
        self.check_data(name, &value_type, data)?;
        if let Some(&index) = self.names.get(name) {
            self.check_type(index, &value_type)?;
            self.tensors[index].role = role;
        } else {
            let bytes = value_type.shape.len() * self.element_bytes(element);
            let storage = self.backend.allocate(bytes)?;
            self.names.insert(name.into(), self.tensors.len());
            self.tensors.push(Stored { name: name.into(), value_type, role, storage });
        }
        self.write(name, data)
    }

    /// Adds a real tensor as [`Role::Data`], or replaces the values of one, which keeps its role.
    ///
    /// # Errors
    /// If the data do not fit the shape.
    pub fn insert_real(&mut self, name: &str, shape: impl Into<Shape>, values: &[f32]) -> Result<()> {
        self.insert(name, Element::Real, shape, Data::F32(values))
    }

    /// Adds a real tensor as [`Role::Data`] with values computed by `fill`, in place if memory is `f32` on the host.
    ///
    /// # Errors
    /// If the name belongs to a tensor, there is not enough memory, or `fill` fails. The tensor is then not added.
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
        let (count, number) = (value_type.shape.len(), self.number(Element::Real));
        let mut storage = self.backend.allocate(count * number.bytes())?;
        let in_place = if number == Number::F32 { storage.host_f32() } else { None };
        let found = match in_place {
            Some(values) => fill(values)?,
            None => {
                let mut values = vec![0.0; count];
                let found = fill(&mut values)?;
                storage.write(Data::F32(&values), number)?;
                found
            }
        };
        self.names.insert(name.into(), self.tensors.len());
        self.tensors.push(Stored { name: name.into(), value_type, role: Role::Data, storage });
        Ok(found)
    }

    /// Moves the chosen tensors to another memory of the same kind; programs of this memory must be compiled again.
    #[must_use]
    pub fn take(&mut self, chosen: impl Fn(&str) -> bool) -> Self {
        let (backend, collective, names) =
            (Arc::clone(&self.backend), self.collective.clone(), HashMap::new());
        let all = std::mem::take(&mut self.tensors).into_iter();
        let (tensors, left) = all.partition(|tensor| chosen(&tensor.name));
        self.tensors = left;
        let mut other = Self { backend, collective, tensors, names, ..*self };
        for memory in [self, &mut other] {
            memory.identity = NEXT.fetch_add(1, Ordering::Relaxed);
            memory.names = memory.tensors.iter().map(|tensor| tensor.name.clone()).zip(0..).collect();
        }
        other
    }

    /// Replaces the values of a tensor.
    ///
    /// # Errors
    /// If there is no such tensor, or the data do not fit it.
    pub fn write(&mut self, name: &str, data: Data<'_>) -> Result<()> {
        let index = self.find(name)?;
        self.check_data(name, &self.tensors[index].value_type.clone(), data)?;
        let number = self.number(self.tensors[index].value_type.element);
        self.tensors[index].storage.write(data, number)
    }

    /// Copies the values of a tensor to another one of the same type, on the device and after all earlier runs.
    ///
    /// # Errors
    /// If a tensor does not exist, or their types differ.
    pub fn copy(&mut self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.find(from)?, self.find(to)?);
        self.check_type(to, &self.tensors[from].value_type.clone())?;
        match self.tensors.get_disjoint_mut([from, to]) {
            Ok([from, to]) => to.storage.copy_from(&*from.storage),
            // Copying a tensor to itself does nothing.
            Err(_) => Ok(()),
        }
    }

    /// The values of a real or double tensor in single precision.
    ///
    /// # Errors
    /// If there is no such tensor or it holds indices.
    pub fn read(&self, name: &str) -> Result<Vec<f32>> {
        let tensor = &self.tensors[self.find(name)?];
        if self.number(tensor.value_type.element) == Number::F32 {
            return tensor.storage.read_f32();
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
            element => tensor.storage.read(self.number(element)),
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
                let numbers = tensor.storage.read(Number::U32)?;
                Ok(numbers.into_iter().map(|index| index as u32).collect())
            }
            _ => Err(EngineError::DataMismatch {
                name: name.into(),
                found: "indices".into(),
                needed: "real numbers".into(),
            }),
        }
    }

    /// Position of a graph's named tensor.
    ///
    /// # Errors
    /// If there is no tensor of this name or it is of another type.
    pub fn bind(&self, name: &str, value_type: &Type) -> Result<usize> {
        let index = self.find(name)?;
        self.check_type(index, value_type)?;
        Ok(index)
    }

    /// Storage type of an element type.
    pub fn number(&self, element: Element) -> Number {
        match element {
            Element::Double => Number::F64,
            Element::Index => Number::U32,
            Element::Real if self.precision == Precision::F64 => Number::F64,
            Element::Real => Number::F32,
        }
    }

    /// Bytes of an element.
    pub fn element_bytes(&self, element: Element) -> usize {
        self.number(element).bytes()
    }

    fn find(&self, name: &str) -> Result<usize> {
        self.names.get(name).copied().ok_or_else(|| EngineError::TensorMissing(name.into()))
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
