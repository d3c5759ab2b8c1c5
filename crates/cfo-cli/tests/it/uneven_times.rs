//! Data as a solver that chooses its steps leaves them: dense snapshots in a fast transient, few in the slow rest.

use cfo_data::store::{TrajectoryWriter, WriteOptions};
use cfo_data::{Description, FieldShape, InputNames, Trajectory};
use cfo_numerics::Philox;

use crate::util::Folder;

/// `u' = -100 (u - v)`, `v' = -v / 2`: after the transient both fall slowly, where steps of more than 0.028 let Runge and Kutta's method explode. The mean
/// interval is 0.04, the longest twice that.
fn stiff() -> Folder {
    let (fast, slow) = (100.0, 0.5);
    let times: Vec<f64> =
        (0..=25).map(|k| 0.002 * f64::from(k)).chain((1..=25).map(|k| 0.05 + 0.08 * f64::from(k))).collect();
    let description = Description {
        system: "two rates".into(),
        shape: FieldShape::system(2),
        periodic: vec![],
        domain: vec![],
        channel_names: vec!["u".into(), "v".into()],
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    let folder = Folder::new();
    let mut writer =
        TrajectoryWriter::create(folder.path("stiff.npz"), &description, WriteOptions::default()).unwrap();
    for number in 0..60 {
        let mut random = Philox::new(1, number);
        let [u, v] = [random.uniform_between(-1.0, 1.0), random.uniform_between(-1.0, 1.0)];
        let followed = fast / (fast - slow) * v;
        let state = |t: &f64| {
            [(u - followed) * (-fast * t).exp() + followed * (-slow * t).exp(), v * (-slow * t).exp()]
        };
        let values = times.iter().flat_map(state).map(|value| value as f32).collect();
        writer.push(&Trajectory::new(times.clone(), values, vec![]).unwrap(), None).unwrap();
    }
    writer.finish().unwrap();
    folder
}

const KEYS: &str = "--set operator.hidden=[32,32] --set train.steps=1500 --set train.batch=256 --set train.learning_rate=4e-3 --set path.spline=quintic \
                    --set path.stencil=5 --device cpu";

#[test]
fn steps_that_are_too_long_are_told_from_a_bad_network() {
    let folder = stiff();
    let error = |line: &str| {
        let found = folder.cfo(&format!("evaluate {line} --data stiff.npz --device cpu --json")).done();
        let document = found.json();
        (document["relative_l2"]["mean"].as_f64().unwrap(), document["shorter_steps"].clone(), found.stderr)
    };
    folder
        .cfo(&format!(
            "train --data stiff.npz --out run {KEYS} --set evaluate.solver=rk4 --set path.draw=intervals"
        ))
        .done();
    let (exploded, shorter, said) = error("run");
    assert!(exploded > 1e3, "{exploded}");
    assert!(shorter["relative_l2"][1].as_f64().unwrap() < 0.1, "{shorter}");
    assert!(said.contains("the solver's steps are too long") && said.contains("--solver tsit5"), "{said}");
    // A prediction knows no truth, and says it too; what it wrote is not usable.
    let predicted = |options: &str| {
        let line =
            format!("predict run --initial stiff.npz --times 0:2:26 --out p.npz --force --json {options}");
        let found = folder.cfo(&line).done();
        (found.json()["warnings"].to_string(), found.stderr)
    };
    let (warnings, said) = predicted("");
    for text in ["the solver's steps are too long", "leaves the range of the training data"] {
        assert!(warnings.contains(text) && said.contains(text), "{warnings} {said}");
    }
    assert_eq!(predicted("--solver tsit5").0, "[]");
    // The same where the result of an evaluation is printed.
    let printed = folder.cfo("evaluate run --data stiff.npz --device cpu").done().stdout;
    assert!(printed.contains("left the range of the training data"), "{printed}");
    // Who chooses the steps is not asked again; what is advised helps.
    let (advised, shorter, said) = error("run --solver tsit5");
    assert!(advised < 5e-3 && shorter.is_null() && !said.contains("too long"), "{advised} {said}");
    let (many, shorter, said) = error("run --nfe 1600");
    assert!(many < 5e-3 && shorter.is_null() && !said.contains("too long"), "{many} {said}");
}

/// The recipe that is proposed takes a solver that chooses its steps; drawing intervals alike shows the network more of the transient.
#[test]
fn uneven_times_get_a_solver_that_chooses_its_steps() {
    let folder = stiff();
    let proposed = folder.cfo("init stiff.npz").done().stdout;
    assert!(proposed.contains("solver = \"auto\"") && proposed.contains("`tsit5`"), "{proposed}");
    let error = |draw: &str| {
        folder.cfo(&format!("train --data stiff.npz --out {draw} {KEYS} --set path.draw={draw}")).done();
        let document =
            folder.cfo(&format!("evaluate {draw} --data stiff.npz --device cpu --json")).done().json();
        document["relative_l2"]["mean"].as_f64().unwrap()
    };
    let [times, intervals] = ["times", "intervals"].map(error);
    assert!(intervals < 0.5 * times && times < 0.1, "{intervals} {times}");
    let refused = folder.cfo("train --data stiff.npz --out other --set path.draw=knots").ended_with(2);
    assert!(refused.stderr.contains("`times`, `intervals`, `snapshots`"), "{}", refused.stderr);
}
