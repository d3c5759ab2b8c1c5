//! `cfo serve`: a web page for a run, with predictions to any time as the slider moves.

mod guard;
mod http;
mod models;
mod predict;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cfo::data::store::TrajectoryFile;
use cfo::objective::TimeInput;
use cfo::{CfoError, Device, Model, Trained};
use serde_json::{Value, json};

use self::guard::Guard;
use self::http::{Handler, HttpRequest, Response};
use self::models::Models;
use crate::page::{self, PageDocument, PageSource};

const PORT: u16 = 8421;
/// Most trajectories of the file on the page.
const SHOWN: usize = 16;
/// Time between checks for predictions that have to end.
const PAUSE: Duration = Duration::from_millis(50);

/// The server: a run, its models, and trajectories to compare with.
struct Server {
    run: PathBuf,
    models: Models,
    /// The model of the checkpoint at the start, on the file's grid. All checkpoints have its shapes and names.
    model: Arc<Model>,
    data: Option<TrajectoryFile>,
    guard: Guard,
    /// Rendered once: the trajectories do not change.
    page: String,
}

/// Options of the server.
pub struct ServeOptions {
    /// The folder of the run.
    pub run: PathBuf,
    /// The file of trajectories; by default the data of the run.
    pub data: Option<PathBuf>,
    /// The port; by default 8421, or a free one if 8421 is in use.
    pub port: Option<u16>,
    /// The address; all but loopback addresses need a token.
    pub host: String,
    /// Token that every request must contain.
    pub token: Option<String>,
    /// `auto`, `cpu` or `cuda:N`.
    pub device: String,
}

/// Serves a run until `stop` is set. `announce` gets the address when the server listens.
///
/// # Errors
/// If the run or its data cannot be read, or the address cannot be listened on.
pub fn run(
    options: &ServeOptions,
    stop: &'static AtomicBool,
    announce: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let listener = listen(options)?;
    let address = listener.local_addr().context("finding the address of the server")?;
    let server = Arc::new(Server::new(options, address)?);
    announce(address)?;
    let watcher = {
        let server = Arc::clone(&server);
        thread::spawn(move || watch(&server, address, stop))
    };
    http::serve(&listener, stop, &server)?;
    let _ = watcher.join();
    Ok(())
}

/// Ends predictions that take too long. After Ctrl-C it ends all of them and wakes the loop that accepts connections.
fn watch(server: &Server, address: SocketAddr, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        server.models.watch(false);
        thread::sleep(PAUSE);
    }
    server.models.watch(true);
    let deadline = Instant::now() + Duration::from_secs(2);
    while !server.models.is_idle() && Instant::now() < deadline {
        thread::sleep(PAUSE);
    }
    // A wildcard address such as 0.0.0.0 is not one to connect to.
    let own = if address.ip().is_unspecified() { IpAddr::from([127, 0, 0, 1]) } else { address.ip() };
    let _ = TcpStream::connect_timeout(&SocketAddr::new(own, address.port()), Duration::from_secs(1));
}

/// Opens the port: on this machine's loopback address, or with a token on any other.
fn listen(options: &ServeOptions) -> Result<TcpListener> {
    let refused = |problem: String, hint: &str| CfoError::bad_data(problem, hint);
    let host = IpAddr::from_str(&options.host).map_err(|_| {
        refused(format!("`{}` is not an address", options.host), "give one like 127.0.0.1 or 0.0.0.0")
    })?;
    if !host.is_loopback() && options.token.is_none() {
        bail!(refused(
            format!("other machines could use `{host}` without a token"),
            "add `--token TOKEN`, or leave out `--host` to serve only this machine",
        ));
    }
    if let Some(token) = &options.token {
        let plain = token.chars().all(|c| c.is_ascii_alphanumeric() || "-_.~".contains(c));
        if token.len() < 8 || !plain {
            bail!(refused(
                "the token is too short, or has characters that a URL does not allow".into(),
                "use at least 8 letters, digits, `-` or `_`",
            ));
        }
    }
    let bound = match options.port {
        Some(port) => TcpListener::bind((host, port)),
        None => TcpListener::bind((host, PORT)).or_else(|_| TcpListener::bind((host, 0))),
    };
    bound.map_err(|error| {
        let port = options.port.unwrap_or(PORT);
        refused(format!("cannot listen on {host}:{port}: {error}"), "choose another `--port`").into()
    })
}

impl Server {
    fn new(options: &ServeOptions, address: SocketAddr) -> Result<Self> {
        let run = options.run.clone();
        let device = Device::from_str(&options.device).map_err(CfoError::from)?;
        let trained = Trained::loader(&run).device(device).load()?;
        let data = match &options.data {
            Some(path) => Some(TrajectoryFile::open(path)?),
            None => own_data(&trained),
        };
        let trained = match &data {
            Some(file) => trained.on_grid(file.description().shape)?,
            None => trained,
        };
        let mut document = PageDocument {
            version: env!("CARGO_PKG_VERSION"),
            title: name_of(&run),
            live: true,
            ..PageDocument::default()
        };
        if let Some(file) = &data {
            cfo::Alignment::new(trained.model(), file.description(), file.offset())?;
            let label = name_of(file.path());
            let source = PageSource { label, file: TrajectoryFile::open(file.path())?, of: None };
            let wanted: Vec<usize> = (0..file.len().min(SHOWN)).collect();
            let (field, notes) = page::gather(&[source], &wanted)?;
            (document.field, document.notes) = (Some(field), notes);
        }
        document.run = page::read_run(&run, &mut document.notes).ok();
        Ok(Self {
            models: Models::new(&run, device),
            model: Arc::clone(trained.model()),
            data,
            guard: Guard::new(address, options.token.clone()),
            page: page::render(&document)?,
            run,
        })
    }

    /// `GET /api/run`.
    fn describe(&self) -> Value {
        let model = &self.model;
        let names = |count: usize| (0..count).map(|index| format!("u{index}")).collect::<Vec<_>>();
        let channels = match model.channel_names.is_empty() {
            true => names(model.shape().channels),
            false => model.channel_names.clone(),
        };
        let solver = model.recipe.solver().map_or("", |solver| solver.tableau.name);
        let first = model.scaling.start;
        let last =
            first + if model.scaling.duration > 0.0 { model.scaling.duration } else { model.scaling.span };
        json!({
            "run": self.run,
            "system": model.system,
            "shape": model.shape().dimensions(),
            "channels": channels,
            "domain": model.domain,
            "times": {"first": first, "last": last, "interval": model.scaling.interval},
            "parameters": model.inputs.parameters,
            "conditions": model.inputs.parameters.len(),
            "controls": model.inputs.controls,
            "statics": model.inputs.statics,
            // What is made of noise is another sample from another state.
            "goes_on": model.motion().evaluations() == 1 && model.motion().time_input() != TimeInput::Own,
            "solver": solver,
            "solvers": cfo::numerics::ode::Tableau::ALL.map(|tableau| tableau.name),
            "checkpoint": self.models.preferred(),
            "checkpoints": self.models.checkpoints(),
            "trajectories": self.data.as_ref().map(TrajectoryFile::len),
            "limits": {"seconds": models::LONGEST.as_secs(), "bytes": self.body_limit()},
        })
    }

    /// `GET /api/history`: the training so far, for a page that watches it.
    fn history(&self) -> Response {
        match page::read_run(&self.run, &mut Vec::new()) {
            Ok(part) => Response::json(200, &part),
            Err(error) => {
                Response::error(500, &format!("{error:#}"), "check that the folder of the run still exists")
            }
        }
    }
}

impl Handler for Server {
    fn admits(&self, request: &HttpRequest) -> Result<(), Response> {
        self.guard.check(request)?;
        let known = ["/", "/api/run", "/api/history", "/api/predict"].contains(&request.path.as_str());
        let method = if request.path == "/api/predict" { "POST" } else { "GET" };
        if !known {
            return Err(Response::error(
                404,
                "there is no such path",
                "use `/`, `/api/run` or `/api/predict`",
            ));
        }
        if request.method != method {
            return Err(Response::error(
                405,
                "this path does not accept that method",
                &format!("use {method}"),
            ));
        }
        let json = request.header("content-type").is_some_and(|kind| kind.starts_with("application/json"));
        if method == "POST" && !json {
            return Err(Response::error(
                415,
                "the body is not JSON",
                "send `Content-Type: application/json`",
            ));
        }
        Ok(())
    }

    fn body_limit(&self) -> usize {
        // Room for the numbers of an initial state as text, and as much again for times and the rest.
        (64 << 10) + 32 * self.model.shape().len() + 32 * 10_000
    }

    fn answer(&self, request: &HttpRequest) -> Response {
        match request.path.as_str() {
            "/" => Response { status: 200, kind: "text/html", body: self.page.clone().into_bytes() },
            "/api/run" => Response::json(200, &self.describe()),
            "/api/history" => self.history(),
            _ => predict::answer(&self.models, self.data.as_ref(), &request.body)
                .unwrap_or_else(|refused| refused),
        }
    }
}

/// The trajectories that the run was trained on, if the file still exists and fits the model.
fn own_data(trained: &Trained) -> Option<TrajectoryFile> {
    let path = trained.recipe().data.path.as_ref()?;
    let file = TrajectoryFile::open(path).ok()?;
    (file.description().shape == trained.model().shape()).then_some(file)
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
