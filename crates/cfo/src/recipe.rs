//! The recipe of a run: one TOML file, every key with a default that is the paper's.

use std::path::PathBuf;
use std::str::FromStr;

use cfo_device::Device;
use cfo_engine::{AdamConfig, Precision, Schedule};
use cfo_numerics::{NoiseSchedule, Path, Spline};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::operator::OperatorConfig;
use crate::partition::Portions;
use crate::scaling::Normalize;
use crate::smoothing::Smoothing;

/// Everything that a run depends on besides its data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// Where trajectories come from and what is kept of them.
    pub data: DataConfig,
    /// The spline and its noise.
    pub path: PathConfig,
    /// The network.
    pub operator: OperatorConfig,
    /// What the network is trained for.
    pub objective: ObjectiveConfig,
    /// The training loop.
    pub train: TrainConfig,
    /// How a trained network is integrated.
    pub evaluate: EvaluateConfig,
}

/// Where trajectories come from and what is kept of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// A trajectory file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// A system to simulate instead: `lorenz`, `burgers`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulate: Option<String>,
    /// Trajectories to simulate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
    /// Share of each training trajectory's snapshots that is kept, drawn at random, both ends always.
    pub keep_rate: f64,
    /// Whether each trajectory's first snapshot is dropped.
    pub drop_first: bool,
    /// Trajectories for training, validation and test: counts as `[900, 50, 50]` or shares as `[0.8, 0.1, 0.1]`; by default what
    /// the file says, else 80, 10 and 10 %. With one or two trajectories the last fifth of their times is held out instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Portions>,
    /// Whether trajectories are shuffled before they are split, rather than taken in the order of the file.
    pub shuffle: bool,
    /// Seed of the data: of a simulation, of thinning and of the shuffle; by default that of the training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How each channel is shifted and scaled: `standard` to mean 0 and deviation 1 of what training sees, `range` to
    /// [0, 1], `none` not at all.
    pub normalize: Normalize,
    /// Whether the network is given each trajectory's PDE parameters.
    pub condition: bool,
    /// Whether the snapshots of a batch are gathered ahead of the step that needs them, from the file if there is one,
    /// instead of keeping all on the device; by default where they do not fit. The batches are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            path: None,
            simulate: None,
            samples: None,
            keep_rate: 1.0,
            drop_first: false,
            split: None,
            shuffle: false,
            seed: None,
            normalize: Normalize::Standard,
            condition: false,
            stream: None,
        }
    }
}

/// The spline and its noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PathConfig {
    /// `linear`, `cubic` or `quintic`.
    pub spline: String,
    /// Snapshots that estimate the derivatives at a knot.
    pub stencil: usize,
    /// Whether the network's output is multiplied by the root mean square of the path's velocity, channel by channel, and the loss
    /// taken in its units.
    pub scale_velocity: bool,
    /// Where set, the output is also multiplied by how fast things change at each time, and the loss counts an error in units of
    /// that speed to this power: 0 counts errors alike at all times, 1 relative to the speed at their time. For networks that see the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_balance: Option<f64>,
    /// Noise that is taken off the training snapshots before the path is laid through them: `none`, `auto` for as much as is
    /// found in each channel, or its deviation as a share of each channel's.
    pub smoothing: Smoothing,
    /// The noise between knots.
    pub noise: NoiseConfig,
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            spline: "quintic".into(),
            stencil: 3,
            scale_velocity: true,
            time_balance: None,
            smoothing: Smoothing::None,
            noise: NoiseConfig::default(),
        }
    }
}

impl PathConfig {
    /// The path that these keys describe.
    ///
    /// # Errors
    /// If the spline is unknown or its stencil cannot estimate what it needs.
    pub fn path(&self) -> Result<Path> {
        let invalid = |problem: String| CfoError::InvalidKey { key: "path.spline".into(), problem };
        let spline = Spline::from_str(&self.spline).map_err(|error| invalid(error.to_string()))?;
        if spline == Spline::Linear {
            return Ok(Path { spline, stencil: self.stencil });
        }
        Path::new(spline, self.stencil)
            .map_err(|error| CfoError::InvalidKey { key: "path.stencil".into(), problem: error.to_string() })
    }

    /// The noise schedule that these keys describe.
    pub fn schedule(&self) -> NoiseSchedule {
        NoiseSchedule { amplitude: self.noise.amplitude, exponent: self.noise.exponent }
    }
}

/// Amplitude and exponent of the noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NoiseConfig {
    /// Its height, in normalised units.
    pub amplitude: f64,
    /// Its exponent.
    pub exponent: u32,
}

impl Default for NoiseConfig {
    fn default() -> Self {
        Self { amplitude: 1e-5, exponent: 3 }
    }
}

/// What the network is trained for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ObjectiveConfig {
    /// To match the velocity of the spline.
    #[default]
    FlowMatching,
    /// To predict the next snapshot of a uniform grid.
    Autoregressive {
        /// Whether the change is predicted rather than the next state.
        #[serde(default)]
        residual: bool,
    },
}

impl ObjectiveConfig {
    /// Its name in recipes and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::FlowMatching => "flow-matching",
            Self::Autoregressive { .. } => "autoregressive",
        }
    }
}

/// The training loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Optimiser steps.
    pub steps: u32,
    /// Samples a step.
    pub batch: usize,
    /// Highest learning rate.
    pub learning_rate: f64,
    /// `constant`, `cosine` or `warmup`.
    pub schedule: String,
    /// Steps over which the rate rises, for `cosine` and `warmup`.
    pub warmup: u32,
    /// Adam's decay rates.
    pub betas: [f64; 2],
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Decay of the moving average of the weights, which then is what is evaluated; 0 for none.
    pub ema: f64,
    /// Global gradient norm to which gradients are clipped; 0 for none.
    pub clip: f64,
    /// `f32`, `tf32` or `bf16`; the CPU computes in `f32` whichever is named.
    pub precision: String,
    /// Whether a GPU too yields the same bits in every run, at some cost in speed. The CPU always does.
    pub deterministic: bool,
    /// Seed of the weights and of the batches, and of the data unless `data.seed` is set.
    pub seed: u64,
    /// Steps between reports.
    pub report_every: u32,
    /// Steps between validation rollouts; 0 for none before the end.
    pub validate_every: u32,
    /// Validation trajectories rolled out at most; by default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validate_trajectories: Option<usize>,
    /// Steps between checkpoints; the first comes after seconds in any case.
    pub checkpoint_every: u32,
    /// Validations in a row without a new lowest error after which training ends; 0 for all steps.
    pub patience: u32,
    /// A run whose weights are the first ones, instead of chance; its network must have the same shapes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            steps: 60_000,
            batch: 256,
            learning_rate: 1e-4,
            schedule: "constant".into(),
            warmup: 0,
            betas: [0.9, 0.99],
            weight_decay: 0.0,
            ema: 0.0,
            clip: 0.0,
            precision: "f32".into(),
            deterministic: false,
            seed: 0,
            report_every: 100,
            validate_every: 5_000,
            validate_trajectories: None,
            checkpoint_every: 1_000,
            patience: 0,
            from: None,
        }
    }
}

impl TrainConfig {
    /// The optimiser's settings.
    ///
    /// # Errors
    /// If the schedule is unknown or a number is out of range.
    pub fn adam(&self) -> Result<AdamConfig> {
        let invalid =
            |key: &str, problem: String| CfoError::InvalidKey { key: format!("train.{key}"), problem };
        let schedule = match self.schedule.as_str() {
            "constant" => Schedule::Constant,
            "warmup" => Schedule::WarmUp(self.warmup),
            "cosine" => Schedule::Cosine { warmup: self.warmup, total: self.steps, floor: 0.0 },
            other => {
                return Err(invalid(
                    "schedule",
                    format!("`{other}` is none of `constant`, `cosine`, `warmup`"),
                ));
            }
        };
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite()) {
            return Err(invalid("learning_rate", format!("{} is not a positive number", self.learning_rate)));
        }
        if self.betas.iter().any(|beta| !(0.0..1.0).contains(beta)) {
            return Err(invalid("betas", format!("{:?} must lie in [0, 1)", self.betas)));
        }
        if !(0.0..1.0).contains(&self.ema) {
            return Err(invalid("ema", format!("{} must lie in [0, 1)", self.ema)));
        }
        for (key, value) in [("weight_decay", self.weight_decay), ("clip", self.clip)] {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(invalid(key, format!("{value} must be 0 or a positive number")));
            }
        }
        let when = |value: f64| (value > 0.0).then_some(value);
        Ok(AdamConfig {
            learning_rate: self.learning_rate,
            schedule,
            betas: self.betas,
            weight_decay: self.weight_decay,
            clip: when(self.clip),
            ema: when(self.ema),
            ..AdamConfig::default()
        })
    }

    /// The precision.
    ///
    /// # Errors
    /// If it is unknown.
    pub fn precision(&self) -> Result<Precision> {
        Precision::from_str(&self.precision).map_err(|error| CfoError::InvalidKey {
            key: "train.precision".into(),
            problem: error.to_string(),
        })
    }

    /// The precision on a device: the CPU computes in `f32` where the recipe names one that only GPUs have.
    ///
    /// # Errors
    /// If it is unknown.
    pub fn precision_on(&self, device: Device) -> Result<Precision> {
        Ok(match (device, self.precision()?) {
            (Device::Cpu, Precision::Tf32 | Precision::Bf16) => Precision::F32,
            (_, precision) => precision,
        })
    }
}

/// How a trained network is integrated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluateConfig {
    /// `euler`, `heun`, `rk4`, `dopri5` or `tsit5`.
    pub solver: String,
    /// Network evaluations for the whole horizon; 0 for one step an output interval.
    pub nfe: usize,
    /// Relative tolerance of adaptive solvers.
    pub rtol: f64,
    /// Absolute tolerance of adaptive solvers.
    pub atol: f64,
    /// Precision of rollouts: `f32`, `tf32` or `bf16`, or `same` as in training.
    pub precision: String,
}

impl Default for EvaluateConfig {
    fn default() -> Self {
        Self { solver: "rk4".into(), nfe: 0, rtol: 1e-4, atol: 1e-6, precision: "same".into() }
    }
}

impl Recipe {
    /// The precision of rollouts on a device; `train.precision` where it is to be the same.
    ///
    /// # Errors
    /// If it is unknown.
    pub fn rollout_precision_on(&self, device: Device) -> Result<Precision> {
        if self.evaluate.precision == "same" {
            return self.train.precision_on(device);
        }
        let train = TrainConfig { precision: self.evaluate.precision.clone(), ..self.train.clone() };
        train.precision_on(device).map_err(|_| CfoError::InvalidKey {
            key: "evaluate.precision".into(),
            problem: format!("`{}` is none of `same`, `f32`, `tf32`, `bf16`", self.evaluate.precision),
        })
    }

    /// Reads a recipe from TOML text, with `key=value` overrides applied by their path.
    ///
    /// # Errors
    /// If the text is not TOML, or a key is unknown or has a value of the wrong kind.
    pub fn parse(text: &str, overrides: &[String]) -> Result<Self> {
        let mut table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| CfoError::BadRecipe { problem: error.to_string() })?;
        // Another kind first: what is set for it must not be taken for the old one's.
        let (kinds, rest): (Vec<_>, Vec<_>) = overrides.iter().partition(|assignment| sets_kind(assignment));
        for assignment in kinds.into_iter().chain(rest) {
            apply(&mut table, assignment)?;
        }
        let recipe: Self = table.try_into().map_err(|error: toml::de::Error| bad_recipe(&error))?;
        recipe.check()?;
        Ok(recipe)
    }

    /// The same with `key=value` overrides applied by their path.
    ///
    /// # Errors
    /// If a key is unknown or has a value of the wrong kind.
    pub fn with(&self, overrides: &[String]) -> Result<Self> {
        if overrides.is_empty() { Ok(self.clone()) } else { Self::parse(&self.to_toml()?, overrides) }
    }

    /// The seed of the data.
    pub fn data_seed(&self) -> u64 {
        self.data.seed.unwrap_or(self.train.seed)
    }

    /// The resolved recipe as TOML: every key, those that are not set as comments.
    ///
    /// # Errors
    /// Never for a recipe that was parsed.
    pub fn to_toml(&self) -> Result<String> {
        let text =
            toml::to_string(self).map_err(|error| CfoError::BadRecipe { problem: error.to_string() })?;
        Ok(self.with_unset_keys(&text))
    }

    fn check_time_balance(&self, balance: f64) -> Result<()> {
        let problem = match () {
            () if !(0.0..=1.0).contains(&balance) => format!("{balance} must lie in [0, 1]"),
            () if self.objective != ObjectiveConfig::FlowMatching => return Ok(()),
            () if !self.path.scale_velocity => "it needs `path.scale_velocity = true`".into(),
            () if !self.operator.time_embedding() => "it needs `operator.time_embedding = true`".into(),
            () => return Ok(()),
        };
        Err(CfoError::InvalidKey { key: "path.time_balance".into(), problem })
    }

    /// Checks what types cannot.
    ///
    /// # Errors
    /// If a number is out of range or a choice unknown.
    pub fn check(&self) -> Result<()> {
        let invalid = |key: &str, problem: String| Err(CfoError::InvalidKey { key: key.into(), problem });
        if !(self.data.keep_rate > 0.0 && self.data.keep_rate <= 1.0) {
            return invalid("data.keep_rate", format!("{} must lie in (0, 1]", self.data.keep_rate));
        }
        if let Some(split) = &self.data.split {
            split.check()?;
        }
        if !self.path.noise.amplitude.is_finite() || self.path.noise.amplitude < 0.0 {
            return invalid(
                "path.noise.amplitude",
                format!("{} must be 0 or positive", self.path.noise.amplitude),
            );
        }
        if let Some(balance) = self.path.time_balance {
            self.check_time_balance(balance)?;
        }
        for (key, value) in [("train.steps", self.train.steps as usize), ("train.batch", self.train.batch)] {
            if value == 0 {
                return invalid(key, "0 must be positive".into());
            }
        }
        for (key, value) in [("evaluate.rtol", self.evaluate.rtol), ("evaluate.atol", self.evaluate.atol)] {
            if !(value >= 0.0 && value.is_finite()) {
                return invalid(key, format!("{value} must be 0 or a positive number"));
            }
        }
        if self.train.patience > 0 && self.train.validate_every == 0 {
            return invalid("train.patience", "nothing is validated: `train.validate_every` is 0".into());
        }
        if self.data.path.is_some() && self.data.simulate.is_some() {
            return invalid("data.simulate", "`data.path` names the data already".into());
        }
        if self.data.samples == Some(0) {
            return invalid("data.samples", "0 must be positive".into());
        }
        self.path.path()?;
        self.path.smoothing.check()?;
        self.train.adam()?;
        self.train.precision()?;
        self.rollout_precision_on(Device::Cpu)?;
        crate::rollout::Solver::from_config(&self.evaluate)?;
        Ok(())
    }
}

/// Sets `a.b.c = value` in a table; the value is TOML, or a bare word taken as a string.
fn apply(table: &mut toml::Table, assignment: &str) -> Result<()> {
    let Some((key, value)) = assignment.split_once('=') else {
        return Err(CfoError::BadRecipe { problem: format!("`{assignment}` is not of the form key=value") });
    };
    let value = value.trim();
    let parsed =
        format!("value = {value}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("value"));
    let value = parsed.unwrap_or_else(|| toml::Value::String(value.into()));
    let mut parts: Vec<&str> = key.trim().split('.').collect();
    let last = parts.pop().filter(|part| !part.is_empty());
    let Some(last) = last else {
        return Err(CfoError::BadRecipe { problem: format!("`{assignment}` names no key") });
    };
    let mut at = table;
    for part in parts {
        let next = at.entry(part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        at = next.as_table_mut().ok_or_else(|| CfoError::BadRecipe {
            problem: format!("`{key}` goes through `{part}`, which is not a section"),
        })?;
    }
    if last == "kind" {
        leave_what_both_have(at, key.trim(), &value);
    }
    at.insert(last.into(), value);
    Ok(())
}

/// Whether an override chooses another kind of operator or objective.
fn sets_kind(assignment: &str) -> bool {
    assignment
        .split_once('=')
        .is_some_and(|(key, _)| matches!(key.trim(), "operator.kind" | "objective.kind"))
}

/// Removes from a section what the kind it had takes and another kind does not: that one has its defaults for what is its own.
fn leave_what_both_have(section: &mut toml::Table, key: &str, kind: &toml::Value) {
    let Some(old) = section.get("kind").cloned().filter(|old| old != kind) else { return };
    let takes = |kind: &toml::Value, name: &str, value: &toml::Value| {
        let pair = [("kind", kind), (name, value)].map(|(name, value)| (name.to_owned(), value.clone()));
        let table: toml::Table = pair.into_iter().collect();
        match key {
            "operator.kind" => table.try_into::<OperatorConfig>().is_ok(),
            _ => table.try_into::<ObjectiveConfig>().is_ok(),
        }
    };
    section.retain(|name, value| name == "kind" || !takes(&old, name, value) || takes(kind, name, value));
}

/// Turns the parser's message about an unknown key or choice into one that names the nearest known one, if any is near.
fn bad_recipe(error: &toml::de::Error) -> CfoError {
    let message = error.message();
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match quoted.split_first() {
        Some((&found, known))
            if message.starts_with("unknown field") || message.starts_with("unknown variant") =>
        {
            match nearest(found, known).filter(|word| 2 * edits(found, word) <= found.len()) {
                Some(nearest) => CfoError::UnknownKey { found: found.into(), nearest: Some(nearest.into()) },
                None => CfoError::BadRecipe {
                    problem: format!("unknown key or choice `{found}`; known are `{}`", known.join("`, `")),
                },
            }
        }
        // The full text says which key was at fault.
        _ => CfoError::BadRecipe {
            problem: error.to_string().split_whitespace().collect::<Vec<_>>().join(" "),
        },
    }
}

/// The known word with the fewest edits to the one found.
pub(crate) fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    known.iter().copied().min_by_key(|word| edits(found, word))
}

fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_reach_their_keys_and_survive_a_round_trip() {
        let text = "[train]\nsteps = 10\n[operator]\nkind = \"mlp\"\n";
        let set = ["train.steps=20", "path.spline=linear", "path.noise.amplitude=0", "data.keep_rate = 0.25"];
        let recipe = Recipe::parse(text, &set.map(String::from)).unwrap();
        assert_eq!((recipe.train.steps, recipe.path.spline.as_str()), (20, "linear"));
        assert_eq!((recipe.path.noise.amplitude, recipe.data.keep_rate), (0.0, 0.25));
        assert_eq!(Recipe::parse(&recipe.to_toml().unwrap(), &[]).unwrap(), recipe);
        assert_eq!(Recipe::parse("", &[]).unwrap(), Recipe::default());
        for (set, smoothing) in
            [("auto", Smoothing::Auto), ("0.05", Smoothing::Noise(0.05)), ("none", Smoothing::None)]
        {
            let recipe = Recipe::parse("", &[format!("path.smoothing={set}")]).unwrap();
            assert_eq!(recipe.path.smoothing, smoothing);
            assert_eq!(Recipe::parse(&recipe.to_toml().unwrap(), &[]).unwrap(), recipe);
        }
    }

    #[test]
    fn normalisation_has_names_and_once_was_a_flag() {
        let parsed = |value: &str| Recipe::parse("", &[format!("data.normalize={value}")]);
        for (value, meaning) in [
            ("true", Normalize::Standard),
            ("false", Normalize::None),
            ("standard", Normalize::Standard),
            ("range", Normalize::Range),
            ("none", Normalize::None),
        ] {
            let recipe = parsed(value).unwrap();
            assert_eq!(recipe.data.normalize, meaning);
            assert_eq!(Recipe::parse(&recipe.to_toml().unwrap(), &[]).unwrap(), recipe);
        }
        assert!(parsed("rnage").unwrap_err().hint().unwrap().contains("`range`"));
        assert!(parsed("3").unwrap_err().to_string().contains("normalize"));
    }

    #[test]
    fn the_cpu_computes_in_single_precision_whatever_a_gpu_is_told() {
        for (named, on_cpu) in [("f32", Precision::F32), ("tf32", Precision::F32), ("bf16", Precision::F32)] {
            let recipe = Recipe::default().with(&[format!("train.precision={named}")]).unwrap();
            assert_eq!(recipe.train.precision_on(Device::Cpu).unwrap(), on_cpu, "{named}");
            assert_eq!(recipe.train.precision_on(Device::Cuda(0)).unwrap().to_string(), named);
        }
        assert!(Recipe::default().with(&["train.precision=f8".into()]).is_err());
    }

    #[test]
    fn wrong_keys_and_values_are_named() {
        let refused = |set: &str| Recipe::parse("", &[set.to_owned()]).unwrap_err();
        let unknown = refused("train.stpes=3");
        assert!(unknown.to_string().contains("stpes"), "{unknown}");
        assert!(unknown.hint().unwrap().contains("`steps`"));
        assert!(refused("train.steps=many").to_string().contains("train.steps"));
        assert!(refused("operator.kind=cnn").to_string().contains("`dit`"));
        for (set, said) in [
            ("train.steps=0", "`train.steps`: 0 must be positive"),
            ("train.batch=-1", "train.batch"),
            ("train.schedule=sawtooth", "`sawtooth` is none of `constant`, `cosine`, `warmup`"),
            ("train.learning_rate=nan", "`train.learning_rate`: NaN"),
            ("train.weight_decay=nan", "`train.weight_decay`: NaN"),
            ("train.weight_decay=-1", "`train.weight_decay`: -1"),
            ("train.clip=-1", "`train.clip`: -1"),
            ("train.clip=inf", "`train.clip`: inf"),
            ("train.ema=nan", "`train.ema`: NaN must lie in [0, 1)"),
            ("train.betas=[0.9, 1.0]", "`train.betas`: [0.9, 1.0] must lie in [0, 1)"),
            ("data.keep_rate=0", "`data.keep_rate`: 0 must lie in (0, 1]"),
            ("data.samples=0", "`data.samples`: 0"),
            ("path.noise.amplitude=-1", "`path.noise.amplitude`: -1"),
            ("path.spline=septic-ish", "septic-ish"),
            ("path.stencil=1", "`path.stencil`"),
            ("path.smoothing=-0.1", "`path.smoothing`"),
            ("path.smoothing=nan", "`path.smoothing`"),
            ("path.smoothing=much", "much"),
            ("evaluate.solver=rk5", "`rk5` is none of"),
            ("evaluate.rtol=nan", "`evaluate.rtol`: NaN"),
            ("evaluate.atol=-1", "`evaluate.atol`: -1"),
            ("operator.kind=cnn", "`cnn`"),
            ("objective.kind=gan", "`gan`"),
            ("train=3", "train"),
            ("nonsense", "`nonsense` is not of the form key=value"),
        ] {
            let text = refused(set).to_string();
            assert!(text.contains(said), "{set}: {text}");
        }
        let idle = ["train.patience=2", "train.validate_every=0"].map(String::from);
        assert!(Recipe::parse("", &idle).unwrap_err().to_string().contains("`train.validate_every` is 0"));
        let both = ["data.path=a.h5", "data.simulate=lorenz"].map(String::from);
        assert!(Recipe::parse("", &both).unwrap_err().to_string().contains("`data.path` names the data"));
    }

    #[test]
    fn another_kind_has_its_defaults_and_keeps_what_both_have() {
        let text = "[operator]\nkind = \"mlp\"\nhidden = [32, 32]\nbands = 4\ntime_embedding = false\n";
        let set =
            |set: &[&str]| Recipe::parse(text, &set.iter().map(ToString::to_string).collect::<Vec<_>>());
        for order in
            [["operator.kind=unet", "operator.channels=[8]"], ["operator.channels=[8]", "operator.kind=unet"]]
        {
            let recipe = set(&order).unwrap();
            let channels = Some(vec![8]);
            let expected =
                crate::operator::UnetConfig { channels, time_embedding: false, ..Default::default() };
            assert_eq!(recipe.operator, OperatorConfig::Unet(expected));
        }
        // The same name with another meaning is not kept.
        assert!(
            matches!(set(&["operator.kind=dit"]).unwrap().operator, OperatorConfig::Dit(dit) if dit.hidden == 384)
        );
        assert!(
            matches!(set(&["operator.kind=mlp"]).unwrap().operator, OperatorConfig::Mlp(mlp) if mlp.bands == 4)
        );
        // What no kind has is still refused.
        let unknown = "[operator]\nkind = \"mlp\"\nhiden = [3]\n";
        assert!(Recipe::parse(unknown, &["operator.kind=unet".into()]).is_err());
    }
}
