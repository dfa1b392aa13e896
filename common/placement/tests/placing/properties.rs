//! What holds on any farm.

use proptest::prelude::*;
use usher_placement::decision::{
    Choice, Decision, Excluded, ExplainedHost, Flags, RefusalKind, Request, Tier,
};
use usher_types::{HostState, Method, PolicyChange, WeightsChange};

use crate::{
    generated::{AnyHost, Verdict, any_hosts, any_policy, any_request, farm_of, verdicts},
    support::*,
};

proptest! {
    // rule: never-over-limit
    // rule: order-tier
    // rule: blind-half
    // rule: blind-nobody
    #[test]
    fn a_placement_obeys_every_rule_and_a_refusal_happens_because_nobody_could(
        hosts in any_hosts(), policy in any_policy(), request in any_request(), seed in any::<u64>(),
    ) {
        let mut sim = farm_of(&hosts, &policy);
        sim.seed = seed >> 1;
        let verdicts = verdicts(&mut sim, &request);
        let before = sim.pool().words();
        let placed = sim.place(&request);
        match &placed.decision {
            Decision::Take(choice) => {
                check_choice(&placed, choice, &verdicts)?;
                let at = choice.position as usize;
                let word = placed.pool.members.cells[at].load();
                prop_assert_eq!(word.pending_users(), before[at].pending_users() + request.cost);
                prop_assert_eq!(word.places(), before[at].places() + 1);
                // Whoever is AVAILABLE is never passed over for one that is not, but where the caller says BUSY, or
                // logins fail.
                let available = |n: usize| sim_state(&placed, &request, n, sim.now) == HostState::Available
                    && request.failover.as_ref().is_none_or(|f| f.from_host != hosts[n].name)
                    && !is_penalised(&placed, n, before[n].places(), &request, sim.now);
                if (0..hosts.len()).any(|n| verdicts[n] == Verdict::Fit && available(n)) {
                    prop_assert!(available(at));
                    prop_assert!(!choice.flags.has(Flags::ALL_BUSY));
                }
            }
            Decision::Refused(refusal) => {
                prop_assert!(
                    refusal.kind == RefusalKind::UnknownResource
                        || verdicts.iter().all(|verdict| matches!(verdict, Verdict::Unfit(_))),
                    "{:?} {:?}", refusal, verdicts
                );
                prop_assert_eq!(&before, &placed.pool.words());
                prop_assert!(refusal.hosts.iter().all(|(_, why)| *why != Excluded::NoReplica));
            }
            other => prop_assert!(false, "no user was named: {:?}", other),
        }
    }

    // rule: explain-same
    // rule: explain-adds-up
    #[test]
    fn the_explanation_is_the_decision_and_adds_up(
        hosts in any_hosts(), policy in any_policy(), request in any_request(), seed in any::<u64>(),
    ) {
        let mut sim = farm_of(&hosts, &policy);
        sim.seed = seed >> 1;
        let doors: Vec<_> =
            hosts.iter().map(|host| (id(&host.name), sim.open_doors.contains(&id(&host.name)))).collect();
        let explanation = sim.explain_with(&request, &doors);
        prop_assert_eq!(explanation.hosts.len(), hosts.len());
        if let Decision::Take(choice) = &explanation.decision {
            let first = &explanation.hosts[0];
            prop_assert_eq!(first.position, choice.position as usize);
            prop_assert_eq!((first.rank, first.tier), (Some(1), Some(choice.tier)));
            prop_assert_eq!((first.terms, first.score), (choice.terms, choice.score));
        }
        for host in &explanation.hosts {
            prop_assert_eq!(host.rank.is_some(), host.excluded.is_none());
            prop_assert!(host.rank.is_some() || host.score.is_none());
            let parts = parts_of(host, explanation.method);
            if let (Some(parts), Some(score)) = (parts, host.score) {
                prop_assert!((parts - score).abs() < 0.01, "{:?}", host);
            }
            if let Some(terms) = host.terms.filter(|_| host.ramp.is_none()) {
                prop_assert!((0.0..=100.01).contains(&terms.weighted_load()));
            }
        }
        let counted: u32 = explanation.excluded_counts.values().sum();
        let ranked = explanation.hosts.iter().filter(|host| host.rank.is_some()).count();
        prop_assert_eq!(counted as usize + ranked, hosts.len());
    }

    // rule: order-irrelevant
    #[test]
    fn the_order_of_hosts_decides_nothing_but_ties(
        hosts in any_hosts(), policy in any_policy(), request in any_request(), turn in 0usize..8,
    ) {
        // Whom a draw takes depends on where they stand.
        let hosts: Vec<AnyHost> = hosts.into_iter().map(AnyHost::without_peers).collect();
        let mut turned = hosts.clone();
        if !turned.is_empty() {
            let turn = turn % turned.len();
            turned.rotate_left(turn);
        }
        let (one, other) = (farm_of(&hosts, &policy).place(&request), farm_of(&turned, &policy).place(&request));
        match (&one.decision, &other.decision) {
            (Decision::Take(a), Decision::Take(b)) => {
                prop_assert_eq!(a.tied, b.tied);
                prop_assert_eq!(a.reason, b.reason);
                if a.tied == 1 {
                    prop_assert_eq!(one.host(), other.host());
                }
            }
            (Decision::Refused(a), Decision::Refused(b)) => prop_assert_eq!(a.kind, b.kind),
            (a, b) => prop_assert!(false, "{:?} {:?}", a, b),
        }
    }

    // rule: retry-repeats
    #[test]
    fn a_retry_never_makes_a_second_place(
        hosts in any_hosts(), policy in any_policy(), requests in proptest::collection::vec(any_request(), 1..6),
        retries in proptest::collection::vec((0usize..6, 1u32..5), 0..20),
    ) {
        let mut sim = farm_of(&hosts, &policy);
        let before: u32 = sim.pool_words().iter().map(|word| word.places()).sum();
        let named = |n: usize| Request { token: token(&format!("own-{n}")), ..requests[n].clone() };
        let mut given: Vec<Option<String>> = Vec::new();
        for n in 0..requests.len() {
            let placed = sim.place(&named(n));
            given.push(placed.grant.as_ref().map(|_| placed.host().to_owned()));
        }
        for (n, attempt) in retries {
            let n = n % requests.len();
            let placed = sim.place(&Request { attempt, ..named(n) });
            if let Some(host) = &given[n] {
                prop_assert_eq!(placed.host(), host);
            } else if placed.grant.is_some() {
                given[n] = Some(placed.host().to_owned());
            }
        }
        let after: u32 = sim.pool_words().iter().map(|word| word.places()).sum();
        prop_assert_eq!(after - before, given.iter().flatten().count() as u32);
    }

    // rule: load-monotone
    #[test]
    fn more_weight_on_users_never_helps_the_host_that_has_more(
        few in 0u32..50, more in 1u32..50, rest in 0u32..50, low in 0.0..100.0f64, by in 0.0..100.0f64,
    ) {
        let high = (low + by).min(100.0);
        let mut margins = Vec::new();
        for weight in [low, high] {
            let mut sim = Sim::new();
            let weights = WeightsChange {
                users_percent: Some(weight), cpu_percent: Some(100.0 - weight), ..WeightsChange::default()
            };
            sim.apply(PolicyChange { weights: Some(weights), ..PolicyChange::default() });
            for (host, count) in [("few", few), ("more", few + more), ("rest", rest)] {
                sim.attach(host);
                sim.report(host, load((50.0, 50, count, 50)));
            }
            let explanation = sim.explain(&ask("r"));
            let of = |position: usize| {
                let host = explanation.hosts.iter().find(|host| host.position == position).unwrap();
                (host.terms.unwrap().weighted_load(), host.rank.unwrap())
            };
            prop_assert!(of(0).0 <= of(1).0);
            margins.push((of(1).0 - of(0).0, of(1).1));
        }
        prop_assert!(margins[1].0 >= margins[0].0 - 1e-9);
    }
}

/// What an explanation shows, put together again by the formula of the method.
fn parts_of(host: &ExplainedHost, method: Method) -> Option<f64> {
    let pending = f64::from(host.numbers.pending_users);
    if host.tier == Some(Tier::Blind) {
        return Some(pending);
    }
    match method {
        Method::FillFirst => Some(1.0 - host.filled_share.unwrap_or(0.0)),
        Method::Availability => {
            let users = host.numbers.users.map(f64::from);
            let Some(factor) = host.expansion_factor else { return Some(users? + pending) };
            let counted = users.unwrap_or(0.0).max(1.0) * host.ramp.unwrap_or(1.0);
            Some(factor * (1.0 + pending / counted))
        }
        _ => host.terms.map(|terms| terms.cpu + terms.memory + terms.users + terms.processes),
    }
}

fn check_choice(placed: &Placed, choice: &Choice, verdicts: &[Verdict]) -> Result<(), TestCaseError> {
    let chosen = verdicts[choice.position as usize];
    prop_assert!(!matches!(chosen, Verdict::Unfit(_)), "{:?}", chosen);
    prop_assert_eq!(choice.tier == Tier::Blind, chosen == Verdict::FitBlind);
    prop_assert_eq!(choice.flags.has(Flags::BLIND), choice.tier == Tier::Blind);
    // Lost hosts take part only once their doors were tried.
    let takes_part = |verdict: &Verdict| match verdict {
        Verdict::Fit => true,
        Verdict::FitBlind => !placed.doors.is_empty(),
        Verdict::Unfit(_) => false,
    };
    let candidates = verdicts.iter().filter(|verdict| takes_part(verdict)).count();
    prop_assert_eq!(choice.alternatives.len(), (candidates - 1).min(4));
    for (position, _) in &choice.alternatives {
        prop_assert!(takes_part(&verdicts[*position as usize]));
    }
    Ok(())
}

fn is_penalised(
    placed: &Placed,
    position: usize,
    places: u32,
    request: &Request,
    now: usher_types::BootTime,
) -> bool {
    placed.pool.hosts[position].penalised(&request.token.gateway, places, now).is_some()
}

fn sim_state(placed: &Placed, request: &Request, position: usize, now: usher_types::BootTime) -> HostState {
    let pool = &placed.pool;
    // As it was before the place was taken: the place of this very request is not held against it.
    let mut word = pool.members.cells[position].load();
    if let Some(grant) =
        placed.grant.as_ref().filter(|grant| grant.host_id == pool.hosts[position].facts.host_id)
    {
        let cell = usher_placement::farm::HostCell::new();
        cell.apply(usher_placement::farm::CellChange {
            users: word.users(),
            pending_users: i64::from(word.pending_users() - grant.counted_users()),
            places: 0,
        });
        word = cell.load();
    }
    usher_placement::farm::state_of(&pool.state_input(position, word, request.cost, now))
}
