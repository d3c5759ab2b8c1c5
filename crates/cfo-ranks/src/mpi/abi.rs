//! The numbers that three kinds of MPI library put for the same words.
//!
//! A handle is a word here. In MPICH's own interface it is an integer, which is the lower half of a register; in Open MPI's it is
//! the address of a symbol; in the standard interface a small constant (those of MPICH 5.0's `mpi_abi.h`).

use libloading::os::unix::Library;

/// Which interface a library has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abi {
    /// The one that MPI 5 made a standard.
    Standard,
    /// That of MPICH and its descendants.
    Mpich,
    /// That of Open MPI.
    OpenMpi,
}

impl Abi {
    /// The interface of a library, by its symbols and the name of its file.
    pub(crate) fn of(library: &Library, file: &str) -> Self {
        // SAFETY: only the address is looked at.
        let open = unsafe { library.get::<*const u8>(b"ompi_mpi_comm_world\0").is_ok() };
        match open {
            true => Self::OpenMpi,
            false if file.contains("mpi_abi") => Self::Standard,
            false => Self::Mpich,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Constants {
    pub(crate) world: usize,
    pub(crate) byte: usize,
    pub(crate) float: usize,
    pub(crate) double: usize,
    pub(crate) sum: usize,
    pub(crate) errors_return: usize,
    pub(crate) in_place: usize,
    pub(crate) status_ignore: usize,
    pub(crate) any_source: i32,
    pub(crate) funneled: i32,
}

const STANDARD: Constants = Constants {
    world: 0x101,
    byte: 0x247,
    float: 0x210,
    double: 0x214,
    sum: 0x21,
    errors_return: 0x143,
    in_place: 1,
    status_ignore: 0,
    any_source: -1,
    funneled: 1024,
};

const MPICH: Constants = Constants {
    world: 0x4400_0000,
    byte: 0x4c00_010d,
    float: 0x4c00_040a,
    double: 0x4c00_080b,
    sum: 0x5800_0003,
    errors_return: 0x5400_0001,
    in_place: usize::MAX,
    status_ignore: 1,
    any_source: -2,
    funneled: 1,
};

impl Constants {
    /// Those of a library.
    ///
    /// # Errors
    /// The name of a symbol that Open MPI's interface has and this library lacks.
    pub(crate) fn of(abi: Abi, library: &Library) -> Result<Self, &'static str> {
        let symbol = |name: &'static str| {
            // SAFETY: only the address is taken.
            let found = unsafe { library.get::<*const u8>(name.as_bytes()) };
            found.map(|symbol| symbol.into_raw() as usize).map_err(|_| name.trim_end_matches('\0'))
        };
        Ok(match abi {
            Abi::Standard => STANDARD,
            Abi::Mpich => MPICH,
            Abi::OpenMpi => Self {
                world: symbol("ompi_mpi_comm_world\0")?,
                byte: symbol("ompi_mpi_byte\0")?,
                float: symbol("ompi_mpi_float\0")?,
                double: symbol("ompi_mpi_double\0")?,
                sum: symbol("ompi_mpi_op_sum\0")?,
                errors_return: symbol("ompi_mpi_errors_return\0")?,
                in_place: 1,
                status_ignore: 0,
                any_source: -1,
                funneled: 1,
            },
        })
    }
}
