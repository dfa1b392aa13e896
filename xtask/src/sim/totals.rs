//! What all seeds together came to, for people and as a document.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::child::Ended;

/// The invariants, in the order in which they are shown, and what each says.
const INVARIANTS: [(&str, &str); 9] = [
    ("limit", "places given or admitted beyond a host's limit"),
    ("one_host", "logins with places on two hosts, or answered differently"),
    ("seen", "runs in which a coordinator did not see a host again"),
    ("views_agree", "runs in which coordinators did not agree in the end"),
    ("grace", "hosts called OFFLINE in a grace, unheard"),
    ("kept", "acknowledged settings or drains that were lost"),
    ("no_panic", "panics, and programs that did not end well"),
    ("no_leak", "coordinators that left tasks behind"),
    ("deadline", "calls that nothing stood in the way of and that were not answered in time"),
];
/// An agent that was refused is back within 30 s; a stream that hangs is found within 15 s, and a connection that
/// hangs within 10 s.
const SEEN_WITHIN_S: f64 = 35.0;
/// The last places are taken 35 s after the healing and live for 20 s; then reports tell that they are over.
const AGREED_WITHIN_S: f64 = 65.0;

/// The sums of all seeds.
#[derive(Debug, Default)]
pub(super) struct Totals {
    seeds: u64,
    lost: u64,
    simulated_seconds: f64,
    events: u64,
    counts: BTreeMap<String, u64>,
    checks: BTreeMap<String, u64>,
    violations: BTreeMap<String, u64>,
    seen: Vec<f64>,
    agreed: Vec<f64>,
    longest_call_ms: u64,
    hashes: Vec<String>,
}

impl Totals {
    pub(super) fn add(&mut self, ended: &Ended) {
        self.seeds += 1;
        let Ended::Told(outcome) = ended else {
            self.lost += 1;
            return;
        };
        self.simulated_seconds += outcome.simulated_seconds;
        self.events += outcome.events;
        for (name, count) in &outcome.counts {
            *self.counts.entry(name.clone()).or_default() += count;
        }
        for (name, count) in &outcome.checks {
            *self.checks.entry(name.clone()).or_default() += count;
        }
        for broken in &outcome.violations {
            *self.violations.entry(broken.invariant.clone()).or_default() += 1;
        }
        self.seen.extend(outcome.seen_seconds);
        self.agreed.extend(outcome.agreed_seconds);
        self.longest_call_ms = self.longest_call_ms.max(outcome.longest_call_ms);
        self.hashes.push(outcome.hash.clone());
    }

    fn of(map: &BTreeMap<String, u64>, name: &str) -> u64 {
        map.get(name).copied().unwrap_or_default()
    }

    /// For people.
    pub(super) fn table(&self, seconds: f64) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\n{} seeds, {:.1} simulated hours, {} events, in {seconds:.0} s",
            self.seeds,
            self.simulated_seconds / 3600.0,
            self.events
        );
        let _ = writeln!(text, "\nwhat happened");
        for (name, count) in &self.counts {
            let _ = writeln!(text, "  {count:>9}  {}", name.replace('_', " "));
        }
        let _ = writeln!(text, "\ninvariant       checked   broken");
        for (name, what) in INVARIANTS {
            let (checked, broken) = (Self::of(&self.checks, name), Self::of(&self.violations, name));
            let _ = writeln!(text, "{name:<13} {checked:>9} {broken:>8}  {what}");
        }
        let _ = writeln!(text, "\nafter everything was healed            median    worst");
        for (what, times) in
            [("every coordinator saw every host", &self.seen), ("all views agreed", &self.agreed)]
        {
            let (median, worst) = (quantile(times, 0.5), quantile(times, 1.0));
            let _ = writeln!(text, "  {what:<34} {median:>6.1} s {worst:>6.1} s");
        }
        let _ = writeln!(
            text,
            "  the longest call that nothing stood in the way of  {:>6} ms",
            self.longest_call_ms
        );
        text
    }

    /// One document that ends in the goals.
    ///
    /// # Errors
    ///
    /// Never: everything in it has a form in JSON.
    pub(super) fn document(&self, from: u64, seeds: u64, seconds: f64) -> serde_json::Result<String> {
        let times = |times: &[f64]| {
            json!({
                "median": quantile(times, 0.5), "p90": quantile(times, 0.9), "worst": quantile(times, 1.0),
                "runs": times.len(),
            })
        };
        let document = json!({
            "from": from,
            "seeds": seeds,
            "seconds": round(seconds),
            "simulated_seconds": round(self.simulated_seconds),
            "events": self.events,
            "counts": self.counts,
            "checks": self.checks,
            "seen_seconds": times(&self.seen),
            "agreed_seconds": times(&self.agreed),
            "goals": self.goals(),
        });
        serde_json::to_string_pretty(&document)
    }

    fn goals(&self) -> Vec<Value> {
        let mut goals: Vec<Value> = INVARIANTS
            .iter()
            .map(|(name, what)| {
                let figure = Self::of(&self.violations, name);
                goal(&format!("sim_{name}"), what, 0.0, figure as f64, "violations", &[])
            })
            .collect();
        goals.push(goal("sim_lost", "runs that crashed or hung", 0.0, self.lost as f64, "runs", &[]));
        let seen = "worst time from the healing until every coordinator saw every host";
        goals.push(goal("sim_seen_worst", seen, SEEN_WITHIN_S, quantile(&self.seen, 1.0), "s", &self.seen));
        let agreed = "worst time from the healing until all views agreed, the last places ended";
        let worst = quantile(&self.agreed, 1.0);
        goals.push(goal("sim_agreed_worst", agreed, AGREED_WITHIN_S, worst, "s", &self.agreed));
        goals
    }
}

fn goal(id: &str, what: &str, bound: f64, figure: f64, unit: &str, of: &[f64]) -> Value {
    let spread = [quantile(of, 0.0), quantile(of, 1.0)];
    json!({
        "id": id, "what": what, "bound": format!("<= {bound}"), "figure": figure, "unit": unit,
        "spread": if of.is_empty() { [figure, figure] } else { spread }, "met": figure <= bound,
    })
}

/// 0 of none.
fn quantile(of: &[f64], share: f64) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    round(sorted.get(at).copied().unwrap_or_default())
}

fn round(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::super::child::run_seed;
    use super::*;

    #[test]
    fn a_run_that_is_lost_misses_its_goal() {
        let mut totals = Totals::default();
        totals.add(&run_seed(std::path::Path::new("/bin/true"), 1, false, None));
        let document: Value = serde_json::from_str(&totals.document(1, 1, 0.5).unwrap()).unwrap();
        let goals = document["goals"].as_array().unwrap();
        assert_eq!(goals.len(), INVARIANTS.len() + 3);
        let lost = goals.iter().find(|goal| goal["id"] == "sim_lost").unwrap();
        assert_eq!((lost["met"].as_bool(), lost["figure"].as_f64()), (Some(false), Some(1.0)));
    }

    #[test]
    fn the_middle_and_the_worst_of_some_times() {
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 1.0), 3.0);
    }
}
