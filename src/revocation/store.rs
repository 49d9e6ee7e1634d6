//! A directory where fetched revocation lists outlive the process. A list that is read from it is checked like a
//! fetched one.

use super::{Source, file_name};
use host::replace::replace;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

/// Files that are kept.
const FILES: usize = 256;
/// Octets of one file at most.
const MAX_SIZE: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Store {
    directory: PathBuf,
}

impl Store {
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The stored list of a source.
    pub async fn get(&self, source: &Source) -> Option<Vec<u8>> {
        let path = self.directory.join(file_name(source));
        let size = tokio::fs::metadata(&path).await.ok()?.len();
        if size > MAX_SIZE { None } else { tokio::fs::read(&path).await.ok() }
    }

    /// Stores the list of a source. Where that fails, it is only fetched again some day.
    pub async fn put(&self, source: &Source, octets: &[u8]) {
        if let Err(error) = self.write(source, octets).await {
            let directory = self.directory.display();
            tracing::warn!(%directory, "revocation list not kept for the next start: {error}");
        }
    }

    async fn write(&self, source: &Source, octets: &[u8]) -> io::Result<()> {
        tokio::fs::create_dir_all(&self.directory).await?;
        let path = self.directory.join(file_name(source));
        let octets = octets.to_owned();
        let written = tokio::task::spawn_blocking(move || {
            replace(&path, &octets).map_err(|(_, error)| error)
        });
        written.await??;
        self.make_room().await
    }

    async fn make_room(&self) -> io::Result<()> {
        let mut files = Vec::new();
        let mut entries = tokio::fs::read_dir(&self.directory).await?;
        while let Some(entry) = entries.next_entry().await? {
            if entry.path().extension().is_some_and(|suffix| suffix == "crl") {
                let age = entry.metadata().await?.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                files.push((age, entry.path()));
            }
        }
        files.sort();
        let surplus = files.len().saturating_sub(FILES);
        for (_, path) in files.into_iter().take(surplus) {
            tokio::fs::remove_file(path).await?;
        }
        Ok(())
    }
}
