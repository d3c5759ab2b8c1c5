//! Every table and figure on one page, in as many attempts as it takes.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::util::Folder;

/// One system with one recipe and a reduced budget, which tests the machinery and not the method.
const LINE: &str = "reproduce all --system burgers --recipe paper --device cpu --out page --set data.split=[3,1,2] \
                    --set train.steps=2 --set train.batch=4 --set evaluate.nfe=20";

/// Pictures of single trajectories, and the losses of CFO and of the neural ODE.
#[test]
fn figures_show_methods_beside_each_other() {
    let folder = Folder::new();
    let tiny =
        "--device cpu --set data.split=[4,1,3] --set train.steps=2 --set train.batch=4 --set evaluate.nfe=20";
    let line = format!("reproduce figures --system lorenz --system burgers --json --out report {tiny}");
    let report = folder.cfo(&line).done().json();
    let rows = report["rows"].as_array().unwrap();
    for method in ["cfo", "autoregressive"] {
        for rank in ["worst", "median"] {
            let of = rows.iter().filter(|row| row["method"] == method && row["rank"] == rank);
            assert_eq!(of.count(), 1, "{method} {rank}");
        }
    }
    let paper: Vec<_> = rows.iter().filter(|row| row["paper"].is_number()).collect();
    assert_eq!((paper.len(), &paper[0]["method"], &paper[0]["rank"]), (1, &"cfo".into(), &"worst".into()));
    let losses = rows.iter().filter(|row| row["loss"].is_number());
    let methods: Vec<&str> = losses.filter_map(|row| row["method"].as_str()).collect();
    assert_eq!(methods, ["cfo", "neural-ode"]);
    for stem in ["burgers-worst", "burgers-median", "loss-over-steps-lorenz", "loss-over-time-lorenz"] {
        assert!(folder.path("report").join(format!("{stem}.png")).exists(), "{stem}");
        let markdown = std::fs::read_to_string(folder.path("report/report.md")).unwrap();
        assert!(markdown.contains(&format!("({stem}.png)")), "{stem}");
    }
    folder.cfo("reproduce figures --seeds 2").ended_with(2);
}

/// Killed in the middle, gone on with, and asked for again: what is finished is not made twice.
#[test]
fn all_goes_on_after_a_kill_and_repeats_nothing() {
    let folder = Folder::new();
    let log = std::fs::File::create(folder.path("log")).unwrap();
    let mut child = folder.command(LINE).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let started = Instant::now();
    while !folder.path("page/table1/finished.json").exists() {
        assert!(started.elapsed() < Duration::from_secs(120), "table1 is not finished");
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-KILL", &child.id().to_string()]).status().unwrap().success());
    child.wait().unwrap();
    assert!(!folder.path("page/report.html").exists());

    let first = folder.cfo(LINE).done();
    assert!(first.stderr.contains("table1: finished before"), "{}", first.stderr);
    let page = std::fs::read_to_string(folder.path("page/report.html")).unwrap();
    let markdown = std::fs::read_to_string(folder.path("page/report.md")).unwrap();
    let mut last = 0;
    for exhibit in
        ["Table 1:", "Figure 4:", "Table 2:", "Table 5:", "Table 8:", "Figure 8:", "Figure 11:", "Table 12:"]
    {
        let at = markdown.find(&format!("## {exhibit}")).unwrap_or_else(|| panic!("{exhibit} is missing"));
        assert!(at > last, "{exhibit} stands in the paper's order");
        last = at;
        assert!(page.contains(exhibit));
    }
    // What the paper has beside ours, one file without references, and what was not asked for.
    assert!(
        page.contains("<td class=\"right\">7.09e-3 ± 1.10e-3</td>")
            && page.contains("data:image/png;base64,")
    );
    assert!(!page.contains("src=\"table1") && !page.contains("http://") && !page.contains("https://"));
    let ks = &markdown[markdown.find("## Table 13").unwrap()..];
    assert!(ks.contains("Not asked for."));
    // Each figure of the Markdown is there.
    for line in markdown.lines().filter(|line| line.starts_with("![")) {
        let file = line.rsplit_once('(').unwrap().1.trim_end_matches(')');
        assert!(folder.path("page").join(file).exists(), "{line}");
    }

    std::fs::remove_file(folder.path("page/nfe/finished.json")).unwrap();
    let again = folder.cfo(&format!("{LINE} --json")).done();
    assert!(again.stderr.contains("experiment: nfe") && !again.stderr.contains("experiment: runtime"));
    assert!(!again.stderr.contains("step 2/2"), "{}", again.stderr);
    let rows = again.json()["rows"].as_array().unwrap().clone();
    assert_eq!(rows[0]["exhibit"], "Table 1");
    assert!(rows.iter().any(|row| row["state"] == "not-asked" && row["target"] == "ks"));
    assert!(rows.iter().filter(|row| row["state"] == "done").all(|row| row["report"].is_string()));

    // A second system that fails: the page has the first one and says so.
    std::fs::write(folder.path("runs/trainings/smoke-seed-0/diffusion-reaction"), "not a folder").unwrap();
    let more = folder.cfo(&format!("{LINE} --system diffusion-reaction --json")).ended_with(1);
    let rows = more.json()["rows"].as_array().unwrap().clone();
    let state = |exhibit: &str| {
        let row = rows.iter().find(|row| row["exhibit"] == exhibit);
        row.map(|row| row["state"].clone()).unwrap_or_default()
    };
    assert_eq!((state("Table 1"), state("Figure 11")), ("incomplete".into(), "done".into()), "{rows:?}");
    assert_eq!(state("Table 14"), "failed", "it has no other system");
    let page = std::fs::read_to_string(folder.path("page/report.html")).unwrap();
    assert!(page.contains("Incomplete: diffusion-reaction") && page.contains("7.09e-3"));
    assert!(page.contains("Failed: in <code>runs"), "{}", more.stderr);
}

#[test]
fn all_says_what_it_would_train_and_refuses_what_it_cannot_take() {
    let folder = Folder::new();
    let plan = folder.cfo("reproduce all --scale paper --dry-run").done().stdout;
    assert!(folder.names().is_empty());
    for target in ["table1", "figures", "nfe", "noise", "ks"] {
        assert!(plan.lines().any(|line| line == target), "{target}\n{plan}");
    }
    for options in ["--share 1/2", "--system heat", "--dry-run --json", "--set train.stops=3"] {
        folder.cfo(&format!("reproduce all {options}")).ended_with(2);
    }
}
