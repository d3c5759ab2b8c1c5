//! The paper's systems in the experiments: the networks compared on each, and how `smoke` reduces it.

use cfo::Recipe;
use cfo::data::simulate::{Burgers, DiffusionReaction, Equation, KuramotoSivashinsky, ShallowWater, Variant};
use cfo::objective::ObjectiveConfig;
use cfo::operator::{Dit, Fno, Mlp, MlpActivation, OperatorConfig, TimeEmbedding, Unet};
use cfo::paper::{self, Edition};
use cfo::recipe::FinetuneConfig;

use crate::options::Scale;

#[derive(Debug)]
pub(crate) struct TableSystem {
    paper: &'static paper::System,
    /// Networks that the paper compares, by their names in recipes; the recipe's own first.
    pub backbones: &'static [&'static str],
    /// The network of the paper's best autoregressive baseline.
    pub best_baseline: &'static str,
    smoke: Smoke,
}

#[derive(Debug)]
struct Smoke {
    split: [usize; 3],
    steps: u32,
    batch: usize,
    /// Decay of the EMA in our recipe. It must forget the initial weights within the steps.
    ema: f64,
    equation: Option<fn() -> Box<dyn Equation>>,
    /// Description of the other reductions.
    reduction: &'static str,
    caveat: Option<&'static str>,
}

impl TableSystem {
    /// Its name in files and on the command line.
    pub fn name(&self) -> &'static str {
        self.paper.name
    }

    /// Its name in messages and reports.
    pub fn label(&self) -> &'static str {
        self.paper.label
    }

    /// Returns the existing ones of some recipes. The paper's recipe replaces ours where there is only one.
    pub fn editions(&self, asked: &[Edition]) -> Vec<Edition> {
        let own: Vec<Edition> = asked.iter().copied().filter(|&edition| self.paper.has(edition)).collect();
        if own.is_empty() { vec![Edition::Paper] } else { own }
    }

    /// Its row in the paper's tables of four systems; none for systems that we add.
    pub fn position(&self) -> Option<usize> {
        SYSTEMS[..4].iter().position(|system| system.name() == self.name())
    }

    /// Whether it exists at a scale: `smoke` replaces the radial dam break by the varied one.
    pub fn exists_at(&self, scale: Scale) -> bool {
        scale == Scale::Paper || self.name() != "shallow-water-varied"
    }

    /// A note that readers of its errors need.
    pub fn caveat(&self, scale: Scale) -> Option<&'static str> {
        match scale {
            Scale::Smoke => self.smoke.caveat,
            Scale::Paper => self.paper.caveat,
        }
    }

    /// The simulator.
    pub fn equation(&self, scale: Scale) -> Box<dyn Equation> {
        match self.smoke.equation {
            Some(small) if scale == Scale::Smoke => small(),
            _ => self.paper.equation(),
        }
    }

    /// Describes the reductions of `smoke`.
    pub fn reduction(&self) -> String {
        let Smoke { split, steps, batch, reduction, .. } = &self.smoke;
        let paper = self.paper.recipe(Edition::Paper);
        format!(
            "{reduction}{} training trajectories instead of {}, {steps} steps of {batch} samples instead of {} of {}",
            split[0],
            self.paper.counts()[0],
            paper.train.steps,
            paper.train.batch
        )
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub system: &'static TableSystem,
    pub edition: Edition,
    pub scale: Scale,
}

impl Setup {
    /// System and recipe, for titles.
    pub fn title(self) -> String {
        let recipe = match self.edition {
            Edition::Paper => "the paper's recipe",
            Edition::Ours => "our recipe",
        };
        format!("{}, {recipe}", self.system.label())
    }

    /// The stem of the file names of its figures.
    pub fn stem(self) -> String {
        match self.edition {
            Edition::Paper => self.system.name().to_owned(),
            Edition::Ours => format!("{}-ours", self.system.name()),
        }
    }

    /// The recipe with the system's own network, on all times.
    pub fn recipe(self) -> Recipe {
        self.recipe_at(1.0)
    }

    /// The recipe with the system's own network, on a share of the times.
    pub fn recipe_at(self, keep_rate: f64) -> Recipe {
        let mut recipe = self.system.paper.recipe_at(self.edition, keep_rate);
        if self.scale == Scale::Smoke {
            self.reduce(&mut recipe);
        }
        recipe
    }

    /// The recipe of another of the paper's methods, if the paper has it on this system. Ours takes from it what is trained for and in which
    /// space and precision, and everything else from our recipe.
    pub fn recipe_by(self, method: &str) -> Option<Recipe> {
        let other = self.system.paper.recipe_by(method)?;
        let mut recipe = match self.edition {
            Edition::Paper => other,
            Edition::Ours => {
                let mut recipe = self.system.paper.recipe(self.edition);
                if other.latent.wavelet.is_some() {
                    (recipe.latent, recipe.operator) = (other.latent, other.operator);
                }
                recipe.train.precision = other.train.precision;
                recipe.operator = with_time(recipe.operator, &other.objective);
                for_objective(recipe, other.objective)
            }
        };
        if self.scale == Scale::Smoke {
            self.reduce(&mut recipe);
            if let ObjectiveConfig::ConditionalFlowMatching(keys) = &mut recipe.objective {
                (keys.frames, recipe.train.steps) = (17, recipe.train.steps / 2);
            }
        }
        Some(recipe)
    }

    /// The recipe with one of the networks that the paper compares.
    pub fn recipe_on(self, backbone: &str) -> Recipe {
        let mut recipe = self.recipe();
        if backbone != self.system.backbones[0] {
            recipe.operator = papers_network(backbone);
            match self.scale {
                Scale::Smoke => reduce_network(&mut recipe.operator),
                Scale::Paper if backbone == "dit" && self.edition == Edition::Ours => {
                    recipe.train.learning_rate = paper::OUR_TRANSFORMER_RATE;
                }
                Scale::Paper => {}
            }
        }
        recipe
    }

    fn reduce(self, recipe: &mut Recipe) {
        let Smoke { split, steps, batch, ema, .. } = self.system.smoke;
        recipe.data.split = Some(split.into());
        if self.system.backbones[0] != "mlp" {
            reduce_network(&mut recipe.operator);
        }
        // Fine-tuning keeps its share of all steps, and its learning rate relative to that of training.
        let total = recipe.total_steps();
        let (train, finetune) = (&mut recipe.train, &mut recipe.finetune);
        finetune.steps = (f64::from(steps) * f64::from(finetune.steps) / f64::from(total)).round() as u32;
        finetune.batch = finetune.batch.map(|own| own.min(batch));
        let relative = finetune.learning_rate.map(|rate| rate / train.learning_rate);
        (train.steps, train.batch) = (steps - finetune.steps, batch);
        (train.validate_every, train.checkpoint_every) = (0, steps / 4);
        // With a hundredth of the steps, training needs a higher learning rate.
        match self.edition {
            Edition::Paper => {
                train.learning_rate = 1e-3;
                train.warmup = train.warmup.min(steps / 20);
                train.ema = if train.ema > 0.0 { ema } else { 0.0 };
            }
            Edition::Ours => {
                (train.learning_rate, train.warmup, train.ema) = (2e-3, steps / 20, ema);
            }
        }
        finetune.learning_rate = relative.map(|relative| relative * train.learning_rate);
    }
}

/// The recipe for another objective. What has no velocity cannot be fine-tuned through a solver: all steps are then the objective's.
pub(crate) fn for_objective(mut recipe: Recipe, objective: ObjectiveConfig) -> Recipe {
    if objective != ObjectiveConfig::FlowMatching {
        recipe.train.steps = recipe.total_steps();
        recipe.finetune = FinetuneConfig::default();
    }
    Recipe { objective, ..recipe }
}

/// A network that is told the time, where an objective has one of its own.
fn with_time(mut operator: OperatorConfig, objective: &ObjectiveConfig) -> OperatorConfig {
    if matches!(objective, ObjectiveConfig::PdeRefiner(_) | ObjectiveConfig::ConditionalFlowMatching(_)) {
        operator.set_time(true);
    }
    operator
}

/// A network of the paper's size. Its MLP for Burgers is not described beyond that of Lorenz; with that one's ReLU, predicting the next
/// state has almost four times the paper's error.
fn papers_network(kind: &str) -> OperatorConfig {
    match kind {
        "mlp" => OperatorConfig::Mlp(Mlp { activation: MlpActivation::Silu, ..Mlp::default() }),
        "fno" => OperatorConfig::Fno(Fno::default()),
        "dit" => OperatorConfig::Dit(Dit::default()),
        _ => OperatorConfig::Unet(Unet::default()),
    }
}

/// Makes one of the paper's networks small enough for `smoke`.
fn reduce_network(operator: &mut OperatorConfig) {
    if let OperatorConfig::Mlp(config) = operator {
        config.hidden = vec![128; 3];
    } else if let OperatorConfig::Fno(config) = operator {
        (config.width, config.blocks) = (32, 3);
    } else if let OperatorConfig::Unet(config) = operator {
        let channels = config.channels.as_deref().unwrap_or(&[64, 128]);
        config.channels = Some(channels.iter().take(2).map(|channels| channels / 4).collect());
        if config.time.is_on() {
            config.time = TimeEmbedding::Features(16);
        }
    } else if let OperatorConfig::Dit(config) = operator {
        (config.patch, config.hidden, config.depth, config.heads) = (4, 64, 2, 4);
        config.mlp_ratio = 2;
        if config.time.is_on() {
            config.time = TimeEmbedding::Features(32);
        }
    }
}

/// The system of the paper's last table of errors.
pub(crate) const KURAMOTO_SIVASHINSKY: &str = "kuramoto-sivashinsky";

const PLANE: &[&str] = &["unet", "dit"];

/// The paper's four systems, in the order of its tables, then those that we add.
pub(crate) static SYSTEMS: [TableSystem; 6] = [
    TableSystem {
        paper: &paper::SYSTEMS[0],
        backbones: &["mlp"],
        best_baseline: "mlp",
        smoke: Smoke {
            split: [500, 20, 50],
            steps: 2000,
            batch: 512,
            ema: 0.99,
            equation: None,
            reduction: "",
            caveat: None,
        },
    },
    TableSystem {
        paper: &paper::SYSTEMS[1],
        backbones: &["unet", "fno", "mlp"],
        best_baseline: "mlp",
        smoke: Smoke {
            split: [200, 10, 20],
            steps: 800,
            batch: 32,
            ema: 0.99,
            equation: Some(|| Box::new(Burgers { grid: 64, ..Burgers::default() })),
            reduction: "64 points instead of 100, a U-Net of 16 and 32 channels instead of 64 and 128, ",
            caveat: None,
        },
    },
    TableSystem {
        paper: &paper::SYSTEMS[2],
        backbones: PLANE,
        best_baseline: "unet",
        smoke: Smoke {
            split: [60, 4, 8],
            steps: 600,
            batch: 8,
            ema: 0.98,
            // A quarter of the paper's side, scaled to the whole square: lengths times 4, so diffusion times 16. The first
            // frames of the paper's data are white noise and take more training than `smoke` has.
            equation: Some(|| {
                Box::new(DiffusionReaction {
                    grid: 32,
                    frames: 26,
                    activator_diffusion: 16e-3,
                    inhibitor_diffusion: 80e-3,
                    ..DiffusionReaction::default()
                })
            }),
            reduction: "32 x 32 cells of the paper's size instead of 128 x 128 (diffusion coefficients times 16 on the same square), 26 frames instead of 101, \
                        a U-Net of 16 and 32 channels instead of 64, 128 and 256, ",
            caveat: None,
        },
    },
    TableSystem { paper: &paper::SYSTEMS[3], backbones: PLANE, best_baseline: "dit", smoke: SMALL_DAM_BREAK },
    TableSystem { paper: &paper::SYSTEMS[4], backbones: PLANE, best_baseline: "dit", smoke: SMALL_DAM_BREAK },
    TableSystem {
        paper: &paper::SYSTEMS[5],
        backbones: &["unet"],
        best_baseline: "unet",
        smoke: Smoke {
            split: [100, 5, 10],
            steps: 800,
            batch: 32,
            ema: 0.99,
            equation: Some(|| {
                let half = KuramotoSivashinsky::default().length / 2.0;
                Box::new(KuramotoSivashinsky { grid: 64, length: half, ..KuramotoSivashinsky::default() })
            }),
            reduction: "64 points on half the length instead of 256, a U-Net of 16 and 32 channels instead of 64 and 128, ",
            caveat: paper::SYSTEMS[5].caveat,
        },
    },
];

const SMALL_CAVEAT: &str = "`smoke` uses the varied dam break, whose trajectories are all distinct. On so coarse a grid the radial dam break of the benchmark has only a few \
                            dozen distinct trajectories, so the test trajectories would also be training trajectories.";

const SMALL_DAM_BREAK: Smoke = Smoke {
    split: [60, 4, 8],
    steps: 300,
    batch: 8,
    ema: 0.97,
    equation: Some(|| {
        Box::new(ShallowWater { grid: 32, variant: Variant::Varied, ..ShallowWater::default() })
    }),
    reduction: "32 x 32 cells instead of 128 x 128, a U-Net of 16 and 32 channels instead of 64, 128 and 256, ",
    caveat: Some(SMALL_CAVEAT),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_and_backbone_suits_its_system_at_either_scale() {
        for system in &SYSTEMS {
            for scale in [Scale::Smoke, Scale::Paper] {
                let equation = system.equation(scale);
                equation.check().unwrap();
                let description = equation.description();
                let setting = cfo::operator::Setting::new(description.shape, &description.periodic, 0);
                for edition in [Edition::Paper, Edition::Ours] {
                    let setup = Setup { system, edition, scale };
                    assert_eq!(setup.recipe().operator.name(), system.backbones[0]);
                    assert_eq!(setup.recipe_on(system.backbones[0]), setup.recipe());
                    for &backbone in system.backbones {
                        let recipe = setup.recipe_on(backbone);
                        recipe.check().unwrap();
                        recipe.operator.operator().check(&setting).unwrap();
                        assert_eq!(recipe.operator.name(), backbone);
                    }
                }
            }
            assert!(system.backbones.contains(&system.best_baseline));
        }
    }

    /// With a hundredth of the steps, fine-tuning keeps its share of them and its rate relative to that of training.
    #[test]
    fn fine_tuning_shrinks_as_training_does() {
        let system = SYSTEMS.iter().find(|system| system.name() == "shallow-water").unwrap();
        let at = |scale, keep_rate| Setup { system, edition: Edition::Ours, scale }.recipe_at(keep_rate);
        let (whole, small) = (at(Scale::Paper, 0.25), at(Scale::Smoke, 0.25));
        small.check().unwrap();
        assert_eq!(small.total_steps(), system.smoke.steps);
        let share = |recipe: &Recipe| f64::from(recipe.finetune.steps) / f64::from(recipe.total_steps());
        assert!((share(&small) - share(&whole)).abs() < 1.0 / f64::from(system.smoke.steps));
        let rate = |recipe: &Recipe| recipe.finetune.learning_rate.unwrap() / recipe.train.learning_rate;
        assert!((rate(&small) / rate(&whole) - 1.0).abs() < 1e-12);
        assert_eq!(at(Scale::Smoke, 1.0).finetune.steps, 0);
        // What learns no velocity makes all of the steps itself.
        let other = for_objective(whole.clone(), ObjectiveConfig::Autoregressive { residual: true });
        other.check().unwrap();
        assert_eq!((other.train.steps, other.finetune.steps), (whole.total_steps(), 0));
    }

    #[test]
    fn the_papers_tables_have_four_rows() {
        let positions: Vec<_> = SYSTEMS.iter().map(TableSystem::position).collect();
        assert_eq!(positions, [Some(0), Some(1), Some(2), Some(3), None, None]);
    }
}
