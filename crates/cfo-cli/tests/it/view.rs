//! Pages of `cfo view`, opened in a browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::util::{Folder, browser, python_with};

/// A folder with files of each kind, the Python that made them, and a browser.
fn prepared() -> Option<(Folder, String, PathBuf)> {
    let (python, browser) = python_with(&["numpy", "playwright"]).zip(browser())?;
    let folder = Folder::new();
    script(&folder, &python, &browser, &["make"]);
    Some((folder, python, browser))
}

fn script(folder: &Folder, python: &str, browser: &Path, words: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/pages.py");
    let mut command = Command::new(python);
    folder.run(command.arg(script).args(words).env("CFO_BROWSER", browser), "pages.py").done();
}

/// No error in the console, the slider changes the picture, the probe shows the right number.
#[test]
fn pages_of_each_kind_work_in_a_browser() {
    let Some((folder, python, browser)) = prepared() else { return };
    for kind in ["volume", "plane", "line", "system"] {
        let page = format!("{kind}.html");
        let line = format!("view {kind}.npz {kind}-predicted.npz --out {page} --json");
        let found = folder.cfo(&line).done().json();
        assert_eq!(found["trajectories"], serde_json::json!([0, 1, 2]));
        assert_eq!(found["notes"], serde_json::json!([]), "a small page is exact");
        script(&folder, &python, &browser, &["check", &page, kind]);
    }
}

#[test]
fn the_page_of_a_run_shows_its_training_and_evaluation() {
    let Some((folder, python, browser)) = prepared() else { return };
    folder.cfo("simulate lorenz --frames 41 --horizon 0.4 --samples 30 --out data.h5").done();
    let recipe = "[operator]\nkind = \"mlp\"\nhidden = [16]\n[train]\nsteps = 60\nbatch = 16\nvalidate_every = 20\nreport_every = 5\n";
    std::fs::write(folder.path("recipe.toml"), recipe).unwrap();
    folder.cfo("train recipe.toml --data data.h5 --out run").done();
    folder.cfo("evaluate run --data data.h5").done();
    folder.cfo("view run --out run.html").done();
    script(&folder, &python, &browser, &["check", "run.html", "run"]);
    let found = folder.cfo("view run data.h5 --out both.html --json").done().json();
    // Trajectories that it was not trained on, each with a prediction at the truth's times.
    assert!(
        found["trajectories"].as_array().unwrap().iter().all(|index| index.as_u64().unwrap() >= 20),
        "{found}"
    );
    assert!(std::fs::read_to_string(folder.path("both.html")).unwrap().contains("\"difference\":true"));
    script(&folder, &python, &browser, &["check", "both.html", "run"]);
}

/// Data that do not fit are left out or rounded, with notes on the page.
#[test]
fn a_large_file_makes_a_page_of_a_few_megabytes_that_says_what_is_missing() {
    let folder = Folder::new();
    folder.cfo("simulate shallow-water --grid 128 --frames 101 --samples 1 --out data.h5").done();
    folder.cfo("view data.h5 data.h5 --out page.html").done();
    assert!(std::fs::metadata(folder.path("page.html")).unwrap().len() < 6_000_000);
    folder.cfo("simulate kuramoto-sivashinsky --samples 30 --grid 512 --frames 400 --spin-up 0 --horizon 20 --out long.h5").done();
    let found = folder.cfo("view long.h5 --out long.html --json").done().json();
    assert!(found["bytes"].as_u64().unwrap() < 6_000_000);
    let notes = found["notes"].to_string();
    assert!(notes.contains("of 512 is shown") && notes.contains("rounded"), "{notes}");
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let folder = Folder::new();
    folder.cfo("simulate lorenz --samples 2 --frames 11 --out a.h5").done();
    folder.cfo("simulate burgers --samples 2 --frames 11 --grid 32 --out b.h5").done();
    std::fs::create_dir(folder.path("empty")).unwrap();
    std::fs::write(folder.path("taken.html"), "mine").unwrap();
    for (line, parts) in [
        ("view a.h5 b.h5 --out p.html", ["snapshots of `b.h5`", "pages of their own"]),
        ("view empty --out p.html", ["not the folder of a run", "cfo train"]),
        ("view none.h5 --out p.html", ["does not exist", "hint: "]),
        ("view a.h5 --out taken.html", ["already exists", "--force"]),
        ("view a.h5 --trajectory 2 --out p.html", ["no trajectory 2", "0 to 1"]),
    ] {
        let outcome = folder.cfo(line).ended_with(2);
        for part in parts {
            assert!(outcome.stderr.contains(part), "`{part}` of `cfo {line}`: {}", outcome.stderr);
        }
        assert!(!folder.path("p.html").exists(), "{line}");
    }
    assert_eq!(std::fs::read_to_string(folder.path("taken.html")).unwrap(), "mine");
}
