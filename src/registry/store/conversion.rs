//! Objects of a custom kind whose versions a webhook converts: what is stored in another version is
//! converted for its readers, in few calls, and kept on the [`CachedObject`] as its encodings are.
//!
//! Upstream has a watch cache of each version, which converts every object one by one as it comes.
//! Here an object is converted when somebody asks for it in that version. Those who ask at the same
//! time wait for the same call.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::{BoxFuture, Shared, WeakShared};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use crate::base::blocking::{LARGE_BYTES, run_blocking_if};
use crate::base::coop::CoopBudget;
use crate::cacher::{
    CachedObject, Change, Encoding, EncodingCache, EncodingId, Representation, Retention, ServedId,
};
use crate::codec;
use crate::meta::options::ListOptions;
use crate::meta::selector::FieldReader;
use crate::meta::selector::labels::LabelSelector;
use crate::meta::status::Result;
use crate::meta::{Object, Status};
use crate::registry::resource::{Converter, Custom};
use crate::storage::{Stored, next_key};

use super::{Items, Page, Selection, Store};

/// The objects of a list that are converted in one call. Webhooks take a few milliseconds for each.
const MAX_BATCH_OBJECTS: usize = 1000;
/// Their stored bytes, unless one object has more.
const MAX_BATCH_BYTES: usize = 2 << 20;
/// The calls that one list makes at the same time.
const CONCURRENT_BATCHES: usize = 4;

/// The conversions that are under way for one store, and where their results are kept.
pub(super) struct Conversions {
    cache: Arc<EncodingCache>,
    /// The identity of the converted object among the encodings of the stored one.
    id: EncodingId,
    /// By the address of the object, which the call holds. Only of objects that readers share.
    in_flight: Mutex<HashMap<usize, Place<WeakShared<Call>>>>,
}

/// The parts that converting the objects of a store takes.
type Conversion<'a> = (&'a dyn Custom, &'a Arc<dyn Converter>, &'a Arc<Conversions>);

/// The call of a webhook for a batch of objects.
type Call = BoxFuture<'static, Result<Arc<[Arc<CachedObject>]>>>;

/// An object's place in a batch.
struct Place<T> {
    call: T,
    index: usize,
}

impl Place<WeakShared<Call>> {
    /// The call, unless nobody waits for it any more.
    fn upgrade(&self) -> Option<(Shared<Call>, usize)> {
        Some((self.call.upgrade()?, self.index))
    }
}

/// An object on its way to a reader.
enum Pending {
    Done(Arc<CachedObject>),
    /// It comes with the call that has this number among those that the reader waits for.
    Called(Place<usize>),
}

/// Takes the objects of a call out of those that are under way, once it has ended or nobody waits
/// for it any more.
struct InFlightGuard {
    conversions: Arc<Conversions>,
    objects: Arc<[Arc<CachedObject>]>,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut in_flight = self.conversions.in_flight.lock();
        for object in self.objects.iter() {
            in_flight.remove(&address(object));
        }
    }
}

fn address(object: &Arc<CachedObject>) -> usize {
    Arc::as_ptr(object) as usize
}

impl Conversions {
    pub(super) fn new(cache: Arc<EncodingCache>) -> Self {
        Self {
            cache,
            id: EncodingId {
                served: ServedId::unique(),
                representation: Representation::Json,
            },
            in_flight: Mutex::default(),
        }
    }

    /// The converted object, if it is kept.
    fn kept(&self, object: &CachedObject) -> Option<Arc<CachedObject>> {
        let kept = object.existing_encoding(&self.cache, self.id)?;
        kept.converted.clone()
    }

    /// Keeps a converted object, and returns the one that is kept.
    fn keep(
        &self,
        object: &Arc<CachedObject>,
        converted: Arc<CachedObject>,
        retention: Retention,
    ) -> Arc<CachedObject> {
        let kept = object.encoding(&self.cache, self.id, retention, || {
            Ok(Encoding {
                bytes: converted.value.clone(),
                converted: Some(converted.clone()),
                ..Encoding::EMPTY
            })
        });
        let kept = kept.ok().flatten().and_then(|kept| kept.converted.clone());
        kept.unwrap_or(converted)
    }
}

impl Store {
    /// Keeps objects that a webhook converts within the budget of `cache`.
    pub fn converting(mut self, cache: &Arc<EncodingCache>) -> Self {
        let custom = self.resource.custom.as_ref();
        if custom.is_some_and(|custom| custom.converter().is_some()) {
            self.conversions = Some(Arc::new(Conversions::new(cache.clone())));
        }
        self
    }

    /// The form of the kind, the converter of its versions, and what it has converted. `None` where
    /// nothing has to be called for another version.
    fn conversion(&self) -> Option<Conversion<'_>> {
        let (custom, conversions) = (self.resource.custom.as_deref()?, self.conversions.as_ref()?);
        Some((custom, custom.converter()?, conversions))
    }

    /// Reports whether objects may have to be converted by a webhook.
    pub(super) fn converts(&self) -> bool {
        self.conversions.is_some()
    }

    /// Reports whether an object is of another version than the one that is served.
    fn is_foreign(&self, object: &CachedObject) -> bool {
        !object.is_converted()
            && codec::json::Reader::new(&object.value).text_at("apiVersion") != *self.api_version
    }

    /// Returns an object in the served version.
    ///
    /// # Errors
    /// 500 where it cannot be converted.
    pub async fn served_object(&self, object: Arc<CachedObject>) -> Result<Arc<CachedObject>> {
        if !self.converts() || !self.is_foreign(&object) {
            return Ok(object);
        }
        let mut served = self.convert_all(vec![object], Retention::Event).await?;
        served.pop().ok_or_else(|| Status::internal("no object"))
    }

    /// Returns objects in the served version, in their order.
    ///
    /// # Errors
    /// 500 where one of them cannot be converted.
    pub async fn served_objects(
        &self,
        objects: Vec<Arc<CachedObject>>,
    ) -> Result<Vec<Arc<CachedObject>>> {
        if self.converts() {
            self.convert_all(objects, Retention::Scan).await
        } else {
            Ok(objects)
        }
    }

    async fn convert_all(
        &self,
        objects: Vec<Arc<CachedObject>>,
        retention: Retention,
    ) -> Result<Vec<Arc<CachedObject>>> {
        let Some((.., conversions)) = self.conversion() else {
            return Ok(objects);
        };
        let (mut pending, mut calls) = (Vec::with_capacity(objects.len()), Vec::new());
        let (mut batch, mut bytes, mut budget) = (Vec::new(), 0, CoopBudget::default());
        for object in objects {
            budget.step().await;
            if !self.is_foreign(&object) {
                pending.push(Pending::Done(object));
            } else if let Some(kept) = conversions.kept(&object) {
                pending.push(Pending::Done(kept));
            } else {
                if batch.len() == MAX_BATCH_OBJECTS
                    || (!batch.is_empty() && bytes + object.value.len() > MAX_BATCH_BYTES)
                {
                    self.call(
                        std::mem::take(&mut batch),
                        retention,
                        &mut pending,
                        &mut calls,
                    );
                    bytes = 0;
                }
                bytes += object.value.len();
                batch.push((pending.len(), object.clone()));
                pending.push(Pending::Done(object));
            }
        }
        if !batch.is_empty() {
            self.call(batch, retention, &mut pending, &mut calls);
        }
        let answers: Vec<_> = stream::iter(calls)
            .buffered(CONCURRENT_BATCHES)
            .try_collect()
            .await?;
        let served = pending.into_iter().map(|pending| match pending {
            Pending::Done(object) => Ok(object),
            Pending::Called(Place { call, index }) => answers
                .get(call)
                .and_then(|answer| answer.get(index))
                .cloned()
                .ok_or_else(|| Status::internal("an object was not converted")),
        });
        served.collect()
    }

    /// Sees to a batch of objects, which come with their numbers in `pending`: those that a call is
    /// under way for wait for it, and a call begins for the others.
    fn call(
        &self,
        batch: Vec<(usize, Arc<CachedObject>)>,
        retention: Retention,
        pending: &mut [Pending],
        calls: &mut Vec<Shared<Call>>,
    ) {
        let Some((.., conversions)) = self.conversion() else {
            return;
        };
        let mut set = |number: usize, state: Pending| {
            if let Some(pending) = pending.get_mut(number) {
                *pending = state;
            }
        };
        let (mut numbers, mut objects) = (Vec::new(), Vec::new());
        // Held to the end, so that nobody else begins a call for the same objects meanwhile.
        let mut in_flight = conversions.in_flight.lock();
        for (number, object) in batch {
            let place = in_flight.get(&address(&object));
            if let Some((call, index)) = place.and_then(Place::upgrade) {
                let known = calls.iter().position(|known| known.ptr_eq(&call));
                let place = Place {
                    call: known.unwrap_or(calls.len()),
                    index,
                };
                set(number, Pending::Called(place));
                if known.is_none() {
                    calls.push(call);
                }
            } else if let Some(kept) = conversions.kept(&object) {
                // The call has ended since.
                set(number, Pending::Done(kept));
            } else {
                numbers.push(number);
                objects.push(object);
            }
        }
        if objects.is_empty() {
            return;
        }
        let guard = InFlightGuard {
            conversions: conversions.clone(),
            objects: objects.into(),
        };
        let objects = guard.objects.clone();
        let call = self
            .clone()
            .convert_batch(guard, retention)
            .boxed()
            .shared();
        for (index, (number, object)) in numbers.into_iter().zip(objects.iter()).enumerate() {
            if let (true, Some(call)) = (object.is_shared(), call.downgrade()) {
                in_flight.insert(address(object), Place { call, index });
            }
            let call = calls.len();
            set(number, Pending::Called(Place { call, index }));
        }
        drop(in_flight);
        calls.push(call);
    }

    async fn convert_batch(
        self,
        guard: InFlightGuard,
        retention: Retention,
    ) -> Result<Arc<[Arc<CachedObject>]>> {
        let objects = &guard.objects;
        let Some((custom, converter, conversions)) = self.conversion() else {
            return Ok(objects.clone());
        };
        let large = objects
            .iter()
            .map(|object| object.value.len())
            .sum::<usize>()
            > LARGE_BYTES;
        let trees: Result<Vec<Object>> = run_blocking_if(large, || {
            let decoded = objects
                .iter()
                .map(|object| custom.decode_stored(&object.value));
            decoded.collect()
        });
        let converted = converter.convert(trees?, &self.api_version).await;
        let converted = converted.map_err(failed)?;
        if converted.len() != objects.len() {
            return Err(Status::internal("an object was not converted"));
        }
        run_blocking_if(large, || {
            let served = objects.iter().zip(converted).map(|(object, mut tree)| {
                custom.complete(&mut tree).map_err(failed)?;
                tree.sort();
                let served = object.converted_to(Bytes::from(codec::json::encode(&tree)));
                Ok(conversions.keep(object, served, retention))
            });
            served.collect()
        })
    }

    /// Decodes a stored object that a write begins with, in the served version.
    pub(super) async fn decode(&self, stored: &Stored) -> Result<Object> {
        if !self.converts() {
            return self.codec.decode(stored);
        }
        let served = self.read_back(stored.clone()).await?;
        run_blocking_if(served.value.len() > LARGE_BYTES, || {
            self.codec.decode_shared(&served)
        })
    }

    /// Like [`Store::decode`], with defaults that may not have been known when it was written.
    pub(super) async fn decode_defaulted(&self, stored: &Stored) -> Result<Object> {
        if self.converts() {
            return self.decode(stored).await;
        }
        run_blocking_if(stored.value.len() > LARGE_BYTES, || {
            self.codec.decode_defaulted(stored)
        })
    }

    /// Decodes an object for the server itself: of the served version, defaulted.
    ///
    /// # Errors
    /// 500 for an object that cannot be decoded or converted.
    pub async fn decode_served(&self, object: &Arc<CachedObject>) -> Result<Object> {
        let served = self.served_object(object.clone()).await?;
        if served.is_converted() {
            self.codec.decode_shared(&served)
        } else {
            self.codec.decode_defaulted(&served)
        }
    }

    /// Returns stored bytes, just read or written, in the served version. Readers of the watch
    /// cache may have them already.
    ///
    /// # Errors
    /// 500 where they cannot be converted.
    pub async fn read_back(&self, stored: Stored) -> Result<Arc<CachedObject>> {
        let snapshot = self.cacher.as_ref().filter(|_| self.converts());
        let snapshot = snapshot.and_then(|cacher| cacher.snapshot());
        let cached = snapshot.and_then(|snapshot| snapshot.get(&stored.key).cloned());
        // A dry run has bytes that nobody stored.
        let cached = cached.filter(|cached| {
            cached.mod_revision == stored.mod_revision && cached.value == stored.value
        });
        self.served_object(cached.unwrap_or_else(|| stored.into()))
            .await
    }

    /// Encodes an object of the served version to be stored.
    pub(super) async fn encode(&self, object: &mut Object) -> Result<Bytes> {
        let large = object.is_larger_than(LARGE_BYTES);
        let foreign = self
            .conversion()
            .filter(|(custom, ..)| custom.storage_api_version() != &*self.api_version);
        let Some((custom, converter, _)) = foreign else {
            return run_blocking_if(large, || self.codec.encode(object));
        };
        object.metadata_mut().shift_remove("resourceVersion");
        object.metadata_mut().shift_remove("selfLink");
        let converted = converter
            .convert(vec![object.clone()], custom.storage_api_version())
            .await
            .map_err(failed)?;
        let mut converted = converted.into_iter().next().unwrap_or_default();
        run_blocking_if(large, || {
            custom.complete(&mut converted).map_err(failed)?;
            self.codec.encode(&mut converted)
        })
    }

    /// Returns the last state of the object that a change deleted, in the served version.
    pub(super) async fn served_deleted(
        &self,
        change: &Change,
    ) -> Result<Option<Arc<CachedObject>>> {
        let (Some(previous), Some(deleted)) = (&change.previous, change.deleted()) else {
            return Ok(None);
        };
        let Some((.., conversions)) = self.conversion().filter(|_| self.is_foreign(previous))
        else {
            return Ok(Some(deleted.clone()));
        };
        if let Some(kept) = conversions.kept(deleted) {
            return Ok(Some(kept));
        }
        let served = self.served_object(previous.clone()).await?;
        let served = served.deleted_at(change.revision);
        Ok(Some(conversions.keep(deleted, served, Retention::Event)))
    }

    /// Returns those of the objects that a selection takes as they are served, in this form.
    pub(super) async fn served_selection(
        &self,
        stored: &mut Items,
        selection: &Selection,
    ) -> Result<Vec<Arc<CachedObject>>> {
        let (mut found, mut selected) = (Vec::new(), Vec::new());
        while let Some(object) = stored.next_item().await {
            found.push(object?);
        }
        let mut budget = CoopBudget::default();
        for served in self.served_objects(found).await? {
            budget.step().await;
            if self.selects(selection, &served)? {
                selected.push(served);
            }
        }
        Ok(selected)
    }

    /// Returns a page of a list of objects that a webhook may have to convert. Selectors look at
    /// the served version; only names are known before.
    pub(super) async fn list_converted(
        &self,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<Page> {
        let selection = self.selection(options)?;
        let by_name = selection.of_names();
        let selects_all = selection.labels.is_empty()
            && by_name.fields.terms.len() == selection.fields.terms.len();
        let prefix = self.namespace_prefix(self.listed_namespace(namespace, &selection));
        let limit = usize::try_from(options.limit).unwrap_or(0);
        let mut stored = ListOptions {
            label_selector: by_name.labels,
            field_selector: by_name.fields,
            ..options.clone()
        };
        let mut items = Vec::new();
        for round in 0.. {
            let mut page = self.list_stored(namespace, &stored).await?;
            items.extend(self.served_selection(&mut page.items, &selection).await?);
            if !selects_all {
                page.remaining = None;
            }
            // The first page alone may have more: all that is known is answered whole.
            if round > 0 && items.len() > limit {
                items.truncate(limit);
                let last = items
                    .last()
                    .map(|item: &Arc<CachedObject>| next_key(&item.key));
                page.set_continue(last.unwrap_or_default(), &prefix);
            }
            if page.continue_token.is_empty() || items.len() >= limit {
                page.items = items.into();
                return Ok(page);
            }
            stored.continue_token = page.continue_token;
            stored.resource_version.clear();
            stored.resource_version_match.clear();
        }
        Ok(Page::default())
    }
}

impl Selection {
    /// The part that asks for names and namespaces only.
    pub(super) fn of_names(&self) -> Self {
        let is_name = |field: &str| matches!(field, "metadata.name" | "metadata.namespace");
        Self {
            labels: LabelSelector::default(),
            fields: self.fields.only(is_name),
        }
    }
}

/// The Status for an object that cannot be converted.
fn failed(why: String) -> Status {
    Status::failure(500, "", why)
}
