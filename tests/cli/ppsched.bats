#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsched at the command line: its output and its errors.

bats_require_minimum_version 1.5.0

setup() { cd "$BATS_TEST_TMPDIR"; }

# fails STATUS PATTERN ARGS...: a message on stderr, nothing on stdout.
fails() {
    local want=$1 pattern=$2
    shift 2
    run --separate-stderr ppsched "$@" </dev/null
    [ "$status" -eq "$want" ]
    [ -z "$output" ]
    [[ "${stderr_lines[0]}" == "ppsched: "* ]]
    [[ "$stderr" == *"$pattern"* ]]
}

@test "a schedule is written and can be read again" {
    ppsched -p 4 -s 1f1b -m 8 >plan.json
    run --separate-stderr ppsched --check plan.json
    [ "$status" -eq 0 ]
    [ "$output" = "valid, canonical" ]
    [ -z "$stderr" ]
    run jq -r '.schedule.actions | length' plan.json
    [ "$output" = 4 ]
}

@test "-o writes the same bytes, and leaves no other file" {
    ppsched -p 2 -s gpipe -m 4 -o a.json
    ppsched -p 2 -s gpipe -m 4 -o b.json
    diff <(jq .schedule a.json) <(jq .schedule b.json)
    [ -z "$(find . -name "*.tmp")" ]
}

@test "--stats has the textbook figures" {
    run --separate-stderr ppsched -p 4 -c 2 -s interleaved -m 8 --stats
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    jq -e '.makespan == 57 and .peak == [11, 9, 7, 5]' <<<"$output"
    jq -e '.at_depth.depth == 1 and .messages == 112' <<<"$output"
}

@test "--depth auto takes the least depth at which no send delays the step" {
    plan=(-p 4 -c 2 -s looped-bfs -m 12 --cost '1,1,1' --comm 3)
    for depth in 1 2 3 4; do
        ppsched "${plan[@]}" --depth $depth --stats | jq .at_depth.makespan
    done >got
    [ "$(tr '\n' ' ' <got)" = '168 110 103 103 ' ]
    ppsched "${plan[@]}" --depth auto >plan.json
    [ "$(jq .schedule.channel_depth plan.json)" = 3 ]
    # A plan that has a depth, and a file of PyTorch's with its own messages.
    ppsched "${plan[@]}" >one.json
    ppsched --depth auto --cost 1,1,1 --comm 3 --stats one.json |
        jq -e '.at_depth | .depth == 3 and .makespan == 103'
    ppsched --export csv-comms plan.json >plan.csv
    ppsched --csv plan.csv --depth auto --cost 1,1,1 --comm 3 --stats |
        jq -e '.at_depth | .depth == 3 and .makespan == 103'
    ppsched --compare 1f1b,looped-bfs -p 4 -c 2 -m 12 --cost 2,2,2 --comm 3 \
        --depth auto | awk '$1 == "1f1b" && $3 == 1 { n++ }
            $1 == "looped-bfs" && $3 == 3 && $4 == 103 { n++ }
            END { exit n != 2 }'
    run --separate-stderr ppsched "${plan[@]}" --depth some
    [ "$status" -eq 2 ]
    [ "${stderr_lines[0]}" = "ppsched: --depth: 'some' is not an integer" ]
}

@test "--depth auto keeps to --memory, and says what that costs" {
    mkdir model
    printf '%s' '{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 8,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
        "rope_theta": 10000, "tie_word_embeddings": false}' >model/config.json
    ppsplit -q -p 4 -c 2 model >stages.json
    plan=(-s looped-bfs -m 12 --seq-len 128 --comm 3 --cost '1,1,1' stages.json)
    # A message is 32 KiB, and a rank sends on two channels.
    limit=13300000
    until ppsched "${plan[@]}" --depth 2 --memory ${limit}B --check 2>err; do
        limit=$((limit + 32768))
        [ $limit -lt 20000000 ]
    done
    run ! ppsched "${plan[@]}" --depth 3 --memory ${limit}B --check
    run --separate-stderr ppsched "${plan[@]}" --depth auto \
        --memory ${limit}B --stats
    [ "$status" -eq 0 ]
    [ "$stderr" = "ppsched: channel depth 2 is the largest that fits; without \
a limit the step takes 6.4% less" ]
    jq -e '.at_depth | .depth == 2 and .makespan == 110' <<<"$output"
    # If no depth fits, the error is that of the least.
    run --separate-stderr ppsched "${plan[@]}" --depth auto --memory 5M --check
    [ "$status" -eq 1 ]
    [[ "$stderr" == "ppsched: rank 0 needs 13.22 MiB, "* ]]
}

@test "kinds with split backward have the published figures" {
    run --separate-stderr ppsched -p 8 -s zb-h1 -m 24 --stats \
        --cost 18.522,18.086,9.337,0.601
    [ "$status" -eq 0 ]
    jq -e '(.span_bubble * 1e4 | round) == 1585' <<<"$output"
    run ppsched -p 4 -c 2 --placement v -s zbv -m 8 --stats
    jq -e '.makespan == 51 and .peak == [8, 8, 8, 8]' <<<"$output"
    run ppsched -p 4 -s zb-h2 -m 8 -t --ascii
    [[ "$output" == *"~~ input gradient"*"++ weight gradient"* ]]
}

@test "-t draws to scale" {
    run --separate-stderr ppsched -p 2 -s 1f1b -m 2 -t --ascii
    [ "$status" -eq 0 ]
    [[ "${lines[2]}" == "rank 0 |0-1-    0===  1===|  33.3%      2" ]]
    [[ "${lines[3]}" == "rank 1 |  0-0===1-1===    |  33.3%      1" ]]
}

@test "--list names the kinds" {
    run --separate-stderr ppsched --list
    [ "$status" -eq 0 ]
    [[ "$output" == *gpipe*1f1b*eager-1f1b*interleaved*looped-bfs* ]]
    [[ "$output" == *zb-h1*zb-h2*zb-interleaved*zbv*dualpipev* ]]
}

@test "an invalid schedule is status 1, with its place" {
    ppsched -p 2 -s 1f1b -m 2 >plan.json
    jq '.schedule.actions[1] |= sub("1F0 1RECV_F1 1B0"; "1RECV_F1 1B0 1F0")' plan.json >bad.json
    fails 1 "'1B0' comes before 1F0" --check bad.json
}

@test "a malformed cell is status 2" {
    ppsched -p 2 -s 1f1b -m 2 >plan.json
    jq '.schedule.actions[1] |= sub("1F0"; "1FX")' plan.json >bad.json
    fails 2 "'1FX'" --check bad.json
}

@test "options that do not fit are refused, with a value that would do" {
    fails 2 "'nosuch'" -p 2 -s nosuch -m 2
    fails 2 "-m: '0'" -p 2 -s 1f1b -m 0
    fails 2 "1 chunk per rank" -p 2 -c 2 -s 1f1b -m 4
    fails 2 "placement loop" -p 4 -c 2 --placement v -s interleaved -m 8
    fails 2 "; try --microbatches 16 or 18" -p 8 -c 2 -s interleaved -m 17
    fails 2 "; try --microbatches 16 or 18" -p 8 -c 2 -s zb-interleaved -m 17
    fails 2 "1 chunk per rank" -p 4 -c 2 -s zb-h1 -m 8
    fails 2 "2 chunks per rank and placement v" -p 4 --placement loop -s zbv -m 8
    fails 2 "; try --microbatches 8 or more" -p 4 -c 2 --placement v -s dualpipev -m 7
    fails 2 "--group needs -s interleaved" -p 4 -c 2 -s zb-interleaved -m 8 --group 4
    fails 2 "; try --group 7" -p 4 -c 2 -s interleaved -m 7 --group 4
    fails 1 "1 more than the limit of '3'" -p 4 -s 1f1b -m 8 --max-in-flight 3
}

@test "a full disk is status 3" {
    run --separate-stderr bash -c 'ppsched -p 2 -s 1f1b -m 2 >/dev/full'
    [ "$status" -eq 3 ]
    [[ "$stderr" == "ppsched: "* ]]
}

@test "an error in a schedule names its file" {
    ppsched -p 2 -s 1f1b -m 2 |
        jq '.schedule.actions[0] |= sub("0F0 "; "")' >late.json
    fails 1 "late.json: rank 0, action 0: '0SEND_F0' comes before 0F0" --check late.json
    run --separate-stderr ppsched --check <late.json
    [ "$stderr" = \
        "ppsched: standard input: rank 0, action 0: '0SEND_F0' comes before 0F0" ]
}

@test "input that cannot be read is status 2" {
    run --separate-stderr bash -c 'ppsched --check <&-'
    [ "$status" -eq 2 ]
    [ "$stderr" = 'ppsched: standard input: is closed' ]
    fails 2 '.: is a directory' --check .
}

@test "a schedule without time cannot be drawn" {
    run --separate-stderr ppsched -p 2 -s gpipe -m 2 --cost 0,0,0 -t
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "$stderr" = 'ppsched: no action takes time, so there is nothing to draw' ]
}

@test "-o writes into an existing pipe" {
    mkfifo pipe
    cat pipe >got &
    ppsched -p 2 -s gpipe -m 2 -o pipe
    wait
    [ -p pipe ]
    ppsched --check got
}

@test "the head computes its logits again in B, unless that follows its F" {
    cd "$BATS_TEST_TMPDIR"
    ppsplit -q -p 1 "$SRCDIR/tests/golden/llama/model" |
        ppsched -q -s gpipe -m 2 >plan.json
    ppsched --stats --seq-len 64 plan.json >stats.json
    jq -se '.[0] as $plan | .[1] as $stats | $plan.model.units
        | (map(select(.fqn == "lm_head").fwd_flops[0]) | add) as $head
        | (map(.fwd_flops[0]) | add - $head) as $products
        | (map(.fwd_flops[1]) | add) as $pairs
        | 2 * (64 * (3 * $products + 4 * $head) + 3.5 * 64 * 65 / 2 * $pairs)
        | . > 0 and $head > 0 and . == $stats.makespan' plan.json stats.json
    for kind in gpipe 1f1b zb-h1; do
        ppsplit -q -p 2 --layers 2,2 "$SRCDIR/tests/golden/llama/model" |
            ppsched -q -s $kind -m 2 | tee plan.json |
            ppsched --stats --seq-len 64
    done >both.json
    jq -se '.[0].model.units[-1].fwd_flops[0] as $head
        | [.[1, 2, 3].idle[1].busy] | .[0] - .[1] == 2 * 64 * $head and
            .[1] == .[2]' plan.json both.json
}
