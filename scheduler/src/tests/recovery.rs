//! Lost partitions, restarts and replays.

use crate::harness::check;

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
        wait a 0 a/1.0
        # Its argument was given up long ago and is made again first; a/2 is not.
        > run a/0#2 on e2 mem=100
        done a/0 @100
        > run a/1#2 on e2 mem=100
        done a/1 @200
        > woken a 0: 0=@200 on e2
        > free e2 a/0.0#2
        # It may have been on its way there.
        > free store a/1.0#1
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
        join e2
        > run a#2 on e2 mem=100
        call a/0
        call a/1
        call a/2 entry=other
        > stop a#2 !guest/non-deterministic
        > log ended a
        > end a !guest/non-deterministic
        > free store a/0.0#1
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
fn a_commit_is_logged_after_those_it_names() {
    check(
        "
        join e1 cpu=9
        job a recorded
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        call a/0/0
        > run a/0/0#1 on e1 mem=100
        call a/0/0/0
        > run a/0/0/0#1 on e1 mem=100
        done a/0/0 'named'+a/0/0/0.0
        done a/0 =a/0/0.0
        wait a 0 a/0.0
        > woken a 0: 0='named'
        # A restart now would run them all again.
        done a/0/0/0 'x'
        > log committed a/0/0/0
        > log committed a/0/0
        > log committed a/0
        ",
    );
}

#[test]
fn a_driver_that_does_not_call_again_what_is_needed_is_found_out() {
    check(
        "
        join e1 cpu=9
        join e2 cpu=1
        job a recorded on=e2
        > run a#1 on e2 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        call a/0/0
        > run a/0/0#1 on e1 mem=100
        done a/0/0 @5
        > log committed a/0/0
        done a/0 'named'+a/0/0.0
        > log committed a/0
        leave e1
        join e3
        restart
        > run a#1 on e2 mem=100
        call a/0
        wait a 0 a/0/0.0
        tick 2000
        # The log does not say how a/0/0 was called: a/0 has to run again, and does not call it this time.
        > run a/0#1 on e3 mem=100
        done a/0 'named'+a/0/0.0
        > woken a 0: 0=!guest/non-deterministic
        ",
    );
}
