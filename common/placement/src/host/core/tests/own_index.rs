//! An availability index of the host's own making is what counts, whoever delivers it.

use super::*;

// rule: own-index
// rule: state-exit-margin
#[test]
fn an_index_of_the_hosts_own_making_is_what_latches() {
    let mut core = core();
    core.settings_told(0, told(1, |policy| policy.threshold_percent = 30.0), at(0));
    let domino = |index| {
        let own =
            usher_types::OwnAvailability { index: Percent::new(index).unwrap(), source: "domino".into() };
        Measurement { own_availability: Some(own), ..Measurement::default() }
    };
    core.measure(domino(30.0), nobody(), at(1));
    assert_eq!(core.latched(), BusyReasons::AVAILABILITY);
    core.measure(domino(34.0), nobody(), at(2));
    assert_eq!(core.latched(), BusyReasons::AVAILABILITY, "inside the margin");
    core.measure(domino(35.0), nobody(), at(3));
    assert_eq!(core.latched(), BusyReasons::NONE);
}

// rule: own-index
#[test]
fn an_index_that_a_program_delivers_is_used_and_latches_at_once() {
    let mut core = core();
    core.settings_told(0, told(1, |policy| policy.threshold_percent = 30.0), at(0));
    let own = |index, source: &str| {
        Some(usher_types::OwnAvailability { index: Percent::new(index).unwrap(), source: source.into() })
    };
    let measured = Measurement {
        own_availability: own(90.0, "measured"),
        replica_lag: Some(Duration::from_secs(10)),
        ..Measurement::default()
    };
    core.measure(measured, nobody(), at(1));
    let delivered = Standing {
        own_availability: own(30.0, "domino"),
        replica_lag: Some(Duration::from_secs(90)),
        ..Standing::default()
    };
    assert!(core.set_standing(delivered, at(2)), "a latch is kept over a restart");
    assert_eq!(core.latched(), BusyReasons::AVAILABILITY);
    let load = core.load(at(2), 0).unwrap();
    assert_eq!(
        (load.own_availability, load.replica_lag),
        (own(30.0, "domino"), Some(Duration::from_secs(90)))
    );
    core.set_standing(Standing::default(), at(3));
    assert_eq!(core.latched(), BusyReasons::NONE);
    let load = core.load(at(3), 0).unwrap();
    assert_eq!(
        (load.own_availability, load.replica_lag),
        (own(90.0, "measured"), Some(Duration::from_secs(10)))
    );
}
