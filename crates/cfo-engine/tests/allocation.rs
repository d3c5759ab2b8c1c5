//! Tests that a run allocates nothing, with a counting allocator, over training steps that use every operation.
#![allow(clippy::unwrap_used, reason = "a failure is the message")]
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cfo_device::Device;
use cfo_engine::{
    Activation, AdamConfig, Data, Distribution, Element, Graph, GroupNormInputs, Initial, Memory, Node,
    PadMode, PathData, PathTensors, Precision, Program, Result, Wavelet, WaveletFamily, spectral_modes,
};
use cfo_numerics::{DrawBy, NoiseSchedule, Path};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
/// The set of threads whose allocations count, or none. Other threads, such as the test harness's, may allocate.
static COUNTED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The set that a thread belongs to.
    static MEMBER: Cell<usize> = const { Cell::new(0) };
}

impl Counting {
    fn count() {
        let counted = COUNTED.load(Ordering::Relaxed);
        if counted != 0 && MEMBER.get() == counted {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count();
        // SAFETY: by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BATCH: usize = 2;
const SIDE: usize = 8;
const CHANNELS: usize = 32;

/// Names of the operations that a fused training step can hold.
const OPERATIONS: [&str; 26] = [
    "expression",
    "sum",
    "embed",
    "concat",
    "matmul",
    "pad",
    "fold",
    "conv",
    "conv input",
    "conv weight",
    "group_norm",
    "group_norm_backward",
    "layer_norm",
    "layer_norm_backward",
    "attention",
    "attention_backward",
    "wavelet",
    "mean_squared_error",
    "random",
    "sample_path",
    "gather",
    "global_norm",
    "adam",
    "assign",
    "advance",
    "reshape",
];

fn weight<const N: usize>(g: &mut Graph, name: &str, shape: [usize; N]) -> Result<Node> {
    g.parameter(name, shape, Initial::Normal(0.1))
}

/// Convolutions of each kind, norms and wavelets on a field.
fn field(g: &mut Graph, u: Node, time: Node) -> Result<Node> {
    let w = weight(g, "lift", [CHANNELS, 3, 3, 2])?;
    let mut x = g.conv(u, w, [1, 1], PadMode::Circular, [1, 1])?;
    for (i, mode) in [PadMode::Zero, PadMode::Replicate].into_iter().enumerate() {
        let w = weight(g, &format!("conv.{i}"), [CHANNELS, 3, 3, CHANNELS])?;
        let y = g.conv(x, w, [1, 1], mode, [1, 1])?;
        let scale = weight(g, &format!("scale.{i}"), [CHANNELS])?;
        let bias = weight(g, &format!("bias.{i}"), [CHANNELS])?;
        let offset = Some(weight(g, &format!("offset.{i}"), [CHANNELS])?);
        let w = weight(g, &format!("time.{i}"), [1, CHANNELS])?;
        let shift = Some(g.linear(time, w, None, Activation::Silu)?);
        x = g.group_norm(y, GroupNormInputs { scale, bias, offset, shift }, 4, Activation::Silu)?;
    }
    let w = weight(g, "halve", [CHANNELS, 4, 4, CHANNELS])?;
    let small = g.conv(x, w, [2, 2], PadMode::Zero, [1, 1])?;
    let w = weight(g, "double", [CHANNELS, 4, 4, CHANNELS])?;
    let large = g.conv_transpose(small, w, [2, 2], PadMode::Circular, [1, 1])?;
    let waves = g.wavelet(large, Wavelet { family: WaveletFamily::Haar, levels: 1, periodic: [true; 2] })?;
    let joined = g.concat(&[large, waves], 3)?;
    let half = g.slice(joined, 3, CHANNELS / 2, CHANNELS)?;
    let size = [spectral_modes(&[SIDE, SIDE], &[3, 3]), CHANNELS, 2 * CHANNELS];
    let w = weight(g, "spectral", size)?;
    g.spectral(half, w, &[3, 3])
}

/// Patches, attention, norms.
fn tokens(g: &mut Graph, x: Node, time: Node) -> Result<Node> {
    let patches = g.patches(x, 2)?;
    let w = weight(g, "embed", [4 * CHANNELS, 96])?;
    let bias = weight(g, "embed.bias", [96])?;
    let x = g.linear(patches, w, Some(bias), Activation::Gelu)?;
    let w = weight(g, "modulation", [1, 192])?;
    let modulation = g.linear(time, w, None, Activation::Identity)?;
    let (shift, scale) = (g.slice(modulation, 1, 0, 96)?, g.slice(modulation, 1, 96, 96)?);
    let x = g.layer_norm(x, Some((shift, scale)), 1e-6)?;
    let w = weight(g, "qkv", [96, 3 * 96])?;
    let qkv = g.linear(x, w, None, Activation::Identity)?;
    let x = g.attention(qkv, 4)?;
    let x = g.layer_norm(x, None, 1e-6)?;
    let w = weight(g, "head", [96, 8])?;
    let x = g.linear(x, w, None, Activation::Relu)?;
    g.unpatch(x, 2, SIDE, SIDE)
}

fn training_step(g: &mut Graph) -> Result<Node> {
    let tensors = PathTensors {
        values: g.input("values", [20, SIDE, SIDE, 2])?,
        times: g.tensor("times", Element::Double, [20])?,
        offsets: g.tensor("offsets", Element::Index, [3])?,
    };
    let counter = g.counter("step")?;
    let data = PathData::Flow { by: DrawBy::Time, path: Path::default(), noise: NoiseSchedule::default() };
    let sample = g.sample_path(tensors, data, BATCH, (7, 1), counter)?;
    let table = g.constant([2, 1], vec![0.3, 0.7])?;
    let condition = g.gather(table, sample.trajectory)?;
    let time = g.reshape(sample.time, [BATCH, 1])?;
    let code = g.add(time, condition)?;
    let x = field(g, sample.state, code)?;
    let y = tokens(g, x, code)?;
    let noise = g.random(Distribution::Normal, [BATCH, SIDE, SIDE, 2], (7, 2), counter)?;
    let noise = g.scale(noise, 1e-3)?;
    let target = g.add(sample.target, noise)?;
    let fit = g.mean_squared_error(y, target)?;
    let squares = g.square(x)?;
    let penalty = g.mean_all(squares)?;
    let loss = g.add(fit, penalty)?;
    let kept = g.tensor("loss", Element::Real, [])?;
    g.assign(kept, loss)?;
    let config = AdamConfig { clip: Some(1.0), ema: Some(0.9), ..AdamConfig::default() };
    g.adam(loss, counter, config)?;
    Ok(loss)
}

fn allocations(set: usize, runs: usize, mut run: impl FnMut()) -> usize {
    ALLOCATIONS.store(0, Ordering::SeqCst);
    COUNTED.store(set, Ordering::SeqCst);
    (0..runs).for_each(|_| run());
    COUNTED.store(0, Ordering::SeqCst);
    ALLOCATIONS.load(Ordering::SeqCst)
}

/// Gives the second of two threads work once, for which rayon allocates memory.
fn wake(threads: usize) {
    let taken = AtomicBool::new(threads == 1);
    let wait = || {
        while !taken.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    };
    rayon::join(wait, || taken.store(true, Ordering::Release));
}

#[test]
fn a_run_allocates_nothing() {
    let mut graph = Graph::new();
    let loss = training_step(&mut graph).unwrap();
    let mut set = 0;
    for precision in [Precision::F32, Precision::F64] {
        let mut memory = Memory::new(Device::Cpu, precision).unwrap();
        let values: Vec<f32> = (0..20 * SIDE * SIDE * 2).map(|i| (i as f32 * 0.37).sin()).collect();
        let times: Vec<f64> = (0..20).map(|i| f64::from(i % 10)).collect();
        memory.insert_real("values", [20, SIDE, SIDE, 2], &values).unwrap();
        memory.insert("times", Element::Double, [20], Data::F64(&times)).unwrap();
        memory.insert("offsets", Element::Index, [3], Data::Index(&[0, 10, 20])).unwrap();
        memory.insert_real("loss", [], &[0.0]).unwrap();
        memory.initialize(&graph, 1).unwrap();
        let mut program = Program::compile(&graph, &[loss], &memory).unwrap();
        for name in OPERATIONS {
            let found =
                program.text().lines().filter_map(|line| line.split_once(" = ")).any(|(_, operation)| {
                    let rest = operation.trim_start_matches("effect ").strip_prefix(name);
                    rest.is_some_and(|rest| {
                        rest.starts_with([' ', '\n'])
                            && !rest.starts_with(" input")
                            && !rest.starts_with(" weight")
                    })
                });
            assert!(found, "no `{name}` in\n{}", program.text());
        }
        for threads in [1, 2] {
            set += 1;
            MEMBER.set(set);
            let join = move |_| MEMBER.set(set);
            let builder = rayon::ThreadPoolBuilder::new().num_threads(threads).start_handler(join);
            let pool = builder.build().unwrap();
            pool.install(|| {
                wake(threads);
                (0..2).for_each(|_| program.run(&mut memory).unwrap());
                let found = allocations(set, 5, || program.run(&mut memory).unwrap());
                assert_eq!(found, 0, "allocations in 5 runs, {threads} threads, {precision:?}");
            });
            let boxed = || drop(std::hint::black_box(Box::new(threads)));
            assert!(allocations(set, 1, || pool.install(boxed)) >= 1, "what the pool allocates is counted");
            // For calls from outside, rayon queues each run in blocks of 63, which it allocates when they are full.
            let found = allocations(set, 20, || pool.install(|| program.run(&mut memory)).unwrap());
            assert!(
                found <= 1,
                "{found} allocations in 20 runs from outside, {threads} threads, {precision:?}"
            );
        }
        assert!(program.scalar(0).unwrap().is_finite());
    }
}
