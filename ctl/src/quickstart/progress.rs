//! What is the farm doing while nobody sees it yet?
//!
//! A spinner for a person at a terminal, plain lines otherwise. On stderr: stdout belongs to the answer.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::ProgressBar;

use crate::output::remark;

/// Where progress is told.
#[derive(Debug)]
pub(super) struct Progress {
    spinner: Option<ProgressBar>,
    last: String,
}

impl Progress {
    /// A spinner if stderr is a terminal.
    pub(super) fn new() -> Self {
        let spinner = std::io::stderr().is_terminal().then(|| {
            let spinner = ProgressBar::new_spinner();
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        Self { spinner, last: String::new() }
    }

    /// Says what is so now; nothing if that has been said.
    pub(super) fn say(&mut self, message: &str) {
        if message == self.last {
            return;
        }
        message.clone_into(&mut self.last);
        match &self.spinner {
            Some(spinner) => spinner.set_message(self.last.clone()),
            None => remark(message),
        }
    }

    /// Takes the spinner away.
    pub(super) fn finish(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
