//! Training through a solver with equal steps: the loss and its gradients in one graph.

use cfo_engine::{Graph, Node};

use crate::error::Result;
use crate::model::Model;
use crate::objective::{Batch, FixedStep, NeuralOde};

/// Appends loss and gradients step by step, backward; steps are appended again, so that one step's values are stored.
pub(in crate::train) fn loss_and_gradients(
    objective: &NeuralOde,
    graph: &mut Graph,
    model: &Model,
    batch: &Batch,
) -> Result<(Node, Vec<Node>)> {
    let mut steps = objective.steps(graph, model, batch)?;
    let parameters: Vec<Node> = graph.parameters().iter().map(|parameter| parameter.node).collect();
    let (mut loss, mut cotangent): (Option<Node>, Option<Node>) = (None, None);
    let mut gradients: Vec<Option<Node>> = vec![None; parameters.len()];
    // A single step need not be computed again.
    let again = steps.len() > 1;
    let count = objective.through.steps();
    for (interval, steps) in steps.chunks_mut(count).enumerate().rev() {
        let (first, end) = (graph.entries().len(), steps[steps.len() - 1].end);
        let share = objective.share(graph, model, batch, (interval, end))?;
        let share = batch.weigh(graph, share)?;
        loss = added(graph, loss, Some(share))?;
        let one = graph.scalar(1.0);
        let own = graph.vector_jacobian_since(first, &[(share, one)], &[end])?[0];
        let later = cotangent.filter(|_| objective.through.through_time);
        cotangent = added(graph, later, own)?;
        for step in steps.iter_mut().rev() {
            let Some(arrived) = cotangent else { continue };
            if again {
                *step =
                    FixedStep::new(graph, model, &objective.through.tableau(), (step.start, step.length))?;
            }
            let targets: Vec<Node> = parameters.iter().copied().chain([step.start.state]).collect();
            let mut found = graph.vector_jacobian_since(step.first, &[(step.end, arrived)], &targets)?;
            cotangent = found.pop().flatten();
            for (sum, found) in gradients.iter_mut().zip(found) {
                *sum = added(graph, *sum, found)?;
            }
        }
    }
    let gradients = gradients.into_iter().zip(&parameters).map(|(gradient, &parameter)| match gradient {
        Some(gradient) => Ok(gradient),
        None => Ok(graph.scale(parameter, 0.0)?),
    });
    let gradients = gradients.collect::<Result<Vec<Node>>>()?;
    Ok((loss.unwrap_or_else(|| graph.scalar(0.0)), gradients))
}

/// Appends the sum of the values that are present.
fn added(graph: &mut Graph, a: Option<Node>, b: Option<Node>) -> Result<Option<Node>> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(Some(graph.add(a, b)?)),
        (a, b) => Ok(a.or(b)),
    }
}
