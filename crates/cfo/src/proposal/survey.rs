//! FileSurvey of a file: what a proposal needs, at a bounded cost.

use cfo_data::store::TrajectoryFile;
use cfo_data::{
    ChannelNoise, DataError, Description, FieldShape, InputNames, SamplingAudit, Split, TimeDependence,
    Verdict, deviation_of_file, noise_of_file,
};
use cfo_numerics::TimeGrid;
use cfo_numerics::metric::correlation_per_time;

use crate::operator::Setting;
use crate::recipe::ControlKind;

/// Largest numbers of trajectories, and of intervals of each, whose speeds are measured.
const SAMPLED: [usize; 2] = [64, 16];

/// Largest number of trajectories whose parameters are compared.
const COMPARED: usize = 1000;

/// Smallest ratio between long and short intervals of uneven times; a tenth of the intervals is longer, a tenth shorter.
const UNEVEN: f64 = 3.0;

/// Largest unexplained share of the velocity's variance at which state and time explain the velocity.
const EXPLAINED: f64 = 0.1;

/// Factor by which an interpolation of controls must leave less unexplained than straight lines to be chosen.
const CLEARLY: f64 = 0.8;

/// Largest correlation of interval lengths with the speed of the field at which times follow the field. Random times have about a tenth of
/// it.
const FOLLOWING: f64 = -0.25;

/// Properties of a file.
pub(super) struct FileSurvey {
    pub shape: FieldShape,
    pub periodic: Vec<bool>,
    /// Names of the parameters and the controls.
    pub inputs: InputNames,
    channels: Vec<String>,
    varying: bool,
    /// Number of training trajectories and of their snapshots.
    pub trajectories: usize,
    pub snapshots: usize,
    pub audit: SamplingAudit,
    pub dependence: Option<TimeDependence>,
    /// What the controls explain, if there are any.
    pub controls: Option<ControlSurvey>,
    /// Noise of each channel.
    pub noise: Vec<ChannelNoise>,
    pub pace: Pace,
}

impl FileSurvey {
    pub fn new(file: &TrajectoryFile) -> Result<Self, DataError> {
        let description = file.description();
        let training = training(file);
        let mut snapshots = 0;
        for &trajectory in &training {
            snapshots += file.frame_count(trajectory)?;
        }
        let first = file.inputs(training[0])?.parameters;
        let mut varying = false;
        for i in every(training.len(), COMPARED) {
            varying = varying || file.inputs(training[i])?.parameters != first;
        }
        let (deviation, noise, audit) = audit(file)?;
        let noisy = noise.iter().any(ChannelNoise::matters);
        let fit = |controls| TimeDependence::new(file, &training, noisy, controls);
        let (mut dependence, mut controls) = (fit(None)?, None);
        if !description.inputs.controls.is_empty() {
            let mut fits = Vec::new();
            for kind in [ControlKind::Linear, ControlKind::Hold, ControlKind::Spline] {
                fits.extend(fit(kind.interpolation())?.map(|fit| (kind, fit)));
            }
            let without = dependence.take();
            controls = Some(ControlSurvey::new(without, fits, &mut dependence));
        }
        Ok(Self {
            shape: description.shape,
            periodic: description.periodic.clone(),
            inputs: description.inputs.clone(),
            channels: channel_names(description),
            varying,
            trajectories: training.len(),
            snapshots,
            audit,
            dependence,
            controls,
            noise,
            pace: Pace::new(file, &training, &deviation)?,
        })
    }

    /// Returns whether PDE parameters are inputs of the network.
    pub fn conditioned(&self) -> bool {
        !self.inputs.parameters.is_empty() && self.varying
    }

    /// Returns the shapes that the network is built for.
    pub fn setting(&self) -> Setting {
        let parameters = if self.conditioned() { self.inputs.parameters.len() } else { 0 };
        let own = Setting::new(self.shape, &self.periodic, parameters + self.inputs.controls.len());
        Setting { inputs: own.inputs + self.inputs.statics.len(), ..own }
    }

    /// Returns whether time is an input of the network, and the reason. One trajectory is little evidence: after its end the network
    /// extrapolates in time.
    pub fn time(&self) -> (bool, String) {
        let is_single = self.trajectories == 1;
        let Some(found) = &self.dependence else {
            return match is_single {
                true => (
                    false,
                    "one trajectory: a network with time as an input cannot predict past its end".into(),
                ),
                false => (true, "too few snapshots to tell whether the velocity depends on time".into()),
            };
        };
        let percent = |share: f64| format!("{:.2} %", 100.0 * share);
        let (without, with) = (percent(found.without_time), percent(found.with_time));
        let fits =
            format!("a fit leaves {without} of its variance unexplained without time, {with} with time");
        match found.is_explicit() {
            true if is_single && found.with_time > EXPLAINED => {
                (false, format!("one trajectory, and time explains too little of the velocity: {fits}"))
            }
            true if is_single => (
                true,
                format!(
                    "the velocity depends on time: {fits}. Predictions past the end of the record extrapolate in time"
                ),
            ),
            true => (true, format!("the velocity depends on time: {fits}")),
            false => (false, format!("time does not help to predict the velocity: {fits}")),
        }
    }

    /// Returns warnings about the data that no choice of a recipe avoids.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = sampling_warnings(&self.audit, &self.noise, &self.channels);
        warnings.extend(self.undetermined());
        warnings
    }

    /// Returns a warning if a fit cannot predict the velocity.
    fn undetermined(&self) -> Option<String> {
        let found = self.dependence.as_ref()?;
        let channels = found
            .undetermined()
            .filter(|&(channel, _)| !self.noise.get(channel).is_some_and(|noise| noise.stepwise));
        let shares: Vec<String> = channels
            .map(|(channel, share)| format!("{:.0} % for `{}`", 100.0 * share, self.channels[channel]))
            .collect();
        if shares.is_empty() {
            return None;
        }
        let shares = shares.join(", ");
        let also = match self.shape.axes() {
            0 => "",
            _ => ", a law that involves more than neighbouring points",
        };
        Some(format!(
            "the state may not determine its velocity: a fit leaves much of the variance unexplained ({shares}). Possible causes: a hidden \
             variable, an input that is not in the file, a delay, noise, times that are too sparse{also}. Add what is missing as a channel or \
             a parameter, known inputs as `controls`; earlier values of a channel can stand for a hidden one"
        ))
    }

    /// Returns a description of the file in one sentence.
    pub fn summary(&self) -> String {
        let sides: Vec<String> = self.shape.dimensions().iter().map(ToString::to_string).collect();
        let (last, space) = sides.split_last().map_or(("", &[][..]), |(last, space)| (last.as_str(), space));
        let space = if space.is_empty() { String::new() } else { format!("{} points, ", space.join(" x ")) };
        let plural = if last == "1" { "" } else { "s" };
        format!(
            "{} training trajectories, {} snapshots, {space}{last} channel{plural}.",
            self.trajectories, self.snapshots
        )
    }
}

/// What the controls of a file explain.
pub(super) struct ControlSurvey {
    /// How they are defined between their times: the kind with the best fit.
    pub kind: ControlKind,
    /// Unexplained shares of the velocity's variance, without and with the controls, if there are enough snapshots.
    pub unexplained: Option<[f64; 2]>,
}

impl ControlSurvey {
    /// Compares fits without controls and with each kind of them. Another kind than linear must be clearly better. The best fit becomes the
    /// `dependence` of the file.
    fn new(
        without: Option<TimeDependence>,
        fits: Vec<(ControlKind, TimeDependence)>,
        dependence: &mut Option<TimeDependence>,
    ) -> Self {
        let cost = |(kind, fit): &(ControlKind, TimeDependence)| {
            fit.unexplained() * if *kind == ControlKind::Linear { CLEARLY } else { 1.0 }
        };
        let best = fits.into_iter().min_by(|one, other| cost(one).total_cmp(&cost(other)));
        let Some((kind, best)) = best else { return Self { kind: ControlKind::Linear, unexplained: None } };
        let unexplained = without.map(|without| [without.unexplained(), best.unexplained()]);
        *dependence = Some(best);
        Self { kind, unexplained }
    }
}

/// Returns warnings about times that are too sparse for any spline, and about channels that no spline suits.
fn sampling_warnings(audit: &SamplingAudit, noise: &[ChannelNoise], names: &[String]) -> Vec<String> {
    let mut warnings = Vec::new();
    let noisy = noise.iter().any(ChannelNoise::matters);
    if let (Some(Verdict::TooSparse), Some(best)) = (audit.verdict(noisy), audit.recommended()) {
        let share = 100.0 * best.curve_error;
        warnings.push(format!(
            "the times are too sparse for a spline: left-out snapshots are interpolated with an error of {share:.0} % of the standard deviation. \
             Without `refine.rounds` the network learns velocities with errors of that size; take snapshots more often where the state changes fast"
        ));
    }
    let steps = noise.iter().zip(names).filter(|(noise, _)| noise.stepwise);
    warnings.extend(steps.map(|(_, name)| {
        format!(
            "channel `{name}` is piecewise constant, as a control or another input is. The state does not determine its \
             steps: store it in `controls`, with its times in `control_times`, instead of among the channels"
        )
    }));
    warnings
}

/// Returns warnings about the times of a file and about channels that splines do not suit. The cost is bounded.
///
/// # Errors
/// If the file cannot be read.
pub fn warnings_of_file(file: &TrajectoryFile) -> Result<Vec<String>, DataError> {
    let (_, noise, audit) = audit(file)?;
    Ok(sampling_warnings(&audit, &noise, &channel_names(file.description())))
}

/// Returns the standard deviation and the noise of each channel, and the audit of the times.
fn audit(file: &TrajectoryFile) -> Result<(Vec<f64>, Vec<ChannelNoise>, SamplingAudit), DataError> {
    let deviation = deviation_of_file(file)?;
    let noise = noise_of_file(file, &deviation)?;
    let certain: Vec<f64> = noise.iter().map(ChannelNoise::certain).collect();
    let audit = SamplingAudit::new(file, &deviation, &certain)?;
    Ok((deviation, noise, audit))
}

/// Returns the names of the channels; numbers if the file has no names.
fn channel_names(description: &Description) -> Vec<String> {
    let name = |channel: usize| {
        description.channel_names.get(channel).cloned().unwrap_or_else(|| channel.to_string())
    };
    (0..description.shape.channels).map(name).collect()
}

/// Returns the training trajectories: those of the file's split, or else the first 80 %.
fn training(file: &TrajectoryFile) -> Vec<usize> {
    let marked: Vec<usize> = (0..file.len()).filter(|&i| file.split(i) == Some(Split::Train)).collect();
    if marked.is_empty() { (0..(file.len() * 4).div_ceil(5)).collect() } else { marked }
}

/// Returns at most `most` of the numbers below `count`, evenly spread.
fn every(count: usize, most: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(count.div_ceil(most).max(1))
}

/// The distribution of the snapshots in time.
pub(super) struct Pace {
    /// Lengths of intervals: a tenth of all intervals is shorter than the first, and a tenth is longer than the second.
    pub intervals: [f64; 2],
    /// Whether snapshots are denser where the field is faster, as the steps of an adaptive solver are.
    pub follows_the_field: bool,
}

impl Pace {
    fn new(file: &TrajectoryFile, training: &[usize], deviation: &[f64]) -> Result<Self, DataError> {
        let mut looked_at = Vec::new();
        for i in every(training.len(), SAMPLED[0]) {
            looked_at.push((training[i], file.times(training[i])?));
        }
        let gaps = |times: &[f64]| -> Vec<f64> { times.windows(2).map(|pair| pair[1] - pair[0]).collect() };
        let mut lengths: Vec<f64> = looked_at.iter().flat_map(|(_, times)| gaps(times)).collect();
        lengths.sort_by(f64::total_cmp);
        let at = |share: f64| lengths.get((share * lengths.len() as f64) as usize).copied().unwrap_or(1.0);
        let [short, long] = [at(0.1), at(0.9)];
        // Values are read only if the times are uneven.
        let follows_the_field = long >= UNEVEN * short && {
            let (lengths, speeds): (Vec<f64>, Vec<f64>) =
                paces(file, &looked_at, deviation)?.into_iter().unzip();
            !lengths.is_empty() && correlation_per_time(&lengths, &speeds, 1)[0] <= FOLLOWING
        };
        Ok(Self { intervals: [short, long], follows_the_field })
    }
}

/// Returns the logarithms of the lengths of some intervals and of the speeds over them.
fn paces(
    file: &TrajectoryFile,
    looked_at: &[(usize, TimeGrid)],
    deviation: &[f64],
) -> Result<Vec<(f64, f64)>, DataError> {
    let mut paces = Vec::new();
    for (trajectory, times) in looked_at {
        for frame in every(times.len().saturating_sub(1), SAMPLED[1]) {
            let values = file.frames(*trajectory, &[frame, frame + 1])?;
            let (before, after) = values.split_at(values.len() / 2);
            let change = |((before, after), deviation): ((&f32, &f32), &f64)| {
                (f64::from(after - before) / deviation).powi(2)
            };
            let square: f64 = before.iter().zip(after).zip(deviation.iter().cycle()).map(change).sum();
            let length = times[frame + 1] - times[frame];
            paces.push((length.ln(), 0.5 * square.ln() - length.ln()));
        }
    }
    // The logarithm of the speed of a constant field is not finite.
    paces.retain(|(length, speed)| length.is_finite() && speed.is_finite());
    Ok(paces)
}
