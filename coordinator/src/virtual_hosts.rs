//! How many modelled hosts may one certificate bring?
//!
//! A real host has a certificate of its own, so there are as many as somebody signed. Modelled hosts share one under
//! any number of ids, and the farm keeps every id that it has let in: whoever holds such a certificate could fill the
//! coordinator's memory with hosts that there are not. So their ids are counted here, and never forgotten while the
//! coordinator runs: a host that goes and comes back is no other one.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

use usher_types::HostId;

/// The modelled hosts that each certificate has brought.
#[derive(Debug, Default)]
pub(crate) struct VirtualHosts {
    /// By the certificate's name; all of plain loopback under none.
    brought: Mutex<HashMap<Option<String>, HashSet<HostId>>>,
}

impl VirtualHosts {
    /// Whether the certificate may bring this host: it has before, or has brought fewer than `most` others.
    pub(crate) fn claim(&self, certificate: Option<&str>, host_id: &HostId, most: u32) -> bool {
        // Whoever panicked here has left a set that is whole.
        let mut brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        let hosts = brought.entry(certificate.map(str::to_ascii_lowercase)).or_default();
        if hosts.contains(host_id) {
            return true;
        }
        let is_room = u32::try_from(hosts.len()).is_ok_and(|count| count < most);
        is_room && hosts.insert(host_id.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> HostId {
        HostId::new(text).unwrap()
    }

    #[test]
    fn each_certificate_brings_so_many_hosts_and_the_same_ones_again() {
        let hosts = VirtualHosts::default();
        assert!(hosts.claim(Some("models"), &id("a"), 2));
        assert!(hosts.claim(Some("models"), &id("b"), 2));
        assert!(!hosts.claim(Some("Models"), &id("c"), 2), "names of certificates have no case");
        assert!(hosts.claim(Some("models"), &id("a"), 2), "one that comes back is no other one");
        assert!(hosts.claim(Some("others"), &id("c"), 2));
        assert!(hosts.claim(None, &id("c"), 2), "plain loopback counts by itself");
    }
}
