//! TerminalProgress on stderr: a bar with rate and time left on a terminal, plain lines otherwise.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use cfo::{Observer, StepReport};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::diagnostics::say;
use crate::job;

const PAUSE: Duration = Duration::from_secs(5);

/// Counts finished pieces of work up to a known total.
pub struct TerminalProgress {
    what: String,
    total: u64,
    done: u64,
    started: Instant,
    spoken: Instant,
    bar: Option<Bar>,
}

impl TerminalProgress {
    /// Starts counting to `total`; `what` names the work, as in `simulating`.
    pub fn new(what: &str, total: u64) -> Self {
        let now = Instant::now();
        Self { what: what.to_owned(), total, done: 0, started: now, spoken: now, bar: Bar::new(total) }
    }

    /// One more piece is finished.
    pub fn advance(&mut self) {
        self.advance_by(1);
    }

    /// `pieces` more are finished.
    pub fn advance_by(&mut self, pieces: u64) {
        self.done += pieces;
        match &self.bar {
            Some(bar) => {
                let text = line(&self.what, self.done, self.total, self.started.elapsed());
                bar.show(self.done, self.total, &text);
            }
            None if self.spoken.elapsed() >= PAUSE && self.done < self.total => {
                self.spoken = Instant::now();
                say(&line(&self.what, self.done, self.total, self.started.elapsed()));
            }
            None => {}
        }
    }
}

/// TerminalProgress of a training run: loss, rate and time left.
pub struct TrainingProgress {
    steps: u32,
    spoken: Option<Instant>,
    validation: Option<f64>,
    bar: Option<Bar>,
}

impl TrainingProgress {
    /// Creates the progress of a training run of `steps` steps.
    pub fn new(steps: u32) -> Self {
        Self { steps, spoken: None, validation: None, bar: Bar::new(u64::from(steps)) }
    }

    /// The last validation error, if any was measured.
    pub fn validation(&self) -> Option<f64> {
        self.validation
    }

    fn show(&mut self, report: &StepReport) {
        let text = training_line(report);
        if let Some(bar) = &self.bar {
            let text = format!("{}/{}: {text}", report.step, report.steps);
            return bar.show(u64::from(report.step), u64::from(report.steps), &text);
        }
        let due = self.spoken.is_none_or(|spoken| spoken.elapsed() >= PAUSE);
        if due || report.validation.is_some() || report.miss.is_some() || report.step == self.steps {
            self.spoken = Some(Instant::now());
            say(&format!("step {}/{}: {text}", report.step, report.steps));
        }
    }
}

impl Observer for TrainingProgress {
    fn report(&mut self, report: &StepReport) -> ControlFlow<()> {
        self.validation = report.validation.or(self.validation);
        self.show(report);
        ControlFlow::Continue(())
    }

    fn notice(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.0.suspend(|| say(&format!("warning: {text}"))),
            None => say(&format!("warning: {text}")),
        }
    }
}

/// A line on a terminal, which is erased at the end.
struct Bar(ProgressBar);

impl Bar {
    /// `None` without a terminal, and on ranks other than the first.
    fn new(total: u64) -> Option<Self> {
        // Cut at the width of the terminal: a line that wraps would not be erased completely.
        let style = ProgressStyle::with_template("{wide_msg}").expect("the template is a constant");
        let bar = || ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        (io::stderr().is_terminal() && !job::is_quiet()).then(|| Self(bar().with_style(style)))
    }

    fn show(&self, done: u64, total: u64, text: &str) {
        self.0.set_message(format!("{} {text}", drawn(done, total)));
        self.0.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A short bar: bar and text together must fit 80 columns.
fn drawn(done: u64, total: u64) -> String {
    const WIDTH: usize = 8;
    let filled = (WIDTH as u64 * done.min(total) / total.max(1)) as usize;
    let head = if filled < WIDTH { ">" } else { "" };
    format!("[{:<WIDTH$}]", "=".repeat(filled) + head)
}

/// Loss, rate, time left and, if it was measured, the validation error or the miss of the latest round.
fn training_line(report: &StepReport) -> String {
    let left = f64::from(report.steps - report.step) / report.steps_per_second;
    let last = match (report.validation, report.miss) {
        (Some(error), _) => format!(", validation {error:.2e}"),
        (None, Some(miss)) => format!(", miss {miss:.2e}"),
        (None, None) => String::new(),
    };
    format!("loss {:.2e}, {:.1}/s, {left:.0} s left{last}", report.loss, report.steps_per_second)
}

/// The plain line after `done` of `total` pieces in `elapsed`.
fn line(what: &str, done: u64, total: u64, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64();
    let left = (total - done) as f64 / rate;
    format!("{what}: {done}/{total}, {rate:.1}/s, {left:.0} s left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_long_training_fits_80_columns() {
        let report = StepReport {
            step: 59_999,
            steps: 60_000,
            loss: 1.234e-2,
            learning_rate: 1e-4,
            steps_per_second: 1234.5,
            validation: Some(1.234e-2),
            miss: None,
        };
        let text = format!("{} 59999/60000: {}", drawn(59_999, 60_000), training_line(&report));
        assert!(text.len() <= 80, "{} columns: {text}", text.len());
        assert_eq!([drawn(0, 9), drawn(4, 8), drawn(9, 9)], ["[>       ]", "[====>   ]", "[========]"]);
    }

    #[test]
    fn a_plain_line_has_rate_and_time_left() {
        let text = line("simulating", 20, 120, Duration::from_secs(4));
        assert_eq!(text, "simulating: 20/120, 5.0/s, 20 s left");
    }
}
