//! Tests of proposals for files of each kind.

use cfo_data::simulate::{self, Equation};
use cfo_data::store::{TrajectoryWriter, WriteOptions};
use cfo_data::{Description, FieldShape, InputNames, Trajectory};
use cfo_numerics::Philox;

use super::*;
use crate::operator::OperatorConfig;
use crate::predict::rollout::Solver;

fn proposed(equation: &dyn Equation) -> Proposal {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.h5");
    let mut writer =
        TrajectoryWriter::create(&path, &equation.description(), WriteOptions::default()).unwrap();
    let never = std::sync::atomic::AtomicBool::new(false);
    simulate::run(equation, 12, 0, &never, |_, trajectory| {
        writer.push(&trajectory, None)?;
        Ok::<(), CfoError>(())
    })
    .unwrap();
    writer.finish().unwrap();
    Proposal::new(&TrajectoryFile::open(&path).unwrap(), Machine::cores(2)).unwrap()
}

#[test]
fn a_proposal_reads_back_as_its_recipe() {
    let lorenz = simulate::Lorenz { frames: 61, horizon: 0.6, ..simulate::Lorenz::default() };
    let proposal = proposed(&lorenz);
    let text = proposal.to_toml().unwrap();
    assert_eq!(Recipe::parse(&text, &[]).unwrap(), proposal.recipe, "{text}");
    // Every line that sets a key has a reason.
    for line in text.lines().filter(|line| line.contains(" = ")) {
        assert!(line.contains(" # "), "{line}");
    }
    assert!(matches!(&proposal.recipe.operator, OperatorConfig::Mlp(mlp) if !mlp.time.is_on()));
    assert_ne!(proposal.recipe.path.spline, cfo_numerics::Spline::Linear);
}

#[test]
fn fields_get_networks_that_two_cores_train() {
    let burgers = simulate::Burgers { grid: 50, frames: 21, viscosity: 0.05, ..simulate::Burgers::default() };
    let proposal = proposed(&burgers);
    let OperatorConfig::Fno(fno) = &proposal.recipe.operator else { panic!("{proposal:?}") };
    assert!(!fno.time, "{}", proposal.to_toml().unwrap());
    assert_eq!(fno.modes, 16);
    assert!((3_000..=6_000).contains(&proposal.recipe.train.steps));
}

/// Checks that times that follow the speed of a field are distinguished from random and from uniform times, for any unit of time.
#[test]
fn every_file_gets_a_solver_that_chooses_its_steps() {
    let follows = |place: fn(f64, &mut Philox) -> f64, unit: f64| {
        let trajectories = (0..12).map(|i| {
            let mut random = Philox::new(5, i);
            let phase = random.uniform_between(0.0, 6.0);
            let mut times: Vec<f64> = (0..=80).map(|k| place(f64::from(k) / 80.0, &mut random)).collect();
            times.sort_by(f64::total_cmp);
            // Fast at first, later a hundred times slower.
            let state = |t: &f64| {
                [(-60.0 * t).exp() + (phase + t).sin(), (-60.0 * t).exp() - 0.5 * (phase + t).cos()]
            };
            let values = times.iter().flat_map(state).map(|value| value as f32).collect();
            Trajectory::new(times.iter().map(|time| unit * time).collect(), values, vec![]).unwrap()
        });
        let description = Description {
            system: "transient".into(),
            shape: FieldShape::system(2),
            periodic: vec![],
            domain: vec![],
            channel_names: vec!["u".into(), "v".into()],
            channel_units: vec![],
            inputs: InputNames::default(),
        };
        let held = crate::Trajectories::new(description, trajectories.collect()).unwrap();
        let file = TrajectoryFile::held(std::sync::Arc::new(held)).unwrap();
        let proposal = Proposal::new(&file, Machine::cores(2)).unwrap();
        assert_eq!(proposal.recipe.solver().unwrap(), Solver::tsit5(1e-4, 1e-6).unwrap());
        proposal.to_toml().unwrap().contains("so did the solver of the data")
    };
    for unit in [1e-6, 1.0, 1e6] {
        assert!(follows(|share, _| share.powi(3), unit));
        assert!(!follows(|_, random| random.uniform(), unit));
        assert!(!follows(|share, _| share, unit));
    }
}

#[test]
fn durations_are_rounded() {
    let words = [3.0, 42.0, 200.0, 9000.0].map(duration);
    assert_eq!(words, ["a few seconds", "40 seconds", "3 minutes", "3 hours"]);
}

#[test]
fn trajectories_in_memory_get_the_proposal_of_their_file() {
    let lorenz = simulate::Lorenz { frames: 61, horizon: 0.6, ..simulate::Lorenz::default() };
    let held = crate::Trajectories::simulate(&lorenz, 12, 0, &false.into()).unwrap();
    let file = TrajectoryFile::held(std::sync::Arc::new(held)).unwrap();
    let proposal = Proposal::new(&file, Machine::cores(2)).unwrap();
    assert_eq!(proposal, proposed(&lorenz));
    let brief = proposal.for_steps(40).recipe.train;
    assert_eq!((brief.steps, brief.report_every, brief.validate_every, brief.warmup), (40, 1, 8, 2));
}
