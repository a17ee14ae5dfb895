#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsched reads schedule files with one defect each, and files that look
# defective but are valid. Each error must name rank, place and defect.

bats_require_minimum_version 1.5.0

setup() { cd "$BATS_TEST_TMPDIR"; }

# judge: reads a table from stdin, one case per line:
#   name | status | options | file, with / between lines | the message
# With status 0 the message is a warning, or empty.
judge() {
    local name want args file says lines n=0 bad=0
    while IFS='|' read -r name want args file says; do
        name=${name// /} want=${want// /} says=${says# }
        file=${file// /} lines=${file//\//$'\n'}
        printf '%s\n' "$lines" >"$name.csv"
        # shellcheck disable=SC2086 # words
        run --separate-stderr ppsched --check --csv "$name.csv" $args
        n=$((n + 1))
        [ "$status" -eq "$want" ] &&
            [[ "$stderr" == *"$says"* ]] &&
            { [ -n "$says" ] || [ -z "$stderr" ]; } &&
            { [ "$want" -eq 0 ] || [[ "$stderr" == "ppsched: $name.csv:"* ]]; } &&
            { [ "$want" -ne 0 ] || [[ "$output" == "valid, "* ]]; } && continue
        echo "$name: status $status, expected $want: $stderr$output"
        bad=$((bad + 1))
    done
    echo "$n cases, $bad wrong"
    [ "$n" -gt 0 ] && [ "$bad" -eq 0 ]
}

@test "work that is missing, double or mixed" {
    judge <<'END'
dup_forward       |1||0F0,0F0,0F1,0B0,0B1 / 1F0,1B0,1F1,1B1| rank 0, action 1: '0F0' appears a second time
dup_backward      |1||0F0,0F1,0B0,0B1 / 1F0,1B0,1F1,1B1,1B1| rank 1, action 4: '1B1' appears a second time
dup_input         |1||0F0,0I0,0I0,0W0 / 1F0,1B0| rank 0, action 2: '0I0' appears a second time
dup_weight        |1||0F0,0F1,0I0,0W0,0W0,0I1,0W1 / 1F0,1B0,1F1,1B1| rank 0, action 4: '0W0' appears a second time
missing_forward   |1||0F0,0F1,0B0,0B1 / 1F0,1B0| rank 1: '1F1' is missing
missing_backward  |1||0F0,0F1,0B0 / 1F0,1B0,1F1,1B1| rank 0: '0B1' is missing
missing_weight    |1||0F0,0I0 / 1F0,1B0| rank 0: '0W0' is missing
backward_and_split|1||0F0,0B0,0I0,0W0 / 1F0,1B0| rank 0, action 2: '0I0' repeats a backward of the same microbatch
split_and_backward|1||0F0,0I0,0W0,0B0 / 1F0,1B0| rank 0, action 3: '0B0' repeats a backward of the same microbatch
one_both_one_none |1||0F0,0F1,0B0,0I0,0W0 / 1F0,1F1,1B0,1B1| repeats a backward
mixed_sets        |1||0F0,0F2,0B0,0B2 / 1F0,1F1,1B0,1B1| rank 0, action 1: '0F2' names a microbatch that does not exist
mb_out_of_range   |1||0F0,0F7,0B0,0B7 / 1F0,1B0,1F7,1B7| rank 0, action 1: '0F7' names a microbatch that does not exist
too_few_for_m     |1|-m 3|0F0,0F1,0B0,0B1 / 1F0,1B0,1F1,1B1| rank 0: '0F2' is missing
too_many_for_m    |1|-m 1|0F0,0F1,0B0,0B1 / 1F0,1B0,1F1,1B1| rank 0, action 1: '0F1' names a microbatch that does not exist
backward_other_mb |1||0F0,0B1 / 1F0,1B0| '0B1' names a microbatch
END
}

@test "order in a rank and across ranks" {
    judge <<'END'
backward_first      |1||0B0,0F0 / 1F0,1B0| rank 0, action 0: '0B0' comes before 0F0
weight_before_input |1||0F0,0W0,0I0 / 1F0,1B0| rank 0, action 1: '0W0' comes before 0I0
stages_of_one_rank  |1||1F0,0F0,1B0,0B0| rank 0, action 0: '1F0' comes before 0F0
gradient_of_one_rank|1||0F0,1F0,0B0,1B0| rank 0, action 2: '0B0' comes before 1B0
cross_rank_deadlock |1||0F0,0B0,0F1,0B1 / 1F0,1F1,1B0,1B1| rank 0 waits in '0B0', rank 1 waits in '1F1'
cross_rank_three    |1||0F0,0B0,0F1,0B1 / 1F0,1B0,1F1,1B1 / 2F0,2F1,2B0,2B1| rank 0 waits in '0B0', rank 1 waits in '1B0', rank 2 waits in '2F1'
control_valid       |0||0F0,0B0 / 1F0,1B0|
control_any_order   |0||0F0,0F1,0B1,0B0 / 1F1,1F0,1B0,1B1|
END
}

@test "stages and ranks" {
    judge <<'END'
stage_split_over_ranks|1||0F0,0F1,0B0,0B1,1B1 / 1F0,1B0,1F1| rank 1, action 0: stage '1' is already on rank 0
stage_gap             |1||0F0,0B0 / 2F0,2B0| stage 1 is on no rank
stage_absurd          |1||0F0,0B0 / 900F0,1B0| rank 1, action 0: stage '900' is too large for 4 compute actions
empty_rank_row        |1||0F0,1F0,0F1,1F1,1B0,0B0,1B1,0B1 /| rank 1 has no actions
blank_row_between     |1||0F0,0B0 / / 1F0,1B0| rank 1 has no actions
only_messages         |1||0SEND_F0 / 1RECV_F0| the file has no compute actions
control_reversed      |0||1F0,1B0 / 0F0,0B0|
END
}

@test "cells are matched to their ends" {
    judge <<'END'
missing_mb_index |2||0F,0B| rank 0, cell 0: '0F' is not an action
garbage_behind   |2||0F0,0B0x| rank 0, cell 1: '0B0x' is not an action
mb_on_reduce     |2||0F0,0B0,0REDUCE_GRAD5| rank 0, cell 2: '0REDUCE_GRAD5'
mb_on_unshard    |2||0UNSHARD0,0F0,0B0,0RESHARD| rank 0, cell 0: '0UNSHARD0'
no_mb_on_send    |2||0F0,0SEND_F,0B0 / 1RECV_F0,1F0,1B0| rank 0, cell 1: '0SEND_F'
leading_zero     |2||0F00,0B0| rank 0, cell 0: '0F00'
lower_case       |2||0f0,0B0| rank 0, cell 0: '0f0'
no_stage         |2||F0,B0| rank 0, cell 0: 'F0'
negative         |2||0F-1,0B0| rank 0, cell 0: '0F-1'
quoted           |2||"0F0",0B0| rank 0, cell 0: '"0F0"'
semicolons       |2||0F0;0B0| rank 0, cell 0: '0F0;0B0'
old_token        |2||0F0,0BW0| rank 0, cell 1: '0BW0' is not an action
END
}

@test "pairs" {
    judge <<'END'
overlap_three     |2||0F0,(0F1;0B0;0B1)OVERLAP_F_B| rank 0, cell 1:
overlap_empty     |2||()OVERLAP_F_B,0F0,0B0| rank 0, cell 0: '()OVERLAP_F_B' is not a pair
overlap_one       |2||(0F0)OVERLAP_F_B,0B0| rank 0, cell 0: '(0F0)OVERLAP_F_B' is not a pair
overlap_other_type|2||0F0,(0F1;0B0)B,0B1| rank 0, cell 1:
overlap_open      |2||0F0,(0F1;0B0,0B1| rank 0, cell 1:
overlap_nested    |2||0F0,((0F1;0B0)OVERLAP_F_B;0B1)OVERLAP_F_B| rank 0, cell 1:
overlap_own       |1||(0F0;0B0)OVERLAP_F_B| rank 0, action 0: '0F0' is paired with its own backward
overlap_dependent |1||0F0,(1F0;0B0)OVERLAP_F_B,1B0| rank 0, action 1: '1F0' is paired with an action that waits for it: 0B0
overlap_two_F     |1||(0F0;0F1)OVERLAP_F_B,0B0,0B1| rank 0, action 0: '0F0' is paired, but not as F then B
overlap_B_first   |1||0F0,(0B0;0F1)OVERLAP_F_B,0B1| rank 0, action 1: '0B0' is paired, but not as F then B
overlap_F_I       |1||0F0,(0F1;0I0)OVERLAP_F_B,0W0,0B1| rank 0, action 1: '0F1' is paired, but not as F then B
overlap_message   |1||0F0,(0SEND_F0;0B0)OVERLAP_F_B / 1RECV_F0,1F0,1B0| '0SEND_F0' is paired, but not as F then B
overlap_stuck     |1||0F0,(0F1;0B0)OVERLAP_F_B,0B1 / 1F0,1F1,1B0,1B1| this order deadlocks: rank 0 waits in '0F1'
control_pair      |0||0F0,(0F1;0B0)OVERLAP_F_B,0B1 / 1F0,1B0,1F1,1B1|
END
}

@test "messages" {
    judge <<'END'
comm_in_compute   |1||0F0,0SEND_F0,0F1,0B0,0B1 / 1F0,1B0,1F1,1B1| rank 0, action 3: '0B0' comes before 0RECV_B0
missing_send      |1||0F0,0RECV_B0,0B0 / 1RECV_F0,1F0,1B0,1SEND_B0| rank 1, action 0: '1RECV_F0' is never sent
missing_recv      |1||0F0,0SEND_F0,0RECV_B0,0B0 / 1F0,1B0,1SEND_B0| rank 1, action 0: '1F0' comes before 1RECV_F0
never_received    |1||0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0B1,0RECV_B1 / 1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1| rank 0, action 6: '0B1' comes before 0RECV_B1
send_twice        |1||0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0 / 1RECV_F0,1F0,1B0,1SEND_B0| rank 0, action 2: '0SEND_F0' appears a second time
recv_twice        |1||0F0,0SEND_F0,0RECV_B0,0B0 / 1RECV_F0,1RECV_F0,1F0,1B0,1SEND_B0| rank 1, action 1: '1RECV_F0' appears a second time
send_before       |1||0SEND_F0,0F0,0RECV_B0,0B0 / 1RECV_F0,1F0,1B0,1SEND_B0| rank 0, action 0: '0SEND_F0' comes before 0F0
gradient_before   |1||0F0,0SEND_F0,0RECV_B0,0B0 / 1RECV_F0,1F0,1SEND_B0,1B0| rank 1, action 2: '1SEND_B0' comes before 1B0
gradient_from_W   |1||0F0,0SEND_F0,0RECV_B0,0B0 / 1RECV_F0,1F0,1SEND_B0,1I0,1W0| rank 1, action 2: '1SEND_B0' comes before
recv_after        |1||0F0,0SEND_F0,0RECV_B0,0B0 / 1F0,1RECV_F0,1B0,1SEND_B0| rank 1, action 0: '1F0' comes before 1RECV_F0
same_rank         |1||0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0| rank 0, action 1: '0SEND_F0' is between two stages of one rank
send_past_the_end |1||0F0,0SEND_F0,0RECV_B0,0B0 / 1RECV_F0,1F0,1SEND_F0,1B0,1SEND_B0| rank 1, action 2: '1SEND_F0' names no other stage
send_other_stage  |1||0F0,1SEND_F0,0RECV_B0,0B0 / 1RECV_F0,1F0,1B0,1SEND_B0| rank 0, action 1: '1SEND_F0' names a stage of another rank
send_mb_range     |1||0F0,0SEND_F3,0RECV_B0,0B0 / 1RECV_F0,1F0,1B0,1SEND_B0| rank 0, action 1: '0SEND_F3' names a microbatch
channel_order     |1||0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1 / 1RECV_F1,1F1,1RECV_F0,1F0,1B0,1SEND_B0,1B1,1SEND_B1| rank 1, action 0: '1RECV_F1' would receive the message of rank 0, action 1: '0SEND_F0'
pair_before_recv  |1||0F0,0SEND_F0,(0F1;0B0)OVERLAP_F_B,0RECV_B0,0SEND_F1,0RECV_B1,0B1 / 1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1| rank 0, action 3: '0B0' comes before 0RECV_B0
both_receive      |1|--semantics channel|0F0,0RECV_B0,0SEND_F0,0B0 / 1RECV_F0,1F0,1B0,1SEND_B0| deadlock at channel depth 1: rank 0 waits in '0RECV_B0' for '1SEND_B0' of rank 1; rank 1 waits in '1RECV_F0' for '0SEND_F0' of rank 0 (no depth would do)
empty_cell        |2||0F0,,0SEND_F0,0RECV_B0,0B0 / 1RECV_F0,1F0,1B0,1SEND_B0| rank 0, cell 1: the cell is empty, in a file with communication
empty_cell_lenient|0|--lenient|0F0,,0SEND_F0,0RECV_B0,0B0 / 1RECV_F0,1F0,1B0,1SEND_B0| stage 0 has no REDUCE_GRAD
comms_empty_cell  |2||0F0,,0B0| rank 0, cell 1: the cell is empty, in a file with one stage
comms_one_lenient |0|--lenient|0F0,,0B0|
idle_control      |0||0F0,,0B0, / ,1F0,1B0|
END
}

@test "a deadlock depends on the depth, and on shared streams" {
    local crossing='0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1 / 1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1'
    local four='0F0,0SEND_F0,0F1,0SEND_F1,0F2,0SEND_F2,0F3,0SEND_F3,0RECV_B0,0B0,0RECV_B1,0B1,0RECV_B2,0B2,0RECV_B3,0B3 / 1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1RECV_F2,1F2,1B2,1SEND_B2,1RECV_F3,1F3,1B3,1SEND_B3'
    local vee='0F0,0SEND_F0,0F1,0SEND_F1,3RECV_F0,3F0,3B0,3SEND_B0,3RECV_F1,3F1,3B1,3SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1 / 1RECV_F0,1F0,2F0,2SEND_F0,1RECV_F1,1F1,2F1,2SEND_F1,2RECV_B0,2B0,1B0,1SEND_B0,2RECV_B1,2B1,1B1,1SEND_B1'
    local swap='0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0F1,0SEND_F1,3RECV_F1,3F1,3B1,3SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1 / 1RECV_F0,1F0,2F0,2SEND_F0,1RECV_F1,1F1,2F1,2SEND_F1,2RECV_B0,2B0,1B0,1SEND_B0,2RECV_B1,2B1,1B1,1SEND_B1'
    judge <<END
unbuffered      |1|--semantics channel --depth 0|$crossing| deadlock at channel depth 0: rank 0 waits in '0SEND_F1' for rank 1 to reach '1RECV_F1'; rank 1 waits in '1SEND_B0' for rank 0 to reach '0RECV_B0' (--depth 1 would do; needs 1 in flight on 1->0 backward)
buffered_1      |0|--semantics channel --depth 1|$crossing| stage 0 has no REDUCE_GRAD
buffered_5      |0|--semantics channel --depth 5|$crossing| stage 0 has no REDUCE_GRAD
by_itself       |0|--semantics rendezvous|$crossing| stage 0 has no REDUCE_GRAD
endless         |0|--semantics buffered|$crossing| stage 0 has no REDUCE_GRAD
one_pair        |1|--semantics pair|$crossing| deadlock under 'pair': rank 0 waits in '0SEND_F1'
one_pair_deeper |0|--semantics pair --depth 1|$crossing| stage 0 has no REDUCE_GRAD
one_rank        |1|--semantics rank|$crossing| deadlock under 'rank': rank 0 waits in '0SEND_F1'
host_blocks     |1|--semantics blocking|$crossing| deadlock under 'blocking': rank 0 waits in '0SEND_F1'
four_at_1       |1|--semantics channel|$four| (--depth 2 would do; needs 2 in flight on 1->0 backward)
four_at_2       |0|--semantics channel --depth 2|$four| stage 0 has no REDUCE_GRAD
vee_channels    |0|--semantics channel --depth 2|$swap| stage 0 has no REDUCE_GRAD
vee_untagged    |1|--semantics rendezvous|$swap| '1RECV_F1' would receive the message of rank 0, action 5: '3SEND_B0', which swaps an activation and a gradient
vee_pytorch     |1||$swap| '1RECV_F1' would receive the message of rank 0, action 5: '3SEND_B0', which swaps an activation and a gradient, by PyTorch's transport (--semantics rendezvous): lower without defer_pp_recv, or place the messages anew
by_pytorch      |0||$crossing| stage 0 has no REDUCE_GRAD
by_pytorch_4    |0||$four| stage 0 has no REDUCE_GRAD
vee_in_order    |0||$vee| stage 0 has no REDUCE_GRAD
vee_in_order_pair|1|--semantics pair|$vee| deadlock under 'pair'
END
}

@test "parameters and gradients" {
    judge <<'END'
reduce_early    |1||0F0,0F1,0B0,0REDUCE_GRAD,0B1| rank 0, action 3: '0REDUCE_GRAD' comes before the last backward of its stage
reduce_before_W |1||0F0,0I0,0REDUCE_GRAD,0W0| rank 0, action 2: '0REDUCE_GRAD' comes before the last backward of its stage
reduce_twice    |1||0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD| rank 0, action 3: '0REDUCE_GRAD' appears a second time
reduce_elsewhere|1||0F0,0SEND_F0,0RECV_B0,0B0,1REDUCE_GRAD / 1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD| rank 0, action 4: '1REDUCE_GRAD' names a stage of another rank
reduce_missing  |0||0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD / 1RECV_F0,1F0,1B0,1SEND_B0| stage 1 has no REDUCE_GRAD
reduce_nowhere  |0||0UNSHARD,0F0,0B0,0RESHARD| stage 0 has no REDUCE_GRAD
never_resharded |1||0UNSHARD,0F0,0B0,0REDUCE_GRAD| rank 0: '0RESHARD' is missing
never_unsharded |1||0F0,0B0,0REDUCE_GRAD,0RESHARD| rank 0, action 3: '0RESHARD' lacks UNSHARD before it
unsharded_twice |1||0UNSHARD,0UNSHARD,0F0,0B0,0RESHARD| rank 0, action 1: '0UNSHARD' appears a second time without RESHARD between
resharded_early |1||0UNSHARD,0F0,0RESHARD,0B0,0REDUCE_GRAD| rank 0, action 3: '0B0' comes after RESHARD of its stage
unsharded_late  |1||0F0,0UNSHARD,0B0,0RESHARD| rank 0, action 1: '0UNSHARD' comes after its stage was used
unshard_other   |1||1UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0 / 1RECV_F0,1F0,1B0,1SEND_B0| rank 0, action 0: '1UNSHARD' names a stage of another rank
unshard_no_stage|1||7UNSHARD,0F0,0B0,7RESHARD| rank 0, action 0: '7UNSHARD' names a stage that does not exist
control_all     |0||0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0REDUCE_GRAD,0RESHARD|
control_reduce  |0||0F0,0B0,0REDUCE_GRAD|
END
}

@test "a limit in slots, which F opens and B or W closes" {
    local one='0F0,0F1,0I0,0F2,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3'
    printf '%s\n' "$one" >one.csv
    run --separate-stderr ppsched --check --csv one.csv --max-in-flight 3
    [ "$status" -eq 0 ]
    run --separate-stderr ppsched --check --csv one.csv --max-in-flight 2
    [ "$status" -eq 1 ]
    [ "$stderr" = "ppsched: rank 0 keeps 3 slots alive, 1 more than \
the limit of '2', first at '0F2' (action 3)" ]
    printf '0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n' >pair.csv
    run ppsched --csv pair.csv --stats
    jq -e '.peak == [2, 1]' <<<"$output"
    ppsched -p 2 -s gpipe -m 4 >plan.json
    run --separate-stderr ppsched --check --max-in-flight 3 plan.json
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"rank 0 keeps 4 slots alive, 1 more than the limit of '3', first at '0F3' "* ]]
}

@test "a file must have the placement of the manifest" {
    ppsched -p 2 -c 2 -s gpipe -m 2 -o loop.json
    ppsched -p 2 -c 2 --placement v -s gpipe -m 2 -o vee.json
    ppsched -p 2 -c 2 --placement v -s gpipe -m 2 --export csv -o vee.csv
    run --separate-stderr ppsched --check --csv vee.csv vee.json
    [ "$status" -eq 0 ]
    run --separate-stderr ppsched --check --csv vee.csv loop.json
    [ "$status" -eq 1 ]
    [ "${stderr_lines[0]}" = "ppsched: vee.csv:1:9: rank 0, action 2: '3F0' \
names a stage of another rank" ]
}

@test "--semantics all prints a verdict for each" {
    ppsched -p 4 -s 1f1b -m 8 -o plan.json
    run --separate-stderr ppsched --check --semantics all plan.json
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 7 ]
    [ "${lines[0]}" = "semantics   depth  verdict" ]
    [ "${lines[1]}" = "buffered        -  ok" ]
    [ "${lines[2]}" = "channel         1  ok" ]
    [ "${lines[6]}" = "blocking        0  ok" ]
    printf '%s\n%s\n' '0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1' \
        '1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1' >crossing.csv
    run --separate-stderr ppsched -q --check --semantics all --csv crossing.csv
    [ "$status" -eq 1 ]
    [ "${lines[3]}" = "rendezvous      0  ok" ]
    [[ "${lines[4]}" == "pair            0  deadlock under 'pair': rank 0 "* ]]
    run --separate-stderr ppsched --check --semantics all --depth 1 \
        --csv crossing.csv
    [ "$status" -eq 0 ]
    [ "${lines[5]}" = "rank            1  ok" ]
}

@test "options of reading and checking that do not go together" {
    for args in "--semantics pair" "--check --semantics nccl" \
        "--check --dialect old" "--check --lenient" \
        "--check --csv x.csv --dialect zb" "--check --dialect pytorch" \
        "-p 2 -s gpipe -m 2 --export csv --dialect no-wait" \
        "-p 2 -s gpipe -m 2 --export csv-comms --dialect old"; do
        # shellcheck disable=SC2086 # words
        run --separate-stderr ppsched $args </dev/null
        [ "$status" -eq 2 ]
        [[ "$stderr" == *"try 'ppsched --help'"* ]]
    done
}
