//! What would a call cost here that does nothing?
//!
//! The reference of the benchmarks: an empty call, served by this very process, its runtime and its way of accepting
//! connections, but by none of our layers and no service of ours. It is off unless a hidden flag names an address for it;
//! it has a port of its own, so that nothing on the way of real calls knows of it, and listens on loopback only.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use tonic::{Request, Response, Status, transport::Server};
use usher_proto::bench_v1::{
    EchoRequest, EchoResponse,
    echo_service_server::{EchoService, EchoServiceServer},
};
use usher_runtime::{
    net::{Incoming, Limits, bind, is_loopback},
    shutdown::Shutdown,
    tls::{Alpn, TlsFiles},
};

struct Echo;

#[tonic::async_trait]
impl EchoService for Echo {
    async fn echo(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        Ok(Response::new(EchoResponse { payload: request.into_inner().payload }))
    }
}

/// Serves it until `shutdown` begins, with the certificate that the other services have.
///
/// # Errors
/// When it cannot listen there.
pub(crate) async fn start(
    address: SocketAddr,
    tls: Option<&TlsFiles>,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    if !is_loopback(address.ip()) {
        bail!("{address} is not allowed, must be an address of loopback");
    }
    let tls = tls
        .map(|files| files.server_config(Alpn::H2))
        .transpose()
        .context("cannot use the certificate files")?;
    let incoming = Incoming::start(bind(address).await?, tls, Limits::default());
    let ended = shutdown.clone();
    let server = async move {
        let server = Server::builder().add_service(EchoServiceServer::new(Echo));
        if let Err(error) = server.serve_with_incoming_shutdown(incoming, ended.begun()).await {
            tracing::error!(%error, "the benchmarks' echo ended");
        }
    };
    tokio::spawn(server);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reflection_does_not_know_it() {
        let name = b"usher.bench";
        assert!(!usher_proto::DESCRIPTOR_SET.windows(name.len()).any(|window| window == name));
    }

    #[tokio::test]
    async fn it_is_served_on_loopback_only() {
        let error = start("192.0.2.1:1".parse().unwrap(), None, &Shutdown::new()).await.unwrap_err();
        assert!(error.to_string().contains("must be an address of loopback"), "{error}");
    }
}
