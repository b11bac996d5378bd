//! Connections to the containers of a pod: exec, attach and portforward (core/pod
//! `rest/subresources.go`).

use http::Response;

use super::inbound::{inbound, outbound};
use super::{RequestContext, container, find, node};
use crate::endpoints::body::Body;
use crate::meta::status::Result;
use crate::meta::{Object, Value};
use crate::proxy::translate::{self, Streams};
use crate::proxy::{self, Options, spdy_tunnel};
use crate::telemetry::metrics::{Counter, Declared};

static STREAMING_REQUESTS: Counter = Counter::new(
    "apiserver_websocket_streaming_requests_total",
    "[ALPHA] Total number of WebSocket streaming requests (exec/attach/portforward) routed by the API server, labeled by subresource and proxy_type. proxy_type is proxied_to_kubelet when the kubelet handles the request directly; otherwise translated_at_apiserver.",
    &["subresource", "proxy_type"],
);

pub static METRICS: &[&dyn Declared] = &[&STREAMING_REQUESTS];

/// Joins the client's connection to one to the kubelet.
///
/// # Errors
/// There is no such container, or its kubelet cannot be reached or refuses.
pub async fn handle(ctx: &RequestContext<'_>, asked: &Object) -> Result<Response<Body>> {
    let info = &ctx.request.info;
    let pod = find(ctx, info.url_name()).await?;
    let of_pod = format!("{}/{}", pod.namespace(), pod.name());
    let path = match info.subresource.as_str() {
        "portforward" => format!("/portForward/{of_pod}"),
        stream => format!(
            "/{stream}/{of_pod}/{}",
            container(&pod, asked.str_at("/container"))?
        ),
    };
    let kubelet = node::kubelet(ctx, node::node_of(&pod)?).await?;
    let location = kubelet.location(path, parameters(asked, &info.subresource));
    let (inbound, transport) = (inbound(ctx), ctx.api.kubelets.transport());
    let is_port = info.subresource == "portforward";
    let by_kubelet = kubelet.speaks_websockets && ctx.api.websockets_at_kubelets;
    count(&info.subresource, by_kubelet);
    if !by_kubelet && is_port && spdy_tunnel::is_requested(&inbound) {
        let answer = spdy_tunnel::forward(inbound, &location, &transport).await;
        return Ok(outbound(answer?));
    }
    if !by_kubelet && !is_port && translate::is_requested(&inbound) {
        let streams = streams(asked);
        let answer = translate::translate(inbound, location, transport, streams);
        return Ok(outbound(answer));
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

/// The streams that the options of a connection ask for.
fn streams(options: &Object) -> Streams {
    let flag = |key: &str| options.get(key).and_then(Value::as_bool) == Some(true);
    Streams {
        stdin: flag("stdin"),
        stdout: flag("stdout"),
        stderr: flag("stderr"),
        tty: flag("tty"),
    }
}

/// The query of a request to a kubelet (core/pod `streamParams`), in the order of Go's
/// `url.Values`.
fn parameters(options: &Object, subresource: &str) -> String {
    let mut parameters = form_urlencoded::Serializer::new(String::new());
    if subresource == "portforward" {
        let ports = options.array_at("/ports").iter().map(Value::to_string);
        let ports: Vec<String> = ports.collect();
        if !ports.is_empty() {
            parameters.append_pair("port", &ports.join(","));
        }
        return parameters.finish();
    }
    if subresource == "exec" {
        let command = options.array_at("/command").iter();
        for word in command.filter_map(Value::as_str) {
            parameters.append_pair("command", word);
        }
    }
    let streams = streams(options);
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
    use crate::meta::json;

    #[test]
    fn kubelets_are_asked_for_what_the_options_say() {
        let asked = |options: Value, subresource: &str| {
            let options = Object::from_value(options).expect("an object");
            parameters(&options, subresource)
        };
        let command = json!(["sh", "-c", "a b&"]);
        assert_eq!(
            asked(
                json!({"stdout": true, "stdin": true, "tty": false, "command": command}),
                "exec"
            ),
            "command=sh&command=-c&command=a+b%26&input=1&output=1"
        );
        assert_eq!(
            asked(
                json!({"stderr": true, "tty": true, "command": ["x"]}),
                "attach"
            ),
            "error=1&tty=1"
        );
        assert_eq!(
            asked(json!({"ports": [80, 443]}), "portforward"),
            "port=80%2C443"
        );
        assert_eq!(asked(json!({}), "portforward"), "");
    }
}
