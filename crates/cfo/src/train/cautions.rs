//! Warnings before a training about valid settings that are rarely intended.

use std::collections::BTreeSet;

use cfo_data::Split;

use crate::error::Result;
use crate::model::Method;
use crate::model::Model;
use crate::run::checkpoint::State;
use crate::trajectories::Trajectories;

/// Returns the warnings for a training on a set, from a checkpoint if there is one.
pub(super) fn of(method: &Method, set: &Trajectories, start: Option<&State>) -> Result<Vec<String>> {
    if let Some(state) = start {
        return Ok(changed_keys(method, state).into_iter().collect());
    }
    let model = Model::unmeasured(method, set)?;
    let found = [held_out_times(set), model.is_timed().then(|| single_record(set)).flatten()];
    Ok(found.into_iter().flatten().collect())
}

/// Returns the numbers, in the file, of the training trajectories.
fn trained_on(set: &Trajectories) -> BTreeSet<usize> {
    set.part(Split::Train).map(|(index, _)| set.number(index)).collect()
}

/// Returns a warning about keys that differ from those in the checkpoint.
fn changed_keys(method: &Method, state: &State) -> Option<String> {
    let mut keys = method.recipe.differing_keys(&state.recipe());
    keys.retain(|key| key != "data.path");
    let keys = (!keys.is_empty()).then(|| keys.join("`, `"))?;
    Some(format!("training continues with values of `{keys}` that differ from those in the checkpoint"))
}

/// Returns a note on which times of a record are held out if no split was chosen.
fn held_out_times(set: &Trajectories) -> Option<String> {
    let trained = trained_on(set);
    let snapshots = |split: Split| -> usize { set.part(split).map(|(_, one)| one.times.len()).sum() };
    let is_divided = |split: Split| set.part(split).any(|(index, _)| trained.contains(&set.number(index)));
    if !is_divided(Split::Validation) && !is_divided(Split::Test) {
        return None;
    }
    let records = match trained.len() {
        1 => "one trajectory".into(),
        count => format!("{count} trajectories"),
    };
    let [train, validation, test] = Split::ALL.map(snapshots);
    Some(format!(
        "the data are {records} and `data.split` is not set: the first {train} snapshots are used for training, the next {validation} for \
         validation, the last {test} for the test"
    ))
}

/// Returns a warning if time is an input and there is one training trajectory.
fn single_record(set: &Trajectories) -> Option<String> {
    (trained_on(set).len() == 1).then(|| {
        "the training data are one trajectory and `operator.time = true`: predictions past its last time extrapolate in time and \
         usually fail. Set `operator.time = false` unless the law itself changes with time"
            .into()
    })
}
