//! The objects of requests and responses, for the audit event (apiserver `audit/request.go`).

use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};

use super::RequestContext;
use crate::audit::{Audit, ObjectMeta};
use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::codec::json::text_of;
use crate::codec::{self, yaml};
use crate::endpoints::Request;
use crate::endpoints::body::{self, Body};
use crate::endpoints::negotiate::MediaType;
use crate::meta::{Gvk, Object, Value};
use crate::schema;

/// The largest response whose object is told. Larger ones are only marked.
const MAX_RESPONSE_BYTES: usize = 32 << 20;
/// The mark of an event that lacks an object (apiserver `plugin/pkg/audit/truncate`).
const TRUNCATED: &str = "audit.k8s.io/truncated";

impl RequestContext<'_> {
    /// Records the object of the request, as it was decoded.
    pub fn audit_object(&self, object: &Object) {
        let Some(audit) = &self.request.audit else {
            return;
        };
        let meta = ObjectMeta {
            namespace: object.namespace(),
            name: object.name(),
            uid: object.uid(),
            resource_version: object.resource_version(),
        };
        audit.request_object(meta, || {
            run_blocking_if(self.request.body.is_large(), || {
                let mut object = object.clone();
                self.set_defaults(&mut object);
                if audit.omits_managed_fields() {
                    object.metadata_mut().shift_remove("managedFields");
                }
                json(&Value::Object(object.0))
            })
        });
    }

    /// Sets the defaults that upstream sets when it decodes an object of a built-in kind.
    fn set_defaults(&self, object: &mut Object) {
        let resource = &self.store.resource;
        let is_itself = object.kind() == resource.gvk.kind;
        if is_itself && resource.custom.is_none() && resource.conversion.is_none() {
            resource.strategy.default(object);
        }
    }

    /// Records a patch.
    pub fn audit_patch(&self, patch: &[u8]) {
        if let Some(audit) = &self.request.audit
            && audit.tells_request()
        {
            let read = || Some(json(&yaml::to_value(patch).ok()?.0));
            if let Some(json) = run_blocking_if(patch.len() > LARGE_BYTES, read) {
                audit.request_patch(json);
            }
        }
    }
}

/// Returns compact JSON.
fn json(value: &Value) -> Bytes {
    text_of(value).into()
}

/// Records what a request to a resource is answered with.
pub async fn record(request: &Request, response: Response<Body>) -> Response<Body> {
    let Some(audit) = &request.audit else {
        return response;
    };
    audit.answered(response.status().as_u16());
    if let Some(status) = response.extensions().get() {
        audit.response_status(status);
    }
    let lasts = request.info.verb == "watch" || response.status().as_u16() == 101;
    if !audit.tells_response() || lasts || request.info.subresource == "log" {
        return response;
    }
    let (parts, body) = response.into_parts();
    let (whole, body) = read(body).await;
    match whole {
        Some(bytes) => {
            let media = parts.headers.get(CONTENT_TYPE);
            let large = bytes.len() > LARGE_BYTES;
            let object = run_blocking_if(large, || to_json(audit, media, &bytes));
            if let Some(object) = object {
                audit.response_object(object);
            }
        }
        None => audit.annotate(TRUNCATED, "true"),
    }
    Response::from_parts(parts, body)
}

/// Reads a body, unless it is too large, and returns it as it was.
async fn read(mut from: Body) -> (Option<Bytes>, Body) {
    let (mut frames, mut bytes) = (Vec::new(), 0);
    loop {
        let Some(frame) = from.frame().await else {
            break;
        };
        let ended = frame.is_err();
        bytes += frame
            .as_ref()
            .ok()
            .and_then(Frame::data_ref)
            .map_or(0, Bytes::len);
        frames.push(frame);
        if ended || bytes > MAX_RESPONSE_BYTES {
            let rest = stream::iter(frames).chain(BodyStream::new(from));
            return (None, body::stream(StreamBody::new(rest)));
        }
    }
    let mut whole = BytesMut::with_capacity(bytes);
    for data in frames
        .iter()
        .filter_map(|frame| frame.as_ref().ok()?.data_ref())
    {
        whole.extend_from_slice(data);
    }
    let whole = whole.freeze();
    (Some(whole.clone()), body::full(whole))
}

/// Returns an object of some representation as JSON.
fn to_json(audit: &Audit, media: Option<&HeaderValue>, bytes: &[u8]) -> Option<Bytes> {
    let media = media?.to_str().ok()?;
    let is = |known: MediaType| media.starts_with(known.name());
    let mut value = if is(MediaType::Json) {
        // What is indented would break the lines of a log.
        let is_compact = !bytes.trim_ascii_end().contains(&b'\n');
        if is_compact && !audit.omits_managed_fields() {
            return Some(Bytes::copy_from_slice(bytes));
        }
        codec::json::parse(bytes).ok()?.0
    } else if is(MediaType::Yaml) {
        yaml::to_value(bytes).ok()?.0
    } else if is(MediaType::Protobuf) {
        let envelope = codec::protobuf::unwrap(bytes).ok()?;
        let gvk = Gvk::from_api_version(envelope.api_version, envelope.kind);
        let ty = schema::builtin().get(&gvk)?;
        let mut object = codec::protobuf::decode(envelope.raw, ty).ok()?;
        object.insert("kind", gvk.kind.clone().into());
        object.insert("apiVersion", gvk.api_version().into());
        Value::Object(object.0)
    } else {
        return None;
    };
    if audit.omits_managed_fields() {
        drop_managed_fields(&mut value);
    }
    Some(json(&value))
}

/// Drops the managed fields of an object, or of the objects of a list or of a Table.
fn drop_managed_fields(value: &mut Value) {
    if let Some(Value::Object(meta)) = value.get_mut("metadata") {
        meta.shift_remove("managedFields");
    }
    for (list, object) in [("items", ""), ("rows", "/object")] {
        let items = value.get_mut(list).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten() {
            let path = format!("{object}/metadata");
            if let Some(Value::Object(meta)) = item.pointer_mut(&path) {
                meta.shift_remove("managedFields");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::json;

    #[test]
    fn managed_fields_go_from_objects_lists_and_tables() {
        let managed = || json!({"metadata": {"name": "a", "managedFields": []}});
        let mut object = managed();
        drop_managed_fields(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
        let mut list = json!({"metadata": {}, "items": [managed()]});
        drop_managed_fields(&mut list);
        assert_eq!(
            list,
            json!({"metadata": {}, "items": [{"metadata": {"name": "a"}}]})
        );
        let mut table = json!({"rows": [{"object": managed()}, {"object": null}]});
        drop_managed_fields(&mut table);
        let row = json!({"object": {"metadata": {"name": "a"}}});
        assert_eq!(table, json!({"rows": [row, {"object": null}]}));
    }

    #[tokio::test]
    async fn bodies_stay_whole() {
        let (whole, body) = read(body::full("text")).await;
        assert_eq!(whole.as_deref(), Some(&b"text"[..]));
        let text = body.collect().await.expect("a body").to_bytes();
        assert_eq!(&text[..], b"text");
        let large = vec![7; MAX_RESPONSE_BYTES + 1];
        let (whole, body) = read(body::full(large.clone())).await;
        assert!(whole.is_none());
        let read = body.collect().await.expect("a body").to_bytes();
        assert!(read == large, "it is sent as it was");
    }
}
