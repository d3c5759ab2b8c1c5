//! Progress on stderr: a bar with rate and time left on a terminal, plain lines otherwise.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use cfo::StepReport;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::diagnostics::say;

/// Between two plain lines.
const PAUSE: Duration = Duration::from_secs(5);

/// Counts finished pieces of work of known number.
pub struct Progress {
    what: String,
    total: u64,
    done: u64,
    started: Instant,
    spoken: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Starts counting to `total`; `what` names the work, as in `simulating`.
    pub fn new(what: &str, total: u64) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg} [{bar:32}] {pos}/{len}  {per_sec}  {eta} left")
                .expect("the template is a constant")
                .progress_chars("=> ");
            let bar =
                ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()).with_style(style);
            bar.with_message(what.to_owned())
        });
        let now = Instant::now();
        Self { what: what.to_owned(), total, done: 0, started: now, spoken: now, bar }
    }

    /// One more piece is finished.
    pub fn advance(&mut self) {
        self.done += 1;
        match &self.bar {
            Some(bar) => bar.inc(1),
            None if self.spoken.elapsed() >= PAUSE && self.done < self.total => {
                self.spoken = Instant::now();
                say(&line(&self.what, self.done, self.total, self.started.elapsed()));
            }
            None => {}
        }
    }
}

/// Follows a training: loss, rate and time left.
pub struct Training {
    steps: u32,
    spoken: Option<Instant>,
    bar: Option<ProgressBar>,
}

impl Training {
    /// Starts following a training of so many steps.
    pub fn new(steps: u32) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("[{bar:32}] {pos}/{len}  {msg}")
                .expect("the template is a constant")
                .progress_chars("=> ");
            ProgressBar::with_draw_target(Some(u64::from(steps)), ProgressDrawTarget::stderr())
                .with_style(style)
        });
        Self { steps, spoken: None, bar }
    }

    /// Shows where the training stands.
    pub fn report(&mut self, report: &StepReport) {
        let text = training_line(report);
        if let Some(bar) = &self.bar {
            bar.set_position(u64::from(report.step));
            bar.set_message(text);
            return;
        }
        let due = self.spoken.is_none_or(|spoken| spoken.elapsed() >= PAUSE);
        if due || report.validation.is_some() || report.step == self.steps {
            self.spoken = Some(Instant::now());
            say(&format!("step {}/{}: {text}", report.step, report.steps));
        }
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Loss, rate, time left and, if it was measured, the validation error.
fn training_line(report: &StepReport) -> String {
    let left = f64::from(report.steps - report.step) / report.steps_per_second;
    let validation =
        report.validation.map_or(String::new(), |error| format!(", validation error {error:.3e}"));
    format!("loss {:.3e}, {:.1} steps/s, {left:.0} s left{validation}", report.loss, report.steps_per_second)
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
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
    fn a_plain_line_has_rate_and_time_left() {
        let text = line("simulating", 20, 120, Duration::from_secs(4));
        assert_eq!(text, "simulating: 20/120, 5.0/s, 20 s left");
    }
}
