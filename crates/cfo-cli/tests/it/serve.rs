//! `cfo serve` from outside: what it answers, whom it refuses, how it ends.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::references::keys;
use crate::util::{Folder, browser, python, python_with};

/// A run with its trajectories.
fn trained() -> Folder {
    let folder = Folder::new();
    folder.cfo("simulate lorenz --frames 41 --horizon 0.4 --samples 12 --out data.h5").done();
    let recipe =
        "[operator]\nkind = \"mlp\"\nhidden = [16]\n[train]\nsteps = 60\nbatch = 16\nreport_every = 10\n";
    std::fs::write(folder.path("recipe.toml"), recipe).unwrap();
    folder.cfo("train recipe.toml --data data.h5 --out run").done();
    folder
}

/// A server that is ended with the test.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Folder, words: &str) -> Self {
        Self::of(folder, &format!("run --data data.h5 {words}"))
    }

    fn of(folder: &Folder, words: &str) -> Self {
        let line = format!("serve {words} --port 0 --device cpu");
        let mut child = folder.command(&line).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let address = first.trim().strip_prefix("listening on http://").expect("the address").to_owned();
        Self { child, address }
    }

    /// The status and the body of an answer.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let host =
            headers.iter().find(|(name, _)| *name == "Host").map_or(&self.address[..], |(_, host)| host);
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        for (name, value) in headers.iter().filter(|(name, _)| *name != "Host") {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn predict(&self, question: &Value) -> (u16, Value) {
        let headers = [("Content-Type", "application/json")];
        let (status, body) = self.ask("POST", "/api/predict", &headers, &question.to_string());
        (status, serde_json::from_str(&body).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks that `docs/reference/http.md` has all keys of a response.
fn all_in_the_reference(response: &Value) {
    let page = include_str!("../../../../docs/reference/http.md");
    let mut found = BTreeSet::new();
    keys(response, "", &mut found);
    for key in found {
        let named = page.contains(&format!("`{}`", key.trim_end_matches("[]")));
        assert!(named, "`{key}` is missing in docs/reference/http.md");
    }
}

/// Predictions are those of `cfo predict`, forward and backward, with times in any order.
#[test]
fn predictions_are_those_of_the_command() {
    let folder = trained();
    let server = Server::start(&folder, "");
    let (status, body) = server.ask("GET", "/api/run", &[], "");
    let run: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &run["shape"], &run["trajectories"]), (200, &json!([3]), &json!(12)));
    all_in_the_reference(&run);
    assert_eq!(run["channels"], json!(["x", "y", "z"]));
    assert!(run["checkpoints"].as_array().unwrap().contains(&json!("latest")), "{run}");

    folder
        .cfo("predict run --initial data.h5 --trajectory 3 --times 0.05,0.2 --device cpu --out p.npz")
        .done();
    folder.cfo("export p.npz --out p.h5").done();
    let (status, forward) = server.predict(&json!({"trajectory": 3, "times": [0.2, 0.05]}));
    assert_eq!((status, &forward["shape"], &forward["times"]), (200, &json!([2, 3]), &json!([0.2, 0.05])));
    all_in_the_reference(&forward);
    assert!(forward["evaluations"].as_u64().unwrap() > 0 && forward["milliseconds"].as_f64().unwrap() > 0.0);
    if let Some(python) = python() {
        let script = "import h5py, json, sys\nv = h5py.File('p.h5')['values'][0][::-1].ravel()\n\
                      a = json.loads(sys.argv[1])\nassert max(abs(v - a)) < 1e-5 * max(abs(v)), (v, a)";
        folder
            .run(Command::new(python).args(["-c", script, &forward["values"].to_string()]), "python")
            .done();
    }
    let state = &forward["values"].as_array().unwrap()[..3];
    let (status, back) = server
        .predict(&json!({"initial": state, "start": 0.2, "times": [0.0], "solver": "tsit5", "rtol": 1e-6}));
    assert_eq!((status, &back["shape"]), (200, &json!([1, 3])), "{back}");
}

#[test]
fn what_is_wrong_is_said() {
    let folder = trained();
    let server = Server::start(&folder, "");
    for (question, status, part) in [
        (json!({"times": [0.1]}), 422, "`trajectory` or `initial`"),
        (json!({"trajectory": 12, "times": [0.1]}), 422, "no trajectory 12"),
        (json!({"trajectory": 0, "times": []}), 422, "0 times"),
        (json!({"trajectory": 0, "times": [0.1], "solver": "magic"}), 422, "unknown choice `magic`"),
        (
            json!({"trajectory": 0, "times": [0.1], "solver": "rk4", "rtol": 1e-3}),
            422,
            "does not estimate its error",
        ),
        (json!({"trajectory": 0, "times": [0.1], "steps": 3, "nfe": 40}), 422, "`steps` and `nfe`"),
        (json!({"trajectory": 0, "times": [0.1], "checkpoint": "../.."}), 422, "no checkpoint"),
        (json!({"trajectory": 0, "times": [0.1], "parameters": {"nu": 1.0}}), 422, "no parameter `nu`"),
        (json!({"initial": [1.0, 2.0], "times": [0.1]}), 422, "3 finite numbers"),
        (json!({"initial": [1.0, 2.0, "x"], "times": [0.1]}), 422, "3 finite numbers"),
        (json!({"trajectory": 0, "times": [0.1], "timse": 1}), 400, "timse"),
        (json!([1]), 400, "the body"),
    ] {
        let (found, answer) = server.predict(&question);
        assert_eq!(found, status, "{question}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(part), "{question}: {answer}");
        assert!(!answer["hint"].as_str().unwrap().is_empty(), "{question}: {answer}");
    }
    let json = ("Content-Type", "application/json");
    for (method, path, headers, status) in [
        ("GET", "/nowhere", vec![], 404),
        ("DELETE", "/api/run", vec![], 405),
        ("POST", "/api/predict", vec![], 415),
        ("POST", "/api/predict", vec![json, ("Origin", "http://elsewhere.example")], 403),
        ("GET", "/", vec![("Host", "elsewhere.example")], 403),
        ("GET", "/api/run", vec![("Sec-Fetch-Site", "cross-site")], 403),
    ] {
        let (found, answer) = server.ask(method, path, &headers, "{}");
        assert_eq!(found, status, "{method} {path}: {answer}");
    }
}

/// Every method and every option makes the same steps in the server as in the command; without options those of the recipe.
#[test]
fn options_mean_what_they_mean_to_the_command() {
    let folder = trained();
    let server = Server::start(&folder, "");
    let options = |solver: &str| {
        let mut options = vec![json!({"solver": solver}), json!({"solver": solver, "steps": 9})];
        options.push(json!({"solver": solver, "nfe": 80}));
        if !["euler", "rk4"].contains(&solver) {
            options.push(json!({"solver": solver, "rtol": 1e-3, "atol": 1e-4}));
        }
        options
    };
    let each = ["euler", "heun", "rk4", "dopri5", "tsit5"].into_iter().flat_map(options);
    for options in each.chain([json!({}), json!({"rtol": 1e-6})]) {
        let words: Vec<String> = options
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| format!("--{key} {}", value.to_string().replace('"', "")))
            .collect();
        let line = format!(
            "predict run --initial data.h5 --trajectory 2 --times 0.1,0.3 --device cpu --out p.npz --force --json {}",
            words.join(" ")
        );
        let command = folder.cfo(&line).done().json();
        let mut question = options.clone();
        question["trajectory"] = json!(2);
        question["times"] = json!([0.3, 0.1]);
        let (status, found) = server.predict(&question);
        assert_eq!((status, &found["evaluations"]), (200, &command["evaluations"]), "{options}: {found}");
        assert_eq!(found["warnings"], json!([]));
    }
}

/// A proxy before the server may take the first of two `Host` headers and the server the second.
#[test]
fn a_second_host_is_refused() {
    let folder = trained();
    let server = Server::start(&folder, "");
    let own = server.address.clone();
    for second in [own.as_str(), "elsewhere.example"] {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let text =
            format!("GET /api/run HTTP/1.1\r\nHost: {own}\r\nHost: {second}\r\nConnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
}

/// Beyond this machine only with a token; and with one only for those who know it.
#[test]
fn strangers_are_kept_out() {
    let folder = trained();
    let refused = folder.cfo("serve run --host 0.0.0.0").ended_with(2);
    assert!(
        refused.stderr.contains("without a token") && refused.stderr.contains("--token"),
        "{}",
        refused.stderr
    );
    folder.cfo("serve run --host 0.0.0.0 --token short").ended_with(2);
    folder.cfo("serve none").ended_with(2);
    let server = Server::start(&folder, "--token correct-horse");
    assert_eq!(server.ask("GET", "/api/run", &[], "").0, 401);
    assert_eq!(server.ask("GET", "/api/run", &[("Authorization", "Bearer wrong-horse-1")], "").0, 401);
    assert_eq!(server.ask("GET", "/api/run", &[("Authorization", "Bearer correct-horse")], "").0, 200);
    assert_eq!(server.ask("GET", "/?token=correct-horse", &[], "").0, 200);
}

/// Where the trajectories are gone, states are given by their numbers.
#[test]
fn a_run_is_served_without_its_data() {
    let folder = trained();
    std::fs::remove_file(folder.path("data.h5")).unwrap();
    let server = Server::of(&folder, "run");
    assert_eq!(server.ask("GET", "/", &[], "").0, 200);
    let run: Value = serde_json::from_str(&server.ask("GET", "/api/run", &[], "").1).unwrap();
    assert_eq!(run["trajectories"], Value::Null);
    let (status, found) = server.predict(&json!({"initial": [1.0, 2.0, 20.0], "times": [0.1, 0.3]}));
    assert_eq!((status, &found["shape"]), (200, &json!([2, 3])), "{found}");
    let (status, refused) = server.predict(&json!({"trajectory": 0, "times": [0.1]}));
    assert!(status == 422 && refused["hint"].is_string(), "{status} {refused}");
}

/// A training that still runs: its history grows, and `latest` is what it has become.
#[test]
fn a_training_is_watched_while_it_runs() {
    let folder = Folder::new();
    folder.cfo("simulate lorenz --frames 41 --horizon 0.4 --samples 12 --out data.h5").done();
    let recipe = "[operator]\nkind = \"mlp\"\nhidden = [16]\n[train]\nsteps = 1000000\nbatch = 256\nreport_every = 50\n\
                  checkpoint_every = 50\nvalidate_every = 0\n";
    std::fs::write(folder.path("recipe.toml"), recipe).unwrap();
    let mut training = folder.command("train recipe.toml --data data.h5 --out run --device cpu");
    let mut training = training.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let until = |holds: &mut dyn FnMut() -> bool| {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(120), "the training does not go on");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(&mut || folder.path("run/checkpoints/latest").exists());
    let server = Server::start(&folder, "");
    let steps = || {
        let (status, body) = server.ask("GET", "/api/history", &[], "");
        assert_eq!(status, 200, "{body}");
        let history: Value = serde_json::from_str(&body).unwrap();
        history["history"].as_array().and_then(|reports| reports.last()?["step"].as_u64()).unwrap_or(0)
    };
    let question = json!({"trajectory": 0, "times": [0.2], "checkpoint": "latest"});
    let (first, (_, before)) = (steps(), server.predict(&question));
    until(&mut || steps() > first + 100);
    let (status, after) = server.predict(&question);
    assert_eq!(status, 200, "{after}");
    assert_ne!(before["values"], after["values"]);
    assert!(Command::new("kill").args(["-INT", &training.id().to_string()]).status().unwrap().success());
    training.wait().unwrap();
}

/// A short run of the load test; `benchmarks/serve_load.py` makes longer ones.
#[test]
fn a_storm_of_requests_is_weathered_and_the_end_is_clean() {
    let Some(python) = python() else { return };
    let folder = trained();
    let mut server = Server::start(&folder, "");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/serve_load.py");
    let mut command = Command::new(python);
    command.arg(script).arg(format!("http://{}", server.address));
    command.args(["--clients", "16", "--seconds", "2"]);
    folder.run(&mut command, "serve_load.py").done();
    let asked = Instant::now();
    let killed = Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
}

/// The page is alive: predictions come as the slider moves, beyond the data too.
#[test]
fn the_page_of_a_server_works_in_a_browser() {
    let Some((python, browser)) = python_with(&["playwright"]).zip(browser()) else { return };
    let folder = trained();
    for (words, name) in [("", "truth"), ("--token correct-horse", "token")] {
        let server = Server::start(&folder, words);
        let query = if name == "token" { "?token=correct-horse" } else { "" };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/pages.py");
        let mut command = Command::new(&python);
        command.arg(script).arg("live").arg(format!("http://{}/{query}", server.address));
        folder.run(command.env("CFO_BROWSER", &browser), "pages.py").done();
    }
}
