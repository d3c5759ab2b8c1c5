//! `POST /api/predict`: a state and times in, states out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use cfo::data::store::TrajectoryFile;
use cfo::data::{Controls, Trajectory, TrajectoryInputs};
use cfo::rollout::Excursion;
use cfo::{Alignment, CfoError, Model, Request, SolverOptions, Trained, Watch};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::http::Response;
use super::models::{Busy, Models};

/// Most times of a request, and most numbers of a response.
const MOST_TIMES: usize = 10_000;
const MOST_NUMBERS: usize = 4_000_000;
/// Most solver steps or network evaluations of a request.
const MOST_STEPS: usize = 100_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Question {
    trajectory: Option<usize>,
    initial: Option<Value>,
    times: Vec<f64>,
    start: Option<f64>,
    solver: Option<String>,
    steps: Option<usize>,
    nfe: Option<usize>,
    rtol: Option<f64>,
    atol: Option<f64>,
    parameters: Option<BTreeMap<String, f64>>,
    controls: Option<GivenControls>,
    statics: Option<Value>,
    checkpoint: Option<String>,
}

/// Controls of a request, in the model's order: times, and a list of the controls at each time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenControls {
    times: Vec<f64>,
    values: Value,
}

/// The body of a response.
#[derive(Debug, Serialize)]
struct Answer {
    times: Vec<f64>,
    /// Times, space axes, channels.
    shape: Vec<usize>,
    /// Numbers of that shape, flattened.
    values: Numbers,
    evaluations: usize,
    milliseconds: f64,
    checkpoint: String,
    warnings: Vec<String>,
}

/// States in single precision, or in double precision where the model has an offset.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Numbers {
    Single(Vec<f32>),
    Double(Vec<f64>),
}

/// The start of a prediction, in the model's order.
struct Start {
    time: f64,
    state: Vec<f32>,
    inputs: TrajectoryInputs,
    /// The mapping from the file's channels to the model's.
    alignment: Option<Alignment>,
}

fn refuse(error: impl Into<String>, hint: &str) -> Response {
    Response::error(422, &error.into(), hint)
}

/// Answers a request.
pub fn answer(models: &Models, data: Option<&TrajectoryFile>, body: &[u8]) -> Result<Response, Response> {
    let malformed = |error: &dyn std::fmt::Display| {
        let hint = "send {\"trajectory\": 0} or {\"initial\": [...]}, and \"times\": [...]";
        Response::error(400, &format!("the body is not a valid request for a prediction: {error}"), hint)
    };
    let document: Value = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    if !document.is_object() {
        return Err(malformed(&"it is not an object"));
    }
    let question: Question = serde_json::from_value(document).map_err(|error| malformed(&error))?;
    check(&question)?;
    let checkpoint = question.checkpoint.clone().unwrap_or_else(|| models.preferred());
    if !models.checkpoints().contains(&checkpoint) {
        return Err(refuse(format!("there is no checkpoint `{checkpoint}`"), "`GET /api/run` lists them"));
    }
    let lease = models.lease(&checkpoint).map_err(|busy| match busy {
        Busy::Full => Response::error(503, "too many predictions at a time", "try again in a moment"),
        Busy::Failed(error) => Response::error(500, &format!("{error:#}"), "choose another checkpoint"),
    })?;
    let began = Instant::now();
    let mut trained = lease.trained().clone();
    if let Some(file) = data {
        trained = trained.on_grid(file.description().shape).map_err(|error| from(&error))?;
    }
    let start = start(&question, trained.model(), data)?;
    let Question { solver, steps, nfe, rtol, atol, times, .. } = question;
    let options = SolverOptions { solver, steps, nfe, rtol, atol };
    trained = trained.with_options(&options).map_err(|error| from(&error))?;
    let Predicted { values, evaluations, mut warnings } = roll_out(&trained, start, &times, &lease.flag)?;
    warnings.extend(trained.ignores(&options));
    let mut shape = vec![times.len()];
    shape.extend(trained.model().shape().dimensions());
    let milliseconds = 1e3 * began.elapsed().as_secs_f64();
    Ok(Response::json(200, &Answer { times, shape, values, evaluations, milliseconds, checkpoint, warnings }))
}

fn check(question: &Question) -> Result<(), Response> {
    let Question { times, trajectory, initial, .. } = question;
    if times.is_empty() || times.len() > MOST_TIMES {
        return Err(refuse(
            format!("{} times were requested; 1 to {MOST_TIMES} are allowed", times.len()),
            "set `times`",
        ));
    }
    if let Some(time) = times.iter().chain(&question.start).find(|time| !time.is_finite()) {
        return Err(refuse(format!("{time} is not a time"), "times are finite numbers"));
    }
    if trajectory.is_some() == initial.is_some() {
        return Err(refuse("the request needs `trajectory` or `initial`, and not both", "send one of them"));
    }
    for (name, count) in [("steps", question.steps), ("nfe", question.nfe)] {
        if count.is_some_and(|count| count == 0 || count > MOST_STEPS) {
            return Err(refuse(
                format!("`{name}` must be from 1 to {MOST_STEPS}"),
                "choose a smaller number, or leave it out",
            ));
        }
    }
    Ok(())
}

/// The state, its time and the parameters.
fn start(question: &Question, model: &Model, data: Option<&TrajectoryFile>) -> Result<Start, Response> {
    let size = model.shape().len();
    if question.times.len() * size > MOST_NUMBERS {
        return Err(refuse(
            format!(
                "{} times of {size} numbers; a response has at most {MOST_NUMBERS}",
                question.times.len()
            ),
            "request fewer times at once",
        ));
    }
    let mut start = match (&question.initial, question.trajectory) {
        (Some(initial), _) => given(initial, model)?,
        (None, index) => recorded(index.unwrap_or(0), model, data)?,
    };
    start.time = question.start.unwrap_or(start.time);
    for (name, value) in question.parameters.iter().flatten() {
        let place = model.inputs.parameters.iter().position(|known| known == name);
        match place.and_then(|place| start.inputs.parameters.get_mut(place)) {
            Some(parameter) => *parameter = *value,
            None => {
                let known = model.inputs.parameters.join(", ");
                return Err(refuse(
                    format!("the model has no parameter `{name}`"),
                    &format!("it has: {known}"),
                ));
            }
        }
    }
    if let Some(GivenControls { times, values }) = &question.controls {
        let mut numbers = Vec::new();
        if !flatten(values, &mut numbers) {
            return Err(refuse(
                "`controls.values` are not numbers",
                "send a list of the controls at each time",
            ));
        }
        let controls = Controls::new(times.clone(), numbers)
            .map_err(|error| refuse(error.to_string(), &error.hint().unwrap_or_default()))?;
        start.inputs.controls = Some(Arc::new(controls));
    }
    if let Some(statics) = &question.statics {
        let mut numbers = Vec::new();
        if !flatten(statics, &mut numbers) || numbers.iter().any(|value| !value.is_finite()) {
            return Err(refuse(
                "`statics` are not finite numbers",
                "send an array `[(space...,) statics]`, nested or flat",
            ));
        }
        start.inputs =
            start.inputs.with_statics(numbers.iter().map(|&value| value as f32).collect::<Vec<f32>>());
    }
    Ok(start)
}

/// A state from the request; its time is the first of the training data unless the request has another.
fn given(initial: &Value, model: &Model) -> Result<Start, Response> {
    let mut state = Vec::new();
    let size = model.shape().len();
    if !flatten(initial, &mut state) || state.len() != size || state.iter().any(|value| !value.is_finite()) {
        let shape = model.shape().dimensions();
        return Err(refuse(
            format!("`initial` is not {size} finite numbers"),
            &format!("send an array of shape {shape:?}, nested or flat"),
        ));
    }
    let middle = |range: &[f64; 2]| (range[0] + range[1]) / 2.0;
    let ranges = model.input_ranges.iter().take(model.inputs.parameters.len());
    let parameters: Vec<f64> = ranges.map(middle).collect();
    let state = model.scaling.relative(&state);
    Ok(Start { time: model.scaling.start, state, inputs: parameters.into(), alignment: None })
}

/// Numbers of an array, however nested.
fn flatten(value: &Value, out: &mut Vec<f64>) -> bool {
    match value {
        Value::Array(entries) => entries.iter().all(|entry| flatten(entry, out)),
        Value::Number(number) => number.as_f64().map(|number| out.push(number)).is_some(),
        _ => false,
    }
}

/// The first state of a trajectory of the file.
fn recorded(index: usize, model: &Model, data: Option<&TrajectoryFile>) -> Result<Start, Response> {
    let Some(file) = data else {
        return Err(refuse("there is no file with trajectories", "start the server with `--data FILE`"));
    };
    if index >= file.len() {
        let hint = format!("there are 0 to {}", file.len() - 1);
        return Err(refuse(format!("there is no trajectory {index}"), &hint));
    }
    let read = || -> anyhow::Result<Start> {
        let alignment = Alignment::new(model, file.description(), file.offset())?;
        let time = file.times(index)?[0];
        let mut one = Trajectory::new(vec![time], file.frames(index, &[0])?, file.inputs(index)?)?;
        alignment.align(&mut one);
        Ok(Start { time, state: one.values, inputs: one.inputs, alignment: Some(alignment) })
    };
    read().map_err(|error| {
        Response::error(500, &format!("{error:#}"), "`cfo inspect FILE` describes the problem")
    })
}

/// The result of a rollout, in the order of the requested times.
struct Predicted {
    values: Numbers,
    evaluations: usize,
    warnings: Vec<String>,
}

/// Rolls out to the times, which may be in any order, on both sides of the start, and repeated.
fn roll_out(
    trained: &Trained,
    start: Start,
    times: &[f64],
    flag: &std::sync::atomic::AtomicBool,
) -> Result<Predicted, Response> {
    let request = Request {
        start: vec![start.time],
        states: vec![start.state],
        times: vec![times.to_vec()],
        inputs: vec![start.inputs],
    };
    let watch = Watch::default().with_interrupt(flag);
    let mut found = trained.predict_each(&request, &watch).map_err(|error| from(&error))?;
    if let Some(divergence) = found.diverged.first() {
        let problem = format!("the prediction {} after time {}", divergence.halt, divergence.time);
        return Err(refuse(problem, "request nearer times, more steps or another solver"));
    }
    let mut states = found.states.pop().unwrap_or_default();
    let mut offset = trained.model().scaling.offset();
    if let Some(alignment) = &start.alignment {
        alignment.restore(&mut states);
        offset = alignment.restored_offset();
    }
    let values = match offset.is_none() {
        true => Numbers::Single(states),
        false => Numbers::Double(offset.absolute(&states)),
    };
    let beyond = trained.model().beyond_times(&request.start, times);
    let warnings = beyond.into_iter().chain(Excursion::warning(trained.model(), &found.excursions)).collect();
    Ok(Predicted { values, evaluations: found.evaluations, warnings })
}

fn from(error: &CfoError) -> Response {
    let status = if error.is_bad_input() { 422 } else { 503 };
    let hint = error.hint().unwrap_or_else(|| "request less, or nearer times".into());
    Response::error(status, &error.to_string(), &hint)
}
