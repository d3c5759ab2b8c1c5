//! Where the library of the launcher lies.

use std::env;
use std::path::{Path, PathBuf};

use crate::launcher::LauncherKind;

/// Names of the library, those that belong to the launcher first. Debian calls MPICH's `libmpich`.
pub(crate) fn names(kind: LauncherKind) -> &'static [&'static str] {
    match kind {
        LauncherKind::OpenMpi => &["libmpi.so.40", "libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi_abi.so"],
        LauncherKind::Hydra => {
            &["libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi_abi.so", "libmpi.so.12", "libmpich.so.12"]
        }
        LauncherKind::Pmix | LauncherKind::Slurm => &[
            "libmpi_abi.so.1",
            "libmpi_abi.so.0",
            "libmpi_abi.so",
            "libmpi.so.40",
            "libmpi.so.12",
            "libmpich.so.12",
        ],
    }
}

/// Files to try, in this order: what `CFO_MPI` names, or the launcher's own folder, the system's search path, the `mpiexec` on
/// the path, the active Python environment, the usual folders. A name without a folder is left to the system's search.
pub(crate) fn candidates(kind: LauncherKind, named: Option<PathBuf>) -> Vec<PathBuf> {
    if let Some(file) = named {
        return vec![file];
    }
    let names = names(kind);
    let within = |folder: &Path| -> Vec<PathBuf> {
        names.iter().map(|name| folder.join(name)).filter(|file| file.is_file()).collect()
    };
    let mut files: Vec<PathBuf> = launcher_folder().iter().flat_map(|folder| within(folder)).collect();
    files.extend(names.iter().map(PathBuf::from));
    files.extend(other_folders().iter().flat_map(|folder| within(folder)));
    files
}

/// `lib` beside the folder of the program that started this process: the launcher, or what it started on this machine.
fn launcher_folder() -> Option<PathBuf> {
    let program = std::fs::read_link(format!("/proc/{}/exe", std::os::unix::process::parent_id())).ok()?;
    libraries_of(&program)
}

/// `bin/../lib` of a program.
fn libraries_of(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?.parent()?.join("lib");
    folder.is_dir().then_some(folder)
}

fn other_folders() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let launchers = env::split_paths(&path).map(|folder| folder.join("mpiexec"));
    // Debian's `mpiexec` is a link to the library's own folder at the end of a few others.
    let launchers = launchers.filter_map(|file| file.canonicalize().ok());
    let mut folders: Vec<PathBuf> = launchers.filter_map(|file| libraries_of(&file)).collect();
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX", "MPI_HOME", "MPI_ROOT", "I_MPI_ROOT", "EBROOTOPENMPI"] {
        folders.extend(env::var_os(variable).map(|home| Path::new(&home).join("lib")));
    }
    for root in ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"] {
        folders.extend(["", "openmpi/lib", "mpich/lib"].map(|folder| Path::new(root).join(folder)));
    }
    folders.extend(
        ["/usr/local/lib", "/opt/amazon/openmpi/lib64", "/opt/amazon/openmpi/lib"].map(PathBuf::from),
    );
    folders.retain(|folder| folder.is_dir());
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_library_is_the_only_one_and_each_launcher_has_its_own_first() {
        let named = PathBuf::from("/somewhere/libmpi.so");
        assert_eq!(candidates(LauncherKind::Hydra, Some(named.clone())), [named]);
        assert!(
            !names(LauncherKind::Hydra).contains(&"libmpi.so.40")
                && !names(LauncherKind::OpenMpi).contains(&"libmpi.so.12")
        );
        let all = candidates(LauncherKind::Slurm, None);
        for name in names(LauncherKind::Slurm) {
            assert!(all.contains(&PathBuf::from(name)), "{name} is left to the system's search as well");
        }
    }
}
