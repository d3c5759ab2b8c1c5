//! Between the user's units and the network's: values, times and velocities, measured on what training sees.

use cfo_data::{ChangeProducts, Normalization, Statistics};
use cfo_numerics::metric::Summary;
use cfo_numerics::{Energy, Path};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::error::{CfoError, Result};
use crate::profile::{Profile, ProfileSums};
use crate::recipe::{ObjectiveConfig, Recipe};
use crate::selection::Selection;
use crate::smoothing::Denoiser;
use crate::trajectories::TrajectorySet;

/// How the values of each channel are shifted and scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Normalize {
    /// To mean 0 and deviation 1.
    #[default]
    Standard,
    /// Least and greatest value to 0 and 1.
    Range,
    /// Not at all.
    None,
}

impl Normalize {
    const NAMES: [&'static str; 3] = ["standard", "range", "none"];
}

impl<'de> Deserialize<'de> for Normalize {
    /// By name; `true` and `false` are what earlier recipes say for `standard` and `none`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Normalize;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "`standard`, `range` or `none`")
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> std::result::Result<Normalize, E> {
                Ok(if value { Normalize::Standard } else { Normalize::None })
            }

            fn visit_str<E: de::Error>(self, value: &str) -> std::result::Result<Normalize, E> {
                match value {
                    "standard" => Ok(Normalize::Standard),
                    "range" => Ok(Normalize::Range),
                    "none" => Ok(Normalize::None),
                    other => Err(E::unknown_variant(other, &Normalize::NAMES)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Between the user's units and the network's. Everything is measured on the snapshots that training sees: after dropping
/// the first one and after thinning, where the recipe says so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// What is subtracted from each channel: its mean, or its least value if it is scaled to a range.
    pub mean: Vec<f64>,
    /// What each channel is divided by: its deviation, or its range.
    pub deviation: Vec<f64>,
    /// Root mean square of the change between neighbouring snapshots of each channel, in normalised units.
    pub change: Vec<f64>,
    /// Root mean square of the path's velocity of each channel, in normalised units, by which the network's output is
    /// multiplied. Empty where it is not: in runs of earlier versions, if the recipe turns it off, and for other objectives.
    #[serde(default)]
    pub velocity: Vec<f64>,
    /// How the velocity's size changes over time, where the recipe asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Time that becomes 0: the first that training sees.
    pub start: f64,
    /// Time that becomes one unit: from the first to the last that training sees; for a network that is not told the
    /// time, the longest trajectory.
    pub span: f64,
    /// Time from `start` to the last that training sees; 0 in runs of earlier versions, where it is `span`.
    #[serde(default)]
    pub duration: f64,
    /// Mean time between neighbouring snapshots before thinning, in the user's units; 0 in runs of earlier versions.
    #[serde(default)]
    pub interval: f64,
    /// Mean and deviation of each PDE parameter.
    pub conditions: Vec<[f64; 2]>,
}

impl Scaling {
    /// From the training trajectories; `timed` says whether the network is told the time.
    ///
    /// # Errors
    /// If there are none, or they span no time, or cannot be read.
    pub(crate) fn measure(
        recipe: &Recipe,
        set: &TrajectorySet,
        timed: bool,
        denoiser: Option<&Denoiser>,
    ) -> Result<Self> {
        let selections = Selection::of_set(recipe, set)?;
        let times = Times::of(&selections, set)?;
        let path = match recipe.objective {
            ObjectiveConfig::FlowMatching => recipe.path.path()?,
            ObjectiveConfig::Autoregressive { .. } => LINE,
        };
        let measured = Measured::of(&selections, (set, denoiser), path, &times)?;
        let Normalization { mean, deviation } = match recipe.data.normalize {
            Normalize::Standard => measured.values.normalization(),
            Normalize::Range => measured.values.range_normalization(),
            Normalize::None => Normalization::identity(set.description.shape.channels),
        };
        let span = if timed { times.duration } else { times.longest };
        let moves = measured.moves();
        let relative = |roots: Vec<f64>, unit: f64| -> Vec<f64> {
            let scaled = roots.iter().zip(&deviation).map(|(root, deviation)| root * unit / deviation);
            scaled.zip(&moves).map(|(scale, &moves)| if moves { scale } else { 1.0 }).collect()
        };
        let change = relative(measured.change(), 1.0);
        let matches = recipe.objective == ObjectiveConfig::FlowMatching;
        let velocity = match matches && recipe.path.scale_velocity {
            true => relative(measured.velocity(), span),
            false => Vec::new(),
        };
        let conditions = (0..set.description.parameter_names.len())
            .map(|p| {
                let of = |selection: &Selection| set.trajectories[selection.trajectory].parameters[p];
                let Summary { mean, deviation, .. } =
                    Summary::of(&selections.iter().map(of).collect::<Vec<f64>>());
                [mean, if deviation > 0.0 { deviation } else { 1.0 }]
            })
            .collect();
        let profile = matches && recipe.path.time_balance.is_some();
        let profile = profile.then(|| measured.profile.profile());
        let Times { start, duration, interval, .. } = times;
        Ok(Self { profile, mean, deviation, change, velocity, start, span, duration, interval, conditions })
    }

    /// A time in the network's units.
    pub fn time(&self, time: f64) -> f64 {
        (time - self.start) / self.span
    }

    /// The last time that training sees.
    pub fn last(&self) -> f64 {
        self.start + if self.duration > 0.0 { self.duration } else { self.span }
    }

    /// Values in the network's units.
    pub fn normalize(&self, values: &[f32]) -> Vec<f32> {
        self.each(values, |value, mean, deviation| (value - mean) / deviation)
    }

    /// Values in the user's units.
    pub fn restore(&self, values: &[f32]) -> Vec<f32> {
        self.each(values, |value, mean, deviation| value * deviation + mean)
    }

    /// The same as [`Self::normalize`] into a place of its own.
    pub(crate) fn normalize_into(&self, values: &[f32], to: &mut [f32]) {
        let channels = self.mean.len();
        for (i, (to, &value)) in to.iter_mut().zip(values).enumerate() {
            let channel = i % channels;
            *to = ((f64::from(value) - self.mean[channel]) / self.deviation[channel]) as f32;
        }
    }

    fn each(&self, values: &[f32], map: impl Fn(f64, f64, f64) -> f64) -> Vec<f32> {
        let channels = self.mean.len();
        let scaled = values.iter().enumerate().map(|(i, &value)| {
            let channel = i % channels;
            map(f64::from(value), self.mean[channel], self.deviation[channel]) as f32
        });
        scaled.collect()
    }
}

/// A path whose only products are the squares of the changes.
const LINE: Path = Path { spline: cfo_numerics::Spline::Linear, stencil: 2 };

/// What the times of a training set say.
struct Times {
    start: f64,
    duration: f64,
    longest: f64,
    interval: f64,
}

impl Times {
    fn of(selections: &[Selection], set: &TrajectorySet) -> Result<Self> {
        let (mut start, mut end) = (f64::INFINITY, f64::NEG_INFINITY);
        let (mut longest, mut lengths, mut intervals) = (0.0_f64, 0.0, 0);
        for selection in selections {
            let times = &set.trajectories[selection.trajectory].times[selection.first..];
            let (first, last) = (times[0], times[times.len() - 1]);
            (start, end) = (start.min(first), end.max(last));
            longest = longest.max(last - first);
            lengths += last - first;
            intervals += times.len() - 1;
        }
        let duration = end - start;
        if selections.is_empty() || !(longest > 0.0 && duration.is_finite()) {
            return Err(CfoError::BadData {
                problem: format!("{} training trajectories span no time", selections.len()),
                hint: "`cfo inspect` shows times and splits".into(),
            });
        }
        Ok(Self { start, duration, longest, interval: lengths / intervals as f64 })
    }
}

/// What one pass over the values finds, in the user's units. A sample of training comes from every trajectory and every time of it
/// alike, so changes and velocities are averaged over each trajectory first.
struct Measured {
    values: Statistics,
    /// Sums over trajectories of the mean squared change and of the mean squared velocity of each channel.
    change: Vec<f64>,
    velocity: Vec<f64>,
    profile: ProfileSums,
    trajectories: usize,
}

impl Measured {
    /// Trajectories are read in parallel, as many at a time as there are threads, and joined in their order.
    fn of(
        selections: &[Selection],
        (set, denoiser): (&TrajectorySet, Option<&Denoiser>),
        path: Path,
        horizon: &Times,
    ) -> Result<Self> {
        let channels = set.description.shape.channels;
        let each: Vec<Self> = selections
            .par_iter()
            .map_init(
                || None,
                |known, selection| Self::of_trajectory(selection, (set, denoiser), (path, horizon), known),
            )
            .collect::<Result<_>>()?;
        let mut all = Self {
            values: Statistics::new(channels),
            change: vec![0.0; channels],
            velocity: vec![0.0; channels],
            profile: ProfileSums::new(channels),
            trajectories: each.len(),
        };
        for one in each {
            all.values.merge(&one.values);
            all.profile.merge(&one.profile);
            for (sums, found) in [(&mut all.change, one.change), (&mut all.velocity, one.velocity)] {
                sums.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
            }
        }
        Ok(all)
    }

    /// `known` keeps the weights of the times seen last, which most often are those of all trajectories.
    fn of_trajectory(
        selection: &Selection,
        (set, denoiser): (&TrajectorySet, Option<&Denoiser>),
        (path, horizon): (Path, &Times),
        known: &mut Option<(Vec<f64>, Energy)>,
    ) -> Result<Self> {
        let shape = set.description.shape;
        let (channels, size) = (shape.channels, shape.len());
        let snapshots = selection.snapshots(set, denoiser)?;
        let mut values = Statistics::new(channels);
        values.add(&snapshots);
        let times = selection.times(&set.trajectories[selection.trajectory].times);
        let reach = Energy::reach(path, times.len());
        let products = ChangeProducts::new(snapshots.chunks(size), channels, reach);
        let energy = match known {
            Some((seen, energy)) if *seen == times => energy,
            _ => &mut known.insert((times.clone(), Energy::new(path, &times))).1,
        };
        let of_channels = |of: &dyn Fn(usize) -> f64| -> Vec<f64> { (0..channels).map(of).collect() };
        let changes = products.len() as f64;
        let change =
            |channel: usize| (0..products.len()).map(|j| products.mean(j, 0, channel)).sum::<f64>() / changes;
        let velocity = |channel: usize| energy.mean_square(|j, offset| products.mean(j, offset, channel));
        let (change, velocity) = (of_channels(&change), of_channels(&velocity));
        let mut profile = ProfileSums::new(channels);
        for (j, pair) in times.windows(2).enumerate() {
            let [from, to] = [pair[0], pair[1]].map(|time| (time - horizon.start) / horizon.duration);
            profile.add([from, to], |channel| products.mean(j, 0, channel) / (to - from).powi(2));
        }
        Ok(Self { values, change, velocity, profile, trajectories: 1 })
    }

    fn change(&self) -> Vec<f64> {
        self.roots(&self.change)
    }

    fn velocity(&self) -> Vec<f64> {
        self.roots(&self.velocity)
    }

    fn roots(&self, sums: &[f64]) -> Vec<f64> {
        sums.iter().map(|sum| (sum / self.trajectories.max(1) as f64).sqrt()).collect()
    }

    /// Which channels change by more than the rounding of single precision.
    fn moves(&self) -> Vec<bool> {
        let means = self.values.normalization().mean;
        let resolved = |(change, mean): (f64, f64)| change > mean.abs() * f64::from(f32::EPSILON) * 0.25;
        self.change().into_iter().zip(means).map(resolved).collect()
    }
}
