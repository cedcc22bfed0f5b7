//! Calls that are answered by what equal ones made.

use crate::harness::check;

#[test]
fn an_equal_call_of_another_job_is_not_run() {
    check(
        "
        join e1 cpu=4
        job a
        > run a#1 on e1 mem=100
        call a/0 memo
        > run a/0#1 on e1 mem=100
        done a/0 'x'
        > memoise 'x'
        memo
        # What another task made of it is known by its bytes.
        call a/1 a/0.0 entry=next memo
        > run a/1#1 on e1 mem=100
        done a/1 'y'
        > memoise 'y'
        memo
        job b recorded
        > run b#1 on e1 mem=100
        call b/0 memo
        > log committed b/0
        wait b 0 b/0.0
        > woken b 0: 0='x'
        call b/1 b/0.0 entry=next memo
        > log committed b/1
        # Without the wish, with another entry, or of a function that is not deterministic it runs.
        call b/2
        > run b/2#1 on e1 mem=100
        call b/3 entry=other memo
        > run b/3#1 on e1 mem=100
        call b/4 memo random
        > run b/4#1 on e1 mem=100
        memo gone
        call b/5 b/0.0 entry=next memo
        > run b/5#1 on e1 mem=100
        ",
    );
}

#[test]
fn a_long_output_answers_as_long_as_its_copy_is_there() {
    check(
        "
        join e1 cpu=4
        job a
        > run a#1 on e1 mem=100
        call a/0 memo
        > run a/0#1 on e1 mem=100
        # Only what the store has can be copied.
        done a/0 @100
        call a/1 memo
        > run a/1#1 on e1 mem=100
        done a/1 @100 durable
        > memoise @100 on e1
        memo
        # It is known by the key of its maker: nothing has read it.
        call a/2 a/1.0 entry=next memo
        > run a/2#1 on e1 mem=100
        done a/2 'y'
        > memoise 'y'
        call a/3 memo
        wait a 0 a/3.0
        > woken a 0: 0=@100 in store
        # No job frees it; lost, it is made again.
        drop a a/0.0 a/1.0 a/3.0
        > free e1 a/0.0#1 a/1.0#1
        call a/4 memo
        lost-memo a a/1.0
        memo gone
        wait a 1 a/4.0
        > run a/4#1 on e1 mem=100
        done a/4 @100 durable
        > woken a 1: 0=@100 on e1
        ",
    );
}
