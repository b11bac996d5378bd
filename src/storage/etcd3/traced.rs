//! The connection to etcd of a server that sends spans: each call has one, and its context goes
//! along (otelgrpc, as in apiserver `storagebackend/factory/etcd3.go`).

use std::task::{Context, Poll};

use etcd_client::{BalancedChannelBuilder, Channel};
use futures::future::BoxFuture;
use opentelemetry::KeyValue;
use tonic::body::Body;
use tonic::transport;
use tonic::transport::channel::Change;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service};

use crate::telemetry::trace;

/// The builder of a channel whose calls have spans.
pub struct TracedChannel;

type Updates = tokio::sync::mpsc::Sender<Change<http::Uri, transport::Endpoint>>;

impl BalancedChannelBuilder for TracedChannel {
    type Error = transport::Error;

    fn balanced_channel(self, buffer: usize) -> Result<(Channel, Updates), Self::Error> {
        let (channel, updates) = transport::Channel::balance_channel(buffer);
        Ok((calls(Channel::Tonic(channel)), updates))
    }
}

/// Returns a channel whose calls have spans.
pub fn calls(channel: Channel) -> Channel {
    Channel::Custom(BoxCloneSyncService::new(Calls(channel)))
}

#[derive(Clone)]
struct Calls(Channel);

impl Service<http::Request<Body>> for Calls {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let method = request.uri().path().trim_start_matches('/').to_owned();
        let span = trace::client_span(method, || vec![KeyValue::new("rpc.system.name", "grpc")]);
        match &span {
            Some(span) => span.inject(request.headers_mut()),
            None => trace::inject(request.headers_mut()),
        }
        let answer = self.0.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let (Some(span), Err(why)) = (&span, &answer) {
                span.fail(why.to_string());
            }
            answer
        })
    }
}
