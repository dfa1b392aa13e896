//! Does any input from outside, however broken, get more out of the agent than a value in its range or a named refusal?
//!
//! Each reader of bytes that are not ours is fed what a real machine gives, broken in the ways that find most: worst
//! numbers in the place of numbers, words of the format where they do not belong, parts of other inputs, ends cut off,
//! parts repeated until they are huge. An input that is answered in a way not seen before joins those that are broken
//! further, so that faults behind other faults are found too. Not to panic is the least of it: what is accepted must be in
//! range, must stand in the input and must agree with a second reading written down here; a refusal must be short and
//! printable, because it travels to the coordinators; and no input may take much time.
//!
//! Runs are numbered, and the same seed makes the same runs:
//!
//! `USHER_FUZZ_TARGET=statsd USHER_FUZZ_SEED=7 USHER_FUZZ_SECONDS=600 cargo test -p usher-agent --lib fuzz -- --nocapture`
//!
//! `USHER_FUZZ_RUNS` sets the number of runs instead of their time. Without a target, all are fed.

mod breaking;
mod cgroup_files;
mod proc_files;
mod session_files;
mod state_files;
mod statsd;
mod whole_report;
mod words;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use breaking::{Random, broken};

use crate::sample::{SampleError, describe};

/// Broken inputs per reader; some seconds for all of them.
const DEFAULT_RUNS: u64 = 3_000;
const DEFAULT_SEED: u64 = 1;

/// Inputs that are kept to be broken further: enough for every kind of answer, few enough that each has its turn.
const MOST_KEPT: usize = 512;

/// CPU time for one input, far above any in a build without optimisation: what takes longer is not linear.
const MOST_CPU: Duration = Duration::from_secs(5);

/// Longest refusal: it is carried in every report until it is over.
const MOST_REFUSAL_CHARS: usize = 1000;

/// One reader.
struct Target {
    name: &'static str,
    /// Inputs that are accepted.
    corpus: Vec<Vec<u8>>,
    /// Words of the format.
    words: &'static [&'static [u8]],
    /// What the product would read at most, or as much of it as shows what time grows like.
    most_bytes: usize,
    feed: Feed,
}

/// Panics if the answer to an input is wrong.
type Feed = Box<dyn FnMut(&[u8]) -> Seen>;

/// What became of one input.
struct Seen {
    taken: bool,
    /// Equal for answers of one kind.
    kind: u64,
}

impl Seen {
    fn taken(features: impl Hash) -> Self {
        Self { taken: true, kind: hash_of(("taken", features)) }
    }

    /// What a collector tells of its failure.
    fn failed(error: &SampleError) -> Self {
        Self::refused(&describe(error))
    }

    fn refused(why: &impl Display) -> Self {
        let why = why.to_string();
        check_refusal(&why);
        // Numbers and quoted parts of the input make no other kind of refusal.
        let ours: String = why.split(['`', '"']).step_by(2).collect();
        let words: String = ours.chars().filter(|c| c.is_ascii_lowercase()).take(60).collect();
        Self { taken: false, kind: hash_of(words) }
    }
}

/// A refusal is said in a few printable words.
fn check_refusal(why: &str) {
    let chars = why.chars().count();
    assert!((1..=MOST_REFUSAL_CHARS).contains(&chars), "{chars} characters: {why:.2000}");
    assert!(!why.chars().any(char::is_control), "{why:?}");
}

fn hash_of(features: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    features.hash(&mut hasher);
    hasher.finish()
}

/// A folder that stands for `/`, whose files change from input to input.
struct Machine(tempfile::TempDir);

impl Machine {
    /// In memory where there is a place for that: a disk would be the slowest part of each run.
    fn new() -> Self {
        let shared_memory = Path::new("/dev/shm");
        let folder =
            if shared_memory.is_dir() { tempfile::tempdir_in(shared_memory) } else { tempfile::tempdir() };
        Self(folder.unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    /// Absent: no such file.
    fn set(&self, path: &str, content: Option<&[u8]>) {
        let path = self.root().join(path);
        match content {
            Some(content) => {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, content).unwrap();
            }
            None => drop(std::fs::remove_file(path)),
        }
    }
}

/// What stands between two files, or two looks at one, in an input that holds several.
const BETWEEN: u8 = 0x1e;

/// The parts of an input that holds several. One that lacks parts has empty ones.
fn parts<const N: usize>(bytes: &[u8]) -> [&[u8]; N] {
    let mut parts = bytes.splitn(N, |byte| *byte == BETWEEN);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.join(&BETWEEN)
}

/// A file of a machine of the other tests, such as `busy_host/t0/proc/stat`.
fn fixture(path: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// As every reader of files of the system sees them.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How long, and from where.
struct Settings {
    runs: u64,
    seed: u64,
    seconds: Option<u64>,
    target: Option<String>,
}

impl Settings {
    fn from_environment() -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse().unwrap_or_else(|_| panic!("{name} = {text}: expected a number")))
        };
        Self {
            runs: number("USHER_FUZZ_RUNS").unwrap_or(DEFAULT_RUNS),
            seed: number("USHER_FUZZ_SEED").unwrap_or(DEFAULT_SEED),
            seconds: number("USHER_FUZZ_SECONDS"),
            target: std::env::var("USHER_FUZZ_TARGET").ok(),
        }
    }
}

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// Feeds one input. A wrong answer is as good as a panic: both are shown with what it takes to see them again.
fn feed(target: &mut Target, bytes: &[u8], which: &str) -> Seen {
    let started = cpu_time();
    let seen = catch_unwind(AssertUnwindSafe(|| (target.feed)(bytes)));
    let took = cpu_time().saturating_sub(started);
    let shown = || {
        let shown: String = bytes.escape_ascii().take(4000).map(char::from).collect();
        format!("{}, {which}, {} bytes: {shown}", target.name, bytes.len())
    };
    assert!(took < MOST_CPU, "took {took:?}: {}", shown());
    seen.unwrap_or_else(|_| panic!("{}", shown()))
}

fn run(mut target: Target) {
    let settings = Settings::from_environment();
    if settings.target.as_ref().is_some_and(|asked| asked != target.name) {
        return;
    }
    let mut kinds = BTreeSet::new();
    for whole in target.corpus.clone() {
        let seen = feed(&mut target, &whole, "whole");
        assert!(seen.taken, "{} refuses {}", target.name, whole.escape_ascii());
        kinds.insert(seen.kind);
    }
    for huge in huge(&target) {
        feed(&mut target, &huge, "huge");
    }
    let mut random = Random::new(settings.seed);
    // What is refused already is broken further less often: most of what follows from it is refused too.
    let (mut good, mut bad) = (target.corpus.clone(), vec![Vec::new()]);
    let (mut run, mut taken) = (0, 0);
    let started = Instant::now();
    while match settings.seconds {
        Some(seconds) => started.elapsed() < Duration::from_secs(seconds),
        None => run < settings.runs,
    } {
        let whole = if run % 4 == 3 { &bad } else { &good };
        let bytes = broken(&mut random, whole, target.words, target.most_bytes);
        let seen = feed(&mut target, &bytes, &format!("run {run} of USHER_FUZZ_SEED={}", settings.seed));
        let kept = if seen.taken { &mut good } else { &mut bad };
        if kinds.insert(seen.kind) && kept.len() < MOST_KEPT {
            kept.push(bytes);
        }
        taken += u64::from(seen.taken);
        run += 1;
    }
    println!("{}: {run} inputs, {taken} accepted, {} kinds of answers", target.name, kinds.len());
    // If next to nothing is accepted, what lies behind the first refusal was not tried.
    assert!(run < 1000 || taken > run / 100, "{}: {taken} of {run} accepted", target.name);
    assert!(run < 1000 || taken < run || kinds.len() > 1, "{}: one answer to everything", target.name);
}

/// As long as the product would read, of one kind of bytes, or of a whole input again and again.
fn huge(target: &Target) -> Vec<Vec<u8>> {
    let most = target.most_bytes;
    let one_byte = [b'a', b'0', b' ', b'\n', b'{', b'[', b'"', b':', b'|', 0, 0xff];
    let mut huge: Vec<Vec<u8>> = one_byte.iter().map(|byte| vec![*byte; most]).collect();
    for whole in target.corpus.iter().take(2) {
        huge.push(whole.iter().copied().cycle().take(most).collect());
        let mut ended = vec![b'x'; most - whole.len().min(most)];
        ended.extend_from_slice(whole);
        huge.push(ended);
    }
    huge
}

/// One test for each reader, so that they run side by side and a failure names its reader.
macro_rules! fuzzed {
    ($($test:ident: $target:expr;)+) => {
        $(#[test]
        fn $test() {
            run($target);
        })+
    };
}

fuzzed! {
    lines_of_timings_are_counted_once_each_and_sound: statsd::statsd();
    cpu_counters_give_the_share_between_two_looks_or_none: proc_files::stat();
    memory_in_use_is_never_more_than_there_is: proc_files::meminfo();
    uptime_is_the_first_number_or_unknown: proc_files::uptime();
    waiting_for_cpus_is_finite_or_unknown: proc_files::schedstat();
    pressure_is_a_percentage_or_unknown: proc_files::pressure();
    the_cache_of_zfs_is_a_number_or_unknown: proc_files::arcstats();
    the_begin_of_a_process_is_its_own_or_unknown: proc_files::pid_stat();
    the_clocks_of_a_copy_agree_with_each_other: proc_files::clocks();
    a_container_is_named_by_a_word_or_is_none: proc_files::container();
    limits_of_control_groups_2_are_below_the_machine: cgroup_files::version_2();
    limits_of_control_groups_1_are_below_the_machine: cgroup_files::version_1();
    logins_of_utmp_stand_in_its_records: session_files::utmp();
    sessions_of_logind_files_have_a_user_a_class_and_a_state: session_files::logind();
    sessions_of_a_program_are_all_lines_or_none: session_files::program();
    accounts_stand_in_the_file: session_files::passwd();
    replicas_of_a_program_are_whole_lines_and_the_others_are_counted: words::listing();
    hooks_open_nothing_by_mistake: words::hooks();
    the_reason_of_nologin_is_a_short_line: words::nologin();
    local_requests_are_understood_whole_or_refused: words::requests();
    a_door_is_open_only_when_its_protocol_says_so: words::doors();
    baselines_are_believed_whole_or_moved_aside: state_files::baselines();
    the_book_of_places_is_believed_whole_or_moved_aside: state_files::places();
    a_drain_that_cannot_be_understood_is_a_drain: state_files::drain();
    an_identity_is_a_uuid_or_an_error: state_files::identity();
    a_broken_file_costs_its_own_value_and_no_other: whole_report::whole_report();
}
