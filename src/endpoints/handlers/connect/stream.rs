//! Connections to the containers of a pod: exec, attach and portforward (core/pod
//! `rest/subresources.go`).

use http::Response;

use super::inbound::{inbound, outbound};
use super::{RequestContext, container, find, node};
use crate::endpoints::body::Body;
use crate::meta::Status;
use crate::meta::options::Query;
use crate::meta::status::Result;
use crate::proxy::translate::{self, Streams};
use crate::proxy::{self, Options, spdy_tunnel};
use crate::telemetry::metrics::Counter;

static STREAMING_REQUESTS: Counter = Counter::new(
    "apiserver_websocket_streaming_requests_total",
    "[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) routed by the API server, labeled by subresource and proxy_type. proxy_type is proxied_to_kubelet when the kubelet handles the request directly; otherwise translated_at_apiserver.",
    &["subresource", "proxy_type"],
);

/// Joins the client's connection to one to the kubelet.
///
/// # Errors
/// There is no such container, or its kubelet cannot be reached or refuses.
pub async fn handle(ctx: &RequestContext<'_>) -> Result<Response<Body>> {
    let (info, query) = (&ctx.request.info, &ctx.request.query);
    let pod = find(ctx, info.url_name()).await?;
    let of_pod = format!("{}/{}", pod.namespace(), pod.name());
    let path = match info.subresource.as_str() {
        "portforward" => format!("/portForward/{of_pod}"),
        stream => format!("/{stream}/{of_pod}/{}", container(&pod, query)?),
    };
    let kubelet = node::kubelet(ctx, node::node_of(&pod)?).await?;
    let location = kubelet.location(path, parameters(query, &info.subresource));
    let (inbound, transport) = (inbound(ctx), ctx.api.kubelets.transport());
    let is_port = info.subresource == "portforward";
    let by_kubelet = kubelet.speaks_websockets && ctx.api.websockets_at_kubelets;
    count(&info.subresource, by_kubelet);
    if !by_kubelet && is_port && spdy_tunnel::is_requested(&inbound) {
        let answer = spdy_tunnel::forward(inbound, &location, &transport).await;
        return Ok(outbound(answer?));
    }
    if !by_kubelet && !is_port && translate::is_requested(&inbound) {
        let streams = streams(query);
        let answer = translate::translate(inbound, location, transport, streams);
        let wrong = "the request is no WebSocket handshake of version 13";
        return Ok(outbound(answer.ok_or_else(|| Status::bad_request(wrong))?));
    }
    let options = Options {
        upgrade_required: true,
        ..Options::default()
    };
    let answer = proxy::forward(inbound, &location, &transport, &options).await;
    Ok(outbound(answer?))
}

fn count(subresource: &str, by_kubelet: bool) {
    STREAMING_REQUESTS.inc(&[
        subresource,
        match by_kubelet {
            true => "proxied_to_kubelet",
            false => "translated_at_apiserver",
        },
    ]);
}

/// The streams that a client asks for.
fn streams(query: &Query) -> Streams {
    let flag = |key: &str| query.flag(key) == Some(true);
    Streams {
        stdin: flag("stdin"),
        stdout: flag("stdout"),
        stderr: flag("stderr"),
        tty: flag("tty"),
    }
}

/// The query of a request to a kubelet (core/pod `streamParams`), in the order of Go's
/// `url.Values`.
fn parameters(query: &Query, subresource: &str) -> String {
    let mut parameters = form_urlencoded::Serializer::new(String::new());
    if subresource == "portforward" {
        let ports = super::stream_options::ports(query);
        let ports: Vec<String> = ports.iter().map(i32::to_string).collect();
        if !ports.is_empty() {
            parameters.append_pair("port", &ports.join(","));
        }
        return parameters.finish();
    }
    if subresource == "exec" {
        for word in query.all("command") {
            parameters.append_pair("command", &word);
        }
    }
    let streams = streams(query);
    for (key, is_asked) in [
        ("error", streams.stderr),
        ("input", streams.stdin),
        ("output", streams.stdout),
        ("tty", streams.tty),
    ] {
        if is_asked {
            parameters.append_pair(key, "1");
        }
    }
    parameters.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_are_asked_for_the_same_streams() {
        let asked = |query: &str, subresource: &str| parameters(&Query::parse(query), subresource);
        assert_eq!(
            asked(
                "stdout=true&stdin=1&tty=false&command=sh&command=-c&command=a+b%26",
                "exec"
            ),
            "command=sh&command=-c&command=a+b%26&input=1&output=1"
        );
        assert_eq!(asked("stderr=1&tty=1&command=x", "attach"), "error=1&tty=1");
        assert_eq!(
            asked("ports=80&ports=443,x", "portforward"),
            "port=80%2C443"
        );
        assert_eq!(asked("", "portforward"), "");
    }
}
