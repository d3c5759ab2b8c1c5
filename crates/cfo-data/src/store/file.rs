//! Opening a trajectory file of any layout, and checked reading from it.

use std::fmt;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use super::hdf5::Hdf5;
use super::lpsda::Lpsda;
use super::pdebench::{Fields, Groups};
use super::source::Source;
use super::table::Table;
use super::the_well::TheWell;
use super::zip::Zip;
use crate::trajectory::{Defects, first_not_finite};
use crate::{DataError, Description, Place, Split, Trajectory};

/// How a file arranges its trajectories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Our HDF5 layout.
    Cfo,
    /// A NumPy archive with arrays of the same names.
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
    /// Groups `train`, `valid` and `test` with a dataset `pde_*`, as LPSDA and PDE-Refiner write them.
    Lpsda,
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
        })
    }
}

/// An open trajectory file.
///
/// Nothing but what is asked for is read: a trajectory, or a few of its frames. Threads may share it.
///
/// ```no_run
/// use cfo_data::store::TrajectoryFile;
///
/// let file = TrajectoryFile::open("lorenz.h5")?;
/// println!("{} trajectories, layout {}", file.len(), file.layout());
/// let first = file.trajectory(0)?;
/// assert_eq!(first.values.len(), first.times.len() * file.description().shape.len());
/// # Ok::<(), cfo_data::DataError>(())
/// ```
pub struct TrajectoryFile {
    layout: Layout,
    source: Box<dyn Source>,
}

impl fmt::Debug for TrajectoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TrajectoryFile");
        debug.field("path", &self.path()).field("layout", &self.layout).field("len", &self.len());
        debug.finish_non_exhaustive()
    }
}

/// Where an HDF5 signature may stand: at 0, 512, 1024, 2048 and so on.
const HDF5_SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
/// A ZIP file starts with a member, or with its end when it has none.
const ZIP_SIGNATURES: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

impl TrajectoryFile {
    /// Open a file, recognising its layout by what it holds.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        let (layout, source): (Layout, Box<dyn Source>) = match container(path)? {
            Container::Zip => (Layout::Npz, Box::new(Table::open_npz(Zip::open(path)?)?)),
            Container::Hdf5 => open_hdf5(path)?,
        };
        if source.len() == 0 {
            return Err(DataError::Unfit {
                path: path.to_owned(),
                place: Box::new(Place::default()),
                found: "no trajectory".to_string(),
                needed: "at least one".to_string(),
            });
        }
        Ok(Self { layout, source })
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// How the file arranges its trajectories.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// What holds for every trajectory.
    pub fn description(&self) -> &Description {
        self.source.description()
    }

    /// How many trajectories there are.
    pub fn len(&self) -> usize {
        self.source.len()
    }

    /// Never: a file without trajectories does not open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part that a trajectory plays, when the file says so.
    pub fn split(&self, trajectory: usize) -> Option<Split> {
        if trajectory < self.len() { self.source.split(trajectory) } else { None }
    }

    /// How many snapshots a trajectory has.
    pub fn frame_count(&self, trajectory: usize) -> Result<usize, DataError> {
        self.check_trajectory(trajectory)?;
        self.source.frames(trajectory)
    }

    /// The times of a trajectory; they increase strictly.
    pub fn times(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        self.check_trajectory(trajectory)?;
        let times = self.source.times(trajectory)?;
        let mut previous = f64::NEG_INFINITY;
        for (frame, &time) in times.iter().enumerate() {
            if !time.is_finite() || time <= previous {
                let place = Place::trajectory(trajectory).at_frame(frame);
                return Err(DataError::Times {
                    path: self.path().to_owned(),
                    place: Box::new(place),
                    previous,
                    time,
                });
            }
            previous = time;
        }
        Ok(times)
    }

    /// The PDE parameters of a trajectory, in the order of [`Description::parameter_names`]; they are finite.
    pub fn parameters(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        self.check_trajectory(trajectory)?;
        let parameters = self.source.parameters(trajectory)?;
        match parameters.iter().position(|value| !value.is_finite()) {
            None => Ok(parameters),
            Some(column) => Err(DataError::Parameter {
                path: self.path().to_owned(),
                place: Box::new(Place::dataset("parameters").in_trajectory(trajectory)),
                column,
                value: parameters[column],
            }),
        }
    }

    /// A whole trajectory; its times increase and its values are finite.
    pub fn trajectory(&self, trajectory: usize) -> Result<Trajectory, DataError> {
        let times = self.times(trajectory)?;
        let values = self.source.values(trajectory, 0, times.len())?;
        self.check_finite(trajectory, &[0], &values)?;
        let parameters = self.parameters(trajectory)?;
        Ok(Trajectory { times, values, parameters })
    }

    /// A whole trajectory as it is stored, with what is wrong with it: for tools that report rather than stop.
    pub fn audit(&self, trajectory: usize) -> Result<(Trajectory, Defects), DataError> {
        self.check_trajectory(trajectory)?;
        let times = self.source.times(trajectory)?;
        let values = self.source.values(trajectory, 0, times.len())?;
        let parameters = self.source.parameters(trajectory)?;
        let trajectory = Trajectory { times, values, parameters };
        let defects = trajectory.defects(&self.description().shape);
        Ok((trajectory, defects))
    }

    /// Some snapshots of a trajectory in the order asked for, `[frames, height, width, channels]`.
    ///
    /// Runs of neighbours are read together; only these bytes (or the chunks that hold them) are touched.
    pub fn frames(&self, trajectory: usize, frames: &[usize]) -> Result<Vec<f32>, DataError> {
        let mut values = vec![0.0; frames.len() * self.description().shape.len()];
        self.frames_into(trajectory, frames, &mut values)?;
        Ok(values)
    }

    /// The same into a place of its own, which must have room for just these.
    pub fn frames_into(&self, trajectory: usize, frames: &[usize], out: &mut [f32]) -> Result<(), DataError> {
        let count = self.frame_count(trajectory)?;
        if let Some(&frame) = frames.iter().find(|&&frame| frame >= count) {
            let place = Place::trajectory(trajectory).at_frame(frame);
            return Err(DataError::OutOfRange {
                path: self.path().to_owned(),
                place: Box::new(place),
                count,
            });
        }
        let size = self.description().shape.len();
        let needed = frames.len() * size;
        if out.len() != needed {
            return Err(DataError::Argument {
                what: "the place for snapshots",
                found: format!("{} numbers", out.len()),
                needed: format!("{needed}"),
            });
        }
        let mut place = &mut *out;
        for run in frames.chunk_by(|&one, &next| next == one + 1) {
            let (now, rest) = place.split_at_mut(run.len() * size);
            self.source.values_into(trajectory, run[0], run.len(), now)?;
            place = rest;
        }
        self.check_finite(trajectory, frames, out)
    }

    /// Whether trajectories are cheap to read only one after another, in their order: those of a compressed archive.
    pub fn is_sequential(&self) -> bool {
        self.source.is_sequential()
    }

    fn check_trajectory(&self, trajectory: usize) -> Result<(), DataError> {
        if trajectory < self.len() {
            return Ok(());
        }
        let (path, place) = (self.path().to_owned(), Place::trajectory(trajectory));
        Err(DataError::OutOfRange { path, place: Box::new(place), count: self.len() })
    }

    /// Refuse a value that is not finite; frame `n` of `values` is `frames[n]`, or counted on from the last of them.
    fn check_finite(&self, trajectory: usize, frames: &[usize], values: &[f32]) -> Result<(), DataError> {
        let Some(position) = first_not_finite(values) else {
            return Ok(());
        };
        let shape = &self.description().shape;
        let mut place = shape.place(position).in_trajectory(trajectory);
        let index = place.frame.unwrap_or(0);
        place.frame = Some(frames.get(index).copied().unwrap_or(index));
        Err(DataError::NotFinite {
            path: self.path().to_owned(),
            place: Box::new(place),
            value: values[position],
        })
    }
}

enum Container {
    Hdf5,
    Zip,
}

/// What kind of container a file is, by its first bytes.
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

fn open_hdf5(path: &Path) -> Result<(Layout, Box<dyn Source>), DataError> {
    let file = Hdf5::open(path)?;
    let members = file.members("/")?;
    if Table::recognises(&file, &members.datasets) {
        return Ok((Layout::Cfo, Box::new(Table::open_hdf5(&file)?)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_may_share_an_open_file() {
        fn shared<T: Send + Sync>() {}
        shared::<TrajectoryFile>();
    }
}
