//! The tensors of a checkpoint, in the format of safetensors.

use std::path::Path;

use cfo_engine::{Data, Element, Memory, Role};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::{WEIGHTS, bad};
use crate::error::Result;

/// The key in a file of weights that lists the names of the EMA tensors, in JSON.
const AVERAGES: &str = "averages";

/// Returns the names of the EMA tensors in a file of weights.
fn averages(path: &Path, bytes: &[u8]) -> Result<Vec<String>> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| bad(path, error))?;
    let list = header.metadata().as_ref().and_then(|metadata| metadata.get(AVERAGES));
    let list = list.ok_or_else(|| bad(path, format!("its metadata lack `{AVERAGES}`")))?;
    serde_json::from_str(list).map_err(|error| bad(path, error))
}

/// Returns the tensors of some roles as the bytes of a file.
pub(super) fn pack(memory: &Memory, chosen: fn(Role) -> bool) -> Result<Vec<u8>> {
    let mut tensors = Vec::new();
    for name in memory.names_where(chosen) {
        let value_type = memory.value_type(name)?;
        let (dtype, bytes) = match value_type.element {
            Element::Index => {
                (Dtype::U32, memory.read_index(name)?.iter().flat_map(|v| v.to_le_bytes()).collect())
            }
            _ => (Dtype::F32, memory.read(name)?.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()),
        };
        tensors.push((name.to_owned(), dtype, value_type.shape.axes().to_vec(), bytes));
    }
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        TensorView::new(*dtype, shape.clone(), bytes).map(|view| (name.as_str(), view))
    });
    let views =
        views.collect::<std::result::Result<Vec<_>, _>>().map_err(|error| bad(Path::new(WEIGHTS), error))?;
    let mut averages: Vec<&str> = memory.names_where(|role| role == Role::Average).collect();
    averages.sort_unstable();
    let metadata = chosen(Role::Average)
        .then(|| [(AVERAGES.to_owned(), serde_json::json!(averages).to_string())].into());
    safetensors::serialize(views, metadata).map_err(|error| bad(Path::new(WEIGHTS), error))
}

/// Reads the tensors of a file with the given role. In a file of weights, EMA tensors have their own role.
pub(super) fn unpack(path: &Path, bytes: &[u8], role: Role, memory: &mut Memory) -> Result<()> {
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| bad(path, error))?;
    let averages = if role == Role::Weight { averages(path, bytes)? } else { Vec::new() };
    for (name, view) in tensors.iter() {
        let role = if averages.iter().any(|average| average == name) { Role::Average } else { role };
        let words = view.data().chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
        match view.dtype() {
            Dtype::F32 => {
                let values: Vec<f32> = words.map(f32::from_le_bytes).collect();
                memory.insert_as(role, name, Element::Real, view.shape(), Data::F32(&values))?;
            }
            Dtype::U32 => {
                let values: Vec<u32> = words.map(u32::from_le_bytes).collect();
                memory.insert_as(role, name, Element::Index, view.shape(), Data::Index(&values))?;
            }
            other => return Err(bad(path, format!("tensor `{name}` has type {other:?}"))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cfo_device::Device;
    use cfo_engine::Precision;

    use super::*;

    #[test]
    fn a_file_of_weights_lists_its_averages() {
        let file = safetensors::serialize(Vec::<(&str, TensorView<'_>)>::new(), None).unwrap();
        let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
        let mut read = |role| unpack(Path::new(WEIGHTS), &file, role, &mut memory);
        assert!(read(Role::Weight).unwrap_err().to_string().contains("its metadata lack `averages`"));
        read(Role::Optimizer).unwrap();
    }
}
