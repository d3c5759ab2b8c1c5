//! The tensors of a checkpoint, in the format of safetensors.

use std::path::Path;

use cfo_engine::{Data, Element, Memory, Role};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::{WEIGHTS, bad};
use crate::error::Result;

/// The key in a file of weights whose value names the averages among them, as a list in JSON.
const AVERAGES: &str = "averages";

/// The names of the averages in a file of weights. Earlier versions did not write them down: a prefix told.
fn averages(path: &Path, bytes: &[u8]) -> Result<Vec<String>> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| bad(path, error))?;
    match header.metadata().as_ref().and_then(|metadata| metadata.get(AVERAGES)) {
        Some(list) => serde_json::from_str(list).map_err(|error| bad(path, error)),
        None => Ok(header.tensors().into_keys().filter(|name| name.starts_with("ema/")).collect()),
    }
}

/// The tensors of some roles as the bytes of a file.
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

/// Reads the tensors of a file, whose role is the one given or, among weights, that of an average.
pub(super) fn unpack(path: &Path, bytes: &[u8], role: Role, memory: &mut Memory) -> Result<()> {
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| bad(path, error))?;
    let averages = averages(path, bytes)?;
    for (name, view) in tensors.iter() {
        let role = if role == Role::Weight && averages.iter().any(|average| average == name) {
            Role::Average
        } else {
            role
        };
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
    fn files_of_earlier_versions_tell_averages_by_a_prefix() {
        let bytes: Vec<u8> = 1.5_f32.to_le_bytes().into();
        let names = ["gain", "ema/gain"];
        let views = names.map(|name| (name, TensorView::new(Dtype::F32, vec![1], &bytes).unwrap()));
        let file = safetensors::serialize(views, None).unwrap();
        let mut memory = Memory::new(Device::Cpu, Precision::F32).unwrap();
        unpack(Path::new("weights.safetensors"), &file, Role::Weight, &mut memory).unwrap();
        assert_eq!(names.map(|name| memory.role(name).unwrap()), [Role::Weight, Role::Average]);
        assert_eq!(memory.read("ema/gain").unwrap(), [1.5]);
    }
}
