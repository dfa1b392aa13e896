//! One host: a group of processes with a part of the machine, what is measured of it, and its stream.

use std::time::{Duration, Instant};

use usher_integration_tests::Client;
use usher_proto::v1;

use crate::burner::{Burner, LOGON, SESSIONS};
use crate::group::Group;
use crate::people::Login;
use crate::scale::{CORES, FASTER, LOGON_CORES, here, share};
use crate::stream::Stream;

/// Memory of a host, at rest and of a session, bytes: only said, nobody uses it.
const MEMORY: u64 = 32 << 30;
const AT_REST: u64 = 2 << 30;
const OF_SESSION: u64 = 740 << 20;
/// Processes of a host at rest, and of a session.
const PROCESSES: u32 = 100;
const OF_SESSION_PROCESSES: u32 = 18;

/// A logon that is under way.
#[derive(Debug)]
struct Logon {
    login: Login,
    burner: Burner,
    begun: Instant,
    meter: Meter,
}

/// A logon that has ended, or was given up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    /// Its time over its time alone.
    pub(crate) expansion: f64,
    /// It was still under way at the end.
    pub(crate) is_censored: bool,
}

/// What a process took since the last look: on a processor, and waiting for one.
#[derive(Debug, Clone, Copy, Default)]
struct Meter {
    run: Duration,
    wait: Duration,
}

impl Meter {
    /// Run and wait since the last look. A process that has ended took nothing more.
    fn since(&mut self, pid: u32) -> (Duration, Duration) {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/schedstat")) else {
            return Default::default();
        };
        let ns: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [run, wait, ..] = ns[..] else { return Default::default() };
        let now = Self { run: Duration::from_nanos(run), wait: Duration::from_nanos(wait) };
        let since = (now.run.saturating_sub(self.run), now.wait.saturating_sub(self.wait));
        *self = now;
        since
    }
}

/// What is added up between two reports.
#[derive(Debug, Clone, Copy)]
struct Interval {
    begun: Instant,
    /// Of the last look.
    at: Instant,
    busy: Duration,
    /// Busy and waiting, each process up to what it can use.
    demand: Duration,
    /// Logons under way, times seconds.
    logon_s: f64,
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    // Before their group: it can only be removed when it is empty.
    logons: Vec<Logon>,
    sessions: Burner,
    group: Group,
    session_cores: f64,
    session_count: u32,
    session_meter: Meter,
    interval: Interval,
    measured: v1::Load,
    finished: v1::FinishedLogons,
    stream: Stream,
}

impl Host {
    pub(crate) async fn start(
        client: &Client,
        number: usize,
        (cores, count): (f64, u32),
    ) -> anyhow::Result<Self> {
        let name = format!("host-{number}");
        let group = Group::new(&name, share(f64::from(CORES)))?;
        let mut sessions = Burner::start(&[SESSIONS.to_owned()]);
        group.add(sessions.pid())?;
        sessions.say(&share(cores).to_string());
        let stream = Stream::open(client, &name).await;
        let now = Instant::now();
        let interval =
            Interval { begun: now, at: now, busy: Duration::ZERO, demand: Duration::ZERO, logon_s: 0.0 };
        let finished = v1::FinishedLogons { core_seconds: Some(0.0), ..Default::default() };
        let mut host = Self {
            name,
            logons: Vec::new(),
            sessions,
            group,
            session_cores: cores,
            session_count: count,
            session_meter: Meter::default(),
            interval,
            measured: v1::Load::default(),
            finished,
            stream,
        };
        host.session_meter.since(host.sessions.pid());
        Ok(host)
    }

    /// A logon begins here.
    pub(crate) fn begin(&mut self, number: usize, login: Login) -> anyhow::Result<()> {
        // The work of a core-second of the model, on a core and in a time that are both smaller.
        let work_s = share(login.work_core_s) / FASTER;
        let words = [LOGON.to_owned(), work_s.to_string(), share(LOGON_CORES).to_string()];
        let mut burner = Burner::start(&words);
        self.group.add(burner.pid())?;
        let mut meter = Meter::default();
        meter.since(burner.pid());
        burner.say("go");
        self.stream.arrived(&user(number));
        self.logons.push(Logon { login, burner, begun: Instant::now(), meter });
        Ok(())
    }

    /// Looks at everything once. `tells_at_once`: who is on the host is told when it changes, not only with the reports.
    pub(crate) fn look(&mut self, tells_at_once: bool) -> Vec<Done> {
        let before = self.logons.len();
        self.meter();
        let mut done = Vec::new();
        let mut at = 0;
        while at < self.logons.len() {
            if self.logons[at].burner.has_ended() {
                done.push(self.finish(at));
            } else {
                at += 1;
            }
        }
        let book_changed = self.stream.listen();
        if tells_at_once && (book_changed || before != self.logons.len() || !done.is_empty()) {
            self.tell();
        }
        done
    }

    fn finish(&mut self, at: usize) -> Done {
        let logon = self.logons.swap_remove(at);
        let (took, alone) = (logon.begun.elapsed(), alone(&logon.login));
        self.session_cores += logon.login.session_cores;
        self.session_count += 1;
        self.sessions.say(&share(self.session_cores).to_string());
        self.finished.count += 1;
        self.finished.seconds += took.as_secs_f64();
        let core_seconds = self.finished.core_seconds.get_or_insert(0.0);
        *core_seconds += logon.login.work_core_s / FASTER;
        let expansion = took.as_secs_f64() / alone.as_secs_f64();
        Done { expansion, is_censored: false }
    }

    /// Those that are still under way, as they stand.
    pub(crate) fn give_up(&mut self) -> Vec<Done> {
        let logons = self.logons.drain(..);
        logons
            .map(|logon| Done {
                expansion: logon.begun.elapsed().as_secs_f64() / alone(&logon.login).as_secs_f64(),
                is_censored: true,
            })
            .collect()
    }

    fn meter(&mut self) {
        let now = Instant::now();
        let elapsed = now - self.interval.at;
        self.interval.at = now;
        self.interval.logon_s += self.logons.len() as f64 * elapsed.as_secs_f64();
        let mut add = |(run, wait): (Duration, Duration), most: f64| {
            self.interval.busy += run;
            self.interval.demand += (run + wait).min(elapsed.mul_f64(most));
        };
        add(self.session_meter.since(self.sessions.pid()), share(self.session_cores));
        for logon in &mut self.logons {
            add(logon.meter.since(logon.burner.pid()), share(LOGON_CORES));
        }
    }

    /// Measures the interval that ends now, and reports it.
    pub(crate) fn report(&mut self) {
        self.meter();
        let Interval { begun, busy, demand, logon_s, .. } = self.interval;
        let elapsed = begun.elapsed().as_secs_f64();
        let all = elapsed * share(f64::from(CORES));
        let on_it = self.session_count + self.logons.len() as u32;
        self.measured = v1::Load {
            cpu_percent: Some((100.0 * busy.as_secs_f64() / all).min(100.0)),
            runnable_demand: Some(demand.as_secs_f64() / all),
            memory_used_bytes: Some((AT_REST + u64::from(on_it) * OF_SESSION).min(MEMORY)),
            memory_total_bytes: Some(MEMORY),
            processes: Some(PROCESSES + on_it * OF_SESSION_PROCESSES),
            ..Default::default()
        };
        let mean = logon_s / elapsed;
        self.measured.logons_in_progress = Some(v1::LogonsInProgress { now: 0, mean });
        let now = self.interval.at;
        self.interval =
            Interval { begun: now, at: now, busy: Duration::ZERO, demand: Duration::ZERO, logon_s: 0.0 };
        self.tell();
    }

    /// Tells what was measured last, with who is on it now.
    fn tell(&mut self) {
        let on_it = self.session_count + self.logons.len() as u32;
        let mut load = self.measured.clone();
        load.users = Some(on_it);
        load.sessions_active = Some(on_it);
        load.finished_logons = Some(self.finished);
        if let Some(logons) = &mut load.logons_in_progress {
            logons.now = self.logons.len() as u32;
        }
        self.stream.report(load);
    }
}

/// The login name of a login.
pub(crate) fn user(number: usize) -> String {
    format!("user-{number}")
}

/// How long a logon takes on a host that does nothing else.
fn alone(login: &Login) -> Duration {
    here(login.work_core_s / LOGON_CORES)
}
