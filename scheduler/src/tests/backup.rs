//! Backup attempts of stragglers.

use crate::harness::check;

/// A job whose first six children of one kind took 10 ms and whose seventh, a/6, takes longer than a second on e1.
const SLOW: &str = "
        join e1 cpu=2
        job a cpu=0
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        call a/1
        > run a/1#1 on e1 mem=100
        tick 10
        done a/0 'x'
        done a/1 'x'
        call a/2
        > run a/2#1 on e1 mem=100
        call a/3
        > run a/3#1 on e1 mem=100
        tick 10
        done a/2 'x'
        done a/3 'x'
        call a/4
        > run a/4#1 on e1 mem=100
        tick 10
        done a/4 'x'
        call a/6
        > run a/6#1 on e1 mem=100
        join e2 cpu=2
        tick 1000
        tick 500
        > run a/6#2 on e2 mem=100
        ";

#[test]
fn whichever_attempt_finishes_first_is_the_one() {
    check(&format!(
        "{SLOW}
        done a/6 'x'
        > stop a/6#1 !platform/cancelled
        wait a 0 a/6.0
        > woken a 0: 0='x'
        # The other one was told to stop; its late result is nobody's.
        earlier done a/6 @7
        > free e1 a/6.0#1
        "
    ));
    check(&format!(
        "{SLOW}
        earlier done a/6 @7
        > stop a/6#2 !platform/cancelled
        wait a 0 a/6.0
        > woken a 0: 0=@7 on e1
        done a/6 @7
        > free e2 a/6.0#2
        "
    ));
}

#[test]
fn a_backup_takes_over_from_an_attempt_that_is_lost_and_is_not_missed_itself() {
    check(&format!(
        "{SLOW}
        fail a/6 guest/trap
        earlier done a/6 'x'
        wait a 0 a/6.0
        > woken a 0: 0='x'
        "
    ));
    check(&format!(
        "{SLOW}
        leave e2
        earlier done a/6 'x'
        wait a 0 a/6.0
        > woken a 0: 0='x'
        "
    ));
    check(&format!(
        "{SLOW}
        leave e1
        > run a#2 on e2 mem=100
        call a/6
        done a/6 'x'
        wait a 0 a/6.0
        > woken a 0: 0='x'
        "
    ));
}

#[test]
fn a_task_that_acts_as_a_driver_has_one_attempt() {
    check(&format!(
        "{SLOW}
        # The backup calls, the first attempt goes on.
        call a/6/0
        > stop a/6#2 !platform/cancelled
        earlier done a/6 'x'
        wait a 0 a/6.0
        > woken a 0: 0='x'
        "
    ));
}

#[test]
fn one_backup_for_ten_running_attempts_and_none_for_what_may_not_run_twice() {
    check(
        "
        join e1 cpu=9
        job a cpu=0
        > run a#1 on e1 mem=100
        call a/0
        > run a/0#1 on e1 mem=100
        call a/1
        > run a/1#1 on e1 mem=100
        call a/2
        > run a/2#1 on e1 mem=100
        call a/3
        > run a/3#1 on e1 mem=100
        call a/4
        > run a/4#1 on e1 mem=100
        tick 500
        done a/0 'x'
        done a/1 'x'
        done a/2 'x'
        done a/3 'x'
        done a/4 'x'
        call a/5 random
        > run a/5#1 on e1 mem=100
        call a/6
        > run a/6#1 on e1 mem=100
        call a/7
        > run a/7#1 on e1 mem=100
        call a/8 entry=other
        > run a/8#1 on e1 mem=100
        join e2 cpu=9
        # Three medians of 500 ms.
        tick 1500
        tick 500
        > run a/6#2 on e2 mem=100
        tick 500
        done a/6 'x'
        > stop a/6#1 !platform/cancelled
        tick 500
        > run a/7#2 on e2 mem=100
        tick 5000
        # It failed of itself: one backup is all a task gets.
        fail a/7 guest/trap
        tick 5000
        ",
    );
}
