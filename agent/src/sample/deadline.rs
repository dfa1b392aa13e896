//! What if reading a file never comes back?
//!
//! A read of a dead network mount, or of a driver's file, can hang for ever and cannot be cancelled. It runs on a
//! thread of its own and is waited for only so long; the report then goes out without it. As long as it hangs it is
//! not started again, or each interval would leave one more stuck thread behind.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::error::SampleError;

/// Blocking work with a state of its own, of which at most one piece runs.
#[derive(Debug)]
pub(crate) struct Detached<S> {
    subject: &'static str,
    state: Option<S>,
    /// The thread that holds the state.
    running: Option<JoinHandle<S>>,
}

impl<S: Default + Send + 'static> Detached<S> {
    /// `subject` names the work in errors.
    pub(crate) fn new(subject: &'static str) -> Self {
        Self { subject, state: Some(S::default()), running: None }
    }

    /// Runs `work` on a blocking thread and waits at most `deadline` for it.
    ///
    /// # Errors
    /// When it does not come back in time, when an earlier one has not come back yet, or when it broke off (its state
    /// then begins anew).
    pub(crate) async fn run<R: Send + 'static>(
        &mut self,
        deadline: Duration,
        work: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Result<R, SampleError> {
        let subject = self.subject;
        match self.running.take() {
            Some(running) if !running.is_finished() => {
                self.running = Some(running);
                return Err(SampleError::StillHangs { subject });
            }
            Some(finished) => self.state = finished.await.ok(),
            None => {}
        }
        let mut state = self.state.take().unwrap_or_default();
        let (answer, answered) = oneshot::channel();
        self.running = Some(tokio::task::spawn_blocking(move || {
            // Nobody may wait any more: the answer is then too old to be used.
            let _ = answer.send(work(&mut state));
            state
        }));
        let result = tokio::time::timeout(deadline, answered)
            .await
            .map_err(|_| SampleError::TimedOut { subject, limit_ms: deadline.as_millis() })?;
        // The answer, or the lack of one, is the last but one step of the thread: this wait is that of a return. A
        // thread that broke off took its state along.
        if let Some(running) = self.running.take() {
            self.state = running.await.ok();
        }
        result.map_err(|_| SampleError::BrokeOff { subject })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn work_that_hangs_is_left_alone_until_it_returns() {
        let mut work = Detached::<u32>::new("disk");
        let (release, hang) = mpsc::channel::<()>();
        let hung = work
            .run(Duration::from_millis(20), move |count| {
                *count += 1;
                let _ = hang.recv();
            })
            .await;
        assert_eq!(hung.expect_err("hung").to_string(), "disk: timed out after 20 ms");

        let again = work.run(LONG, |_| ()).await;
        assert_eq!(again.expect_err("not started").to_string(), "disk: timed out earlier and still hangs");

        drop(release);
        tokio::time::timeout(LONG, async {
            while work.running.as_ref().is_some_and(|running| !running.is_finished()) {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("it came back");
        // The state of the late run was not lost.
        assert_eq!(work.run(LONG, |count| *count).await.expect("runs again"), 1);
    }

    #[tokio::test]
    async fn work_that_breaks_off_is_an_error_once() {
        let mut work = Detached::<u32>::new("disk");
        let broken = work.run(LONG, |_| panic!("on purpose")).await;
        assert_eq!(broken.expect_err("broken").to_string(), "disk: the reading thread broke off");
        assert_eq!(work.run(LONG, |count| *count).await.expect("runs again"), 0);
    }
}
