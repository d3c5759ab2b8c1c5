//! Execution without the interpreter's lock: on a separate thread, so that Ctrl-C takes effect at once, or on the
//! caller's if the work is short.

use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::failure::{WorkFailure, exception};

/// Interval between checks of Python's signals.
const PAUSE: Duration = Duration::from_millis(20);
/// Time that interrupted work has to end before it continues in the background.
const GRACE: Duration = Duration::from_millis(50);

/// Message and location of the last panic.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Process that started work first. Threads do not survive a fork, and waiting for them would never end.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Work that continues in the background after Ctrl-C until its results are saved.
static LEFT: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Whether this process has work in the background.
pub fn has_left() -> bool {
    let mine = OWNER.load(Ordering::Relaxed) == process::id();
    mine && !LEFT.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}

/// Waits until work in the background has ended; used before a training that resumes it, and at the interpreter's exit.
pub fn settle() {
    let left = std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner));
    for work in left {
        // Panics are caught inside.
        let _ = work.join();
    }
}

/// Keeps panics off the terminal, since they become exceptions.
pub fn silence_panics() {
    panic::set_hook(Box::new(|information| {
        let place = information.location().map(|place| format!(" at {}:{}", place.file(), place.line()));
        let text = information.payload_as_str().unwrap_or("no message");
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(format!("{text}{}", place.unwrap_or_default()));
    }));
}

/// A message from running work, and the channel of the answer: whether to continue.
pub struct ProgressMessage {
    pub kind: &'static str,
    pub text: String,
    pub answer: Sender<bool>,
}

enum Message<T> {
    Word(ProgressMessage),
    Done(Result<T, WorkFailure>),
}

/// The channel from work on its own thread to the waiting thread.
pub struct TaskLine<T> {
    /// Set to stop the work.
    pub interrupt: Arc<AtomicBool>,
    sender: Sender<Message<T>>,
}

impl<T> TaskLine<T> {
    /// Sends a message and waits for the answer. Without an answer the work ends.
    pub fn send(&self, kind: &'static str, text: String) -> bool {
        let (answer, heard) = channel();
        let said = self.sender.send(Message::Word(ProgressMessage { kind, text, answer }));
        said.is_ok() && heard.recv().unwrap_or(false)
    }
}

/// Runs short work on this thread.
pub fn at_once<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, WorkFailure> + Send) -> PyResult<T> {
    check_process(py)?;
    py.detach(|| guarded(work)).map_err(|failure| failure.raise(py))
}

/// Runs work on a separate thread until it ends or Ctrl-C is pressed.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&TaskLine<T>) -> Result<T, WorkFailure> + Send + 'static,
) -> PyResult<T> {
    attended(py, work, |_, _, _| Ok(true))
}

/// Runs work on a separate thread. Its messages are passed to `hear` on this thread, which returns whether to continue.
pub fn attended<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&TaskLine<T>) -> Result<T, WorkFailure> + Send + 'static,
    mut hear: impl FnMut(Python<'_>, &str, &str) -> PyResult<bool>,
) -> PyResult<T> {
    check_process(py)?;
    let (sender, mut receiver) = channel();
    let interrupt = Arc::new(AtomicBool::new(false));
    let line = TaskLine { interrupt: Arc::clone(&interrupt), sender };
    let body = move || {
        let outcome = guarded(|| work(&line));
        // After Ctrl-C there is no receiver.
        let _ = line.sender.send(Message::Done(outcome));
    };
    let spawned = thread::Builder::new().name("cfo".into()).spawn(body);
    let working = spawned.map_err(|error| WorkFailure::from(error).raise(py))?;
    let mut raised: Option<PyErr> = None;
    let mut deadline = None;
    loop {
        let (back, message) = py.detach(move || wait(receiver));
        receiver = back;
        match message {
            Ok(Message::Done(outcome)) => return conclude(py, outcome, raised),
            Ok(Message::Word(word)) => {
                let heard = if raised.is_some() { Ok(false) } else { hear(py, word.kind, &word.text) };
                let go_on = heard.unwrap_or_else(|error| {
                    raised = Some(error);
                    false
                });
                // Work that has ended needs no answer.
                let _ = word.answer.send(go_on);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(WorkFailure::Panicked("the thread of the work ended".into()).raise(py));
            }
        }
        if deadline.is_none()
            && let Err(error) = py.check_signals()
        {
            interrupt.store(true, Ordering::Relaxed);
            raised = Some(error);
            deadline = Some(Instant::now() + GRACE);
        }
        if let Some(error) = raised.take_if(|_| deadline.is_some_and(|deadline| Instant::now() > deadline)) {
            LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(working);
            return Err(error);
        }
    }
}

type Heard<T> = Result<Message<T>, RecvTimeoutError>;

fn wait<T>(receiver: Receiver<Message<T>>) -> (Receiver<Message<T>>, Heard<T>) {
    let message = receiver.recv_timeout(PAUSE);
    (receiver, message)
}

/// The result for the caller. An exception raised meanwhile has priority; Ctrl-C's gets the text of the work's error.
fn conclude<T>(py: Python<'_>, outcome: Result<T, WorkFailure>, raised: Option<PyErr>) -> PyResult<T> {
    match (outcome, raised) {
        (Err(failure), Some(error))
            if failure.is_interrupt() && error.is_instance_of::<PyKeyboardInterrupt>(py) =>
        {
            Err(failure.raise(py))
        }
        (_, Some(error)) => Err(error),
        (outcome, None) => outcome.map_err(|failure| failure.raise(py)),
    }
}

/// Runs work and converts a panic to a failure.
fn guarded<T>(work: impl FnOnce() -> Result<T, WorkFailure>) -> Result<T, WorkFailure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let said = PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
        Err(WorkFailure::Panicked(said.unwrap_or_else(|| "no message".into())))
    })
}

/// Returns an error in a process forked from one that has worked: the threads for the work exist only in the parent.
fn check_process(py: Python<'_>) -> PyResult<()> {
    let mine = process::id();
    match OWNER.compare_exchange(0, mine, Ordering::Relaxed, Ordering::Relaxed) {
        Err(owner) if owner != mine => {
            let text = "this process was forked from one that had used `cfo`; the threads of the engine are in the parent";
            let hint =
                "start processes with `multiprocessing.get_context(\"spawn\")`, or fork before the first use";
            Err(exception(py, "CfoError", text, Some(hint)))
        }
        _ => Ok(()),
    }
}
