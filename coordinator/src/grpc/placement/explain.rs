//! Why a host was chosen and no other, in the words of the wire.

use usher_placement::{
    decision::{
        Consent, ConsentAsked, Decision, Drawn, ExplainedHost, ExplainedPrediction, ExplainedRecord,
        RecordedRedirect,
    },
    load::{LearnedCosts, LoadTerms},
};
use usher_proto::{v1, write};
use usher_types::{Method, PenaltyCause};

use crate::{
    history::{Detail, Headline, KeptDecision},
    placing::wire_reason,
};

/// The explanation of a kept decision.
pub(super) fn explanation(kept: &KeptDecision) -> v1::Explanation {
    let headline = of_headline(&kept.headline, kept.is_reduced());
    match &kept.detail {
        Detail::Full(record) => with_hosts(headline, &record.explain()),
        Detail::Reduced(explained) => with_hosts(headline, explained),
        Detail::Headline => headline,
    }
}

fn of_headline(headline: &Headline, reduced: bool) -> v1::Explanation {
    let chosen = headline.answered.as_ref().ok();
    let reason = chosen.map_or(v1::PlacementReason::Unspecified, |chosen| wire_reason(chosen.reason));
    v1::Explanation {
        decision_id: headline.id.to_string(),
        decided_at: Some(timestamp(headline.decided_unix_ms)),
        pool: headline.pool.to_string(),
        policy_version: headline.policy_version,
        method: v1::Method::from(headline.method).into(),
        // A number beside a decision is taken for its reason.
        weights: (headline.method == Method::WeightedLoad).then(|| write::weights(headline.weights)),
        resource: headline.resource.as_ref().map(ToString::to_string),
        user: headline.user.map(|user| user.to_string()),
        cost: headline.cost,
        chosen_host_id: chosen.map(|chosen| chosen.host_id.to_string()),
        reason: reason.into(),
        flags: chosen.into_iter().flat_map(|chosen| chosen.flags.names()).map(str::to_owned).collect(),
        refused_reason: headline.answered.as_ref().err().map(ToString::to_string).unwrap_or_default(),
        consents: headline.consents.iter().map(consent).collect(),
        redirect: headline.redirect.as_ref().map(redirect),
        reduced,
        ..v1::Explanation::default()
    }
}

fn with_hosts(headline: v1::Explanation, explained: &ExplainedRecord) -> v1::Explanation {
    let explanation = &explained.explanation;
    let tied = match &explanation.decision {
        // Nobody was chosen in the end, whoever would have been next.
        Decision::Take(choice) if headline.chosen_host_id.is_some() => choice.tied,
        _ => 0,
    };
    v1::Explanation {
        top_users: explanation.top_users.unwrap_or_default(),
        top_processes: explanation.top_processes.unwrap_or_default(),
        tied_hosts: tied,
        drawn: explanation.drawn.map(drawn),
        hosts: explanation
            .hosts
            .iter()
            .zip(&explained.hosts)
            .map(|(host, (id, name))| explained_host(host, id.to_string(), name.to_string()))
            .collect(),
        costs: explained.costs.as_ref().map(learned_costs).unwrap_or_default(),
        excluded_counts: explanation
            .excluded_counts
            .iter()
            .map(|(rule, count)| ((*rule).to_owned(), *count))
            .collect(),
        ..headline
    }
}

fn drawn(drawn: Drawn) -> v1::DrawnHosts {
    let count = |hosts: usize| u32::try_from(hosts).unwrap_or(u32::MAX);
    v1::DrawnHosts {
        looked_at: count(drawn.looked_at),
        best_class: count(drawn.best_class),
        pool: count(drawn.of),
    }
}

fn consent(asked: &ConsentAsked) -> v1::ConsentAsked {
    let answer = match asked.said {
        Consent::Admitted => "ADMITTED",
        Consent::Refused(_) => "REFUSED",
        Consent::Silent => "SILENT",
    };
    v1::ConsentAsked { host_name: asked.host_name.to_string(), answer: answer.to_owned() }
}

/// The host that was passed over.
pub(in crate::grpc) fn redirect(redirect: &RecordedRedirect) -> v1::Redirect {
    v1::Redirect { host_name: redirect.host_name.to_string(), reason: redirect.why.label().to_owned() }
}

/// A wall-clock time.
pub(in crate::grpc) fn timestamp(unix_ms: u64) -> prost_types::Timestamp {
    // Both fit: seconds up to 2^54, nanoseconds below 10^9.
    prost_types::Timestamp {
        seconds: i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX),
        nanos: i32::try_from(unix_ms % 1000 * 1_000_000).unwrap_or(0),
    }
}

fn explained_host(host: &ExplainedHost, host_id: String, host_name: String) -> v1::ExplainedHost {
    let numbers = &host.numbers;
    let penalised = match host.penalised {
        Some(PenaltyCause::Failed) => "failed",
        Some(PenaltyCause::Unconfirmed) => "unconfirmed",
        None => "",
    };
    v1::ExplainedHost {
        host_id,
        host_name,
        state: v1::HostState::from(host.state).into(),
        state_reason: host.state_reason.clone(),
        excluded: host.excluded.map(|why| why.as_str().to_owned()).unwrap_or_default(),
        rank: host.rank,
        cpu_percent: numbers.cpu_percent,
        memory_percent: numbers.memory_percent,
        users: numbers.users,
        processes: numbers.processes,
        pending_users: numbers.pending_users,
        capacity: numbers.capacity.unwrap_or(1.0),
        load_age_ms: host.load_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        availability_index: host.availability_index,
        expansion_factor: host.expansion_factor,
        terms: host.terms.map(|terms| load_terms(&terms)),
        flags: host.flags.names().map(str::to_owned).collect(),
        tier: host.tier.map(|tier| tier.as_str().to_owned()).unwrap_or_default(),
        score: host.score,
        penalised: penalised.to_owned(),
        logons_in_progress: host.logons_in_progress,
        ramp: host.ramp,
        expected_cpu_percent: numbers.expected_cpu,
        expected_memory_percent: numbers.expected_memory,
        predicted: host.predicted.as_ref().map(predicted_load),
    }
}

fn predicted_load(predicted: &ExplainedPrediction) -> v1::PredictedLoad {
    let ExplainedPrediction { input, load } = predicted;
    v1::PredictedLoad {
        background: load.background,
        logons: load.logons,
        sessions: load.sessions,
        memory: load.memory,
        scarce_memory: load.scarce_memory,
        logons_measured: input.logons,
        logons_expected: load.logons_expected,
        places: input.places,
        young_places: input.young_places,
        cores: input.cores,
        memory_bytes: input.memory_bytes,
        memory_used: load.memory_used,
        incomplete: load.is_incomplete,
    }
}

/// What one more session costs, each with its bounds.
pub(crate) fn learned_costs(costs: &LearnedCosts) -> Vec<v1::LearnedCost> {
    let cost =
        |(bounds, learned): (usher_placement::load::CostBounds, usher_placement::load::LearnedValue)| {
            v1::LearnedCost {
                name: bounds.name.to_owned(),
                value: learned.value,
                samples: learned.samples,
                learned: learned.is_learned,
                prior: bounds.prior,
                lowest: bounds.lowest,
                highest: bounds.highest,
            }
        };
    costs.each().into_iter().map(cost).collect()
}

/// The terms of a weighted load.
pub(in crate::grpc) fn load_terms(terms: &LoadTerms) -> v1::LoadTerms {
    v1::LoadTerms {
        cpu: terms.cpu,
        memory: terms.memory,
        users: terms.users,
        processes: terms.processes,
        weighted_load: terms.weighted_load(),
        filled_in: terms.filled.names().map(str::to_owned).collect(),
    }
}
