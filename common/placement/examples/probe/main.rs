mod farm;
use farm::{BenchFarm, request};
use std::hint::black_box;
use usher_placement::decision::{Asked, reserve_best};
use usher_types::Method;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let n: usize = args[1].parse().unwrap();
    let times: u64 = args[2].parse().unwrap();
    let method = match args.get(3).map(String::as_str) {
        Some("p") => Method::Predictive,
        Some("a") => Method::Availability,
        Some("f") => Method::FillFirst,
        _ => Method::WeightedLoad,
    };
    let farm = BenchFarm::new((method, "x"), n);
    let dry = request(true);
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    for seed in 0..times {
        let asked = Asked { request: &dry, unwilling: &[], doors: &[], now: farm.now, seed };
        black_box(reserve_best(|| farm.snapshot.clone(), &farm.ledger, &asked));
    }
    println!("{} ns", {
        let e = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        ((e.tv_sec - t.tv_sec) * 1_000_000_000 + e.tv_nsec - t.tv_nsec) as u64 / times
    });
    let _ = (&farm.method, BenchFarm::plain_scan, BenchFarm::publish_one_report);
}
