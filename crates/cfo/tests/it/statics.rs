//! Static fields: fields that do not change as inputs of the network.

use std::collections::BTreeMap;
use std::sync::Arc;

use cfo::data::{Description, FieldShape, InputNames, Trajectory, TrajectoryInputs};
use cfo::numerics::Philox;
use cfo::{Recipe, Trained, Trajectories};

use crate::util::trained;

/// Points on the line.
const POINTS: usize = 12;

/// Returns trajectories of `u' = -k(x) u` on a line, with another field `k` each, or one for all.
fn decays(count: usize, shared: bool) -> Trajectories {
    let field = |random: &mut Philox| -> Arc<[f32]> {
        (0..POINTS).map(|_| random.uniform_between(0.3, 2.5) as f32).collect()
    };
    let common = field(&mut Philox::new(7, 0));
    let trajectory = |i: usize| {
        let mut random = Philox::new(8, i as u64);
        let own = field(&mut random);
        let rates = if shared { Arc::clone(&common) } else { own };
        let start: Vec<f64> = (0..POINTS).map(|_| random.normal()).collect();
        let times: Vec<f64> = (0..11).map(|k| 0.2 * f64::from(k)).collect();
        let value = |time: f64, point: usize| (start[point] * (-f64::from(rates[point]) * time).exp()) as f32;
        let values = times.iter().flat_map(|&time| (0..POINTS).map(move |point| (time, point)));
        let values = values.map(|(time, point)| value(time, point)).collect();
        Trajectory::new(times, values, TrajectoryInputs::default().with_statics(rates)).unwrap()
    };
    let description = Description {
        system: "decay".into(),
        shape: FieldShape::line(POINTS, 1),
        periodic: vec![true],
        domain: vec![[0.0, 1.0]],
        channel_names: vec!["u".into()],
        channel_units: vec![],
        inputs: InputNames { statics: vec!["rate".into()], ..InputNames::default() },
    };
    Trajectories::new(description, (0..count).map(trajectory).collect()).unwrap()
}

fn recipe(steps: u32, keys: &[&str]) -> Recipe {
    let text = format!(
        "[operator]\nkind = \"fno\"\nwidth = 12\nblocks = 2\nmodes = 4\ntime = false\n\
         [train]\nsteps = {steps}\nbatch = 16\nlearning_rate = 5e-3\nema = 0.9\nreport_every = 10\n\
         schedule = \"constant\"\ncheckpoint_every = 10\nvalidate_every = 0\n"
    );
    Recipe::parse(&text, &keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>()).unwrap()
}

#[test]
fn a_field_is_an_input_of_every_network() {
    let set = decays(60, false);
    let error = |keys: &[&str]| {
        let trained = trained(&recipe(500, keys), &set, None, false).unwrap();
        trained.evaluate(set.test()).unwrap().relative_l2.mean
    };
    let (with, without) = (error(&[]), error(&["data.statics=false"]));
    assert!(with < 0.4 * without, "{with} with the field, {without} without");
    for keys in [
        &["operator.kind=mlp", "operator.hidden=[16]"][..],
        &["operator.kind=unet", "operator.channels=[8]"],
        &[
            "operator.kind=dit",
            "operator.hidden=8",
            "operator.heads=2",
            "operator.depth=1",
            "operator.patch=2",
        ],
        &["objective.kind=autoregressive"],
        &["objective.kind=neural-ode", "objective.solver=tsit5"],
        &["refine.rounds=1", "data.keep_rate=0.5"],
    ] {
        let text = recipe(2, &[]).to_toml().unwrap();
        let mut table: toml::Table = text.parse().unwrap();
        if keys[0].starts_with("operator.kind") {
            table.remove("operator");
        }
        let all: Vec<String> =
            keys.iter().map(|key| (*key).to_owned()).chain(["train.batch=4".to_owned()]).collect();
        let recipe = Recipe::parse(&table.to_string(), &all).unwrap();
        let trained = trained(&recipe, &set, None, false).unwrap();
        assert!(trained.evaluate(set.test()).unwrap().relative_l2.mean.is_finite(), "{keys:?}");
    }
}

#[test]
fn shared_streamed_and_resumed_trainings_have_the_same_bits() {
    let (set, folder) = (decays(20, true), tempfile::tempdir().unwrap());
    let mut copied = set.clone();
    for trajectory in &mut copied.trajectories {
        let own = trajectory.inputs.statics.as_ref().unwrap().to_vec();
        trajectory.inputs = trajectory.inputs.clone().with_statics(own);
    }
    let weights = |trained: &Trained| {
        trained.with_memory(|memory| {
            let names = memory.names_where(cfo_engine::Role::is_network);
            names.map(|name| (name.to_owned(), memory.read(name).unwrap())).collect::<BTreeMap<_, _>>()
        })
    };
    let whole = weights(&trained(&recipe(20, &[]), &set, None, false).unwrap());
    // The mean over equal fields is rounded in another way than over one: weights agree to rounding.
    let apart = weights(&trained(&recipe(20, &[]), &copied, None, false).unwrap());
    for (one, other) in whole.values().flatten().zip(apart.values().flatten()) {
        assert!((one - other).abs() < 1e-3, "{one} {other}");
    }
    assert!(whole == weights(&trained(&recipe(20, &["data.stream=true"]), &set, None, false).unwrap()));
    let run = folder.path().join("run");
    trained(&recipe(10, &[]), &set, Some(&run), false).unwrap();
    assert!(whole == weights(&trained(&recipe(20, &[]), &set, Some(&run), true).unwrap()));
    let loaded = Trained::load(&run).unwrap();
    let inputs = &set.trajectories[0].inputs;
    let state = &set.trajectories[0].values[..POINTS];
    let found = loaded.with_inputs(inputs).predict(state, 0.0, &[1.0]).unwrap();
    assert_eq!(found.states.len(), POINTS);
    assert_eq!(loaded.with_inputs(inputs).velocity(state, &[0.5]).unwrap().len(), POINTS);
    let short = TrajectoryInputs::default().with_statics(vec![0.0; POINTS - 1]);
    for inputs in [&short, &TrajectoryInputs::default()] {
        let refused = loaded.with_inputs(inputs).predict(state, 0.0, &[1.0]).unwrap_err();
        assert!(refused.to_string().contains("the model takes 12: `rate` at each point"), "{refused}");
    }
}
