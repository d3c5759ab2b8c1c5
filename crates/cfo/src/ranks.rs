//! Communication between the processes (ranks) of a job that trains one model.

use cfo_engine::{Data, Element, Graph, Memory, Role, Shape};
use xxhash_rust::xxh3::Xxh3;

use crate::error::{CfoError, Result};

pub use cfo_ranks::{Identity, Launcher, Ranks, RanksError, join, require_joined, waited, world};

/// Returns the job, or `None` if it has no other processes.
pub(crate) fn job() -> Option<&'static Ranks> {
    world().filter(|ranks| ranks.size() > 1)
}

/// Returns whether this is rank 0, which prints and writes files, or the only process.
pub fn is_first() -> bool {
    job().is_none_or(Ranks::is_first)
}

pub(crate) fn any(holds: bool) -> bool {
    job().map_or(holds, |ranks| ranks.gather(&[u8::from(holds)]).iter().any(|answer| answer[0] != 0))
}

/// Returns the result of work on this rank, or an error if the work failed on any rank.
///
/// # Errors
/// The error of this rank, or [`CfoError::Elsewhere`].
pub fn agree<T, E: From<CfoError>>(outcome: std::result::Result<T, E>) -> std::result::Result<T, E> {
    let failed = any(outcome.is_err());
    match outcome {
        Ok(_) if failed => Err(CfoError::Elsewhere.into()),
        outcome => outcome,
    }
}

/// Computes a value on rank 0 and returns it on every rank.
///
/// # Errors
/// The error of rank 0; the other ranks return [`CfoError::Elsewhere`].
pub fn by_first<T, E>(compute: impl FnOnce() -> std::result::Result<T, E>) -> std::result::Result<T, E>
where
    T: serde::Serialize + serde::de::DeserializeOwned + Default,
    E: From<CfoError>,
{
    let computed = if is_first() { compute() } else { Ok(T::default()) };
    Ok(from_first(agree(computed)?)?)
}

/// Returns the value of rank 0 on every rank.
///
/// # Errors
/// If it cannot be serialised or deserialised.
pub fn from_first<T: serde::Serialize + serde::de::DeserializeOwned>(value: T) -> Result<T> {
    let Some(ranks) = job() else { return Ok(value) };
    let text = serde_json::to_vec(&value).map_err(|error| CfoError::Io(error.into()))?;
    let shared = ranks.broadcast(&text);
    match ranks.is_first() {
        true => Ok(value),
        false => serde_json::from_slice(&shared).map_err(|error| CfoError::Io(error.into())),
    }
}

/// Returns the values of all ranks in the order of ranks.
///
/// # Errors
/// If a value cannot be serialised or deserialised.
pub fn from_all<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> Result<Vec<T>> {
    let failed = |error| CfoError::Io(std::io::Error::other(error));
    let message = postcard::to_allocvec(value).map_err(failed)?;
    let all = job().map_or_else(|| vec![message.clone()], |ranks| ranks.gather(&message));
    all.iter().map(|message| postcard::from_bytes(message).map_err(failed)).collect()
}

/// Returns the items that this rank works on. The ranks together have all items.
pub(crate) fn own_part<T: Copy>(items: &[T]) -> Vec<T> {
    let (rank, size) = job().map_or((0, 1), |ranks| (ranks.rank(), ranks.size()));
    items.iter().copied().skip(rank).step_by(size).collect()
}

/// Returns the results of all items, in their order, from those of the ranks' [`own_part`]s.
pub(crate) fn joined_parts<T>(own: Vec<T>) -> Result<Vec<T>>
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    if job().is_none() {
        return Ok(own);
    }
    let mut parts: Vec<_> = from_all(&own)?.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(parts.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return Ok(all);
        }
    }
}

/// Returns the numbers of rank 0 on every rank.
pub(crate) fn share(values: Vec<f32>) -> Vec<f32> {
    let Some(ranks) = job() else { return values };
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    ranks.broadcast(&bytes).as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Returns an error if the value of any rank differs from that of rank 0.
///
/// # Errors
/// Names that rank.
pub(crate) fn require_same(what: &'static str, value: &str) -> Result<()> {
    job().map_or(Ok(()), |ranks| Ok(ranks.require_same(what, value)?))
}

/// Copies the tensors that rank 0 keeps between the steps of a graph to every rank: weights, EMA, the optimiser's tensors.
pub(crate) fn share_weights(graph: &Graph, memory: &mut Memory) -> Result<()> {
    let Some(ranks) = job() else { return Ok(()) };
    // A checkpoint may hold counters that do not exist in a new memory.
    let counters: Vec<String> = memory
        .names_where(|role| role == Role::Optimizer)
        .filter(|name| memory.value_type(name).is_ok_and(|kind| kind.element == Element::Index))
        .map(str::to_owned)
        .collect();
    for name in from_first(counters)? {
        let own = if ranks.is_first() { memory.read_index(&name)? } else { Vec::new() };
        let shared: Vec<u32> = from_first(own)?;
        memory.insert_as(Role::Optimizer, &name, Element::Index, Shape::scalar(), Data::Index(&shared))?;
    }
    for tensor in graph.kept() {
        let bytes: Vec<u8> = match ranks.is_first() {
            true => memory.read_f64(tensor.name)?.iter().flat_map(|value| value.to_le_bytes()).collect(),
            false => Vec::new(),
        };
        let shared = ranks.broadcast(&bytes);
        let number = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap_or_default());
        memory.write(tensor.name, Data::F64(&shared.chunks(8).map(number).collect::<Vec<_>>()))?;
    }
    Ok(())
}

/// Returns an error if the weights of any rank differ from those of rank 0.
///
/// # Errors
/// Names that rank, or the device's error.
pub(crate) fn check_weights(memory: &Memory) -> Result<()> {
    if job().is_none() {
        return Ok(());
    }
    let mut names: Vec<&str> = memory.names_where(|role| role == Role::Weight).collect();
    names.sort_unstable();
    let mut hash = Xxh3::new();
    for name in names {
        memory.read(name)?.iter().for_each(|value| hash.update(&value.to_le_bytes()));
    }
    require_same("weights", &format!("{:016x}", hash.digest()))
}
