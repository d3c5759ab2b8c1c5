//! The paper's systems: how each is simulated, and the recipes that it is trained by.
//!
//! The values live in `recipes/*.toml` (the paper's) and `recipes/ours/*.toml` (ours), which are compiled in: commands, tests
//! and benchmarks that ask for a system here train what `cfo train recipes/NAME.toml` trains.

use cfo_data::simulate::{self, Equation, ShallowWater, Variant};
use serde::Serialize;

use crate::error::{CfoError, Result};
use crate::recipe::{Recipe, nearest};

/// Whose recipe a network is trained by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edition {
    /// The paper's.
    Paper,
    /// Ours: the paper's data, network, steps and batch, everything else free.
    Ours,
}

impl Edition {
    /// In file names and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Ours => "ours",
        }
    }
}

/// A system of the paper, or one that we set beside it.
#[derive(Debug)]
pub struct System {
    /// As files and the command line spell it.
    pub name: &'static str,
    /// For people.
    pub label: &'static str,
    /// What a reader of its errors must know.
    pub caveat: Option<&'static str>,
    recipe: &'static str,
    ours: &'static str,
    equation: fn() -> Box<dyn Equation>,
}

/// The learning rate of a transformer in our recipes, which are made for the systems' own networks.
pub const OUR_TRANSFORMER_RATE: f64 = 3e-4;

/// Both recipes of a system.
macro_rules! recipes {
    ($name:literal) => {
        [
            include_str!(concat!("../../../recipes/", $name, ".toml")),
            include_str!(concat!("../../../recipes/ours/", $name, ".toml")),
        ]
    };
}

impl System {
    const fn new(
        name: &'static str,
        label: &'static str,
        [recipe, ours]: [&'static str; 2],
        equation: fn() -> Box<dyn Equation>,
    ) -> Self {
        Self { name, label, caveat: None, recipe, ours, equation }
    }

    /// The system of a name.
    ///
    /// # Errors
    /// If there is none; the nearest name is then given.
    pub fn find(name: &str) -> Result<&'static Self> {
        SYSTEMS.iter().find(|system| system.name == name).ok_or_else(|| {
            let names: Vec<&str> = SYSTEMS.iter().map(|system| system.name).collect();
            CfoError::UnknownKey { found: name.into(), nearest: nearest(name, &names).map(Into::into) }
        })
    }

    /// Its simulator, with the paper's grid and times.
    pub fn equation(&self) -> Box<dyn Equation> {
        (self.equation)()
    }

    /// The recipe that it is trained by.
    pub fn recipe(&self, edition: Edition) -> Recipe {
        let text = match edition {
            Edition::Paper => self.recipe,
            Edition::Ours => self.ours,
        };
        Recipe::parse(text, &[]).expect("the recipes that are compiled in are parsed by a test")
    }

    /// The recipe of another of the paper's methods on it, if the paper has that.
    pub fn recipe_by(&self, method: &str) -> Option<Recipe> {
        let (.., text) = OTHERS.iter().find(|(other, system, _)| *other == method && *system == self.name)?;
        Some(Recipe::parse(text, &[]).expect("the recipes that are compiled in are parsed by a test"))
    }

    /// Trajectories for training, validation and test.
    pub fn counts(&self) -> [usize; 3] {
        self.recipe(Edition::Paper)
            .data
            .split
            .and_then(|split| split.counts())
            .expect("the recipes of systems have a split in counts, as a test asserts")
    }
}

/// The paper's error of quintic CFO on 25 % of the times on its worst test trajectory of Burgers.
pub const WORST_OF_BURGERS: f64 = 0.0307;

/// What the paper says of the Kuramoto-Sivashinsky equation: method, relative L2 error, seconds of training (1 h, 40 h 53 min, 1 h 5 min).
pub const KURAMOTO_SIVASHINSKY: [(&str, f64, f64); 3] =
    [("autoregressive", 0.317, 3600.0), ("neural-ode", 0.197, 147_180.0), ("cfo", 0.105, 3900.0)];

/// Of the Kuramoto-Sivashinsky equation.
const OTHER_DATA: &str = "The paper does not say how its data were made, and they could not be read: ours are of the kind that they most likely are (on the attractor, lengths and time \
                          steps vary by 10 %), so that the paper's errors are of other trajectories.";

/// The recipe of a method on a system.
macro_rules! other {
    ($method:literal, $system:literal) => {
        ($method, $system, include_str!(concat!("../../../recipes/", $method, "/", $system, ".toml")))
    };
}

/// The paper's other methods, on the systems that it tries them on.
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

/// Of the radial dam break.
const FEW_TRAJECTORIES: &str = "At most 81 trajectories of the radial dam break differ on 128 x 128 cells, so that nearly every test trajectory also stands \
                                in the training part: its errors say how well trajectories are remembered. No two of `shallow-water-varied` are alike.";

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
            recipes!("kuramoto-sivashinsky"),
            || Box::new(simulate::KuramotoSivashinsky::default()),
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{OperatorConfig, Setting};

    /// What our recipe may change of the network: what it sees of time, and the function between layers.
    fn sizes(recipe: &Recipe) -> OperatorConfig {
        let mut operator = recipe.operator.clone();
        match &mut operator {
            OperatorConfig::Mlp(config) => {
                (config.time_embedding, config.activation) = (true, Default::default());
            }
            OperatorConfig::Fno(config) => config.time_embedding = true,
            OperatorConfig::Unet(config) => {
                (config.time_embedding, config.padding) = (true, crate::operator::Padding::Auto);
            }
            OperatorConfig::Dit(config) => config.time_embedding = true,
        }
        operator
    }

    #[test]
    fn our_recipes_have_the_papers_data_network_steps_and_batch() {
        for system in &SYSTEMS {
            let [paper, ours] = [Edition::Paper, Edition::Ours].map(|edition| system.recipe(edition));
            let data = |recipe: &Recipe| {
                let data = &recipe.data;
                (data.simulate.clone(), data.split, data.keep_rate, data.drop_first, data.condition)
            };
            assert_eq!(data(&paper), data(&ours), "{}", system.name);
            assert_eq!(sizes(&paper), sizes(&ours), "{}", system.name);
            assert_eq!((paper.train.steps, paper.train.batch), (ours.train.steps, ours.train.batch));
            assert_eq!(paper.objective, ours.objective, "{}", system.name);
            assert_ne!(paper, ours, "{}", system.name);
        }
    }

    /// Other methods are compared with the paper's on the same data, and, but for the one whose network sees another space, with the same
    /// network, steps and batch.
    #[test]
    fn other_methods_have_the_same_data_network_steps_and_batch() {
        for (method, name, _) in OTHERS {
            let system = System::find(name).unwrap();
            let (paper, other) = (system.recipe(Edition::Paper), system.recipe_by(method).unwrap());
            assert_eq!(paper.data, other.data, "{method} {name}");
            if method == "latent" {
                assert_eq!(paper, Recipe { latent: Default::default(), ..other.clone() }, "{name}");
                assert!(other.latent.wavelet.is_some());
            } else {
                assert_eq!(other.objective.name(), method);
            }
            if method != "conditional-flow-matching" {
                assert_eq!(paper.operator, other.operator, "{method} {name}");
                assert_eq!((paper.train.steps, paper.train.batch), (other.train.steps, other.train.batch));
            }
        }
        assert!(SYSTEMS[0].recipe_by("latent").is_none());
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
