//! Snapshot files of etcd (`etcdctl snapshot save`): a bbolt database, and its SHA-256 behind it.
//! Only what leads to the keys is read: meta pages, buckets, and etcd's records of revisions.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use bytes::Bytes;
use prost::Message;

use super::snapshot::{Entry, MAX_REVISION};
use super::{Result, Revision, StorageError, Stored};
use crate::base::clock::Clock;

/// bbolt's mark of a meta page, and the version of its format (bbolt `internal/common/types.go`).
const MAGIC: u32 = 0xED0C_DAED;
const FORMAT: u32 = 2;
/// The flags of pages.
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
/// The flag of an element that is a bucket.
const BUCKET: u32 = 0x01;
const PAGE_HEADER: usize = 16;
const ELEMENT: usize = 16;
const BUCKET_HEADER: usize = 16;
/// The sizes that pages may have.
const PAGE_SIZES: std::ops::RangeInclusive<usize> = 512..=65_536;
/// The height of trees that are read, at most: one of this height has more keys than fit on a disk.
const MAX_DEPTH: usize = 24;
/// The length of a revision in etcd's bucket of keys, without the mark of a deletion.
const REVISION_BYTES: usize = 17;
/// The time that a lease may have left, at most: far more than etcd grants.
const MAX_LEASE_SECONDS: i64 = 10_000_000_000;

/// A key with its value in etcd's bucket (mvccpb.KeyValue).
#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(int64, tag = "2")]
    create_revision: i64,
    #[prost(int64, tag = "3")]
    mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    value: Bytes,
    #[prost(int64, tag = "6")]
    lease: i64,
}

/// A lease in etcd's bucket of leases (leasepb.Lease).
#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int64, tag = "2")]
    ttl: i64,
    #[prost(int64, tag = "3")]
    remaining_ttl: i64,
}

/// The content of a snapshot.
#[derive(Debug)]
pub struct EtcdSnapshot {
    pub revision: Revision,
    /// In the order of keys.
    pub entries: Vec<Entry>,
}

impl EtcdSnapshot {
    /// Reads a snapshot: the keys that begin with `prefix`. A file without a hash, such as one of a
    /// member that was stopped, is read only if `unchecked`.
    ///
    /// # Errors
    /// It is none, was cut or changed, or cannot be read.
    pub fn read(path: &Path, prefix: &str, unchecked: bool) -> Result<Self> {
        let failed = |why: &dyn std::fmt::Display| {
            StorageError::Internal(format!("{}: {why}", path.display()))
        };
        // A pipe or a device may have no end.
        if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
            return Err(failed(&"it is no regular file"));
        }
        let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
        Self::parse(bytes.into(), prefix, unchecked).map_err(|why| failed(&why))
    }

    /// Reads the bytes of a snapshot.
    ///
    /// # Errors
    /// Those of [`EtcdSnapshot::read`].
    pub fn parse(mut bytes: Bytes, prefix: &str, unchecked: bool) -> Outcome<Self> {
        // etcd takes a file with a hash for one by its length, too (etcdutl/snapshot).
        if bytes.len() % 512 == SHA256_OUTPUT_LEN {
            let hash = bytes.split_off(bytes.len() - SHA256_OUTPUT_LEN);
            if digest(&SHA256, &bytes).as_ref() != hash {
                return Err("its hash is another: it is damaged, or was cut".to_owned());
            }
        } else if !unchecked {
            return Err("it has no hash: it was cut, or is the file of a member \
                        (--skip-hash-check reads that)"
                .to_owned());
        }
        let file = File::open(bytes)?;
        let leases = file.leases()?;
        let (mut revision, mut standing) = (0, BTreeMap::new());
        file.each_in("key", &mut |at, value| {
            let (main, deleted) = revision_of(at)?;
            revision = revision.max(main);
            let kv = KeyValue::decode(value).map_err(|error| format!("a key: {error}"))?;
            if !kv.key.starts_with(prefix.as_bytes()) {
                return Ok(());
            }
            if deleted {
                standing.remove(&kv.key);
                return Ok(());
            }
            if kv.mod_revision != main || !(1..=main).contains(&kv.create_revision) {
                return Err("the revisions of a key contradict".to_owned());
            }
            standing.insert(kv.key.clone(), kv);
            Ok(())
        })?;
        let entries = standing.into_values().map(|kv| entry(kv, &leases));
        Ok(Self {
            revision: revision.max(1),
            entries: entries.collect::<std::result::Result<_, _>>()?,
        })
    }
}

fn entry(kv: KeyValue, leases: &HashMap<i64, i64>) -> std::result::Result<Entry, String> {
    let expires = match kv.lease {
        0 => None,
        // A lease that is gone would have taken the key along.
        lease => Some(leases.get(&lease).copied().unwrap_or(1)),
    };
    let key = String::from_utf8(kv.key.into());
    Ok(Entry {
        stored: Stored {
            key: key.map_err(|error| format!("the key {:?} is not UTF-8", error.as_bytes()))?,
            value: kv.value,
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
        },
        expires,
    })
}

/// The main revision in a key of etcd's bucket, and whether it is a deletion's.
fn revision_of(key: &[u8]) -> std::result::Result<(Revision, bool), String> {
    let main = key.first_chunk::<8>().map(|main| i64::from_be_bytes(*main));
    let main = main.filter(|main| (0..=MAX_REVISION).contains(main));
    match (main, key.len()) {
        (Some(main), REVISION_BYTES) => Ok((main, false)),
        (Some(main), length) if length == REVISION_BYTES + 1 => Ok((main, true)),
        _ => Err("a revision is none".to_owned()),
    }
}

/// A bbolt database in memory.
struct File {
    bytes: Bytes,
    page_size: usize,
    root: u64,
    /// The pages that may still be read: each is in one tree only.
    pages_left: Cell<usize>,
}

type Outcome<T> = std::result::Result<T, String>;

/// A visitor of elements: their flags, key and value.
type Visit<'v> = dyn FnMut(u32, &[u8], Bytes) -> Outcome<()> + 'v;

/// Takes the elements of a bucket: keys and values.
type Each<'f> = &'f mut dyn FnMut(&[u8], Bytes) -> Outcome<()>;

impl File {
    /// Finds the newest meta page that is valid.
    fn open(bytes: Bytes) -> Outcome<Self> {
        let first = meta(&bytes, 0);
        // The second is one page behind the first, which may be the damaged one.
        let sizes = (9..=16).map(|power| 1_usize << power);
        let second = sizes
            .filter_map(|size| meta(&bytes, size).filter(|meta| meta.page_size == size))
            .next();
        let newest = first
            .into_iter()
            .chain(second)
            .max_by_key(|meta| meta.transaction);
        let meta = newest.ok_or("it is no database of etcd")?;
        Ok(Self {
            // The root is read once for each bucket, and small buckets have no page.
            pages_left: Cell::new(2 * (bytes.len() / meta.page_size) + 8),
            bytes,
            page_size: meta.page_size,
            root: meta.root,
        })
    }

    /// The leases, by number: the time at which each ends if its time begins now.
    fn leases(&self) -> Outcome<HashMap<i64, i64>> {
        let (mut leases, now) = (HashMap::new(), Clock::system().now().as_microsecond());
        self.each_in("lease", &mut |_, value| {
            let lease = Lease::decode(value).map_err(|error| format!("a lease: {error}"))?;
            let seconds = match lease.remaining_ttl {
                0 => lease.ttl,
                left => left,
            };
            let seconds = seconds.clamp(0, MAX_LEASE_SECONDS);
            leases.insert(
                lease.id,
                now.saturating_add(seconds.saturating_mul(1_000_000)),
            );
            Ok(())
        })?;
        Ok(leases)
    }

    /// Visits a bucket of the root, in its order.
    fn each_in(&self, name: &str, each: Each<'_>) -> Outcome<()> {
        let mut bucket = None;
        self.walk(
            self.page(self.root)?,
            MAX_DEPTH,
            &mut |flags, key, value| {
                if flags & BUCKET != 0 && key == name.as_bytes() {
                    bucket = Some(value);
                }
                Ok(())
            },
        )?;
        let bucket: Bytes = bucket.ok_or_else(|| format!("it has no bucket {name:?}"))?;
        let page = match number(&bucket, 0)? {
            // A small bucket is in the place of its number.
            0 => bucket.slice(BUCKET_HEADER.min(bucket.len())..),
            page => self.page(page)?,
        };
        self.walk(page, MAX_DEPTH, &mut |_, key, value| each(key, value))
    }

    /// A page with those that it overflows into.
    fn page(&self, number: u64) -> Outcome<Bytes> {
        let offset = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_mul(self.page_size))
            .filter(|offset| *offset < self.bytes.len());
        let rest = self
            .bytes
            .slice(offset.ok_or("a page lies behind its end")?..);
        let more = u32::from_le_bytes(array(&rest, 12)?) as usize;
        self.pages_left
            .set(self.pages_left.get().saturating_sub(more));
        let length = self.page_size.saturating_mul(more.saturating_add(1));
        Ok(rest.slice(..length.min(rest.len())))
    }

    fn walk(&self, page: Bytes, depth: usize, each: &mut Visit<'_>) -> Outcome<()> {
        let depth = depth.checked_sub(1).ok_or("its trees are too high")?;
        let left = self.pages_left.get().checked_sub(1);
        self.pages_left.set(left.ok_or("its trees share pages")?);
        let flags = u16::from_le_bytes(array(&page, 8)?);
        let count = usize::from(u16::from_le_bytes(array(&page, 10)?));
        // Elements that share bytes would be more than the page has.
        let mut unread = page.len();
        for at in (0..count).map(|i| PAGE_HEADER + i * ELEMENT) {
            match flags & (BRANCH | LEAF) {
                BRANCH => self.walk(self.page(number(&page, at + 8)?)?, depth, each)?,
                LEAF => {
                    let field = |i: usize| array(&page, at + 4 * i).map(u32::from_le_bytes);
                    let start = at + field(1)? as usize;
                    let middle = start + field(2)? as usize;
                    let end = middle + field(3)? as usize;
                    if end > page.len() {
                        return Err("an element lies behind its page".to_owned());
                    }
                    let left = unread.checked_sub(end - start);
                    unread = left.ok_or("the elements of a page share bytes")?;
                    each(field(0)?, &page[start..middle], page.slice(middle..end))?;
                }
                _ => return Err("a page is none of a tree".to_owned()),
            }
        }
        Ok(())
    }
}

/// A valid meta page.
struct Meta {
    page_size: usize,
    root: u64,
    transaction: u64,
}

/// Reads the meta page at an offset.
fn meta(bytes: &Bytes, page: usize) -> Option<Meta> {
    let at = page + PAGE_HEADER;
    let field = |offset| array(bytes, at + offset).ok().map(u32::from_le_bytes);
    if (field(0)?, field(4)?) != (MAGIC, FORMAT) {
        return None;
    }
    let page_size = field(8)? as usize;
    let checksum = number(bytes, at + 56).ok()?;
    let valid = PAGE_SIZES.contains(&page_size) && fnv1a(bytes.get(at..at + 56)?) == checksum;
    valid.then_some(Meta {
        page_size,
        root: number(bytes, at + 16).ok()?,
        transaction: number(bytes, at + 48).ok()?,
    })
}

/// The checksum of bbolt's meta pages (FNV-1a, 64 bits).
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn array<const N: usize>(bytes: &Bytes, at: usize) -> Outcome<[u8; N]> {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    part.copied().ok_or_else(|| "it ends too early".to_owned())
}

fn number(bytes: &Bytes, at: usize) -> Outcome<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 4096;

    fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
        page[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A leaf page with elements: flags, key, value.
    fn leaf(number: u64, elements: &[(u32, Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let mut page = vec![0; SIZE];
        put(&mut page, 0, &number.to_le_bytes());
        put(&mut page, 8, &LEAF.to_le_bytes());
        put(&mut page, 10, &(elements.len() as u16).to_le_bytes());
        let mut data = PAGE_HEADER + elements.len() * ELEMENT;
        for (i, (flags, key, value)) in elements.iter().enumerate() {
            let at = PAGE_HEADER + i * ELEMENT;
            for (field, number) in [*flags as usize, data - at, key.len(), value.len()]
                .into_iter()
                .enumerate()
            {
                put(&mut page, at + 4 * field, &(number as u32).to_le_bytes());
            }
            put(&mut page, data, key);
            put(&mut page, data + key.len(), value);
            data += key.len() + value.len();
        }
        page
    }

    fn branch(number: u64, children: &[u64]) -> Vec<u8> {
        let mut page = vec![0; SIZE];
        put(&mut page, 0, &number.to_le_bytes());
        put(&mut page, 8, &BRANCH.to_le_bytes());
        put(&mut page, 10, &(children.len() as u16).to_le_bytes());
        for (i, child) in children.iter().enumerate() {
            put(
                &mut page,
                PAGE_HEADER + i * ELEMENT + 8,
                &child.to_le_bytes(),
            );
        }
        page
    }

    fn meta_page(number: u64, root: u64, transaction: u64) -> Vec<u8> {
        let mut page = vec![0; SIZE];
        put(&mut page, 0, &number.to_le_bytes());
        put(&mut page, 8, &4_u16.to_le_bytes());
        let at = PAGE_HEADER;
        put(&mut page, at, &MAGIC.to_le_bytes());
        put(&mut page, at + 4, &FORMAT.to_le_bytes());
        put(&mut page, at + 8, &(SIZE as u32).to_le_bytes());
        put(&mut page, at + 16, &root.to_le_bytes());
        put(&mut page, at + 48, &transaction.to_le_bytes());
        let sum = fnv1a(&page[at..at + 56]);
        put(&mut page, at + 56, &sum.to_le_bytes());
        page
    }

    fn record(
        main: i64,
        mark: &str,
        key: &str,
        value: &str,
        created: i64,
    ) -> (u32, Vec<u8>, Vec<u8>) {
        let mut at = main.to_be_bytes().to_vec();
        at.push(b'_');
        at.extend(0_i64.to_be_bytes());
        at.extend(mark.as_bytes());
        let kv = KeyValue {
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Bytes::copy_from_slice(value.as_bytes()),
            create_revision: created,
            mod_revision: main,
            lease: if key.ends_with("leased") { 7 } else { 0 },
        };
        (0, at, kv.encode_to_vec())
    }

    /// A file with two pages of keys, and a small bucket of leases.
    fn file() -> Vec<u8> {
        let lease = Lease {
            id: 7,
            ttl: 60,
            remaining_ttl: 0,
        };
        let inline = leaf(
            0,
            &[(0, 7_i64.to_be_bytes().to_vec(), lease.encode_to_vec())],
        );
        let mut small = vec![0; BUCKET_HEADER];
        small.extend(&inline[..PAGE_HEADER + ELEMENT + 8 + lease.encoded_len()]);
        let mut keys = vec![0; BUCKET_HEADER];
        put(&mut keys, 0, &3_u64.to_le_bytes());
        let pages = [
            meta_page(0, 99, 1),
            meta_page(1, 2, 2),
            leaf(
                2,
                &[
                    (BUCKET, b"key".to_vec(), keys),
                    (BUCKET, b"lease".to_vec(), small),
                ],
            ),
            branch(3, &[4, 5]),
            leaf(
                4,
                &[
                    record(2, "", "/registry/a", "old", 2),
                    record(3, "", "/registry/gone", "gone", 3),
                    record(4, "", "/other", "other", 4),
                ],
            ),
            leaf(
                5,
                &[
                    record(5, "", "/registry/a", "new", 2),
                    record(6, "t", "/registry/gone", "", 0),
                    record(7, "", "/registry/leased", "soon", 7),
                ],
            ),
        ];
        let mut bytes: Vec<u8> = pages.concat();
        let hash = digest(&SHA256, &bytes);
        bytes.extend(hash.as_ref());
        bytes
    }

    fn parse(bytes: Vec<u8>, unchecked: bool) -> Outcome<EtcdSnapshot> {
        EtcdSnapshot::parse(bytes.into(), "/registry/", unchecked)
    }

    #[test]
    fn the_last_version_of_each_key_stands() {
        let read = parse(file(), false).unwrap();
        assert_eq!(read.revision, 7);
        let facts: Vec<_> = read
            .entries
            .iter()
            .map(|e| {
                (
                    &*e.stored.key,
                    &e.stored.value[..],
                    e.stored.mod_revision,
                    e.expires.is_some(),
                )
            })
            .collect();
        assert_eq!(
            facts,
            [
                ("/registry/a", &b"new"[..], 5, false),
                ("/registry/leased", &b"soon"[..], 7, true),
            ]
        );
    }

    #[test]
    fn a_file_that_was_cut_or_changed_is_refused() {
        let bytes = file();
        let mut changed = bytes.clone();
        changed[5 * SIZE + 100] ^= 1;
        assert!(
            parse(changed, false)
                .unwrap_err()
                .contains("its hash is another")
        );
        assert!(
            parse(bytes[..bytes.len() - 32].to_vec(), false)
                .unwrap_err()
                .contains("no hash")
        );
        assert!(parse(bytes[..bytes.len() - 32].to_vec(), true).is_ok());
        assert!(parse(Vec::new(), true).is_err());
        // Without a hash every byte is a lie that must not hurt.
        let told = |at: &usize| bytes[*at] != 0 || at.is_multiple_of(256);
        for at in (0..bytes.len() - 32).filter(told) {
            for value in [0, 0xff] {
                let mut lying = bytes[..bytes.len() - 32].to_vec();
                lying[at] = value;
                let _ = parse(lying, true);
            }
        }
        for pages in 0..6 {
            let _ = parse(bytes[..pages * SIZE].to_vec(), true);
        }
    }

    #[test]
    fn lengths_and_revisions_that_lie_are_named() {
        let with = |records: &[(u32, Vec<u8>, Vec<u8>)]| {
            let mut bytes = file();
            bytes.truncate(5 * SIZE);
            bytes.extend(leaf(5, records));
            parse(bytes, true)
        };
        assert!(with(&[record(8, "", "/registry/b", "b", 8)]).is_ok());
        for (main, created) in [(8, 9), (8, 0), (8, -1)] {
            let why = with(&[record(main, "", "/registry/b", "b", created)]).unwrap_err();
            assert_eq!(why, "the revisions of a key contradict");
        }
        for main in [-1, i64::MAX, MAX_REVISION + 1] {
            let why = with(&[record(main, "", "/registry/b", "b", 1)]).unwrap_err();
            assert_eq!(why, "a revision is none");
        }
        // Many elements of the same bytes.
        let (_, key, value) = record(8, "", "/registry/b", &"b".repeat(1500), 8);
        let mut page = leaf(5, &[]);
        let place = SIZE - key.len() - value.len();
        put(&mut page, 10, &100_u16.to_le_bytes());
        for i in 0..100 {
            let at = PAGE_HEADER + i * ELEMENT;
            let fields = [0, place - at, key.len(), value.len()];
            for (field, number) in fields.into_iter().enumerate() {
                put(&mut page, at + 4 * field, &(number as u32).to_le_bytes());
            }
        }
        put(&mut page, place, &[key, value].concat());
        let mut bytes = file();
        bytes.truncate(5 * SIZE);
        bytes.extend(page);
        let why = parse(bytes, true).unwrap_err();
        assert_eq!(why, "the elements of a page share bytes");
    }

    #[test]
    fn what_has_no_end_is_not_read() {
        let why = EtcdSnapshot::read(Path::new("/dev/zero"), "/", true).unwrap_err();
        assert!(why.to_string().contains("no regular file"), "{why}");
    }

    #[test]
    fn a_tree_in_a_circle_ends() {
        let mut bytes = file();
        bytes.truncate(bytes.len() - 32);
        put(&mut bytes, 3 * SIZE + PAGE_HEADER + 8, &3_u64.to_le_bytes());
        assert!(parse(bytes.clone(), true).is_err());
        // Many ways to one page.
        for page in 3..6 {
            put(
                &mut bytes,
                page * SIZE,
                &branch(page as u64, &vec![page as u64 + 1; 250]),
            );
        }
        bytes.extend(leaf(6, &[]));
        assert!(parse(bytes, true).unwrap_err().contains("share pages"));
    }
}
