//! What if two machines claim one host id, each with a certificate of its own and through a coordinator of its own?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tonic::{Code, Status};
use usher_integration_tests::{Client, FakeAgent, LONG, Site, hello, refusal, wait_until};
use usher_proto::v1;

/// A machine with a certificate: its name, and how it reaches each coordinator.
struct Machine {
    name: String,
    boot_id: String,
    at: Vec<Client>,
}

impl Machine {
    fn on(site: &Site, name: &str) -> Self {
        let machine = site.machine(name);
        let files = site.authority().issue(&format!("usher://default/agent/{name}"));
        let at = site.addresses().into_iter().map(|address| files.client_on(&machine, address)).collect();
        Self { name: name.to_owned(), boot_id: hello(name).boot_id, at }
    }

    async fn attach(&self, number: usize, host_id: &str, stream_epoch: u64) -> Result<FakeAgent, Status> {
        let (host_id, boot_id) = (host_id.to_owned(), self.boot_id.clone());
        let hello = v1::Hello { host_id, boot_id, stream_epoch, ..hello(&self.name) };
        FakeAgent::attach(&self.at[number], hello).await
    }
}

/// Of two machines under one host id only the first one has it, at both coordinators.
async fn has_it(site: &Site, host_id: &str, machines: &[Machine; 2], first: usize) {
    for number in 0..site.coordinators.len() {
        let late = machines[1 - first].attach(number, host_id, 9).await;
        let status = refusal(late, Code::PermissionDenied, "IDENTITY_MISMATCH");
        assert!(status.message().contains(&machines[first].name), "it says whose it is: {status:?}");
        // As many tries as it takes until the end of the other's stream is noticed.
        wait_until("the first one to be let in", LONG, async || {
            machines[first].attach(number, host_id, 9).await.is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn of_two_certificates_for_one_host_id_that_come_through_two_coordinators_at_once_one_has_it() {
    let site = Site::start(2).on_network().sharing(1).await;
    let machines = [Machine::on(&site, "app1"), Machine::on(&site, "app2")];
    let host_id = hello("app1").host_id;
    let answers = tokio::join!(machines[0].attach(0, &host_id, 1), machines[1].attach(1, &host_id, 1));
    let first = match answers {
        (Ok(_), Err(_)) => 0,
        (Err(_), Ok(_)) => 1,
        both => panic!("one must win: {both:?}"),
    };
    has_it(&site, &host_id, &machines, first).await;
    let bound = site.etcd.as_ref().unwrap().keys("/usher/default/bindings/").await;
    assert_eq!(bound, [format!("/usher/default/bindings/{}", machines[first].name)]);
}

#[tokio::test]
async fn of_two_certificates_for_one_host_id_that_came_while_etcd_was_away_one_is_cut_off_when_it_is_back() {
    let mut site = Site::start(2).on_network().sharing(1).await;
    let machines = [Machine::on(&site, "app1"), Machine::on(&site, "app2")];
    let host_id = hello("app1").host_id;
    site.etcd.as_mut().unwrap().kill(0);
    let (one, two) = tokio::join!(machines[0].attach(0, &host_id, 1), machines[1].attach(1, &host_id, 1));
    let streams = [one.unwrap(), two.unwrap()];
    let etcd = site.etcd.as_mut().unwrap();
    etcd.restart(0);
    etcd.healthy().await;
    wait_until("one of them to be cut off", LONG, async || {
        streams.iter().any(|stream| stream.ended().is_some())
    })
    .await;
    let first = usize::from(streams[0].ended().is_some());
    assert!(streams[first].ended().is_none(), "and only one");
    let log = site.coordinators[1 - first].log();
    assert!(log.contains("a host id belongs to another certificate"), "{log}");
    drop(streams);
    has_it(&site, &host_id, &machines, first).await;
}
