//! How long did a host's operations take? Lenient by operation.

use std::{collections::HashSet, time::Duration};

use usher_types::{FieldFault, Latency, OperationName, OperationWindow};

use crate::{
    fault::{Faults, id, nested, within},
    v1,
};

/// More names than this are ids mistaken for names; the agent's own cap is lower.
const MAX_OPERATIONS: usize = 1024;
/// Bound on counts and on microseconds: 10^18 us are 30000 years, and sums and products of such numbers stay finite.
const MAX_NUMBER: f64 = 1e18;

/// The whole window of every operation, and what of it was refused.
pub fn latency(msg: v1::Latency) -> (Latency, Vec<FieldFault>) {
    let mut faults = Faults::default();
    let mut list = msg.operations;
    faults.cut_list("operations", &mut list, MAX_OPERATIONS);
    let mut seen = HashSet::new();
    let mut operations = Vec::with_capacity(list.len());
    for (i, msg) in list.into_iter().enumerate() {
        match operation(&mut faults, i, msg) {
            Ok(operation) if seen.insert(operation.name.clone()) => operations.push(operation),
            Ok(operation) => {
                let field = format!("operations[{i}].name");
                faults.push(FieldFault::new(field, operation.name, "each name once; the first is kept"));
            }
            Err(fault) => faults.push(nested(fault, format_args!("operations[{i}]"))),
        }
    }
    let latency = Latency {
        sequence: msg.sequence,
        incarnation_ms: msg.incarnation_ms,
        window: Duration::from_millis(msg.window_ms),
        operations,
        overflow_calls: msg.overflow_calls,
    };
    (latency, faults.into_vec())
}

/// A wrong count makes the operation useless; a wrong optional number is as good as an absent one.
fn operation(faults: &mut Faults, i: usize, msg: v1::OperationWindow) -> Result<OperationWindow, FieldFault> {
    let name: OperationName = id("name", &msg.name)?;
    let [ok, failed, too_long, sum_us] =
        [("ok", msg.ok), ("failed", msg.failed), ("too_long", msg.too_long), ("sum_us", msg.sum_us)]
            .map(|(field, value)| within(field, value, 0.0..=MAX_NUMBER));
    let (ok, failed, too_long, sum_us) = (ok?, failed?, too_long?, sum_us?);
    let mut positive = |field: &str, value: Option<f64>| {
        let checked = above_zero(field, value?);
        faults.ok(checked.map_err(|fault| nested(fault, format_args!("operations[{i}]"))))
    };
    Ok(OperationWindow {
        name,
        ok,
        failed,
        too_long,
        sum_us,
        min_us: positive("min_us", msg.min_us),
        in_flight: msg.in_flight,
        oldest_in_flight: msg.oldest_in_flight_ms.map(Duration::from_millis),
        baseline_us: positive("baseline_us", msg.baseline_us),
        baseline_age: msg.baseline_age_ms.map(Duration::from_millis),
        baseline_samples: msg.baseline_samples,
        baseline_is_provisional: msg.baseline_provisional,
    })
}

fn above_zero(field: &str, value: f64) -> Result<f64, FieldFault> {
    if value > 0.0 && value <= MAX_NUMBER {
        Ok(value)
    } else {
        Err(FieldFault::new(field, value, format!("above 0, at most {MAX_NUMBER}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(name: &str) -> v1::OperationWindow {
        v1::OperationWindow { name: name.to_owned(), ok: 2.0, sum_us: 10.0, ..Default::default() }
    }

    fn fields(operations: Vec<v1::OperationWindow>) -> (Vec<OperationWindow>, Vec<String>) {
        let (latency, faults) = latency(v1::Latency { operations, ..Default::default() });
        (latency.operations, faults.into_iter().map(|fault| fault.field).collect())
    }

    #[test]
    fn an_operation_with_a_wrong_count_is_left_out_and_the_others_stay() {
        let wrong = v1::OperationWindow { sum_us: f64::INFINITY, ..window("open") };
        let negative = v1::OperationWindow { failed: -1.0, ..window("save") };
        let (taken, fields) = fields(vec![wrong, window("login"), negative]);
        assert_eq!(taken.len(), 1);
        assert_eq!(fields, ["operations[0].sum_us", "operations[2].failed"]);
    }

    #[test]
    fn a_baseline_of_zero_is_as_good_as_none_and_is_named() {
        let wrong = v1::OperationWindow { baseline_us: Some(0.0), min_us: Some(f64::NAN), ..window("open") };
        let (taken, fields) = fields(vec![wrong]);
        assert_eq!((taken[0].baseline_us, taken[0].min_us), (None, None));
        assert_eq!(fields, ["operations[0].min_us", "operations[0].baseline_us"]);
    }

    #[test]
    fn of_two_operations_of_one_name_the_first_is_kept() {
        let second = v1::OperationWindow { ok: 9.0, ..window("open") };
        let (taken, fields) = fields(vec![window("open"), second]);
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0].ok, 2.0);
        assert_eq!(fields, ["operations[1].name"]);
    }

    #[test]
    fn operations_beyond_the_cap_are_cut_and_named() {
        let (taken, fields) = fields((0..1030).map(|i| window(&format!("op{i}"))).collect());
        assert_eq!((taken.len(), fields), (1024, vec!["operations".to_owned()]));
    }
}
