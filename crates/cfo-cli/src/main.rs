//! The command `cfo`.

use std::process::ExitCode;

fn main() -> ExitCode {
    cfo_cli::run(std::env::args_os()).into()
}
