//! The services on the wire: they check what comes, and put into words what is answered.

mod admin;
mod agent;
mod directory;
mod host_stream;
mod order;
mod pace;
mod pages;
mod placement;

pub(crate) use admin::Admin;
pub(crate) use agent::Agents;
pub(crate) use directory::{Directory, count_hosts};
pub(crate) use placement::{Placements, PlacementsOnTheWire, learned_costs};
use tonic::{Request, Status};
use usher_proto::error;
use usher_types::{FieldFault, GatewayId};

use crate::layers::{Caller, Deadline};

/// Who calls. The identity layer has put it there.
fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    request.extensions().get::<Caller>().cloned().ok_or_else(|| Status::internal("the caller is not known"))
}

/// The identity under which the caller's requests are told apart.
fn gateway<T>(request: &Request<T>) -> Result<GatewayId, Status> {
    let caller = caller(request)?;
    GatewayId::new(&caller.name)
        .map_err(|fault| invalid(FieldFault::new("usher-gateway", format!("{:?}", caller.name), fault.fault)))
}

fn deadline<T>(request: &Request<T>) -> Option<Deadline> {
    request.extensions().get::<Deadline>().copied()
}

fn invalid(fault: FieldFault) -> Status {
    error::invalid_fields(&[fault])
}

fn unavailable<E>(_: E) -> Status {
    Status::unavailable("the coordinator is shutting down")
}
