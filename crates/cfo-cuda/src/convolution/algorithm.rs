//! Choice of an algorithm for each convolution: measured once and stored on disk by shape, precision and library.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::convolution::conv::{Algorithm, ConvPass, Geometry};
use crate::convolution::cudnn::{PreparedConvolution, WORKSPACE_LIMIT};
use crate::convolution::{conv_few_channels, cudnn_plan};
use crate::program::Code;
use crate::runtime::compile;
use crate::runtime::driver::CudaContext;
use crate::runtime::library::Library;
use cfo_engine::{Node, Precision, Result};

/// A deterministic algorithm is chosen if its time is at most this multiple of the fastest one's.
const DETERMINISM_COST: f32 = 1.1;
/// Number of elements of a field from which on f16 operands and other plans are considered.
const LARGE: usize = 1 << 22;

/// Algorithms for a convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ConvOptions {
    pub(crate) usual: Algorithm,
    /// Algorithm for f16 operands, and the milliseconds that it saves if they exist.
    pub(crate) f16: Option<(Algorithm, f32)>,
}

impl From<Algorithm> for ConvOptions {
    fn from(usual: Algorithm) -> Self {
        Self { usual, f16: None }
    }
}

/// Milliseconds, deterministic?, algorithm, math, workspace.
pub(crate) type MeasuredAlgorithm = (f32, bool, u32, u32, usize);
/// Milliseconds of an algorithm.
pub(crate) type TimedAlgorithm = (f32, Algorithm);

/// The fastest algorithm, or a deterministic one that is almost as fast.
pub(crate) fn pick(candidates: &[MeasuredAlgorithm]) -> TimedAlgorithm {
    let fastest = candidates.iter().map(|candidate| candidate.0).fold(f32::INFINITY, f32::min);
    let best = |needed: bool| {
        candidates
            .iter()
            .filter(|candidate| candidate.1 || !needed)
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|candidate| !needed || candidate.0 <= DETERMINISM_COST * fastest)
    };
    match best(true).or_else(|| best(false)) {
        Some(&(time, _, algorithm, math, workspace)) => {
            (time, Algorithm::Library { algorithm, math, workspace })
        }
        None => (f32::INFINITY, Algorithm::Plain),
    }
}

/// Time that f16 operands save, if any.
fn saving((time, usual): TimedAlgorithm, (f16_time, f16): TimedAlgorithm) -> ConvOptions {
    let f16 = match f16 {
        Algorithm::Library { algorithm, math, workspace } => {
            Algorithm::LibraryF16 { algorithm, math, workspace }
        }
        other => other,
    };
    let saved = (f16.takes_f16() && f16_time < time).then_some((f16, time - f16_time));
    ConvOptions { usual, f16: saved }
}

/// Decides which convolutions of a graph use f16 operands: those that save more than their share of the time to create
/// the operands. An operand that only one of them reads counts fully for it.
pub(crate) fn settle(code: &Code, options: &HashMap<usize, ConvOptions>) -> HashMap<usize, Algorithm> {
    /// Bytes per millisecond; an operand is read twice and written once.
    const SPEED: f32 = 3.5e9 / 10.0;
    let mut f16: BTreeMap<usize, f32> =
        options.iter().filter_map(|(&id, options)| options.f16.map(|(_, saved)| (id, saved))).collect();
    loop {
        let mut readers: HashMap<Node, f32> = HashMap::new();
        for id in f16.keys() {
            code.entries[*id].inputs.iter().for_each(|&input| *readers.entry(input).or_default() += 1.0);
        }
        let share = |input: &Node| code.shape(*input).len() as f32 / SPEED / readers[input];
        let gain = |id: usize, saved: f32| saved - code.entries[id].inputs.iter().map(share).sum::<f32>();
        let gains = f16.iter().map(|(&id, &saved)| (id, gain(id, saved)));
        match gains.min_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((id, least)) if least <= 0.0 => f16.remove(&id),
            _ => break,
        };
    }
    let choice = |id: &usize, options: &ConvOptions| match options.f16 {
        Some((choice, _)) if f16.contains_key(id) => choice,
        _ => options.usual,
    };
    options.iter().map(|(id, options)| (*id, choice(id, options))).collect()
}

/// The first recommendation that is deterministic; our own kernel if there is none.
fn first_deterministic(candidates: &[(u32, u32, usize, bool)]) -> Algorithm {
    let found = candidates.iter().find(|candidate| candidate.3);
    found.map_or(Algorithm::Plain, |&(algorithm, math, workspace, _)| Algorithm::Library {
        algorithm,
        math,
        workspace,
    })
}

/// The library's algorithm for a convolution of f16 operands of any size; `None` if it does not support it.
#[cfg(test)]
pub(crate) fn first_f16(context: &Arc<CudaContext>, geometry: &Geometry) -> Option<Algorithm> {
    let geometry = Geometry { f16: true, ..*geometry };
    cudnn_plan::prepare(context, &[geometry]);
    measure_f16(context, &geometry)
        .ok()
        .map(|f16| saving((f32::INFINITY, Algorithm::Plain), f16).f16)?
        .map(|(choice, _)| choice)
}

/// Stored measurements, read from disk on first use.
struct Known {
    options: BTreeMap<String, ConvOptions>,
    file: Option<PathBuf>,
}

fn known() -> MutexGuard<'static, Option<Known>> {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    known.get_or_insert_with(|| {
        let file = compile::folder().map(|folder| folder.join("convolutions2.txt"));
        let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        Known { options: text.map(|text| parse(&text)).unwrap_or_default(), file }
    });
    known
}

fn key(context: &CudaContext, geometry: &Geometry) -> String {
    let library = Library::Cudnn.version().map(|version| version.to_string()).unwrap_or_default();
    geometry.key(&context.properties.name, &library)
}

/// Whether there are alternatives to the library's usual calls.
pub(crate) fn is_special(geometry: &Geometry) -> bool {
    let largest = [geometry.x, geometry.y].map(|field| field.iter().product::<usize>()).into_iter().max();
    geometry.precision == Precision::Tf32
        && geometry.x[1] > 1
        && geometry.parts() == 1
        && !geometry.prefers_patches()
        && largest.is_some_and(|largest| largest >= LARGE)
}

/// Whether a convolution can use f16 operands.
pub(crate) fn may_take_f16(geometry: &Geometry) -> bool {
    let f16 = Geometry { f16: true, ..*geometry };
    is_special(geometry) && (geometry.form == ConvPass::Weight || cudnn_plan::takes(&f16))
}

/// Builds the plans that will be measured, in parallel.
pub(crate) fn prepare(context: &Arc<CudaContext>, geometries: &[Geometry], deterministic: bool) {
    if deterministic || !Library::Cudnn.loaded() {
        return;
    }
    let known = known();
    let known = &known.as_ref().expect("read before it is handed out").options;
    let missing: Vec<Geometry> = geometries
        .iter()
        .filter(|geometry| is_special(geometry) && !known.contains_key(&key(context, geometry)))
        .flat_map(|geometry| [*geometry, Geometry { f16: true, ..*geometry }])
        .collect();
    cudnn_plan::prepare(context, &missing);
}

/// Algorithms for a convolution on a GPU: from the cache, or measured now. If determinism is required, nothing is
/// measured and only deterministic algorithms are used.
///
/// # Errors
/// If cuDNN is missing.
pub(crate) fn choose(
    context: &Arc<CudaContext>,
    geometry: &Geometry,
    deterministic: bool,
) -> Result<ConvOptions> {
    if geometry.prefers_patches() {
        return Ok(Algorithm::Patches.into());
    }
    if let Some(choice) = conv_few_channels::choice(geometry, context.properties.multiprocessors) {
        return Ok(choice.into());
    }
    if deterministic {
        // Nothing is measured: the fastest algorithm may change from run to run.
        let candidates = PreparedConvolution::describe(context, &geometry.part())?.candidates(geometry.form);
        return Ok(first_deterministic(&candidates).into());
    }
    let mut known = known();
    let Known { options: known, file } = known.as_mut().expect("read before it is handed out");
    let key = key(context, geometry);
    if let Some(options) = known.get(&key) {
        return Ok(*options);
    }
    let options = measure(context, geometry)?;
    known.insert(key, options);
    if let Some(file) = file {
        // A cache that cannot be written costs time, but does not change results.
        let _ = compile::store(file, print(known).as_bytes());
    }
    Ok(options)
}

fn measure(context: &Arc<CudaContext>, geometry: &Geometry) -> Result<ConvOptions> {
    let mut usual = PreparedConvolution::measure(context, geometry)?;
    if !is_special(geometry) {
        return Ok(usual.1.into());
    }
    if cudnn_plan::takes(geometry)
        && let Ok((time, workspace)) = cudnn_plan::measure(context, geometry)
        && time < usual.0
    {
        usual = (time, Algorithm::Planned { workspace });
    }
    // A library that does not support f16 operands is not queried again.
    let f16 = measure_f16(context, &Geometry { f16: true, ..*geometry });
    Ok(f16.map_or(usual.1.into(), |f16| saving(usual, f16)))
}

fn measure_f16(context: &Arc<CudaContext>, geometry: &Geometry) -> Result<TimedAlgorithm> {
    match geometry.form {
        ConvPass::Weight => PreparedConvolution::measure(context, geometry),
        _ => cudnn_plan::measure(context, geometry)
            .map(|(time, workspace)| (time, Algorithm::PlannedF16 { workspace })),
    }
}

/// One line per convolution: the key, the algorithm, and the algorithm and saved time for f16 operands.
fn print(known: &BTreeMap<String, ConvOptions>) -> String {
    known
        .iter()
        .map(|(key, ConvOptions { usual, f16 })| match f16 {
            Some((choice, saved)) => format!("{key}\t{}\t{}\t{saved}\n", word(usual), word(choice)),
            None => format!("{key}\t{}\n", word(usual)),
        })
        .collect()
}

fn word(choice: &Algorithm) -> String {
    match choice {
        Algorithm::Plain => "plain".into(),
        Algorithm::Patches => "patches".into(),
        // Not measured, so not stored.
        Algorithm::FewChannels { .. } | Algorithm::ConvRow => "own".into(),
        Algorithm::Library { algorithm, math, workspace } => {
            format!("library {algorithm} {math} {workspace}")
        }
        Algorithm::LibraryF16 { algorithm, math, workspace } => {
            format!("compact {algorithm} {math} {workspace}")
        }
        Algorithm::Planned { workspace } => format!("planned {workspace}"),
        Algorithm::PlannedF16 { workspace } => format!("scaled {workspace}"),
    }
}

/// Invalid lines are skipped; their convolutions are measured again.
fn parse(text: &str) -> BTreeMap<String, ConvOptions> {
    let line = |line: &str| {
        let mut parts = line.split('\t');
        let (key, usual) = (parts.next()?, choice(parts.next()?)?);
        let f16 = match (parts.next(), parts.next()) {
            (Some(word), Some(saved)) => Some((choice(word)?, saved.parse().ok()?)),
            (Some(_), None) => return None,
            _ => None,
        };
        Some((key.to_owned(), ConvOptions { usual, f16 }))
    };
    text.lines().filter_map(line).collect()
}

fn choice(word: &str) -> Option<Algorithm> {
    let mut words = word.split(' ');
    let name = words.next()?;
    let numbers: Vec<usize> = words.map(|number| number.parse().ok()).collect::<Option<_>>()?;
    if numbers.last().is_some_and(|&workspace| workspace > WORKSPACE_LIMIT) {
        return None;
    }
    match (name, &numbers[..]) {
        ("plain", []) => Some(Algorithm::Plain),
        ("patches", []) => Some(Algorithm::Patches),
        ("planned", &[workspace]) => Some(Algorithm::Planned { workspace }),
        ("scaled", &[workspace]) => Some(Algorithm::PlannedF16 { workspace }),
        ("library" | "compact", &[algorithm, math, workspace]) if algorithm < 8 && math < 4 => {
            let (algorithm, math) = (algorithm as u32, math as u32);
            Some(match name {
                "compact" => Algorithm::LibraryF16 { algorithm, math, workspace },
                _ => Algorithm::Library { algorithm, math, workspace },
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cfo_engine::Graph;
    use cfo_engine::PadMode;
    use cfo_engine::backend::fuse;

    #[test]
    fn the_cache_reads_what_it_wrote_and_skips_what_is_damaged() {
        let (algorithm, math, workspace) = (1, 3, 4096);
        let library = Algorithm::Library { algorithm, math, workspace };
        let mut known: BTreeMap<String, ConvOptions> = BTreeMap::new();
        known.insert("a|b".into(), Algorithm::Plain.into());
        known.insert("c".into(), library.into());
        known.insert("d".into(), Algorithm::Planned { workspace }.into());
        for (key, choice) in [
            ("e", Algorithm::LibraryF16 { algorithm, math, workspace }),
            ("f", Algorithm::PlannedF16 { workspace }),
        ] {
            known.insert(key.into(), ConvOptions { usual: library, f16: Some((choice, 0.125)) });
        }
        assert_eq!(parse(&print(&known)), known);
        let damaged = [
            "junk",
            "g\tcompact 1",
            "h\t1 2",
            "i\tlibrary 99 0 0",
            "j\tscaled 99999999999999",
            "k\tplain\tplain",
        ];
        assert_eq!(parse(&format!("{}{}\n", print(&known), damaged.join("\n"))), known);
    }

    #[test]
    fn a_deterministic_algorithm_is_taken_when_it_costs_little() {
        let library = |algorithm| Algorithm::Library { algorithm, math: 0, workspace: 0 };
        assert_eq!(pick(&[(1.0, false, 0, 0, 0), (1.05, true, 1, 0, 0)]), (1.05, library(1)));
        assert_eq!(pick(&[(1.0, false, 0, 0, 0), (2.0, true, 1, 0, 0)]), (1.0, library(0)));
        assert_eq!(pick(&[]).1, Algorithm::Plain);
    }

    #[test]
    fn compact_operands_are_taken_where_making_them_pays() {
        let mut graph = Graph::new();
        let x = graph.input("x", [100, 10, 10, 35_000]).unwrap();
        let w = graph.input("w", [1, 1, 1, 35_000]).unwrap();
        let v = graph.input("v", [1, 1, 1, 35_000]).unwrap();
        let mut conv = |w| graph.conv(x, w, [1, 1], PadMode::Zero, [0, 0]).unwrap().index();
        let (first, second) = (conv(w), conv(v));
        let (fused, requested) = fuse(&graph, &[Node::new(first, 0), Node::new(second, 0)]);
        let code = Code::new(&fused, requested);
        // Converting the field to f16 takes a millisecond.
        let scaled = Algorithm::PlannedF16 { workspace: 0 };
        let with = |saved: [f32; 2]| {
            let option = |saved| ConvOptions { usual: Algorithm::Plain, f16: Some((scaled, saved)) };
            let settled =
                settle(&code, &HashMap::from([(first, option(saved[0])), (second, option(saved[1]))]));
            [settled[&first] == scaled, settled[&second] == scaled]
        };
        assert_eq!(with([0.9, 0.1]), [false, false]);
        assert_eq!(with([1.1, 0.1]), [true, false]);
        assert_eq!(with([0.6, 0.6]), [true, true]);
        let usual = (1.0, Algorithm::Plain);
        assert_eq!(saving(usual, (0.5, scaled)).f16, Some((scaled, 0.5)));
        assert_eq!(saving(usual, (1.5, scaled)).f16, None);
        assert_eq!(saving(usual, (0.5, Algorithm::Plain)).f16, None);
    }

    #[test]
    fn only_deterministic_algorithms_are_taken_where_that_is_asked() {
        let library = |algorithm| Algorithm::Library { algorithm, math: 1, workspace: 64 };
        let candidates = [(0, 1, 64, false), (3, 1, 64, true), (1, 1, 64, true)];
        assert_eq!(first_deterministic(&candidates), library(3));
        assert_eq!(first_deterministic(&candidates[..1]), Algorithm::Plain);
    }
}
