//! Is a report newer than what its stream has brought before?
//!
//! A stream keeps its order, so of an agent of ours it always is. What comes twice, late, or from another start of the
//! agent can only be somebody's error on the way, and it must not put an older state in the place of a newer one. Reports
//! without numbers, as a simple reporter sends them, are taken as they come.

/// What is numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Load,
    Latency,
}

/// The newest numbers of one stream.
#[derive(Debug)]
pub(super) struct Order {
    incarnation_ms: u64,
    load: u64,
    latency: u64,
}

impl Order {
    /// Of a stream of the agent that started then, as it said.
    pub(super) fn of(incarnation_ms: u64) -> Self {
        Self { incarnation_ms, load: 0, latency: 0 }
    }

    /// Whether a report with these numbers is newer than those before. 0: it has none.
    pub(super) fn is_next(&mut self, kind: Kind, sequence: u64, incarnation_ms: u64) -> bool {
        if incarnation_ms != 0 && incarnation_ms != self.incarnation_ms {
            return false;
        }
        let newest = match kind {
            Kind::Load => &mut self.load,
            Kind::Latency => &mut self.latency,
        };
        if sequence != 0 && sequence <= *newest {
            return false;
        }
        *newest = sequence.max(*newest);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_twice_late_or_from_another_start_is_not_taken() {
        let mut order = Order::of(1000);
        let mut load = |sequence, incarnation| order.is_next(Kind::Load, sequence, incarnation);
        assert!(load(1, 1000) && load(2, 1000) && load(9, 1000));
        assert!(!load(9, 1000) && !load(8, 1000), "twice, and late");
        assert!(!load(10, 999) && !load(10, 1001), "of another start");
        assert!(load(10, 1000));
        assert!(load(0, 0) && load(0, 0), "without numbers");
        assert!(order.is_next(Kind::Latency, 3, 1000), "each kind by itself");
    }
}
