//! Sums over ranks inside a program: by NCCL if every rank has its own GPU, else through pinned memory and the host.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys;

use crate::runtime::driver::{CudaContext, check, failure};
use crate::runtime::feed::Pinned;
use crate::runtime::nccl::{Communicator, Message, Nccl};
use cfo_engine::backend::PageMemory;
use cfo_engine::{Collective, Result};
use cfo_ranks::{Numbers, RankSum};

/// Method of a program's sums over ranks.
pub(crate) enum Way {
    Nccl(Communicator),
    Host(Arc<dyn Collective>),
}

impl Way {
    /// A method that all ranks support. `CFO_COLLECTIVES` set to `nccl` or `host` requires one of them.
    pub(crate) fn choose(context: &Arc<CudaContext>, ranks: &Arc<dyn Collective>) -> Result<Self> {
        let asked = std::env::var("CFO_COLLECTIVES").unwrap_or_default();
        let nccl = Nccl::find().filter(|_| asked != "host");
        let own =
            format!("{} {}", nccl.map_or("none".into(), |nccl| nccl.version().to_string()), place(context));
        let all: Vec<String> = ranks
            .gather(own.as_bytes())
            .iter()
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect();
        let problem = problem(&all);
        match (nccl, problem) {
            (Some(nccl), None) => {
                let id = if ranks.rank() == 0 { nccl.unique_id()? } else { Vec::new() };
                let id = ranks.broadcast(&id);
                let place = (ranks.rank(), ranks.size());
                Ok(Self::Nccl(Communicator::new(nccl, context, &id, place)?))
            }
            (_, problem) if asked == "nccl" => {
                Err(failure("CFO_COLLECTIVES=nccl", problem.unwrap_or("NCCL was not found")))
            }
            _ => Ok(Self::Host(Arc::clone(ranks))),
        }
    }
}

/// Identifier of the machine and the GPU, independent of the GPU's index.
fn place(context: &CudaContext) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} {}", host.trim(), context.properties.uuid)
}

/// The reason why ranks with these versions and GPUs cannot use NCCL together; `None` if they can.
fn problem(all: &[String]) -> Option<&'static str> {
    let version = |one: &String| one.split(' ').next().map(str::to_owned);
    let first = all.first().and_then(version);
    if first.as_deref() == Some("none") || all.iter().any(|one| version(one).as_deref() == Some("none")) {
        return Some("NCCL was not found on every rank; `pip install nvidia-nccl-cu13`");
    }
    if all.iter().any(|one| version(one) != first) {
        return Some("the ranks have different versions of NCCL");
    }
    let shared = (1..all.len()).any(|rank| all[..rank].contains(&all[rank]));
    shared.then_some("two ranks share a GPU, which NCCL does not support")
}

/// The sums of some values, ready to be enqueued.
pub(crate) enum PreparedSums {
    Nccl(Vec<Message>),
    Host(Vec<Message>, Box<HostSum>),
}

/// Work of the host after the values have arrived.
pub(crate) struct HostSum {
    ranks: Arc<dyn Collective>,
    pinned: Mutex<(Pinned, Option<Numbers>)>,
    address: u64,
}

impl PreparedSums {
    pub(crate) fn new(way: &Way, context: &Arc<CudaContext>, messages: &[Message]) -> Result<Self> {
        let messages = messages.to_vec();
        Ok(match way {
            Way::Nccl(_) => Self::Nccl(messages),
            Way::Host(ranks) => {
                let count = messages.iter().map(|message| message.count).sum();
                let mut pinned = Pinned::new(context, count)?;
                let address = pinned.values().as_ptr() as u64;
                let room = Some(Numbers::F32(vec![0.0; count]));
                let pinned = Mutex::new((pinned, room));
                Self::Host(messages, Box::new(HostSum { ranks: Arc::clone(ranks), pinned, address }))
            }
        })
    }

    pub(crate) fn run(&self, way: &Way, stream: sys::CUstream) -> Result<()> {
        match (self, way) {
            (Self::Nccl(messages), Way::Nccl(communicator)) => communicator.sum(messages, stream),
            (Self::Host(messages, host), _) => host.run(messages, stream),
            (Self::Nccl(_), Way::Host(_)) => unreachable!("sums are prepared for their way"),
        }
    }
}

impl HostSum {
    /// Transfer to the host, the sum there, and the transfer back: three stages that a graph can contain.
    fn run(&self, messages: &[Message], stream: sys::CUstream) -> Result<()> {
        let places = || {
            messages.iter().scan(self.address, |place, message| {
                let here = *place;
                *place += 4 * message.count as u64;
                Some((message, here))
            })
        };
        for (message, place) in places() {
            // SAFETY: both have this number of numbers, and live as long as the program.
            check("cuMemcpyDtoH", unsafe {
                sys::cuMemcpyDtoHAsync_v2(place as *mut c_void, message.from, 4 * message.count, stream)
            })?;
        }
        let this = std::ptr::from_ref(self).cast_mut().cast::<c_void>();
        // SAFETY: this value is boxed in the program, which is dropped after all its runs are finished.
        check("cuLaunchHostFunc", unsafe { sys::cuLaunchHostFunc(stream, Some(sum_on_host), this) })?;
        for (message, place) in places() {
            // SAFETY: as above.
            check("cuMemcpyHtoD", unsafe {
                sys::cuMemcpyHtoDAsync_v2(message.to, place as *const c_void, 4 * message.count, stream)
            })?;
        }
        Ok(())
    }

    fn sum(&self) {
        let mut held = self.pinned.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (pinned, room) = &mut *held;
        let Some(Numbers::F32(mut values)) = room.take() else { return };
        values.copy_from_slice(pinned.values());
        if let Numbers::F32(sum) = self.ranks.start_sum(Numbers::F32(values), RankSum::Any).wait() {
            pinned.values().copy_from_slice(&sum);
            *room = Some(Numbers::F32(sum));
        }
    }
}

/// Called by the driver when the values have arrived; it calls no CUDA functions.
unsafe extern "C" fn sum_on_host(host: *mut c_void) {
    // SAFETY: this is the enqueued address, of a value that outlives the run.
    let host = unsafe { &*host.cast::<HostSum>() };
    host.sum();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_cannot_use_the_library_together_are_told_why() {
        let ranks = |all: &[&str]| problem(&all.iter().map(|&one| one.to_owned()).collect::<Vec<_>>());
        assert_eq!(ranks(&["2.27 a x"]), None);
        assert_eq!(ranks(&["2.27 a x", "2.27 a y", "2.27 b x"]), None);
        assert!(ranks(&["2.27 a x", "2.27 a x"]).unwrap().contains("share"));
        assert!(ranks(&["2.27 a x", "2.26 a y"]).unwrap().contains("versions"));
        assert!(ranks(&["2.27 a x", "none a y"]).unwrap().contains("not found"));
    }
}
