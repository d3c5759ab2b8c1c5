//! Arguments of `export`, `view` and `serve`.

use std::path::PathBuf;

use cfo_data::store::OutputLayout;
use clap::{Args, ValueEnum};

/// Convert a trajectory file for another program: ParaView, xarray, NumPy, PDEBench, The Well
#[derive(Debug, Args)]
pub struct Export {
    /// HDF5 or `.npz`; the layout is recognised by the content
    pub file: PathBuf,
    /// File to write; the extension selects the layout: `.vtkhdf`, `.xdmf` (with an `.h5` beside it), `.nc`, `.npz`, `.h5`
    #[arg(long, value_name = "X")]
    pub out: PathBuf,
    /// Layout to write, whatever the extension
    #[arg(long, value_enum, value_name = "LAYOUT")]
    pub to: Option<ExportLayout>,
    /// Only this trajectory, counted from 0; may be repeated
    #[arg(long, value_name = "I")]
    pub trajectory: Vec<usize>,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document alone on stdout
    #[arg(long)]
    pub json: bool,
}

/// An output layout.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ExportLayout {
    /// One trajectory as an image over time, for ParaView
    Vtkhdf,
    /// An XML file for ParaView and others beside an HDF5 file of our layout
    Xdmf,
    /// NetCDF-4 with CF axes, for xarray
    Netcdf,
    /// NumPy's archive
    Npz,
    /// Our HDF5 layout
    Cfo,
    /// What PDEBench's loaders read
    Pdebench,
    /// What The Well's loader reads
    TheWell,
}

impl From<ExportLayout> for OutputLayout {
    fn from(layout: ExportLayout) -> Self {
        match layout {
            ExportLayout::Vtkhdf => Self::Vtkhdf,
            ExportLayout::Xdmf => Self::Xdmf,
            ExportLayout::Netcdf => Self::Netcdf,
            ExportLayout::Npz => Self::Npz,
            ExportLayout::Cfo => Self::Cfo,
            ExportLayout::Pdebench => Self::Pdebench,
            ExportLayout::TheWell => Self::TheWell,
        }
    }
}

/// Make an HTML page that shows trajectory files, predictions and a run
#[derive(Debug, Args)]
pub struct View {
    /// Trajectory files: the truth first, then predictions of it. The folder of a run adds its training curves and its
    /// evaluation; with a single file it adds the run's predictions of that file
    #[arg(required = true, value_name = "FILE|RUN")]
    pub paths: Vec<PathBuf>,
    /// Page to write
    #[arg(long, value_name = "PAGE.html")]
    pub out: PathBuf,
    /// Only this trajectory of the first file, counted from 0; may be repeated
    #[arg(long, value_name = "I")]
    pub trajectory: Vec<usize>,
    /// Title of the page [default: the names of what it shows]
    #[arg(long)]
    pub title: Option<String>,
    /// Replace the page if it exists
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document alone on stdout
    #[arg(long)]
    pub json: bool,
}

/// Serve a run over HTTP: a page with predictions to any time, and an API for scripts
#[derive(Debug, Args)]
pub struct Serve {
    /// Folder of a run
    pub run: PathBuf,
    /// Trajectories to start from and to compare with [default: those that the run was trained on]
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Port [default: 8421, or a free one if that is taken]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Address to listen on; any other than a loopback address needs `--token`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: String,
    /// Token that every request must carry; at least 8 letters, digits, `-` or `_`
    #[arg(long)]
    pub token: Option<String>,
    /// `auto`, `cpu` or `cuda:N`
    #[arg(long, default_value = "auto")]
    pub device: String,
}
