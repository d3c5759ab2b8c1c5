//! Times single layers: reads one layer per line, and answers with milliseconds of processor time and of wall time.
//!
//! Lines are `conv batch height width inputs outputs kernel kernel stride stride padding padding` and `linear rows
//! inputs outputs`. The answer has both times for the result, for the input's gradient and for the weight's gradient.
//! Each time is the smallest of several runs. `layer_speed.py` beside this file compares them with PyTorch's.
#![allow(unsafe_code)]

use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Instant;

use cfo_device::Device;
use cfo_engine::{Activation, Graph, Initial, Memory, Node, PadMode, Precision, Program};

/// Number of runs; the fastest counts.
const RUNS: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let sizes = words[1..].iter().map(|word| word.parse()).collect::<Result<Vec<usize>, _>>()?;
        for form in 0..3 {
            let mut graph = Graph::new();
            let output = match words[0] {
                "conv" => conv(&mut graph, &sizes, form)?,
                _ => linear(&mut graph, &sizes, form)?,
            };
            let (processor, wall) = milliseconds(&graph, output)?;
            print!("{processor:.4} {wall:.4} ");
        }
        println!();
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn tensor<const N: usize>(g: &mut Graph, name: &str, shape: [usize; N]) -> cfo_engine::Result<Node> {
    g.parameter(name, shape, Initial::fan_in(1))
}

fn conv(g: &mut Graph, sizes: &[usize], form: usize) -> cfo_engine::Result<Node> {
    let &[batch, height, width, inputs, outputs, kh, kw, sh, sw, ph, pw] = sizes else {
        panic!("a convolution has eleven sizes")
    };
    let (rows, columns) = ((height + 2 * ph - kh) / sh + 1, (width + 2 * pw - kw) / sw + 1);
    let w = tensor(g, "w", [outputs, kh, kw, inputs])?;
    if form == 1 {
        let dy = tensor(g, "dy", [batch, rows, columns, outputs])?;
        return g.conv_transpose(dy, w, [sh, sw], PadMode::Zero, [ph, pw]);
    }
    let x = tensor(g, "x", [batch, height, width, inputs])?;
    let y = g.conv(x, w, [sh, sw], PadMode::Zero, [ph, pw])?;
    if form == 0 {
        return Ok(y);
    }
    let dy = tensor(g, "dy", [batch, rows, columns, outputs])?;
    let product = g.multiply(y, dy)?;
    let loss = g.sum_all(product)?;
    Ok(g.gradients(loss, &[w])?[0])
}

fn linear(g: &mut Graph, sizes: &[usize], form: usize) -> cfo_engine::Result<Node> {
    let &[rows, inputs, outputs] = sizes else { panic!("a linear layer has three sizes") };
    match form {
        0 => {
            let (x, w) = (tensor(g, "x", [rows, inputs])?, tensor(g, "w", [inputs, outputs])?);
            let bias = tensor(g, "bias", [outputs])?;
            g.linear(x, w, Some(bias), Activation::Relu)
        }
        1 => {
            let (dy, w) = (tensor(g, "dy", [rows, outputs])?, tensor(g, "w", [inputs, outputs])?);
            g.matmul(dy, w, false, true)
        }
        _ => {
            let (x, dy) = (tensor(g, "x", [rows, inputs])?, tensor(g, "dy", [rows, outputs])?);
            g.matmul(x, dy, true, false)
        }
    }
}

fn milliseconds(graph: &Graph, output: Node) -> cfo_engine::Result<(f64, f64)> {
    let mut memory = Memory::new(Device::Cpu, Precision::F32)?;
    memory.initialize(graph, 1)?;
    let mut program = Program::compile(graph, &[output], &memory)?;
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..RUNS {
        let (wall, processor) = (Instant::now(), processor_seconds());
        program.run(&mut memory)?;
        best.1 = best.1.min(wall.elapsed().as_secs_f64());
        best.0 = best.0.min(processor_seconds() - processor);
    }
    Ok((best.0 * 1e3, best.1 * 1e3))
}

/// Processor time of all threads of this process, which other processes disturb less than wall time.
#[cfg(target_os = "linux")]
fn processor_seconds() -> f64 {
    #[repr(C)]
    struct Time {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Time) -> i32;
    }
    const PROCESS: i32 = 2;
    let mut time = Time { seconds: 0, nanoseconds: 0 };
    // SAFETY: the C library's function, with the layout it has on 64-bit Linux.
    unsafe { clock_gettime(PROCESS, &raw mut time) };
    time.seconds as f64 + 1e-9 * time.nanoseconds as f64
}

/// Wall time, in place of processor time on other systems.
#[cfg(not(target_os = "linux"))]
fn processor_seconds() -> f64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |time| time.as_secs_f64())
}
