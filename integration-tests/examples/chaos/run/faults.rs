//! How does each fault begin, and how does it end?

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use usher_integration_tests::LONG;
use usher_integration_tests::chaos::{Fault, Planned};

use super::clock::now_ms;
use super::farm::{Farm, ON_SMALL_DISK, WITH_SET_CLOCK, set_clock};

/// An hour, in seconds.
const HOUR: i64 = 3600;
/// Modelled hosts show the ports from here on as their doors.
const FIRST_DOOR: u16 = 2201;

/// Runs one fault from its beginning to its end. In which time agents were away.
pub(crate) async fn strike(farm: &mut Farm, planned: Planned) -> Option<(u64, u64)> {
    let Planned { fault, victim, lasts, .. } = planned;
    let began = now_ms();
    match fault {
        Fault::KillCoordinator => kill_coordinators(farm, &[victim], lasts).await,
        Fault::KillAll => kill_coordinators(farm, &[0, 1, 2], lasts).await,
        Fault::Freeze => {
            farm.coordinators[victim].freeze();
            pause(lasts).await;
            farm.coordinators[victim].thaw();
        }
        Fault::CutAgents => {
            let (agents, coordinator) = (&farm.agents_machine, &farm.coordinator_machines[victim]);
            agents.part(coordinator);
            pause(lasts).await;
            agents.join(coordinator);
        }
        Fault::CutStore => cut_store(farm, victim, lasts).await,
        Fault::CutGateways => {
            let cut: Vec<_> = (0..3).filter(|number| *number != victim).collect();
            cut.iter().for_each(|number| farm.gateways.part(&farm.coordinator_machines[*number]));
            pause(lasts).await;
            cut.iter().for_each(|number| farm.gateways.join(&farm.coordinator_machines[*number]));
        }
        Fault::KillStore => {
            let dead: Vec<_> = (0..3).filter(|number| *number != victim).collect();
            dead.iter().for_each(|number| farm.etcd.kill(*number));
            pause(lasts).await;
            dead.iter().for_each(|number| farm.etcd.restart(*number));
        }
        Fault::StepClocks => step_clocks(farm, lasts).await,
        Fault::FillDisk => {
            farm.disk.fill();
            pause(lasts).await;
            farm.disk.free();
        }
        Fault::RestartAgents => restart_agents(farm, lasts).await,
        Fault::KillAgents => kill_agents(farm, lasts).await,
    }
    matches!(fault, Fault::RestartAgents | Fault::KillAgents).then(|| (began, now_ms()))
}

/// What a fault strikes, for people.
pub(crate) fn victim(planned: Planned) -> String {
    match planned.fault {
        Fault::KillCoordinator | Fault::CutAgents | Fault::CutStore | Fault::Freeze => {
            format!("c{}", planned.victim + 1)
        }
        Fault::CutGateways => format!("all but c{}", planned.victim + 1),
        Fault::KillStore => format!("all but e{}", planned.victim + 1),
        Fault::StepClocks => format!("c{}, wide1", WITH_SET_CLOCK + 1),
        Fault::FillDisk => format!("c{}", ON_SMALL_DISK + 1),
        Fault::RestartAgents | Fault::KillAgents | Fault::KillAll => "all".to_owned(),
    }
}

/// A fault lasts as long as it is planned, whatever happens meanwhile.
async fn pause(lasts: Duration) {
    tokio::time::sleep(lasts).await;
}

async fn kill_coordinators(farm: &mut Farm, which: &[usize], lasts: Duration) {
    for number in which {
        farm.coordinators[*number].kill();
    }
    pause(lasts).await;
    for number in which {
        farm.coordinators[*number].restart().await;
    }
}

async fn cut_store(farm: &Farm, victim: usize, lasts: Duration) {
    let coordinator = &farm.coordinator_machines[victim];
    farm.etcd_machines.iter().for_each(|node| coordinator.part(node));
    pause(lasts).await;
    farm.etcd_machines.iter().for_each(|node| coordinator.join(node));
}

async fn step_clocks(farm: &Farm, lasts: Duration) {
    for offset in [HOUR, -HOUR] {
        farm.clocks.iter().for_each(|clock| set_clock(clock, offset));
        pause(lasts / 2).await;
    }
    farm.clocks.iter().for_each(|clock| set_clock(clock, 0));
}

/// One after the other, as an upgrade of all hosts does it, within the time.
async fn restart_agents(farm: &mut Farm, lasts: Duration) {
    let gap = lasts / u32::try_from(farm.agents.len()).unwrap();
    for agent in &mut farm.agents {
        agent.terminate();
        agent.ended(LONG).await;
        agent.restart();
        pause(gap).await;
    }
}

/// The machines live on: whoever asks at their doors is let in.
async fn kill_agents(farm: &mut Farm, lasts: Duration) {
    let mut doors = JoinSet::new();
    for machine in &farm.coordinator_machines {
        // A modelled host shows loopback as its address, so its door is wherever somebody looks for it.
        for number in 0..u16::try_from(farm.hosts).unwrap() {
            let at = SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST_DOOR + number));
            let listener = machine.within(|| std::net::TcpListener::bind(at)).unwrap();
            listener.set_nonblocking(true).unwrap();
            let listener = TcpListener::from_std(listener).unwrap();
            doors.spawn(async move { while listener.accept().await.is_ok() {} });
        }
    }
    for agent in &mut farm.agents {
        agent.kill();
    }
    pause(lasts).await;
    for agent in &mut farm.agents {
        agent.restart();
    }
}
