//! What if reading a file never comes back?
//!
//! A read of a dead network mount, or of a driver's file, can hang for ever and cannot be cancelled. It runs on another
//! thread and is waited for only so long; the report then goes out without it. As long as it hangs it is not started
//! again, or each interval would leave one more stuck thread behind.
//!
//! Threads cost: waking six of them for six small files takes longer than reading the files. So those that are in the
//! kernel's own memory wait in a [`Line`] for one thread. Only when that thread is late does each that still waits get a
//! thread of its own, so that what hangs costs its own value and no other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::SampleError;

/// Blocking work.
type Job = Box<dyn FnOnce() + Send>;

/// What will answer, or why nothing was begun.
pub(crate) type Awaited<R> = Result<oneshot::Receiver<R>, SampleError>;

/// Blocking work with a state of its own, of which at most one piece runs.
#[derive(Debug)]
pub(crate) struct Detached<S> {
    subject: &'static str,
    state: Option<S>,
    /// Gives the state back when the work is done.
    running: Option<oneshot::Receiver<S>>,
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
        let (job, answered) = self.job(work)?;
        let begun = Instant::now();
        spawn_blocking(job);
        self.answer(Ok(answered), begun, deadline).await
    }

    /// Puts `work` into a line, whose thread will do it. Its outcome is that of [`Detached::answer`].
    pub(crate) fn queue<R: Send + 'static>(
        &mut self,
        line: &mut Line,
        work: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Awaited<R> {
        let (job, answered) = self.job(work)?;
        line.jobs.push_back(job);
        Ok(answered)
    }

    /// What queued work gave; waits until `deadline` after `begun`.
    ///
    /// # Errors
    /// As [`Detached::run`].
    pub(crate) async fn answer<R>(
        &mut self,
        answered: Awaited<R>,
        begun: Instant,
        deadline: Duration,
    ) -> Result<R, SampleError> {
        let subject = self.subject;
        timeout_at(begun + deadline, answered?)
            .await
            .map_err(|_| SampleError::TimedOut { subject, limit_ms: deadline.as_millis() })?
            .map_err(|_| SampleError::BrokeOff { subject })
    }

    fn job<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Result<(Job, oneshot::Receiver<R>), SampleError> {
        if let Some(mut running) = self.running.take() {
            match running.try_recv() {
                Ok(state) => self.state = Some(state),
                // It broke off and took its state along.
                Err(TryRecvError::Closed) => self.state = None,
                Err(TryRecvError::Empty) => {
                    self.running = Some(running);
                    return Err(SampleError::StillHangs { subject: self.subject });
                }
            }
        }
        let mut state = self.state.take().unwrap_or_default();
        let (give_back, given_back) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        self.running = Some(given_back);
        let job = move || {
            let result = work(&mut state);
            // First, so that whoever has the answer can begin the next piece. Nobody may wait for the answer any more:
            // it is then too old to be used.
            let _ = give_back.send(state);
            let _ = answer.send(result);
        };
        Ok((Box::new(job), answered))
    }
}

/// Pieces of blocking work for one thread.
#[derive(Default)]
pub(crate) struct Line {
    jobs: VecDeque<Job>,
}

impl Line {
    /// Does all of it, one after another. Comes back when it is done, or when that takes longer than `patience`: each
    /// piece that was not begun has a thread of its own by then.
    pub(crate) async fn work(self, patience: Duration) {
        let jobs = Arc::new(Mutex::new(self.jobs));
        let waiting = jobs.clone();
        let worker = spawn_blocking(move || {
            while let Some(job) = next(&waiting) {
                job();
            }
        });
        if !matches!(timeout(patience, worker).await, Ok(Ok(()))) {
            // Slow, hung, or broken off.
            while let Some(job) = next(&jobs) {
                spawn_blocking(job);
            }
        }
    }
}

/// The lock is not held while the work is done.
fn next(jobs: &Mutex<VecDeque<Job>>) -> Option<Job> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
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
        let again = async {
            loop {
                match work.run(LONG, |count| *count).await {
                    Err(SampleError::StillHangs { .. }) => tokio::task::yield_now().await,
                    result => return result,
                }
            }
        };
        let count = timeout(LONG, again).await.expect("it came back");
        // The state of the late run was not lost.
        assert_eq!(count.expect("runs again"), 1);
    }

    #[tokio::test]
    async fn work_that_breaks_off_is_an_error_once() {
        let mut work = Detached::<u32>::new("disk");
        let broken = work.run(LONG, |_| panic!("on purpose")).await;
        assert_eq!(broken.expect_err("broken").to_string(), "disk: the reading thread broke off");
        assert_eq!(work.run(LONG, |count| *count).await.expect("runs again"), 0);
    }

    #[tokio::test]
    async fn a_line_is_done_by_one_thread_while_all_is_well() {
        let mut works = [(); 3].map(|()| Detached::<u32>::new("file"));
        let mut line = Line::default();
        let name = |_: &mut u32| std::thread::current().id();
        let awaited: Vec<_> = works.iter_mut().map(|work| work.queue(&mut line, name)).collect();
        let begun = Instant::now();
        line.work(LONG).await;
        let mut threads = BTreeSet::new();
        for (work, awaited) in works.iter_mut().zip(awaited) {
            threads.insert(format!("{:?}", work.answer(awaited, begun, LONG).await.expect("done")));
        }
        assert_eq!(threads.len(), 1);
    }

    /// Two pieces of work in a line: what the first comes to, while the second must be done.
    async fn with_a_good_one(bad_work: impl FnOnce(&mut u32) + Send + 'static, limit: Duration) -> String {
        let (mut bad, mut good) = (Detached::<u32>::new("bad"), Detached::<u32>::new("good"));
        let mut line = Line::default();
        let awaited = bad.queue(&mut line, bad_work);
        let done = good.queue(&mut line, |count| *count + 7);
        let begun = Instant::now();
        line.work(Duration::from_millis(20)).await;
        assert_eq!(good.answer(done, begun, LONG).await.expect("done"), 7);
        bad.answer(awaited, begun, limit).await.expect_err("no answer").to_string()
    }

    #[tokio::test]
    async fn what_hangs_in_a_line_costs_no_other() {
        let (release, hang) = mpsc::channel::<()>();
        let error = with_a_good_one(
            move |_| {
                let _ = hang.recv();
            },
            Duration::from_millis(40),
        )
        .await;
        assert_eq!(error, "bad: timed out after 40 ms");
        drop(release);
    }

    #[tokio::test]
    async fn what_breaks_off_in_a_line_costs_no_other() {
        let error = with_a_good_one(|_| panic!("on purpose"), LONG).await;
        assert_eq!(error, "bad: the reading thread broke off");
    }
}
