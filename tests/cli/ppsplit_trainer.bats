#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit --trainer: plans for other systems.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    llama 6 16000 | jq '. + {torch_dtype: "bfloat16"}' >model.json
}

# experts: prints a configuration with 32 experts a layer.
experts() {
    llama 6 16000 | jq '. + {architectures: ["Qwen3MoeForCausalLM"],
        model_type: "qwen3_moe", num_experts: 32, num_experts_per_tok: 4,
        moe_intermediate_size: 512, mlp_only_layers: [],
        torch_dtype: "bfloat16", decoder_sparse_step: 1,
        norm_topk_prob: true, use_sliding_window: false, sliding_window: null}'
}

@test "ppsplit and ppsched agree about step and memory" {
    experts >experts.json
    for how in 'model.json -p 2' 'model.json -p 2 --tp 2 --dp 2' \
        'model.json -p 2 --cp 2 --dp 2 --recompute full' \
        'experts.json -p 2 --ep 4 --dp 4 --recompute selective' \
        'experts.json -p 2 --tp 2 --ep 4 --dp 2 --experts-over-tp'; do
        # shellcheck disable=SC2086 # options
        ppsplit --trainer megatron --gpu h100 -m 4 $how -t --json |
            jq -c '[.step_seconds, .memory]' >split.json
        # shellcheck disable=SC2086
        ppsplit --trainer megatron --gpu h100 -m 4 $how 2>err >plan.json
        [ ! -s err ]
        ppsched -s 1f1b -m 4 --stats plan.json | jq -c '[.step, .memory]' >sched.json
        diff split.json sched.json
    done
    jq -e '.model.trainer == "megatron"' plan.json
    # A table of the plan has the same.
    ppsplit -t --json -m 4 plan.json | jq -c .memory >table.json
    jq -c '.[1]' split.json | diff - table.json
    ppsplit --gpu h100 -m 4 model.json -p 2 -t --json | jq .memory >own
    ppsplit --gpu h100 -m 4 model.json -p 2 -t --json --trainer pprun |
        jq .memory | diff - own
}

@test "other trainers keep less" {
    for t in pprun megatron; do
        ppsplit --gpu h100 -p 2 --tp 2 --dp 2 -m 8 -t --json --trainer $t \
            model.json >$t
    done
    jq -ne --slurpfile a pprun --slurpfile b megatron \
        '$b[0].memory[0].activations < $a[0].memory[0].activations'
}

@test "tensor-parallel ranks wait for their exchanges" {
    # For each of six layers 4 in F, 4 in I and 4 in W, of which B has two once;
    # two of the embedding; and two of the head, or three if B makes its logits
    # again. Megatron-LM has 4, 4 and 2 for a layer.
    for case in '64 pprun 1f1b' '65 pprun gpipe' \
        '65 megatron 1f1b'; do
        read -r want trainer kind <<<"$case"
        for rate in 1e9 2e9; do
            jq -n "{gpu: \"h100\", levels: [{bandwidth: $rate, latency: 0}]}" \
                >machine.json
            ppsplit -q --machine machine.json --memory 1T -p 1 --tp 2 -s $kind \
                -m 4 --trainer $trainer -t --json model.json
        done >steps
        # Half of 2048 rows of 1024 in bf16, for four microbatches.
        jq -se --argjson n $want '(.[0].step_seconds - .[1].step_seconds) /
            (4 * 2048 * 1024 * (1e-9 - 0.5e-9)) - $n | fabs < 1e-6' steps
    done
}

@test "Megatron-LM may have gradients and moments in bf16" {
    # Bytes of a parameter: gradients, and the state that four ranks divide, of
    # master weights, of which narrow moments leave half, and two moments.
    params=$(ppsplit -q -p 1 model.json | jq '[.model.units[].params] | add')
    for case in "bf16 4 12" "bf16-grads 2 12" "bf16-moments 4 6" \
        "bf16-state 2 6"; do
        read -r type gradients state <<<"$case"
        ppsplit -q -p 1 --dp 4 -m 4 --gpu h100 --trainer megatron --dtype "$type" \
            model.json | ppsched -q -s 1f1b -m 4 >plan.json
        ppsched --stats plan.json >stats.json
        ppsplit -t --json plan.json >table.json
        echo "$case"
        # The update moves gradients four times and state twice, and makes weights
        # of master weights unless AdamW has made them.
        jq -e --argjson n "$params" --argjson g "$gradients" --argjson s "$state" \
            --slurpfile stats stats.json --slurpfile plan plan.json '
            def is(a; b): (a - b) / b | fabs < 1e-3;
            (4 * $g + 2 * $s + 2 + (if $s == 12 then 4 else 0 end)) as $update |
            .memory[0] as $m | is($m.gradients; $n * $g) and
            is($m.optimizer; $n * $s / 4) and is($m.weights; $n * 2) and
            is($plan[0].profile.step.seconds_per_param; $update / 2.9e12) and
            .step_seconds == $stats[0].step and
            $m.gradients == $stats[0].memory[0].gradients' table.json
        jq -r .step_seconds table.json >>steps
        jq .at_depth.makespan stats.json >"$type"
    done
    # Nothing hides the reduction of the last bucket, of 40 million gradients.
    jq -en --slurpfile a bf16 --slurpfile b bf16-grads \
        '($a[0] - $b[0]) / (40e6 * 2 * 3 / 4 / 365e9) - 1 | fabs < 1e-3'
    # Less to move takes less time.
    [ "$(sort -rg steps | uniq | wc -l)" -eq 4 ]
    [ "$(sort -g steps | head -1)" = "$(tail -1 steps)" ]
    refuses "--dtype bf16-state: pprun has gradients and moments in fp32; give \
--trainer megatron" -p 1 --dtype bf16-state model.json
}

@test "a trainer refuses what it does not take" {
    m="--trainer megatron -p 2 model.json"
    # shellcheck disable=SC2086 # options
    {
        refuses "megatron has no schedule 'zbv'; try --schedule 1f1b" \
            $m -s zbv
        refuses "megatron has no schedule 'auto'; try --schedule 1f1b" \
            $m -s auto
        refuses "megatron does not divide state as ZeRO-3 does; try --zero 1" \
            $m --dp 2 --zero 3
        refuses "the memory of megatron is known for bf16 alone; try --dtype bf16" \
            $m --dtype fp32
        refuses "the memory of megatron is known for GPUs alone; try --device cuda" \
            $m --device cpu
        refuses "--recompute: 'full,none', but all stages of megatron have one mode" \
            $m --recompute full,none
        ppsplit $m >plan.json
    }
    run --separate-stderr ppsched -s zb-h1 -m 4 plan.json
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsched: megatron has no schedule 'zb-h1'; try --schedule 1f1b" ]
    run --separate-stderr bash -c 'ppsched -s 1f1b -m 4 plan.json |
        pprun --data nothing --steps 1'
    [ "$status" -eq 2 ]
    [[ $stderr == *"/model/trainer: the plan is for 'megatron'; plan without ppsplit --trainer"* ]]
    jq '.model.trainer = "nemo"' plan.json >other.json
    run --separate-stderr ppsched -s 1f1b -m 4 other.json
    [ "$status" -eq 2 ]
    [[ $stderr == *"/model/trainer: 'nemo' is not a known trainer" ]]
}

@test "--compare says which kinds a trainer lacks" {
    ppsplit --trainer megatron -p 2 -m 4 --compare 1f1b,zbv model.json >table.json
    grep -q '^zbv  *cannot run: megatron has no schedule' table.json
    grep -q '^1f1b .*best' table.json
}

@test "--recompute auto takes one mode for all stages" {
    need() {
        ppsplit --trainer megatron -p 2 -m 4 --seq-len 32768 -t --json "$@" \
            model.json | jq '[.memory[].total] | max'
    }
    all=$(need)
    none=$(need --recompute full)
    [ "$none" -lt "$all" ]
    ppsplit --trainer megatron -p 2 -m 4 --seq-len 32768 --recompute auto \
        --memory $(((all + none) / 2)) model.json |
        jq -e '[.stages[].recompute] == ["full", "full"]'
}

@test "a plan that does not fit names the largest part, and a limit of experts" {
    experts >experts.json
    # least OPTION...: prints the bytes with which a plan fits.
    least() {
        ppsplit -p 2 --ep 16 --dp 16 --memory 500MiB "$@" experts.json 2>&1 |
            sed -n 's/.*; \([0-9]*\) bytes.*/\1/p' |
            awk '{ print $1 + 500 * 1024 * 1024 }'
    }
    even=$(least --expert-limit 1)
    [ "$even" -lt "$(least)" ]
    run --separate-stderr ppsplit -p 2 --ep 16 --dp 16 --memory "$even" experts.json
    [ "$status" -eq 1 ]
    [[ $stderr == *' (activations '*' MiB), '*': it would fit with --expert-limit 1, or '* ]]
    ppsplit -p 2 --ep 16 --dp 16 --memory "$even" --expert-limit 1 \
        experts.json >plan.json
}

@test "torchtitan divides weights by itself, and takes any order" {
    ppsplit --trainer torchtitan -p 2 --dp 2 -m 4 --gpu h100 model.json >plan.json
    jq -e '.mesh.zero == 3 and .model.trainer == "torchtitan"' plan.json
    ppsched -s zb-h1 -m 4 --stats plan.json |
        jq -e '[.memory[] | .total > 0 and .messages < 1000] | all'
    refuses "torchtitan does not divide state as ZeRO-1 does; try --zero 3" \
        --trainer torchtitan -p 2 --dp 2 --zero 1 model.json
    refuses "torchtitan has no schedule 'dualpipe'; try --schedule 1f1b" \
        --trainer torchtitan -p 2 -m 4 -s dualpipe --placement both-ways \
        model.json
    for how in '-s 1f1b' '-s zbv -c 2 --placement v'; do
        # shellcheck disable=SC2086 # options
        ppsplit --trainer torchtitan -p 2 --dp 2 -m 4 --gpu h100 $how \
            -t --json model.json | jq -c '[.step_seconds, .memory]' >split.json
        # shellcheck disable=SC2086
        ppsplit --trainer torchtitan -p 2 --dp 2 -m 4 --gpu h100 $how model.json |
            ppsched ${how%%-c*} -m 4 --stats | jq -c '[.step, .memory]' |
            diff split.json -
    done
}

@test "deepspeed has one schedule, and waits for its exchanges" {
    refuses "--recompute: deepspeed has 'none' and 'full'" \
        --trainer deepspeed -p 2 --recompute selective model.json
    refuses "deepspeed has no context-parallel ranks; try --cp 1" \
        --trainer deepspeed -p 2 --cp 2 model.json
    step() {
        ppsplit --trainer "$1" -p 2 --dp 16 -m 4 --gpu h100 -t --json \
            --layers 3,3 model.json | jq .step_seconds
    }
    holds "$(step deepspeed) > $(step megatron)"
}
