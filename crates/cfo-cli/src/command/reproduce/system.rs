//! The four systems of the paper's tables: how each is simulated and trained at either scale.

use cfo::data::simulate::{Burgers, DiffusionReaction, Equation, Lorenz, ShallowWater, Variant};
use cfo::{CfoError, Recipe};

use crate::args::Scale;

/// A system of the paper's tables.
pub(super) struct System {
    /// As files and the command line spell it.
    pub name: &'static str,
    /// For people.
    pub label: &'static str,
    /// The paper's recipe.
    recipe: &'static str,
    /// What `smoke` changes in it.
    smoke: &'static [&'static str],
    /// What `smoke` reduces, in words.
    pub reduction: &'static str,
    /// Networks that the paper tries, the recipe's own first.
    pub backbones: &'static [Backbone],
    /// The network of the paper's best autoregressive baseline.
    best_baseline: &'static str,
    equation: fn(Scale) -> Box<dyn Equation>,
}

/// A network that the paper tries on a system.
pub(super) struct Backbone {
    /// As recipes spell it.
    pub kind: &'static str,
    /// Its size for `smoke`; for `paper` it has the paper's.
    smoke: &'static str,
}

impl Backbone {
    /// What chooses it in a recipe.
    pub fn overrides(&self, scale: Scale) -> String {
        match scale {
            Scale::Smoke => self.smoke.into(),
            Scale::Paper => format!("operator={{kind=\"{}\"}}", self.kind),
        }
    }
}

impl System {
    /// The simulator.
    pub fn equation(&self, scale: Scale) -> Box<dyn Equation> {
        (self.equation)(scale)
    }

    /// The network of the paper's best autoregressive baseline.
    pub fn baseline(&self) -> &'static Backbone {
        let best = self.backbones.iter().find(|backbone| backbone.kind == self.best_baseline);
        best.unwrap_or(&self.backbones[0])
    }

    /// The system's recipe with changes, the last ones winning.
    ///
    /// # Errors
    /// If a change names no key or is out of range.
    pub fn recipe(&self, scale: Scale, changes: &[String]) -> Result<Recipe, CfoError> {
        let reduced = match scale {
            Scale::Smoke => self.smoke,
            Scale::Paper => &[],
        };
        let all: Vec<String> =
            reduced.iter().map(|&change| change.to_owned()).chain(changes.iter().cloned()).collect();
        Recipe::parse(self.recipe, &all)
    }
}

/// The paper's four, in the order of its tables.
pub(super) static SYSTEMS: [System; 4] = [
    System {
        name: "lorenz",
        label: "Lorenz",
        recipe: include_str!("../../../../../recipes/lorenz.toml"),
        smoke: &[
            "data.split=[500, 20, 50]",
            "operator.time_embedding=false",
            "train.steps=2000",
            "train.batch=512",
            "train.learning_rate=2e-3",
            "train.schedule=cosine",
            "train.ema=0.99",
            "train.validate_every=0",
            "train.checkpoint_every=500",
        ],
        reduction: "500 training trajectories instead of 9000, 2000 steps of 512 samples instead of 200,000 of 2048, \
                    cosine schedule from 2e-3, EMA 0.99, no time embedding",
        backbones: &[Backbone { kind: "mlp", smoke: "operator.kind=mlp" }],
        best_baseline: "mlp",
        equation: |_| Box::new(Lorenz::default()),
    },
    System {
        name: "burgers",
        label: "Burgers",
        recipe: include_str!("../../../../../recipes/burgers.toml"),
        smoke: &[
            "data.split=[200, 10, 20]",
            "operator={kind=\"unet\", channels=[16, 32], time_features=16, time_hidden=32}",
            "train.steps=800",
            "train.batch=32",
            "train.learning_rate=2e-3",
            "train.schedule=cosine",
            "train.ema=0.99",
            "train.validate_every=0",
            "train.checkpoint_every=200",
        ],
        reduction: "64 points instead of 100, 200 training trajectories instead of 1000, a U-Net of 16 and 32 channels instead \
                    of 64 and 128, 800 steps of 32 samples instead of 60,000 of 256, cosine schedule from 2e-3, EMA 0.99",
        backbones: &[
            Backbone {
                kind: "unet",
                smoke: "operator={kind=\"unet\", channels=[16, 32], time_features=16, time_hidden=32}",
            },
            Backbone { kind: "fno", smoke: "operator={kind=\"fno\", width=32, blocks=3, modes=6}" },
            Backbone { kind: "mlp", smoke: "operator={kind=\"mlp\", hidden=[128, 128, 128]}" },
        ],
        best_baseline: "mlp",
        equation: |scale| match scale {
            Scale::Smoke => Box::new(Burgers { grid: 64, ..Burgers::default() }),
            Scale::Paper => Box::new(Burgers::default()),
        },
    },
    System {
        name: "diffusion-reaction",
        label: "diffusion-reaction",
        recipe: include_str!("../../../../../recipes/diffusion-reaction.toml"),
        smoke: &[
            "data.split=[60, 4, 8]",
            "operator={kind=\"unet\", channels=[16, 32], time_features=16, time_hidden=32}",
            "train.steps=600",
            "train.batch=8",
            "train.learning_rate=2e-3",
            "train.schedule=cosine",
            "train.ema=0.98",
            "train.validate_every=0",
            "train.checkpoint_every=100",
        ],
        reduction: "32 x 32 cells of the paper's size instead of 128 x 128 (diffusion coefficients times 16 on the same square), 26 frames instead of 101, 60 training trajectories instead of 900, a U-Net of 16 and 32 channels \
                    instead of 64, 128 and 256, 600 steps of 8 samples instead of 5000 of 256, cosine schedule from 2e-3, EMA 0.98",
        backbones: &[
            Backbone {
                kind: "unet",
                smoke: "operator={kind=\"unet\", channels=[16, 32], time_features=16, time_hidden=32}",
            },
            Backbone { kind: "dit", smoke: SMALL_TRANSFORMER },
        ],
        best_baseline: "unet",
        equation: |scale| match scale {
            // A quarter of the paper's side, seen as the whole square: lengths times 4, so diffusion times 16. The first
            // frames of the paper's, still white noise, take more training than `smoke` has.
            Scale::Smoke => Box::new(DiffusionReaction {
                grid: 32,
                frames: 26,
                activator_diffusion: 16e-3,
                inhibitor_diffusion: 80e-3,
                ..DiffusionReaction::default()
            }),
            Scale::Paper => Box::new(DiffusionReaction::default()),
        },
    },
    System {
        name: "shallow-water",
        label: "shallow water",
        recipe: include_str!("../../../../../recipes/shallow-water.toml"),
        smoke: &[
            "data.split=[60, 4, 8]",
            "operator={kind=\"unet\", channels=[16, 32], time_features=16, time_hidden=32}",
            "train.steps=300",
            "train.batch=8",
            "train.learning_rate=2e-3",
            "train.schedule=cosine",
            "train.ema=0.97",
            "train.validate_every=0",
            "train.checkpoint_every=100",
        ],
        reduction: "32 x 32 cells instead of 128 x 128, the varied dam break (the benchmark's has a few dozen different \
                    trajectories on so coarse a grid), 60 training trajectories instead of 900, a U-Net of 16 and 32 channels \
                    instead of 64, 128 and 256, 300 steps of 8 samples instead of 5000 of 256, cosine schedule from 2e-3, EMA 0.97",
        backbones: &[
            Backbone {
                kind: "unet",
                smoke: "operator={kind=\"unet\", channels=[16, 32], time_features=16, time_hidden=32}",
            },
            Backbone { kind: "dit", smoke: SMALL_TRANSFORMER },
        ],
        best_baseline: "dit",
        equation: |scale| match scale {
            Scale::Smoke => {
                Box::new(ShallowWater { grid: 32, variant: Variant::Varied, ..ShallowWater::default() })
            }
            Scale::Paper => Box::new(ShallowWater::default()),
        },
    },
];

const SMALL_TRANSFORMER: &str =
    "operator={kind=\"dit\", patch=4, hidden=64, depth=2, heads=4, mlp_ratio=2, time_features=32}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_and_backbone_suits_its_system_at_either_scale() {
        for system in &SYSTEMS {
            for scale in [Scale::Smoke, Scale::Paper] {
                let equation = system.equation(scale);
                equation.check().unwrap();
                assert_eq!(equation.name(), system.name);
                let description = equation.description();
                let setting = cfo::Setting::new(description.shape, &description.periodic, 0);
                let own = system.recipe(scale, &[]).unwrap();
                own.operator.build(&setting).unwrap();
                assert_eq!(own.operator.name(), system.backbones[0].kind);
                assert_eq!(system.baseline().kind, system.best_baseline);
                for backbone in system.backbones {
                    let recipe = system.recipe(scale, &[backbone.overrides(scale)]).unwrap();
                    recipe.operator.build(&setting).unwrap();
                    assert_eq!(recipe.operator.name(), backbone.kind);
                }
            }
        }
    }

    #[test]
    fn choosing_the_own_backbone_changes_nothing() {
        for system in &SYSTEMS {
            let own = system.recipe(Scale::Smoke, &[]).unwrap();
            let chosen = system.recipe(Scale::Smoke, &[system.backbones[0].overrides(Scale::Smoke)]).unwrap();
            assert_eq!(own, chosen, "{}", system.name);
        }
    }
}
