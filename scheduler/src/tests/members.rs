//! Executors that come, go, drain, and bring back what they had.

use crate::harness::check;

#[test]
fn a_new_owner_believes_what_executors_say_they_hold() {
    let before = "
        join e1 cpu=4
        join e2 cpu=1
        job a recorded on=e2
        > run a#1 on e2 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        done a/0 @100
        > log committed a/0
        call a/1
        > run a/1#1 on e1 mem=100
        done a/1 @200
        > log committed a/1
        ";
    // They have what they had. What the new owner's log does not know is dropped.
    check(&format!(
        "{before}
        call a/2
        > run a/2#1 on e1 mem=100
        put a/2 0 @300
        > log made a/2.p0
        unlogged
        restart
        > run a#1 on e2 mem=100
        > free e1 a/2.p0#1
        call a/0
        wait a 0 a/0.0
        > woken a 0: 0=@100 on e1
        "
    ));
    // They have nothing, as after a restart of everything.
    check(&format!(
        "{before}
        leave e1
        join e1 cpu=4 bare
        > free store a/0.0#1 a/1.0#1
        restart
        > run a#1 on e2 mem=100
        call a/0
        wait a 0 a/0.0
        > run a/0#1 on e1 mem=100
        "
    ));
}

#[test]
fn a_new_owner_waits_for_executors_before_it_has_their_partitions_made_again() {
    let before = "
        join e1 cpu=4
        join e2 cpu=1
        job a recorded on=e2
        > run a#1 on e2 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        done a/0 @100
        > log committed a/0
        restart alone
        join e2 cpu=1
        > run a#1 on e2 mem=100
        call a/0
        call a/1 on=e1
        wait a 0 a/0.0 a/1.0
        tick 1999
        reason a
        > waits for executor e1, which has partition a/0.0, to come back
        ";
    check(&format!(
        "{before}
        join e1 cpu=4
        > run a/1#1 on e1 mem=100
        done a/1 'x'
        > log committed a/1
        > woken a 0: 0=@100 on e1 1='x'
        "
    ));
    check(&format!(
        "{before}
        tick 1
        > log failed a/1 !lost/executor-lost
        > run a/0#1 on e2 mem=100
        # Better late than never: the first copy is as good, and nobody needs the second one.
        join e1 cpu=4
        > stop a/0#1 !platform/cancelled
        fail a/0 platform/cancelled
        > woken a 0: 0=@100 on e1 1=!lost/executor-lost
        "
    ));
}

#[test]
fn what_an_executor_had_counts_again_when_it_comes_back_in_time() {
    check(
        "
        join e1 cpu=4
        join e2 cpu=1
        job a on=e2
        > run a#1 on e2 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        done a/0 @100
        call a/1
        > run a/1#1 on e1 mem=100
        done a/1 @200
        leave e1
        wait a 0 a/0.0
        > run a/0#2 on e2 mem=100
        done a/0 @100
        > woken a 0: 0=@100 on e2
        > free store a/0.0#1
        join e1 cpu=4
        > free e1 a/0.0#1
        wait a 1 a/1.0
        > woken a 1: 0=@200 on e1
        ",
    );
}

#[test]
fn a_result_waits_for_the_upload_of_the_executor_that_still_has_it() {
    check(
        "
        join e1 cpu=4
        job a recorded
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        done a/0 @100
        > log committed a/0
        restart
        > run a#1 on e1 mem=100
        call a/0
        done a =a/0.0
        > log committed a
        reason a
        > waits for the object store to take its result
        durable a/0.0
        > log ended a
        > end a @100 on e1
        ",
    );
}

#[test]
fn an_executor_that_offers_less_takes_nothing_new_until_it_fits() {
    check(
        "
        join e1 cpu=4
        job a cpu=0
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        call a/1 cpu=3
        > run a/1#1 on e1 mem=100
        call a/1/0
        offer e1 cpu=1
        wait a/1 0 a/1/0.0
        done a/0 'x'
        # Three cpus are not offered any more: it gets them when nothing else runs.
        > run a/1/0#1 on e1 mem=100
        done a/1/0 'x'
        > woken a/1 0: 0='x'
        call a/2
        offer e1 cpu=4 mem=150
        done a/1 'x'
        # Its memory is not free.
        offer e1 cpu=1 mem=200
        > run a/2#1 on e1 mem=100
        ",
    );
}

#[test]
fn an_executor_that_leaves_hands_back_what_it_has_not_begun() {
    check(
        "
        join e1 cpu=2
        job a cpu=0 attempts=1
        > run a#1 on e1 mem=100
        call a/0 attempts=1 random
        > run a/0#1 on e1 mem=100
        call a/1
        > run a/1#1 on e1 mem=100
        done a/1 @100
        call a/2 on=e1
        > run a/2#1 on e1 mem=100
        call a/3 on=e1
        leaving e1
        wait a 0 a/3.0
        > woken a 0: 0=!lost/executor-lost
        call a/4
        wait a 1 a/4.0
        fail a/0 overloaded/draining
        join e2 cpu=2
        > run a/0#2 on e2 mem=100
        > run a/4#1 on e2 mem=100
        # What it has can be read until it has left, and what it uploads stays.
        call a/5 a/1.0
        > prefetch e2 a/1.0
        done a/4 'x'
        > woken a 1: 0='x'
        > run a/5#1 on e2 mem=100
        durable a/1.0
        done a/2 'x'
        leave e1
        > run a#2 on e2 mem=100
        ",
    );
}

#[test]
fn what_an_executor_may_come_back_with_is_made_again_last() {
    let before = "
        join e1 cpu=1
        join e2 cpu=1
        job a on=e2
        > run a#1 on e2 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        done a/0 @100
        call a/1
        > run a/1#1 on e1 mem=100
        done a/1 @200
        call a/2
        > run a/2#1 on e1 mem=100
        call a/3
        call a/4
        leave e1
        # What ran there goes first, then what has never run.
        wait a 0 a/0.0 a/1.0 a/2.0 a/3.0 a/4.0
        > run a/2#2 on e2 mem=100
        done a/2 @300
        > run a/3#1 on e2 mem=100
        ";
    // It is there again with what it had.
    check(&format!(
        "{before}
        join e1 cpu=1
        > run a/4#1 on e1 mem=100
        done a/3 @400
        done a/4 @500
        > woken a 0: 0=@100 on e1 1=@200 on e1 2=@300 on e2 3=@400 on e2 4=@500 on e1
        "
    ));
    // It has had its time.
    check(&format!(
        "{before}
        tick 1000
        done a/3 @400
        > run a/0#2 on e2 mem=100
        # It is late: what was being made again is stopped.
        join e1 cpu=1
        > stop a/0#2 !platform/cancelled
        > run a/4#1 on e1 mem=100
        done a/4 @500
        fail a/0 platform/cancelled
        > woken a 0: 0=@100 on e1 1=@200 on e1 2=@300 on e2 3=@400 on e2 4=@500 on e1
        "
    ));
}
