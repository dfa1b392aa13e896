//! One farm, one method, one seed: what comes of it?

use std::{cmp::Reverse, collections::BinaryHeap};

use rand::RngExt;
use usher_types::PolicyChange;

use crate::{
    figures::{Figures, Placement, Trace},
    login::{Login, generator},
    machines::{Finished, Machines, STEP_S},
    method::{Method, Placer, Usher},
    scene::{LEAD_IN_S, Scene, Script, purpose},
    sensors::Sensors,
};

/// After the last login a run goes on for so long at most; logons that are not done by then are counted as they stand.
pub const DRAIN_S: f64 = 1800.0;

/// What becomes of a session at a step.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The login arrives at its host.
    Begins(usize),
    /// Its session is over.
    Ends(usize),
    /// A session that was there at the start is over: host, number on it.
    InitialEnds(usize, usize),
}

/// Runs `scene` once.
pub fn run(scene: &Scene, method: Method, seed: u64) -> Figures {
    trace(scene, method, seed).figures()
}

/// Runs `scene` once by usher with these settings of the pool.
///
/// # Panics
/// If a pool cannot have them.
pub fn run_with_settings(scene: &Scene, settings: &PolicyChange, seed: u64) -> Figures {
    let script = Script::draw(scene, seed);
    let placer = Box::new(Usher::new(settings, scene, &script, seed));
    World::new(scene, &script, placer, seed).run().figures()
}

/// Runs `scene` once and keeps what every login met.
pub fn trace(scene: &Scene, method: Method, seed: u64) -> Trace {
    let script = Script::draw(scene, seed);
    let placer = method.placer(scene, &script, seed);
    World::new(scene, &script, placer, seed).run()
}

struct World<'a> {
    scene: &'a Scene,
    script: &'a Script,
    placer: Box<dyn Placer>,
    machines: Machines,
    sensors: Sensors,
    /// By step.
    events: BinaryHeap<Reverse<(usize, Event)>>,
    /// Hosts by the step of the interval in which they report.
    reporting: Vec<Vec<usize>>,
    losses: rand_pcg::Pcg64Mcg,
    placed: Vec<Placement>,
    finished: Vec<Finished>,
    trace: Trace,
}

/// The step in which an instant lies. Instants are not negative and runs are short: it fits.
fn step_of(at_s: f64) -> usize {
    (at_s / STEP_S) as usize
}

impl<'a> World<'a> {
    fn new(scene: &'a Scene, script: &'a Script, placer: Box<dyn Placer>, seed: u64) -> Self {
        let interval = step_of(scene.report_s + STEP_S / 2.0).max(1);
        let mut reporting = vec![Vec::new(); interval];
        for (host, phase) in script.phase.iter().enumerate() {
            let step = (phase * interval as f64) as usize;
            reporting[step.min(interval - 1)].push(host);
        }
        let mut events = BinaryHeap::new();
        for (host, sessions) in script.initial.iter().enumerate() {
            for (number, login) in sessions.iter().enumerate() {
                events.push(Reverse((step_of(login.life_s), Event::InitialEnds(host, number))));
            }
        }
        Self {
            scene,
            script,
            placer,
            machines: Machines::new(scene, script, seed),
            sensors: Sensors::new(scene.hosts, seed),
            events,
            reporting,
            losses: generator(seed, purpose::REPORTS, usize::MAX),
            placed: Vec::with_capacity(script.arrivals.len()),
            finished: Vec::new(),
            trace: Trace::new(scene),
        }
    }

    fn run(mut self) -> Trace {
        let (first, last) = (step_of(LEAD_IN_S), step_of(self.script.ends_s));
        let end = step_of(self.script.ends_s + DRAIN_S);
        let mut next = 0;
        let mut on_the_way = 0usize;
        for step in 0..end {
            let now_s = step as f64 * STEP_S;
            if step == first {
                self.begin(now_s);
            }
            on_the_way -= self.meet(step, now_s);
            if step <= last + 1 {
                self.tell(step, now_s);
                while let Some(login) = self.script.arrivals.get(next).filter(|l| step_of(l.at_s) <= step) {
                    on_the_way += self.place(next, login, now_s);
                    next += 1;
                }
                self.placer.step_ends(&self.machines, now_s);
            }
            self.finished.clear();
            self.machines.step(now_s, &mut self.finished);
            self.note_finished(step, now_s);
            if step <= last + 1 {
                self.sensors.watch(&self.machines, &self.finished, now_s);
            }
            if step >= first && step <= last {
                self.trace.watch(&self.machines);
            }
            let all_placed = next == self.script.arrivals.len() && step > last;
            if all_placed && on_the_way == 0 {
                self.trace.settle(&self.machines);
                if self.machines.logons.iter().all(Vec::is_empty) {
                    break;
                }
            }
        }
        self.trace.settle(&self.machines);
        self.trace.end(self.placed, self.script.ends_s + DRAIN_S);
        self.trace
    }

    /// The lead-in is over: hosts die, boot, and agents freeze.
    fn begin(&mut self, now_s: f64) {
        for host in 0..self.scene.hosts {
            if self.script.dying[host] {
                self.machines.kill(host);
                self.placer.host_dies(host, now_s);
            }
            if self.script.fresh[host] {
                self.placer.host_boots(host, now_s);
            }
            if self.script.frozen[host] {
                self.placer.agent_freezes(host, now_s);
            }
        }
    }

    /// What happens to sessions in this step. How many logins have arrived.
    fn meet(&mut self, step: usize, now_s: f64) -> usize {
        let mut arrived = 0;
        while self.events.peek().is_some_and(|Reverse((at, _))| *at <= step) {
            let Some(Reverse((_, event))) = self.events.pop() else { break };
            match event {
                Event::Begins(number) => {
                    let (login, placed) = (&self.script.arrivals[number], &mut self.placed[number]);
                    let Some(host) = placed.host else { continue };
                    placed.began_s = Some(now_s);
                    self.machines.connecting[host] -= 1;
                    self.machines.begin_session(host, number, login, now_s);
                    self.placer.session_begins(host, number, now_s);
                    arrived += 1;
                }
                Event::Ends(number) => {
                    if let Some(host) = self.placed[number].host {
                        self.end_session(host, &self.script.arrivals[number], now_s);
                    }
                }
                Event::InitialEnds(host, number) => {
                    if self.machines.alive[host] {
                        self.end_session(host, &self.script.initial[host][number], now_s);
                    }
                }
            }
        }
        arrived
    }

    fn end_session(&mut self, host: usize, login: &Login, now_s: f64) {
        self.machines.end_session(host, login);
        self.placer.session_ends(host, now_s);
    }

    /// Agents report.
    fn tell(&mut self, step: usize, now_s: f64) {
        const SECOND: usize = 10;
        if step.is_multiple_of(SECOND) {
            self.sensors.sample_latency(&self.machines);
            self.placer.second(now_s);
        }
        let has_begun = now_s >= LEAD_IN_S;
        for at in 0..self.reporting[step % self.reporting.len()].len() {
            let host = self.reporting[step % self.reporting.len()][at];
            let report = self.sensors.report(&self.machines, host, now_s);
            let is_lost = self.losses.random::<f64>() < self.scene.lost_reports;
            let is_frozen = has_begun && self.script.frozen[host];
            let is_down = !self.machines.alive[host] || (self.script.fresh[host] && !has_begun);
            if !is_lost && !is_frozen && !is_down {
                self.placer.report(host, &report, now_s);
            }
        }
    }

    /// Places a login. How many are on their way more.
    fn place(&mut self, number: usize, login: &Login, now_s: f64) -> usize {
        let host = self.placer.place(number, login, &self.machines, now_s);
        let host = host.filter(|host| self.machines.alive[*host]);
        self.placed.push(Placement::new(login, host));
        if let Some(host) = host {
            self.trace.placed(host, now_s);
            if let Some(connect_s) = login.connect_s {
                self.machines.connecting[host] += 1;
                let step = step_of(now_s + connect_s).max(step_of(now_s) + 1);
                self.events.push(Reverse((step, Event::Begins(number))));
                return 1;
            }
        }
        0
    }

    fn note_finished(&mut self, step: usize, now_s: f64) {
        for done in &self.finished {
            let login = &self.script.arrivals[done.login];
            self.placed[done.login].took_s = Some(done.took_s);
            let ends = step_of(now_s + login.life_s).max(step + 1);
            self.events.push(Reverse((ends, Event::Ends(done.login))));
        }
    }
}
