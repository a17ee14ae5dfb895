#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsched --stats: times and memory.
bats_require_minimum_version 1.5.0

# run STATS: a jq filter that must be true for `ppsched ARGS --stats`.
holds() {
    run --separate-stderr ppsched "${@:2}" --stats
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    jq -e "$1" <<<"$output"
}

@test "--stats bounds the makespan from below" {
    holds '.lower_bound == 79 and .gap == 0 and .bound_rule == "rank work"' \
        -p 8 -s zb-h2 -m 24
    holds '.makespan == 93 and .lower_bound == 93' -p 8 -s 1f1b -m 24
    holds '.lower_bound == 257 and (.gap * 257 | round) == 15' \
        -p 4 -s zb-h1 -m 8 --cost 10,10,8,1
}

@test "the bound keeps to --memory" {
    holds '.lower_bound == 272 and .gap == 0 and .bound_rule == "event graph"' \
        -p 4 -s zb-h1 -m 8 --cost 10,10,8,1 --max-in-flight 4
    run --separate-stderr ppsched -p 4 -s zb-h1 -m 8 --max-in-flight 3 --stats
    [ "$status" -eq 1 ]
    [ -z "$output" ]
    [[ $stderr == *"keeps 4 slots alive, 1 more than the limit of '3', first at '0F3' (action 6)" ]]
}

@test "copies and slices have a bound too" {
    holds '.lower_bound <= .makespan and .bound_rule == "shared work"' \
        -p 4 -s dualpipe -m 12
    holds '.lower_bound == .makespan' -p 4 -s seq1f1b -m 8
}

@test "--reduce gives reductions a time" {
    # Rank 0 of 1f1b ends at 15, with the sum of its stage after that.
    holds '.makespan == 15' -p 2 -s 1f1b -m 4
    holds '.makespan == 18' -p 2 -s 1f1b -m 4 --reduce 3
    holds '.makespan == 15.5' -p 2 -s 1f1b -m 4 --reduce 0.5,2
    holds '.makespan == 31' -p 2 -c 2 -s interleaved -m 4 --reduce 2
    # shellcheck disable=SC2016 # jq's variables
    holds '.makespan as $m | .idle | all(.busy + .fill + .wait_forward +
        .wait_backward + .drain - $m | fabs < 1e-9)' \
        -p 2 -c 2 -s interleaved -m 4 --reduce 2
    run --separate-stderr ppsched -p 2 -s 1f1b -m 4 --reduce 1,2,3 --stats
    [ "$status" -eq 2 ]
    [[ $stderr == *"--reduce: '1,2,3' must be one time, or 2: one for each \
stage"* ]]
}

@test "GPUs reduce beside the last backward, CPUs after it" {
    jq -n '{architectures: ["LlamaForCausalLM"], model_type: "llama",
        hidden_size: 512, intermediate_size: 2048, num_attention_heads: 8,
        num_key_value_heads: 8, num_hidden_layers: 4, vocab_size: 1000,
        rms_norm_eps: 1e-5, hidden_act: "silu",
        max_position_embeddings: 4096, torch_dtype: "bfloat16"}' >"$BATS_TEST_TMPDIR/config.json"
    # longer KIND DEVICE CHUNKS: by how much a reduction of .1 ms makes a step
    # longer; a backward takes more.
    longer() {
        local by
        for by in 0 0.0001; do
            ppsplit -q -p 1 -c "$3" --dp 2 --device "$2" --flops 10T \
                --link 10GB "$BATS_TEST_TMPDIR/config.json" |
                ppsched -q -s "$1" -m 2 --reduce $by --stats |
                jq .at_depth.makespan
        done | jq -s '(.[1] - .[0]) / 0.0001'
    }
    jq -en "$(longer gpipe cpu 1) - 1 | fabs < 1e-6"
    # Nothing hides the embedding and the first layer, 26 % of the parameters.
    jq -en "$(longer gpipe cuda 1) | . > 0.26 and . < 0.27"
    # The reduction of a stage runs beside the backward of the stage before.
    jq -en "$(longer interleaved cpu 2) - 2 | fabs < 1e-6"
    jq -en "$(longer interleaved cuda 2) | . > 0.52 and . < 0.54"
    # W makes all gradients in one piece.
    jq -en "$(longer zb-h1 cuda 1) - 1 | fabs < 1e-6"
}

@test "busy and idle times add up to the makespan" {
    for kind in 1f1b zb-h1 eager-1f1b; do
        # shellcheck disable=SC2016 # jq's variables
        holds '.makespan as $m | .idle | length == 4 and all(.busy + .fill
            + .wait_forward + .wait_backward + .drain - $m | fabs < 1e-9)' \
            -p 4 -s $kind -m 8 --cost 3,2,1,0.5
    done
    holds '.idle[1] == {busy: 24, fill: 1, wait_forward: 0, wait_backward: 2,
        drain: 0}' -p 4 -s zb-h1 -m 8
}

@test "peaks come with the action that makes them" {
    holds '.peak == [4, 3, 2, 1]
        and .peak_action == ["0F3", "1F2", "2F1", "3F0"]' -p 4 -s 1f1b -m 8
}

@test "channels have the number and time of their messages" {
    holds '.channels == [
        {from: 0, to: 1, direction: "forward", messages: 4, time: 2},
        {from: 1, to: 0, direction: "backward", messages: 4, time: 2}]' \
        -p 2 -s 1f1b -m 4 --cost 1,1,1,0.5
}

@test "--overlap-cost is the time of a pair over the sum of its two" {
    # (p - 1)(FB + B - 3W) with FB = 0.8 * 3
    # shellcheck disable=SC2016 # jq's variables
    holds '.makespan as $m | [.idle[] | $m - .busy] | max - 3 * (2.4 + 2 - 3)
        | fabs < 1e-9' \
        -p 4 -c 2 --placement v -s dualpipev -m 10 --overlap-cost 0.8
    holds '.lower_bound <= .makespan' \
        -p 4 -c 2 --placement v -s dualpipev -m 10 --overlap-cost 0.8
    run --separate-stderr ppsched -p 2 -s 1f1b -m 2 --overlap-cost x --stats
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsched: --overlap-cost: 'x' is not a finite number" ]
}

@test "--data simulates each microbatch at its own size" {
    cd "$BATS_TEST_TMPDIR" || return 1
    mkdir model
    jq -n '{architectures: ["LlamaForCausalLM"], model_type: "llama",
        vocab_size: 64, hidden_size: 64, num_hidden_layers: 4,
        num_attention_heads: 4, num_key_value_heads: 4, intermediate_size: 128,
        hidden_act: "silu", max_position_embeddings: 4096, rms_norm_eps: 1e-5,
        rope_theta: 10000.0, tie_word_embeddings: false}' >model/config.json
    # Two bins of 64 tokens: one sequence, and four of 16.
    jq -nc '({input_ids: [range(64)]}, ({input_ids: [range(16)]}
        | (., ., ., .)))' >data.jsonl
    pppack -q -a next-fit -l 64 -o data data.jsonl
    ppsplit -q -p 2 model | ppsched -q -s gpipe -m 2 --data data -o plan.json
    ppsched --stats --data data plan.json >stats.json
    # Sequences of 64 have 2080 attended pairs, those of 16 have 136; forward
    # and backward take 3.5 times the flops of the forward.
    ppsched --stats --seq-len 64 plan.json >alike.json
    # shellcheck disable=SC2016 # jq's variables
    jq -se '.[0].stages as $stages | .[1].idle as $data | .[2].idle as $alike
        | range(2) | $alike[.].busy - $data[.].busy
            == 3.5 * $stages[.].fwd_flops[1] * (2080 - 4 * 136)' \
        plan.json stats.json alike.json
}

@test "--comm sets the time of a message, for all boundaries or for each" {
    cd "$BATS_TEST_TMPDIR"
    ppsched -s gpipe -p 4 -m 8 --cost 1,1,1,0.25 --stats >cost
    ppsched -s gpipe -p 4 -m 8 --comm 0.25 --stats | diff cost -
    ppsched -s gpipe -p 4 -m 8 --comm 0.25,0.25,0.25 --stats | diff cost -
    # The fill passes all boundaries down and up, so it adds twice their sum.
    run ppsched -s gpipe -p 4 -m 8 --comm 1,2,0.5 --stats
    [ "$(jq .makespan <<<"$output")" = 40 ]
    [ "$(jq .lower_bound <<<"$output")" = 40 ]
    run --separate-stderr ppsched -s gpipe -p 4 -m 8 --comm 1,2 --stats
    [ "$status" -eq 2 ]
    [[ "${stderr_lines[0]}" == "ppsched: --comm: '1,2' must be one time, or 3: one for each boundary between stages" ]]
    run --separate-stderr ppsched -s gpipe -p 4 -m 8 --comm 1,x,2 --stats
    [ "$status" -eq 2 ]
}
