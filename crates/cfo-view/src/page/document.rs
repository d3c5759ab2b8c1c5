//! The data of a page, as its script reads them.

use serde::Serialize;

use super::encode::EncodedBlock;

/// The data of a page. The script reads them as JSON.
#[derive(Debug, Default, Serialize)]
pub struct PageDocument {
    /// The version of `cfo`.
    pub version: &'static str,
    /// The title of the page.
    pub title: String,
    /// Trajectories and predictions.
    pub field: Option<PageField>,
    /// A run: its training and its evaluation.
    pub run: Option<RunPart>,
    /// Notes on omitted and rounded data.
    pub notes: Vec<String>,
    /// Whether `cfo serve` serves the page.
    pub live: bool,
}

/// Trajectories, with predictions of them.
#[derive(Debug, Serialize)]
pub struct PageField {
    pub system: String,
    /// Points shown along each space axis.
    pub sides: Vec<usize>,
    /// Points of the source along each axis; every `stride`-th of them is shown.
    pub source: Vec<usize>,
    pub stride: usize,
    pub domain: Vec<[f64; 2]>,
    pub periodic: Vec<bool>,
    pub channels: Vec<PageChannel>,
    pub parameters: Vec<String>,
    pub trajectories: Vec<PageTrajectory>,
    /// Lists of times that tracks refer to.
    pub times: Vec<Vec<f64>>,
    /// The truth first, then predictions.
    pub files: Vec<PageFile>,
}

#[derive(Debug, Serialize)]
pub struct PageChannel {
    pub name: String,
    pub unit: String,
    /// Offset of the channel: the page stores values minus this number.
    pub offset: f64,
}

#[derive(Debug, Serialize)]
pub struct PageTrajectory {
    /// Index in the first file.
    pub index: usize,
    pub split: Option<String>,
    pub parameters: Vec<f64>,
}

/// A file, with its track for each trajectory.
#[derive(Debug, Serialize)]
pub struct PageFile {
    pub label: String,
    /// The track of each trajectory, if the file has one.
    pub tracks: Vec<Option<PageTrack>>,
}

#[derive(Debug, Serialize)]
pub struct PageTrack {
    /// Index of the list of times.
    pub times: usize,
    /// Whether the blocks store differences from the first file at the same times.
    pub difference: bool,
    /// The numbers of each channel.
    pub blocks: Vec<EncodedBlock>,
    /// Relative L2 error at each time over all channels and points of the source, if the first file has that time.
    pub errors: Option<Vec<Option<f64>>>,
}

/// The contents of a run's folder.
#[derive(Debug, Serialize)]
pub struct RunPart {
    /// The name of the folder.
    pub name: String,
    /// Names and values of a table about the run.
    pub facts: Vec<[String; 2]>,
    /// The log of the training.
    pub history: Vec<TrainingPoint>,
    /// Names and numbers of the evaluation.
    pub metrics: Vec<[String; 2]>,
    /// Time, mean and worst relative L2 error.
    pub per_time: Vec<[f64; 3]>,
    /// Index and relative L2 error of each trajectory; none if it diverged.
    pub per_trajectory: Vec<(usize, Option<f64>)>,
    /// Figures of the evaluation: name and `data:` address.
    pub figures: Vec<[String; 2]>,
}

/// A report of training.
#[derive(Debug, Serialize)]
pub struct TrainingPoint {
    pub step: u32,
    pub loss: f64,
    pub learning_rate: f64,
    pub validation: Option<f64>,
}
