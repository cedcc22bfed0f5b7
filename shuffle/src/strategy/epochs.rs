//! A full random shuffle for every epoch of a training loop, made one epoch ahead of its consumer.
//!
//! Source: the data loader of Exoshuffle (Luan et al., SIGCOMM 2023). Every epoch is a shuffle of its own, with another
//! seed: maps deal their records to random columns, reducers permute theirs ([`crate::random`] has both). While the
//! consumer trains on one epoch, the next is being made; the one after it waits until the consumer asks.

use fanfold::{Future, Result};

use crate::{
    Layout, Report, Tally, Tasks,
    tasks::{Reducers, submit_maps},
};

/// Starts the first epoch and returns all of them, in order. `tasks` makes the tasks of an epoch, counted from 0.
///
/// # Errors
/// Those of submitting.
pub fn start<T, F>(tasks: F, splits: Vec<T::Split>, layout: Layout, epochs: u32) -> Result<Epochs<T, F>>
where
    T: Tasks,
    F: Fn(u32) -> T,
{
    let mut all = Epochs { tasks, splits, layout, epochs, submitted: 0, ahead: None };
    all.ahead = all.submit()?;
    Ok(all)
}

/// See [`start`].
pub struct Epochs<T: Tasks, F> {
    tasks: F,
    splits: Vec<T::Split>,
    layout: Layout,
    epochs: u32,
    submitted: u32,
    ahead: Option<Epoch<T::Reduced>>,
}

impl<T: Tasks, F: Fn(u32) -> T> Epochs<T, F> {
    fn submit(&mut self) -> Result<Option<Epoch<T::Reduced>>> {
        if self.submitted == self.epochs {
            return Ok(None);
        }
        let tasks = (self.tasks)(self.submitted);
        let maps = submit_maps(&tasks, 0, self.splits.iter().cloned(), self.layout)?;
        let mut reducers = Reducers::new();
        for reducer in 0..self.layout.reducers() {
            reducers.submit(&tasks, self.layout, reducer, 0, &maps)?;
        }
        let number = self.submitted;
        self.submitted += 1;
        // The reducers' arguments keep the map outputs as long as they are needed.
        let maps = maps.into_iter().map(|map| map.tally).collect();
        Ok(Some(Epoch { number, maps, reducers }))
    }
}

impl<T: Tasks, F: Fn(u32) -> T> Iterator for Epochs<T, F> {
    type Item = Result<Epoch<T::Reduced>>;

    fn next(&mut self) -> Option<Self::Item> {
        let now = self.ahead.take()?;
        match self.submit() {
            Ok(ahead) => self.ahead = ahead,
            Err(error) => return Some(Err(error)),
        }
        Some(Ok(now))
    }
}

/// One epoch: its parts may not exist yet.
#[derive(Debug)]
pub struct Epoch<R> {
    /// Counted from 0.
    pub number: u32,
    maps: Vec<Future<Tally>>,
    reducers: Reducers<R>,
}

impl<R: serde::Serialize + serde::de::DeserializeOwned + 'static> Epoch<R> {
    /// The shuffled parts, one per reducer, in order. Pass them to the tasks that train, or take them as they come.
    pub fn parts(&self) -> &[Future<R>] {
        self.reducers.futures()
    }

    /// Waits for the whole epoch and checks that every record is in it once.
    ///
    /// # Errors
    /// What a task failed with; a [`Violation`](crate::Violation) where a stage lost something.
    pub fn finish(self) -> Result<Report> {
        let maps = fanfold::wait_all(&self.maps)?;
        let took = self.reducers.tallies()?;
        Report::checked("epochs", &maps, &[], &took, Tally::default())
    }
}
