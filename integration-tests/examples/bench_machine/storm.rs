//! One storm on real processes, placed by a real coordinator.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use usher_integration_tests::{Client, Coordinator, CoordinatorStart, place, wait_for};
use usher_proto::v1;

use crate::host::{Done, Host, user};
use crate::people::People;
use crate::scale::{DRAIN_S, HOSTS, LEAD_IN_S, REPORT_S, here};

const POOL: &str = "desk";
/// Between two looks at the hosts: well below the time of a logon.
const LOOK: Duration = Duration::from_millis(25);

/// How logins are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By what each host is expected to have to do.
    Predictive,
    /// By weighted load as it was last reported. Places are given back at once, so that they do not count, and hosts tell
    /// nothing between their reports: what brokers do that rank on reports alone.
    Stale,
}

impl Way {
    pub(crate) const ALL: [Self; 2] = [Self::Predictive, Self::Stale];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Predictive => "predictive",
            Self::Stale => "aads_stale",
        }
    }

    fn policy(self) -> v1::Policy {
        let method = match self {
            Self::Predictive => v1::Method::Predictive,
            Self::Stale => v1::Method::WeightedLoad,
        };
        let predict = Some(self == Self::Predictive);
        v1::Policy { method: Some(method.into()), predict, ..Default::default() }
    }
}

/// A login that has its host and is connecting to it.
struct Connecting {
    number: usize,
    host: usize,
    arrives: Instant,
}

/// Lives through one storm; what each logon met.
///
/// # Errors
/// When hosts cannot be made, or a login is refused.
pub(crate) async fn live(folder: &Path, way: Way, people: &People) -> anyhow::Result<Vec<Done>> {
    let coordinator = CoordinatorStart::new(folder, "coordinator").start().await;
    let client = Client::new(coordinator.grpc, None);
    let mut hosts = Vec::new();
    for (number, at_start) in people.at_start.iter().enumerate() {
        hosts.push(Host::start(&client, number, *at_start).await?);
    }
    ready(&coordinator, &client, &mut hosts, way).await;
    let done = run(&client, &mut hosts, way, people).await?;
    Ok(done)
}

async fn ready(coordinator: &Coordinator, client: &Client, hosts: &mut [Host], way: Way) {
    wait_for("the hosts to be heard", here(LEAD_IN_S).max(Duration::from_secs(10)), async || {
        for host in &mut *hosts {
            host.look(false);
            host.report();
        }
        let heard = client.hosts().await.map_err(|status| status.to_string())?;
        let heard = heard.iter().filter(|host| host.load_age_ms.is_some()).count();
        if heard == HOSTS { Ok(()) } else { Err(format!("{heard} heard:\n{}", coordinator.log())) }
    })
    .await;
    client.apply(POOL, way.policy()).await.unwrap();
}

async fn run(client: &Client, hosts: &mut [Host], way: Way, people: &People) -> anyhow::Result<Vec<Done>> {
    let begun = Instant::now();
    let first = begun + here(LEAD_IN_S);
    let last = first + here(people.logins.last().map_or(0.0, |login| login.at_s));
    // Hosts report at phases of their own.
    let phase = |host: usize| here(REPORT_S).mul_f64((host as f64 + 0.5) / HOSTS as f64);
    let mut reports: Vec<Instant> = (0..hosts.len()).map(|host| begun + phase(host)).collect();
    let (placed_in, mut placed) = mpsc::unbounded_channel();
    let (mut next, mut done, mut connecting) = (0, Vec::new(), Vec::<Connecting>::new());
    let mut looks = tokio::time::interval(LOOK);
    while done.len() < people.logins.len() && Instant::now() < last + here(DRAIN_S) {
        looks.tick().await;
        let now = Instant::now();
        for (host, at) in hosts.iter_mut().zip(&mut reports) {
            done.extend(host.look(way == Way::Predictive));
            if now >= *at {
                *at += here(REPORT_S);
                host.report();
            }
        }
        while let Some(login) = people.logins.get(next).filter(|login| now >= first + here(login.at_s)) {
            let (client, placed_in, arrives) =
                (client.clone(), placed_in.clone(), now + here(login.connect_s));
            let number = next;
            tokio::spawn(async move {
                // Nobody listens once the storm has failed.
                let _ = placed_in.send((number, arrives, ask(&client, way, number).await));
            });
            next += 1;
        }
        while let Ok((number, arrives, chosen)) = placed.try_recv() {
            let chosen: String = chosen?;
            let host = hosts.iter().position(|host| host.name == chosen);
            let host = host.ok_or_else(|| anyhow::anyhow!("{chosen} is no host of ours"))?;
            connecting.push(Connecting { number, host, arrives });
        }
        let arrived: Vec<Connecting> = connecting.extract_if(.., |login| now >= login.arrives).collect();
        for Connecting { number, host, .. } in arrived {
            hosts[host].begin(number, people.logins[number])?;
        }
    }
    done.extend(hosts.iter_mut().flat_map(Host::give_up));
    Ok(done)
}

/// Asks for a place; the name of its host.
async fn ask(client: &Client, way: Way, number: usize) -> anyhow::Result<String> {
    let request_id = format!("login-{number}");
    let request = v1::PlaceRequest { user: Some(user(number)), ..place(POOL, &request_id) };
    let placed = client.place(request).await?;
    if way == Way::Stale {
        client.outcome(&request_id, v1::Outcome::Cancelled).await?;
    }
    Ok(placed.host_name)
}
