//! Finding and loading NVIDIA's libraries at run time: the driver, NVRTC, cuBLASLt and cuDNN.
//!
//! A library is first requested by its usual names, so that the system's search path decides. If that fails, it is
//! searched in `CUDA_HOME`, in the usual folders, and in the Python packages that PyTorch and JAX install. A file found
//! there is loaded by its path, after which its name resolves.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fmt};

use libloading::os::unix::{Library as Shared, RTLD_GLOBAL, RTLD_NOW};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Library {
    /// The driver's library, which is installed with the driver.
    Driver,
    /// The run-time compiler.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Convolutions.
    Cudnn,
}

impl Library {
    pub(crate) const ALL: [Self; 4] = [Self::Driver, Self::Nvrtc, Self::CublasLt, Self::Cudnn];

    /// The name between `lib` and `.so`, the name in messages, and the command that installs it.
    fn texts(self) -> [&'static str; 3] {
        match self {
            Self::Driver => ["cuda", "driver", "install NVIDIA's driver (the package of your distribution)"],
            Self::Nvrtc => ["nvrtc", "NVRTC", "`pip install nvidia-cuda-nvrtc`"],
            Self::CublasLt => ["cublasLt", "cuBLASLt", "`pip install nvidia-cublas`"],
            Self::Cudnn => ["cudnn", "cuDNN", "`pip install nvidia-cudnn-cu13`"],
        }
    }

    fn stem(self) -> &'static str {
        self.texts()[0]
    }

    pub(crate) fn name(self) -> &'static str {
        self.texts()[1]
    }

    pub(crate) fn install(self) -> &'static str {
        self.texts()[2]
    }

    fn present(self) -> bool {
        // SAFETY: loading the library runs its initialisers, as intended.
        unsafe {
            match self {
                Self::Driver => cudarc::driver::sys::is_culib_present(),
                Self::Nvrtc => cudarc::nvrtc::sys::is_culib_present(),
                Self::CublasLt => cudarc::cublaslt::sys::is_culib_present(),
                Self::Cudnn => cudarc::cudnn::sys::is_culib_present(),
            }
        }
    }

    /// Whether the library can be used; loads it on the first call.
    pub(crate) fn loaded(self) -> bool {
        static LOADED: [OnceLock<bool>; 4] = [const { OnceLock::new() }; 4];
        *LOADED[self as usize].get_or_init(|| self.present() || self.load_from(&folders()))
    }

    /// Loads the library from the first folder that holds a usable one.
    fn load_from(self, folders: &[PathBuf]) -> bool {
        folders.iter().any(|folder| {
            let files = candidates(self.stem(), folder);
            files.iter().any(|file| {
                let opened = open(file);
                if opened && self == Self::Cudnn {
                    open_parts(folder);
                }
                opened && self.present()
            })
        })
    }

    pub(crate) fn version(self) -> Option<Version> {
        if !self.loaded() {
            return None;
        }
        // SAFETY: the library is loaded and these calls only read.
        unsafe {
            match self {
                Self::Driver => {
                    let mut version = 0;
                    cudarc::driver::sys::cuDriverGetVersion(&mut version).result().ok()?;
                    Some(Version { major: version as u32 / 1000, minor: version as u32 % 1000 / 10 })
                }
                Self::Nvrtc => {
                    let (mut major, mut minor) = (0, 0);
                    cudarc::nvrtc::sys::nvrtcVersion(&mut major, &mut minor).result().ok()?;
                    Some(Version { major: major as u32, minor: minor as u32 })
                }
                Self::CublasLt => {
                    let version = cudarc::cublaslt::sys::cublasLtGetVersion() as u32;
                    Some(Version { major: version / 10_000, minor: version % 10_000 / 100 })
                }
                Self::Cudnn => {
                    let version = cudarc::cudnn::sys::cudnnGetVersion() as u32;
                    Some(match version >= 90_000 {
                        true => Version { major: version / 10_000, minor: version % 10_000 / 100 },
                        false => Version { major: version / 1000, minor: version % 1000 / 100 },
                    })
                }
            }
        }
    }

    /// The loaded file, as the system reports it.
    pub(crate) fn file(self) -> Option<PathBuf> {
        loaded_file(self.stem())
    }
}

/// The file of a library that this process has loaded, as the system reports it.
pub(crate) fn loaded_file(stem: &str) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let prefix = format!("lib{stem}.so");
    maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(PathBuf::from).find(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix))
    })
}

/// Files to try for a library: its usual name, which the system searches, then files in the folders.
pub(crate) fn files(stem: &str, name: &str) -> Vec<PathBuf> {
    let found = folders().into_iter().flat_map(|folder| candidates(stem, &folder));
    [PathBuf::from(name)].into_iter().chain(found).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

fn open(file: &Path) -> bool {
    // SAFETY: loading the library runs its initialisers, as intended. It stays loaded.
    unsafe { Shared::open(Some(file), RTLD_NOW | RTLD_GLOBAL).map(std::mem::forget).is_ok() }
}

/// Opens the libraries beside cuDNN, which cuDNN opens by name when they are first needed.
fn open_parts(folder: &Path) {
    for part in ["cudnn_graph", "cudnn_ops", "cudnn_cnn", "cudnn_heuristic", "cudnn_engines_precompiled"] {
        for file in candidates(part, folder) {
            open(&file);
        }
    }
}

/// Files of a library in a folder: `libNAME.so` and `libNAME.so.N...`, highest version first.
fn candidates(stem: &str, folder: &Path) -> Vec<PathBuf> {
    let prefix = format!("lib{stem}.so");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| name.strip_prefix(&prefix))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
        .collect();
    files.sort_by_key(|path| std::cmp::Reverse(numbers(path)));
    files
}

fn numbers(path: &Path) -> Vec<u32> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split('.').filter_map(|part| part.parse().ok()).collect()
}

/// Existing folders that may contain the libraries, in search order without duplicates.
fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for variable in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"] {
        if let Some(home) = env::var_os(variable).map(PathBuf::from) {
            folders.extend(["lib64", "lib", "targets/x86_64-linux/lib"].map(|folder| home.join(folder)));
        }
    }
    if let Some(paths) = env::var_os("LD_LIBRARY_PATH") {
        folders.extend(env::split_paths(&paths));
    }
    folders.extend(packages().into_iter().flat_map(|packages| package_folders(&packages)));
    folders.extend(
        [
            "/usr/local/cuda/lib64",
            "/usr/local/cuda/targets/x86_64-linux/lib",
            "/usr/local/nvidia/lib64",
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib64",
            "/usr/lib",
            "/usr/lib/wsl/lib",
            "/opt/cuda/lib64",
        ]
        .map(PathBuf::from),
    );
    let mut seen = HashSet::new();
    folders.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    folders
}

/// Folders of Python packages: of the active environment, and of the `python3` on the path.
fn packages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(home) = env::var_os(variable).map(PathBuf::from)
            && let Ok(entries) = std::fs::read_dir(home.join("lib"))
        {
            found.extend(entries.flatten().map(|entry| entry.path().join("site-packages")));
        }
    }
    let script = "import sys; print('\\n'.join(sys.path))";
    for python in ["python3", "python"] {
        if let Ok(output) = Command::new(python).args(["-c", script]).output()
            && output.status.success()
        {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            found.extend(text.lines().filter(|line| line.ends_with("-packages")).map(PathBuf::from));
            break;
        }
    }
    found
}

/// `nvidia/*/lib` and `torch/lib` of one folder of packages.
fn package_folders(packages: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(packages.join("nvidia"))
        .map(|entries| entries.flatten().map(|entry| entry.path().join("lib")).collect())
        .unwrap_or_default();
    folders.sort_by(|a, b| b.cmp(a));
    folders.push(packages.join("torch/lib"));
    folders.retain(|folder| folder.is_dir());
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_library_are_told_from_others_and_sorted_by_version() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libcudnn.so.9", "libcudnn.so.10.2", "libcudnn_ops.so.9", "libcudnn.a", "libcudnnx.so"] {
            std::fs::write(folder.path().join(name), b"").unwrap();
        }
        let names: Vec<String> = candidates("cudnn", folder.path())
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["libcudnn.so.10.2", "libcudnn.so.9"]);
        assert!(candidates("cudnn", Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn packages_of_python_are_searched() {
        let packages = tempfile::tempdir().unwrap();
        for folder in ["nvidia/cu13/lib", "nvidia/cudnn/lib", "nvidia/empty", "torch/lib"] {
            std::fs::create_dir_all(packages.path().join(folder)).unwrap();
        }
        let found = package_folders(packages.path());
        assert_eq!(found.len(), 3);
        assert!(found.iter().any(|folder| folder.ends_with("nvidia/cudnn/lib")));
        assert!(found.last().unwrap().ends_with("torch/lib"));
        // A file that is not a library is skipped.
        std::fs::write(packages.path().join("nvidia/cu13/lib/libcudnn.so.9"), b"not a library").unwrap();
        assert!(!open(&packages.path().join("nvidia/cu13/lib/libcudnn.so.9")));
    }

    #[test]
    fn a_library_that_was_found_has_a_version_and_a_missing_one_a_way_to_get_it() {
        for library in Library::ALL {
            let install = library.install();
            assert!(install.contains(' '), "{}: `{install}` is no command or sentence", library.name());
            assert_eq!(library.loaded(), library.version().is_some(), "{}", library.name());
            if let Some(file) = library.version().and_then(|_| library.file()) {
                assert!(file.is_file(), "{} was loaded from {}", library.name(), file.display());
            }
        }
        let names: std::collections::BTreeSet<&str> = Library::ALL.map(Library::name).into();
        assert_eq!(names.len(), Library::ALL.len(), "two libraries share a name");
    }
}
