//! Where does this login go? The library of a gateway.
//!
//! A gateway names the farm's coordinators and asks. What lies between the question and the answer is this library's
//! affair: which coordinator is asked first and for how long, what becomes of a call whose coordinator dies half-way, that
//! a login gets one place however often it is asked for, and what happens when nobody answers at all.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use usher_client::{Cause, Client, Config, Outcome, Request};
//!
//! let config = Config::new(["c1.example:7443", "c2.example:7443"])
//!     .gateway("bastion-1")
//!     .cache("/var/lib/bastion/usher.farm");
//! let client = Client::connect(config)?;
//!
//! let placement = client.place(Request::new("desk").user("alice")).await?;
//! println!("alice goes to {} at {:?}", placement.host_name(), placement.endpoint("ssh"));
//! client.report(&placement, Outcome::Connected);
//! # Ok(())
//! # }
//! ```
//!
//! A host that does not work out is said so, and another one is asked for:
//!
//! ```no_run
//! # use usher_client::{Cause, Client, Error, Placement};
//! # async fn example(client: &Client, placement: &Placement) -> Result<(), Error> {
//! let other = client.failover(placement, Cause::Unreachable).await?;
//! assert_ne!(other.host_id(), placement.host_id());
//! # Ok(())
//! # }
//! ```
//!
//! **One login, one place.** A request has one id through all tries, and each try a higher attempt: coordinators that see
//! both know them for one. A call that is dropped takes its place back, and so does one that a coordinator may have given a place
//! without its answer coming through.
//!
//! **Nobody answers.** The library watches the farm through one coordinator and keeps it on disk. If no coordinator answers
//! in time, it decides itself, within the deadline, by the same code on what it knew last: the answer says
//! [`is_local`](Placement::is_local). No place is kept for such a login, no host has agreed to it, and where the user has a
//! session is not known. What this client gave out itself it counts, so that it does not send everybody to one host.
//!
//! **Nothing waits.** Connections, the farm, the file and reports of outcomes are the affair of tasks of their own. They need
//! a tokio runtime with time and I/O, and end when the last [`Client`] is dropped.
//!
//! **Programs that ask once and end** watch nothing: they ask through [`InOrder`], and leave each other a copy of the farm in a
//! [`FarmCache`].

mod answer;
mod cached;
mod call;
mod client;
mod config;
mod error;
mod farm;
mod farm_cache;
mod in_order;
mod local;
mod outcomes;
mod peers;
mod placement;
mod request;
mod sound;
mod watching;

pub use client::Client;
pub use config::Config;
pub use error::{Error, NoAnswer, NoLocal, Refusal, SetupError, Silence};
pub use farm_cache::{FarmCache, LastKnown, RenewError};
pub use in_order::{CallFailure, InOrder, Try};
pub use placement::Placement;
pub use request::Request;
pub use usher_runtime::tls::TlsFiles;
/// Why a host did not work out.
pub use usher_types::FailureCause as Cause;
pub use usher_types::{Endpoint, Outcome};
