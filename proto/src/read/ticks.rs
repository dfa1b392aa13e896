//! What does a coordinator tell a host without asking for anything?

use std::time::Duration;

use usher_types::FieldFault;

use crate::{
    fault::id,
    messages::{ResetBaselines, Tick},
    v1,
};

/// The beat of a stream. Every number of it is one.
pub fn tick(msg: v1::Tick) -> Tick {
    Tick {
        tick: msg.tick,
        reconnect_spread: msg.reconnect_spread_ms.map(|ms| Duration::from_millis(ms.into())),
        confirmed_elsewhere: msg.confirmed_elsewhere_ms.map(Duration::from_millis),
    }
}

/// What a host is to forget.
///
/// # Errors
/// The fault, if the operation's name is none: nothing is forgotten then, rather than everything.
pub fn reset_baselines(msg: v1::ResetBaselines) -> Result<ResetBaselines, FieldFault> {
    Ok(ResetBaselines { operation: msg.operation.map(|name| id("operation", &name)).transpose()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write;

    #[test]
    fn a_tick_of_a_coordinator_of_0_1_says_nothing_of_other_hosts() {
        assert_eq!(tick(v1::Tick { tick: 7, ..Default::default() }), Tick { tick: 7, ..Tick::default() });
        let told = Tick {
            tick: 8,
            reconnect_spread: Some(Duration::from_secs(2)),
            confirmed_elsewhere: Some(Duration::ZERO),
        };
        assert_eq!(tick(write::tick(told)), told);
    }

    #[test]
    fn a_name_that_is_none_does_not_make_a_host_forget_everything() {
        for wrong in ["", "a b"] {
            let msg = v1::ResetBaselines { operation: Some(wrong.to_owned()) };
            assert_eq!(reset_baselines(msg).unwrap_err().field, "operation");
        }
        assert_eq!(reset_baselines(v1::ResetBaselines::default()), Ok(ResetBaselines::default()));
    }
}
