//! Tests of recipes: keys, values, overrides and their errors.

mod reference;

use super::*;

#[test]
fn overrides_reach_their_keys_and_survive_a_round_trip() {
    let text = "[train]\nsteps = 10\n[operator]\nkind = \"mlp\"\n";
    let set = ["train.steps=20", "path.spline=linear", "path.noise.amplitude=0", "data.keep_rate = 0.25"];
    let recipe = Recipe::parse(text, &set.map(String::from)).unwrap();
    assert_eq!((recipe.train.steps, recipe.path.spline), (20, cfo_numerics::Spline::Linear));
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
fn normalisation_has_names() {
    let parsed = |value: &str| Recipe::parse("", &[format!("data.normalize={value}")]);
    for (value, meaning) in [
        ("standard", Normalize::Standard),
        ("center", Normalize::Center),
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
        assert_eq!(recipe.train.precision_on(Device::Cpu), on_cpu, "{named}");
        assert_eq!(recipe.train.precision_on(Device::Cuda(0)).to_string(), named);
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
        ("train.schedule=sawtooth", "unknown choice `sawtooth`; known are `constant`, `cosine`, `warmup`"),
        (
            "train.schedule=3",
            "`train.schedule`: unknown choice `3`; known are `constant`, `cosine`, `warmup`",
        ),
        ("data.split=[1, -2, 3]", "`data.split`: invalid value: integer `-2`, expected a count or a share"),
        ("train.betas=[0.9]", "`train.betas`: invalid length 1"),
        (
            "train.deterministic=1",
            "`train.deterministic`: invalid type: integer `1`, expected `true` or `false`",
        ),
        ("train.learning_rate=nan", "`train.learning_rate`: NaN"),
        ("train.weight_decay=nan", "`train.weight_decay`: NaN"),
        ("train.weight_decay=-1", "`train.weight_decay`: -1"),
        ("train.clip=-1", "`train.clip`: -1"),
        ("train.clip=inf", "`train.clip`: inf"),
        ("train.ema=nan", "`train.ema`: NaN must lie in [0, 1)"),
        ("train.betas=[0.9, 1.0]", "`train.betas`: [0.9, 1.0] must lie in [0, 1)"),
        ("data.keep_rate=0", "`data.keep_rate`: 0 must lie in (0, 1]"),
        ("path.noise.amplitude=-1", "`path.noise.amplitude`: -1"),
        ("path.spline=septic-ish", "septic-ish"),
        ("path.stencil=1", "`path.stencil`"),
        ("path.smoothing=-0.1", "`path.smoothing`"),
        ("path.smoothing=nan", "`path.smoothing`"),
        ("path.smoothing=much", "much"),
        ("evaluate.solver=rk5", "unknown choice `rk5`"),
        ("evaluate.solver.rtol=nan", "`evaluate.solver.rtol`: NaN"),
        ("evaluate.solver.atol=-1", "`evaluate.solver.atol`: -1"),
        ("operator.kind=cnn", "`cnn`"),
        ("objective.kind=gan", "`gan`"),
        ("train=3", "train"),
        ("nonsense", "`nonsense` is not of the form key=value"),
    ] {
        let text = refused(set).to_string();
        assert!(text.contains(said), "{set}: {text}");
    }
    // Keys of sections with kinds are named too.
    for (kind, set, said) in [
        (
            "neural-ode",
            "solver.steps=-2",
            "`objective.solver`: invalid value: integer `-2`, expected a whole number, 0 or more",
        ),
        ("neural-ode", "solver=rk5", "`objective.solver`: unknown choice `rk5`"),
        ("pde-refiner", "form=x", "`objective.form`: unknown choice `x`; known are `noise`, `velocity`"),
        ("pde-refiner", "deviation=small", "`objective.deviation`: invalid type"),
    ] {
        let sets = [format!("objective.kind={kind}"), format!("objective.{set}")];
        let error = Recipe::parse("", &sets).unwrap_err();
        assert!(error.to_string().contains(said), "{set}: {error}");
        assert!(error.hint().is_some());
    }
    assert!(refused("finetune.steps=-1").to_string().contains("`finetune.steps`: invalid value"));
    let idle = ["train.patience=2", "train.validate_every=0"].map(String::from);
    assert!(Recipe::parse("", &idle).unwrap_err().to_string().contains("`train.validate_every` is 0"));
    let solved = ["objective.kind=neural-ode", "train.precision=bf16"].map(String::from);
    let tuned =
        ["finetune.steps=5", "finetune.solver=tsit5", "finetune.solver.steps=0", "train.precision=bf16"];
    for coarse in [&solved[..], &tuned.map(String::from)] {
        let error = Recipe::parse("", coarse).unwrap_err();
        let said = format!("{error} {}", error.hint().unwrap());
        assert!(said.contains("more digits") && said.contains("`tf32` or `f32`"), "{said}");
        // Equal steps need no estimate of their error.
        let key = if coarse.len() == 2 { "objective" } else { "finetune" };
        let mut equal = coarse.to_vec();
        equal.push(format!("{key}.solver.steps=2"));
        Recipe::parse("", &equal).unwrap();
    }
    let both = ["data.path=a.h5", "data.simulate=lorenz"].map(String::from);
    assert!(Recipe::parse("", &both).unwrap_err().to_string().contains("`data.path` names the data"));
}

#[test]
fn another_kind_has_its_defaults_and_keeps_what_both_have() {
    let text = "[operator]\nkind = \"mlp\"\nhidden = [32, 32]\ntime = false\n";
    let set = |set: &[&str]| Recipe::parse(text, &set.iter().map(ToString::to_string).collect::<Vec<_>>());
    for order in
        [["operator.kind=unet", "operator.channels=[8]"], ["operator.channels=[8]", "operator.kind=unet"]]
    {
        let recipe = set(&order).unwrap();
        let channels = Some(vec![8]);
        let expected = crate::operator::Unet { channels, time: false.into(), ..Default::default() };
        assert_eq!(recipe.operator, OperatorConfig::Unet(expected));
    }
    // The same name with another meaning is not kept.
    assert!(
        matches!(set(&["operator.kind=dit"]).unwrap().operator, OperatorConfig::Dit(dit) if dit.hidden == 384)
    );
    assert!(
        matches!(set(&["operator.kind=mlp"]).unwrap().operator, OperatorConfig::Mlp(mlp) if mlp.hidden == [32, 32])
    );
    // What no kind has is still refused.
    let unknown = "[operator]\nkind = \"mlp\"\nhiden = [3]\n";
    assert!(Recipe::parse(unknown, &["operator.kind=unet".into()]).is_err());
}
