//! Layouts of files that can be written, and their limitations.

use std::fmt;
use std::str::FromStr;

use crate::error::listed;
use crate::{DataError, Description};

/// Layout of the trajectories in a written file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OutputLayout {
    /// The HDF5 layout of this crate.
    #[default]
    Cfo,
    /// A NumPy archive with arrays of the same names as `Cfo`.
    Npz,
    /// Files for PDEBench's own loaders: groups for two or three space axes, `tensor` for one.
    Pdebench,
    /// Files for The Well's `WellDataset`: a dataset for each channel, as a scalar field.
    TheWell,
    /// NetCDF-4 with CF axes: a variable for each channel.
    Netcdf,
    /// One trajectory as a VTK image over time.
    Vtkhdf,
    /// An XML file that points VTK to each snapshot in a file of layout `cfo` beside it.
    Xdmf,
}

impl OutputLayout {
    /// All layouts.
    pub const ALL: [Self; 7] =
        [Self::Cfo, Self::Npz, Self::Pdebench, Self::TheWell, Self::Netcdf, Self::Vtkhdf, Self::Xdmf];

    /// Whether values with an offset are written as float64, which preserves their digits.
    pub fn takes_doubles(self) -> bool {
        matches!(self, Self::Cfo | Self::Npz)
    }

    /// Parts of a file that the layout cannot represent.
    pub fn leaves_out(self, description: &Description, has_split: bool) -> Vec<&'static str> {
        let mut lost = Vec::new();
        let mut push = |there: bool, what: &'static str| lost.extend(there.then_some(what));
        let names = !description.channel_names.is_empty();
        let units = description.channel_units.iter().any(|unit| !unit.is_empty());
        let parameters = !description.inputs.parameters.is_empty();
        let stored = matches!(self, Self::Cfo | Self::Npz | Self::Xdmf);
        let [controls, statics] = [&description.inputs.controls, &description.inputs.statics]
            .map(|names| !stored && !names.is_empty());
        push(controls, "the controls");
        push(statics, "the static fields");
        match self {
            Self::Cfo | Self::Npz | Self::Netcdf | Self::Xdmf => {}
            Self::Pdebench => {
                push(names, "the names of the channels");
                push(units, "their units");
                push(has_split, "the split");
                push(!description.system.is_empty(), "the name of the system");
                push(parameters, "parameters that differ from one trajectory to another");
                push(true, "digits of the times beyond single precision");
            }
            Self::TheWell => push(has_split, "the split: The Well has a folder for each part"),
            Self::Vtkhdf => {
                push(has_split, "the split");
                push(!description.system.is_empty(), "the name of the system");
                push(description.periodic.iter().any(|&flag| flag), "which axes are periodic");
            }
        }
        lost
    }
}

impl fmt::Display for OutputLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cfo => "cfo",
            Self::Npz => "npz",
            Self::Pdebench => "pdebench",
            Self::TheWell => "the-well",
            Self::Netcdf => "netcdf",
            Self::Vtkhdf => "vtkhdf",
            Self::Xdmf => "xdmf",
        })
    }
}

impl FromStr for OutputLayout {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self, DataError> {
        let known = Self::ALL.into_iter().find(|layout| layout.to_string() == text);
        let needed = || format!("one of {}", listed(&Self::ALL.map(|layout| layout.to_string())));
        known.ok_or_else(|| DataError::argument("the layout", format!("`{text}`"), needed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_found_by_their_names() {
        for layout in OutputLayout::ALL {
            assert_eq!(layout.to_string().parse::<OutputLayout>().ok(), Some(layout));
        }
        assert!("vtk".parse::<OutputLayout>().is_err());
    }
}
