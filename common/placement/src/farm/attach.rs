//! Which machine is behind a stream?
//!
//! A host is its id, never its name or address. Two streams under one id are either the same host that connected again
//! (then the newer stream counts, and the end of the older one changes nothing), or two machines that were cloned from
//! one image (then the one that was there first stays, if it still answers). A certificate's name belongs to the first
//! id that came with it, and to another one only when that host is gone: the machine was installed anew.

use std::sync::Arc;

use thiserror::Error;
use usher_availability::{AvailabilityTracker, Latches};
use usher_types::{BootId, BootTime, DrainMode, EndReason, Goodbye, Hello, HostId};

use super::{
    DrainMark, Farm, HostFacts, last_good::LastGood, learned::HostLearning, marks::AdminMarks,
    registry::new_entry,
};

/// A host that was let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// The certificate's name, as names are compared, belongs to this host from now on; to be stored.
    pub bind: Option<String>,
    /// A host that is gone and whose certificate name this one took over, and with it all that admins had marked: what
    /// is stored of the old one is to be stored of this one.
    pub retired: Option<HostId>,
    /// A drain that ended because the host has booted again; to be removed from the store, if it is still this one.
    pub drain_ended: Option<Arc<DrainMark>>,
    /// The stream that was open before.
    pub replaced_stream: Option<u64>,
}

/// Why a host was not let in.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum AttachRefused {
    /// Another boot of the same id has a stream: whoever answers a ping on it stays.
    #[error("host id {host_id} is in use by {held_by}, and {claimed_by} claims it too")]
    InUse {
        /// The id.
        host_id: HostId,
        /// Name of the host that has it.
        held_by: String,
        /// Name of the host that wants it.
        claimed_by: String,
        /// The stream to ping.
        stream_epoch: u64,
    },
    /// A stream of the same boot with a higher epoch is open, or one with the same.
    #[error("a newer stream of host {0} is open")]
    OlderStream(HostId),
    /// The certificate belongs to another host.
    #[error("certificate {certificate} belongs to host id {bound_to}, not to {claimed}")]
    OtherHost {
        /// The name in the certificate.
        certificate: String,
        /// The host that it belongs to.
        bound_to: HostId,
        /// The host that came with it.
        claimed: HostId,
    },
    /// The host id belongs to another certificate.
    #[error("host id {claimed} belongs to certificate {bound_to}, not to {certificate}")]
    OtherCertificate {
        /// The id that is claimed.
        claimed: HostId,
        /// The certificate's name that the id belongs to.
        bound_to: String,
        /// The one that the claimant has.
        certificate: String,
    },
    /// The certificate names another host.
    #[error("certificate {certificate} is not for a host called {claimed}")]
    OtherName {
        /// The name in the certificate.
        certificate: String,
        /// The name that the host gives itself.
        claimed: String,
    },
}

impl Farm {
    /// Lets a host in, or says why not. `certificate_name` is absent on plain loopback. With `old_is_dead`, a stream
    /// of another boot that did not answer gives way.
    ///
    /// # Errors
    /// [`AttachRefused`]; nothing has changed then.
    pub fn attach(
        &mut self,
        hello: &Hello,
        certificate_name: Option<&str>,
        old_is_dead: bool,
    ) -> Result<Attached, AttachRefused> {
        // Who it is comes first: a stranger must not learn whether the host that it claims to be is alive.
        let retired = match certificate_name {
            Some(name) => self.check_certificate(hello, name)?,
            None => None,
        };
        self.check_stream(hello, old_is_dead)?;
        let inherited =
            retired.as_ref().map(|old| self.retire_with_its_own(old, &hello.host_id)).unwrap_or_default();
        let mut attached = Attached {
            bind: None,
            retired,
            drain_ended: None,
            replaced_stream: self.stream_of(&hello.host_id),
        };
        if let Some(name) = certificate_name.filter(|_| !hello.is_virtual).map(compared)
            && self.bindings.get(&name) != Some(&hello.host_id)
        {
            self.bindings.insert(name.clone(), hello.host_id.clone());
            attached.bind = Some(name);
        }
        // Whoever is let in has its place.
        self.displaced.remove(&hello.host_id);
        attached.drain_ended = self.introduce(hello, inherited);
        Ok(attached)
    }

    /// The bond of a certificate's name could not be stored: it is not in force.
    pub fn unbind(&mut self, certificate: &str) {
        self.bindings.remove(&compared(certificate));
    }

    /// Takes a host that is gone for good out of the farm. What admins said of it, for the machine that has its name now, and
    /// the drain that it kept itself.
    pub(super) fn retire(&mut self, host_id: &HostId, heir: &HostId) -> (AdminMarks, Option<Arc<DrainMark>>) {
        self.displaced.remove(host_id);
        let entry = self.remove_host(host_id);
        for grant in self.ledger.on_host(host_id) {
            grant.end(EndReason::HostLost, self.last_tick);
        }
        self.take_replica_marks(host_id, heir, self.last_tick);
        let waiting = self.waiting.remove(host_id).unwrap_or_default();
        let Some(entry) = entry else { return (waiting, None) };
        let kept = entry.view.reading.as_ref().and_then(|reading| reading.drain.clone());
        let boot_id = Some(entry.view.facts.boot_id.clone());
        let kept = kept.map(|drain| Arc::new(DrainMark { drain, boot_id }));
        (AdminMarks { drain: entry.view.drain, settings: entry.view.marks }, kept)
    }

    /// Likewise; a drain that it kept itself may be gone with its disk, and is one of those marks.
    fn retire_with_its_own(&mut self, host_id: &HostId, heir: &HostId) -> AdminMarks {
        let (marks, kept) = self.retire(host_id, heir);
        AdminMarks { drain: marks.drain.or(kept), ..marks }
    }

    fn stream_of(&self, host_id: &HostId) -> Option<u64> {
        self.hosts.get(host_id).and_then(|host| host.stream_epoch)
    }

    fn check_stream(&self, hello: &Hello, old_is_dead: bool) -> Result<(), AttachRefused> {
        let Some(host) = self.hosts.get(&hello.host_id) else { return Ok(()) };
        let Some(stream_epoch) = host.stream_epoch else { return Ok(()) };
        if host.view.facts.boot_id != hello.boot_id {
            if old_is_dead {
                return Ok(());
            }
            return Err(AttachRefused::InUse {
                host_id: hello.host_id.clone(),
                held_by: host.view.facts.name.to_string(),
                claimed_by: hello.host_name.to_string(),
                stream_epoch,
            });
        }
        if hello.stream_epoch <= stream_epoch {
            return Err(AttachRefused::OlderStream(hello.host_id.clone()));
        }
        Ok(())
    }

    /// The host that must give way, if the certificate's name belongs to one that is gone.
    ///
    /// Modelled hosts may share one certificate under many names; what they may not do is to be a real host.
    fn check_certificate(&self, hello: &Hello, certificate: &str) -> Result<Option<HostId>, AttachRefused> {
        if !hello.is_virtual && !hello.host_name.matches(certificate) {
            return Err(AttachRefused::OtherName {
                certificate: certificate.to_owned(),
                claimed: hello.host_name.to_string(),
            });
        }
        let bound = self.bindings.iter().find(|(name, id)| {
            **id == hello.host_id && (hello.is_virtual || **name != compared(certificate))
        });
        if let Some((name, claimed)) = bound {
            return Err(AttachRefused::OtherCertificate {
                claimed: claimed.clone(),
                bound_to: name.clone(),
                certificate: certificate.to_owned(),
            });
        }
        if hello.is_virtual {
            return Ok(None);
        }
        match self.bindings.get(&compared(certificate)) {
            Some(bound) if *bound != hello.host_id => match self.hosts.get(bound) {
                Some(host) if self.is_alive(host) => Err(AttachRefused::OtherHost {
                    certificate: certificate.to_owned(),
                    bound_to: bound.clone(),
                    claimed: hello.host_id.clone(),
                }),
                _ => Ok(Some(bound.clone())),
            },
            _ => Ok(None),
        }
    }

    /// The drain that ended because the host has booted again.
    fn introduce(&mut self, hello: &Hello, inherited: AdminMarks) -> Option<Arc<DrainMark>> {
        let moves = self.hosts.get(&hello.host_id).is_some_and(|old| old.view.facts.pool != hello.pool);
        let old = if moves { self.remove_host(&hello.host_id) } else { self.hosts.remove(&hello.host_id) };
        let waiting = self.waiting.remove(&hello.host_id).unwrap_or_default();
        let same_boot = old.as_ref().is_some_and(|old| old.view.facts.boot_id == hello.boot_id);
        let mut entry = old.unwrap_or_else(|| new_entry(HostFacts::from(hello), self.new_cell(&hello.pool)));
        entry.view.facts = Arc::new(HostFacts::from(hello));
        entry.view.connected = true;
        entry.view.shut_down = false;
        entry.view.said_goodbye = false;
        entry.view.drain = entry.view.drain.or(waiting.drain).or(inherited.drain);
        let settings = [entry.view.marks, waiting.settings, inherited.settings];
        entry.view.marks = settings.into_iter().find(|marks| !marks.is_empty()).unwrap_or_default();
        entry.stream_epoch = Some(hello.stream_epoch);
        entry.has_listed = false;
        if !same_boot {
            // Nothing that was measured or promised in an earlier boot is true in this one. What was given while the host was
            // away may have been given in this boot, and its user may come.
            for grant in
                self.ledger.on_host(&hello.host_id).iter().filter(|grant| !grant.may_outlive_a_boot())
            {
                grant.end(EndReason::HostLost, self.last_tick);
            }
            entry.view.reading = None;
            entry.view.latency = None;
            (entry.view.unheard_users, entry.view.unheard_places) = (0, 0);
            self.forget_sessions(&mut entry);
            entry.last_good = LastGood::default();
            entry.learning = HostLearning::default();
            entry.view.aged_places = 0;
            entry.cell.forget_users();
            entry.tracker = AvailabilityTracker::default();
            entry.latches = Latches::default();
            entry.keeps_latches = false;
        }
        // Whatever boot the host was last known in: the drain says itself in which it was set.
        let drain_ended = entry.view.drain.take_if(|mark| ends_with_boot(mark, &hello.boot_id, same_boot));
        self.insert_host(entry);
        drain_ended
    }

    /// The end of a stream. Absent goodbye: it broke. The end of a stream that another one has replaced changes
    /// nothing. Whether it was the living one.
    pub fn detach(
        &mut self,
        host_id: &HostId,
        stream_epoch: u64,
        goodbye: Option<Goodbye>,
        now: BootTime,
    ) -> bool {
        let Some(host) = self.hosts.get_mut(host_id) else { return false };
        if host.stream_epoch != Some(stream_epoch) {
            return false;
        }
        host.stream_epoch = None;
        host.view.connected = false;
        host.view.said_goodbye = goodbye.is_some();
        if goodbye == Some(Goodbye::HostShutdown) {
            host.view.shut_down = true;
            for grant in self.ledger.on_host(host_id) {
                grant.end(EndReason::HostLost, now);
            }
        }
        self.publish(host_id);
        true
    }
}

/// The form in which certificates' names are compared: as those of hosts.
pub(super) fn compared(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn ends_with_boot(mark: &DrainMark, boot_id: &BootId, same_boot: bool) -> bool {
    let has_booted = mark.boot_id.as_ref().map_or(!same_boot, |set_in| set_in != boot_id);
    mark.drain.mode == DrainMode::UntilRestart && has_booted
}
