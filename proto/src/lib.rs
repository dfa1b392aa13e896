//! The wire: generated code of package `usher.v1`, and the checked ways between it and `usher-types`.
//!
//! Nothing that came over the wire is believed: each message has one conversion in [`read`] that names the field it
//! refuses, and one in [`write`](mod@write) for the other way. Nothing else of the project touches a raw message to
//! read a number.

pub mod enums;
pub mod error;
pub mod fault;
pub mod json;
mod messages;
#[cfg(test)]
mod properties;
pub mod read;
mod requests;
pub mod write;

pub use messages::{
    DrainKept, EndPlace, ExpectSession, InventoryPage, OutcomeNotice, PlaceAnswer, PoolSettings,
    ResetBaselines, SessionCheck, SessionsPage, SetDrain, SetDrainAnswer, Tick,
};
pub use requests::{
    ApplyPool, DecisionFilter, DiffPool, LocateResource, MarkReplica, PoolHistory, ReportOutcome,
    SessionFilter,
};

#[allow(missing_debug_implementations, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod v1 {
    //! Generated from `proto/usher/v1/*.proto`.
    tonic::include_proto!("usher.v1");
}

#[allow(missing_debug_implementations, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod bench_v1 {
    //! Generated from `proto/usher/bench/v1/*.proto`: what benchmarks compare with. No part of the product's protocol.
    tonic::include_proto!("usher.bench.v1");
}

#[allow(missing_debug_implementations, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod etcd {
    //! Generated from `proto/etcd/*.proto`: the client's side of etcd's API v3.
    #[doc(hidden)]
    pub mod mvccpb {
        tonic::include_proto!("mvccpb");
    }
    #[doc(hidden)]
    pub mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }
    pub use etcdserverpb::*;
    pub use mvccpb::*;
}

/// The descriptor set of the package, for reflection.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/usher_descriptor.bin"));

/// Version of the protocol that this build speaks.
pub const PROTOCOL_VERSION: u32 = 1;
