use crate::util::Folder;

#[test]
fn all_networks_make_a_table() {
    for what in ["forward", "train-step", "rollout --nfe 8"] {
        let line =
            format!("bench {what} --model all --device cpu --batch 2 --grid 16 --repetitions 3 --json");
        let report = Folder::new().cfo(&line).done().json();
        let rows = report["rows"].as_array().unwrap();
        let models: Vec<_> = rows.iter().map(|row| row["model"].as_str().unwrap()).collect();
        assert_eq!(models, ["mlp", "unet1d", "fno", "unet2d", "dit"]);
        for row in rows {
            assert_eq!(row["what"].as_str(), what.split(' ').next());
            assert!(row["median_ms"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["peak_bytes"].as_u64().unwrap() > 0, "{row}");
            assert!(row["parameters"].as_u64().unwrap() > 100_000, "{row}");
        }
    }
}
