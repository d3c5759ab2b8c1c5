//! Arguments of `export`, `view` and `serve`.

use std::path::PathBuf;

use cfo_data::store::OutputLayout;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Convert a trajectory file to the format of another program: ParaView, xarray, NumPy, PDEBench, The Well
#[derive(Debug, Args)]
pub struct Export {
    /// Trajectory file: HDF5 or `.npz`; the layout is recognised by the content
    pub file: PathBuf,
    /// File to write; the extension selects the layout: `.vtkhdf`, `.xdmf` (with an `.h5` beside it), `.nc`, `.npz`, `.h5`
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Layout to write, instead of the one that the extension selects
    #[arg(long, value_name = "LAYOUT", value_parser = layouts())]
    pub to: Option<OutputLayout>,
    /// Write only this trajectory, counted from 0; may be repeated
    #[arg(long, value_name = "I")]
    pub trajectory: Vec<usize>,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

/// The layouts of `--to`, with their help.
const LAYOUTS: [(&str, OutputLayout, &str); 7] = [
    ("vtkhdf", OutputLayout::Vtkhdf, "One trajectory as an image over time, for ParaView"),
    (
        "xdmf",
        OutputLayout::Xdmf,
        "An XML file for ParaView and others, with the numbers in an HDF5 file of the layout `cfo`",
    ),
    ("netcdf", OutputLayout::Netcdf, "NetCDF-4 with CF axes, for xarray"),
    ("npz", OutputLayout::Npz, "A NumPy archive"),
    ("cfo", OutputLayout::Cfo, "HDF5, as `cfo simulate` writes it"),
    ("pdebench", OutputLayout::Pdebench, "HDF5 for the loaders of PDEBench"),
    ("the-well", OutputLayout::TheWell, "HDF5 for the loader of The Well"),
];

fn layouts() -> impl TypedValueParser<Value = OutputLayout> {
    let known = LAYOUTS.map(|(name, _, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(known).map(|name| {
        let (_, layout, _) = LAYOUTS.iter().find(|(known, ..)| *known == name).expect("a possible value");
        *layout
    })
}

/// Write an HTML page that shows trajectory files, predictions and a run
#[derive(Debug, Args)]
pub struct ViewPage {
    /// Trajectory files: first the data, then predictions of them. The folder of a run adds its training curves and its
    /// evaluation, and with a single file the run's predictions of that file
    #[arg(required = true, value_name = "FILE|RUN")]
    pub paths: Vec<PathBuf>,
    /// Page to write
    #[arg(long, value_name = "PAGE.html")]
    pub out: PathBuf,
    /// Show only this trajectory of the first file, counted from 0; may be repeated
    #[arg(long, value_name = "I")]
    pub trajectory: Vec<usize>,
    /// Title of the page [default: the names of the files and the run]
    #[arg(long)]
    pub title: Option<String>,
    /// Replace the page if it exists
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

/// Serve a run over HTTP: a page with predictions at any time, and an API for scripts
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// Folder of a run
    pub run: PathBuf,
    /// Trajectories to start predictions from and to compare them with [default: the data of the run]
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Port [default: 8421, or a free port if 8421 is in use]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Address to listen on; all but loopback addresses need `--token`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: String,
    /// Token that every request must contain: at least 8 letters, digits, `-` or `_`
    #[arg(long)]
    pub token: Option<String>,
    /// Device: `auto`, `cpu` or `cuda:N`
    #[arg(long, default_value = "auto")]
    pub device: String,
}
