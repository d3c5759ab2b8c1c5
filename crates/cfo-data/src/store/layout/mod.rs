//! Layouts of files that can be read, recognised by content.

mod controls;
mod input_arrays;
mod lpsda;
mod pdebench;
mod source;
pub(crate) mod table;
mod the_well;
mod unknown;

use std::fmt;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use lpsda::Lpsda;
use pdebench::{Fields, Groups};
pub(crate) use source::{Contents, TrajectorySource};
use table::TableSource;
use the_well::TheWell;

use super::container::hdf5::Hdf5;
use super::container::zip::open_members;
use crate::{Controls, DataError};

/// HDF5 signature, at offset 0, 512, 1024, 2048 and so on.
const HDF5_SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
/// Signatures of a ZIP file: of a member, or of the end if there are none.
const ZIP_SIGNATURES: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

/// Layout of the trajectories in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The HDF5 layout of this crate.
    Cfo,
    /// A NumPy archive with arrays of the same names as `Cfo`.
    Npz,
    /// PDEBench's groups, one per trajectory.
    PdebenchGroups,
    /// PDEBench's `tensor` of scalar one-dimensional fields.
    PdebenchTensor,
    /// PDEBench's compressible flow: one dataset per channel.
    PdebenchCfd,
    /// PDEBench's incompressible flow: `velocity` and `particles`.
    PdebenchIncompressible,
    /// The Well's fields by tensor order.
    TheWell,
    /// Groups `train`, `valid` and `test` with a dataset `pde_*`, as in LPSDA and PDE-Refiner.
    Lpsda,
    /// Arrays in memory instead of a file.
    Memory,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cfo => "cfo",
            Self::Npz => "npz",
            Self::PdebenchGroups => "pdebench-2d",
            Self::PdebenchTensor => "pdebench-1d",
            Self::PdebenchCfd => "pdebench-cfd",
            Self::PdebenchIncompressible => "pdebench-incompressible",
            Self::TheWell => "the-well",
            Self::Lpsda => "lpsda",
            Self::Memory => "memory",
        })
    }
}

/// Opens the trajectories of a file; returns them with the layout.
pub(super) fn open(path: &Path) -> Result<(Layout, Box<dyn TrajectorySource>), DataError> {
    match container(path)? {
        Container::Zip => {
            Ok((Layout::Npz, Box::new(TableSource::open_npz(path.to_owned(), open_members(path)?)?)))
        }
        Container::Hdf5 => open_hdf5(path),
    }
}

/// Reads the controls of a file, with or without trajectories, and their names.
pub(super) fn controls(path: &Path) -> Result<(Vec<String>, Vec<Controls>), DataError> {
    match container(path)? {
        Container::Zip => controls::controls_of_npz(path, open_members(path)?),
        Container::Hdf5 => controls::controls_of_hdf5(&Hdf5::open(path)?),
    }
}

enum Container {
    Hdf5,
    Zip,
}

/// The kind of container, from the file's first bytes.
fn container(path: &Path) -> Result<Container, DataError> {
    let failed = |error| DataError::reading(path, error);
    let metadata = fs_err::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(DataError::NotAFile { path: path.to_owned() });
    }
    if metadata.len() == 0 {
        return Err(DataError::Empty { path: path.to_owned() });
    }
    let mut file = fs_err::File::open(path).map_err(failed)?;
    let mut signature_at = |offset: u64| -> Result<[u8; 8], DataError> {
        let mut signature = [0; 8];
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        file.by_ref().take(8).read_exact(&mut signature).or_else(|error| match error.kind() {
            ErrorKind::UnexpectedEof => Ok(()),
            _ => Err(failed(error)),
        })?;
        Ok(signature)
    };
    if ZIP_SIGNATURES.iter().any(|signature| signature_at(0).is_ok_and(|start| start.starts_with(signature)))
    {
        return Ok(Container::Zip);
    }
    let offsets = std::iter::successors(Some(512u64), |offset| offset.checked_mul(2));
    for offset in std::iter::once(0).chain(offsets).take_while(|&offset| offset < metadata.len()) {
        if signature_at(offset)? == HDF5_SIGNATURE {
            return Ok(Container::Hdf5);
        }
    }
    let found = "it is neither HDF5 nor a NumPy archive".to_string();
    Err(DataError::UnknownLayout { path: path.to_owned(), found })
}

fn open_hdf5(path: &Path) -> Result<(Layout, Box<dyn TrajectorySource>), DataError> {
    let file = Hdf5::open(path)?;
    let members = file.members("/")?;
    if TableSource::recognises(&file, &members.datasets) {
        return Ok((Layout::Cfo, Box::new(TableSource::open_hdf5(&file)?)));
    }
    let has = |name: &str| members.datasets.iter().any(|dataset| dataset == name);
    if has("tensor") {
        return Ok((Layout::PdebenchTensor, Box::new(Fields::open_tensor(&file)?)));
    }
    if has("density") {
        return Ok((Layout::PdebenchCfd, Box::new(Fields::open_compressible(&file)?)));
    }
    if has("velocity") && has("t") {
        return Ok((Layout::PdebenchIncompressible, Box::new(Fields::open_incompressible(&file)?)));
    }
    if let Some(names) = Groups::recognise(&file, &members.groups)? {
        return Ok((Layout::PdebenchGroups, Box::new(Groups::open(file, names)?)));
    }
    if TheWell::recognises(&members.groups) {
        return Ok((Layout::TheWell, Box::new(TheWell::open(&file)?)));
    }
    if let Some(source) = Lpsda::open(&file, &members.groups)? {
        return Ok((Layout::Lpsda, Box::new(source)));
    }
    let list = |kind: &str, names: &[String]| {
        let shown: Vec<String> = names.iter().take(8).map(|name| format!("`{name}`")).collect();
        let more = if names.len() > shown.len() { ", ..." } else { "" };
        if names.is_empty() { format!("no {kind}s") } else { format!("{kind}s {}{more}", shown.join(", ")) }
    };
    let found =
        format!("HDF5 with {} and {}", list("dataset", &members.datasets), list("group", &members.groups));
    Err(DataError::UnknownLayout { path: path.to_owned(), found })
}
