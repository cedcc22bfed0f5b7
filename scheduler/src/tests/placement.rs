//! Where and when tasks run.

use crate::harness::check;

#[test]
fn a_driver_fans_out_and_folds_back() {
    check(
        "
        join e1 cpu=1
        job a recorded
        > run a#1 on e1 mem=100
        call a/0
        call a/1 a/0.0
        wait a 0 a/0.0 a/1.0
        # It waits, so its one slot is free for what it waits for.
        > run a/0#1 on e1 mem=100
        done a/0 'x'
        > log committed a/0
        > run a/1#1 on e1 mem=100
        done a/1 'y'
        > log committed a/1
        > woken a 0: 0='x' 1='y'
        done a 'z'
        > log committed a
        > log ended a
        > end a 'z'
        empty
        > true
        ",
    );
}

#[test]
fn locality_comes_first_among_executors_with_room() {
    check(
        "
        join e1 cpu=2
        join e2 cpu=9
        job a
        > run a#1 on e2 mem=100
        call a/0 on=e1
        > run a/0#1 on e1 mem=100
        done a/0 @500
        call a/1 a/0.0 entry=near
        > run a/1#1 on e1 mem=100
        call a/2 a/0.0 cpu=2
        # No room where its argument is.
        > run a/2#1 on e2 mem=100
        ",
    );
}

/// Two executors that have an output of so many bytes each, and no room; then what comes next.
fn check_without_room(first: u64, second: u64, next: &str) {
    check(&format!(
        "
        join e1 cpu=1
        join e2 cpu=1
        job a cpu=0
        > run a#1 on e1 mem=100
        call a/0 on=e1
        > run a/0#1 on e1 mem=100
        call a/1 on=e2
        > run a/1#1 on e2 mem=100
        done a/0 @{first}
        done a/1 @{second}
        call a/2 on=e1
        > run a/2#1 on e1 mem=100
        call a/3 on=e2
        > run a/3#1 on e2 mem=100
        {next}
        "
    ));
}

#[test]
fn inputs_of_what_comes_next_are_fetched_before_there_is_room() {
    check_without_room(
        500,
        300,
        "
        # Each is meant for the executor that has most of what it reads, which fetches the rest.
        call a/4 a/0.0 a/1.0
        > prefetch e1 a/1.0
        call a/5 a/1.0
        call a/6 'x' a/0.0
        # e2 has all of a/5's input, yet a/4 was first, and only the one that is meant for it goes before.
        done a/2 'x'
        > run a/4#1 on e1 mem=100
        done a/3 'x'
        > run a/5#1 on e2 mem=100
        ",
    );
}

#[test]
fn what_is_not_brought_into_memory_as_a_whole_is_not_fetched_before() {
    check_without_room(
        9_000_000,
        8_388_609,
        "
        call a/4 a/0.0 a/1.0
        done a/2 'x'
        > run a/4#1 on e1 mem=100
        ",
    );
}

#[test]
fn a_generator_runs_ahead_only_so_far_and_leaves_its_slot_to_its_consumer() {
    check(
        "
        join e1 cpu=1
        job a recorded
        > run a#1 on e1 mem=100
        call a/0 generator
        next a 0 a/0 0
        > run a/0#1 on e1 mem=100
        > credit a/0 17
        yield a/0 0 'x'
        > log made a/0.0
        yield a/0 1 'y'
        > log made a/0.1
        done a/0
        > log committed a/0
        > next a 0: a/0.0
        next a 1 a/0 1
        > next a 1: a/0.1
        next a 2 a/0 2
        > next a 2: end
        restart
        > run a#1 on e1 mem=100
        call a/0 generator
        next a 0 a/0 1
        > next a 0: a/0.1
        next a 1 a/0 2
        > next a 1: end
        ",
    );
}

#[test]
fn a_large_task_is_neither_starved_nor_allowed_to_idle_the_cluster() {
    check(
        "
        join e1 cpu=4
        job a cpu=0
        > run a#1 on e1 mem=100
        call a/0 cpu=2
        > run a/0#1 on e1 mem=100
        call a/1 cpu=1
        > run a/1#1 on e1 mem=100
        call a/2 cpu=4
        call a/3 cpu=1
        > run a/3#1 on e1 mem=100
        call a/4 cpu=1
        tick 500
        # a/2 has been overtaken and has waited for long enough: e1 is kept for it.
        done a/1 'x'
        done a/3 'x'
        tick 9999
        tick 1
        # Not for ever.
        > run a/4#1 on e1 mem=100
        done a/4 'x'
        done a/0 'x'
        > run a/2#1 on e1 mem=100
        ",
    );
}

#[test]
fn a_standstill_is_told_with_its_reason() {
    check(
        "
        join e1 cpu=1
        job a
        > run a#1 on e1 mem=100
        call a/0 mem=2000
        wait a 0 a/0.0
        tick 4999
        tick 1
        > stalled a: waits for partition a/0.0 made by task a/0, which needs 2.0 GiB of memory, the largest executor offers 1000.0 MiB
        ",
    );
}

#[test]
fn jobs_share_by_weight_and_a_late_job_does_not_wait_for_an_early_one() {
    check(
        "
        join e1 cpu=1
        job a cpu=0 weight=2
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        call a/1
        call a/2
        call a/3
        call a/4
        job b cpu=0 weight=1
        > run b#1 on e1 mem=100
        call b/0
        call b/1
        call b/2
        tick 10
        done a/0 'x'
        > run b/0#1 on e1 mem=100
        tick 10
        done b/0 'x'
        > run a/1#1 on e1 mem=100
        tick 10
        done a/1 'x'
        > run a/2#1 on e1 mem=100
        tick 10
        done a/2 'x'
        > run b/1#1 on e1 mem=100
        tick 10
        done b/1 'x'
        > run a/3#1 on e1 mem=100
        ",
    );
}

#[test]
fn a_task_bound_to_an_executor_waits_for_it_and_fails_with_it() {
    check(
        "
        join e1 cpu=1
        join e2 cpu=1
        job a on=e2
        > run a#1 on e2 mem=100
        call a/0 on=e2
        call a/1 on=e2
        wait a 0 a/0.0 a/1.0
        > run a/0#1 on e2 mem=100
        call a/2 on=e1
        > run a/2#1 on e1 mem=100
        call a/3 on=e1
        wait a 1 a/2.0 a/3.0
        leave e1
        # It can go on, but has no cpu yet; then it goes before what has not started.
        done a/0 'x'
        > woken a 1: 0=!lost/executor-lost 1=!lost/executor-lost
        ",
    );
}

#[test]
fn a_reservation_ends_with_the_task_it_was_for() {
    check(
        "
        join e1 cpu=2
        job a cpu=0
        > run a#1 on e1 mem=100
        call a/0 cpu=1
        > run a/0#1 on e1 mem=100
        call a/1 cpu=2
        call a/2 cpu=1
        > run a/2#1 on e1 mem=100
        call a/3 cpu=1
        tick 500
        done a/0 'x'
        # Kept free for a/1.
        cancel-futures a a/1.0
        > run a/3#1 on e1 mem=100
        ",
    );
}

#[test]
fn where_a_task_would_like_to_run() {
    check(
        "
        join e1 cpu=4
        join e2 cpu=4
        join e3 cpu=5
        join e4 cpu=9
        job a cpu=0
        > run a#1 on e4 mem=100
        call a/0 rather=e1
        > run a/0#1 on e1 mem=100
        done a/0 @500
        call a/1 rather=e2
        > run a/1#1 on e2 mem=100
        done a/1 @300
        call a/2 rather=e2
        > run a/2#1 on e2 mem=100
        done a/2 @300
        # 600 bytes on e2, 500 on e1.
        call a/3 a/0.0 a/1.0 a/2.0
        > run a/3#1 on e2 mem=100
        # The most room is on e4.
        call a/4 a/0.0 a/1.0 a/2.0 spread
        > run a/4#1 on e4 mem=100
        call a/5 near=a/0:0
        > run a/5#1 on e1 mem=100
        # Full, and only a wish.
        call a/6 rather=e1 cpu=4
        > run a/6#1 on e4 mem=100
        # Full, and not only a wish.
        call a/7 on=e1 cpu=4
        done a/5 'x'
        > run a/7#1 on e1 mem=100
        ",
    );
}

#[test]
fn memory_is_never_promised_twice() {
    check(
        "
        join e1 cpu=9 mem=250
        job a cpu=0 mem=50
        > run a#1 on e1 mem=50
        call a/0
        > run a/0#1 on e1 mem=100
        call a/1
        > run a/1#1 on e1 mem=100
        call a/2
        # A waiting driver gives its cpu back, and keeps its memory.
        wait a 0 a/2.0
        done a/0 'x'
        > run a/2#1 on e1 mem=100
        ",
    );
}

#[test]
fn what_a_task_waits_for_is_told_so_that_it_can_be_changed() {
    let waits = |script: &str, reason: &str| {
        check(&format!("{script}\nreason a\n> {reason}\n"));
    };
    waits("job a", "waits: there is no executor, for none has joined");
    waits("join e1\nleave e1\njob a", "waits: there is no executor, for every one has left");
    waits("join e1\njob a cpu=4\njoin e2 cpu=2", "needs 4 cpus, the largest executor offers 2");
    waits("join e1\njob a gpu=1", "needs 1 gpu, the largest executor offers 0");
    waits("join e1 seats=1\njob a seats=2", "needs 2 of `seats`, the largest executor offers 1");
    waits(
        "join e1 cpu=4 seats=1\njob b seats=1\n> run b#1 on e1 mem=100\njob a seats=1",
        "waits for 1 of `seats` to be free",
    );
    waits(
        "join e1 cpu=4 mem=10\njoin e2 cpu=1\njob a cpu=4",
        "needs 4 cpus with 100.0 MiB, and no executor offers both",
    );
    waits(
        "join e1 cpu=9 mem=150\njob b\n> run b#1 on e1 mem=100\njob a",
        "waits for memory: needs 100.0 MiB, and at most 50.0 MiB is free on an executor",
    );
    waits("join e1\njob b\n> run b#1 on e1 mem=100\njob a", "waits for 1 cpu to be free");
    waits(
        "join e1\njob a\n> run a#1 on e1 mem=100\nleave e1\njoin e2 mem=50",
        "lost its attempt (executor e1 left while it ran the task) and needs 100.0 MiB of memory, \
         the largest executor offers 50.0 MiB",
    );
    // It is told from the job that depends on it, and by itself.
    check(
        "
        join e1 cpu=1
        job a
        > run a#1 on e1 mem=100
        call a/0
        wait a 0 a/0.0
        > run a/0#1 on e1 mem=100
        leaving e1
        fail a/0 overloaded/draining
        tick 4999
        tick 1
        > stalled a: waits for partition a/0.0 made by task a/0, which waits: every executor is leaving
        ",
    );
}

#[test]
fn custom_resources_are_counted_on_each_executor() {
    check(
        "
        join e1 cpu=4 seats=1
        join e2 cpu=4 tapes=2
        # Where there is one, and no more at once than there are; a task that waits keeps its own.
        job a tapes=1
        > run a#1 on e2 mem=100
        job b seats=1
        > run b#1 on e1 mem=100
        job c seats=1
        call b/0 tapes=2
        wait b 0 b/0.0
        done a 'x'
        > end a 'x'
        > run b/0#1 on e2 mem=100
        done b/0 'y'
        > woken b 0: 0='y'
        done b 'z'
        > end b 'z'
        > run c#1 on e1 mem=100
        ",
    );
}
