//! Allocated node ports: a RangeAllocation object with a bitmap, shared by all servers of the
//! cluster (`pkg/registry/core/service/{allocator,portallocator}`).

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::RngExt;

use super::metrics;
use super::metrics::scope;
use crate::codec;
use crate::meta::status::Result;
use crate::meta::{Gvk, Gvr, Object, Status, json};
use crate::registry::store::storage_status;
use crate::schema::TypeRef;
use crate::storage::{Storage, Stored, WriteOutcome};

/// The attempts at a change when others come first.
const CONFLICT_RETRIES: usize = 100;
/// The port before the first one that a dry run is told (`PortAllocationOperation.AllocateNext`).
const BEFORE_DRY_RUN: u16 = 32768;

/// The node ports of the cluster.
pub struct NodePorts {
    storage: Arc<dyn Storage>,
    key: String,
    range: RangeInclusive<u16>,
}

/// One bit for each port of the range: the number whose binary digits they are, in the fewest
/// bytes, highest first.
#[derive(Debug, Default, PartialEq)]
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
        self.0[at] = if on {
            self.0[at] | mask
        } else {
            self.0[at] & !mask
        };
        let zeros = self.0.iter().take_while(|byte| **byte == 0).count();
        self.0.drain(..zeros);
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|byte| byte.count_ones()).sum()
    }
}

/// The stored node ports at one moment, whatever range they are of.
#[derive(Debug, Default)]
pub struct Allocation {
    pub ports: BTreeSet<u16>,
    /// The object that a change is conditional on; `None` where nothing is stored.
    stored: Option<Stored>,
    /// It is of the configured range.
    current: bool,
}

impl NodePorts {
    /// `root` is the root of all keys.
    pub fn new(storage: Arc<dyn Storage>, root: &str, range: RangeInclusive<u16>) -> Self {
        Self {
            storage,
            key: format!("{}/ranges/servicenodeports", root.trim_end_matches('/')),
            range,
        }
    }

    pub fn contains(&self, port: u16) -> bool {
        self.range.contains(&port)
    }

    pub fn range_text(&self) -> String {
        format!("{}-{}", self.range.start(), self.range.end())
    }

    fn size(&self) -> usize {
        usize::from(self.range.end() - self.range.start()) + 1
    }

    fn bit(&self, port: u16) -> usize {
        usize::from(port - self.range.start())
    }

    /// Begins to take ports for one write.
    pub fn operation(&self, dry_run: bool) -> Operation<'_> {
        Operation {
            ports: self,
            dry_run,
            taken: BTreeSet::new(),
        }
    }

    /// Takes one port; false where it is taken.
    async fn take(&self, port: u16) -> Result<bool> {
        let change = |bitmap: &mut Bitmap| {
            let free = !bitmap.get(self.bit(port));
            bitmap.set(self.bit(port), true);
            free.then_some(port)
        };
        Ok(self.change(change).await?.is_some())
    }

    /// Takes any free port; `None` where there is none.
    async fn take_any(&self) -> Result<Option<u16>> {
        let (low, size) = (*self.range.start(), self.size());
        let (reserved, start) = (reserved(size), rand::rng().random_range(0..size));
        let change = |bitmap: &mut Bitmap| {
            let bits = (0..size).map(|step| (start + step) % size);
            let free = |bit: &usize| !bitmap.get(*bit);
            let bit = bits
                .clone()
                .filter(|bit| *bit >= reserved)
                .find(free)
                .or_else(|| bits.clone().find(free))?;
            bitmap.set(bit, true);
            Some(low + bit as u16)
        };
        self.change(change).await
    }

    async fn is_taken(&self, port: u16) -> Result<bool> {
        let stored = self.stored().await?;
        Ok(self.contains(port) && self.decode(stored.as_ref())?.get(self.bit(port)))
    }

    /// Gives ports back. What cannot be given back is left to the repair.
    pub async fn release(&self, ports: &BTreeSet<u16>) {
        let ports: Vec<u16> = ports
            .iter()
            .copied()
            .filter(|port| self.contains(*port))
            .collect();
        if ports.is_empty() {
            return;
        }
        let change = |bitmap: &mut Bitmap| {
            ports
                .iter()
                .for_each(|port| bitmap.set(self.bit(*port), false));
            Some(0)
        };
        if let Err(status) = self.change(change).await {
            tracing::warn!(reason = status.message, "cannot release node ports");
        }
    }

    async fn stored(&self) -> Result<Option<Stored>> {
        self.storage.get(&self.key).await.map_err(failed)
    }

    /// Changes the bitmap, unless the change has nothing to give.
    async fn change(
        &self,
        change: impl Fn(&mut Bitmap) -> Option<u16> + Send,
    ) -> Result<Option<u16>> {
        let mut stored = self.stored().await?;
        for _ in 0..CONFLICT_RETRIES {
            let mut bitmap = self.decode(stored.as_ref())?;
            let Some(port) = change(&mut bitmap) else {
                return Ok(None);
            };
            match self.write(&bitmap, stored.as_ref()).await? {
                WriteOutcome::Committed(_) => return Ok(Some(port)),
                WriteOutcome::Conflict(standing) => stored = standing,
            }
        }
        Err(Status::internal(
            "the allocation of node ports changes too fast",
        ))
    }

    async fn write(&self, bitmap: &Bitmap, over: Option<&Stored>) -> Result<WriteOutcome> {
        let value = self.encode(bitmap)?;
        let done = match over {
            Some(stored) => {
                self.storage
                    .update(&self.key, value.into(), stored.mod_revision, None)
                    .await
            }
            None => self.storage.create(&self.key, value.into(), None).await,
        };
        let done = done.map_err(failed)?;
        if matches!(done, WriteOutcome::Committed(_)) {
            let (taken, size) = (
                i64::from(bitmap.count()),
                i64::try_from(self.size()).unwrap_or(i64::MAX),
            );
            metrics::ALLOCATED_PORTS.set(&[], taken);
            metrics::AVAILABLE_PORTS.set(&[], size - taken);
        }
        Ok(done)
    }

    /// The bitmap, if it is of the configured range. Until the repair has made one of it, nobody
    /// can tell what is free.
    fn decode(&self, stored: Option<&Stored>) -> Result<Bitmap> {
        let Some(stored) = stored else {
            return Err(Status::unavailable(
                "cannot allocate resources of type servicenodeportallocations at this time",
            ));
        };
        match decode(stored)? {
            (range, bitmap) if range == self.range_text() => Ok(bitmap),
            _ => Err(Status::failure(
                500,
                "",
                "the provided port range does not match the current port range",
            )),
        }
    }

    fn encode(&self, bitmap: &Bitmap) -> Result<Vec<u8>> {
        let value =
            json!({"metadata": {}, "range": self.range_text(), "data": STANDARD.encode(&bitmap.0)});
        let object = Object::from_value(value).unwrap_or_default();
        Ok(codec::protobuf::wrap(
            "v1",
            "RangeAllocation",
            &codec::protobuf::encode(&object, ty()?),
        ))
    }

    /// Returns the stored ports, of whatever range; none where nothing is stored.
    ///
    /// # Errors
    /// The store's, or what is stored cannot be read.
    pub async fn allocation(&self) -> Result<Allocation> {
        let Some(stored) = self.stored().await? else {
            return Ok(Allocation::default());
        };
        let (range, bitmap) = decode(&stored)?;
        let bounds = range
            .split_once('-')
            .and_then(|(low, high)| Some((low.parse::<u16>().ok()?, high.parse::<u16>().ok()?)));
        let (low, high) =
            bounds.ok_or_else(|| Status::internal(format!("{range:?} is not a range of ports")))?;
        let ports = (low..=high)
            .filter(|port| bitmap.get(usize::from(port - low)))
            .collect();
        Ok(Allocation {
            ports,
            stored: Some(stored),
            current: range == self.range_text(),
        })
    }

    /// Replaces what was read by just these ports, as far as they are in the configured range.
    /// False where it has changed meanwhile; writes nothing where it is already so.
    ///
    /// # Errors
    /// The store's.
    pub async fn replace(&self, read: &Allocation, ports: &BTreeSet<u16>) -> Result<bool> {
        let ports: BTreeSet<u16> = ports
            .iter()
            .copied()
            .filter(|port| self.contains(*port))
            .collect();
        if read.current && read.ports == ports {
            return Ok(true);
        }
        let mut bitmap = Bitmap::default();
        ports
            .iter()
            .for_each(|port| bitmap.set(self.bit(*port), true));
        Ok(matches!(
            self.write(&bitmap, read.stored.as_ref()).await?,
            WriteOutcome::Committed(_)
        ))
    }
}

/// The ports that one write takes: at once, to be given back if it is not done. A dry run only
/// looks.
pub struct Operation<'a> {
    ports: &'a NodePorts,
    dry_run: bool,
    pub taken: BTreeSet<u16>,
}

impl Operation<'_> {
    /// Takes a port that the client chose. The error says why not.
    ///
    /// # Errors
    /// The end of upstream's message: the port is outside the range, or taken.
    pub async fn allocate(&mut self, asked: i64) -> std::result::Result<(), String> {
        let port = number(asked).filter(|port| self.ports.contains(*port));
        let done = match port {
            // A dry run does not ask about the range.
            None if self.dry_run => return Ok(()),
            None => Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}",
                self.ports.range_text()
            )),
            Some(port) => self.allocate_port(port).await,
        };
        self.count(true, done.is_ok());
        done
    }

    async fn allocate_port(&mut self, port: u16) -> std::result::Result<(), String> {
        let free = match self.dry_run {
            _ if self.taken.contains(&port) => Ok(false),
            true => self.ports.is_taken(port).await.map(|taken| !taken),
            false => self.ports.take(port).await,
        };
        if !free.map_err(|status| status.message)? {
            return Err("provided port is already allocated".to_owned());
        }
        self.taken.insert(port);
        Ok(())
    }

    /// Takes any free port. The error says why not.
    ///
    /// # Errors
    /// The end of upstream's message: the range is full.
    pub async fn allocate_next(&mut self) -> std::result::Result<u16, String> {
        let port = match self.dry_run {
            true => Ok(Some(
                self.taken
                    .last()
                    .copied()
                    .unwrap_or(BEFORE_DRY_RUN)
                    .saturating_add(1),
            )),
            false => self.ports.take_any().await,
        };
        let port = port
            .map_err(|status| status.message)
            .and_then(|port| port.ok_or_else(|| "range is full".to_owned()));
        self.count(false, port.is_ok());
        self.taken.extend(port.iter());
        port
    }

    fn count(&self, chosen: bool, done: bool) {
        match (self.dry_run, done) {
            (true, _) => {}
            (false, true) => metrics::PORT_ALLOCATIONS.inc(&[scope(chosen)]),
            (false, false) => metrics::PORT_ALLOCATION_ERRORS.inc(&[scope(chosen)]),
        }
    }
}

fn failed(error: crate::storage::StorageError) -> Status {
    storage_status(error, &Gvr::new("", "v1", "rangeallocations"), "update")
}

/// Range and bitmap of a stored RangeAllocation.
fn decode(stored: &Stored) -> Result<(String, Bitmap)> {
    let unreadable =
        |why: String| Status::internal(format!("unable to decode the node ports: {why}"));
    let envelope = codec::protobuf::unwrap(&stored.value).map_err(|why| unreadable(why.0))?;
    let object = codec::protobuf::decode(envelope.raw, ty()?).map_err(|why| unreadable(why.0))?;
    let data = STANDARD
        .decode(object.str_at("/data"))
        .map_err(|why| unreadable(why.to_string()))?;
    Ok((object.str_at("/range").to_owned(), Bitmap(data)))
}

fn ty() -> Result<TypeRef<'static>> {
    crate::schema::builtin()
        .get(&Gvk::new("", "v1", "RangeAllocation"))
        .ok_or_else(|| Status::internal("RangeAllocation is not in the schema"))
}

/// Returns the number of the lowest ports that are left to people (`calculateRangeOffset` of
/// upstream's port allocator).
fn reserved(size: usize) -> usize {
    if size <= 16 {
        0
    } else {
        (size / 32).clamp(16, 128)
    }
}

/// A port that is set and fits.
pub fn number(port: i64) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::embedded::Embedded;

    #[test]
    fn the_bitmap_is_a_number_in_the_fewest_bytes() {
        let mut bitmap = Bitmap(Vec::new());
        bitmap.set(9, true);
        bitmap.set(0, true);
        assert_eq!(bitmap.0, [0b10, 0b1]);
        assert!(bitmap.get(9) && bitmap.get(0) && !bitmap.get(1) && !bitmap.get(4000));
        assert_eq!(bitmap.count(), 2);
        bitmap.set(9, false);
        assert_eq!(bitmap.0, [0b1]);
        bitmap.set(0, false);
        assert!(bitmap.0.is_empty());
    }

    #[tokio::test]
    async fn nothing_is_handed_out_before_it_is_known_what_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let storage: Arc<dyn Storage> = Arc::new(Embedded::open(folder.path()).unwrap());
        let open = |range| NodePorts::new(storage.clone(), "/registry", range);
        let ports = open(30000..=30009);
        assert!(
            ports
                .operation(false)
                .allocate_next()
                .await
                .unwrap_err()
                .contains("at this time")
        );
        assert!(
            ports
                .replace(&ports.allocation().await.unwrap(), &[30003, 40000].into())
                .await
                .unwrap()
        );
        assert_eq!(ports.allocation().await.unwrap().ports, [30003].into());
        assert!(
            ports.operation(false).allocate(30003).await.is_err()
                && ports.operation(false).allocate(30004).await.is_ok()
        );

        let others = open(30002..=30005);
        assert!(
            others
                .operation(false)
                .allocate_next()
                .await
                .unwrap_err()
                .contains("does not match")
        );
        let read = others.allocation().await.unwrap();
        assert_eq!(read.ports, [30003, 30004].into());
        ports.release(&[30004].into()).await;
        assert!(
            !others.replace(&read, &read.ports).await.unwrap(),
            "it has changed since"
        );
        let read = others.allocation().await.unwrap();
        assert!(others.replace(&read, &read.ports).await.unwrap());
        let mut operation = others.operation(false);
        for _ in 0..3 {
            operation.allocate_next().await.unwrap();
        }
        assert_eq!(operation.taken, [30002, 30004, 30005].into());
        assert_eq!(
            operation.allocate_next().await.unwrap_err(),
            "range is full"
        );
    }
}
