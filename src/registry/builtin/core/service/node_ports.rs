//! Which node ports are taken: a RangeAllocation object with a bitmap, shared by all servers of the cluster.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::RngExt;

use crate::codec;
use crate::meta::status::Result;
use crate::meta::{Gvk, Gvr, Object, Status, json};
use crate::registry::store::storage_status;
use crate::schema::TypeRef;
use crate::storage::{Storage, Stored, Txn};

/// How often a change is tried again because another one came first.
const CONFLICT_RETRIES: usize = 100;

/// The node ports of the cluster.
pub struct NodePorts {
    storage: Arc<dyn Storage>,
    key: String,
    range: RangeInclusive<u16>,
}

/// One bit for each port of the range: the number whose binary digits they are, in the fewest bytes, highest first.
struct Bitmap(Vec<u8>);

impl Bitmap {
    fn get(&self, bit: usize) -> bool {
        let byte = bit / 8;
        byte < self.0.len() && self.0[self.0.len() - 1 - byte] & (1 << (bit % 8)) != 0
    }

    fn set(&mut self, bit: usize, on: bool) {
        let byte = bit / 8;
        if byte >= self.0.len() {
            let missing = byte + 1 - self.0.len();
            self.0.splice(0..0, std::iter::repeat_n(0, missing));
        }
        let at = self.0.len() - 1 - byte;
        let mask = 1 << (bit % 8);
        self.0[at] = if on { self.0[at] | mask } else { self.0[at] & !mask };
        let zeros = self.0.iter().take_while(|byte| **byte == 0).count();
        self.0.drain(..zeros);
    }
}

impl NodePorts {
    /// `root` is the root of all keys.
    pub fn new(storage: Arc<dyn Storage>, root: &str, range: RangeInclusive<u16>) -> Self {
        Self { storage, key: format!("{}/ranges/servicenodeports", root.trim_end_matches('/')), range }
    }

    pub fn contains(&self, port: u16) -> bool {
        self.range.contains(&port)
    }

    /// What a client is told whose port is outside the range.
    pub fn out_of_range(&self) -> String {
        format!("provided port is not in the valid range. The range of valid ports is {}", self.range_text())
    }

    fn range_text(&self) -> String {
        format!("{}-{}", self.range.start(), self.range.end())
    }

    fn bit(&self, port: u16) -> usize {
        usize::from(port - self.range.start())
    }

    /// Takes one port; false where it is taken. A dry run only looks.
    pub async fn take(&self, port: u16, dry_run: bool) -> Result<bool> {
        let taken = self
            .change(dry_run, |bitmap| {
                let free = !bitmap.get(self.bit(port));
                bitmap.set(self.bit(port), true);
                free.then_some(port)
            })
            .await?;
        Ok(taken.is_some())
    }

    /// Takes any port that is free and not among `besides`; `None` where there is none.
    pub async fn take_any(&self, besides: &BTreeSet<u16>, dry_run: bool) -> Result<Option<u16>> {
        let (low, high) = (*self.range.start(), *self.range.end());
        let reserved = reserved(usize::from(high - low) + 1);
        let start = rand::rng().random_range(0..=high - low);
        self.change(dry_run, |bitmap| {
            let size = high - low + 1;
            let ports = (0..size).map(|step| low + (start + step) % size);
            let free = |port: &u16| !bitmap.get(self.bit(*port)) && !besides.contains(port);
            let upper = ports.clone().filter(|port| self.bit(*port) >= reserved).find(free);
            let port = upper.or_else(|| ports.clone().find(free))?;
            bitmap.set(self.bit(port), true);
            Some(port)
        })
        .await
    }

    /// Gives ports back.
    pub async fn release(&self, ports: &BTreeSet<u16>) -> Result<()> {
        let ports: Vec<u16> = ports.iter().copied().filter(|port| self.contains(*port)).collect();
        if ports.is_empty() {
            return Ok(());
        }
        let change = |bitmap: &mut Bitmap| {
            ports.iter().for_each(|port| bitmap.set(self.bit(*port), false));
            Some(0)
        };
        self.change(false, change).await.map(drop)
    }

    /// Changes the bitmap, unless the change has nothing to give.
    async fn change(&self, dry_run: bool, change: impl Fn(&mut Bitmap) -> Option<u16> + Send) -> Result<Option<u16>> {
        let failed = |error| storage_status(error, &Gvr::new("", "v1", "rangeallocations"), "update");
        let mut stored = self.storage.get(&self.key).await.map_err(failed)?;
        for _ in 0..CONFLICT_RETRIES {
            let mut bitmap = self.decode(stored.as_ref())?;
            let Some(port) = change(&mut bitmap) else { return Ok(None) };
            if dry_run {
                return Ok(Some(port));
            }
            let value = self.encode(&bitmap)?;
            let done = match &stored {
                Some(stored) => self.storage.update(&self.key, value.into(), stored.mod_revision, None).await,
                None => self.storage.create(&self.key, value.into(), None).await,
            };
            match done.map_err(failed)? {
                Txn::Done(_) => return Ok(Some(port)),
                Txn::Failed(standing) => stored = standing,
            }
        }
        Err(Status::internal("the allocation of node ports changes too fast"))
    }

    /// A range that is another than the configured one starts empty, as upstream's repair would leave it.
    fn decode(&self, stored: Option<&Stored>) -> Result<Bitmap> {
        let Some(stored) = stored else { return Ok(Bitmap(Vec::new())) };
        let unreadable = |why: codec::DecodeError| Status::internal(format!("unable to decode the node ports: {}", why.0));
        let envelope = codec::protobuf::unwrap(&stored.value).map_err(unreadable)?;
        let object = codec::protobuf::decode(envelope.raw, ty()?).map_err(unreadable)?;
        if object.str_at("/range") != self.range_text() {
            return Ok(Bitmap(Vec::new()));
        }
        Ok(Bitmap(STANDARD.decode(object.str_at("/data")).unwrap_or_default()))
    }

    fn encode(&self, bitmap: &Bitmap) -> Result<Vec<u8>> {
        let value = json!({"metadata": {}, "range": self.range_text(), "data": STANDARD.encode(&bitmap.0)});
        let object = Object::from_value(value).unwrap_or_default();
        Ok(codec::protobuf::wrap("v1", "RangeAllocation", &codec::protobuf::encode(&object, ty()?)))
    }
}

fn ty() -> Result<TypeRef<'static>> {
    crate::schema::builtin()
        .get(&Gvk::new("", "v1", "RangeAllocation"))
        .ok_or_else(|| Status::internal("RangeAllocation is not in the schema"))
}

/// How many of the lowest ports are left to people (`calculateReserved` of upstream's port allocator).
fn reserved(size: usize) -> usize {
    if size < 16 { 0 } else { (size / 32).clamp(16, 128) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bitmap_is_a_number_in_the_fewest_bytes() {
        let mut bitmap = Bitmap(Vec::new());
        bitmap.set(9, true);
        bitmap.set(0, true);
        assert_eq!(bitmap.0, [0b10, 0b1]);
        assert!(bitmap.get(9) && bitmap.get(0) && !bitmap.get(1) && !bitmap.get(4000));
        bitmap.set(9, false);
        assert_eq!(bitmap.0, [0b1]);
        bitmap.set(0, false);
        assert!(bitmap.0.is_empty());
    }
}
