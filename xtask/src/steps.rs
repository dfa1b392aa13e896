//! Which step is running, how long each took, and which one stopped the rest.

use std::time::Instant;

use anyhow::Context;

/// The steps of one command, in the order in which they ran.
#[derive(Debug)]
pub(crate) struct Steps {
    started: Instant,
    done: Vec<(&'static str, f64)>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), done: Vec::new() }
    }

    /// Announces a step, runs it and says how long it took in seconds.
    ///
    /// # Errors
    ///
    /// The step's own error, with the step's name before it.
    pub(crate) fn run<T>(
        &mut self,
        name: &'static str,
        step: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        println!("== {name}");
        let started = Instant::now();
        let result = step();
        let seconds = started.elapsed().as_secs_f64();
        println!("== {name}: {} after {seconds:.1} s", if result.is_ok() { "done" } else { "FAILED" });
        self.done.push((name, seconds));
        result.with_context(|| format!("step `{name}`"))
    }

    /// One line: how many steps passed and how long they took together.
    pub(crate) fn summary(&self) -> String {
        let slowest = self.done.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let slowest = slowest.map(|(name, seconds)| format!(", longest {name} with {seconds:.0} s"));
        format!(
            "{} steps in {:.0} s{}",
            self.done.len(),
            self.started.elapsed().as_secs_f64(),
            slowest.unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_is_named_in_its_error() {
        let mut steps = Steps::new();
        let error =
            steps.run("clippy", || -> anyhow::Result<()> { anyhow::bail!("3 warnings") }).unwrap_err();
        assert_eq!(format!("{error:#}"), "step `clippy`: 3 warnings");
    }

    #[test]
    fn the_summary_counts_every_step_that_ran() {
        let mut steps = Steps::new();
        steps.run("one", || Ok(())).unwrap();
        steps.run("two", || Ok(())).unwrap();
        assert!(steps.summary().starts_with("2 steps in "), "{}", steps.summary());
    }
}
