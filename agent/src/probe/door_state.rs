//! When is a door shut?
//!
//! After three failures in a row: one lost packet, or one moment in which a server takes no more connections, must not
//! send everybody elsewhere. One success opens it, for whoever answered can answer.

/// Failures in a row that shut it.
const FAILURES: u32 = 3;

/// What was seen of a door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct DoorState {
    failures: u32,
}

impl DoorState {
    /// Takes the result of one try. Whether the door is shut now.
    pub(super) fn observe(&mut self, opened: bool) -> bool {
        self.failures = if opened { 0 } else { self.failures.saturating_add(1) };
        self.failures >= FAILURES
    }

    /// Failures since the last success.
    pub(super) fn failures(self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_shut_a_door_and_one_success_opens_it() {
        let mut door = DoorState::default();
        let tries = [false, false, true, false, false, false, false, true, false];
        let shut = tries.map(|opened| door.observe(opened));
        assert_eq!(shut, [false, false, false, false, false, true, true, false, false]);
        assert_eq!(door.failures(), 1);
    }
}
