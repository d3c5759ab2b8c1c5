//! What `cfo export` writes is opened by the programs that it is for, and every number is that of the source.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::util::{Folder, python_with};

/// A folder with a file of each kind, and the Python that made them.
fn prepared() -> Option<(Folder, String)> {
    let python = python_with(&["numpy", "h5py", "vtk", "xarray", "h5netcdf"])?;
    let folder = Folder::new();
    script(&folder, &python, &["make"]);
    Some((folder, python))
}

fn script(folder: &Folder, python: &str, words: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/exports.py");
    folder.run(Command::new(python).arg(script).args(words), "exports.py").done();
}

#[test]
fn exports_are_opened_by_the_programs_they_are_for() {
    let Some((folder, python)) = prepared() else { return };
    for kind in ["volume", "plane", "line", "ode"] {
        let source = format!("{kind}.npz");
        let export = |words: &str| folder.cfo(&format!("export {source} --out {words}")).done();
        let said = export(&format!("{kind}.vtkhdf")).stderr;
        assert!(said.contains("trajectories 1 to 2") && said.contains("--trajectory"), "{said}");
        let said = export(&format!("{kind}-1.vtkhdf --trajectory 1")).stderr;
        assert!(!said.contains("--trajectory"), "{said}");
        for words in [".xdmf", ".nc", "-own.h5", "-again.npz"] {
            let outcome = export(&format!("{kind}{words}"));
            assert!(!outcome.stderr.contains("left out"), "{}", outcome.stderr);
        }
        // A file of our own layout is described where it is, without a copy.
        let before = std::fs::metadata(folder.path(&format!("{kind}-own.h5"))).unwrap().modified().unwrap();
        folder.cfo(&format!("export {kind}-own.h5 --out {kind}-own.xdmf")).done();
        let after = std::fs::metadata(folder.path(&format!("{kind}-own.h5"))).unwrap().modified().unwrap();
        assert_eq!(before, after);
        if kind == "plane" {
            let said = export("plane-pdebench.h5 --to pdebench").stderr;
            for what in ["the names of the channels", "the split", "parameters"] {
                assert!(said.contains(what), "{what}: {said}");
            }
            let said = export("plane-well.h5 --to the-well").stderr;
            assert!(said.contains("left out: the split"), "{said}");
        }
        script(&folder, &python, &["check", kind]);
    }
}

/// What is read in another layout comes back in ours, number by number.
#[test]
fn layouts_of_others_are_converted_and_back() {
    let Some((folder, _)) = prepared() else { return };
    let digest = |file: &str| {
        let mut seen = folder.cfo(&format!("inspect {file} --json")).done().json();
        let names = ["path", "layout", "system", "channels", "values", "periodic", "split", "parameters"];
        let values = seen["values"].clone();
        names.iter().for_each(|&name| seen[name] = serde_json::Value::Null);
        (seen["shape"].clone(), seen["times"]["last"].clone(), values[0]["mean"].clone())
    };
    for (layout, found) in [("pdebench", "pdebench-2d"), ("the-well", "the-well")] {
        folder.cfo(&format!("export plane.npz --to {layout} --out {layout}.h5")).done();
        let there = folder.cfo(&format!("inspect {layout}.h5 --json")).done().json();
        assert_eq!(there["layout"], found);
        folder.cfo(&format!("export {layout}.h5 --out back-{layout}.npz")).done();
        let ((shape, _, mean), (same_shape, _, same_mean)) =
            (digest("plane.npz"), digest(&format!("back-{layout}.npz")));
        assert_eq!((shape, mean), (same_shape, same_mean), "{layout}");
    }
}

#[test]
fn what_a_layout_cannot_hold_is_refused() {
    let Some((folder, _)) = prepared() else { return };
    let before = folder.names();
    for (line, parts) in [
        ("export line.npz --to pdebench --out a.h5", ["other times than the first", "the layout `cfo`"]),
        ("export line.npz --to the-well --out a.h5", ["3 snapshots", "6, as many as the first"]),
        ("export ode.npz --to the-well --out a.h5", ["without space axes", "hint: "]),
        ("export ode.npz --to pdebench --out a.h5", ["0 space axes", "hint: "]),
        (
            "export ode.npz --out a.vtkhdf --trajectory 0 --trajectory 1",
            ["can store one trajectory", "--trajectory"],
        ),
        ("export ode.npz --out a.nc --trajectory 7", ["no trajectory 7", "0 to 2"]),
        ("export ode.npz --out a.txt", ["`.vtkhdf`", "--to"]),
        ("export ode.npz --out line.npz", ["already exists", "--force"]),
        ("export ode.npz --out ode.npz --force", ["would overwrite", "choose another `--out`"]),
        ("export none.npz --out a.nc", ["does not exist", "hint: "]),
    ] {
        let outcome = folder.cfo(line).ended_with(2);
        for part in parts {
            assert!(outcome.stderr.contains(part), "`{part}` of `cfo {line}`: {}", outcome.stderr);
        }
        assert_eq!(folder.names(), before, "{line}");
    }
}

#[test]
fn an_export_tells_scripts_what_it_wrote() {
    let Some((folder, _)) = prepared() else { return };
    let found = folder.cfo("export line.npz --out a.xdmf --json").done().json();
    assert_eq!((found["layout"].as_str(), found["numbers"].as_str()), (Some("xdmf"), Some("a.h5")));
    assert_eq!((found["frames"]["min"].as_u64(), found["frames"]["max"].as_u64()), (Some(3), Some(6)));
    let found = folder.cfo("export plane.npz --out a.nc --trajectory 2 --trajectory 0 --json").done().json();
    assert_eq!(found["indices"], serde_json::json!([2, 0]));
}

/// Values are read in single precision: who exports doubles is told what is lost, unless their file is only described.
#[test]
fn rounded_doubles_are_said() {
    let Some((folder, python)) = prepared() else { return };
    let script = "import h5py, numpy as np\nt = np.linspace(0, 1, 5)\nv = np.sin(t)[None, :, None, None] * np.ones((2, 5, 4, 1))\n\
                  np.savez('double.npz', times=t, values=v)\nnp.savez('single.npz', times=t, values=v.astype('float32'))\n\
                  f = h5py.File('own.h5', 'w')\nf.attrs.update({'format': 'cfo-trajectories', 'version': 1, 'system': 's', 'periodic': [0]})\n\
                  f.attrs['domain'] = np.array([[0.0, 1.0]])\nf['times'] = t\nf['values'] = v\n";
    folder.run(Command::new(&python).args(["-c", script]), "python").done();
    let said =
        |words: &str| folder.cfo(&format!("export {words}")).done().stderr.contains("single precision");
    assert!(said("double.npz --out a.nc") && said("own.h5 --out b.nc"));
    assert!(!said("single.npz --out c.nc") && !said("own.h5 --out own.xdmf"));
}

/// A disk that fills and a signal in the middle leave nothing behind, in any layout.
#[test]
fn an_export_that_fails_leaves_nothing() {
    let folder = Folder::new();
    folder.cfo("simulate burgers --samples 60 --frames 101 --out data.h5").done();
    let before = folder.names();
    for out in ["a.vtkhdf", "a.xdmf", "a.nc", "a.npz", "b.h5", "c.h5 --to pdebench", "d.h5 --to the-well"] {
        // Files of at most 40 blocks of 512 or 1024 bytes: less than each of these.
        let line = format!(
            "trap '' XFSZ; ulimit -f 40; exec {} export data.h5 --out {out}",
            env!("CARGO_BIN_EXE_cfo")
        );
        let mut command = Command::new("sh");
        command.args(["-c", &line]).stdin(Stdio::null());
        let outcome = folder.run(&mut command, out).ended_with(1);
        assert!(outcome.stderr.contains("the disk is full"), "{out}: {}", outcome.stderr);
        assert_eq!(folder.names(), before, "{out}");
    }
}
