use std::fs;
use std::io::Read;
use std::process::Stdio;

use crate::util::Folder;

/// A folder with a small file of each container.
fn with_files() -> Folder {
    let folder = Folder::new();
    for file in ["a.h5", "a.npz"] {
        folder.cfo(&format!("simulate lorenz --samples 4 --frames 101 --horizon 1 --out {file}")).done();
    }
    folder
}

#[test]
fn the_report_has_the_keys_that_scripts_read() {
    let folder = with_files();
    let report = folder.cfo("inspect a.h5 --json").done().json();
    assert_eq!(report["layout"], "cfo");
    assert_eq!(report["trajectories"], 4);
    assert_eq!(report["frames"], serde_json::json!({"min": 101, "max": 101}));
    assert_eq!(report["shape"], serde_json::json!([3]));
    assert_eq!(report["channels"], 3);
    assert_eq!(report["times"]["first"], 0.0);
    assert_eq!(report["times"]["last"], 1.0);
    assert_eq!(report["times"]["uniform"], true);
    assert_eq!(report["finite"], true);
    assert_eq!(report["split"]["test"], 1);
    assert_eq!(report["sampling"]["recommended"], "quintic");
    assert_eq!(report["sampling"]["recommended_stencil"], 7);
    assert_eq!(report["sampling"]["recommended_clock"], serde_json::Value::Null);
    assert_eq!(report["sampling"]["verdict"], "dense");
}

/// A field that slows down a hundredfold: the clock is named in numbers and in words, and a training takes it.
#[test]
fn a_clock_is_recommended_where_it_pays() {
    let folder = Folder::new();
    folder.cfo("simulate diffusion-reaction --samples 5 --grid 16 --split 3,1,1 --out a.h5").done();
    let report = folder.cfo("inspect a.h5 --json").done().json();
    let half = number("recommended_clock")(&report["sampling"]);
    assert!((0.001..=0.1).contains(&half), "{half}");
    let said = folder.cfo("inspect a.h5").done().stdout;
    assert!(said.contains(&format!("path.clock = {half}")), "{said}");
    fs::write(
        folder.path("r.toml"),
        "[operator]\nkind = \"unet\"\nchannels = [8]\n[train]\nsteps = 3\nbatch = 2\n",
    )
    .unwrap();
    folder.cfo(&format!("train r.toml --data a.h5 --device cpu --out run --set path.clock={half}")).done();
    let report = folder.cfo("evaluate run --data a.h5 --device cpu --solver rk4 --json").done().json();
    assert!(
        report["evaluations"].as_u64().unwrap() > 400,
        "short steps at the start: {}",
        report["evaluations"]
    );
}

#[test]
fn people_get_a_page() {
    insta::assert_snapshot!("lorenz", with_files().cfo("inspect a.h5").done().stdout);
}

/// Noise is said, in numbers and in words, and not mistaken for coarse times.
#[test]
fn noise_is_told_from_coarse_times() {
    let folder = with_files();
    let clean = folder.cfo("inspect a.h5 --json").done().json();
    for (noise, name) in clean["noise"].as_array().unwrap().iter().zip(["x", "y", "z"]) {
        assert_eq!(noise["name"], name);
        assert!(noise["relative"].as_f64().unwrap() < 1e-3 && noise["resolved"] == true, "{noise}");
    }
    assert_eq!(clean["sampling"]["recommended_smoothing"], "none");
    let deviations: Vec<f64> = clean["values"].as_array().unwrap().iter().map(number("deviation")).collect();
    let mut npz = fs::read(folder.path("a.npz")).unwrap();
    let mut random = cfo_numerics::Philox::new(1, 0);
    change_values(&mut npz, |position, value| {
        value + (0.05 * deviations[position % 3] * random.normal()) as f32
    });
    fs::write(folder.path("noisy.npz"), npz).unwrap();
    let report = folder.cfo("inspect noisy.npz --json").done().json();
    for (noise, deviation) in report["noise"].as_array().unwrap().iter().zip(&deviations) {
        // 400 values of each channel know a deviation to 4 %.
        assert!((number("relative")(noise) / 0.05 - 1.0).abs() < 0.2, "{noise}");
        assert!((number("deviation")(noise) / deviation / 0.05 - 1.0).abs() < 0.2, "{noise}");
    }
    assert_eq!(report["sampling"]["recommended"], "quintic");
    assert_eq!(report["sampling"]["recommended_smoothing"], "auto");
    assert_eq!(report["sampling"]["verdict"], "noisy");
    let said = folder.cfo("inspect noisy.npz").done().stdout;
    assert!(said.contains("the values are noisy") && said.contains("path.smoothing = \"auto\""), "{said}");
}

fn number(key: &str) -> impl Fn(&serde_json::Value) -> f64 {
    move |value| value[key].as_f64().unwrap()
}

#[test]
fn coarse_times_are_called_coarse() {
    let folder = Folder::new();
    folder.cfo("simulate lorenz --samples 4 --frames 26 --horizon 5 --out a.h5").done();
    let report = folder.cfo("inspect a.h5 --json").done().json();
    assert_eq!(report["sampling"]["verdict"], "too-sparse", "{report}");
}

#[test]
fn a_file_that_is_not_there_or_not_one() {
    let folder = Folder::new();
    insta::assert_snapshot!("missing", folder.cfo("inspect a.h5").ended_with(2).stderr);
    fs::create_dir(folder.path("folder")).unwrap();
    insta::assert_snapshot!("folder", folder.cfo("inspect folder").ended_with(2).stderr);
    fs::write(folder.path("empty"), "").unwrap();
    insta::assert_snapshot!("empty", folder.cfo("inspect empty").ended_with(2).stderr);
    fs::write(folder.path("text"), "time,x,y,z\n0,1,2,3\n").unwrap();
    insta::assert_snapshot!("text", folder.cfo("inspect text").ended_with(2).stderr);
}

#[test]
fn a_truncated_file_is_refused_wherever_it_ends() {
    let folder = with_files();
    for file in ["a.h5", "a.npz"] {
        let whole = fs::read(folder.path(file)).unwrap();
        for share in [0.01, 0.3, 0.6, 0.9, 0.99] {
            let length = (whole.len() as f64 * share) as usize;
            fs::write(folder.path("cut"), &whole[..length]).unwrap();
            let outcome = folder.cfo("inspect cut --json").ended_with(2);
            assert!(outcome.json()["error"].is_string(), "{file} at {share}");
            assert!(outcome.stderr.starts_with("error: `cut`"), "{file} at {share}: {}", outcome.stderr);
        }
    }
}

/// Replaces a value in the uncompressed `.npz` from [`with_files`] and the archive's checksum of it, so that nothing but the
/// value is wrong.
fn with_value(npz: &[u8], index: usize, frame: usize, channel: usize, value: f32) -> Vec<u8> {
    let place = (index * 101 + frame) * 3 + channel;
    let mut changed = npz.to_vec();
    change_values(&mut changed, |position, old| if position == place { value } else { old });
    changed
}

/// Replaces every value in that archive, and the checksum.
fn change_values(npz: &mut [u8], mut change: impl FnMut(usize, f32) -> f32) {
    let find = |text: &[u8], from: usize| {
        from + npz[from..].windows(text.len()).position(|window| window == text).unwrap()
    };
    let entry = find(b"\x93NUMPY", find(b"values.npy", 0));
    let data = find(b"\n", entry) + 1;
    let end = data + 4 * 4 * 101 * 3;
    let old = crc32(&npz[entry..end]).to_le_bytes();
    let noted: Vec<usize> = (0..npz.len() - 3).filter(|&at| npz[at..at + 4] == old).collect();
    assert!(noted.len() >= 2, "the archive notes the checksum beside the entry and in its directory");
    for (position, bytes) in npz[data..end].chunks_exact_mut(4).enumerate() {
        let value = change(position, f32::from_le_bytes(bytes.try_into().unwrap()));
        bytes.copy_from_slice(&value.to_le_bytes());
    }
    let new = crc32(&npz[entry..end]).to_le_bytes();
    noted.into_iter().for_each(|at| npz[at..at + 4].copy_from_slice(&new));
}

/// The checksum of zip archives.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

#[test]
fn a_value_that_is_not_finite_is_found_with_its_place() {
    let folder = with_files();
    let npz = fs::read(folder.path("a.npz")).unwrap();
    fs::write(folder.path("bad.npz"), with_value(&npz, 2, 17, 1, f32::NAN)).unwrap();
    let outcome = folder.cfo("inspect bad.npz --json").ended_with(2);
    let report = outcome.json();
    assert_eq!(report["finite"], false);
    assert_eq!(report["non_finite"]["count"], 1);
    assert_eq!(report["sampling"], serde_json::Value::Null);
    insta::assert_snapshot!("not-finite", outcome.stderr);
}

/// Not every damage can be seen (a value may just be another value), but none may do more than be refused.
#[test]
fn a_flipped_bit_is_refused_or_harmless() {
    let folder = with_files();
    for file in ["a.h5", "a.npz"] {
        let whole = fs::read(folder.path(file)).unwrap();
        for place in (0..whole.len()).step_by(whole.len() / 40) {
            let mut damaged = whole.clone();
            damaged[place] ^= 1 << (place % 8);
            fs::write(folder.path("bad"), &damaged).unwrap();
            let outcome = folder.cfo("inspect bad");
            let code = if outcome.stderr.is_empty() { 0 } else { 2 };
            outcome.ended_with(code);
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = with_files();
    let mut child =
        folder.command("inspect a.h5").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.is_empty(), "{said}");
}
