//! What becomes of the words of programs about their calls?
//!
//! They are counted in the host's operations. What is refused there is counted by its reason: whoever sends it gets no
//! answer, so this is the place where a program with impossible durations or a flood of names shows.

use std::collections::BTreeMap;

use usher_availability::RejectedSample;
use usher_placement::host::HostCore;
use usher_types::BootTime;

use crate::latency::in_flight::CallsInFlight;
use crate::latency::listener::{OwnedTiming, OwnedWord, TimingBatch};

/// Counts words into a host.
#[derive(Debug, Default)]
pub(crate) struct CallCounter {
    in_flight: CallsInFlight,
    refused: BTreeMap<&'static str, u64>,
}

impl CallCounter {
    /// Counts `words` into `core`.
    pub(crate) fn take(&mut self, core: &mut HostCore, words: TimingBatch, now: BootTime) {
        for word in words {
            if let Err(refused) = self.take_word(core, word, now) {
                tracing::debug!(%refused, "a word about calls is not counted");
                *self.refused.entry(reason(refused)).or_default() += 1;
            }
        }
    }

    fn take_word(
        &mut self,
        core: &mut HostCore,
        word: OwnedWord,
        now: BootTime,
    ) -> Result<(), RejectedSample> {
        match word {
            OwnedWord::Finished(OwnedTiming { name, duration_us, weight }) => {
                core.count_call(&name, duration_us, weight)
            }
            OwnedWord::Failed { name, weight } => core.operations_mut().record_failure(&name, weight),
            OwnedWord::InFlight { name, count, oldest } => {
                core.operations_mut().set_in_flight(&name, count, oldest)?;
                self.in_flight.tell(&name, count, oldest, now);
                Ok(())
            }
        }
    }

    /// Calls in flight have grown older since they were told. Before a period ends.
    pub(crate) fn age_in_flight(&mut self, core: &mut HostCore, now: BootTime) {
        for calls in self.in_flight.at(now) {
            // The name was taken when it was told; one that was forgotten since has no calls.
            if let Err(refused) = core.operations_mut().set_in_flight(&calls.name, calls.count, calls.oldest)
            {
                tracing::debug!(%refused, operation = calls.name, "calls in flight are not counted");
            }
        }
    }

    /// How many words were refused since the start, by reason.
    pub(crate) fn refused(&self) -> BTreeMap<&'static str, u64> {
        self.refused.clone()
    }
}

fn reason(refused: RejectedSample) -> &'static str {
    match refused {
        RejectedSample::BelowResolution => "below_resolution",
        RejectedSample::NotADuration => "not_a_duration",
        RejectedSample::BadWeight => "bad_weight",
        RejectedSample::BadCounts => "bad_counts",
        RejectedSample::BadName => "bad_name",
        RejectedSample::Overflow => "too_many_names",
    }
}
