//! Systems by name, with options as text.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

use super::{
    Burgers, DiffusionReaction, Equation, GrayScott, KuramotoSivashinsky, Lorenz, ShallowWater,
    SimulationError, Variant,
};

type Create = fn(&str, &[(String, String)]) -> Result<Box<dyn Equation>, SimulationError>;

const SYSTEMS: [(&str, Create); 6] = [
    ("lorenz", filled::<Lorenz>),
    ("burgers", filled::<Burgers>),
    ("diffusion-reaction", filled::<DiffusionReaction>),
    ("shallow-water", filled::<ShallowWater>),
    ("kuramoto-sivashinsky", filled::<KuramotoSivashinsky>),
    ("gray-scott", filled::<GrayScott>),
];

/// Creates the system of this name from options, its configuration's fields as text; others have their defaults.
///
/// # Errors
/// If there is no such system or option, or a value has the wrong type. [`Equation::check`] checks ranges.
///
/// ```
/// use cfo_data::simulate::named;
///
/// let lorenz = named("lorenz", &[("frames".into(), "11".into())])?;
/// assert_eq!(lorenz.times().len(), 11);
/// assert!(named("lorenz", &[("frame".into(), "11".into())]).err().unwrap().hint().unwrap().contains("`frames`"));
/// # Ok::<(), cfo_data::simulate::SimulationError>(())
/// ```
pub fn named(system: &str, options: &[(String, String)]) -> Result<Box<dyn Equation>, SimulationError> {
    let found = SYSTEMS.iter().find(|(name, _)| *name == system);
    let (_, create) = found.ok_or_else(|| SimulationError::Unknown {
        what: "system".into(),
        found: system.into(),
        known: SYSTEMS.map(|(name, _)| name.to_owned()).into(),
    })?;
    create(system, options)
}

fn filled<E: Equation + Default + Serialize + DeserializeOwned + 'static>(
    system: &str,
    options: &[(String, String)],
) -> Result<Box<dyn Equation>, SimulationError> {
    let mut fields = serde_json::to_value(E::default()).expect("fields are numbers and names");
    for (name, text) in options {
        let Some(field) = fields.get_mut(name) else {
            let known = fields.as_object().map(|fields| fields.keys().cloned().collect());
            return Err(SimulationError::Unknown {
                what: format!("option of `{system}`"),
                found: name.clone(),
                known: known.unwrap_or_default(),
            });
        };
        let misfit = |need: &str| SimulationError::Option {
            name: name.clone(),
            value: format!("`{text}`"),
            need: need.into(),
        };
        *field = match field {
            Value::Number(number) if number.is_f64() => {
                let number = text.parse().ok().and_then(Number::from_f64);
                number.ok_or_else(|| misfit("a finite number"))?.into()
            }
            Value::Number(_) => {
                text.parse::<usize>().map_err(|_| misfit("a whole number that is not negative"))?.into()
            }
            // The only option with names as values.
            _ => text.parse::<Variant>()?.name().into(),
        };
    }
    let equation: E = serde_json::from_value(fields).expect("every field has the type of its default");
    Ok(Box::new(equation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn every_system_has_its_name_and_its_defaults() {
        for (name, _) in SYSTEMS {
            let equation = named(name, &[]).unwrap();
            assert_eq!(equation.name(), name);
            equation.check().unwrap();
        }
        let options = options(&[("sigma", "25"), ("viscosity", "1e-2"), ("grid", "32"), ("frames", "3")]);
        let field = super::super::RandomField { sigma: 25.0, ..Default::default() };
        let ours = Burgers { field, grid: 32, frames: 3, ..Burgers::default() };
        let named = named("burgers", &options).unwrap();
        assert_eq!(named.trajectory(0, 1).unwrap(), ours.trajectory(0, 1).unwrap());
    }

    #[test]
    fn unknown_names_and_wrong_values_are_refused() {
        for (system, pairs, problem) in [
            ("lorentz", vec![], "unknown system `lorentz`"),
            ("lorenz", vec![("frame", "3")], "unknown option of `lorenz` `frame`"),
            ("lorenz", vec![("frames", "many")], "`frames` is `many`; it must be a whole number"),
            ("lorenz", vec![("frames", "-1")], "`frames` is `-1`; it must be a whole number"),
            ("lorenz", vec![("horizon", "inf")], "`horizon` is `inf`; it must be a finite number"),
            ("shallow-water", vec![("variant", "river")], "it must be `dam-break` or `varied`"),
        ] {
            let error = named(system, &options(&pairs)).err().unwrap();
            assert!(error.to_string().contains(problem), "{error}");
            assert!(error.hint().is_some(), "{error}");
        }
    }
}
