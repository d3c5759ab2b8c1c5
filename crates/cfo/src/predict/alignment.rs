//! Alignment of a file's channels and parameters with those of a model, by their names.

use cfo_data::{Description, InputNames, Offset, Trajectory, TrajectoryInputs};

use crate::error::{CfoError, Result};
use crate::model::Model;

/// The mapping between the channels and parameters of a model and those of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alignment {
    /// Index in the file of each channel of the model; `None` if they have equal order.
    channels: Option<Vec<usize>>,
    /// Index in the file of each parameter, of each control and of each static field of the model; `None` if they have equal order.
    inputs: [Option<Vec<usize>>; 3],
    /// Number of static fields in the file, if there are any.
    static_count: Option<usize>,
    /// Offsets of the model and of the file, both in the model's channel order.
    offsets: [Offset; 2],
    /// Warnings for the user.
    pub notes: Vec<String>,
}

impl Alignment {
    /// Matches a file, given its description and its offset, to a model.
    ///
    /// # Errors
    /// If the file has other channels, or not all the inputs that the model takes.
    pub fn new(model: &Model, description: &Description, offset: &Offset) -> Result<Self> {
        let mut alignment = Self::default();
        let (mine, theirs) = (&model.channel_names, &description.channel_names);
        alignment.channels = alignment.places("channels", mine, theirs, model.shape().channels)?;
        let theirs = match &alignment.channels {
            Some(places) => Offset::new(places.iter().map(|&place| offset.of(place)).collect()),
            None => offset.clone(),
        };
        alignment.offsets = [model.scaling.offset(), theirs];
        alignment.static_count = Some(description.inputs.statics.len()).filter(|&count| count > 0);
        alignment.inputs = alignment.places_of_inputs(&model.inputs, &description.inputs)?;
        alignment.note_space(model, description);
        Ok(alignment)
    }

    /// Returns the index of each input of the model among those of the file.
    fn places_of_inputs(
        &mut self,
        mine: &InputNames,
        theirs: &InputNames,
    ) -> Result<[Option<Vec<usize>>; 3]> {
        let pairs = [
            ("parameters", "PDE parameters", &mine.parameters, &theirs.parameters),
            ("controls", "controls", &mine.controls, &theirs.controls),
            ("statics", "static fields", &mine.statics, &theirs.statics),
        ];
        let mut places = [None, None, None];
        for (place, (what, title, mine, theirs)) in places.iter_mut().zip(pairs) {
            if mine.is_empty() {
                continue;
            }
            if theirs.len() < mine.len() {
                return Err(CfoError::BadData {
                    problem: format!(
                        "the file has {} {title}, but the model takes {}{}",
                        theirs.len(),
                        mine.len(),
                        listed(mine)
                    ),
                    hint: format!("add the array `{what}` to the file"),
                });
            }
            *place = self.places(what, mine, theirs, mine.len())?;
        }
        Ok(places)
    }

    /// Returns the index of each name of the model among those of the file. Names are compared only if both sides have them.
    fn places(
        &mut self,
        what: &str,
        mine: &[String],
        theirs: &[String],
        count: usize,
    ) -> Result<Option<Vec<usize>>> {
        // Readers number the inputs of a file without names.
        let numbered = |i: usize| ["parameter", "control", "static"].map(|kind| format!("{kind} {i}"));
        let own = |(i, name): (usize, &String)| !name.is_empty() && !numbered(i).contains(name);
        let named = |names: &[String]| !names.is_empty() && names.iter().enumerate().all(own);
        if !named(mine) || !named(theirs) {
            if named(mine) != named(theirs) {
                let whose = if named(mine) { "the file" } else { "the run" };
                self.notes.push(format!("{whose} has no names for its {what}; they are used in their order"));
            }
            // Without names, the order must be that of the model.
            return Ok(None);
        }
        if mine == theirs {
            return Ok(None);
        }
        let place = |name: &String| {
            let mut places = theirs.iter().enumerate().filter(|(_, theirs)| *theirs == name).map(|(i, _)| i);
            places.next().filter(|_| places.next().is_none())
        };
        let places: Option<Vec<usize>> = mine.iter().map(place).collect();
        // Channels must agree; inputs that the model does not use are ignored.
        match places {
            Some(places) if what != "channels" || theirs.len() == count => {
                if theirs.len() > count {
                    let unused: Vec<String> =
                        theirs.iter().filter(|name| !mine.contains(name)).cloned().collect();
                    self.notes
                        .push(format!("the model does not use these {what} of the file:{}", listed(&unused)));
                }
                Ok(Some(places))
            }
            _ => Err(CfoError::bad_data(
                format!(
                    "the file's {what} are{}, but the model was trained on{}",
                    listed(theirs),
                    listed(mine)
                ),
                format!(
                    "{what} are matched by name, in any order: rename those of the file, or remove their names"
                ),
            )),
        }
    }

    /// Adds a note if domain or periodicity differ from those of the training data.
    fn note_space(&mut self, model: &Model, description: &Description) {
        let padded = &model.setting.periodic;
        let trained = &padded[padded.len() - model.setting.field.axes()..];
        if description.periodic != trained {
            self.notes.push(format!(
                "`periodic` of the space axes is {:?} in the file, but {trained:?} in the training data",
                description.periodic
            ));
        }
        let near = |a: &[f64; 2], b: &[f64; 2]| {
            let room = 1e-6 * (a[1] - a[0]).abs();
            (a[0] - b[0]).abs() <= room && (a[1] - b[1]).abs() <= room
        };
        let same = model.domain.iter().zip(&description.domain).all(|(a, b)| near(a, b));
        if !same {
            self.notes.push(format!(
                "the file's domain is {:?}; the model was trained on {:?}",
                description.domain, model.domain
            ));
        }
    }

    /// Returns whether model and file have the same order and offset.
    pub fn is_identity(&self) -> bool {
        let ordered = self.channels.is_none() && self.inputs.iter().all(Option::is_none);
        ordered && self.offsets[0] == self.offsets[1]
    }

    /// Converts a trajectory of the file to the model's order and offset.
    pub fn align(&self, trajectory: &mut Trajectory) {
        if let Some(places) = &self.channels {
            for point in trajectory.values.chunks_exact_mut(places.len()) {
                let file: Vec<f32> = point.to_vec();
                places.iter().zip(point).for_each(|(&place, value)| *value = file[place]);
            }
        }
        let [mine, theirs] = &self.offsets;
        theirs.shift(mine, &mut trajectory.values);
        trajectory.inputs = self.inputs(&trajectory.inputs);
    }

    /// Returns the description of a file with its channels in the model's order.
    pub fn describe(&self, file: &Description) -> Description {
        let mut description = file.clone();
        if let Some(places) = &self.channels {
            for labels in [&mut description.channel_names, &mut description.channel_units] {
                if labels.len() == places.len() {
                    *labels = places.iter().map(|&place| labels[place].clone()).collect();
                }
            }
        }
        description
    }

    /// Returns a trajectory's inputs in the model's order.
    pub fn inputs(&self, file: &TrajectoryInputs) -> TrajectoryInputs {
        let mut inputs = file.clone();
        if let Some(places) = &self.inputs[0] {
            inputs.parameters = places.iter().map(|&place| file.parameters[place]).collect();
        }
        if let (Some(places), Some(controls)) = (&self.inputs[1], &file.controls) {
            inputs = inputs.with_controls(controls.chosen(places));
        }
        if let (Some(places), Some(statics), Some(count)) =
            (&self.inputs[2], &file.statics, self.static_count)
        {
            let points = statics.chunks(count);
            inputs = inputs.with_statics(
                points.flat_map(|point| places.iter().map(|&place| point[place])).collect::<Vec<f32>>(),
            );
        }
        inputs
    }

    /// Converts snapshots from the model's order to the file's, relative to [`Alignment::restored_offset`].
    pub fn restore(&self, values: &mut [f32]) {
        if let Some(places) = &self.channels {
            for point in values.chunks_exact_mut(places.len()) {
                let model: Vec<f32> = point.to_vec();
                places.iter().zip(model).for_each(|(&place, value)| point[place] = value);
            }
        }
    }

    /// Returns the model's offset in the file's channel order.
    pub fn restored_offset(&self) -> Offset {
        let mine = &self.offsets[0];
        let Some(places) = self.channels.as_ref().filter(|_| !mine.is_none()) else { return mine.clone() };
        let mut channels = vec![0.0; places.len()];
        places.iter().enumerate().for_each(|(channel, &place)| channels[place] = mine.of(channel));
        Offset::new(channels)
    }
}

impl Model {
    /// Returns a warning about the first input, in the model's order, that is outside the range of the training data.
    pub fn beyond_training(&self, inputs: &TrajectoryInputs) -> Option<String> {
        crate::model::numbered(&self.inputs, inputs).find_map(|(i, value)| {
            let [least, greatest] = *self.input_ranges.get(i)?;
            let room = 1e-9 * (greatest - least).abs().max(greatest.abs());
            if (least - room..=greatest + room).contains(&value) {
                return None;
            }
            let name = self.inputs.parameters.iter().chain(&self.inputs.controls).nth(i)?;
            Some(format!("`{name}` is {value}, but the model was trained on {least} to {greatest}"))
        })
    }

    /// Returns a warning if a prediction extrapolates. If time is an input of the network, it does so outside the times of the training
    /// data. Otherwise it does so beyond the length of the longest training trajectory. Every start is combined with all times.
    pub fn beyond_times(&self, starts: &[f64], times: &[f64]) -> Option<String> {
        let scaling = &self.scaling;
        let (first, last, room) = (scaling.start, scaling.last(), 1e-9 * scaling.span);
        if self.is_timed() {
            let outside = |&time: &f64| time < first - room || time > last + room;
            return times.iter().chain(starts).any(outside).then(|| {
                format!(
                    "the model was trained on times {first} to {last}; beyond them it extrapolates in time"
                )
            });
        }
        let farthest = |start: &f64| times.iter().map(|time| (time - start).abs()).fold(0.0, f64::max);
        (starts.iter().map(farthest).fold(0.0, f64::max) > scaling.span + room).then(|| {
            format!(
                "the model was trained on trajectories of length up to {}; beyond that it extrapolates",
                scaling.span
            )
        })
    }
}

/// Returns the names in quotes after a space; empty if there are none.
fn listed(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" `{}`", names.join("`, `")) }
}
