//! What is kept, and what is let go of.

use crate::harness::check;

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
fn a_message_that_comes_twice_frees_nothing() {
    check(
        "
        join e1 cpu=4
        job a
        > run a#1 on e1 mem=100
        call a/0 generator
        > run a/0#1 on e1 mem=100
        > credit a/0 16
        yield a/0 0 @100
        yield a/0 0 @100
        cancel-futures a a/0.0
        > stop a/0#1 !platform/cancelled
        yield a/0 0 @100
        next a 0 a/0 0
        > next a 0: a/0.0
        wait a 1 a/0.0
        > woken a 1: 0=@100 on e1
        ",
    );
}
