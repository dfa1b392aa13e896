//! Does a user still have a session?
//!
//! A coordinator that sends somebody back to a session asks first. The last look at the sessions may be of before its end,
//! so a fresh one is asked for, and the answer waits for it; not for longer than a second, and not with more than a thousand
//! others: then what is known is told.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{HostTask, send};
use crate::host::handle::Answer;

/// Longest wait for a fresh look at the sessions before a check is answered with what is known.
const CHECK_WAIT: Duration = Duration::from_secs(1);
/// Checks that wait for that look; more are answered with what is known.
const CHECKS_WAITING: usize = 1024;

/// A question that waits for a fresh look.
#[derive(Debug)]
pub(super) struct WaitingCheck {
    pub(super) check_id: u64,
    pub(super) session_id: String,
    pub(super) user: String,
    pub(super) reply: mpsc::Sender<Answer>,
}

impl HostTask {
    pub(super) fn ask_for_refresh(&self) -> bool {
        self.inputs.refresh.as_ref().map(|refresh| refresh.notify_one()).is_some()
    }

    pub(super) fn check(&mut self, check: WaitingCheck) {
        if self.checks.len() < CHECKS_WAITING && self.ask_for_refresh() {
            self.checks.push(check);
            self.checks_due.get_or_insert_with(|| Instant::now() + CHECK_WAIT);
        } else {
            self.answer_check(check);
        }
    }

    pub(super) fn answer_checks(&mut self) {
        self.checks_due = None;
        for check in std::mem::take(&mut self.checks) {
            self.answer_check(check);
        }
    }

    fn answer_check(&self, check: WaitingCheck) {
        let exists = self.core.has_session(&check.session_id, &check.user);
        send(&check.reply, Answer::Session { check_id: check.check_id, exists });
    }
}
