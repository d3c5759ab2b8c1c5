//! The paper's systems: their simulators and recipes.
//!
//! The values are in `recipes/*.toml` (the paper's) and `recipes/ours/*.toml` (ours). `SYSTEM-50.toml` and `SYSTEM-25.toml` are for a half
//! and a quarter of the times. The files are compiled in: commands, tests and benchmarks that use a system here train with the recipe of
//! `cfo train recipes/NAME.toml`.

use cfo_data::simulate::{self, Equation, ShallowWater, Variant};
use serde::Serialize;

use crate::error::{CfoError, Result, nearest};
use crate::recipe::Recipe;

/// The origin of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edition {
    /// The paper's hyperparameters; keys that the paper does not define are our choice.
    Paper,
    /// The paper's data and network, at most its steps and batch; all other keys are our choice.
    Ours,
}

impl Edition {
    /// Returns the name in file names and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Ours => "ours",
        }
    }
}

/// A system of the paper, or a variant of one.
#[derive(Debug)]
pub struct System {
    /// Name in files and on the command line.
    pub name: &'static str,
    /// Name in reports.
    pub label: &'static str,
    /// Note on errors for this system.
    pub caveat: Option<&'static str>,
    recipe: &'static str,
    /// `None` if the paper defines so little that its recipe is ours.
    ours: Option<&'static str>,
    equation: fn() -> Box<dyn Equation>,
}

/// The learning rate of a transformer in our recipes, whose rates are chosen for other networks.
pub const OUR_TRANSFORMER_RATE: f64 = 3e-4;

macro_rules! recipes {
    ($name:literal) => {
        (
            include_str!(concat!("../recipes/", $name, ".toml")),
            Some(include_str!(concat!("../recipes/ours/", $name, ".toml"))),
        )
    };
}

impl System {
    const fn new(
        name: &'static str,
        label: &'static str,
        (recipe, ours): (&'static str, Option<&'static str>),
        equation: fn() -> Box<dyn Equation>,
    ) -> Self {
        Self { name, label, caveat: None, recipe, ours, equation }
    }

    /// Returns the system with this name.
    ///
    /// # Errors
    /// If the name is unknown; the error suggests the most similar one.
    pub fn find(name: &str) -> Result<&'static Self> {
        SYSTEMS.iter().find(|system| system.name == name).ok_or_else(|| {
            let names: Vec<&str> = SYSTEMS.iter().map(|system| system.name).collect();
            CfoError::UnknownKey { found: name.into(), nearest: nearest(name, &names).map(Into::into) }
        })
    }

    /// Returns the simulator, with the paper's grid and times.
    pub fn equation(&self) -> Box<dyn Equation> {
        (self.equation)()
    }

    /// Returns whether there is a recipe of this edition.
    pub fn has(&self, edition: Edition) -> bool {
        edition == Edition::Paper || self.ours.is_some()
    }

    /// Returns the recipe of an edition, or the paper's if there is no other.
    pub fn recipe(&self, edition: Edition) -> Recipe {
        parsed(match edition {
            Edition::Paper => self.recipe,
            Edition::Ours => self.ours.unwrap_or(self.recipe),
        })
    }

    /// Returns the recipe of an edition for a share of the times, which may differ from the recipe for all times.
    pub fn recipe_at(&self, edition: Edition, keep_rate: f64) -> Recipe {
        let own = SPARSE.iter().filter(|(name, _)| edition == Edition::Ours && *name == self.name);
        let own = own.map(|(_, text)| parsed(text)).find(|recipe| recipe.data.keep_rate == keep_rate);
        own.unwrap_or_else(|| {
            let mut recipe = self.recipe(edition);
            recipe.data.keep_rate = keep_rate;
            recipe
        })
    }

    /// Returns the recipe of another method of the paper, if the paper applies it to this system.
    pub fn recipe_by(&self, method: &str) -> Option<Recipe> {
        let (.., text) = OTHERS.iter().find(|(other, system, _)| *other == method && *system == self.name)?;
        Some(parsed(text))
    }

    /// Returns the numbers of trajectories for training, validation and test.
    pub fn counts(&self) -> [usize; 3] {
        self.recipe(Edition::Paper)
            .data
            .split
            .and_then(|split| split.counts())
            .expect("the recipes of systems have a split in counts, as a test asserts")
    }
}

fn parsed(text: &str) -> Recipe {
    Recipe::parse(text, &[]).expect("the recipes that are compiled in are parsed by a test")
}

/// Our recipes for a part of the times, with their systems.
const SPARSE: [(&str, &str); 4] = [
    ("diffusion-reaction", include_str!("../recipes/ours/diffusion-reaction-50.toml")),
    ("diffusion-reaction", include_str!("../recipes/ours/diffusion-reaction-25.toml")),
    ("shallow-water", include_str!("../recipes/ours/shallow-water-50.toml")),
    ("shallow-water", include_str!("../recipes/ours/shallow-water-25.toml")),
];

/// Caveat of the Kuramoto-Sivashinsky equation.
const OTHER_DATA: &str = "The paper does not describe its data, and they were not available. Ours start on the attractor, and lengths and time steps vary by 10 %, which is the most \
                          likely setting. The paper's errors are therefore errors on other trajectories.";

/// Includes the recipe of a method for a system.
macro_rules! other {
    ($method:literal, $system:literal) => {
        ($method, $system, include_str!(concat!("../recipes/", $method, "/", $system, ".toml")))
    };
}

/// The paper's other methods, on the systems for which the paper has them.
const OTHERS: [(&str, &str, &str); 8] = [
    other!("conditional-flow-matching", "burgers"),
    other!("latent", "diffusion-reaction"),
    other!("latent", "shallow-water"),
    other!("neural-ode", "lorenz"),
    other!("neural-ode", "burgers"),
    other!("neural-ode", "kuramoto-sivashinsky"),
    other!("pde-refiner", "diffusion-reaction"),
    other!("pde-refiner", "shallow-water"),
];

const FEW_TRAJECTORIES: &str = "At most 81 trajectories of the radial dam break are distinct on 128 x 128 cells, so nearly every test trajectory is also a \
                                training trajectory: the errors measure memorisation. All trajectories of `shallow-water-varied` are distinct.";

/// Every system, in the order of the paper's tables.
pub static SYSTEMS: [System; 6] = [
    System::new("lorenz", "Lorenz", recipes!("lorenz"), || Box::new(simulate::Lorenz::default())),
    System::new("burgers", "Burgers", recipes!("burgers"), || Box::new(simulate::Burgers::default())),
    System::new("diffusion-reaction", "diffusion-reaction", recipes!("diffusion-reaction"), || {
        Box::new(simulate::DiffusionReaction::default())
    }),
    System {
        caveat: Some(FEW_TRAJECTORIES),
        ..System::new("shallow-water", "shallow water", recipes!("shallow-water"), || {
            Box::new(ShallowWater::default())
        })
    },
    System::new("shallow-water-varied", "shallow water, varied", recipes!("shallow-water-varied"), || {
        Box::new(ShallowWater { variant: Variant::Varied, ..ShallowWater::default() })
    }),
    System {
        caveat: Some(OTHER_DATA),
        ..System::new(
            "kuramoto-sivashinsky",
            "Kuramoto-Sivashinsky",
            (include_str!("../recipes/kuramoto-sivashinsky.toml"), None),
            || Box::new(simulate::KuramotoSivashinsky::default()),
        )
    },
];

#[cfg(test)]
mod tests {
    use cfo_numerics::ode::RK4;

    use super::*;
    use crate::operator::{OperatorConfig, Setting};
    use crate::recipe::{Budget, DataConfig, Normalize, TrainConfig};

    /// Returns the network without the settings that our recipe may change: time input, activation and padding.
    fn sizes(recipe: &Recipe) -> OperatorConfig {
        let mut operator = recipe.operator.clone();
        operator.set_time(true);
        match &mut operator {
            OperatorConfig::Mlp(config) => config.activation = Default::default(),
            OperatorConfig::Unet(config) => config.padding = crate::operator::Padding::Auto,
            _ => {}
        }
        operator
    }

    /// Returns the data without the unit of their values.
    fn data(recipe: &Recipe) -> DataConfig {
        DataConfig { normalize: Normalize::Standard, ..recipe.data.clone() }
    }

    #[test]
    fn our_recipes_have_the_papers_data_network_steps_and_batch() {
        for system in &SYSTEMS {
            let [paper, ours] = [Edition::Paper, Edition::Ours].map(|edition| system.recipe(edition));
            assert_eq!(data(&paper), data(&ours), "{}", system.name);
            assert_eq!(sizes(&paper), sizes(&ours), "{}", system.name);
            assert_eq!((paper.total_steps(), paper.train.batch), (ours.total_steps(), ours.train.batch));
            assert_eq!(paper.objective, ours.objective, "{}", system.name);
            assert_eq!(paper != ours, system.has(Edition::Ours), "{}", system.name);
        }
    }

    /// Checks that a recipe for a part of the times has the paper's data and network, and at most its steps and batch.
    #[test]
    fn our_recipes_of_a_share_of_the_times_have_the_papers_data_and_network_and_no_more_steps() {
        for (name, text) in SPARSE {
            let (system, share) = (System::find(name).unwrap(), parsed(text).data.keep_rate);
            let (paper, ours) =
                (system.recipe_at(Edition::Paper, share), system.recipe_at(Edition::Ours, share));
            assert_eq!(ours, parsed(text), "{name} at {share}");
            assert_eq!((data(&paper), sizes(&paper)), (data(&ours), sizes(&ours)), "{name}");
            assert!(ours.total_steps() <= paper.train.steps && ours.train.batch <= paper.train.batch);
            assert_ne!(ours.train, system.recipe(Edition::Ours).train, "{name} has a recipe of its own");
            // There is no recipe for other shares.
            let other = system.recipe_at(Edition::Ours, 0.75);
            assert_eq!(other.data.keep_rate, 0.75);
            assert_eq!(other.train, system.recipe(Edition::Ours).train);
        }
    }

    /// Checks that other methods have the paper's data, steps and batches. They have its network too, unless the network works in another
    /// space.
    #[test]
    fn other_methods_have_the_same_data_network_steps_and_batch() {
        for (method, name, _) in OTHERS {
            let system = System::find(name).unwrap();
            let (paper, other) = (system.recipe(Edition::Paper), system.recipe_by(method).unwrap());
            assert_eq!(data(&paper), data(&other), "{method} {name}");
            if method == "latent" {
                assert!(other.latent.wavelet.is_some());
                // Our recipe with a latent space, and the network and path for it.
                let mut ours = system.recipe(Edition::Ours);
                (ours.path, ours.latent, ours.operator) =
                    (other.path.clone(), other.latent, other.operator.clone());
                ours.train.validate_every = other.train.validate_every;
                assert_eq!(ours, other, "{name}");
            } else {
                assert_eq!(other.objective.name(), method);
            }
            // The paper does not describe its training there. All methods have one schedule.
            if name == "kuramoto-sivashinsky" {
                let precision = paper.train.precision;
                assert_eq!(paper.train, TrainConfig { precision, ..other.train.clone() });
            }
            if method != "conditional-flow-matching" {
                assert_eq!((paper.train.steps, paper.train.batch), (other.train.steps, other.train.batch));
            }
            if !["conditional-flow-matching", "latent"].contains(&method) {
                assert_eq!(paper.operator, other.operator, "{method} {name}");
            }
        }
        assert!(SYSTEMS[0].recipe_by("latent").is_none());
    }

    /// Checks that rollouts of every recipe are those of the paper: one RK4 step per snapshot, or the recipe's number.
    #[test]
    fn recipes_roll_out_as_the_paper_does() {
        let ours = SYSTEMS
            .iter()
            .flat_map(|system| [0.25, 0.5, 1.0].map(|share| system.recipe_at(Edition::Ours, share)));
        let paper = SYSTEMS.iter().map(|system| system.recipe(Edition::Paper));
        let others = OTHERS.iter().map(|(.., text)| parsed(text));
        for recipe in ours.chain(paper).chain(others) {
            let solver = recipe.solver().unwrap();
            assert_eq!(solver.tableau, RK4, "{recipe:?}");
            let expected = match recipe.evaluate.nfe {
                0 => Budget::StepPerOutput,
                nfe => Budget::EvaluationsPerHorizon(nfe),
            };
            assert_eq!(solver.budget, expected, "{recipe:?}");
        }
    }

    #[test]
    fn recipes_suit_their_systems() {
        for system in &SYSTEMS {
            assert!(system.counts().iter().all(|&count| count >= 50), "{}", system.name);
            let equation = system.equation();
            equation.check().unwrap();
            assert!(system.name.starts_with(equation.name()));
            let description = equation.description();
            let setting = Setting::new(description.shape, &description.periodic, 0);
            for edition in [Edition::Paper, Edition::Ours] {
                let recipe = system.recipe(edition);
                assert_eq!(recipe.data.simulate.as_deref(), Some(system.name));
                recipe.operator.operator().check(&setting).unwrap();
            }
        }
        let unknown = System::find("lorentz").unwrap_err();
        assert!(unknown.hint().unwrap().contains("`lorenz`"), "{unknown}");
    }
}
