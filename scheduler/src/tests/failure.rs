//! Failures, retries, cancellation and deadlines.

use crate::harness::check;

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
fn a_deadline_fails_a_task_whatever_it_is_doing() {
    check(
        "
        join e1 cpu=2
        job a
        > run a#1 on e1 mem=100
        call a/0 deadline=100
        > run a/0#1 on e1 mem=100
        call a/1 deadline=50
        wait a 0 a/0.0 a/1.0
        > run a/1#1 on e1 mem=100
        call a/2 deadline=60
        tick 50
        > stop a/1#1 !limit/deadline
        tick 10
        wait a 1 a/2.0
        > woken a 1: 0=!limit/deadline
        tick 100
        > stop a/0#1 !limit/deadline
        ",
    );
}

#[test]
fn an_attempt_lost_with_its_executor_does_not_count_and_a_fragile_one_is_not_repeated() {
    check(
        "
        join e1 cpu=2
        join e2 cpu=1
        job a on=e2
        > run a#1 on e2 mem=100
        call a/0 attempts=1
        > run a/0#1 on e1 mem=100
        call a/1 attempts=1 random
        > run a/1#1 on e1 mem=100
        leave e1
        join e3
        > run a/0#2 on e3 mem=100
        wait a 0 a/1.0
        > woken a 0: 0=!lost/executor-lost
        ",
    );
}
