//! How do all hosts stand for one request, at once?
//!
//! What [`Assessment::standing`] says of one host is found here for all of them in two walks over the columns that the
//! snapshot brought along: the first finds who is a candidate in which class, and the largest numbers that loads are
//! compared with; the second the scores. Nothing is computed here that the columns do not hold: whatever is unusual, in
//! the host, in the request or in the pool, is asked of the assessment, host by host. Both give the same order.

use usher_types::{Method, PendingMode, WhenBlind};

use super::{
    Assessment, Inputs, blind,
    choose::Lowest,
    order::{Rank, code},
    words::Words,
};
use crate::{
    farm::{CellWord, Columns, HostCell, NO_TIER, PoolView, Ranked, SeenWords, is_over, lack},
    load::{Counts, DemandFactors, LANES, Largest, LoadFactors},
};

type Block<T> = [T; LANES];

/// Scores whose lowest is kept beside them, so that most need not be looked at.
const ROW: usize = 8;

/// How hosts stand, in the order of the words that were read.
#[derive(Debug)]
pub(super) struct Scan {
    /// Of drawn hosts; absent: each stands at its position.
    positions: Option<Vec<u32>>,
    codes: Vec<u8>,
    scores: Vec<f64>,
    /// Of each row, no candidate of which has a lower score.
    lowest: Vec<f64>,
}

/// What is asked of every host.
struct Gate {
    adds: u32,
    /// Logons in progress at which a host is at its limit, and whether it is no candidate then.
    most_logons: u32,
    is_hard: bool,
    /// All bits, if logons that hosts report count too.
    reported: u32,
    zone: u16,
    /// Whether zones matter.
    by_zone: bool,
    /// Codes are what the columns say, but for limits of users, full cells and silent hosts.
    is_plain: bool,
}

impl Gate {
    fn of(inputs: &Inputs<'_>) -> Self {
        let (pool, request) = (inputs.pool, inputs.request);
        let policy = &pool.policy;
        let zone = request.client_zone.as_ref();
        let most_logons = policy.max_pending.finite();
        Self {
            adds: request.cost,
            most_logons: most_logons.unwrap_or(u32::MAX),
            is_plain: zone.is_none() && most_logons.is_none(),
            is_hard: policy.max_pending_mode == PendingMode::Hard,
            reported: if pool.costs.logon_seconds.is_learned { u32::MAX } else { 0 },
            zone: zone.map_or(0, |zone| pool.zones.of_client(zone)),
            by_zone: zone.is_some(),
        }
    }

    /// The code of the host at `at`, whose tier is `tier`, and whether others are compared with it. No side of this is
    /// skipped: it is asked of many hosts at once.
    #[inline(always)]
    fn code(&self, columns: &Columns, at: usize, tier: u8, word: CellWord) -> (u8, bool) {
        let is_eligible = (tier != NO_TIER) & !is_over(columns.limit[at], word, self.adds);
        // Both stay below 2^31.
        let logons = word.places() + (columns.logons[at] & self.reported);
        let at_limit = logons >= self.most_logons;
        let fits = HostCell::has_room(word, self.adds) & !(at_limit & self.is_hard);
        let far = self.by_zone & (columns.zone[at] != self.zone);
        let code = u8::from(word.is_silent()) << code::SILENT_SHIFT
            | tier << code::TIER_SHIFT
            | u8::from(at_limit) << code::AT_LIMIT_SHIFT
            | u8::from(far) << code::FAR_SHIFT
            | columns.group[at];
        (if is_eligible & fits { code } else { code::NONE }, is_eligible)
    }
}

/// What the scores of all hosts are computed with.
enum Factors {
    Load(LoadFactors),
    Demand(DemandFactors),
    /// By weighted load, and no metric is known.
    NoTerms,
    Plain,
}

impl Factors {
    fn of(assessment: &Assessment<'_>) -> Self {
        let Inputs { pool, now, .. } = *assessment.inputs();
        match pool.policy.method {
            Method::WeightedLoad if !assessment.scale().has_terms() => Self::NoTerms,
            Method::WeightedLoad => Self::Load(LoadFactors::new(assessment.scale())),
            Method::Predictive => {
                let seconds = now.since(pool.logons_since).as_secs_f64();
                Self::Demand(DemandFactors::new(&pool.costs, seconds))
            }
            Method::Availability | Method::FillFirst => Self::Plain,
        }
    }

    fn score(&self, columns: &Columns, at: usize, word: CellWord) -> f64 {
        match (self, &columns.ranked) {
            (Self::NoTerms, _) => f64::INFINITY,
            (Self::Load(factors), Ranked::Load(load)) if word.places() == 0 => {
                factors.score_without_places(load, at, word.all_users())
            }
            (Self::Load(factors), Ranked::Load(load)) => {
                factors.score(load, at, word.all_users(), word.all_places())
            }
            (Self::Demand(factors), Ranked::Demand(demand)) => factors.score(demand, at, word.all_places()),
            (_, ranked) => plain_score(ranked, columns.limit[at], at, word),
        }
    }

    fn scores(
        &self,
        columns: &Columns,
        words: &Block<CellWord>,
        counts: &mut Counts,
        scores: &mut Block<f64>,
    ) {
        match (self, &columns.ranked) {
            (Self::NoTerms, _) => scores.fill(f64::INFINITY),
            (Self::Load(factors), Ranked::Load(load)) => {
                for at in 0..LANES {
                    counts.users[at] = words[at].all_users();
                }
                if !SeenWords::of(words).have_places() {
                    return factors.scores_without_places(load, counts, scores);
                }
                for at in 0..LANES {
                    counts.places[at] = words[at].all_places();
                }
                factors.scores(load, counts, scores);
            }
            (Self::Demand(factors), Ranked::Demand(demand)) => {
                for at in 0..LANES {
                    counts.places[at] = words[at].all_places();
                }
                factors.scores(demand, counts, scores);
            }
            (_, ranked) => {
                for (at, score) in scores.iter_mut().enumerate() {
                    *score = plain_score(ranked, columns.limit[at], at, words[at]);
                }
            }
        }
    }
}

/// By expansion factor or by the free share of a limit.
fn plain_score(ranked: &Ranked, limit: u32, at: usize, word: CellWord) -> f64 {
    let (users, pending) = (f64::from(word.users_or_none()), f64::from(word.pending_users()));
    match ranked {
        Ranked::Factor(factors) if factors[at].is_nan() => {
            if word.knows_users() {
                users + pending
            } else {
                f64::INFINITY
            }
        }
        Ranked::Factor(factors) => factors[at] * (1.0 + pending / users.max(1.0)),
        _ if limit == u32::MAX || !word.knows_users() => 1.0,
        _ => 1.0 - (users + pending) / f64::from(limit.max(1)),
    }
}

/// Users per unit of capacity of the host at `position`, if others are compared with it.
pub(super) fn users_per_capacity(pool: &PoolView, position: usize, word: CellWord, adds: u32) -> f64 {
    let (columns, at) = pool.hosts.columns(position);
    match &columns.ranked {
        // Of a host without a tier it is 0.
        Ranked::Load(load) if !columns.all.is_limited || !is_over(columns.limit[at], word, adds) => {
            word.all_users() * load.per_capacity[at]
        }
        _ => 0.0,
    }
}

impl Scan {
    /// Of every host whose word was read. Sets what the assessment compares with.
    pub(super) fn of(assessment: &mut Assessment<'_>) -> Self {
        match assessment.inputs().words {
            Words::All(words) => Self::of_all(assessment, words),
            Words::Drawn(words) => Self::of_drawn(assessment, words),
        }
    }

    fn new(positions: Option<Vec<u32>>, hosts: usize) -> Self {
        Self {
            positions,
            codes: vec![code::NONE; hosts],
            scores: vec![f64::INFINITY; hosts],
            lowest: Vec::new(),
        }
    }

    /// Of every host, in which class it stands; sets what the assessment compares with. No code without candidates.
    pub(super) fn codes_of(assessment: &mut Assessment<'_>, words: &[CellWord]) -> Vec<u8> {
        let survey = Survey::of(assessment, words);
        set_scale(assessment, &survey);
        if is_blind(assessment, (survey.lost, survey.counted), &survey.codes) {
            return Vec::new();
        }
        let mut codes = survey.codes;
        for position in survey.odd {
            let standing = assessment.standing(position);
            codes[position as usize] = standing.map_or(code::NONE, |standing| standing.code());
        }
        codes
    }

    fn of_all(assessment: &mut Assessment<'_>, words: &[CellWord]) -> Self {
        let survey = Survey::of(assessment, words);
        let is_uniform = set_scale(assessment, &survey);
        let mut scan = Self { positions: None, codes: survey.codes, scores: Vec::new(), lowest: Vec::new() };
        let are_ruled_out = scan.rule_out(assessment);
        if is_blind(assessment, (survey.lost, survey.counted), &scan.codes) {
            assessment.set_blind(true);
            return Self::one_by_one(assessment);
        }
        let calm = if are_ruled_out { Vec::new() } else { survey.calm };
        scan.score(assessment, words, &calm, is_uniform);
        for position in survey.odd {
            scan.ask(assessment, position as usize, position);
        }
        scan
    }

    fn of_drawn(assessment: &mut Assessment<'_>, words: &[(u32, CellWord)]) -> Self {
        let inputs = assessment.inputs().clone();
        assessment.scale_by_drawn(words);
        let (gate, factors) = (Gate::of(&inputs), Factors::of(assessment));
        let (named, holders) = (assessment.named(), assessment.holders());
        let mut scan = Self::new(Some(words.iter().map(|(position, _)| *position).collect()), words.len());
        for (n, (position, word)) in words.iter().enumerate() {
            let (columns, at) = inputs.pool.hosts.columns(*position as usize);
            if columns.is_odd(at, inputs.now)
                || columns.lacks_some(at)
                || (columns.is_by_load() && !word.knows_users())
                || named.binary_search(position).is_ok()
            {
                scan.ask(assessment, n, *position);
            } else if holders.is_none_or(|holders| holders.binary_search(position).is_ok()) {
                let is_calm = gate.is_plain && columns.is_simple();
                let is_calm = is_calm && SeenWords::of(&[*word]).are_calm(gate.adds);
                // What need not be looked at need not come out of memory.
                scan.codes[n] = if is_calm {
                    columns.code[at]
                } else {
                    gate.code(columns, at, columns.tier[at], *word).0
                };
                scan.scores[n] = factors.score(columns, at, *word);
            }
        }
        scan.find_lowest();
        scan
    }

    /// Every host is asked for.
    fn one_by_one(assessment: &Assessment<'_>) -> Self {
        let mut scan = Self::new(None, assessment.inputs().pool.hosts.len());
        for position in assessment.positions() {
            scan.ask(assessment, position as usize, position);
        }
        scan.find_lowest();
        scan
    }

    /// How the host at `position` stands, from the assessment.
    fn ask(&mut self, assessment: &Assessment<'_>, n: usize, position: u32) {
        let standing = assessment.standing(position);
        self.codes[n] = standing.as_ref().map_or(code::NONE, |standing| standing.code());
        self.scores[n] = standing.map_or(f64::INFINITY, |standing| standing.rank.score);
        if let Some(lowest) = self.lowest.get_mut(n / ROW) {
            *lowest = lowest.min(self.scores[n]);
        }
    }

    fn find_lowest(&mut self) {
        let rows = self.scores.chunks(ROW);
        self.lowest = rows.map(|row| row.iter().copied().fold(f64::INFINITY, f64::min)).collect();
    }

    /// What the resource rules out. Whether there is one.
    fn rule_out(&mut self, assessment: &Assessment<'_>) -> bool {
        let Some(holders) = assessment.holders() else { return false };
        let mut next = 0;
        for holder in holders {
            let holder = (*holder as usize).min(self.codes.len());
            self.codes[next.min(holder)..holder].fill(code::NONE);
            next = holder + 1;
        }
        let next = next.min(self.codes.len());
        self.codes[next..].fill(code::NONE);
        true
    }

    /// The second walk. In calm chunks the columns know who is none of the candidates.
    fn score(&mut self, assessment: &Assessment<'_>, words: &[CellWord], calm: &[bool], is_uniform: bool) {
        let inputs = assessment.inputs();
        let factors = Factors::of(assessment);
        let lanes = words.len().next_multiple_of(LANES);
        self.scores.reserve_exact(lanes);
        self.lowest.reserve_exact(lanes / ROW);
        let (mut counts, mut scores, mut padded) = (Counts::default(), [0.0; LANES], NO_WORDS);
        for (number, chunk) in inputs.pool.hosts.chunks().iter().enumerate() {
            let first = number * LANES;
            let block = block_of(&words[first..], &mut padded);
            factors.scores(&chunk.columns, block, &mut counts, &mut scores);
            if !calm.get(number).is_some_and(|is_calm| *is_calm) {
                let codes = self.codes.iter().copied().skip(first).chain(std::iter::repeat(code::NONE));
                for (score, code) in scores.iter_mut().zip(codes) {
                    *score = if code == code::NONE { f64::INFINITY } else { *score };
                }
            }
            self.scores.extend_from_slice(&scores);
            self.lowest.extend_from_slice(&lowest_of_rows(&scores));
            if !is_uniform {
                self.ask_incomplete(assessment, &chunk.columns, block, first, words.len());
            }
        }
        self.scores.truncate(words.len());
        self.lowest.truncate(words.len().div_ceil(ROW));
    }

    fn ask_incomplete(
        &mut self,
        assessment: &Assessment<'_>,
        columns: &Columns,
        words: &Block<CellWord>,
        first: usize,
        len: usize,
    ) {
        for at in 0..LANES.min(len - first) {
            let is_candidate = self.codes[first + at] != code::NONE;
            if is_candidate && (columns.lacks[at] != 0 || !words[at].knows_users()) {
                self.ask(assessment, first + at, (first + at) as u32);
            }
        }
    }
}

/// What the first walk finds.
struct Survey {
    codes: Vec<u8>,
    /// Chunks whose codes are those of the columns.
    calm: Vec<bool>,
    /// Hosts to be asked for one by one.
    odd: Vec<u32>,
    /// Hosts that others are compared with.
    settled: u32,
    top_users: f64,
    top_processes: f64,
    users_unknown: bool,
    /// Metrics that some host lacks, and metrics that some host has.
    lacking: u8,
    held: u8,
    lost: u32,
    counted: u32,
}

impl Survey {
    fn of(assessment: &Assessment<'_>, words: &[CellWord]) -> Self {
        let inputs = assessment.inputs();
        let gate = Gate::of(inputs);
        let named = assessment.named();
        let mut named = named.as_slice();
        let mut survey = Self {
            codes: Vec::with_capacity(words.len().next_multiple_of(LANES)),
            calm: Vec::with_capacity(inputs.pool.hosts.chunks().len()),
            odd: Vec::new(),
            settled: 0,
            top_users: 0.0,
            top_processes: 0.0,
            users_unknown: false,
            lacking: 0,
            held: 0,
            lost: 0,
            counted: 0,
        };
        let mut padded = NO_WORDS;
        for (number, chunk) in inputs.pool.hosts.chunks().iter().enumerate() {
            let (first, columns) = (number * LANES, &chunk.columns);
            let expired = columns.expired(inputs.now);
            let mut odd = expired;
            while let [position, rest @ ..] = named
                && (*position as usize) < first + LANES
            {
                odd |= 1 << (*position as usize % LANES);
                named = rest;
            }
            let block = block_of(&words[first..], &mut padded);
            let is_calm = odd == 0 && gate.is_plain && columns.is_simple();
            let is_calm = is_calm && SeenWords::of(block).are_calm(gate.adds);
            survey.calm.push(is_calm);
            if is_calm {
                survey.walk_calm(columns, block);
            } else {
                survey.walk(columns, &gate, block, odd);
            }
            survey.lost += (columns.lost & !expired).count_ones();
            survey.counted += columns.counted.count_ones();
            if odd | columns.odd != 0 {
                survey.note_odd(assessment, first, odd | columns.odd, expired);
            }
        }
        survey.codes.truncate(words.len());
        survey
    }

    /// Codes and all are what the columns say.
    fn walk_calm(&mut self, columns: &Columns, words: &Block<CellWord>) {
        self.codes.extend_from_slice(&columns.code);
        let Ranked::Load(load) = &columns.ranked else { return };
        let mut users = [0.0; LANES];
        for at in 0..LANES {
            users[at] = words[at].all_users() * load.per_capacity[at];
        }
        self.top_users = self.top_users.max(largest(&users));
        self.top_processes = self.top_processes.max(columns.all.top_processes);
        self.settled += columns.all.tiers;
        self.lacking |= columns.all.lacking;
        self.held |= columns.all.held;
    }

    fn walk(&mut self, columns: &Columns, gate: &Gate, words: &Block<CellWord>, odd: u64) {
        let mut tier = columns.tier;
        let mut left = odd;
        while left != 0 {
            tier[left.trailing_zeros() as usize] = NO_TIER;
            left &= left - 1;
        }
        let (mut block, mut compared) = ([code::NONE; LANES], [false; LANES]);
        for at in 0..LANES {
            (block[at], compared[at]) = gate.code(columns, at, tier[at], words[at]);
        }
        self.codes.extend_from_slice(&block);
        let Ranked::Load(load) = &columns.ranked else { return };
        let (mut users, mut processes) = ([0.0; LANES], [0.0; LANES]);
        for at in 0..LANES {
            let counts = f64::from(u8::from(compared[at]));
            users[at] = counts * words[at].all_users() * load.per_capacity[at];
            processes[at] = counts * load.processes[at];
        }
        self.top_users = self.top_users.max(largest(&users));
        self.top_processes = self.top_processes.max(largest(&processes));
        for at in (0..LANES).filter(|at| compared[*at]) {
            self.settled += 1;
            self.users_unknown |= !words[at].knows_users();
            self.lacking |= columns.lacks[at];
            self.held |= !columns.lacks[at];
        }
    }

    fn note_odd(&mut self, assessment: &Assessment<'_>, first: usize, odd: u64, expired: u64) {
        let hosts = assessment.inputs().pool.hosts.len();
        let mut left = odd;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            if first + at < hosts {
                // Exact: pools have far less than 2^32 hosts.
                self.odd.push((first + at) as u32);
                let is_lost = expired >> at & 1 == 1 && blind::is_lost(assessment, first + at);
                self.lost += u32::from(is_lost);
            }
        }
    }
}

const NO_WORDS: Block<CellWord> = [CellWord::NOBODY; LANES];

/// The first words as a whole block, if need be in `padded`.
fn block_of<'a>(words: &'a [CellWord], padded: &'a mut Block<CellWord>) -> &'a Block<CellWord> {
    match words.first_chunk() {
        Some(whole) => whole,
        None => {
            padded[..words.len()].copy_from_slice(words);
            padded
        }
    }
}

/// The lowest of each row of scores, none of which is NaN.
fn lowest_of_rows(scores: &Block<f64>) -> [f64; LANES / ROW] {
    let mut lowest = [f64::INFINITY; LANES / ROW];
    for (lowest, row) in lowest.iter_mut().zip(scores.chunks_exact(ROW)) {
        for score in row {
            *lowest = if *score < *lowest { *score } else { *lowest };
        }
    }
    lowest
}

/// The largest of many numbers, none of which is NaN; 0 if none is larger.
fn largest(values: &Block<f64>) -> f64 {
    let mut lanes = [0.0; 8];
    for row in values.chunks_exact(lanes.len()) {
        for (lane, value) in lanes.iter_mut().zip(row) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    lanes.into_iter().fold(0.0, f64::max)
}

/// Sets what loads are compared with. Whether each metric is known to all hosts that are compared, or to none of them.
fn set_scale(assessment: &mut Assessment<'_>, survey: &Survey) -> bool {
    let policy = &assessment.inputs().pool.policy;
    if policy.method != Method::WeightedLoad {
        return true;
    }
    let mut largest = Largest::new(policy.users_full_scale);
    let know = [lack::CPU, lack::MEMORY, lack::PROCESSES].map(|metric| survey.held & metric != 0);
    let is_uniform = survey.lacking & survey.held == 0 && !survey.users_unknown;
    largest.add_many(survey.settled as usize, know, survey.top_users, survey.top_processes);
    let is_compared = |position: &u32| {
        let state = assessment.state(*position as usize);
        let metrics = assessment.metrics(*position as usize);
        let is_unknown = state == usher_types::HostState::Unknown && policy.allow_unknown;
        if state.is_eligible() && metrics.ramp.is_none() {
            largest.add(&metrics);
        }
        !(state.is_measured() || is_unknown) || metrics.knows_just(know)
    };
    let is_uniform = survey.odd.iter().map(is_compared).fold(is_uniform, |all, one| all & one);
    if is_uniform && largest.is_of_any() {
        let scale = largest.scale(policy.weights);
        assessment.set_scale(scale);
        return true;
    }
    assessment.scale_by_each();
    false
}

/// Whether lost hosts take part.
fn is_blind(assessment: &Assessment<'_>, (lost, counted): (u32, u32), codes: &[u8]) -> bool {
    if lost == 0 || assessment.inputs().pool.policy.when_blind == WhenBlind::Refuse {
        return false;
    }
    // Codes are of hosts that are eligible only, but for room and consent; of no other host there is any yet.
    let somebody_is_well = codes.iter().any(|code| *code != code::NONE);
    2 * lost > counted || (!somebody_is_well && blind::is_active(assessment))
}

impl Scan {
    /// The lowest code. Absent: nobody is a candidate.
    pub(super) fn best(&self) -> Option<u8> {
        self.codes.iter().copied().min().filter(|code| *code != code::NONE)
    }

    fn position(&self, n: usize) -> u32 {
        // Exact: pools have far less than 2^32 hosts.
        self.positions.as_ref().map_or(n as u32, |positions| positions[n])
    }

    /// The hosts of the class of `best`, in the order of the pool.
    pub(super) fn members(&self, best: u8) -> impl Iterator<Item = (u32, Rank)> {
        let is_member = move |(_, code): &(usize, &u8)| **code >> 1 == best >> 1;
        let members = self.codes.iter().enumerate().filter(is_member);
        members.map(|(n, code)| (self.position(n), self.rank(n, *code)))
    }

    fn rank(&self, n: usize, code: u8) -> Rank {
        Rank { group: code & 1, score: self.scores[n] }
    }

    /// Lets `lowest` take the hosts of the class of `best`, in the order of the pool, but those that come after what it
    /// has for sure.
    pub(super) fn offer_members(&self, best: u8, lowest: &mut Lowest) {
        for (row, score) in self.lowest.iter().enumerate() {
            if lowest.comes_before(*score) {
                continue;
            }
            let first = row * ROW;
            for (n, code) in self.codes.iter().enumerate().skip(first).take(ROW) {
                if *code >> 1 == best >> 1 {
                    lowest.take(self.position(n), self.rank(n, *code));
                }
            }
        }
    }

    /// The best candidates but `chosen`, at most `most`, best first.
    pub(super) fn next_best(&self, chosen: u32, most: usize) -> Vec<(u32, Rank)> {
        // One more than wanted: the chosen one may be among them.
        let mut best = Best::new(most + 1);
        let only = self.only_code();
        if let Some(only) = only {
            // No score above the highest of so many lowest ones of rows can be among as many best ones.
            let mut bound = Best::new(most + 1);
            (0u32..).zip(&self.lowest).for_each(|(row, lowest)| bound.offer(only, *lowest, row));
            best.bound = bound.worst();
        }
        for (row, lowest) in self.lowest.iter().enumerate() {
            if only.is_some() && *lowest > best.bound.1 {
                continue;
            }
            let first = row * ROW;
            for (n, code) in self.codes.iter().enumerate().skip(first).take(ROW) {
                if *code != code::NONE {
                    best.offer(*code, self.scores[n], self.position(n));
                }
            }
        }
        let others = best.found.into_iter().filter(|(_, _, position)| *position != chosen).take(most);
        others.map(|(code, score, position)| (position, Rank { group: code & 1, score })).collect()
    }

    /// The code of all candidates, if they have one.
    fn only_code(&self) -> Option<u8> {
        let only = self.best()?;
        let others = self.codes.iter().filter(|code| (**code != only) & (**code != code::NONE)).count();
        (others == 0).then_some(only)
    }

    /// Hosts of the class of `best`.
    pub(super) fn count(&self, best: u8) -> usize {
        self.codes.iter().filter(|code| **code >> 1 == best >> 1).count()
    }
}

/// The best few of many, the earlier first among equals.
struct Best {
    most: usize,
    found: Vec<(u8, f64, u32)>,
    /// What comes after this is none of them.
    bound: (u8, f64),
}

impl Best {
    fn new(most: usize) -> Self {
        Self { most, found: Vec::with_capacity(most + 1), bound: (code::NONE, f64::INFINITY) }
    }

    /// Of the worst of them; of nobody while there are fewer.
    fn worst(&self) -> (u8, f64) {
        let worst = self.found.get(self.most - 1);
        worst.map_or((code::NONE, f64::INFINITY), |(code, score, _)| (*code, *score))
    }

    fn offer(&mut self, code: u8, score: f64, position: u32) {
        if (code, score) > self.bound {
            return;
        }
        let before = |(other, than, _): &&(u8, f64, u32)| (*other, *than) <= (code, score);
        // Most are among the last.
        let at = self.found.len() - self.found.iter().rev().take_while(|other| !before(other)).count();
        if at < self.most {
            self.found.insert(at, (code, score, position));
            self.found.truncate(self.most);
            if self.found.len() == self.most {
                let worst = self.worst();
                self.bound = if worst < self.bound { worst } else { self.bound };
            }
        }
    }
}

#[cfg(test)]
mod tests;
