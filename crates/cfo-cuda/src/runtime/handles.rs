//! Handles of the libraries, created on first use and kept with the context.
#![allow(unsafe_code)]

use cudarc::{cublaslt, cudnn};

use crate::convolution::cudnn::check;
use crate::product::cublas;
use crate::runtime::driver::{failure, quiet};
use crate::runtime::library::Library;
use cfo_engine::Result;

/// Handles of one context; null before first use.
pub(crate) struct Handles {
    products: cublaslt::sys::cublasLtHandle_t,
    convolutions: cudnn::sys::cudnnHandle_t,
}

// SAFETY: the handles are used by one thread at a time, behind the context's lock.
unsafe impl Send for Handles {}

impl Default for Handles {
    fn default() -> Self {
        Self { products: std::ptr::null_mut(), convolutions: std::ptr::null_mut() }
    }
}

impl Handles {
    /// cuBLASLt's handle; the context must be current.
    pub(crate) fn products(&mut self) -> Result<cublaslt::sys::cublasLtHandle_t> {
        if self.products.is_null() {
            let _quiet = quiet();
            // SAFETY: the library was found when the context was opened; the handle is written on success.
            cublas::check("cublasLtCreate", unsafe { cublaslt::sys::cublasLtCreate(&mut self.products) })?;
        }
        Ok(self.products)
    }

    /// cuDNN's handle on a stream; the context must be current.
    pub(crate) fn convolutions(
        &mut self,
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<cudnn::sys::cudnnHandle_t> {
        if self.convolutions.is_null() {
            if !Library::Cudnn.loaded() {
                let problem = format!("cuDNN was not found; {}", Library::Cudnn.install());
                return Err(failure("convolution", problem));
            }
            let _quiet = quiet();
            // SAFETY: the library is loaded; the handle is written on success.
            unsafe {
                check("cudnnCreate", cudnn::sys::cudnnCreate(&mut self.convolutions))?;
                check("cudnnSetStream", cudnn::sys::cudnnSetStream(self.convolutions, stream.cast()))?;
            }
        }
        Ok(self.convolutions)
    }

    /// Destroys the created handles; the context must be current.
    pub(crate) fn close(&mut self) {
        // SAFETY: handles that are not null were created and not destroyed yet.
        unsafe {
            if !self.products.is_null() {
                let _ = cublaslt::sys::cublasLtDestroy(self.products);
                self.products = std::ptr::null_mut();
            }
            if !self.convolutions.is_null() {
                let _ = cudnn::sys::cudnnDestroy(self.convolutions);
                self.convolutions = std::ptr::null_mut();
            }
        }
    }
}
