//! The answers of the stand-in, over plain HTTP/1.1.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use super::command_line::VERSION;
use super::handover::{Handover, PATH};

/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time that a client has for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers all connections.
pub async fn serve(listener: TcpListener, handover: Handover) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let handover = handover.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                std::future::ready(Ok::<_, Infallible>(answer(&request, &handover)))
            });
            // A client that goes has what it wanted.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn answer(request: &Request<Incoming>, handover: &Handover) -> Response<Full<Bytes>> {
    let (status, body) = match request.uri().path() {
        "/health" => (
            StatusCode::OK,
            r#"{"health":"true","reason":""}"#.to_owned(),
        ),
        "/version" => (
            StatusCode::OK,
            format!(r#"{{"etcdserver":"{VERSION}","etcdcluster":"{VERSION}"}}"#),
        ),
        PATH => match serde_json::to_string(handover) {
            Ok(text) => (StatusCode::OK, text),
            Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, why.to_string()),
        },
        _ => (
            StatusCode::NOT_FOUND,
            "this is Keelson's stand-in for etcd, which holds no data\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}
