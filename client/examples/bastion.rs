//! A bastion: where does this user go, and what if that host does not answer?
//!
//! `cargo run -p usher-client --example bastion -- desk alice 127.0.0.1:7443 127.0.0.1:7444`

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::net::TcpStream;
use tokio::time::timeout;
use usher_client::{Cause, Client, Config, Outcome, Placement, Request};

/// How long a host's door may take.
const CONNECT: Duration = Duration::from_secs(3);
/// Hosts that are tried for one login.
const HOSTS: usize = 4;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(pool), Some(user)) = (arguments.next(), arguments.next()) else {
        bail!("wanted: POOL USER COORDINATOR...");
    };
    let client = Client::connect(Config::new(arguments).gateway("bastion-1"))?;
    let mut placement = client.place(Request::new(pool).user(user)).await?;
    for _ in 0..HOSTS {
        println!("{} by {} {:?}", placement.host_name(), placement.reason(), placement.flags());
        match open(&placement).await {
            Ok(_connection) => {
                client.report(&placement, Outcome::Connected);
                // Here a bastion relays bytes until the session ends.
                client.report(&placement, Outcome::Ended);
                client.flush(Duration::from_secs(2)).await;
                return Ok(());
            }
            Err(error) => {
                eprintln!("{}: {error:#}", placement.host_name());
                placement = client.failover(&placement, Cause::Unreachable).await?;
            }
        }
    }
    bail!("no host answers")
}

async fn open(placement: &Placement) -> anyhow::Result<TcpStream> {
    let endpoint = placement.endpoint("ssh").context("the host has no ssh")?;
    let connecting = TcpStream::connect((endpoint.address.as_str(), endpoint.port));
    Ok(timeout(CONNECT, connecting).await??)
}
