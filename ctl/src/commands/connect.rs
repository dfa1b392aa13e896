//! How do somebody's bytes get to the host that takes their login?
//!
//! For `ProxyCommand` of ssh: a host is asked for, its door is tried, and from then on bytes go both ways untouched. A
//! door that refuses, that does not answer, or that accepts and then says nothing is told to the farm, and the next host
//! is tried. That ends with the first byte that came from a server: what a server has begun nobody else can go on with.
//! Nothing is read of the client before, so nothing of it is lost on the way from host to host.
//!
//! Nothing goes to standard output but what the server says, not even an error under `--json`: one line on standard
//! error says why there was no connection, and the exit code is 255, as ssh's own.

mod ask;
mod client;
mod door;
mod relay;
mod silent_farm;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use usher_proto::v1;

use crate::cli::parse_timeout;
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::text::clean;
use ask::{Farm, Login};
use client::{Client, Gone};
use door::{Door, Fault};
use relay::End;
use silent_farm::{Chosen, SilentFarm};

/// For how long the last word of a connection may keep the program from ending. The client has seen the end by then.
const LAST_WORD: Duration = Duration::from_millis(500);

/// Arguments of `connect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  usherctl connect --pool desk --user alice --port 22
  usherctl connect --pool desk --user alice --host app3
  usherctl connect --pool web --no-banner --kind http

In ~/.ssh/config, so that `ssh alice@desk` goes to the host that suits alice best:
  Host desk
    ProxyCommand usherctl connect --pool desk --user %r --port %p
    HostKeyAlias desk

Each host of the pool is another machine to ssh: give all of them the same host key, or list theirs under the alias.

A host that refuses, does not answer, or lets in and says nothing is reported, and the next one is tried, until the
server's first byte. Standard output carries what the server says and nothing else. Exit codes: 0 both sides ended,
255 no connection, or it broke.

When no coordinator answers, the host is chosen here by the farm as it was last known, and standard error says how old
that is: a connection leaves a copy of the farm in $XDG_CACHE_HOME/usher or ~/.cache/usher if the last one is older than
5 minutes. [cache] in client.toml says where, whether, and how old it may be (15 minutes)")]
pub(crate) struct Arguments {
    /// The pool that serves the login
    #[arg(long)]
    pool: String,
    /// Login name: brings the user back to their session
    #[arg(long)]
    user: Option<String>,
    /// Port of the host, whatever its endpoint says
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// This host and no other, by name or id, if it may take the login
    #[arg(long, conflicts_with = "prefer")]
    host: Option<String>,
    /// This host rather than others if none is in a better state
    #[arg(long, value_name = "HOST")]
    prefer: Option<String>,
    /// Only hosts that hold a replica of this resource
    #[arg(long, value_name = "ID")]
    resource: Option<String>,
    /// Where the client is: hosts of its zone are preferred among equals
    #[arg(long)]
    zone: Option<String>,
    /// Kind of the endpoint to connect to [default: ssh if there is one, else the first]
    #[arg(long)]
    kind: Option<String>,
    /// How long a host may take to accept the connection
    #[arg(long, value_name = "TIME", value_parser = parse_timeout, default_value = "3s")]
    connect_timeout: Duration,
    /// How long it may then take to say its first byte
    #[arg(long, value_name = "TIME", value_parser = parse_timeout, default_value = "10s")]
    banner_timeout: Duration,
    /// The client speaks first (HTTP, TLS): a host that accepts is connected
    #[arg(long)]
    no_banner: bool,
    /// Most hosts that are tried
    #[arg(long, value_name = "HOSTS", value_parser = clap::value_parser!(u32).range(1..=100), default_value_t = 5)]
    tries: u32,
    /// Folder in which the farm is kept for when no coordinator answers
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Keep no copy of the farm, and fail when no coordinator answers
    #[arg(long, conflicts_with = "cache_dir")]
    no_cache: bool,
}

/// Connects, relays, and ends with the connection.
///
/// # Errors
/// [`Failure::Unconnected`], whatever the reason.
pub(crate) async fn run(context: &Context, arguments: Arguments) -> Result<(), Failure> {
    let pool = arguments.pool.clone();
    let connected = async {
        let client = Client::watch()?;
        let coordinators = context.coordinators()?;
        let chosen = Chosen { dir: arguments.cache_dir.clone(), off: arguments.no_cache };
        let silent = SilentFarm::new(chosen, &coordinators, |name| std::env::var_os(name));
        let farm = Farm::new(coordinators, silent, login(&arguments))?;
        connect_and_relay(farm, client, &arguments).await
    };
    let unconnected = |failure: Failure| Failure::Unconnected(one_line(&pool, &failure));
    LocalSet::new().run_until(connected).await.map_err(unconnected)
}

fn login(arguments: &Arguments) -> Login {
    Login {
        pool: arguments.pool.clone(),
        user: arguments.user.clone(),
        resource: arguments.resource.clone(),
        zone: arguments.zone.clone(),
        prefer: arguments.prefer.clone(),
        only: arguments.host.clone(),
    }
}

async fn connect_and_relay(mut farm: Farm, mut client: Client, arguments: &Arguments) -> Result<(), Failure> {
    let found = tokio::select! {
        found = find(&mut farm, arguments) => Ok(found),
        gone = client.gone() => Err(gone),
    };
    let stream = match found {
        Ok(Ok(stream)) => stream,
        Ok(Err(failure)) => {
            farm.last_words(LAST_WORD).await;
            return Err(failure);
        }
        Err(Gone) => {
            farm.cancel();
            farm.last_words(LAST_WORD).await;
            return Ok(());
        }
    };
    farm.tell(v1::Outcome::Connected, None);
    // Beside the bytes, and no longer than they flow.
    let copying = farm.keep_copy();
    let end = relay::run(stream, &mut client).await;
    if let Some(copying) = copying {
        copying.abort();
    }
    farm.tell(v1::Outcome::Ended, None);
    farm.last_words(LAST_WORD).await;
    match end {
        End::Clean | End::ClientGone => Ok(()),
        End::Broken(error) => {
            let host = clean(&farm.host_name());
            Err(Failure::Broken(
                anyhow::Error::from(error).context(format!("the connection to {host} broke")),
            ))
        }
    }
}

/// The first host whose door lets us in.
async fn find(farm: &mut Farm, arguments: &Arguments) -> Result<TcpStream, Failure> {
    let mut faults = Vec::new();
    farm.place().await?;
    loop {
        let fault = match try_door(farm, arguments).await {
            Ok(stream) => return Ok(stream),
            Err(fault) => fault,
        };
        faults.push(format!("{}: {}", clean(&farm.host_name()), fault.text));
        let may_go_on = arguments.host.is_none() && faults.len() < arguments.tries as usize;
        let next = if may_go_on { farm.failover(fault.cause).await } else { Err(last(farm, &fault)) };
        if let Err(failure) = next {
            return Err(after_faults(&faults, failure));
        }
    }
}

async fn try_door(farm: &Farm, arguments: &Arguments) -> Result<TcpStream, Fault> {
    let endpoint = farm
        .endpoint(arguments.kind.as_deref())
        .ok_or_else(|| Fault::no_endpoint(arguments.kind.as_deref()))?;
    let door = Door {
        address: endpoint.address.clone(),
        port: arguments.port.or_else(|| u16::try_from(endpoint.port).ok()).unwrap_or_default(),
        accepts_within: arguments.connect_timeout,
        speaks_within: (!arguments.no_banner).then_some(arguments.banner_timeout),
    };
    door.open().await
}

/// No further host is tried: its failure is told all the same.
fn last(farm: &mut Farm, fault: &Fault) -> Failure {
    farm.tell(v1::Outcome::Failed, Some(fault.cause));
    Failure::Check("no other host is tried".to_owned())
}

/// What happened at each door stands before what ended the search.
fn after_faults(faults: &[String], failure: Failure) -> Failure {
    let why = flat(&failure.for_people());
    Failure::Check(format!("{}; {why}", faults.join("; ")))
}

/// ssh shows the line among its own; it must say on its own what this was about.
fn one_line(pool: &str, failure: &Failure) -> String {
    format!("usherctl connect: pool {}: {}", clean(pool), flat(&failure.for_people()))
}

/// Without line ends, without the word `error`, and without hints, which have a line of their own.
fn flat(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with("hint: "));
    let joined = lines.collect::<Vec<_>>().join("; ");
    joined.strip_prefix("error: ").map(str::to_owned).unwrap_or(joined)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_failure_is_one_line_that_says_what_it_was_about() {
        let failure = Failure::Check("refused:\n  app1: full\nhint: look".to_owned());
        let after = after_faults(&["app2: connection refused".to_owned()], failure);
        assert_eq!(
            one_line("desk", &after),
            "usherctl connect: pool desk: app2: connection refused; refused:; app1: full"
        );
    }

    #[test]
    fn a_host_is_forced_or_preferred_and_not_both() {
        let parses = |line: &str| Cli::try_parse_from(line.split(' ')).is_ok();
        assert!(parses("usherctl connect --pool desk --host app1 --port 2222"));
        assert!(parses("usherctl connect --pool desk --prefer app1"));
        for wrong in [
            "--host app1 --prefer app1",
            "--port 0",
            "--port 65536",
            "--tries 0",
            "--banner-timeout 0s",
            "--no-cache --cache-dir /c",
        ] {
            assert!(!parses(&format!("usherctl connect --pool desk {wrong}")), "{wrong}");
        }
        assert!(!parses("usherctl connect --user alice"), "the pool is needed");
    }
}
