//! Does the gateways' library speak to a farm whose connections show certificates?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use usher_client::{
    Client as Library, Config, Error, FarmCache, InOrder, NoLocal, Outcome, RenewError, Request, TlsFiles,
};
use usher_integration_tests::{Authority, CertFiles, FakeAgent, Farm, LONG, hello, load, wait_until};
use usher_proto::v1;
use usher_proto::v1::attach_request::Message as Said;

fn tls(files: &CertFiles) -> TlsFiles {
    TlsFiles { cert: files.cert.clone(), key: files.key.clone(), ca: files.ca.clone() }
}

#[tokio::test]
async fn a_gateways_certificate_places_watches_and_reports_and_an_agents_does_not() {
    let start = Farm::start();
    let authority = Authority::new(start.folder());
    let own = authority.issue("usher://default/coordinator/c1");
    let farm = start.settings(&own.table()).await;
    let address = farm.coordinator.grpc;
    let agent = authority.issue("usher://default/agent/s1");
    let fake = FakeAgent::attach(&agent.client(address), hello("s1")).await.unwrap();
    fake.say(Said::Load(v1::Load { incarnation_ms: 1000, ..load(10.0, 20.0, 3, 40) })).await;

    let gateway = authority.issue("usher://default/gateway/g1");
    let config = Config::new([format!("localhost:{}", address.port())]).farm("default");
    let library = Library::connect(config.clone().tls(tls(&gateway))).unwrap();
    wait_until("the library to know the farm", LONG, async || library.farm_age().is_some()).await;
    let placement = library.place(Request::new("desk").user("alice")).await.unwrap();
    assert_eq!(
        placement.message().reservation.as_ref().unwrap().gateway,
        "g1",
        "the certificate says who asks"
    );
    library.report(&placement, Outcome::Cancelled);
    assert!(library.flush(LONG).await);

    let library = Library::connect(config.clone().tls(tls(&agent))).unwrap();
    let Error::Refused(refusal) = library.place(Request::new("desk")).await.unwrap_err() else { panic!() };
    assert_eq!(refusal.reason, "NOT_AUTHORIZED");
    assert!(library.farm_age().is_none());

    // Without a certificate nothing goes over a wire.
    assert!(Library::connect(Config::new(["c1.example:7443"])).is_err());
}

#[tokio::test]
async fn a_copy_of_the_farm_is_for_whom_the_certificate_lets_watch_it_and_for_no_other_farm() {
    let start = Farm::start();
    let authority = Authority::new(start.folder());
    let own = authority.issue("usher://default/coordinator/c1");
    let farm = start.settings(&own.table()).await;
    let address = farm.coordinator.grpc;
    let agent = authority.issue("usher://default/agent/s1");
    let fake = FakeAgent::attach(&agent.client(address), hello("s1")).await.unwrap();
    fake.say(Said::Load(v1::Load { incarnation_ms: 1000, ..load(10.0, 20.0, 3, 40) })).await;

    let every = Duration::from_secs(300);
    let cache = |folder: &str, files: &CertFiles| {
        let coordinators = vec![format!("localhost:{}", address.port())];
        let in_order = InOrder::new(coordinators, LONG, None, Some(tls(files))).unwrap();
        FarmCache::new(farm.folder().join(folder), &in_order)
    };
    let refused = cache("agent", &agent).renew(every).await.unwrap_err();
    assert!(matches!(refused, RenewError::NotTold(_)), "{refused}");
    assert!(!cache("agent", &agent).path().exists());

    let gateway = authority.issue("usher://default/gateway/g1");
    let own = cache("gateway", &gateway);
    assert!(own.renew(every).await.unwrap());
    assert_eq!(own.read().await.unwrap().hosts("desk").count(), 1);
    let elsewhere = cache("gateway", &authority.issue("usher://elsewhere/gateway/g1"));
    let NoLocal::Unusable(why) = elsewhere.read().await.unwrap_err() else { panic!() };
    assert!(why.contains("it is of farm \"default\", not of ours"), "{why}");
    assert!(!own.path().exists(), "it is out of the way");
}
