//! What is the best that could be done?
//!
//! Greedy on the truth: it knows each host's demand of this very moment and what this login's session will use. No method
//! that sees reports can know either. It is not the optimum (it does not know who comes next), but nothing that decides
//! one login after the other is much better.
//!
//! Where agents freeze it is limited to the hosts whose agents do not: that is all that anybody can be asked to use.

use rand_pcg::Pcg64Mcg;

use super::{Placer, lowest};
use crate::{
    login::{LOGON_CORES, Login, generator},
    machines::Machines,
    scene::{Script, purpose},
    sensors::Report,
};

#[derive(Debug)]
pub(crate) struct Oracle {
    usable: Vec<bool>,
    rng: Pcg64Mcg,
}

impl Oracle {
    pub(crate) fn new(script: &Script, seed: u64) -> Self {
        let usable = script.frozen.iter().map(|frozen| !frozen).collect();
        Self { usable, rng: generator(seed, purpose::PLACING, 0) }
    }
}

fn score(truth: &Machines, host: usize, login: &Login) -> f64 {
    let on_the_way = truth.logons[host].len() as f64 + f64::from(truth.connecting[host]) + 1.0;
    let demand = truth.steady_now(host) + LOGON_CORES * on_the_way + login.cpu_cores;
    let memory = (truth.used_gb[host] + login.memory_gb) / truth.memory_gb[host];
    demand / truth.cores[host] + 6.0 * (memory - 0.85).max(0.0) + 0.1 * memory
}

impl Placer for Oracle {
    fn report(&mut self, _host: usize, _report: &Report, _now_s: f64) {}
    fn session_begins(&mut self, _host: usize, _login: usize, _now_s: f64) {}
    fn session_ends(&mut self, _host: usize, _now_s: f64) {}
    fn host_dies(&mut self, host: usize, _now_s: f64) {
        self.usable[host] = false;
    }
    fn host_boots(&mut self, _host: usize, _now_s: f64) {}
    fn second(&mut self, _now_s: f64) {}
    fn step_ends(&mut self, _truth: &Machines, _now_s: f64) {}
    fn agent_freezes(&mut self, _host: usize, _now_s: f64) {}

    fn place(&mut self, _number: usize, login: &Login, truth: &Machines, _now_s: f64) -> Option<usize> {
        let usable = (0..self.usable.len()).filter(|host| self.usable[*host]);
        lowest(usable.map(|host| (host, score(truth, host, login))), &mut self.rng)
    }
}
