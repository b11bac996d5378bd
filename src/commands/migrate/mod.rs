//! `keelson migrate`: takes all objects from one store to another, and compares both.

mod destination;
mod source;

use std::collections::HashSet;
use std::path::PathBuf;

use tokio::runtime;

use self::destination::Destination;
use self::source::Source;
use super::args::{Args, Opt};
use super::progress::Progress;
use super::{CommandError, Spec, print};
use crate::storage::Revision;
use crate::storage::etcd3::{self, Etcd3};
use crate::storage::snapshot::Entry;

pub const MIGRATE: Spec = Spec {
    name: "migrate",
    operands: &["SOURCE", "DESTINATION"],
    about: "Copies a store: an etcd (http://HOST:PORT,...), a snapshot file of etcd or of Keelson, \
            or a data directory, to an etcd or a new data directory. Then it compares every key, \
            value and revision. Stop the servers that use either.",
    options: &[
        Opt {
            name: "etcd-prefix",
            value: Some("PREFIX"),
            default: "/registry",
            help: "what the keys begin with that are copied",
        },
        Opt {
            name: "etcd-cafile",
            value: Some("FILE"),
            default: "",
            help: "the certificate authority of etcd",
        },
        Opt {
            name: "etcd-certfile",
            value: Some("FILE"),
            default: "",
            help: "the client certificate for etcd",
        },
        Opt {
            name: "etcd-keyfile",
            value: Some("FILE"),
            default: "",
            help: "the key of the client certificate for etcd",
        },
        Opt {
            name: "online",
            value: None,
            default: "",
            help: "the source etcd may be in use: what changes meanwhile is left behind",
        },
        Opt {
            name: "resume",
            value: None,
            default: "",
            help: "the destination etcd may have keys already, if their values are the same",
        },
        Opt {
            name: "raise-revision",
            value: Some("true|false"),
            default: "true",
            help: "write to the destination etcd until its revision is that of the source, so that \
                   no client takes an old revision for a new one",
        },
        Opt {
            name: "skip-hash-check",
            value: None,
            default: "",
            help: "read a snapshot file of etcd that has no hash",
        },
    ],
    run: migrate,
};

fn migrate(args: &Args) -> Result<(), CommandError> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(run(args))
}

async fn run(args: &Args) -> Result<(), CommandError> {
    let (from, to) = (args.operand(0).unwrap_or(""), args.operand(1).unwrap_or(""));
    let prefix = format!("/{}/", args.text("etcd-prefix").trim_matches('/'));
    let mut source = Source::open(from, &prefix, args).await?;
    let mut destination = Destination::create(to, &prefix, args).await?;
    let revisions = copy(&mut source, &mut destination).await?;
    let end = revisions.last(source.revision());
    source.check_unchanged().await?;
    let raises = args.text("raise-revision") != "false";
    let revision = destination.finish(end, raises).await?;
    source.rewind()?;
    let mut result = Source::open(to, &prefix, args).await?;
    let compared = compare(&mut source, &mut result).await?;
    let mut text = format!(
        "{to} has the {compared} keys of {from}, as a comparison of each shows; its revision is \
         {revision}, that of {from} is {}",
        source.revision()
    );
    if revisions.moved > 0 {
        text.push_str(&format!(
            "; {} keys were written together with others, and have revisions of their own now",
            revisions.moved
        ));
    }
    print(&text)
}

async fn copy(
    source: &mut Source,
    destination: &mut Destination,
) -> Result<Revisions, CommandError> {
    let mut revisions = Revisions::default();
    let (mut page, mut progress) = (source.next_page().await?, None);
    while !page.is_empty() {
        for entry in &mut page {
            revisions.separate(entry, source.revision());
        }
        let count = page.len() as u64;
        destination.add(page).await?;
        progress
            .get_or_insert_with(|| Progress::new("copied", source.count()))
            .add(count);
        page = source.next_page().await?;
    }
    progress
        .unwrap_or_else(|| Progress::new("copied", 0))
        .finish();
    Ok(revisions)
}

/// The revisions that are taken. In a store of Keelson each has one key; a transaction of etcd may
/// have written several.
#[derive(Default)]
struct Revisions {
    taken: HashSet<Revision>,
    /// Keys that got another revision, behind all others.
    moved: i64,
}

impl Revisions {
    fn separate(&mut self, entry: &mut Entry, last: Revision) {
        if !self.taken.insert(entry.stored.mod_revision) {
            self.moved += 1;
            entry.stored.mod_revision = last + self.moved;
        }
    }

    /// The last revision, if that of the source is `last`.
    fn last(&self, last: Revision) -> Revision {
        last + self.moved
    }
}

/// Compares what two stores hold, entry by entry; returns the number of keys.
async fn compare(source: &mut Source, result: &mut Source) -> Result<u64, CommandError> {
    let mut revisions = Revisions::default();
    let (mut ours, mut theirs) = (Pages::default(), Pages::default());
    let mut progress = Progress::new("compared", source.count());
    loop {
        let (wanted, found) = (ours.next(source).await?, theirs.next(result).await?);
        let (mut wanted, found) = match (wanted, found) {
            (None, None) => return Ok(progress.finish()),
            (wanted, found) => (wanted, found),
        };
        if let Some(entry) = &mut wanted {
            revisions.separate(entry, source.revision());
        }
        check(wanted, found, result.keeps_revisions())?;
        progress.add(1);
    }
}

/// Checks that an entry has arrived as it was.
fn check(
    wanted: Option<Entry>,
    found: Option<Entry>,
    with_revisions: bool,
) -> Result<(), CommandError> {
    let differ = |key: &str, what: &str| {
        Err(CommandError::new(format!(
            "the comparison has found a difference: {key} {what}"
        )))
    };
    let (wanted, found) = match (wanted, found) {
        (Some(wanted), Some(found)) if wanted.stored.key == found.stored.key => (wanted, found),
        (Some(wanted), Some(found)) if wanted.stored.key > found.stored.key => {
            return differ(&found.stored.key, "is only in the destination");
        }
        (Some(wanted), _) => return differ(&wanted.stored.key, "is missing in the destination"),
        (None, Some(found)) => return differ(&found.stored.key, "is only in the destination"),
        (None, None) => return Ok(()),
    };
    let key = &wanted.stored.key;
    if wanted.stored.value != found.stored.value {
        return differ(key, "has another value");
    }
    if wanted.expires.is_some() != found.expires.is_some() {
        return differ(key, "expires in one of them only");
    }
    if with_revisions && wanted.stored != found.stored {
        return differ(key, "has another revision");
    }
    Ok(())
}

/// The entries of a source, one by one.
#[derive(Default)]
struct Pages {
    page: std::vec::IntoIter<Entry>,
}

impl Pages {
    async fn next(&mut self, source: &mut Source) -> Result<Option<Entry>, CommandError> {
        if self.page.len() == 0 {
            self.page = source.next_page().await?.into_iter();
        }
        Ok(self.page.next())
    }
}

/// Reports whether an argument names an etcd.
fn is_etcd(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// Connects to an etcd, which is to answer now.
async fn connect(endpoints: &str, args: &Args) -> Result<Etcd3, CommandError> {
    let path = |name: &str| args.given(name).map(PathBuf::from);
    let etcd = Etcd3::connect(etcd3::Config {
        endpoints: endpoints.split(',').map(str::to_owned).collect(),
        ca_file: path("etcd-cafile"),
        cert_file: path("etcd-certfile"),
        key_file: path("etcd-keyfile"),
        ..etcd3::Config::default()
    })
    .await?;
    crate::storage::Storage::check_health(&etcd)
        .await
        .map_err(|error| CommandError::from(error).about(endpoints))?;
    Ok(etcd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Stored;

    fn entry(key: &str, value: &'static str, revision: Revision) -> Entry {
        Entry {
            stored: Stored {
                key: key.to_owned(),
                value: value.into(),
                create_revision: 2,
                mod_revision: revision,
            },
            expires: None,
        }
    }

    #[test]
    fn keys_of_one_revision_get_revisions_of_their_own() {
        let mut revisions = Revisions::default();
        let mut entries = [
            entry("/a", "", 5),
            entry("/b", "", 5),
            entry("/c", "", 5),
            entry("/d", "", 6),
        ];
        for entry in &mut entries {
            revisions.separate(entry, 9);
        }
        assert_eq!(
            entries.map(|entry| entry.stored.mod_revision),
            [5, 10, 11, 6]
        );
        assert_eq!(revisions.last(9), 11);
    }

    #[test]
    fn every_difference_is_found() {
        let (a, b) = (entry("/a", "1", 5), entry("/b", "1", 6));
        let expiring = Entry {
            expires: Some(7),
            ..a.clone()
        };
        let told = |wanted: Option<&Entry>, found: Option<&Entry>, revisions| match check(
            wanted.cloned(),
            found.cloned(),
            revisions,
        ) {
            Ok(()) => "same".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(told(Some(&a), Some(&a), true), "same");
        assert_eq!(told(Some(&a), Some(&entry("/a", "1", 9)), false), "same");
        for (wanted, found, difference) in [
            (Some(&a), None, "/a is missing in the destination"),
            (Some(&a), Some(&b), "/a is missing in the destination"),
            (Some(&b), Some(&a), "/a is only in the destination"),
            (None, Some(&a), "/a is only in the destination"),
            (Some(&a), Some(&entry("/a", "2", 5)), "/a has another value"),
            (
                Some(&a),
                Some(&entry("/a", "1", 9)),
                "/a has another revision",
            ),
            (Some(&a), Some(&expiring), "/a expires in one of them only"),
        ] {
            let text = told(wanted, found, true);
            assert!(text.ends_with(difference), "{text}");
        }
    }
}
