//! The client of a controller: its requests go through everything that a request over the network
//! would, but authentication, authorization, fairness and audit.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, StatusCode};
use http_body_util::BodyExt;

use crate::auth::{AUTHENTICATED, User};
use crate::codec::json::Document;
use crate::endpoints::request_body::RequestBody;
use crate::endpoints::request_info::RequestInfo;
use crate::endpoints::{Api, Request, handlers};
use crate::meta::options::{ListOptions, Query};
use crate::meta::{Gvr, Map, Object, Status, Value, str_at};
use crate::registry::Store;

/// The field manager of the controllers' writes is what comes before the slash.
const AGENT: &str = "kube-controller-manager/keelson";
/// The namespace of the controllers' service accounts.
const NAMESPACE: &str = "kube-system";

/// A patch.
#[derive(Clone, Debug)]
pub enum Patch {
    Merge(Value),
    Strategic(Value),
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: u16,
    pub message: String,
    /// The reasons in `details.causes`.
    pub causes: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self {
            code: status.code,
            message: status.message,
            causes: Vec::new(),
        }
    }
}

impl Failure {
    /// A failure of the controller itself.
    pub fn internal(message: impl Into<String>) -> Self {
        Self {
            code: StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
            message: message.into(),
            causes: Vec::new(),
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.code == StatusCode::NOT_FOUND.as_u16()
    }

    pub fn is_conflict(&self) -> bool {
        self.code == StatusCode::CONFLICT.as_u16()
    }

    fn of_answer(code: StatusCode, body: &Object) -> Self {
        let causes = body.array_at("/details/causes").iter();
        Self {
            code: code.as_u16(),
            message: body.str_at("/message").to_owned(),
            causes: causes
                .map(|cause| str_at(cause, "/reason").to_owned())
                .collect(),
        }
    }
}

pub type Result<T> = std::result::Result<T, Failure>;

/// An object of a resource, or a collection where there is no name.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub store: &'a Arc<Store>,
    pub namespace: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
}

impl<'a> Target<'a> {
    pub fn new(store: &'a Arc<Store>, namespace: &'a str, name: &'a str) -> Self {
        Self {
            store,
            namespace,
            name,
            subresource: "",
        }
    }

    pub fn subresource(self, subresource: &'a str) -> Self {
        Self {
            subresource,
            ..self
        }
    }

    fn path(&self) -> String {
        let Gvr {
            group,
            version,
            resource,
        } = &self.store.resource.gvr;
        let mut path = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        if self.store.resource.decl.namespaced {
            path += &format!("/namespaces/{}", self.namespace);
        }
        path += &format!("/{resource}");
        for part in [self.name, self.subresource] {
            if !part.is_empty() {
                path += &format!("/{part}");
            }
        }
        path
    }
}

/// A client, by the service account of a controller.
#[derive(Clone)]
pub struct Client {
    api: Arc<Api>,
    user: Arc<User>,
}

impl Client {
    /// Returns the client of the controller whose service account has this name.
    pub fn new(api: &Arc<Api>, account: &str) -> Self {
        let accounts = "system:serviceaccounts";
        let user = User {
            name: format!("system:serviceaccount:{NAMESPACE}:{account}"),
            groups: vec![
                accounts.to_owned(),
                format!("{accounts}:{NAMESPACE}"),
                AUTHENTICATED.to_owned(),
            ],
            ..User::default()
        };
        Self {
            api: api.clone(),
            user: Arc::new(user),
        }
    }

    /// Returns the part of the server that it is a client of.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Returns the store of a built-in resource.
    ///
    /// # Errors
    /// It is not served.
    pub fn store(&self, group: &str, version: &str, resource: &str) -> Result<Arc<Store>> {
        let gvr = Gvr::new(group, version, resource);
        let store = self.api.registry.get(&gvr);
        store.ok_or_else(|| Failure::internal(format!("{} are not served", gvr.group_resource())))
    }

    /// Returns the latest state of an object; `None` if there is none.
    ///
    /// # Errors
    /// The store's.
    pub async fn get(&self, store: &Store, namespace: &str, name: &str) -> Result<Option<Object>> {
        match store.get(namespace, name, "").await {
            Ok(stored) => Ok(Some(store.decode_served(&stored).await?)),
            Err(status) if status.code == 404 => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    /// Returns the latest state of the objects of a namespace (of all if it is empty); those that
    /// cannot be read count, and have a name alone.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self, store: &Store, namespace: &str) -> Result<Vec<Object>> {
        let page = store.list(namespace, &ListOptions::default()).await?;
        let mut objects = Vec::new();
        for stored in page.items {
            let stored = stored?;
            let object = store.codec.decode_shared(&stored);
            objects.push(object.unwrap_or_else(|_| store.named(&stored)));
        }
        Ok(objects)
    }

    /// Creates an object.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn create(&self, store: &Arc<Store>, object: &Object) -> Result<Object> {
        let target = Target::new(store, object.namespace(), "");
        self.send(Method::POST, target, "application/json", body(object))
            .await
    }

    /// Replaces an object, or a subresource of it.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn update(&self, target: Target<'_>, object: &Object) -> Result<Object> {
        self.send(Method::PUT, target, "application/json", body(object))
            .await
    }

    /// Patches an object.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn patch(&self, target: Target<'_>, patch: &Patch) -> Result<Object> {
        let (content_type, patch) = match patch {
            Patch::Merge(patch) => ("application/merge-patch+json", patch),
            Patch::Strategic(patch) => ("application/strategic-merge-patch+json", patch),
        };
        let patch = Bytes::from(patch.to_string());
        self.send(Method::PATCH, target, content_type, patch).await
    }

    /// Deletes an object, or a collection, with these DeleteOptions.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn delete(&self, target: Target<'_>, mut options: Map) -> Result<()> {
        options.insert("kind", "DeleteOptions".into());
        options.insert("apiVersion", "v1".into());
        let options = Bytes::from(Value::Object(options).to_string());
        self.send(Method::DELETE, target, "application/json", options)
            .await
            .map(drop)
    }

    async fn send(
        &self,
        method: Method,
        target: Target<'_>,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<Object> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let query = Query::default();
        let request = Request {
            info: Arc::new(RequestInfo::new(&method, &target.path(), &query)),
            method,
            headers,
            body: RequestBody::whole(body),
            user: self.user.clone(),
            store: Some(target.store.clone()),
            ..Request::default()
        };
        let answer = handlers::handle(&self.api, Arc::new(request)).await;
        let code = answer.status();
        let body = answer.into_body().collect().await;
        let body = body.map_err(|why| Failure::internal(why.to_string()))?;
        let value = Document::new(&body.to_bytes()).and_then(Document::value);
        let value = value
            .map_err(|why| Failure::internal(format!("an answer of this server: {}", why.0)))?;
        let object = Object::from_value(value).unwrap_or_default();
        if code.is_success() {
            Ok(object)
        } else {
            Err(Failure::of_answer(code, &object))
        }
    }
}

fn body(object: &Object) -> Bytes {
    Bytes::from(Value::Object(object.0.clone()).to_string())
}
