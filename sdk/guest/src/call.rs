//! Calls: which function, with what, and with which wishes.

use std::{marker::PhantomData, time::Duration};

use serde::Serialize;

use crate::{
    Arg, Error, Future, Partition, Result, codec, host,
    output::Returns,
    raw::{self, Value},
    refs::Keep,
};

/// When outputs go to the object store.
pub use crate::raw::Durability;
/// Wishes that differ from the function's manifest; `None` means: as the manifest says.
pub use crate::raw::Options;
/// Where a task would like to run; only `OnExecutorStrict` is more than a hint.
pub use crate::raw::Placement;

impl Default for Options {
    fn default() -> Self {
        Self {
            cpu_millis: None,
            memory: None,
            gpu: None,
            custom: Vec::new(),
            placement: Placement::Local,
            attempts: None,
            deadline_ms: None,
            durability: Durability::Lazy,
        }
    }
}

/// A function that can be called as a task of its own component: what the macros make of each entry.
pub trait Entry {
    /// Its name within the component; empty for the main one.
    const NAME: &'static str;

    /// Decodes arguments, runs it and encodes what it returns.
    ///
    /// # Errors
    /// `invalid` with the entry and the argument that could not be decoded; whatever the function itself returns.
    fn run(args: Vec<Value>) -> Result<Vec<Value>>;
}

/// A call that has not been made yet, of a task that returns `R`.
///
/// `map::call(…)` makes one for a task `map` of this component, [`call`] for another function. Wishes come next, then
/// [`Call::submit`]. An argument that cannot be encoded shows there.
///
/// ```
/// use std::time::Duration;
///
/// #[fanfold::task]
/// fn double(n: u64) -> u64 {
///     2 * n
/// }
///
/// # fn main() -> fanfold::Result<()> {
/// let future = double::call(21).memory(64 << 20).attempts(2).deadline(Duration::from_secs(10)).submit()?;
/// assert_eq!(future.get()?, 42);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing runs until it is submitted"]
pub struct Call<R> {
    prepared: Prepared,
    failed: Option<Error>,
    /// Handles of the partitions among the arguments: they live until the call holds on to them itself.
    keep: Vec<Keep>,
    returns: PhantomData<fn() -> R>,
}

/// Opaque outside of this crate.
#[doc(hidden)]
pub struct Prepared {
    pub(crate) call: raw::Call,
    pub(crate) outputs: Option<u32>,
    pub(crate) memo: bool,
    pub(crate) local: host::Local,
}

/// A call of another function: `name`, `name:alias` or `name:version`. `R` is what that returns; say it.
///
/// ```no_run
/// # fn main() -> fanfold::Result<()> {
/// let small: fanfold::Future<Vec<u8>> = fanfold::call::<Vec<u8>>("thumbnail").arg(&vec![0u8; 10]).submit()?;
/// # Ok(())
/// # }
/// ```
pub fn call<R>(function: impl Into<String>) -> Call<R> {
    Call::new(Some(function.into()), "", host::Local::default())
}

impl<R> Call<R> {
    fn new(function: Option<String>, entry: &str, local: host::Local) -> Self {
        let call = raw::Call { function, entry: entry.into(), args: Vec::new(), options: Options::default() };
        Self {
            prepared: Prepared { call, outputs: None, memo: false, local },
            failed: None,
            keep: Vec::new(),
            returns: PhantomData,
        }
    }

    /// A call of an entry of this component.
    #[doc(hidden)]
    pub fn of_entry<E: Entry>() -> Self {
        Self::new(None, E::NAME, host::Local::of::<E>())
    }

    /// An entry of the other function than its main one.
    pub fn entry(mut self, entry: impl Into<String>) -> Self {
        self.prepared.call.entry = entry.into();
        self
    }

    /// What the task is called where people see it: tasks of one entry are counted and shown together unless they have other
    /// labels, and slow ones are compared with those of the same label.
    ///
    /// ```
    /// # #[fanfold::task]
    /// # fn step(n: u64) -> u64 {
    /// #     n
    /// # }
    /// # fn main() -> fanfold::Result<()> {
    /// let decoded = step::call(1).label("decode").submit()?;
    /// # drop(decoded);
    /// # Ok(())
    /// # }
    /// ```
    pub fn label(mut self, label: &str) -> Self {
        let entry = &mut self.prepared.call.entry;
        *entry = format!("{}#{label}", crate::rt::unlabelled(entry));
        self
    }

    /// The next argument, for a call by name: a value.
    pub fn arg<T: Serialize + 'static>(self, value: &T) -> Self {
        self.pass::<T>(value)
    }

    /// The next argument, for a call by name: a reference. A `&Future<T>` passes its result.
    pub fn arg_ref(self, reference: impl Into<Partition>) -> Self {
        self.pass::<Partition>(reference.into())
    }

    /// The next argument, for a task that takes a `T`.
    #[doc(hidden)]
    pub fn pass<T>(mut self, arg: impl Arg<T>) -> Self {
        match arg.encode().and_then(|passed| passed.0.for_call()) {
            Ok(codec::Encoded { value, keep }) => {
                self.prepared.call.args.push(value);
                self.keep.extend(keep);
            }
            Err(error) => {
                let position = self.prepared.call.args.len();
                self.failed.get_or_insert_with(|| error.context(format_args!("argument {position}")));
            }
        }
        self
    }

    /// All further arguments, for a task that takes [`crate::Inputs`].
    #[doc(hidden)]
    pub fn pass_all<T>(self, args: impl IntoIterator<Item = impl Arg<T>>) -> Self {
        args.into_iter().fold(self, |call, arg| call.pass::<T>(arg))
    }

    /// How many outputs, for a task that returns `Outputs<Vec<T>>`: at most 65,536.
    pub fn outputs(mut self, count: u32) -> Self {
        self.prepared.outputs = Some(count);
        self
    }

    /// All wishes at once.
    pub fn options(mut self, options: Options) -> Self {
        self.prepared.call.options = options;
        self
    }

    /// Slots, in thousandths of a cpu.
    pub fn cpu_millis(self, cpu_millis: u32) -> Self {
        self.with(|o| o.cpu_millis = Some(cpu_millis))
    }

    /// Bytes of memory.
    pub fn memory(self, bytes: u64) -> Self {
        self.with(|o| o.memory = Some(bytes))
    }

    /// GPUs.
    pub fn gpu(self, count: u32) -> Self {
        self.with(|o| o.gpu = Some(count))
    }

    /// A custom resource: so many of what operators have named so.
    pub fn resource(self, name: &str, count: u32) -> Self {
        self.with(|o| o.custom.push(raw::Amount { name: name.to_owned(), count }))
    }

    /// Where to run.
    pub fn placement(self, placement: Placement) -> Self {
        self.with(|o| o.placement = placement)
    }

    /// Attempts in all, the first included.
    pub fn attempts(self, attempts: u32) -> Self {
        self.with(|o| o.attempts = Some(attempts))
    }

    /// Time from submission (whole milliseconds, rounded down) after which the task fails with `limit`.
    pub fn deadline(self, deadline: Duration) -> Self {
        self.with(|o| o.deadline_ms = Some(crate::future::millis(deadline)))
    }

    /// When its outputs go to the object store.
    pub fn durability(self, durability: Durability) -> Self {
        self.with(|o| o.durability = durability)
    }

    /// The outputs of an equal call that committed before, in this or another job, will do: what the task returns follows
    /// from its arguments alone, and it reads nothing else. Calls are equal if function version, entry, number of outputs
    /// and the content of all arguments are. Results are kept for a day; where the platform cannot know an argument's
    /// content without reading it (an object without an etag, a value that holds futures, a partition of more than 64 KiB
    /// that no memoised call made), the task runs as usual.
    ///
    /// ```
    /// # #[fanfold::task]
    /// # fn square(n: u64) -> u64 {
    /// #     n * n
    /// # }
    /// # fn main() -> fanfold::Result<()> {
    /// let squares = (0..4).map(|n| square::call(n).memo().submit()).collect::<fanfold::Result<Vec<_>>>()?;
    /// # drop(squares);
    /// # Ok(())
    /// # }
    /// ```
    pub fn memo(mut self) -> Self {
        self.prepared.memo = true;
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.prepared.call.options);
        self
    }
}

impl<R: Returns> Call<R> {
    /// Makes the call. It does not wait for the task, only while the job has 100,000 unfinished ones.
    ///
    /// # Errors
    /// `guest` if an argument could not be encoded, `invalid` if it asks for more than the platform's limits. A
    /// function that does not exist shows as a failed task.
    pub fn submit(self) -> Result<R::Handle> {
        match self.failed {
            None => R::start(self.prepared),
            Some(error) => Err(error),
        }
    }
}

impl<T> From<&Future<T>> for Partition {
    fn from(future: &Future<T>) -> Self {
        future.as_partition()
    }
}
