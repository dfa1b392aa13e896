//! Which value of the types is a number of the wire, and the other way round?
//!
//! 0 (unspecified) and numbers of a newer peer are nobody's value: they are refused, never mapped to a neighbour.

use usher_types::{
    Affinity, Baseline, DoorKind, DrainMode, EndReason, FailureCause, FieldFault, Goodbye, HostState, Method,
    Outcome, PenaltyCause, PendingMode, RefusalReason, ReplicaMark, SessionState, UserMatch, UserNames,
    WhenBlind,
};

use crate::{
    json::{EnumNames, enum_name},
    v1,
};

fn unknown<E: EnumNames>(field: &str, number: i32) -> FieldFault {
    let known = E::NAMES.iter().filter(|(number, _)| *number != 0).map(|(_, name)| *name);
    FieldFault::new(field, enum_name::<E>(number), known.collect::<Vec<_>>().join(", "))
}

macro_rules! wire_enum {
    ($read:ident, $ty:ident, $wire:ident { $($variant:ident),+ }) => {
        #[doc = concat!("The [`", stringify!($ty), "`] in `field`.")]
        ///
        /// # Errors
        /// The fault, if the number is unspecified or unknown.
        pub fn $read(field: &str, number: i32) -> Result<$ty, FieldFault> {
            match v1::$wire::try_from(number) {
                $(Ok(v1::$wire::$variant) => Ok($ty::$variant),)+
                Ok(v1::$wire::Unspecified) | Err(_) => Err(unknown::<v1::$wire>(field, number)),
            }
        }

        impl From<$ty> for v1::$wire {
            fn from(value: $ty) -> Self {
                match value {
                    $($ty::$variant => Self::$variant,)+
                }
            }
        }
    };
}

wire_enum!(
    host_state,
    HostState,
    HostState { Offline, NotReady, Restricted, Unknown, MaxUsers, Busy, Available, Warming }
);
wire_enum!(session_state, SessionState, SessionState { Active, Disconnected, Lingering });
wire_enum!(drain_mode, DrainMode, DrainMode { UntilRestart, Persistent });
wire_enum!(end_reason, EndReason, EndReason { Session, Cancelled, Failed, Expired, HostLost, Superseded });
wire_enum!(outcome, Outcome, Outcome { Connected, Failed, Cancelled, Ended });
// The wire keeps the name that 0.1 gave it, when only failovers had a cause.
wire_enum!(failure_cause, FailureCause, FailoverCause { Busy, Unreachable, Refused, Auth, Other });
wire_enum!(penalty_cause, PenaltyCause, PenaltyCause { Failed, Unconfirmed });
wire_enum!(
    refusal_reason,
    RefusalReason,
    RefusalReason { MaxUsers, NotReady, Ended, ListFull, MaxPending, Reused }
);
wire_enum!(goodbye_reason, Goodbye, GoodbyeReason { HostShutdown, AgentStop });
wire_enum!(method, Method, Method { WeightedLoad, Availability, Predictive, FillFirst });
wire_enum!(baseline, Baseline, Baseline { Minimum, Robust });
wire_enum!(affinity, Affinity, Affinity { Session, Disconnected, Linger, None });
wire_enum!(user_match, UserMatch, UserMatch { Folded, Exact });
wire_enum!(user_names, UserNames, UserNames { Plain, Hashed, None });
wire_enum!(pending_mode, PendingMode, PendingMode { Soft, Hard });
wire_enum!(when_blind, WhenBlind, WhenBlind { Spread, Refuse });
wire_enum!(door_kind, DoorKind, DoorKind { None, Ssh, Rdp, Http, Tcp });
wire_enum!(replica_mark, ReplicaMark, ReplicaMark { OutOfService, PendingDelete });

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    /// Every number of the wire but 0 is one value, and comes back as the same number.
    fn both_ways<E, T>(read: impl Fn(&str, i32) -> Result<T, FieldFault>)
    where
        E: EnumNames + From<T> + Into<i32>,
        T: Debug,
    {
        for (number, name) in E::NAMES {
            match read("f", *number) {
                Ok(value) => assert_eq!(E::from(value).into(), *number, "{name}"),
                Err(fault) => assert_eq!((*number, fault.value.as_str()), (0, "UNSPECIFIED")),
            }
        }
        for number in [-1, 99, i32::MAX, i32::MIN] {
            assert!(read("f", number).is_err(), "{number}");
        }
    }

    #[test]
    fn every_enum_goes_both_ways_and_refuses_what_it_does_not_know() {
        both_ways::<v1::HostState, _>(host_state);
        both_ways::<v1::SessionState, _>(session_state);
        both_ways::<v1::DrainMode, _>(drain_mode);
        both_ways::<v1::EndReason, _>(end_reason);
        both_ways::<v1::Outcome, _>(outcome);
        both_ways::<v1::RefusalReason, _>(refusal_reason);
        both_ways::<v1::GoodbyeReason, _>(goodbye_reason);
        both_ways::<v1::Method, _>(method);
        both_ways::<v1::Baseline, _>(baseline);
        both_ways::<v1::Affinity, _>(affinity);
        both_ways::<v1::UserMatch, _>(user_match);
        both_ways::<v1::FailoverCause, _>(failure_cause);
        both_ways::<v1::PenaltyCause, _>(penalty_cause);
        both_ways::<v1::UserNames, _>(user_names);
        both_ways::<v1::PendingMode, _>(pending_mode);
        both_ways::<v1::WhenBlind, _>(when_blind);
        both_ways::<v1::DoorKind, _>(door_kind);
        both_ways::<v1::ReplicaMark, _>(replica_mark);
    }

    #[test]
    fn a_refused_enum_lists_what_is_allowed() {
        let fault = drain_mode("drain.mode", 0).unwrap_err();
        assert_eq!(fault.to_string(), "drain.mode = UNSPECIFIED: allowed UNTIL_RESTART, PERSISTENT");
    }
}
