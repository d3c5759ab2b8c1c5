//! Nothing is lost: resumed runs end in the same bits, damaged checkpoints are refused.

use std::path::Path;

use cfo::engine::Device;
use cfo::{Checkpoints, Recipe, Trained};

use crate::util::{oscillators, recipe, trained};

fn weights(run: &Path) -> Vec<u8> {
    std::fs::read(run.join("checkpoints/latest/weights.safetensors")).unwrap()
}

#[test]
fn a_resumed_run_ends_in_the_same_bits() {
    let set = oscillators(12);
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    trained(&recipe(120), &set, Some(&whole), false).unwrap();
    let interrupted = Recipe { train: cfo::TrainConfig { steps: 73, ..recipe(120).train }, ..recipe(120) };
    // The schedule must not depend on where the first part stops.
    let constant = |mut recipe: Recipe| {
        recipe.train.schedule = "constant".into();
        recipe
    };
    trained(&constant(interrupted), &set, Some(&parts), false).unwrap();
    trained(&constant(recipe(120)), &set, Some(&parts), true).unwrap();
    let straight = folder.path().join("straight");
    trained(&constant(recipe(120)), &set, Some(&straight), false).unwrap();
    assert_eq!(weights(&parts), weights(&straight));
    assert_ne!(weights(&whole), weights(&straight), "the schedule should matter");
    let lines = std::fs::read_to_string(parts.join("metrics.jsonl")).unwrap();
    let steps: Vec<u64> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["step"].as_u64().unwrap())
        .collect();
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1]) && steps.last() == Some(&120), "{steps:?}");
}

#[test]
fn other_data_or_another_recipe_cannot_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    trained(&recipe(40), &oscillators(12), Some(folder.path()), false).unwrap();
    let other = trained(&recipe(80), &oscillators(13), Some(folder.path()), true).unwrap_err();
    assert!(other.to_string().contains("data"), "{other}");
    let mut wider = recipe(80);
    wider.train.batch = 64;
    let other = trained(&wider, &oscillators(12), Some(folder.path()), true).unwrap_err();
    assert!(other.to_string().contains("recipe"), "{other}");
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    trained(&recipe(20), &oscillators(12), Some(folder.path()), false).unwrap();
    Trained::load(folder.path(), "latest", Device::Cpu).unwrap();
    let latest = folder.path().join("checkpoints/latest");
    for file in ["weights.safetensors", "optimizer.safetensors", "state.json"] {
        let path = latest.join(file);
        let good = std::fs::read(&path).unwrap();
        for place in [3, good.len() / 2, good.len() - 3] {
            let mut torn = good.clone();
            torn[place] ^= 4;
            std::fs::write(&path, &torn).unwrap();
            let checkpoints = Checkpoints::of(folder.path());
            let loaded = checkpoints.state("latest").and_then(|state| {
                let mut memory = cfo::engine::Memory::new(Device::Cpu, cfo::engine::Precision::F32).unwrap();
                checkpoints.load("latest", &state, &mut memory, true)
            });
            assert!(loaded.is_err(), "{file} with a flipped bit at {place} was accepted");
        }
        std::fs::write(&path, &good[..good.len() / 2]).unwrap();
        assert!(
            trained(&recipe(40), &oscillators(12), Some(folder.path()), true).is_err(),
            "{file} was cut in half"
        );
        std::fs::write(&path, &good).unwrap();
    }
    trained(&recipe(40), &oscillators(12), Some(folder.path()), true).unwrap();
}

/// A damaged checkpoint is passed over for the one before, and the run still ends in the same bits.
#[test]
fn a_torn_checkpoint_costs_its_steps_and_nothing_else() {
    let set = oscillators(12);
    let constant = |steps: u32| {
        let mut recipe = recipe(steps);
        recipe.train.schedule = "constant".into();
        recipe
    };
    let folder = tempfile::tempdir().unwrap();
    let (whole, torn) = (folder.path().join("whole"), folder.path().join("torn"));
    trained(&constant(160), &set, Some(&whole), false).unwrap();
    for file in ["weights.safetensors", "optimizer.safetensors", "state.json"] {
        trained(&constant(120), &set, Some(&torn), false).unwrap();
        let checkpoints = Checkpoints::of(&torn);
        let (newest, problems) = checkpoints.newest_whole().unwrap();
        assert_eq!((newest.as_str(), problems.len()), ("step-120", 0));
        let path = torn.join("checkpoints/latest").join(file);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 3]).unwrap();
        assert!(
            checkpoints.state("latest").is_err()
                || Trained::load(&torn, "latest", Device::Cpu).is_err()
                || file == "optimizer.safetensors"
        );
        let (newest, problems) = checkpoints.newest_whole().unwrap();
        assert_eq!((newest.as_str(), problems.len()), ("step-80", 1), "{file}");
        trained(&constant(160), &set, Some(&torn), true).unwrap();
        assert_eq!(weights(&torn), weights(&whole), "{file}");
        std::fs::remove_dir_all(&torn).unwrap();
    }
}
