//! Files as other programs write them, and what is in them that ours would not write.

use std::process::Command;

use crate::util::{Folder, Outcome, python};

/// A folder in which Python has run a script.
fn written(script: &str) -> Option<Folder> {
    let folder = Folder::new();
    let preamble = "import numpy as np, h5py\nrandom = np.random.default_rng(0)\n";
    let script = format!("{preamble}{script}");
    folder.run(Command::new(python()?).args(["-c", &script]), "python").done();
    Some(folder)
}

#[track_caller]
fn refused(folder: &Folder, line: &str, parts: &[&str]) -> Outcome {
    let outcome = folder.cfo(line).ended_with(2);
    for part in parts {
        assert!(outcome.stderr.contains(part), "`{part}` of `cfo {line}`: {}", outcome.stderr);
    }
    outcome
}

/// Archives as `savez_compressed` writes them hold what those of `savez` hold, in C and in Fortran order, whatever is
/// read first.
#[test]
fn compressed_archives_say_what_plain_ones_do() {
    let Some(folder) = written(
        "t = np.sort(random.uniform(size=(300, 12)), 1)\n\
         v = np.cumsum(random.normal(size=(300, 12, 5, 2)), 1).astype('f4')\n\
         np.savez('plain.npz', times=t, values=v)\n\
         np.savez_compressed('packed.npz', times=t, values=v)\n\
         np.savez_compressed('turned.npz', times=np.asfortranarray(t), values=np.asfortranarray(v))\n",
    ) else {
        return;
    };
    let report = |file: &str| {
        let mut report = folder.cfo(&format!("inspect {file} --json")).done().json();
        report["path"].take();
        report
    };
    assert_eq!(report("packed.npz"), report("plain.npz"));
    assert_eq!(report("turned.npz"), report("plain.npz"));
}

/// Before: unknown arrays were ignored, and mesh nodes were read as a line.
#[test]
fn what_is_not_used_is_named() {
    let Some(folder) = written(
        "v = random.normal(size=(8, 20, 50, 2)).cumsum(1); t = np.arange(20.0); s = random.normal(size=(8, 50))\n\
         p = random.normal(size=(8, 3)); x = random.normal(size=(50, 2))\n\
         np.savez('a.npz', times=t, values=v, labels=s, paramters=p, note=np.array('text'), scale=np.arange(3))\n\
         np.savez('mesh.npz', times=t, values=v, coordinates=x, cells=np.arange(12).reshape(4, 3))\n\
         with h5py.File('a.h5', 'w') as f:\n    f['times'] = t; f['values'] = v; f['labels'] = s; f['paramters'] = p; f.attrs['lenghts'] = np.full(8, 20)\n\
         with h5py.File('mesh.h5', 'w') as f:\n    f['times'] = t; f['values'] = v; f['coordinates'] = x\n",
    ) else {
        return;
    };
    std::fs::write(
        folder.path("r.toml"),
        "[operator]\nkind = \"mlp\"\nhidden = [8]\n[train]\nsteps = 2\nbatch = 4\n",
    )
    .unwrap();
    for (file, count) in [("a.npz", 2), ("a.h5", 3)] {
        let warnings = folder.cfo(&format!("inspect {file} --json")).done().json()["warnings"].clone();
        assert_eq!(warnings.as_array().unwrap().len(), count, "{warnings}");
        let text = warnings.to_string();
        assert!(
            text.contains("`labels` of shape [8, 50] is not used; arrays that are used: `values`"),
            "{text}"
        );
        assert!(
            text.contains("`paramters` of shape [8, 3] is not used; did you mean `parameters`?"),
            "{text}"
        );
        assert!(
            count == 2 || text.contains("`lenghts` of shape [8] is not used; did you mean `lengths`?"),
            "{text}"
        );
        let run = file.replace('.', "-");
        let trained =
            folder.cfo(&format!("train r.toml --data {file} --out {run} --device cpu --json")).done();
        // Others are about how so short a training ended.
        let told = trained.json()["warnings"].as_array().unwrap().clone();
        assert!(told.starts_with(warnings.as_array().unwrap()), "{told:?}");
        for said in [folder.cfo(&format!("inspect {file}")).done().stdout, trained.stderr] {
            assert!(said.contains("warning: `labels` of shape [8, 50] is not used"), "{said}");
        }
    }
    for file in ["mesh.npz", "mesh.h5"] {
        for line in [format!("inspect {file}"), format!("train r.toml --data {file} --out run")] {
            refused(&folder, &line, &["has `coordinates`", "scattered points", "hint: interpolate"]);
        }
    }
}

/// Before: such datasets were reported as damaged.
#[test]
fn datasets_that_are_elsewhere_are_called_so() {
    let Some(folder) = written(
        "v = random.normal(size=(8, 20, 2)); t = np.arange(20.0)\n\
         with h5py.File('source.h5', 'w') as f:\n    f['values'] = v\n\
         layout = h5py.VirtualLayout(v.shape, 'f8'); layout[:] = h5py.VirtualSource('source.h5', 'values', v.shape)\n\
         with h5py.File('virtual.h5', 'w') as f:\n    f['times'] = t; f.create_virtual_dataset('values', layout)\n\
         with h5py.File('external.h5', 'w') as f:\n    f['times'] = t; f.create_dataset('values', v.shape, 'f8', external=[('raw', 0, v.nbytes)])[:] = v\n",
    ) else {
        return;
    };
    for kind in ["virtual", "external"] {
        let outcome = refused(
            &folder,
            &format!("inspect {kind}.h5"),
            &[kind, "in other files", "hint: copy the numbers"],
        );
        assert!(!outcome.stderr.contains("damaged"), "{}", outcome.stderr);
    }
}

/// File names are arbitrary bytes on Unix, but a recipe is text.
#[test]
fn names_that_are_not_text_are_taken() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    folder.cfo("simulate lorenz --samples 6 --frames 31 --horizon 1 --out a.npz").done();
    let name = OsStr::from_bytes(b"caf\xe9.npz");
    std::fs::rename(folder.path("a.npz"), folder.path(".").join(name)).unwrap();
    std::fs::write(
        folder.path("r.toml"),
        "[operator]\nkind = \"mlp\"\nhidden = [8]\n[train]\nsteps = 2\nbatch = 4\n",
    )
    .unwrap();
    let run = |line: &str| folder.run(folder.command(line).arg(name), line).done();
    assert!(run("inspect --json").json()["path"].as_str().unwrap().starts_with("caf"));
    let said = run("train r.toml --out run --device cpu --data").stderr;
    assert!(said.contains("is not UTF-8") && said.contains("`--data`"), "{said}");
    let found = run("evaluate run --device cpu --json --data").json();
    assert!(found["relative_l2"]["mean"].is_number(), "{found}");
}

#[test]
fn a_parameter_that_is_no_number_is_refused() {
    let Some(folder) = written(
        "p = random.uniform(size=(6, 2)); p[4, 1] = np.nan\n\
         v = random.normal(size=(6, 9, 2))\n\
         np.savez('bad.npz', times=np.arange(9.0), values=v, parameters=p, parameter_names=['a', 'b'])\n\
         with h5py.File('bad.h5', 'w') as f:\n    f['times'] = np.arange(9.0); f['values'] = v; f['parameters'] = p\n",
    ) else {
        return;
    };
    std::fs::write(folder.path("recipe.toml"), "[train]\nsteps = 2\n").unwrap();
    for file in ["bad.npz", "bad.h5"] {
        for line in [format!("inspect {file}"), format!("train recipe.toml --data {file} --out run")] {
            refused(&folder, &line, &["trajectory 4", "column 1 is NaN", "hint: "]);
        }
    }
}

#[test]
fn arrays_of_other_names_and_kinds_get_advice() {
    let Some(folder) = written(
        "ragged = np.empty(2, dtype=object); ragged[:] = [np.zeros((3, 1)), np.zeros((4, 1))]\n\
         np.savez('objects.npz', times=np.arange(4.0), values=ragged)\n\
         np.savez('names.npz', t=np.arange(4.0), u=np.zeros((2, 4, 1)))\n\
         with h5py.File('ragged.h5', 'w') as f:\n\
         \x20   f['times'] = np.arange(4.0)\n\
         \x20   f.create_dataset('values', (2,), dtype=h5py.vlen_dtype('f4'))\n",
    ) else {
        return;
    };
    refused(&folder, "inspect objects.npz", &["Python objects", "pad the trajectories", "`lengths`"]);
    refused(&folder, "inspect ragged.h5", &["different lengths", "pad the trajectories", "`lengths`"]);
    refused(&folder, "inspect names.npz", &["has no `values`; found `t`, `u`", "name the arrays"]);
}

/// Names come from files, and files from anywhere.
#[test]
fn no_name_in_a_file_commands_the_terminal() {
    let Some(folder) = written(
        "names = ['\\x1b]0;owned\\x07', 'b\\x9b31m\\n\\u202ex']\n\
         v = np.cumsum(random.normal(size=(6, 9, 2)), 1)\n\
         np.savez('a.npz', times=np.arange(9.0), values=v, channel_names=names, system='\\x1b[2Jsystem')\n\
         np.savez('\\x1b[2Jb.npz', names)\n",
    ) else {
        return;
    };
    std::fs::write(folder.path("recipe.toml"), "[train]\nsteps = 2\nbatch = 4\n").unwrap();
    let mut said = String::new();
    for line in [
        "inspect a.npz",
        "inspect a.npz --json",
        "inspect \u{1b}[2Jb.npz",
        "train recipe.toml --data a.npz --dry-run",
        "train recipe.toml --data a.npz --out run",
        "evaluate run --data a.npz",
    ] {
        let outcome = folder.cfo(line);
        said.extend([outcome.stdout, outcome.stderr]);
    }
    let obeyed = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
    assert_eq!(said.chars().find(obeyed), None, "{said:?}");
    assert!(said.contains("\\u{1b}]0;owned\\u{7}") && said.contains("\\u001b]0;owned\\u0007"), "{said}");
}

#[test]
fn an_order_that_misleads_is_pointed_out() {
    let Some(folder) = written(
        "t = np.arange(9.0); v = random.normal(size=(12, 9, 2)); p = np.linspace(0, 1, 12)[:, None]\n\
         np.savez('sorted.npz', times=t, values=v, parameters=p, parameter_names=['nu'])\n\
         np.savez('mixed.npz', times=t, values=v, parameters=p[random.permutation(12)], parameter_names=['nu'])\n\
         np.savez('split.npz', times=t, values=v, parameters=p, split=np.arange(12) % 3)\n\
         v[7] = v[2]; v[9] = v[2]\n\
         np.savez('repeated.npz', times=t, values=v)\n",
    ) else {
        return;
    };
    let warnings = |file: &str| {
        let report = folder.cfo(&format!("inspect {file} --json")).done().json();
        report["warnings"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let sorted: Vec<String> = warnings("sorted.npz");
    assert!(sorted.len() == 1 && sorted[0].contains("sorted by parameter `nu`"), "{sorted:?}");
    assert!(folder.cfo("inspect sorted.npz").done().stdout.contains("warning: the trajectories are sorted"));
    let repeated = folder.cfo("inspect repeated.npz").done().stdout;
    assert!(repeated.contains("2 of the 12 trajectories read are exact copies of others"), "{repeated}");
    for file in ["mixed.npz", "split.npz"] {
        let none: Vec<String> = warnings(file);
        assert!(none.is_empty(), "{file}: {none:?}");
    }
}

/// A terminal of any width shows one line that is drawn over; what wraps would stay.
#[test]
fn progress_fits_the_terminal() {
    const SCRIPT: &str = "\
import fcntl, os, pty, re, struct, sys, termios
columns, program, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    os.environ.update(TERM='xterm', COLUMNS=str(columns))
    os.execv(program, [program, *words])
text = b''
while True:
    try:
        read = os.read(terminal, 65536)
    except OSError:
        break
    if not read:
        break
    text += read
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, text
text = text.decode()
assert 'loss' in text or columns < 20, text
drawn = re.split(r'[\\r\\n]|\\x1b\\[[0-9;?]*[A-Za-z]', text)
# The summary at the end is not drawn over: it may wrap.
bars = [line for line in drawn if line.startswith('[')]
assert bars, text
assert max(map(len, bars)) <= columns, (columns, bars)
";
    let Some(python) = python() else { return };
    let folder = Folder::new();
    folder.cfo("simulate lorenz --frames 41 --horizon 0.4 --samples 30 --out data.h5").done();
    let recipe = "[operator]\nkind = \"mlp\"\nhidden = [16]\n[train]\nsteps = 400\nbatch = 64\nvalidate_every = 40\nreport_every = 5\n";
    std::fs::write(folder.path("recipe.toml"), recipe).unwrap();
    for columns in [80, 40, 1] {
        let run = format!("run-{columns}");
        let mut command = Command::new(&python);
        command.args(["-c", SCRIPT, &columns.to_string(), env!("CARGO_BIN_EXE_cfo")]);
        command.args(["train", "recipe.toml", "--data", "data.h5", "--out", &run]);
        folder.run(&mut command, "a terminal").done();
    }
}
