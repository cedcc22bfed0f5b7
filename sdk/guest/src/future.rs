//! Futures: handles to results that may not exist yet, and waiting for them.

use std::{collections::VecDeque, fmt, marker::PhantomData, rc::Rc, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned, de::Error as _};

use crate::{
    Error, ErrorKind, Partition, Reader, Result, codec, host,
    raw::{PartitionId, Value},
    refs::{self, Keep, Text},
};

/// A handle to a `T` that a task makes, or has made. When the last handle to it is dropped, it is freed unless
/// something else refers to it.
///
/// Pass it to another task that takes a `T`: the bytes then go where they are needed, without passing through here.
/// A task that takes a `Future<T>` itself gets the handle at once and decides when to wait.
pub struct Future<T> {
    raw: Rc<host::Future>,
    of: PhantomData<fn() -> T>,
}

impl<T> Future<T> {
    pub(crate) fn new(raw: host::Future) -> Self {
        Self { raw: Rc::new(raw), of: PhantomData }
    }

    /// The id of the partition that it stands for.
    pub fn id(&self) -> PartitionId {
        self.raw.id()
    }

    /// The same partition as an untyped reference, for instance to name blocks of it. It need not exist yet.
    pub fn as_partition(&self) -> Partition {
        Partition::new(Value::Partition(self.id()), Some(self.keep()))
    }

    /// Cancels the task that makes it, and whatever that task called.
    pub fn cancel(self) {
        cancel([&self]);
    }

    fn keep(&self) -> Keep {
        self.raw.clone()
    }
}

impl<T: DeserializeOwned + 'static> Future<T> {
    /// Waits for the result and decodes it. For a `Partition` it waits, and reads nothing.
    ///
    /// # Errors
    /// What the task failed with; `invalid` if its bytes are no `T`; `lost` if they cannot be made again.
    pub fn get(&self) -> Result<T> {
        if std::any::TypeId::of::<T>() == std::any::TypeId::of::<Partition>() {
            host::wait(&[&self.raw], 1, None)?;
            // Shows a failure now rather than when it is read.
            let reader = Reader::open(Value::Partition(self.id()))?;
            drop(reader);
            return codec::cast::<Partition, T>(self.as_partition())
                .map_err(|_| Error::guest("two types with one identity"));
        }
        let payload = match host::get(&self.raw) {
            Ok(payload) => payload,
            // Over 1 MiB (or a task that went over a limit, which opening it says as well).
            Err(error) if error.kind == ErrorKind::Limit => {
                Reader::open(Value::Partition(self.id()))?.into_payload()?
            }
            Err(error) => return Err(error.into()),
        };
        let keep = if payload.refs.is_empty() { None } else { Some(self.keep()) };
        codec::decode_payload(payload, keep)
    }
}

impl<T> Clone for Future<T> {
    fn clone(&self) -> Self {
        Self { raw: self.raw.clone(), of: PhantomData }
    }
}

impl<T> fmt::Debug for Future<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Future({})", Text(self.id()))
    }
}

impl<T> Serialize for Future<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        refs::serialize(self.id(), Some(self.keep()), serializer)
    }
}

impl<'de, T> Deserialize<'de> for Future<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(id) = Text::deserialize(deserializer)?;
        host::adopt(id).map(Self::new).map_err(|e| D::Error::custom(e.message))
    }
}

/// Anything that has a future in it: a [`Future`] of any type, or a reference to one.
pub trait AsFuture {
    #[doc(hidden)]
    fn raw(&self) -> &host::Future;
}

impl<T> AsFuture for Future<T> {
    fn raw(&self) -> &host::Future {
        &self.raw
    }
}

impl<F: AsFuture> AsFuture for &F {
    fn raw(&self) -> &host::Future {
        (*self).raw()
    }
}

fn raw<F: AsFuture>(futures: &[F]) -> Vec<&host::Future> {
    futures.iter().map(F::raw).collect()
}

/// Whole milliseconds, rounded down.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Waits until `count` of `futures` are ready, made or failed, or `timeout` (whole milliseconds) passes. Returns the
/// positions that are ready, ascending: fewer than `count` after a timeout, perhaps more than it otherwise.
///
/// The task's cpu slot is free meanwhile. What is returned is recorded, so that a replay takes the same way.
///
/// # Errors
/// `invalid` if `count` is more than there are futures.
pub fn wait<F: AsFuture>(futures: &[F], count: usize, timeout: Option<Duration>) -> Result<Vec<usize>> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let ready = host::wait(&raw(futures), count, timeout.map(millis))?;
    Ok(ready.into_iter().map(|position| position as usize).collect())
}

/// Waits for all of `futures` and returns their results in order.
///
/// # Errors
/// The first failure in the order of `futures`, as [`Future::get`].
pub fn wait_all<T: DeserializeOwned + 'static>(futures: &[Future<T>]) -> Result<Vec<T>> {
    if !futures.is_empty() {
        wait(futures, futures.len(), None)?;
    }
    futures.iter().map(Future::get).collect()
}

/// Cancels the tasks that make these, and what they called.
pub fn cancel<F: AsFuture>(futures: impl IntoIterator<Item = F>) {
    let futures: Vec<F> = futures.into_iter().collect();
    host::cancel(&raw(&futures));
}

/// The results of `futures` as they are made, each with its position in the list.
///
/// ```
/// #[fanfold::task]
/// fn square(n: u64) -> u64 {
///     n * n
/// }
///
/// # fn main() -> fanfold::Result<()> {
/// let futures = (0..4).map(square::submit).collect::<fanfold::Result<Vec<_>>>()?;
/// for (n, squared) in fanfold::as_completed(futures) {
///     assert_eq!(squared?, (n * n) as u64);
/// }
/// # Ok(())
/// # }
/// ```
pub fn as_completed<T>(futures: impl IntoIterator<Item = Future<T>>) -> AsCompleted<T> {
    AsCompleted { pending: futures.into_iter().enumerate().collect(), ready: VecDeque::new() }
}

/// See [`as_completed`].
#[derive(Debug)]
pub struct AsCompleted<T> {
    pending: Vec<(usize, Future<T>)>,
    ready: VecDeque<(usize, Future<T>)>,
}

impl<T> AsCompleted<T> {
    /// Waits until something is ready, unless something is, or nothing is left.
    fn refill(&mut self) -> Result<()> {
        if !self.ready.is_empty() || self.pending.is_empty() {
            return Ok(());
        }
        let futures: Vec<_> = self.pending.iter().map(|(_, future)| future).collect();
        let mut done = wait(&futures, 1, None)?.into_iter().peekable();
        let mut waiting = Vec::with_capacity(self.pending.len());
        for (position, item) in self.pending.drain(..).enumerate() {
            match done.next_if_eq(&position) {
                Some(_) => self.ready.push_back(item),
                None => waiting.push(item),
            }
        }
        self.pending = waiting;
        Ok(())
    }
}

impl<T: DeserializeOwned + 'static> Iterator for AsCompleted<T> {
    type Item = (usize, Result<T>);

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.refill() {
            // Waiting itself failed: the job is over; say so once.
            let (position, _) = self.pending.first()?;
            let failed = (*position, Err(error));
            self.pending.clear();
            return Some(failed);
        }
        let (position, future) = self.ready.pop_front()?;
        Some((position, future.get()))
    }
}
