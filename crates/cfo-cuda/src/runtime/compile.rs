//! Compilation of kernels by NVRTC, with a disk cache by source and options.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::path::{Path, PathBuf};

use cudarc::nvrtc::sys;

use crate::runtime::driver::failure;
use crate::runtime::library::Library;
use cfo_engine::Result;

#[derive(Clone, Debug)]
pub(crate) struct CompileUnit {
    pub(crate) source: String,
    /// Compute capability, such as 90 for 9.0.
    pub(crate) architecture: u32,
    /// Whether functions may be slightly less accurate than single precision.
    pub(crate) fast: bool,
}

/// The only architecture with warpgroup matrix instructions (`wgmma`).
pub(crate) const WARPGROUPS: u32 = 90;

impl CompileUnit {
    fn options(&self) -> Vec<String> {
        let own = if self.architecture == WARPGROUPS { "a" } else { "" };
        let mut options = vec![
            format!("--gpu-architecture=sm_{}{own}", self.architecture),
            "--std=c++17".into(),
            format!("-DFAST={}", u32::from(self.fast)),
        ];
        if self.fast {
            // Not all of fast math: sines of large numbers stay accurate.
            options.extend(["--ftz=true", "--prec-div=false", "--prec-sqrt=false"].map(String::from));
        }
        options
    }

    /// Name of the compiled unit in the cache: a digest of all inputs of the compilation.
    pub(crate) fn key(&self, compiler: &str) -> String {
        let mut digest = Digest::new();
        digest.add(compiler.as_bytes());
        for option in self.options() {
            digest.add(option.as_bytes());
        }
        digest.add(self.source.as_bytes());
        format!("{}-sm{}", digest.finish(), self.architecture)
    }
}

/// The compiled unit, from the cache or compiled and then stored there.
pub(crate) fn image(unit: &CompileUnit) -> Result<Vec<u8>> {
    let compiler = Library::Nvrtc.version().map(|version| version.to_string()).unwrap_or_default();
    let file = folder().map(|folder| folder.join(format!("{}.cubin", unit.key(&compiler))));
    if let Some(file) = &file
        && let Ok(image) = std::fs::read(file)
        && whole(&image)
    {
        return Ok(image);
    }
    let image = compile(unit)?;
    if let Some(file) = &file {
        // A cache that cannot be written costs time, but does not change results.
        let _ = store(file, &image);
    }
    Ok(image)
}

/// Whether a file from the cache is a complete ELF image rather than the result of an interrupted write.
fn whole(image: &[u8]) -> bool {
    image.starts_with(b"\x7fELF")
}

/// Writes a file atomically: it appears complete or not at all.
pub(crate) fn store(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mark =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
    let temporary = file.with_extension(format!("{}-{mark}.part", std::process::id()));
    std::fs::write(&temporary, bytes)?;
    std::fs::rename(&temporary, file).inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

/// The cache folder: `CFO_CACHE`, otherwise `cfo` in the user's cache folder.
pub(crate) fn folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("CFO_CACHE") {
        return (!folder.is_empty()).then(|| PathBuf::from(folder));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(cache.join("cfo").join("cuda"))
}

pub(crate) fn compile(unit: &CompileUnit) -> Result<Vec<u8>> {
    if !Library::Nvrtc.loaded() {
        return Err(failure("NVRTC", format!("not found; {}", Library::Nvrtc.install())));
    }
    let source = CString::new(unit.source.as_str()).expect("sources hold no zero");
    let zeroed = |option| CString::new(option).expect("options hold no zero");
    let options: Vec<CString> = unit.options().into_iter().map(zeroed).collect();
    let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = std::ptr::null_mut();
    // SAFETY: strings end with a zero and outlive the program; sizes are queried before buffers are filled.
    unsafe {
        let (name, none) = (c"kernels.cu".as_ptr(), std::ptr::null());
        let created = sys::nvrtcCreateProgram(&mut program, source.as_ptr(), name, 0, none, none);
        answer("nvrtcCreateProgram", created)?;
        let compiled = sys::nvrtcCompileProgram(program, pointers.len() as i32, pointers.as_ptr());
        let result = match compiled {
            sys::nvrtcResult::NVRTC_SUCCESS => {
                let mut size = 0;
                answer("nvrtcGetCUBINSize", sys::nvrtcGetCUBINSize(program, &mut size)).and_then(|()| {
                    let mut image = vec![0u8; size];
                    answer("nvrtcGetCUBIN", sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast()))?;
                    Ok(image)
                })
            }
            status => {
                let mut size = 0;
                let _ = sys::nvrtcGetProgramLogSize(program, &mut size);
                let mut log = vec![0u8; size.max(1)];
                let _ = sys::nvrtcGetProgramLog(program, log.as_mut_ptr().cast());
                let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned();
                Err(failure("nvrtcCompileProgram", format!("{status:?}\n{log}")))
            }
        };
        let _ = sys::nvrtcDestroyProgram(&mut program);
        result
    }
}

fn answer(call: &str, status: sys::nvrtcResult) -> Result<()> {
    match status {
        sys::nvrtcResult::NVRTC_SUCCESS => Ok(()),
        _ => Err(failure(call, format!("{status:?}"))),
    }
}

/// Two 64-bit FNV-1a hashes with different starting values, which detect accidental but not deliberate collisions.
pub(crate) struct Digest([u64; 2]);

impl Digest {
    pub(crate) fn new() -> Self {
        Self([0xcbf2_9ce4_8422_2325, 0x9e37_79b9_7f4a_7c15])
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for sum in &mut self.0 {
            for byte in bytes.iter().chain(&(bytes.len() as u64).to_le_bytes()) {
                *sum = (*sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }

    pub(crate) fn finish(&self) -> String {
        format!("{:016x}{:016x}", self.0[0], self.0[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_changes_with_all_that_the_image_depends_on() {
        let unit = CompileUnit { source: "a".into(), architecture: 90, fast: false };
        let other = |change: fn(&mut CompileUnit)| {
            let mut other = unit.clone();
            change(&mut other);
            other.key("13.0")
        };
        let keys = [
            unit.key("13.0"),
            unit.key("13.1"),
            other(|unit| unit.source = "b".into()),
            other(|unit| unit.architecture = 80),
            other(|unit| unit.fast = true),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert!(keys[i + 1..].iter().all(|later| later != key));
        }
        assert_eq!(unit.key("13.0"), unit.clone().key("13.0"));
    }

    #[test]
    fn a_cached_file_appears_whole_and_a_damaged_one_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/er/x.cubin");
        store(&file, b"\x7fELF and more").unwrap();
        store(&file, b"\x7fELF and more").unwrap();
        assert!(whole(&std::fs::read(&file).unwrap()));
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        assert!(!whole(b"\x7fE") && !whole(b""));
    }
}
