//! Times whole training steps (sampler, network, loss, Adam) of the paper's networks on smooth data.
//!
//!     cargo run --release -p cfo --example network_speed -- cuda bf16 unet2d 256 [forward] [profile|details|text] [side=64]

use std::time::Instant;

use cfo::{Device, Precision};
use cfo_engine::{Memory, Program, Result};

mod networks;
use networks::Setup;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let at = |i: usize, default: &str| arguments.get(i).cloned().unwrap_or_else(|| default.into());
    let (device, precision): (Device, Precision) = (at(0, "auto").parse()?, at(1, "f32").parse()?);
    let network = at(2, "mlp");
    let batch: usize = at(3, if network == "mlp" { "2048" } else { "256" }).parse()?;
    let options = &arguments[arguments.len().min(4)..];
    let has = |option: &str| options.iter().any(|given| given == option);
    let side = options.iter().find_map(|option| option.strip_prefix("side=")?.parse().ok());
    let trajectories = match network.as_str() {
        "mlp" => 2000,
        "unet1d" | "fno1d" => 500,
        _ => 20,
    };
    let begin = Instant::now();
    let mut step = Setup { network: &network, precision, batch, trajectories, side }.step(device)?;
    let (graph, output) = match has("forward") {
        true => step.model.forward(batch, &mut step.memory)?,
        false => (step.graph, step.loss),
    };
    let memory = &mut step.memory;
    let prepared = begin.elapsed().as_secs_f64();
    let mut program = Program::compile(&graph, &[output], memory)?;
    let compiled = begin.elapsed().as_secs_f64() - prepared;
    if has("text") {
        print!("{}", program.text());
        return Ok(());
    }
    program.run(memory)?;
    program.wait()?;
    let started = begin.elapsed().as_secs_f64() - prepared - compiled;
    let times = time(&mut program, memory)?;
    let best = times[0];
    println!(
        "{network:7} {} {precision:4} batch {batch:5} {:9} parameters: {:9.4} ms per step (best {best:.4}), compile {compiled:.2} s, first run {started:.2} s, arena {:.2} GiB",
        if has("forward") { "forward" } else { "train  " },
        step.model.parameters()?,
        times[times.len() / 2],
        program.plan().arena_bytes() as f64 / (1u64 << 30) as f64,
    );
    if has("details") || has("profile") {
        profile(&mut program, memory, has("details"))?;
    }
    Ok(())
}

/// Milliseconds per step in seven rounds of about 0.3 s, in increasing order.
fn time(program: &mut Program, memory: &mut Memory) -> Result<Vec<f64>> {
    let (mut steps, mut times) = (5, Vec::new());
    for round in 0..8 {
        let clock = Instant::now();
        program.run_many(memory, steps)?;
        program.wait()?;
        let each = clock.elapsed().as_secs_f64() / steps as f64;
        if round == 0 {
            steps = ((0.3 / each) as usize).clamp(3, 4000);
        } else {
            times.push(1e3 * each);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Prints the time of each kind of operation, or of each kind and size: the shortest of ten runs.
fn profile(program: &mut Program, memory: &mut Memory, detailed: bool) -> Result<()> {
    let mut sums: Vec<(String, f32, usize)> = Vec::new();
    let mut least = program.profile(memory)?;
    for _ in 0..9 {
        for (least, again) in least.iter_mut().zip(program.profile(memory)?) {
            least.1 = least.1.min(again.1);
        }
    }
    println!("    {:9.4} ms in all", least.iter().map(|(_, milliseconds)| milliseconds).sum::<f32>());
    for (label, milliseconds) in least {
        let name = label.split(' ').next().unwrap_or_default().to_owned();
        let label = if detailed { label } else { name };
        match sums.iter_mut().find(|(known, ..)| *known == label) {
            Some((_, sum, count)) => (*sum, *count) = (*sum + milliseconds, *count + 1),
            None => sums.push((label, milliseconds, 1)),
        }
    }
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (label, sum, count) in sums {
        println!("    {sum:9.4} ms {count:4} x {label}");
    }
    Ok(())
}
