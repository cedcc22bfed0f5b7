//! Results: what a task may return, and what its caller gets for it.

use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, Future, Generator, Result, call::Prepared, codec, host, raw::Value};

/// What a task can return: any serde type (one output), or [`Outputs`] (several).
pub trait IntoOutputs {
    #[doc(hidden)]
    fn into_outputs(self) -> Result<Vec<Value>>;
}

impl<T: Serialize + 'static> IntoOutputs for T {
    fn into_outputs(self) -> Result<Vec<Value>> {
        Ok(vec![codec::encode(self)?.for_output(0)?])
    }
}

/// A task's result that is the result of another task, not yet made: what a function that returns `Future<T>` is
/// wrapped in by the macros.
#[doc(hidden)]
pub struct Forward<T>(pub Future<T>);

impl<T> IntoOutputs for Forward<T> {
    fn into_outputs(self) -> Result<Vec<Value>> {
        Ok(vec![self.0.as_partition().into_value()])
    }
}

/// Several outputs, each with a future of its own: a tuple of up to four, or a `Vec` of as many as the caller asked
/// for (`Call::outputs`, which the task finds in [`crate::context`]).
///
/// ```
/// use fanfold::Outputs;
///
/// #[fanfold::task]
/// fn divide(a: u32, b: u32) -> Outputs<(u32, u32)> {
///     Outputs((a / b, a % b))
/// }
///
/// #[fanfold::task]
/// fn deal(cards: u32) -> Outputs<Vec<Vec<u32>>> {
///     let hands = fanfold::context().outputs;
///     Outputs((0..hands).map(|hand| (hand..cards).step_by(hands as usize).collect()).collect())
/// }
///
/// # fn main() -> fanfold::Result<()> {
/// let (quotient, remainder) = divide::submit(17, 5)?;
/// assert_eq!((quotient.get()?, remainder.get()?), (3, 2));
/// let hands = deal::call(7).outputs(3).submit()?;
/// assert_eq!(hands[1].get()?, [1, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outputs<S>(pub S);

impl<S: OutputSet> IntoOutputs for Outputs<S> {
    fn into_outputs(self) -> Result<Vec<Value>> {
        self.0.into_values()
    }
}

/// What [`Outputs`] can hold.
pub trait OutputSet {
    /// A future for each.
    type Futures;
    #[doc(hidden)]
    const COUNT: Option<u32>;
    #[doc(hidden)]
    fn into_values(self) -> Result<Vec<Value>>;
    #[doc(hidden)]
    fn futures(raw: Vec<host::Future>) -> Option<Self::Futures>;
}

impl<T: Serialize + DeserializeOwned + 'static> OutputSet for Vec<T> {
    type Futures = Vec<Future<T>>;
    const COUNT: Option<u32> = None;

    fn into_values(self) -> Result<Vec<Value>> {
        (0..).zip(self).map(|(n, value)| codec::encode(value)?.for_output(n)).collect()
    }

    fn futures(raw: Vec<host::Future>) -> Option<Self::Futures> {
        Some(raw.into_iter().map(Future::new).collect())
    }
}

macro_rules! tuple {
    ($count:literal: $($type:ident $value:ident $number:literal),+) => {
        impl<$($type: Serialize + DeserializeOwned + 'static),+> OutputSet for ($($type,)+) {
            type Futures = ($(Future<$type>,)+);
            const COUNT: Option<u32> = Some($count);

            fn into_values(self) -> Result<Vec<Value>> {
                let ($($value,)+) = self;
                Ok(vec![$(codec::encode($value)?.for_output($number)?),+])
            }

            fn futures(raw: Vec<host::Future>) -> Option<Self::Futures> {
                let mut raw = raw.into_iter();
                Some(($(Future::<$type>::new(raw.next()?),)+))
            }
        }
    };
}

tuple!(1: A a 0);
tuple!(2: A a 0, B b 1);
tuple!(3: A a 0, B b 1, C c 2);
tuple!(4: A a 0, B b 1, C c 2, D d 3);

/// What a call of a task that returns `Self` gives its caller at once.
pub trait Returns: Sized {
    /// [`Future`], futures for [`Outputs`], or [`Generator`].
    type Handle;
    #[doc(hidden)]
    fn start(call: Prepared) -> Result<Self::Handle>;
}

impl<T: DeserializeOwned + 'static> Returns for T {
    type Handle = Future<T>;

    fn start(call: Prepared) -> Result<Future<T>> {
        call.submit(1)?.pop().map(Future::new).ok_or_else(short)
    }
}

impl<S: OutputSet> Returns for Outputs<S> {
    type Handle = S::Futures;

    fn start(call: Prepared) -> Result<S::Futures> {
        let count = S::COUNT.or(call.outputs).ok_or_else(|| {
            Error::invalid("this task returns any number of outputs: say how many with `outputs`")
        })?;
        S::futures(call.submit(count)?).ok_or_else(short)
    }
}

impl<T> Returns for Generator<T> {
    type Handle = Generator<T>;

    fn start(call: Prepared) -> Result<Generator<T>> {
        call.generate().map(Generator::new)
    }
}

fn short() -> Error {
    Error::new(crate::ErrorKind::Platform, "the platform returned fewer futures than outputs")
}

impl Prepared {
    fn submit(self, outputs: u32) -> Result<Vec<host::Future>> {
        match self.memo {
            true => Ok(host::submit_memo(&self.call, outputs, self.local)?),
            false => Ok(host::submit(&self.call, outputs, self.local)?),
        }
    }

    fn generate(self) -> Result<host::Generator> {
        if self.memo {
            return Err(Error::invalid("a generator cannot be memoised"));
        }
        Ok(host::generate(&self.call, self.local)?)
    }
}
