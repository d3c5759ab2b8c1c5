use std::process::Command;

use serde_json::json;

use crate::util::Folder;

/// Every system with options that make it cheap, and the shape of a snapshot that comes out.
const SYSTEMS: [(&str, &[u64]); 7] = [
    ("lorenz --frames 21", &[3]),
    ("burgers --grid 32 --frames 11", &[32, 1]),
    ("diffusion-reaction --grid 8 --frames 6", &[8, 8, 2]),
    ("shallow-water --grid 16 --frames 6", &[16, 16, 1]),
    ("kuramoto-sivashinsky --grid 64 --frames 8 --horizon 1.4 --spin-up 0", &[64, 1]),
    ("gray-scott --grid 8 --frames 3", &[8, 8, 8, 2]),
    ("gray-scott --dimensions 2 --grid 8 --frames 3", &[8, 8, 2]),
];

#[test]
fn every_system_is_simulated_and_inspected_in_every_container() {
    let folder = Folder::new();
    for (system, shape) in SYSTEMS {
        for file in ["a.h5", "a.npz"] {
            let line = format!("simulate {system} --samples 4 --out {file} --force --json");
            let written = folder.cfo(&line).done().json();
            assert_eq!(written["trajectories"], 4, "{system}");
            assert!(written["trajectories_per_second"].as_f64().unwrap() > 0.0);
            let found = folder.cfo(&format!("inspect {file} --json")).done().json();
            assert_eq!(found["trajectories"], 4, "{system}");
            assert_eq!(found["shape"], json!(shape), "{system}");
            assert_eq!(found["frames"]["max"], written["frames"], "{system}");
            assert_eq!(found["system"], system.split_whitespace().next().unwrap());
            assert_eq!(found["finite"], true);
        }
    }
}

/// The systems whose seed 0 is the benchmark's: another seed shares no trajectory with it, at no place.
#[test]
fn seeds_share_no_trajectory() {
    let folder = Folder::new();
    for (system, size) in
        [("diffusion-reaction --grid 8 --frames 3", 3 * 8 * 8 * 2), ("lorenz --frames 3", 9)]
    {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..3 {
            let line = format!("simulate {system} --samples 40 --seed {seed} --out a.npz --force");
            folder.cfo(&line).done();
            let bytes = std::fs::read(folder.path("a.npz")).unwrap();
            let entry = bytes.windows(10).position(|window| window == b"values.npy").unwrap();
            let data = entry + bytes[entry..].iter().position(|&byte| byte == b'\n').unwrap() + 1;
            seen.extend((0..40).map(|i| bytes[data + 4 * size * i..][..4 * size].to_vec()));
        }
        assert_eq!(seen.len(), 120, "{system}");
    }
}

#[test]
fn the_dam_break_says_how_few_of_its_trajectories_differ() {
    let folder = Folder::new();
    let line = "simulate shallow-water --grid 16 --frames 2 --out a.h5 --force";
    let said = folder.cfo(&format!("{line} --samples 40")).done().stdout;
    assert!(said.contains("of them are distinct") && said.contains("--variant varied"), "{said}");
    let distinct = folder.cfo(&format!("{line} --samples 40 --json")).done().json()["distinct"].clone();
    let found = folder.cfo("inspect a.h5 --json").done().json();
    assert_eq!(found["distinct"], distinct);
    assert!(folder.cfo("inspect a.h5").done().stdout.contains("are exact copies of others"));
    let varied = folder.cfo(&format!("{line} --samples 40 --variant varied --json")).done().json();
    assert_eq!(varied["distinct"], json!(null));
    assert_eq!(folder.cfo("inspect a.h5 --json").done().json()["distinct"], 40);
}

#[test]
fn the_benchmarks_layout_is_written_where_it_exists() {
    let folder = Folder::new();
    for (system, layout) in [
        ("burgers --grid 32 --frames 11", "pdebench-1d"),
        ("shallow-water --grid 16 --frames 6", "pdebench-2d"),
    ] {
        let line = format!("simulate {system} --samples 3 --out a.h5 --force --layout pdebench");
        folder.cfo(&line).done();
        let found = folder.cfo("inspect a.h5 --json").done().json();
        assert_eq!(found["layout"], layout);
        assert_eq!(found["trajectories"], 3);
    }
    // An ODE has no space axis, which no layout of the benchmark can say.
    folder.cfo("simulate lorenz --samples 2 --layout pdebench --out b.h5").ended_with(2);
    folder.cfo("simulate burgers --samples 2 --layout pdebench --out b.npz").ended_with(2);
    assert_eq!(folder.names(), ["a.h5"]);
}

#[test]
fn a_trajectory_does_not_depend_on_how_many_there_are() {
    let folder = Folder::new();
    let options = "simulate lorenz --frames 6 --seed 7 --split";
    folder.cfo(&format!("{options} 1,1,1 --out three.npz")).done();
    folder.cfo(&format!("{options} 1,1,1 --out again.npz")).done();
    folder.cfo(&format!("{options} 7,1,1 --out nine.npz")).done();
    let read = |name: &str| std::fs::read(folder.path(name)).unwrap();
    assert_eq!(read("three.npz"), read("again.npz"));
    // The first trajectories stand first in the array of the larger set.
    let frame = 6 * 3 * 4;
    let three = read("three.npz");
    let nine = read("nine.npz");
    let at = |bytes: &[u8]| bytes.windows(10).position(|window| window == b"values.npy").unwrap();
    let data =
        |bytes: &[u8]| bytes[at(bytes)..].iter().position(|&byte| byte == b'\n').unwrap() + at(bytes) + 1;
    assert_eq!(three[data(&three)..][..3 * frame], nine[data(&nine)..][..3 * frame]);
}

#[test]
fn splits_are_the_papers_unless_given() {
    let folder = Folder::new();
    let split = |options: &str| {
        let line = format!("simulate lorenz --frames 3 --out a.h5 --force --json {options}");
        folder.cfo(&line).done().json()["split"].clone()
    };
    assert_eq!(split("--samples 100"), json!({"train": 90, "validation": 5, "test": 5}));
    assert_eq!(split("--split 3,2,1"), json!({"train": 3, "validation": 2, "test": 1}));
    folder.cfo("simulate lorenz --out b.h5 --samples 5 --split 3,2,1").ended_with(2);
    folder.cfo("simulate lorenz --out b.h5 --split 3,2").ended_with(2);
    folder.cfo("simulate lorenz --out b.h5 --samples 0").ended_with(2);
}

#[test]
fn an_existing_file_is_replaced_only_by_force() {
    let folder = Folder::new();
    std::fs::write(folder.path("a.h5"), "precious").unwrap();
    let outcome = folder.cfo("simulate lorenz --frames 3 --samples 2 --out a.h5").ended_with(2);
    insta::assert_snapshot!("existing-output", outcome.stderr);
    assert_eq!(std::fs::read(folder.path("a.h5")).unwrap(), b"precious");
    folder.cfo("simulate lorenz --frames 3 --samples 2 --out a.h5 --force").done();
    folder.cfo("inspect a.h5").done();
    assert_eq!(folder.names(), ["a.h5"]);
}

#[test]
fn options_out_of_range_are_refused_before_anything_is_written() {
    let folder = Folder::new();
    for options in [
        "lorenz --frames 1",
        "lorenz --horizon -1",
        "lorenz --horizon NaN",
        "burgers --grid 0",
        "burgers --viscosity inf",
        "diffusion-reaction --tolerance 0",
        "shallow-water --variant tsunami",
        "kuramoto-sivashinsky --length-jitter 2",
        "lorenz --frames 99999999999999",
    ] {
        let outcome = folder.cfo(&format!("simulate {options} --samples 2 --out a.h5")).ended_with(2);
        assert!(outcome.stderr.starts_with("error: "), "{options}: {}", outcome.stderr);
        assert!(folder.names().is_empty(), "{options}");
    }
    insta::assert_snapshot!(
        "option-out-of-range",
        folder.cfo("simulate lorenz --frames 1 --out a.h5").stderr
    );
    folder.cfo("simulate lorenz --frames 3 --samples 2 --out no/such/folder/a.h5").ended_with(2);
}

/// A limit on the size of files is the full disk that every machine has.
#[test]
fn a_full_disk_fails_and_leaves_nothing() {
    let folder = Folder::new();
    for file in ["a.h5", "a.npz"] {
        let mut shell = Command::new("sh");
        let line = format!(
            "trap '' XFSZ; ulimit -f 64; exec '{}' simulate lorenz --samples 100 --out {file}",
            env!("CARGO_BIN_EXE_cfo")
        );
        let outcome = folder.run(shell.args(["-c", &line]), &line).ended_with(1);
        assert!(outcome.stderr.contains("the disk is full"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("hint: "), "{}", outcome.stderr);
        assert!(folder.names().is_empty(), "{:?}", folder.names());
    }
}

/// Ctrl-C while trajectories are being written: no file, no rest of one, exit code 1.
#[test]
fn an_interrupted_simulation_leaves_nothing() {
    use std::process::Stdio;
    use std::thread::sleep;
    use std::time::Duration;

    let folder = Folder::new();
    let line = "simulate lorenz --samples 100000000 --out a.h5";
    let mut child = folder.command(line).stderr(Stdio::piped()).spawn().unwrap();
    // The temporary file is the sign that it is at work; the handler was in place before.
    while folder.names().is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(200));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}
