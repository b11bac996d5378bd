//! Requests that are handed on, with their answers (apimachinery `util/proxy/upgradeaware.go`, Go's
//! `net/http/httputil.ReverseProxy`).

use http::header::{CONTENT_TYPE, HOST, HeaderValue, LOCATION, TRAILER, UPGRADE};
use http::{HeaderMap, Method, Request, Response, StatusCode, response};
use hyper::ext::ReasonPhrase;

use super::error::ProxyError;
use super::headers::{self, append_forwarded_for, remove_hop_by_hop, remove_hop_by_hop_of_request};
use super::html;
use super::inbound::{self, Inbound, ResponseBody};
use super::location::Location;
use super::rewrite::{Front, Rewriter};
use super::transport::Transport;
use super::upgrade;
use crate::meta::go::{self, url};
use crate::telemetry::trace;

/// The answer in the place of a redirect that is not permitted.
const REDIRECT_REFUSED: &str =
    "the backend attempted to redirect this request, which is not permitted";

/// The answer to CONNECT. The server would be asked, under this server's certificate, to connect to
/// wherever a client likes, or speak with the client without anybody looking at it.
const CONNECT_REFUSED: &str = "the method CONNECT is not proxied";

/// The manner in which requests are handed on.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Refuses requests that ask for no upgrade.
    pub upgrade_required: bool,
    /// The URL under which the client finds the server. The server is told of it, and its redirects
    /// and links are made to lead there.
    pub front: Option<Front>,
    /// Answers 502 where the server redirects.
    pub reject_redirects: bool,
}

/// Hands a request on to the server of a URL, and returns its answer. The query is the client's;
/// that of an upgrade, as upstream's, is the one of the URL.
///
/// # Errors
/// Those of [`ProxyError`].
pub async fn forward(
    inbound: Inbound,
    location: &Location,
    transport: &Transport,
    options: &Options,
) -> Result<Response<ResponseBody>, ProxyError> {
    if inbound.method == Method::CONNECT {
        return Err(ProxyError::Other(CONNECT_REFUSED.to_owned()));
    }
    if headers::is_upgrade(&inbound.headers) {
        return upgrade::forward(inbound, location, transport).await;
    }
    if options.upgrade_required {
        return Err(ProxyError::UpgradeRequired);
    }
    let path = url::unescape_path(inbound.uri.path()).unwrap_or_default();
    let mut target = location.clone();
    target.query = inbound.uri.query().unwrap_or_default().to_owned();
    if !target.path.ends_with('/') && path.ends_with('/') {
        target.path.push('/');
    }
    if target.path.is_empty() && matches!(inbound.method, Method::GET | Method::HEAD) {
        return redirect_to_root(&path, &target.query);
    }
    let (host, is_head) = (inbound.host(), inbound.method == Method::HEAD);
    let rewriter = options.front.as_ref().map(|front| Rewriter {
        front: front.clone(),
        path_prepend: front.path_before(&location.path),
        source: target.authority.clone(),
        host: host.clone(),
    });
    let mut request = outbound(inbound, &host, &target, rewriter.as_ref())?;
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let span = trace::http_client_span(&method, &uri, request.headers_mut());
    let answer = transport.send(request).await;
    let (mut head, body) = match (answer, &rewriter) {
        (Ok(answer), _) => answer.into_parts(),
        (Err(why), Some(_)) => return Err(ProxyError::Unreachable(why)),
        (Err(why), None) => return Err(ProxyError::Other(why)),
    };
    if let Some(span) = span {
        span.answered(head.status);
    }
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        let to = head.headers.get(UPGRADE).map(HeaderValue::as_bytes);
        let to = go::quote(&String::from_utf8_lossy(to.unwrap_or_default()));
        let why = format!("backend tried to switch protocol {to} when \"\" was requested");
        return Err(ProxyError::Other(why));
    }
    // Clients get the reason of the code, not the server's words for it.
    if head.status.canonical_reason().is_some() {
        head.extensions.remove::<ReasonPhrase>();
    }
    let trailers = head.headers.get(TRAILER).cloned();
    let rewrites_links = match &rewriter {
        Some(rewriter) => rewriter.rewrite_head(&mut head.headers)? && !is_head,
        None => false,
    };
    remove_hop_by_hop(&mut head.headers);
    if let Some(trailers) = trailers {
        head.headers.insert(TRAILER, trailers);
    }
    if options.reject_redirects && is_redirect(&head) {
        return Ok(refused_redirect());
    }
    let body = match rewriter {
        Some(rewriter) if rewrites_links => html::rewrite(&mut head.headers, body, rewriter),
        _ => body,
    };
    Ok(Response::from_parts(head, body))
}

/// The request to the server.
fn outbound(
    inbound: Inbound,
    host: &str,
    target: &Location,
    rewriter: Option<&Rewriter>,
) -> Result<Request<inbound::RequestBody>, ProxyError> {
    let mut headers = inbound.headers;
    remove_hop_by_hop_of_request(&mut headers);
    append_forwarded_for(&mut headers, inbound.client);
    set_host(&mut headers, host);
    if let Some(rewriter) = rewriter {
        let path = match target.path.as_str() {
            "" => "/",
            path => path,
        };
        rewriter.announce(&mut headers, path);
    }
    let mut request = Request::new(inbound.body);
    *request.method_mut() = inbound.method;
    *request.uri_mut() = target
        .uri()
        .map_err(|why| ProxyError::Other(why.to_string()))?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Sets the host that a request is for; without one it is that of the URL.
pub fn set_host(headers: &mut HeaderMap, host: &str) {
    match HeaderValue::from_str(host) {
        Ok(value) if !host.is_empty() => drop(headers.insert(HOST, value)),
        _ => drop(headers.remove(HOST)),
    }
}

/// Sends clients that leave out the slash of a server's root there, or the links of the page would
/// not lead to it.
fn redirect_to_root(path: &str, query: &str) -> Result<Response<ResponseBody>, ProxyError> {
    let path = url::escape_path(path);
    let to = match query {
        "" => format!("{path}/"),
        query => format!("{path}/?{query}"),
    };
    let to = HeaderValue::try_from(to).map_err(|why| ProxyError::Other(why.to_string()))?;
    let mut response = Response::new(inbound::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(LOCATION, to);
    Ok(response)
}

fn is_redirect(head: &response::Parts) -> bool {
    let location = head.headers.get(LOCATION);
    head.status.is_redirection() && location.is_some_and(|location| !location.is_empty())
}

fn refused_redirect() -> Response<ResponseBody> {
    let mut response = Response::new(inbound::full(REDIRECT_REFUSED));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}
