//! Which streams should a host have now?
//!
//! One to each coordinator on the list. One that appears gets a stream at once; one that is gone is told good-bye. The
//! host hears of each change before any stream to a new one opens, since it keeps seats free for those on the list that it
//! does not hear.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use usher_runtime::clock::Clock;
use usher_runtime::net::Dial;
use usher_types::Goodbye;

use super::connection::{Leaving, Reporter};
use crate::coordinators::{Coordinators, Losses};
use crate::host::{HostCommand, HostHandle};

/// The streams of one host.
#[derive(Debug)]
pub struct StreamSet {
    /// The host.
    pub host: HostHandle,
    /// Whom it reports to.
    pub coordinators: Coordinators,
    /// Hears of lost streams.
    pub losses: Losses,
    /// How coordinators are reached.
    pub dial: Arc<dyn Dial>,
    /// Boot-time clock.
    pub clock: Arc<dyn Clock>,
    /// Draws the waits of its streams.
    pub rng: StdRng,
    /// Says when to stop.
    pub leaving: Leaving,
}

impl StreamSet {
    /// Runs until the agent leaves and every stream has ended.
    pub async fn run(mut self) {
        let mut streams = JoinSet::new();
        let mut leave: BTreeMap<usize, watch::Sender<Option<Goodbye>>> = BTreeMap::new();
        loop {
            let list = self.coordinators.borrow_and_update().clone();
            self.host.streams_held.set_list(&list);
            // A host that has stopped reports to nobody; its streams find that out.
            let _ = self.host.commands.send(HostCommand::Coordinators).await;
            leave.retain(|number, leave| {
                let stays = list.iter().any(|known| known.number == *number);
                if !stays {
                    leave.send_replace(Some(Goodbye::AgentStop));
                }
                stays
            });
            for known in list.iter() {
                leave.entry(known.number).or_insert_with(|| {
                    let (leave, leaving) = watch::channel(None);
                    streams.spawn(self.reporter(known.number, &known.target, leaving).run());
                    leave
                });
            }
            tokio::select! {
                Ok(()) = self.coordinators.changed() => {}
                // An error says that the process goes down.
                reason = self.leaving.wait_for(Option::is_some) => {
                    let reason = reason.ok().and_then(|reason| *reason).unwrap_or(Goodbye::AgentStop);
                    for leave in leave.values() {
                        leave.send_replace(Some(reason));
                    }
                    break;
                }
            }
            while streams.try_join_next().is_some() {}
        }
        while streams.join_next().await.is_some() {}
    }

    fn reporter(&mut self, number: usize, target: &str, leaving: Leaving) -> Reporter {
        Reporter {
            number,
            target: target.to_owned(),
            dial: self.dial.clone(),
            host: self.host.clone(),
            losses: self.losses.clone(),
            clock: self.clock.clone(),
            rng: StdRng::from_rng(&mut self.rng),
            leaving,
        }
    }
}
