//! What is a host to keep of its drain, and what has it kept?

use usher_types::FieldFault;

use super::drain;
use crate::{
    fault::{MAX_TEXT_BYTES, cut, nested},
    messages::{DrainKept, SetDrain, SetDrainAnswer},
    v1,
};

/// The drain that a host is to keep, or that it is to keep none.
///
/// # Errors
/// The fault, if the mode of the drain is unspecified or unknown: the drain stays as it is.
pub fn set_drain(msg: v1::SetDrain) -> Result<SetDrain, FieldFault> {
    let drain = msg.drain.map(|msg| drain(msg).map_err(|fault| nested(fault, "drain"))).transpose()?;
    Ok(SetDrain { nonce: msg.nonce, drain })
}

/// What a host says that it has kept. A drain that cannot be read is taken for none: the host's next Load says it again.
pub fn set_drain_answer(msg: v1::SetDrainAnswer) -> SetDrainAnswer {
    let read = |msg: Option<v1::Drain>| msg.and_then(|msg| drain(msg).ok());
    let outcome = match msg.error {
        Some(error) => Err(cut(error, MAX_TEXT_BYTES)),
        None => Ok(DrainKept { before: read(msg.before), holds: read(msg.holds) }),
    };
    SetDrainAnswer { nonce: msg.nonce, outcome }
}

#[cfg(test)]
mod tests {
    use usher_types::{Drain, DrainMode};

    use super::*;
    use crate::write;

    #[test]
    fn a_drain_and_what_became_of_it_come_back_as_they_were_sent() {
        let drain = Drain {
            mode: DrainMode::Persistent,
            reason: "disks".to_owned(),
            author: "ann".to_owned(),
            no_reconnect: true,
        };
        for drain in [None, Some(drain)] {
            let told = SetDrain { nonce: 7, drain: drain.clone() };
            assert_eq!(set_drain(write::set_drain(&told)), Ok(told));
            let kept = DrainKept { before: None, holds: drain };
            for outcome in [Ok(kept), Err("no space left on device".to_owned())] {
                let told = SetDrainAnswer { nonce: 7, outcome };
                assert_eq!(set_drain_answer(write::set_drain_answer(&told)), told);
            }
        }
    }

    #[test]
    fn a_drain_of_no_known_kind_is_refused() {
        let msg = v1::SetDrain { nonce: 1, drain: Some(v1::Drain::default()) };
        assert_eq!(set_drain(msg).unwrap_err().field, "drain.mode");
    }
}
