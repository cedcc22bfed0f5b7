//! What processes of a cluster find out from the store they share.

use bytes::Bytes;
use fanfold_protocol::{Error, link::ShardName};

use crate::{Store, backend::Backend, errors::corrupt, paths};

impl Store {
    /// The journal shards that were ever owned, sorted: whose jobs somebody must look after.
    ///
    /// # Errors
    /// `platform` / `storage`.
    pub async fn shards(&self) -> Result<Vec<ShardName>, Error> {
        let folders = self.backend().folders(&paths::shards()).await?;
        Ok(folders.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Whether nobody has claimed a shard since `epoch` was claimed: only then is its owner's silence about a job an answer.
    ///
    /// # Errors
    /// `platform` / `storage`.
    pub async fn is_newest(&self, shard: &ShardName, epoch: u64) -> Result<bool, Error> {
        Ok(self.backend().newer_epoch(shard.as_str(), epoch).await?.is_none())
    }

    /// What all processes of the cluster say to the question `name` (`a-z`, `-`): the answer of whoever was asked first,
    /// for ever. This one says `mine`.
    ///
    /// # Errors
    /// `platform` / `storage`; `lost` / `corrupt` where the answer cannot be read.
    pub async fn agree(&self, name: &str, mine: &str) -> Result<String, Error> {
        let path = paths::agreed(name);
        let found = match self.backend().get(&path).await? {
            Some(found) => found,
            None => {
                self.backend().create(&path, Bytes::copy_from_slice(mine.as_bytes()).into()).await?;
                self.backend().get(&path).await?.unwrap_or_default()
            }
        };
        String::from_utf8(found.into()).map_err(|_| corrupt(&path, "it is no text"))
    }
}

impl Backend {
    /// The newest epoch of a shard after `epoch`, where somebody has claimed one.
    pub(crate) async fn newer_epoch(&self, shard: &str, epoch: u64) -> Result<Option<u64>, Error> {
        let newer = self.names(&paths::epochs(shard), &format!("{epoch:020}"), None).await?;
        Ok(newer.last().and_then(|name| paths::number(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Journal;

    #[tokio::test]
    async fn shards_are_found_and_the_first_answer_stands() {
        let dir = tempfile::tempdir().unwrap();
        for store in [Store::in_memory(), Store::open_dir(dir.path()).await.unwrap()] {
            assert!(store.shards().await.unwrap().is_empty());
            for name in ["g1", "g0", "g0"] {
                let (journal, _) = Journal::open(&store, name).await.unwrap();
                journal.close().await.unwrap();
            }
            let shards = store.shards().await.unwrap();
            assert_eq!(shards.iter().map(ShardName::as_str).collect::<Vec<_>>(), ["g0", "g1"]);
            let g0 = &shards[0];
            assert!(!store.is_newest(g0, 1).await.unwrap() && store.is_newest(g0, 2).await.unwrap());
            assert_eq!(store.agree("keys", "g1").await.unwrap(), "g1");
            assert_eq!(store.agree("keys", "g0").await.unwrap(), "g1");
        }
    }
}
