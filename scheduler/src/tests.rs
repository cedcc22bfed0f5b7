//! What the scheduler does, as scripts for [`crate::harness::check`].

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

#[test]
fn a_failure_reaches_dependants_and_waiters_but_is_retried_where_that_may_help() {
    check(
        "
        join e1 cpu=3
        job a
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        call a/1 a/0.0
        call a/2 mem=100 max=300
        > run a/2#1 on e1 mem=100
        wait a 0 a/1.0 a/2.0
        fail a/2 limit/out-of-memory
        > run a/2#2 on e1 mem=200
        fail a/0 platform/storage
        tick 999
        tick 1
        > run a/0#2 on e1 mem=100
        fail a/0 guest/trap
        fail a/2 limit/out-of-memory
        > run a/2#3 on e1 mem=300
        fail a/2 limit/out-of-memory
        > woken a 0: 0=!guest/trap 1=!limit/out-of-memory
        done a 'x'
        > end a 'x'
        ",
    );
}

#[test]
fn the_root_of_a_recorded_job_has_its_attempts_and_children_are_not_run_again() {
    check(
        "
        join e1 cpu=2
        job a recorded attempts=2
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        done a/0 'x'
        > log committed a/0
        fail a guest/trap
        > log attempt-failed a#1 !guest/trap
        tick 1000
        > run a#2 on e1 mem=100
        call a/0
        wait a 0 a/0.0
        > woken a 0: 0='x'
        fail a guest/trap
        > log ended a
        > end a !guest/trap
        empty
        > true
        ",
    );
}

#[test]
fn a_lost_partition_is_made_again_by_the_smallest_set() {
    check(
        "
        join e1 cpu=4
        join e2 cpu=1
        job a on=e2
        > run a#1 on e2 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        done a/0 @100
        call a/1 a/0.0
        > run a/1#1 on e1 mem=100
        done a/1 @200
        call a/2
        > run a/2#1 on e1 mem=100
        done a/2 @300
        drop a a/0.0
        > free e1 a/0.0#1
        leave e1
        > free store a/1.0#1 a/2.0#1
        wait a 0 a/1.0
        # Its argument was given up long ago and is made again first; a/2 is not.
        > run a/0#2 on e2 mem=100
        done a/0 @100
        > run a/1#2 on e2 mem=100
        done a/1 @200
        > woken a 0: 0=@200 on e2
        > free e2 a/0.0#2
        ",
    );
}

#[test]
fn a_partition_that_differs_when_made_again_is_an_error_at_once() {
    check(
        "
        join e1 cpu=4
        join e2 cpu=1
        job a on=e2
        > run a#1 on e2 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        done a/0 @100
        lost a a/0.0
        > free e1 a/0.0#1
        wait a 0 a/0.0
        > run a/0#2 on e1 mem=100
        done a/0 @101
        > woken a 0: 0=!guest/non-deterministic
        > free e1 a/0.0#2
        ",
    );
    check(
        "
        join e1 cpu=4
        job a
        > run a#1 on e1 mem=100
        call a/0 random
        > run a/0#1 on e1 mem=100
        done a/0 @100
        lost a a/0.0
        > free e1 a/0.0#1
        wait a 0 a/0.0
        > woken a 0: 0=!lost/partition-lost
        ",
    );
}

#[test]
fn a_restart_runs_nothing_twice_and_answers_waits_as_before() {
    check(
        "
        join e1 cpu=4
        job a recorded
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        call a/1
        > run a/1#1 on e1 mem=100
        call a/2
        > run a/2#1 on e1 mem=100
        done a/1 'y'
        > log committed a/1
        wait a 0 a/0.0 a/1.0 a/2.0 count=1
        > log waited a 0 [1]
        > woken a 0: 1='y'
        fail a/2 guest/trap
        > log failed a/2 !guest/trap
        done a/0 @10
        > log committed a/0
        restart
        > run a#1 on e1 mem=100
        call a/0
        call a/1
        call a/2
        wait a 0 a/0.0 a/1.0 a/2.0 count=1
        > woken a 0: 1='y'
        # Its copy is where it was.
        wait a 1 a/0.0 a/1.0 a/2.0
        > woken a 1: 0=@10 on e1 1='y' 2=!guest/trap
        call a/3
        > run a/3#1 on e1 mem=100
        leave e1
        > free store a/0.0#1
        join e2
        > run a#2 on e2 mem=100
        call a/0
        call a/1
        call a/2 entry=other
        > stop a#2 !guest/non-deterministic
        > log ended a
        > end a !guest/non-deterministic
        ",
    );
}

#[test]
fn a_timeout_is_an_answer_and_is_replayed() {
    check(
        "
        join e1 cpu=4
        job a recorded
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        wait a 0 a/0.0 timeout=50
        tick 50
        > log waited a 0 []
        > woken a 0:
        done a/0 'x'
        > log committed a/0
        restart
        > run a#1 on e1 mem=100
        call a/0
        wait a 0 a/0.0 timeout=50
        > woken a 0:
        ",
    );
}

#[test]
fn what_nothing_refers_to_is_freed_or_cancelled() {
    check(
        "
        join e1 cpu=4
        job a
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        call a/1 a/0.0
        drop a a/0.0
        # Still an argument of a/1.
        done a/0 @100
        > run a/1#1 on e1 mem=100
        done a/1 @50
        > free e1 a/0.0#1
        call a/2
        > run a/2#1 on e1 mem=100
        call a/3
        > run a/3#1 on e1 mem=100
        call a/4
        > run a/4#1 on e1 mem=100
        done a/3 'named'+a/4.0
        # a/3 is returned, and names a/4; a/2 is wanted by nobody.
        done a =a/3.0
        > stop a/2#1 !platform/cancelled
        > free e1 a/1.0#1
        done a/4 @7
        > end a 'named'
        fail a/2 platform/cancelled
        empty
        > true
        ",
    );
}

#[test]
fn dropping_an_output_leaves_what_it_names_with_its_driver() {
    check(
        "
        join e1 cpu=4
        job a
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        call a/0/0
        > run a/0/0#1 on e1 mem=100
        done a/0/0 @9
        done a/0 'n'+a/0/0.0
        drop a a/0.0
        drop a a/0/0.0
        > free e1 a/0/0.0#1
        kept
        > 2
        ",
    );
}

#[test]
fn a_stopped_attempt_keeps_its_slot_until_it_has_stopped_and_its_result_is_fenced() {
    check(
        "
        join e1 cpu=2
        job a recorded
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        call a/1
        cancel-futures a a/0.0
        > stop a/0#1 !platform/cancelled
        > log failed a/0 !platform/cancelled
        done a/0 @100
        > run a/1#1 on e1 mem=100
        > free e1 a/0.0#1
        wait a 0 a/0.0
        > woken a 0: 0=!platform/cancelled
        cancel a
        > stop a#1 !platform/cancelled
        > stop a/1#1 !platform/cancelled
        > log ended a
        > end a !platform/cancelled
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
        > stalled a: waits for partition a/0.0 made by task a/0, which waits for 1 cpu, 2.0 GiB memory and 0 gpu: no executor is that large
        ",
    );
}
