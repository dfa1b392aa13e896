//! Many logins at once through one client: how they spread over hosts, and how long they wait.
//!
//! `cargo run -p usher-client --example storm -- desk 500 127.0.0.1:7443 127.0.0.1:7444`

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use usher_client::{Client, Config, Outcome, Request};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(pool), Some(logins)) = (arguments.next(), arguments.next()) else {
        bail!("wanted: POOL LOGINS COORDINATOR...");
    };
    let logins: u32 = logins.parse().context("LOGINS is a number")?;
    let client = Client::connect(Config::new(arguments).gateway("storm"))?;
    let calls: Vec<_> = (0..logins)
        .map(|_| {
            let (client, request) = (client.clone(), Request::new(&pool));
            tokio::spawn(async move {
                let began = Instant::now();
                let placement = client.place(request).await?;
                // It is only a rehearsal.
                client.report(&placement, Outcome::Cancelled);
                Ok::<_, usher_client::Error>((placement.host_name().to_owned(), began.elapsed()))
            })
        })
        .collect();
    let (mut hosts, mut longest, mut failed) = (BTreeMap::<String, u32>::new(), Duration::ZERO, 0);
    for call in calls {
        match call.await? {
            Ok((host, took)) => {
                *hosts.entry(host).or_default() += 1;
                longest = longest.max(took);
            }
            Err(error) => {
                failed += 1;
                eprintln!("{error}");
            }
        }
    }
    hosts.iter().for_each(|(host, count)| println!("{count:6} {host}"));
    println!("{failed} failed, the longest wait was {} ms", longest.as_millis());
    client.flush(Duration::from_secs(5)).await;
    Ok(())
}
