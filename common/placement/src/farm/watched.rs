//! Whom would a coordinator choose, if it could still be asked?
//!
//! A gateway that has watched a coordinator knows of each host what decisions are made of. When no coordinator answers any
//! more, this makes a farm of it again, on which the same functions decide. It is of the instant at which the coordinator
//! was last heard: the reports grow older from then on, and by the gateway's own clock every host would be OFFLINE within
//! seconds. Whoever decides on such a farm must decide as of that instant, and must not tick it.
//!
//! What was said is believed here; numbers from a wire are checked where they come in.

use std::sync::Arc;

use usher_availability::Availability;
use usher_types::{BootTime, Hello, HostMarks, Latency, Load, Replica};

use super::{
    CellChange, DrainMark, Farm, HostFacts, LatencyReading, Listed, Pool, PoolRecord, Reading,
    learned::PoolLearning, registry::new_entry,
};
use crate::{
    load::{LearnedCosts, Typical},
    reservation::Ledger,
};

/// A pool as it was watched.
#[derive(Clone, PartialEq, Debug)]
pub struct WatchedPool {
    /// Its settings.
    pub record: PoolRecord,
    /// What one more session costs.
    pub costs: LearnedCosts,
    /// What stands for values that a host does not know.
    pub typical: Typical,
}

/// A host as it was watched.
#[derive(Clone, PartialEq, Debug)]
pub struct WatchedHost {
    /// Who it is.
    pub hello: Hello,
    /// Whether the coordinator had a stream of it.
    pub connected: bool,
    /// It had said goodbye because it goes down.
    pub shut_down: bool,
    /// It had said goodbye, for whatever reason.
    pub said_goodbye: bool,
    /// Its last report as far as it was believed, and when it was measured. Absent: never heard.
    pub load: Option<(Load, BootTime)>,
    /// How available it was, the share of its failed calls, and when that was measured. Absent: nothing was timed.
    pub availability: Option<(Availability, Option<f64>, BootTime)>,
    /// Demand without its logons, as a share of its cores.
    pub background: Option<f64>,
    /// It is the pool's mean, and nothing of its own.
    pub background_is_borrowed: bool,
    /// Users that counted. Absent: not known.
    pub users: Option<u32>,
    /// Users of places given out.
    pub pending_users: u32,
    /// Places given out.
    pub places: u32,
    /// Those of them whose login was over in all likelihood.
    pub aged_places: u32,
    /// Users of places that had ended only because it was silent.
    pub unheard_users: u32,
    /// Such places.
    pub unheard_places: u32,
    /// An admin's drain.
    pub drain: Option<DrainMark>,
    /// An admin's settings of it.
    pub marks: HostMarks,
    /// What it holds in service.
    pub replicas: Vec<Replica>,
}

impl Farm {
    /// A farm of what was watched, as of `now`. Hosts of a pool that was not watched are left out. Places that are given
    /// on it are kept in `ledger`.
    pub fn of_watched(
        pools: Vec<WatchedPool>,
        hosts: Vec<WatchedHost>,
        ledger: Arc<Ledger>,
        now: BootTime,
    ) -> Self {
        let mut farm = Self::new(ledger, now);
        for pool in pools {
            let learned = PoolLearning::told(&pool.costs, pool.typical, now);
            farm.pools.insert(pool.record.name.clone(), Pool { learned, ..Pool::new(pool.record) });
        }
        for host in hosts {
            if farm.pools.contains_key(&host.hello.pool) {
                farm.add_watched(host);
            }
        }
        farm
    }

    fn add_watched(&mut self, host: WatchedHost) {
        let facts = HostFacts::from(&host.hello);
        let host_id = facts.host_id.clone();
        let cell = self.new_cell(&facts.pool);
        let mut entry = new_entry(facts, cell);
        entry.view.connected = host.connected;
        (entry.view.shut_down, entry.view.said_goodbye) = (host.shut_down, host.said_goodbye);
        entry.view.drain = host.drain.map(Arc::new);
        entry.view.marks = host.marks;
        entry.view.replicas = host.replicas.into();
        // The coordinator that was watched had waited for the lists, or did not list the host at all.
        entry.view.replicas_unheard = false;
        let latency = |(availability, error_share_percent, measured_at)| {
            let latency = Latency::default();
            Arc::new(LatencyReading { measured_at, latency, availability, error_share_percent })
        };
        entry.view.latency = host.availability.map(latency);
        let cell = entry.cell.clone();
        self.insert_host(entry);
        if let Some((load, measured_at)) = host.load {
            self.observe_load(&host_id, load, &[], measured_at, 0);
        }
        let places = CellChange {
            users: host.users,
            pending_users: host.pending_users.into(),
            places: host.places.into(),
        };
        cell.apply(places);
        // What it listed is told with its Load; what has ended since is not.
        let listed = |reading: &Reading| Listed {
            users: reading.listed_pending_users.min(host.pending_users),
            places: reading.listed_places.min(host.places),
        };
        cell.set_listed(self.hosts[&host_id].view.reading.as_deref().map(listed).unwrap_or_default());
        if let Some(entry) = self.hosts.get_mut(&host_id) {
            (entry.view.unheard_users, entry.view.unheard_places) = (host.unheard_users, host.unheard_places);
            entry.view.aged_places = host.aged_places;
            if let Some(reading) = &mut entry.view.reading {
                let reading = Arc::make_mut(reading);
                reading.background = host.background;
                reading.background_is_borrowed = host.background_is_borrowed;
            }
        }
        self.publish(&host_id);
    }
}
