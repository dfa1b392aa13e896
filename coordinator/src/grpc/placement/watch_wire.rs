//! The wire of `PlacementService`: as generated, but for `WatchFarm`, whose answers are bytes already.
//!
//! Every reader of the farm gets the same messages. They are encoded where they arise, once; a codec of messages would
//! encode them again for each reader.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use axum::http::{Request, Response};
use bytes::{BufMut, Bytes};
use futures::future::BoxFuture;
use tonic::{
    Status,
    body::Body,
    codec::{Codec, EncodeBuf, Encoder},
    server::{Grpc, NamedService, ServerStreamingService},
};
use tonic_prost::{ProstCodec, ProstDecoder};
use tower::Service;
use usher_proto::v1::{self, placement_service_server::PlacementServiceServer};

use super::{super::caller, Placements, watch};
use crate::shared::Shared;

const WATCH_FARM: &str = "/usher.v1.PlacementService/WatchFarm";

/// The service, with the answers of `WatchFarm` as they are.
#[derive(Clone)]
pub(crate) struct PlacementsOnTheWire {
    shared: Arc<Shared>,
    rest: PlacementServiceServer<Placements>,
    limit: usize,
}

impl PlacementsOnTheWire {
    /// Serves `placements`; no request is larger than `limit` bytes.
    pub(crate) fn new(placements: Placements, limit: usize) -> Self {
        let shared = placements.0.clone();
        Self { shared, rest: PlacementServiceServer::new(placements).max_decoding_message_size(limit), limit }
    }
}

impl NamedService for PlacementsOnTheWire {
    const NAME: &'static str = <PlacementServiceServer<Placements> as NamedService>::NAME;
}

impl Service<Request<Body>> for PlacementsOnTheWire {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path() != WATCH_FARM {
            return self.rest.call(request);
        }
        let mut grpc = Grpc::new(Written).max_decoding_message_size(self.limit);
        let watch = Watch(self.shared.clone());
        Box::pin(async move { Ok(grpc.server_streaming(watch, request).await) })
    }
}

struct Watch(Arc<Shared>);

impl ServerStreamingService<v1::WatchFarmRequest> for Watch {
    type Response = Bytes;
    type ResponseStream = watch::Frames;
    type Future = std::future::Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<v1::WatchFarmRequest>) -> Self::Future {
        let frames = caller(&request).and_then(|who| watch::frames(&self.0, &who.name, request.into_inner()));
        std::future::ready(frames.map(tonic::Response::new))
    }
}

/// Answers that are written already.
#[derive(Clone, Copy, Debug)]
struct Written;

impl Codec for Written {
    type Encode = Bytes;
    type Decode = v1::WatchFarmRequest;
    type Encoder = Self;
    type Decoder = ProstDecoder<v1::WatchFarmRequest>;

    fn encoder(&mut self) -> Self::Encoder {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<v1::WatchFarmResponse, v1::WatchFarmRequest>::default().decoder()
    }
}

impl Encoder for Written {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, frame: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(frame);
        Ok(())
    }
}
