//! Lists of jobs over all shards: each owner's page, merged.

use fanfold_protocol::{
    Error, JobId,
    rest::{DeadLetterView, JobView, Page},
};
use http::{HeaderMap, Uri};
use serde::de::DeserializeOwned;

use super::{forward, others::without_owner};
use crate::shared::Shared;

/// What is listed, newest first.
pub(crate) trait Entry: DeserializeOwned {
    fn id(&self) -> JobId;
}

impl Entry for JobView {
    fn id(&self) -> JobId {
        self.id
    }
}

impl Entry for DeadLetterView {
    fn id(&self) -> JobId {
        self.id
    }
}

/// The page of the whole cluster, of which `pages` are those of this gateway's shards. `uri` and `headers` are the
/// request's; one that another gateway sent is answered for this one alone.
///
/// # Errors
/// `overloaded` / `unreachable`, retryable, while a shard has no owner: its jobs would be missing; `platform`.
pub(crate) async fn whole<T: Entry>(
    shared: &Shared,
    uri: &Uri,
    headers: &HeaderMap,
    mut pages: Vec<Page<T>>,
    limit: usize,
) -> Result<Page<T>, Error> {
    if let Some(others) = shared.others.as_ref().filter(|_| !forward::is_forwarded(headers)) {
        others.list_shards(&shared.store).await?;
        let absent = |tag: &_| shared.owners.of(*tag).is_none() && others.owner(*tag).is_none();
        if let Some((_, name)) = others.shards().into_iter().find(|(tag, _)| absent(tag)) {
            return Err(without_owner(&name));
        }
        for page in forward::ask_all(shared, others, uri, headers).await? {
            let page = serde_json::from_slice(&page);
            pages.push(page.map_err(|e| Error::internal(format!("another gateway's list is no list: {e}")))?);
        }
    }
    Ok(merged(pages, limit))
}

impl Shared {
    /// A page of the jobs of the whole cluster, newest first, older than `after`; see [`whole`].
    ///
    /// # Errors
    /// As [`whole`].
    pub(crate) async fn jobs(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        after: Option<JobId>,
        limit: usize,
        batch: bool,
    ) -> Result<Page<JobView>, Error> {
        let mut pages = Vec::new();
        for shard in self.owners.all() {
            pages.push(shard.owner.list(after, limit, batch).await?);
        }
        whole(self, uri, headers, pages, limit).await
    }
}

/// The newest `limit` entries of all pages.
fn merged<T: Entry>(pages: Vec<Page<T>>, limit: usize) -> Page<T> {
    let mut more = pages.iter().any(|page| page.next.is_some());
    let mut items: Vec<_> = pages.into_iter().flat_map(|page| page.items).collect();
    items.sort_by_key(|item| std::cmp::Reverse(item.id()));
    more |= items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|last| last.id().to_string());
    Page { items, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, PartialEq, Debug)]
    struct Item(u128);

    impl Entry for Item {
        fn id(&self) -> JobId {
            JobId(uuid::Uuid::from_u128(self.0))
        }
    }

    #[test]
    fn a_page_is_the_newest_of_all_and_says_where_to_go_on() {
        let page = |ids: &[u128], more: bool| Page {
            items: ids.iter().copied().map(Item).collect(),
            next: more.then(String::new),
        };
        let id = |n: u128| Some(Item(n).id().to_string());
        let whole = merged(vec![page(&[9, 5, 1], false), page(&[8, 7, 6], true)], 3);
        assert_eq!((whole.items, whole.next), (vec![Item(9), Item(8), Item(7)], id(7)));
        let short = merged(vec![page(&[2], false), page(&[3], false)], 3);
        assert_eq!((short.items, short.next), (vec![Item(3), Item(2)], None));
        // One owner has more than it could send, and nothing of it may be skipped.
        let cut = merged(vec![page(&[4, 3, 2], true), page(&[], false)], 3);
        assert_eq!((cut.items.len(), cut.next), (3, id(2)));
    }
}
