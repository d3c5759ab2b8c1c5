//! Training and rollouts in wavelet coefficients, with errors in the space of the data.

use cfo::data::{Description, FieldShape, InputNames, Trajectory};
use cfo::operator::{Mlp, Unet};
use cfo::recipe::{LatentConfig, LatentWavelet};
use cfo::{Device, Recipe, Trained, Training, Trajectories};

/// Returns travelling and decaying waves on a periodic line or plane, with random phases and amplitudes.
fn waves(count: usize, frames: usize, [height, width]: [usize; 2]) -> Trajectories {
    let wave = |i: usize| {
        let part = |k: usize| (0.3 + (i as f64 * 0.618 * (k + 1) as f64).fract(), (i * (k + 2)) as f64 * 2.4);
        let times: Vec<f64> = (0..frames).map(|k| k as f64 / (frames - 1) as f64).collect();
        let mut values = Vec::new();
        for &t in &times {
            for place in 0..height * width {
                let (y, x) = ((place / width) as f64 / height as f64, (place % width) as f64 / width as f64);
                let mode = |k: usize| {
                    let (size, phase) = part(k);
                    let turns = std::f64::consts::TAU * ((k + 1) as f64 * (x - 0.4 * t) + k as f64 * y);
                    size / (k + 1) as f64 * (-0.3 * k as f64 * t).exp() * (turns + phase).sin()
                };
                values.push((mode(0) + mode(1)) as f32);
            }
        }
        Trajectory::new(times, values, vec![]).unwrap()
    };
    let line = height == 1;
    let description = Description {
        system: "waves".into(),
        shape: if line { FieldShape::line(width, 1) } else { FieldShape::plane(height, width, 1) },
        periodic: vec![true; if line { 1 } else { 2 }],
        domain: vec![[0.0, 1.0]; if line { 1 } else { 2 }],
        channel_names: vec!["u".into()],
        channel_units: vec![],
        inputs: InputNames::default(),
    };
    Trajectories::new(description, (0..count).map(wave).collect()).unwrap()
}

fn persistence(data: &Trajectories) -> f64 {
    let size = data.description.shape.len();
    let read = data.test().read().unwrap();
    let error = |one: &Trajectory| {
        let first = one.values[..size].iter().cycle();
        let distance: f32 = one.values.iter().zip(first).map(|(now, first)| (now - first).powi(2)).sum();
        f64::from((distance / one.values.iter().map(|value| value * value).sum::<f32>()).sqrt())
    };
    read.iter().map(|one| error(one)).sum::<f64>() / read.len() as f64
}

fn in_space(wavelet: LatentWavelet, levels: usize) -> LatentConfig {
    LatentConfig { wavelet: Some(wavelet), levels }
}

fn training(steps: u32, kind: &str, latent: LatentConfig) -> Training<'static> {
    let mlp = Mlp { hidden: vec![96, 96], time: (kind != "flow-matching").into(), ..Mlp::default() };
    let recipe = Recipe::default().with(&[format!("objective.kind={kind}")]).unwrap();
    Training::new(mlp)
        .configure(|own| own.objective = recipe.objective)
        .configure(|own| (own.latent, own.train.ema) = (latent, 0.98))
        .device(Device::Cpu)
        .steps(steps)
        .batch(64)
        .learning_rate(3e-3)
}

/// Checks that every objective trains on coefficients: the error in the space of the data is a fifth of that of a constant prediction.
/// Resumed and streamed runs must be bit-identical.
#[test]
fn every_objective_learns_in_coefficients_and_resumes() {
    let (data, folder) = (waves(48, 17, [1, 16]), tempfile::tempdir().unwrap());
    let still = persistence(&data);
    let size = data.description.shape.len();
    for (kind, latent) in [
        ("flow-matching", in_space(LatentWavelet::Daubechies4, 2)),
        ("autoregressive", in_space(LatentWavelet::Haar, 1)),
        ("neural-ode", in_space(LatentWavelet::Haar, 1)),
        ("pde-refiner", in_space(LatentWavelet::Haar, 2)),
        ("conditional-flow-matching", in_space(LatentWavelet::Daubechies4, 1)),
    ] {
        // Generation of whole trajectories needs a larger network; here only their shape is checked.
        if kind != "conditional-flow-matching" {
            let trained = training(600, kind, latent).fit(&data).unwrap();
            let error = trained.evaluate(data.test()).unwrap().relative_l2.mean;
            assert!(5.0 * error < still, "{kind}: relative L2 {error}; of a constant prediction {still}");
        }
        let run = folder.path().join(kind);
        let start = &data.trajectories[0].values[..size];
        let predict = |trained: &Trained| trained.predict(start, 0.0, &[0.0625, 0.125]).unwrap();
        let part = training(20, kind, latent).folder(&run).fit(&data).unwrap();
        let loaded = Trained::loader(&run).checkpoint("latest").device(Device::Cpu).load().unwrap();
        assert_eq!(predict(&loaded), predict(&part));
        let resumed = training(30, kind, latent).folder(&run).resume(true).fit(&data).unwrap();
        let whole = training(30, kind, latent).fit(&data).unwrap();
        assert_eq!(predict(&resumed), predict(&whole), "{kind}: resumed");
        let streamed = training(30, kind, latent).configure(|recipe| recipe.data.stream = Some(true));
        assert_eq!(predict(&streamed.fit(&data).unwrap()), predict(&whole), "{kind}: streamed");
    }
}

/// Returns the data with a second channel of another size, mean and time course, on a periodic or bounded axis.
fn with_channel(data: &Trajectories, periodic: bool) -> Trajectories {
    let mut description = data.description.clone();
    description.shape.channels = 2;
    description.channel_names.push("v".into());
    description.periodic.fill(periodic);
    let doubled = |one: &Trajectory| {
        let pair = |(i, &u): (usize, &f32)| [u, 40.0 - 30.0 * u * u + 0.1 * (i % 7) as f32];
        let values = one.values.iter().enumerate().flat_map(pair).collect();
        Trajectory::new(one.times.to_vec(), values, vec![]).unwrap()
    };
    Trajectories::new(description, data.trajectories.iter().map(doubled).collect()).unwrap()
}

/// Checks that all coefficients of a channel have its units of values, changes and velocities, since a wavelet only rotates the space of
/// states.
#[test]
fn coefficients_have_the_units_of_the_data() {
    let (line, plane) = (waves(12, 9, [1, 16]), waves(12, 9, [8, 16]));
    for (data, wavelets) in [(with_channel(&line, true), 3), (with_channel(&plane, false), 2)] {
        let units = |latent: LatentConfig| {
            let trained = training(1, "flow-matching", latent).fit(&data).unwrap();
            let scaling = &trained.model().scaling;
            let deviation = &scaling.deviation;
            let in_users = |of: &[f64]| of.iter().zip(deviation).map(|(unit, one)| unit * one).collect();
            [in_users(&scaling.change), in_users(&scaling.velocity), deviation.clone()]
        };
        let states = units(LatentConfig::default());
        assert!(states.iter().all(|of| of[1] / of[0] != 1.0), "channels with different units: {states:?}");
        for (wavelet, levels) in [LatentWavelet::Haar, LatentWavelet::Daubechies4]
            .into_iter()
            .flat_map(|wavelet| (1..=wavelets).map(move |levels| (wavelet, levels)))
        {
            let found = units(in_space(wavelet, levels));
            // At ends, filters of four taps have details with a mean. Only the units of changes and velocities are then equal.
            let ends = wavelet == LatentWavelet::Daubechies4 && !data.description.periodic[0];
            for (of_states, of_coefficients) in states.iter().zip(&found).take(if ends { 2 } else { 3 }) {
                assert!(of_coefficients.len() > of_states.len());
                for (unit, of_channel) in of_coefficients.iter().zip(of_states.iter().cycle()) {
                    // Sums of squares in single precision; the mean of the values is twice their deviation.
                    assert!(
                        (unit / of_channel - 1.0).abs() < 1e-4,
                        "{wavelet:?}, {levels}: {unit} {of_states:?}"
                    );
                }
            }
        }
    }
}

/// Checks a U-Net on a plane with halved sides. Velocity and vector-Jacobian product must be those of the space of the data.
#[test]
fn planes_are_learnt_and_velocities_come_back() {
    let data = waves(24, 9, [8, 16]);
    let unet = Unet { channels: Some(vec![16]), groups: 4, time: false.into(), ..Unet::default() };
    let training = |steps: u32, latent: LatentConfig| {
        let own = unet.clone();
        let training = Training::new(own).device(Device::Cpu).steps(steps).batch(16).learning_rate(5e-3);
        training.configure(move |recipe| recipe.latent = latent)
    };
    let trained = training(250, in_space(LatentWavelet::Daubechies4, 1)).fit(&data).unwrap();
    assert_eq!(trained.model().setting.field, FieldShape::plane(4, 8, 4));
    assert_eq!(trained.model().shape(), data.description.shape);
    let (error, still) = (trained.evaluate(data.test()).unwrap().relative_l2.mean, persistence(&data));
    assert!(5.0 * error < still, "relative L2 {error}; of a constant prediction {still}");

    let state = &data.trajectories[1].values[..128];
    let velocity = trained.velocity(state, &[0.3]).unwrap();
    let step = 1e-3_f32;
    let moved: Vec<f32> = state.iter().zip(&velocity).map(|(u, v)| u + step * v).collect();
    let found = trained.predict(state, 0.3, &[0.3 + f64::from(step)]).unwrap();
    for (moved, found) in moved.iter().zip(found.state(0)) {
        // A step of a thousandth has an error of its square.
        assert!((moved - found).abs() < 2e-4, "{moved} {found}");
    }
    let vector: Vec<f32> = (0..128).map(|i| (i as f32 * 0.7).sin()).collect();
    let product = trained.vector_jacobian(state, &[0.3], &vector).unwrap();
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    let shifted = |sign: f32| -> Vec<f32> {
        let moved = state.iter().zip(&vector).map(|(u, w)| u + sign * 1e-2 * w).collect::<Vec<f32>>();
        trained.velocity(&moved, &[0.3]).unwrap()
    };
    let difference = (dot(&vector, &shifted(1.0)) - dot(&vector, &shifted(-1.0))) / 2e-2;
    let exact = dot(&product, &vector);
    // Differences in single precision, over a hundredth of the state.
    assert!((difference / exact - 1.0).abs() < 0.02, "{difference} for {exact}");
}

#[test]
fn grids_that_do_not_divide_are_refused_before_training() {
    let latent = in_space(LatentWavelet::Haar, 3);
    let refused = training(5, "flow-matching", latent).fit(&waves(8, 5, [1, 20])).unwrap_err();
    assert!(
        refused.to_string().contains("width of the grid is 20, which is not a multiple of 8"),
        "{refused}"
    );
    assert!(refused.hint().unwrap().contains("`latent.levels` to 2"), "{refused:?}");
    let no_name = Recipe::parse("", &["latent.wavelet=coiflet".into()]).unwrap_err();
    assert!(no_name.to_string().contains("coiflet"), "{no_name}");
    let no_level = Recipe::parse("", &["latent.levels=0".into()]).unwrap_err();
    assert!(no_level.to_string().contains("`latent.levels`: 0"), "{no_level}");
}
