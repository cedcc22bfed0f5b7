//! Rates of stages relative to each other, and what follows for the source.
//!
//! Source: the adaptive scheduler of streaming batch processing (Luan et al., "The Streaming Batch Model", 2025), which
//! lets one source partition in per period P, the time that the pipeline needs for it. Two things are otherwise here.
//! There P is the sum over the stages; stages overlap, so here it is what the scarcest resource needs, and the source is
//! not held below the pipeline's rate. And there is no clock: by Little's law the time that stage *i* takes for a byte is
//! the mean number of its tasks that run, divided by its rate; with both counted over the same events, the unit of time
//! is the event and cancels.

/// What was seen of a stage. Old observations fade.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Measured {
    /// Tasks that ran, summed over events.
    pub busy: f64,
    /// Bytes of input processed; for the source, bytes made.
    pub taken: f64,
    /// Bytes made.
    pub made: f64,
}

impl Measured {
    /// Task-events after which what was seen counts half.
    const FADE: f64 = 4096.0;

    /// An event at which `running` of its tasks ran.
    pub fn event(&mut self, running: u32) {
        self.busy += f64::from(running);
        if self.busy > Self::FADE {
            *self = Self { busy: self.busy / 2.0, taken: self.taken / 2.0, made: self.made / 2.0 };
        }
    }

    /// A task ended that processed and made so many bytes.
    pub fn ended(&mut self, taken: u64, made: u64) {
        self.taken += taken as f64;
        self.made += made as f64;
    }
}

/// Task-time that each stage needs for a byte of the source: `(busyᵢ / takenᵢ) · αᵢ₋₁` with `α₀ = 1` and
/// `αᵢ = αᵢ₋₁ · madeᵢ / takenᵢ`. `None` until every stage was seen to process something.
fn costs(stages: &[Measured]) -> Option<Vec<f64>> {
    let mut alpha = 1.0;
    let cost = |(n, stage): (usize, &Measured)| {
        if stage.taken <= 0.0 || (n == 0 && stage.made <= 0.0) {
            return None;
        }
        let cost = stage.busy / stage.taken * alpha;
        if n > 0 {
            alpha *= stage.made / stage.taken;
        }
        Some(cost)
    };
    stages.iter().enumerate().map(cost).collect()
}

/// The time between two source bytes: what the scarcest resource needs for one. `needs` per stage and `capacity` are in
/// the same order of resources.
fn period(costs: &[f64], needs: &[&[u32]], capacity: &[u32]) -> f64 {
    let load = |resource: usize| -> f64 {
        let used: f64 = costs.iter().zip(needs).map(|(cost, needs)| cost * f64::from(needs[resource])).sum();
        used / f64::from(capacity[resource].max(1))
    };
    (0..capacity.len()).map(load).fold(0.0, f64::max)
}

/// How many tasks of each stage run at once when all keep up with each other and the scarcest resource is always busy.
/// `None` until every stage was seen.
pub fn concurrency(stages: &[Measured], needs: &[&[u32]], capacity: &[u32]) -> Option<Vec<f64>> {
    let costs = costs(stages)?;
    let period = period(&costs, needs, capacity);
    (period > 0.0).then(|| costs.iter().map(|cost| cost / period).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published example: a stage of 12 s on 6 slots, whose output is twice its input, before one of 2 s on 4.
    #[test]
    fn the_published_example_gives_two_and_one_seconds() {
        let stages =
            [Measured { busy: 12.0, taken: 1.0, made: 2.0 }, Measured { busy: 2.0, taken: 1.0, made: 1.0 }];
        // As source the first stage's output is the unit, in which its 12 s count half.
        let source = Measured { taken: 2.0, ..stages[0] };
        let costs = costs(&[source, stages[1]]).unwrap();
        assert_eq!(costs.iter().map(|cost| cost * 2.0).collect::<Vec<_>>(), [12.0, 4.0]);
        let each = |costs: &[f64], n: usize| period(&costs[n..=n], &[&[1]], &[[6, 4][n]]) * 2.0;
        assert_eq!((each(&costs, 0), each(&costs, 1)), (2.0, 1.0));
        // Together they keep up with the slower one.
        assert_eq!(period(&costs, &[&[1, 0], &[0, 1]], &[6, 4]) * 2.0, 2.0);
    }

    #[test]
    fn stages_that_share_a_resource_get_their_shares_of_it() {
        let stage = |busy| Measured { busy, taken: 100.0, made: 100.0 };
        let needs: [&[u32]; 3] = [&[1, 0], &[1, 0], &[0, 1]];
        let shares = concurrency(&[stage(20.0), stage(10.0), stage(10.0)], &needs, &[8, 4]).unwrap();
        let expected = [16.0 / 3.0, 8.0 / 3.0, 8.0 / 3.0];
        assert!(
            shares.iter().zip(expected).all(|(share, wanted)| (share - wanted).abs() < 1e-9),
            "{shares:?}"
        );
        assert_eq!(concurrency(&[stage(20.0), Measured::default()], &needs[..2], &[8, 4]), None);
    }
}
