//! What does a farm do that is made of real processes?
//!
//! A test here starts coordinators and agents as an operator would, talks to them as a gateway or an operator would,
//! kills and freezes them, and looks at what others see. Nothing of the product runs inside the test's own process,
//! except what a stranger could write as well: clients made from the .proto files, and [`FakeAgent`], an agent that says
//! whatever the test wants.
//!
//! Nothing waits for a fixed time: [`wait_for`] and [`wait_until`] look until it is so, and say at their deadline what
//! they saw instead. Everything that was started is killed when its handle is dropped, after a panic too; the farm then
//! prints what its processes logged.

#![allow(clippy::unwrap_used, reason = "a test's tool fails as a test does")]

mod agent;
pub mod bench;
mod binaries;
pub mod chaos;
mod client;
mod coordinator;
mod ctl;
mod etcd;
mod fake_agent;
mod farm;
mod full_disk;
mod http;
mod netns;
mod peers;
mod pki;
mod process;
mod proxy;
mod site;
mod wait;

pub use agent::{Agent, AgentStart};
pub use binaries::{binary, proto_dir, python};
pub use client::{Client, NamedChannel, place, reason, refusal, weights};
pub use coordinator::{Coordinator, CoordinatorStart};
pub use ctl::{CtlOutput, holds, page, row, run_ctl};
pub use etcd::{Etcd, EtcdStart};
pub use fake_agent::{FakeAgent, hello, load, operation};
pub use farm::{Farm, FarmStart};
pub use full_disk::SmallDisk;
pub use http::{HttpAnswer, http_get, metric, raw_exchange};
pub use netns::{Machine, Network};
pub use peers::{
    Collectd, Figures, Login, MessageBus, MockLogind, NodeExporter, Sshd, UtmpFile, system_program,
};
pub use pki::{Authority, CertFiles, NAME};
pub use process::{Process, free_tcp_port, free_udp_port};
pub use proxy::{Proxy, Weather};
pub use site::{Site, SiteStart};
pub use wait::{LONG, wait_for, wait_until};
