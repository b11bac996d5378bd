//! The socket in the data directory through which commands (`keelson snapshot save`) reach the
//! server that has the store open.
//!
//! Whoever may use it could read the file as well, so it needs no credentials: the socket is its
//! owner's, and clients of other users are refused. A client sends a line, and gets `ok` or `error:
//! <text>` as a line, which for a snapshot its bytes follow.

use std::path::{Path, PathBuf};

use crate::storage::embedded::Embedded;
use crate::storage::{Result, Storage, StorageError};

/// The name of the socket.
pub const FILE: &str = "keelson.sock";
/// The longest name of a socket that all systems take.
const MAX_PATH_BYTES: usize = 100;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Send a snapshot.
    Snapshot,
    /// Write nothing until the client sends another line.
    Hold,
    /// Rewrite the file.
    Defragment,
    /// Forget all revisions but the present, then rewrite the file.
    Compact,
}

impl Request {
    const ALL: [Self; 4] = [Self::Snapshot, Self::Hold, Self::Defragment, Self::Compact];

    /// The line that stands for it, without its end.
    pub fn line(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Hold => "hold",
            Self::Defragment => "defragment",
            Self::Compact => "compact",
        }
    }

    fn parse(line: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|request| request.line() == line)
    }
}

/// Returns a name for the socket that the system takes: folders may have long ones. The file, if
/// there is one, is to be kept open while the name is used.
fn short_path(folder: &Path) -> std::io::Result<(PathBuf, Option<std::fs::File>)> {
    let path = folder.join(FILE);
    if path.as_os_str().len() <= MAX_PATH_BYTES {
        return Ok((path, None));
    }
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        let folder = std::fs::File::open(folder)?;
        let path = format!("/proc/self/fd/{}/{FILE}", folder.as_raw_fd());
        Ok((path.into(), Some(folder)))
    }
    #[cfg(not(target_os = "linux"))]
    Err(std::io::ErrorKind::InvalidFilename.into())
}

/// Forgets all revisions but the present, and writes the file anew.
///
/// # Errors
/// A failure to read or write it.
pub async fn compact(store: &Embedded) -> Result<()> {
    match store.compact(store.current_revision().await?).await {
        Ok(()) | Err(StorageError::Compacted { .. }) => {}
        Err(error) => return Err(error),
    }
    // Rows are removed with the transactions that follow.
    while store.is_cleaning()? {
        store.check_health().await?;
    }
    store.defragment().await
}

#[cfg(unix)]
pub use unix::{connect, start};

#[cfg(not(unix))]
mod elsewhere {
    //! Systems without such sockets: commands need the server stopped.

    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    use crate::server::shutdown::Shutdown;
    use crate::storage::embedded::Embedded;

    pub fn start(_: Arc<Embedded>, _: &Path, _: &Shutdown) {}

    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn connect(_: &Path) -> io::Result<std::net::TcpStream> {
        Err(io::ErrorKind::NotFound.into())
    }
}
#[cfg(not(unix))]
pub use elsewhere::{connect, start};

#[cfg(unix)]
mod unix {
    use std::fs;
    use std::io::{self, BufWriter};
    use std::os::unix::net::UnixStream as Client;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{UnixListener, UnixStream};
    use tokio::sync::Semaphore;

    use super::{Request, compact, short_path};
    use crate::base::files;
    use crate::server::local_store::schedule::export;
    use crate::server::shutdown::Shutdown;
    use crate::storage::embedded::{Embedded, hold};
    use crate::storage::{Result, StorageError};

    /// Clients that are served at a time.
    const MAX_CLIENTS: usize = 4;
    /// The longest line that is read.
    const MAX_LINE_BYTES: u64 = 64;
    /// The time in which a client sends its line, and takes each part of an answer.
    const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

    /// Listens on the socket until the server ends. Without it the server works as well.
    pub fn start(store: Arc<Embedded>, folder: &Path, shutdown: &Shutdown) {
        let listener = match listen(folder) {
            Ok(listener) => listener,
            Err(error) => {
                let folder = folder.display();
                tracing::warn!("no commands about {folder} are taken while it is served: {error}");
                return;
            }
        };
        let (shutdown, folder) = (shutdown.clone(), folder.to_owned());
        tokio::spawn(async move {
            tokio::select! {
                () = serve(&listener, &store) => {}
                () = shutdown.stopped() => {}
            }
            drop(listener);
            if let Err(error) = files::remove_if_exists(&folder.join(super::FILE)) {
                tracing::debug!("the socket stays: {error}");
            }
        });
    }

    /// Makes the socket anew: one that is there is of a server that was killed, for the store is
    /// open here.
    fn listen(folder: &Path) -> io::Result<UnixListener> {
        use std::os::unix::fs::PermissionsExt;
        files::remove_if_exists(&folder.join(super::FILE))?;
        let (path, _folder) = short_path(folder)?;
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    async fn serve(listener: &UnixListener, store: &Arc<Embedded>) {
        let places = Arc::new(Semaphore::new(MAX_CLIENTS));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else {
                return;
            };
            let client = match listener.accept().await {
                Ok((client, _)) => client,
                Err(error) => {
                    tracing::warn!("accepting a command: {error}");
                    tokio::time::sleep(CLIENT_TIMEOUT).await;
                    continue;
                }
            };
            let store = store.clone();
            tokio::spawn(async move {
                if let Err(error) = answer(client, &store).await {
                    tracing::debug!("a command was not answered: {error}");
                }
                drop(place);
            });
        }
    }

    async fn answer(client: UnixStream, store: &Embedded) -> io::Result<()> {
        let peer = client.peer_cred()?.uid();
        if peer != rustix::process::geteuid().as_raw() && peer != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut client = BufReader::new(client);
        let line = read_line(&mut client, CLIENT_TIMEOUT).await?;
        let Some(request) = Request::parse(&line) else {
            return reply(&mut client, Err(unknown())).await;
        };
        match request {
            Request::Snapshot => return send_snapshot(client, store).await,
            Request::Hold => return hold(&mut client, store).await,
            Request::Defragment => reply(&mut client, store.defragment().await).await,
            Request::Compact => {
                let outcome = compact(store).await;
                reply(&mut client, outcome).await
            }
        }
    }

    fn unknown() -> StorageError {
        StorageError::Internal("this server does not know the command".to_owned())
    }

    async fn read_line(client: &mut BufReader<UnixStream>, limit: Duration) -> io::Result<String> {
        let mut line = String::new();
        let mut bounded = client.take(MAX_LINE_BYTES);
        tokio::time::timeout(limit, bounded.read_line(&mut line))
            .await
            .map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(line.trim_end().to_owned())
    }

    async fn reply(client: &mut BufReader<UnixStream>, outcome: Result<()>) -> io::Result<()> {
        let line = match outcome {
            Ok(()) => "ok\n".to_owned(),
            Err(error) => format!("error: {error}\n"),
        };
        client.write_all(line.as_bytes()).await
    }

    async fn send_snapshot(mut client: BufReader<UnixStream>, store: &Embedded) -> io::Result<()> {
        let entries = match store.entries() {
            Ok(entries) => entries,
            Err(error) => return reply(&mut client, Err(error)).await,
        };
        reply(&mut client, Ok(())).await?;
        let stream = client.into_inner().into_std()?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let sent = tokio::task::spawn_blocking(move || {
            export(entries, BufWriter::with_capacity(256 << 10, stream))
        });
        let sent = sent.await.map_err(io::Error::other)?;
        // The client sees that the end is missing.
        sent.map(drop).map_err(io::Error::other)
    }

    /// Holds the store until the client says a word, goes, or time is over.
    async fn hold(client: &mut BufReader<UnixStream>, store: &Embedded) -> io::Result<()> {
        let hold = match store.hold().await {
            Ok(hold) => hold,
            Err(error) => return reply(client, Err(error)).await,
        };
        reply(client, Ok(())).await?;
        let done = read_line(client, hold::LIMIT).await?;
        if done.is_empty() {
            return Ok(());
        }
        let outcome = if hold.release().await {
            Ok(())
        } else {
            let limit = hold::LIMIT;
            Err(StorageError::Unavailable(format!(
                "copying took longer than {limit:?}, for which writes are held back"
            )))
        };
        reply(client, outcome).await
    }

    /// Connects to the server that has the store in `folder` open.
    ///
    /// # Errors
    /// There is no such server.
    pub fn connect(folder: &Path) -> io::Result<Client> {
        let (path, _folder) = short_path(folder)?;
        Client::connect(path)
    }

    #[cfg(test)]
    mod tests {
        use std::io::{Read, Write};

        use super::*;
        use crate::storage::Storage;
        use crate::storage::snapshot::Reader;

        struct Fixture {
            folder: tempfile::TempDir,
            store: Arc<Embedded>,
            shutdown: Shutdown,
        }

        /// A store with its socket, in a folder with a name of some length.
        async fn fixture(name: &str) -> (Fixture, std::path::PathBuf) {
            let folder = tempfile::tempdir().unwrap();
            let data = folder.path().join(name);
            let store = Arc::new(Embedded::open(&data).unwrap());
            store.create("/a", "a".into(), None).await.unwrap();
            let shutdown = Shutdown::new();
            start(store.clone(), &data, &shutdown);
            let fixture = Fixture {
                folder,
                store,
                shutdown,
            };
            (fixture, data)
        }

        async fn ask(folder: &Path, line: &str) -> String {
            let (folder, line) = (folder.to_owned(), line.to_owned());
            tokio::task::spawn_blocking(move || {
                let mut client = connect(&folder).unwrap();
                client.write_all(line.as_bytes()).unwrap();
                let mut answer = Vec::new();
                client.read_to_end(&mut answer).unwrap();
                String::from_utf8_lossy(&answer).into_owned()
            })
            .await
            .unwrap()
        }

        #[tokio::test]
        async fn a_snapshot_comes_through_the_socket_also_of_a_folder_with_a_long_name() {
            for name in ["short", &"long".repeat(50)] {
                let (fixture, data) = fixture(name).await;
                let of = data.clone();
                let summary = tokio::task::spawn_blocking(move || {
                    let mut client = connect(&of).unwrap();
                    client.write_all(b"snapshot\n").unwrap();
                    let mut ok = [0; 3];
                    client.read_exact(&mut ok).unwrap();
                    assert_eq!(&ok, b"ok\n");
                    Reader::new(client).unwrap().finish().unwrap()
                });
                assert_eq!(summary.await.unwrap().keys, 1);
                fixture.shutdown.stop();
                drop(fixture.folder);
            }
        }

        #[tokio::test]
        async fn words_that_are_no_command_are_refused() {
            let (fixture, data) = fixture("data").await;
            for line in ["\n", "format\n", &format!("{}\n", "x".repeat(5000))] {
                let answer = ask(&data, line).await;
                assert!(
                    answer.starts_with("error: ") || answer.is_empty(),
                    "{answer}"
                );
            }
            assert_eq!(ask(&data, "defragment\n").await, "ok\n");
            assert_eq!(ask(&data, "compact\n").await, "ok\n");
            assert!(fixture.store.get("/a").await.unwrap().is_some());
        }

        #[tokio::test]
        async fn writes_wait_while_the_store_is_held_and_go_on_when_the_client_goes() {
            let (fixture, data) = fixture("data").await;
            let of = data.clone();
            let client = tokio::task::spawn_blocking(move || {
                let mut client = connect(&of).unwrap();
                client.write_all(b"hold\n").unwrap();
                let mut ok = [0; 3];
                client.read_exact(&mut ok).unwrap();
                client
            });
            let mut client = client.await.unwrap();
            let mut write = fixture.store.create("/b", "b".into(), None);
            assert!(futures::poll!(&mut write).is_pending());
            assert!(
                fixture.store.get("/a").await.unwrap().is_some(),
                "reads go on"
            );
            // Whoever is held goes: the write is done.
            let released = tokio::task::spawn_blocking(move || {
                client.write_all(b"done\n").unwrap();
                let mut answer = String::new();
                client.read_to_string(&mut answer).unwrap();
                answer
            });
            assert_eq!(released.await.unwrap(), "ok\n");
            write.await.unwrap();
            let of = data.clone();
            drop(
                tokio::task::spawn_blocking(move || {
                    let mut client = connect(&of).unwrap();
                    client.write_all(b"hold\n").unwrap();
                    let mut ok = [0; 3];
                    client.read_exact(&mut ok).unwrap();
                })
                .await,
            );
            fixture.store.create("/c", "c".into(), None).await.unwrap();
        }
    }
}
