//! Writes the kernels, launches and library calls that CUDA would use for each of the paper's networks, one file per
//! program. Needs no GPU. Two versions of the engine that should behave equally write equal files.
//!
//!     cargo run --release -p cfo --example listing -- FOLDER [NETWORK]

use cfo::{Device, Precision};
use cfo_cuda::listing;

mod networks;
use networks::Setup;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = std::path::PathBuf::from(arguments.next().ok_or("a folder is needed")?);
    let only = arguments.next();
    std::fs::create_dir_all(folder.join("kernels"))?;
    for network in ["mlp", "fno1d", "unet1d", "unet2d", "dit"] {
        if only.as_deref().is_some_and(|only| only != network) {
            continue;
        }
        for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
            let batch = if network == "mlp" { 2048 } else { 256 };
            let mut step =
                Setup { network, precision, batch, trajectories: 10, side: None }.step(Device::Cpu)?;
            let (forward, moved) = step.model.forward(batch, &mut step.memory)?;
            for (kind, graph, output) in [("train", &step.graph, step.loss), ("forward", &forward, moved)] {
                let listed = listing(graph, &[output], precision);
                std::fs::write(folder.join(format!("{network}-{precision}-{kind}.txt")), &listed.text)?;
                for (name, source) in listed.sources {
                    std::fs::write(folder.join("kernels").join(name + ".cu"), source)?;
                }
            }
        }
    }
    Ok(())
}
