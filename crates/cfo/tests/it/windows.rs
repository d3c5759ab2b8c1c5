//! Windows of consecutive snapshots, used by a user-defined objective.

use cfo::graph::{Graph, Node};
use cfo::numerics::{Path, Spline};
use cfo::objective::{Batch, Draw, Objective};
use cfo::{Device, Model, Result, Training, Trajectories};
use cfo_engine::Role;

use crate::util::{oscillators, recipe};

/// A velocity trained with the trapezoidal rule between the snapshots of a window.
struct Trapezium {
    intervals: usize,
}

impl Objective for Trapezium {
    fn name(&self) -> &str {
        "trapezium"
    }

    fn draw(&self) -> Draw {
        Draw::Window { intervals: self.intervals, path: Path { spline: Spline::Linear, stencil: 2 } }
    }

    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node> {
        let window = batch.window.expect("this objective uses windows");
        let mut total = graph.scalar(0.0);
        for interval in 0..self.intervals {
            let mut slopes = Vec::new();
            let ends = [batch.snapshot(graph, interval)?, batch.snapshot(graph, interval + 1)?];
            let count = graph.shape(batch.state).axes()[0];
            for (k, state) in ends.into_iter().enumerate() {
                let time = graph.var(window.times).slice(0, interval + k, 1).reshape([count]).node()?;
                slopes.push(model.moved(graph, &batch.at(time, state))?);
            }
            let f = graph.formula();
            let half = f.var(window.lengths).slice(0, interval, 1).reshape([count, 1, 1, 1]) * 0.5;
            let next = (ends[0] + (f.var(slopes[0]) + slopes[1]) * half).node()?;
            let error = graph.mean_squared_error(next, ends[1])?;
            total = graph.add(total, error)?;
        }
        Ok(total)
    }
}

fn fit(set: &Trajectories, intervals: usize, steps: u32, stream: bool) -> Result<cfo::Trained> {
    Training::from_recipe(&recipe(steps))
        .objective(Trapezium { intervals })
        .configure(|recipe| recipe.data.stream = Some(stream))
        .device(Device::Cpu)
        .fit(set)
}

#[test]
fn an_objective_of_ones_own_learns_from_windows() {
    let set = oscillators(20);
    let weights = |stream: bool| {
        fit(&set, 3, 40, stream).unwrap().with_memory(|memory| {
            let names = memory.names_where(Role::is_network);
            names.map(|name| memory.read(name).unwrap()).collect::<Vec<_>>()
        })
    };
    assert!(weights(false) == weights(true), "streamed and resident windows are equal");
    let trained = fit(&set, 2, 600, false).unwrap();
    let error = trained.evaluate(set.test()).unwrap().relative_l2.mean;
    // The trapezoidal rule has an error of some percent for gaps of about 0.1 at frequency 2; a constant prediction has one above 1.
    assert!(error < 0.2, "{error}");
}

#[test]
fn windows_longer_than_a_trajectory_are_refused() {
    let refused = fit(&oscillators(20), 30, 10, false).unwrap_err();
    assert!(refused.to_string().contains("a window of 30 intervals has 31"), "{refused}");
    assert!(refused.hint().is_some_and(|hint| hint.contains("shorten the window")));
}
