//! Parallel simulation of many trajectories, returned in order.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use super::{Equation, SimulationError};
use crate::Trajectory;

/// Trajectories per thread that are simulated or wait for the sink. One is simulated while the other waits.
const WINDOW_PER_THREAD: usize = 2;

type Outcome = Result<Result<Trajectory, SimulationError>, Box<dyn Any + Send>>;

/// Simulates trajectories `0..samples` of `seed` on rayon's threads and passes them to `sink` in order.
///
/// At most two trajectories per thread exist at any time. The first error of a trajectory or of the sink ends the run.
/// Setting `interrupt` ends it with [`SimulationError::Interrupted`].
///
/// ```
/// use std::sync::atomic::AtomicBool;
/// use cfo_data::simulate::{Lorenz, SimulationError, run};
///
/// let lorenz = Lorenz { frames: 11, ..Lorenz::default() };
/// let mut ends = Vec::new();
/// run(&lorenz, 4, 0, &AtomicBool::new(false), |index, trajectory| {
///     ends.push((index, trajectory.values[30]));
///     Ok::<(), SimulationError>(())
/// })?;
/// assert_eq!(ends.len(), 4);
/// # Ok::<(), SimulationError>(())
/// ```
pub fn run<E: From<SimulationError>>(
    equation: &dyn Equation,
    samples: usize,
    seed: u64,
    interrupt: &AtomicBool,
    mut sink: impl FnMut(usize, Trajectory) -> Result<(), E>,
) -> Result<(), E> {
    equation.check()?;
    let window = WINDOW_PER_THREAD * rayon::current_num_threads();
    // Set when this run ends early, so that running trajectories stop too.
    let stop = AtomicBool::new(false);
    let (sender, receiver) = channel();
    rayon::in_place_scope(|scope| {
        let spawn = |index: usize| {
            let (sender, stop): (Sender<(usize, Outcome)>, _) = (sender.clone(), &stop);
            scope.spawn(move |_| {
                let work = || equation.simulate(seed, index as u64, stop);
                // Sending fails only if the result is no longer needed.
                let _ = sender.send((index, catch_unwind(AssertUnwindSafe(work))));
            });
        };
        let mut early = BTreeMap::new();
        (0..samples.min(window)).for_each(&spawn);
        let mut deliver = |index: usize| -> Result<(), E> {
            let outcome = next(index, &mut early, &receiver, interrupt)?;
            let trajectory = outcome.unwrap_or_else(|panic| {
                stop.store(true, Ordering::Relaxed);
                resume_unwind(panic)
            });
            let trajectory = trajectory.map_err(|cause| SimulationError::Trajectory {
                index: index as u64,
                cause: Box::new(cause),
            })?;
            sink(index, trajectory)?;
            if index + window < samples {
                spawn(index + window);
            }
            Ok(())
        };
        let result = (0..samples).try_for_each(&mut deliver);
        stop.store(true, Ordering::Relaxed);
        result
    })
}

/// Waits for trajectory `index`. Later ones that arrive earlier are kept in `early`.
fn next(
    index: usize,
    early: &mut BTreeMap<usize, Outcome>,
    receiver: &Receiver<(usize, Outcome)>,
    interrupt: &AtomicBool,
) -> Result<Outcome, SimulationError> {
    loop {
        if interrupt.load(Ordering::Relaxed) {
            return Err(SimulationError::Interrupted);
        }
        if let Some(outcome) = early.remove(&index) {
            return Ok(outcome);
        }
        let arrived = match receiver.try_recv() {
            // A caller that is a thread of the pool helps; otherwise a pool of one thread would deadlock.
            Err(TryRecvError::Empty) if rayon::yield_now() == Some(rayon::Yield::Executed) => None,
            Err(TryRecvError::Empty) => receiver.recv_timeout(Duration::from_millis(20)).ok(),
            arrived => arrived.ok(),
        };
        if let Some((at, outcome)) = arrived {
            early.insert(at, outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Lorenz;

    fn short() -> Lorenz {
        Lorenz { frames: 21, horizon: 1.0, ..Lorenz::default() }
    }

    fn collect(samples: usize, seed: u64, threads: usize) -> Vec<Trajectory> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut all = Vec::new();
        pool.install(|| {
            run(&short(), samples, seed, &AtomicBool::new(false), |index, trajectory| {
                assert_eq!(index, all.len());
                all.push(trajectory);
                Ok::<(), SimulationError>(())
            })
        })
        .unwrap();
        all
    }

    #[test]
    fn a_trajectory_depends_on_seed_and_index_alone() {
        let many = collect(37, 5, 3);
        assert_eq!(collect(11, 5, 1), many[..11]);
        for (index, trajectory) in many.iter().enumerate() {
            assert_eq!(*trajectory, short().trajectory(5, index as u64).unwrap());
            assert_eq!(many.iter().filter(|other| *other == trajectory).count(), 1);
        }
        assert_ne!(collect(1, 6, 2), many[..1]);
        assert!(collect(0, 5, 2).is_empty());
    }

    #[test]
    fn the_sink_and_the_caller_can_stop_a_run() {
        let interrupt = AtomicBool::new(false);
        let mut seen = 0;
        let result = run(&short(), usize::MAX, 0, &interrupt, |index, _| {
            seen += 1;
            interrupt.store(index == 10, Ordering::Relaxed);
            Ok::<(), SimulationError>(())
        });
        assert_eq!((result, seen), (Err(SimulationError::Interrupted), 11));

        let full = SimulationError::TooLarge { frames: 0, points: 0 };
        let result = run(&short(), usize::MAX, 0, &AtomicBool::new(false), |_, _| Err(full.clone()));
        assert_eq!(result, Err(full));
    }

    #[test]
    fn a_failing_trajectory_is_named() {
        let wild = Lorenz { rho: 1e6, sigma: -1e3, beta: -1e3, ..short() };
        let result = run(&wild, 3, 0, &AtomicBool::new(false), |_, _| Ok::<(), SimulationError>(()));
        let error = result.unwrap_err();
        assert!(matches!(error, SimulationError::Trajectory { index: 0, .. }), "{error}");
        assert!(error.to_string().contains("diverged at time"), "{error}");
        assert!(error.hint().is_some());
    }

    struct Broken;

    impl Equation for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }
        fn check(&self) -> Result<(), SimulationError> {
            Ok(())
        }
        fn description(&self) -> crate::Description {
            short().description()
        }
        fn times(&self) -> Vec<f64> {
            short().times()
        }
        fn simulate(&self, _: u64, _: u64, _: &AtomicBool) -> Result<Trajectory, SimulationError> {
            panic!("a defect")
        }
    }

    #[test]
    #[should_panic(expected = "a defect")]
    fn a_panic_reaches_the_caller() {
        let _ = run(&Broken, 5, 0, &AtomicBool::new(false), |_, _| Ok::<(), SimulationError>(()));
    }
}
