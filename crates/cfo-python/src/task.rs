//! Work without the interpreter's lock: on a thread of its own, so that Ctrl-C is heard at once, or on the caller's if it is short.

use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::failure::{Failure, exception};

/// Between two looks at the signals of Python.
const PAUSE: Duration = Duration::from_millis(20);
/// How long work that is told to stop may take before it is left to end by itself.
const GRACE: Duration = Duration::from_millis(50);

/// Message and place of the last panic.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// The process that worked first: threads do not survive a fork, and whoever waits for them waits for ever.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Work in the background after Ctrl-C, which ends after saving its results.
static LEFT: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// Whether this process left work behind.
pub fn has_left() -> bool {
    let mine = OWNER.load(Ordering::Relaxed) == process::id();
    mine && !LEFT.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}

/// Waits until work that was left has ended; for a training that goes on from it, and when the interpreter ends.
pub fn settle() {
    let left = std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner));
    for work in left {
        // Its panics are caught inside.
        let _ = work.join();
    }
}

/// Keeps panics off the terminal: they become exceptions.
pub fn silence_panics() {
    panic::set_hook(Box::new(|information| {
        let place = information.location().map(|place| format!(" at {}:{}", place.file(), place.line()));
        let text = information.payload_as_str().unwrap_or("no message");
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(format!("{text}{}", place.unwrap_or_default()));
    }));
}

/// A message from work in progress, and the answer that it waits for: whether to continue.
pub struct Word {
    pub kind: &'static str,
    pub text: String,
    pub answer: Sender<bool>,
}

enum Message<T> {
    Word(Word),
    Done(Result<T, Failure>),
}

/// The channel between work on its own thread and the thread that waits for it.
pub struct Line<T> {
    /// Set where the work is to stop.
    pub interrupt: Arc<AtomicBool>,
    sender: Sender<Message<T>>,
}

impl<T> Line<T> {
    /// Sends a message and waits for the answer. If nobody answers, the work ends.
    pub fn say(&self, kind: &'static str, text: String) -> bool {
        let (answer, heard) = channel();
        let said = self.sender.send(Message::Word(Word { kind, text, answer }));
        said.is_ok() && heard.recv().unwrap_or(false)
    }
}

/// Runs work that is shorter than a user's patience on this thread.
pub fn at_once<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Failure> + Send) -> PyResult<T> {
    check_process(py)?;
    py.detach(|| guarded(work)).map_err(|failure| failure.raise(py))
}

/// Runs work on a thread of its own until it ends or Ctrl-C is pressed.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&Line<T>) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    attended(py, work, |_, _, _| Ok(true))
}

/// Runs work on its own thread. Its messages are passed to `hear` on this thread, which answers whether to continue.
pub fn attended<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&Line<T>) -> Result<T, Failure> + Send + 'static,
    mut hear: impl FnMut(Python<'_>, &str, &str) -> PyResult<bool>,
) -> PyResult<T> {
    check_process(py)?;
    let (sender, mut receiver) = channel();
    let interrupt = Arc::new(AtomicBool::new(false));
    let line = Line { interrupt: Arc::clone(&interrupt), sender };
    let body = move || {
        let outcome = guarded(|| work(&line));
        // Nobody waits any more where Ctrl-C was pressed.
        let _ = line.sender.send(Message::Done(outcome));
    };
    let spawned = thread::Builder::new().name("cfo".into()).spawn(body);
    let working = spawned.map_err(|error| Failure::from(error).raise(py))?;
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
                // Work that is gone needs no answer.
                let _ = word.answer.send(go_on);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Panicked("the thread of the work ended".into()).raise(py));
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

/// What the caller gets: an exception that was raised meanwhile comes first; that of Ctrl-C in the words of the work.
fn conclude<T>(py: Python<'_>, outcome: Result<T, Failure>, raised: Option<PyErr>) -> PyResult<T> {
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

/// Work whose panic is a failure.
fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let said = PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
        Err(Failure::Panicked(said.unwrap_or_else(|| "no message".into())))
    })
}

/// Refuses work in a process that was forked from one that has worked: the threads that would do it are in the parent.
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
