//! Get and list: which revision is read, which objects are selected, where a page ends.

use crate::meta::options::{ListOptions, parse_resource_version};
use crate::meta::selector::fields::FieldSelector;
use crate::meta::selector::labels::LabelSelector;
use crate::meta::status::Result;
use crate::meta::{Object, Status};
use crate::storage::{ListPage, ListRequest, Revision, StorageError, Stored, after};

use super::{Store, continuation, storage_status, too_large_resource_version};
use crate::registry::Strategy;

/// How many keys are read at once while a selector is looking for matches.
const SCAN_CHUNK: usize = 1000;

/// What a list or watch selects.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selection {
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, strategy: &dyn Strategy, object: &Object) -> bool {
        self.labels.matches(object.labels())
            && self.fields.matches(|field| match field {
                "metadata.name" => object.name().to_owned(),
                "metadata.namespace" => object.namespace().to_owned(),
                other => strategy.selectable_value(object, other),
            })
    }
}

/// What a list answers with.
#[derive(Debug, Default)]
pub struct Page {
    pub items: Vec<Stored>,
    pub revision: Revision,
    /// Where the next page starts; empty on the last.
    pub continue_token: String,
    pub remaining: Option<i64>,
}

/// Where a list starts and at which revision.
struct Start {
    key: String,
    revision: Option<Revision>,
    /// The page follows another one: its revision may be compacted away.
    continued: bool,
}

impl Store {
    /// One object. `resource_version` is the oldest state that will do; empty for the latest, which storage always gives.
    pub async fn get(&self, namespace: &str, name: &str, resource_version: &str) -> Result<Stored> {
        let key = self.key(namespace, name)?;
        let least = parse_resource_version(resource_version).map_err(|why| Status::failure(500, "", why))?;
        let (stored, revision) = self.storage.get_with_revision(&key).await.map_err(|error| self.fault(error, "get"))?;
        if least > revision {
            return Err(too_large_resource_version(least, revision));
        }
        stored.ok_or_else(|| Status::not_found(&self.resource.gvr, name))
    }

    /// Like [`Store::get`], as a tree; `None` where there is no such object.
    pub async fn find(&self, namespace: &str, name: &str) -> Result<Option<Object>> {
        let key = self.key(namespace, name)?;
        let stored = self.storage.get(&key).await.map_err(|error| self.fault(error, "get"))?;
        stored.map(|stored| self.decode(&stored)).transpose()
    }

    /// Checks the field labels of a selector and turns the options into a selection.
    pub fn selection(&self, options: &ListOptions) -> Result<Selection> {
        for term in &options.field_selector.terms {
            self.resource.check_field_label(&term.field).map_err(Status::bad_request)?;
        }
        Ok(Selection { labels: options.label_selector.clone(), fields: options.field_selector.clone() })
    }

    /// One page of the objects of a namespace (of all where it is empty) that the options select.
    pub async fn list(&self, namespace: &str, options: &ListOptions) -> Result<Page> {
        let selection = self.selection(options)?;
        let namespace = match selection.fields.required("metadata.namespace") {
            Some(wanted) if namespace.is_empty() && self.resource.decl.namespaced && valid_namespace(wanted) => wanted,
            _ => namespace,
        };
        let prefix = self.namespace_prefix(namespace);
        let start = self.start(options, &prefix)?;
        if let (Some(name), true) = (selection.fields.required("metadata.name"), start.revision.is_none() && !start.continued)
            && (!namespace.is_empty() || !self.resource.decl.namespaced)
        {
            return self.list_one(namespace, name, options, &selection).await;
        }
        self.list_range(prefix, start, options, &selection).await
    }

    /// The list of a selector that names one object: no need to look further.
    async fn list_one(&self, namespace: &str, name: &str, options: &ListOptions, selection: &Selection) -> Result<Page> {
        let Ok(key) = self.key(namespace, name) else {
            let revision = self.storage.current_revision().await.map_err(|error| self.fault(error, "list"))?;
            return Ok(Page { revision, ..Page::default() });
        };
        let (stored, revision) = self.storage.get_with_revision(&key).await.map_err(|error| self.fault(error, "list"))?;
        check_reached(options, revision)?;
        let mut items = Vec::new();
        if let Some(stored) = stored
            && selection.matches(self.resource.strategy, &self.decode(&stored)?)
        {
            items.push(stored);
        }
        Ok(Page { items, revision, ..Page::default() })
    }

    fn start(&self, options: &ListOptions, prefix: &str) -> Result<Start> {
        let version = parse_resource_version(&options.resource_version)
            .map_err(|why| Status::bad_request(format!("invalid resource version: {why}")))?;
        if !options.continue_token.is_empty() {
            let (key, revision) = continuation::decode(&options.continue_token, prefix)
                .map_err(|status| Status::bad_request(format!("invalid continue token: {}", status.message)))?;
            if !options.resource_version.is_empty() && options.resource_version != "0" {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            return Ok(Start { key, revision: (revision > 0).then_some(revision), continued: true });
        }
        let exact =
            options.resource_version_match == "Exact" || (options.resource_version_match.is_empty() && options.limit > 0 && version > 0);
        Ok(Start { key: String::new(), revision: exact.then_some(version), continued: false })
    }

    async fn list_range(&self, prefix: String, start: Start, options: &ListOptions, selection: &Selection) -> Result<Page> {
        // "Any" state has always been answered whole (apiserver `cacher.shouldDelegateList`).
        let any = options.resource_version == "0" && options.continue_token.is_empty();
        let limit = if any { 0 } else { usize::try_from(options.limit).unwrap_or(0) };
        let mut request = ListRequest { prefix: prefix.clone(), start: start.key.clone(), revision: start.revision, limit };
        let mut page = Page::default();
        if !selection.is_empty() && limit > 0 {
            request.limit = limit.max(SCAN_CHUNK);
        }
        loop {
            let part = self.range(&request, &start, options).await?;
            if page.revision == 0 {
                page.revision = part.revision;
                check_reached(options, part.revision)?;
            }
            request.revision = Some(page.revision);
            let (count, more) = (part.count, part.more);
            let last = part.items.last().map(|item| item.key.clone());
            for stored in part.items {
                if limit > 0 && page.items.len() == limit {
                    let last = page.items.last().map_or_else(|| stored.key.clone(), |item| item.key.clone());
                    page.continue_token = continuation::encode(&after(&last), &prefix, page.revision);
                    return Ok(page);
                }
                if selection.is_empty() || selection.matches(self.resource.strategy, &self.decode(&stored)?) {
                    page.items.push(stored);
                }
            }
            let Some(last) = last.filter(|_| more) else { return Ok(page) };
            if limit > 0 && page.items.len() >= limit {
                page.continue_token = continuation::encode(&after(&last), &prefix, page.revision);
                page.remaining = selection.is_empty().then_some(count - options.limit);
                return Ok(page);
            }
            request.start = after(&last);
        }
    }

    async fn range(&self, request: &ListRequest, start: &Start, options: &ListOptions) -> Result<ListPage> {
        self.storage.list(request.clone()).await.map_err(|error| match error {
            StorageError::Compacted { .. } if start.continued => {
                let mut status = Status::expired(INCONSISTENT_CONTINUE);
                status.continue_token = continuation::encode(&start.key, &request.prefix, -1);
                status
            }
            StorageError::FutureRevision { current, asked } => {
                let asked = parse_resource_version(&options.resource_version).ok().filter(|version| *version > 0).unwrap_or(asked);
                too_large_resource_version(asked, current)
            }
            other => storage_status(other, &self.resource.gvr, "list"),
        })
    }
}

/// What a client is told whose next page is compacted away; it may go on at the present with a new token.
const INCONSISTENT_CONTINUE: &str = "The provided continue parameter is too old to display a consistent list result. \
You can start a new list without the continue parameter, or use the continue token in this response to retrieve the \
remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// Refuses a list that asks for a state newer than the store has.
fn check_reached(options: &ListOptions, revision: Revision) -> Result<()> {
    let least = parse_resource_version(&options.resource_version).unwrap_or(0);
    if least > revision { Err(too_large_resource_version(least, revision)) } else { Ok(()) }
}

fn valid_namespace(name: &str) -> bool {
    crate::meta::names::dns1123_label(name).is_empty()
}
