//! Times whole training steps (sampler, network, loss, Adam) of the paper's networks on random data.
//!
//!     cargo run --release -p cfo-engine --example network_speed -- cuda bf16 unet2d 256 [forward] [profile|details|text] [side=64]

use std::time::Instant;

use cfo_device::Device;
use cfo_engine::{Data, Element, Graph, Memory, Precision, Program, Result};
use cfo_numerics::Philox;

mod networks;
use networks::{Sizes, step};

fn fill(memory: &mut Memory, sizes: &Sizes) -> Result<()> {
    let [h, w, c] = sizes.field;
    let (rows, size) = (sizes.trajectories * sizes.frames, h * w * c);
    let mut random = Philox::new(1, 0);
    let phases: Vec<f64> = (0..size).map(|_| random.uniform_between(0.0, std::f64::consts::TAU)).collect();
    let mut values = Vec::with_capacity(rows * size);
    let mut times = Vec::with_capacity(rows);
    for i in 0..sizes.trajectories {
        for k in 0..sizes.frames {
            let t = k as f64 / (sizes.frames - 1) as f64;
            times.push(t);
            values.extend(phases.iter().map(|phase| (3.0 * t + phase + i as f64).sin() as f32));
        }
    }
    let offsets: Vec<u32> = (0..=sizes.trajectories).map(|i| (i * sizes.frames) as u32).collect();
    memory.insert_real("values", [rows, h, w, c], &values)?;
    memory.insert("times", Element::Double, [rows], Data::F64(&times))?;
    memory.insert("offsets", Element::Index, [sizes.trajectories + 1], Data::Index(&offsets))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let at = |i: usize, default: &str| arguments.get(i).cloned().unwrap_or_else(|| default.into());
    let (device, precision): (Device, Precision) = (at(0, "auto").parse()?, at(1, "f32").parse()?);
    let network = at(2, "mlp");
    let mut sizes = Sizes::of(&network);
    let side = arguments.iter().find_map(|option| option.strip_prefix("side="));
    if let Some(side) = side.and_then(|side| side.parse().ok()) {
        sizes.field = sizes.field.map(|length| if length > 3 { side } else { length });
    }
    if let Some(batch) = arguments.get(3) {
        sizes.batch = batch.parse()?;
    }
    let options = &arguments[arguments.len().min(4)..];
    let training = !options.iter().any(|option| option == "forward");
    let begin = Instant::now();
    let mut graph = Graph::new();
    let loss = step(&mut graph, &network, &sizes, training)?;
    let mut memory = Memory::new(device, precision)?;
    fill(&mut memory, &sizes)?;
    memory.initialize(&graph, 1)?;
    let prepared = begin.elapsed().as_secs_f64();
    let mut program = Program::compile(&graph, &[loss], &memory)?;
    let compiled = begin.elapsed().as_secs_f64() - prepared;
    if options.iter().any(|option| option == "text") {
        print!("{}", program.text());
        return Ok(());
    }
    program.run(&mut memory)?;
    let first = program.scalar(0)?;
    let started = begin.elapsed().as_secs_f64() - prepared - compiled;
    let times = time(&mut program, &mut memory)?;
    let best = times[0];
    let parameters: usize = graph.parameters().iter().map(|parameter| parameter.shape.len()).sum();
    println!(
        "{network:7} {} {precision:4} batch {:5} {:9} parameters: {:9.4} ms per step (best {best:.4}), compile {compiled:.2} s, first run {started:.2} s, arena {:.2} GiB, loss {first:.4} -> {:.4}",
        if training { "train  " } else { "forward" },
        sizes.batch,
        parameters,
        times[times.len() / 2],
        program.plan().arena_bytes() as f64 / (1u64 << 30) as f64,
        program.scalar(0)?,
    );
    let detailed = options.iter().any(|option| option == "details");
    if detailed || options.iter().any(|option| option == "profile") {
        profile(&mut program, &mut memory, detailed)?;
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
