//! Simulated trajectories that experiments share: a file for each system in the folder of the training runs.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use crate::Console;
use anyhow::{Context, Result};
use cfo::Trajectories;
use cfo::data::simulate::Equation;
use cfo::data::store::{TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo::ranks;

/// The first trajectories of a system and a seed.
pub(crate) struct Simulated<'a> {
    pub equation: &'a dyn Equation,
    /// Name in messages.
    pub label: &'static str,
    pub samples: usize,
    pub seed: u64,
    /// Their file.
    pub file: PathBuf,
    pub interrupt: &'a AtomicBool,
    pub console: &'a dyn Console,
}

impl Simulated<'_> {
    /// Reads them, or simulates and keeps them if that was not done before.
    pub fn trajectories(&self) -> Result<Trajectories> {
        let mut made = None;
        let kept = ranks::by_first(|| {
            if self.are_kept() {
                return Ok(true);
            }
            self.console.say(&format!("simulating {} trajectories: {}", self.samples, self.label));
            Ok::<_, anyhow::Error>(self.keep(made.insert(self.simulate()?)))
        })?;
        match made {
            Some(set) => Ok(set),
            None if kept => {
                Trajectories::read(&self.file).with_context(|| format!("reading `{}`", self.file.display()))
            }
            // Another rank, where the first one could not write.
            None => self.simulate(),
        }
    }

    fn simulate(&self) -> Result<Trajectories> {
        Ok(Trajectories::simulate(self.equation, self.samples, self.seed, self.interrupt)?)
    }

    /// Returns whether the file has them: its first trajectory must equal, bit for bit, that of this equation, seed and simulator.
    fn are_kept(&self) -> bool {
        let Ok(file) = TrajectoryFile::open(&self.file) else { return false };
        let described = file.len() == self.samples && *file.description() == self.equation.description();
        let first = || Some((file.trajectory(0).ok()?, self.equation.trajectory(self.seed, 0).ok()?));
        let same = described && first().is_some_and(|(kept, made)| kept == made);
        if !same {
            self.console.say(&format!("`{}` has other trajectories and is made again", self.file.display()));
        }
        same
    }

    /// Writes the file, whole or not at all. Experiments do not need it: if the disk is full, the next one simulates again.
    fn keep(&self, set: &Trajectories) -> bool {
        let written = self.write(set);
        if let Err(error) = &written {
            self.console.say(&format!("`{}` could not be kept: {error:#}", self.file.display()));
        }
        written.is_ok()
    }

    fn write(&self, set: &Trajectories) -> Result<()> {
        if let Some(folder) = self.file.parent() {
            fs_err::create_dir_all(folder)?;
        }
        let longest = set.trajectories.iter().map(|trajectory| trajectory.times.len()).max();
        let options = WriteOptions { force: true, frames: longest, ..WriteOptions::default() };
        let mut writer = TrajectoryWriter::create(&self.file, &set.description, options)?;
        for trajectory in &set.trajectories {
            writer.push(trajectory, None)?;
        }
        Ok(writer.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Silent;
    use cfo::data::simulate::{KuramotoSivashinsky, Lorenz};

    fn simulated<'a>(equation: &'a dyn Equation, file: &std::path::Path, seed: u64) -> Simulated<'a> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        let file = file.to_owned();
        Simulated { equation, label: "test", samples: 3, seed, file, interrupt: &NEVER, console: &Silent }
    }

    /// Read again they are the same to the last bit, where each has times and parameters of its own too.
    #[test]
    fn trajectories_are_kept_to_the_last_bit() {
        let folder = tempfile::tempdir().unwrap();
        let lorenz = Lorenz { frames: 11, horizon: 0.1, ..Lorenz::default() };
        let waves = KuramotoSivashinsky {
            grid: 32,
            frames: 5,
            horizon: 1.0,
            spin_up: 1.0,
            ..KuramotoSivashinsky::default()
        };
        for (name, equation) in [("lorenz", &lorenz as &dyn Equation), ("waves", &waves)] {
            let file = folder.path().join(format!("data/{name}.h5"));
            let one = simulated(equation, &file, 1);
            assert!(!one.are_kept());
            let made = one.trajectories().unwrap();
            assert!(one.are_kept());
            let read = one.trajectories().unwrap();
            assert_eq!(made.description, read.description, "{name}");
            assert_eq!(made.trajectories, read.trajectories, "{name}");
        }
    }

    #[test]
    fn other_parameters_seeds_and_damaged_files_are_simulated_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lorenz.h5");
        let lorenz = Lorenz { frames: 11, horizon: 0.1, ..Lorenz::default() };
        let other = Lorenz { rho: 27.0, ..lorenz.clone() };
        simulated(&lorenz, &file, 1).trajectories().unwrap();
        assert!(!simulated(&lorenz, &file, 2).are_kept());
        assert!(!simulated(&other, &file, 1).are_kept());
        let again = simulated(&other, &file, 1).trajectories().unwrap();
        assert_eq!(again.trajectories[0], other.trajectory(1, 0).unwrap());
        std::fs::write(&file, "no file").unwrap();
        assert!(!simulated(&other, &file, 1).are_kept());
        assert_eq!(simulated(&other, &file, 1).trajectories().unwrap().trajectories.len(), 3);
        // A folder in its place: nothing can be written, and nothing is lost.
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert_eq!(simulated(&other, &file, 1).trajectories().unwrap().trajectories.len(), 3);
    }
}
