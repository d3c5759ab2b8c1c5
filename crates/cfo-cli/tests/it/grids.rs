//! Grids that strides and patches do not divide, and grids other than that of the training.

use crate::util::Folder;

/// Recipes that train in about a second.
fn recipe(operator: &str) -> String {
    format!(
        "operator = {operator}\n[train]\nsteps = 150\nbatch = 16\nlearning_rate = 3e-3\nschedule = \"cosine\"\n\
         validate_every = 0\n"
    )
}

const FNO: &str = "{ kind = \"fno\", width = 16, blocks = 2, modes = 5, time = false }";
const UNET: &str = "{ kind = \"unet\", channels = [8, 16], groups = 4, time = false }";
const DIT: &str = "{ kind = \"dit\", patch = 4, hidden = 16, depth = 1, heads = 2, mlp_ratio = 2 }";

fn error(folder: &Folder, run: &str, data: &str) -> f64 {
    let found = folder.cfo(&format!("evaluate {run} --data {data} --split all --json")).done().json();
    found["relative_l2"]["mean"].as_f64().unwrap()
}

/// The states of one seed are the same functions on every grid, so an operator that learned one grid has to do as well on another.
#[test]
fn a_fourier_operator_takes_another_resolution_than_it_was_trained_on() {
    let folder = Folder::new();
    for grid in [32, 48, 64] {
        let line = format!(
            "simulate burgers --viscosity 0.05 --grid {grid} --frames 21 --samples 24 --out {grid}.h5"
        );
        folder.cfo(&line).done();
    }
    std::fs::write(folder.path("fno.toml"), recipe(FNO)).unwrap();
    std::fs::write(folder.path("unet.toml"), recipe(UNET)).unwrap();
    folder.cfo("train fno.toml --data 32.h5 --out fno").done();
    let trained = error(&folder, "fno", "32.h5");
    assert!(trained < 0.5, "{trained}");
    for other in ["48.h5", "64.h5"] {
        let found = error(&folder, "fno", other);
        // The network sees the same modes; what is left is how finely the same functions are sampled.
        assert!((found / trained - 1.0).abs() < 0.1, "{other}: {found} against {trained}");
    }
    folder.cfo("predict fno --initial 64.h5 --times 0.1,0.2 --out p.h5").done();
    let shape = folder.cfo("inspect p.h5 --json").done().json();
    assert_eq!(shape["shape"], serde_json::json!([64, 1]));

    folder.cfo("train unet.toml --data 32.h5 --out unet --set train.steps=1").done();
    for line in ["evaluate unet --data 64.h5", "predict unet --initial 64.h5 --times 0.1 --out q.h5"] {
        let refused = folder.cfo(line).ended_with(2);
        assert!(refused.stderr.contains("[64, 1]") && refused.stderr.contains("fno"), "{}", refused.stderr);
    }
}

#[test]
fn networks_learn_on_grids_that_do_not_divide() {
    let folder = Folder::new();
    folder.cfo("simulate burgers --viscosity 0.05 --grid 51 --frames 21 --samples 24 --out line.h5").done();
    folder.cfo("simulate shallow-water --grid 23 --frames 11 --samples 8 --out plane.h5").done();
    for (name, operator) in [("unet", UNET), ("dit", DIT)] {
        std::fs::write(folder.path("recipe.toml"), recipe(operator)).unwrap();
        for (data, steps, bound) in [("line.h5", 100, 0.6), ("plane.h5", 10, 0.3)] {
            folder
                .cfo(&format!(
                    "train recipe.toml --data {data} --out {name}-{data} --set train.steps={steps}"
                ))
                .done();
            let found = error(&folder, &format!("{name}-{data}"), data);
            assert!(found < bound, "{name} on {data}: {found}");
        }
    }
}
