#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# objective_gradients - compares the loss and every gradient of DPO, GRPO,
# distillation and reward models with PyTorch and transformers, packed and
# through two stages. scripts/gen-objectives wrote the expected values, with the
# options below.

bats_require_minimum_version 1.5.0

GRPO=(--objective 'grpo,clip-low=0.2,clip-high=0.3,importance=tis'
    --objective 'grpo,importance-max=1.2,kl-weight=0.3,kl-limit=1e9,kl-clamp=1e9'
    --objective 'grpo,entropy-weight=0.1' --temperature 0.8)
DPO=(--objective 'dpo,beta=0.7,label-smoothing=0.1,sft-weight=0.2')
ROBUST=("${DPO[@]}" --objective 'dpo,preference-loss=robust,sft-aggregate=token-mean')

setup() {
    GOLDEN=$SRCDIR/tests/golden/objectives
    cd "$BATS_TEST_TMPDIR"
}

# gradients NAME CAPACITY OPTION...: one step of MODEL over all sequences, with
# the columns that ADD adds.
gradients() {
    local name=$1 bins
    bins=$(pppack -l "$2" --stats "$GOLDEN/$name.jsonl" | jq .bins)
    [ "$bins" -gt 1 ]
    pppack -q -l "$2" -o packed "${ADD[@]}" "$GOLDEN/$name.jsonl"
    local model=${MODEL:-$GOLDEN/model}
    ppsplit -q -p 2 "$model" | ppsched -q -s 1f1b -m "$bins" >plan.json
    pprun -q --data packed --weights "$model" --steps 1 --clip 0 \
        --optimizer sgd --dump-grads grads.safetensors "${@:3}" plan.json \
        >steps.jsonl
}

# agrees NAME LOSS GRADIENT: compares with PyTorch; relative bounds.
agrees() {
    jq -se --arg name "$1" --argjson bound "$2" '.[0].loss / .[1].losses[$name]
        - 1 | fabs < $bound' steps.jsonl "$GOLDEN/expected.json" || return
    "$BUILDDIR/tests/golden/compare_tensors" "$3" 0 grads.safetensors \
        "$GOLDEN/$1.safetensors"
}

@test "grpo: the loss and every gradient, fp64" {
    gradients grpo 48 --dtype fp64 "${GRPO[@]}"
    agrees grpo 1e-9 1e-6
}

# policy NAME CAPACITY OPTION...: one step over the rollouts, as NAME.jsonl and
# NAME.safetensors. Prints the bins.
policy() {
    local bins
    pppack -q -l "$2" -o packed "$GOLDEN/grpo.jsonl"
    bins=$(pppack --stats packed | jq .bins)
    ppsplit -q -p 2 "$GOLDEN/model" | ppsched -q -s 1f1b -m "$bins" >plan.json
    pprun -q --data packed --weights "$GOLDEN/model" --steps 1 --clip 0 \
        --optimizer sgd --dtype fp64 --dump-grads "$1.safetensors" "${GRPO[@]}" \
        "${@:3}" plan.json >"$1.jsonl"
    echo "$bins"
}

@test "grpo: groups in several bins have the loss and the gradients of one bin" {
    local options
    for options in '--objective grpo,ratio=sequence,importance=none,aggregate=seq-mean-sum' \
        '--objective grpo,importance=sequence-mask,aggregate=seq-mean-mean' ''; do
        # shellcheck disable=SC2086
        [ "$(policy whole 96 $options)" = 1 ]
        # shellcheck disable=SC2086
        [ "$(policy cut 13 $options)" -ge 8 ]
        jq -se '.[0].loss / .[1].loss - 1 | fabs < 1e-12' whole.jsonl cut.jsonl
        "$BUILDDIR/tests/golden/compare_tensors" 1e-12 1e-18 cut.safetensors \
            whole.safetensors
    done
    # The comparison sees other counts, of a step without the last bin.
    ppsplit -q -p 2 "$GOLDEN/model" | ppsched -q -s 1f1b -m 7 >plan.json
    pprun -q --data packed --weights "$GOLDEN/model" --steps 1 --clip 0 \
        --optimizer sgd --dtype fp64 --dump-grads cut.safetensors "${GRPO[@]}" \
        plan.json >cut.jsonl
    run -1 "$BUILDDIR/tests/golden/compare_tensors" 1e-12 1e-18 \
        cut.safetensors whole.safetensors
}

@test "dpo: the loss and every gradient, fp64" {
    gradients dpo 32 --dtype fp64 "${DPO[@]}"
    agrees dpo 1e-9 1e-6
}

@test "robust dpo, and its own loss over tokens, as in TRL" {
    gradients dpo 32 --dtype fp64 "${ROBUST[@]}"
    agrees robust 1e-9 1e-6
    gradients dpo 32 --dtype fp64 "${DPO[@]}" \
        --objective dpo,preference-loss=robust,preset=trl
    agrees robust 1e-9 1e-6
    run -2 --separate-stderr pprun -q --data packed --weights "$GOLDEN/model" \
        --steps 1 "${ROBUST[@]}" --objective dpo,label-smoothing=.5 plan.json
    [[ $stderr == *"label-smoothing '0.5' must be below 0.5 with "* ]]
}

@test "sequence ratios, CISPO and a dual clip: the loss and every gradient" {
    local base=(--objective 'grpo,kl=none' --temperature 0.8 --dtype fp64)
    local sequence=("${base[@]}" --objective
        'grpo,ratio=sequence,clip-low=0.05,clip-high=0.05,aggregate=seq-mean-mean')
    gradients grpo 48 "${sequence[@]}"
    agrees gspo 1e-9 1e-6
    # The divergence is weighed by the ratio of the sequence.
    gradients grpo 48 "${sequence[@]}" \
        --objective grpo,kl=k3,kl-weight=.3,kl-importance=previous
    agrees gspo-kl 1e-9 1e-6
    gradients grpo 48 "${sequence[@]}" --objective grpo,kl=k3,kl-weight=.3
    run -1 agrees gspo-kl 1e-9 1e-4
    gradients grpo 48 "${base[@]}" --objective grpo,policy-loss=cispo,clip-high=0.25
    agrees cispo 1e-9 1e-6
    gradients grpo 48 "${base[@]}" --objective grpo,dual-clip=1.15
    agrees dual 1e-9 1e-6
    # Each differs from the others and from other limits.
    run -1 agrees cispo 1e-9 1e-4
    gradients grpo 48 "${base[@]}" --objective grpo,dual-clip=1.16
    run -1 agrees dual 1e-9 1e-4
    gradients grpo 48 "${base[@]}" --objective grpo,policy-loss=cispo
    run -1 agrees cispo 1e-9 1e-4
    gradients grpo 48 "${sequence[@]}" --objective grpo,clip-high=0.06
    run -1 agrees gspo 1e-9 1e-4
}

@test "grpo and dpo: the loss and every gradient, fp32" {
    gradients grpo 48 "${GRPO[@]}"
    agrees grpo 1e-5 1e-4
    gradients dpo 32 "${DPO[@]}"
    agrees dpo 1e-5 1e-4
}

@test "distillation: the loss and every gradient" {
    ADD=(--add-column "topk=$GOLDEN/teacher.jsonl")
    gradients distill 16 --dtype fp64 --objective distill --temperature 1.5
    agrees distill 1e-9 1e-6
    gradients distill 16 --objective distill --temperature 1.5
    agrees distill 1e-5 1e-4
    gradients distill 16 --dtype fp64 --objective distill --temperature 1.51
    run -1 agrees distill 1e-9 1e-4
    gradients distill 16 --dtype fp64 --temperature 1.5
    run -1 agrees distill 1e-9 1e-4
}

@test "distillation of a student that caps its logits" {
    local MODEL=$SRCDIR/tests/golden/gemma2/model
    ADD=(--add-column topk="$GOLDEN/teacher.jsonl")
    gradients distill 16 --dtype fp64 --objective distill --temperature 1.5
    agrees distill-gemma2 1e-9 1e-6
    gradients distill 16 --objective distill --temperature 1.5
    agrees distill-gemma2 1e-5 1e-4
    mkdir uncapped
    cp "$MODEL/model.safetensors" uncapped
    jq '.final_logit_softcapping = 2.01' "$MODEL/config.json" \
        >uncapped/config.json
    MODEL=uncapped
    gradients distill 16 --dtype fp64 --objective distill --temperature 1.5
    run -1 agrees distill-gemma2 1e-9 1e-4
}

# rewards FAMILY TYPE LOSS GRADIENT SCORE: trains a reward model and scores with
# it; compares with PyTorch.
rewards() {
    local of=reward-$1
    pppack -q -l 32 -o packed "$GOLDEN/reward.jsonl"
    ppsplit -q -p 2 "$GOLDEN/$of" | ppsched -q -s 1f1b -m 3 >plan.json
    pprun -q --data packed --weights "$GOLDEN/$of" --steps 1 --clip 0 \
        --optimizer sgd --dtype "$2" --objective reward \
        --dump-grads grads.safetensors plan.json >steps.jsonl
    ppscore -q --data packed --weights "$GOLDEN/$of" --dtype "$2" \
        --logprobs -o found plan.json
    jq -se --arg of "$of" --argjson bound "$3" '.[0].losses[$of] as $loss |
        .[1].loss / $loss - 1 | fabs < $bound' "$GOLDEN/expected.json" steps.jsonl
    jq -se --arg of "$of" --argjson bound "$5" '[.[0].rewards[$of],
        [.[1:][].rewards[]]] | transpose | length == 14 and
        all(.[]; .[0] - .[1] | fabs < $bound)' "$GOLDEN/expected.json" found
    "$BUILDDIR/tests/golden/compare_tensors" "$4" 1e-12 grads.safetensors \
        "$GOLDEN/$of/gradient.safetensors"
}

@test "reward models: the loss, every reward and every gradient, fp64" {
    local family
    for family in llama qwen2 mistral qwen3 smollm3 qwen2_moe qwen3_moe; do
        rewards $family fp64 1e-9 1e-6 1e-9
    done
    # The comparison sees rewards of other tokens: of prompts alone.
    jq -c '.chosen |= .[:1]' "$GOLDEN/reward.jsonl" >cut.jsonl
    pppack -q -l 32 -o packed cut.jsonl
    pprun -q --data packed --weights "$GOLDEN/reward-$family" --steps 1 \
        --clip 0 --optimizer sgd --dtype fp64 --objective reward \
        --dump-grads grads.safetensors plan.json >steps.jsonl
    run -1 agrees "reward-$family" 1e-9 1e-6
}

@test "reward models: the loss and every gradient, fp32" {
    rewards llama fp32 1e-5 1e-4 1e-5
    rewards qwen2 fp32 1e-5 1e-4 1e-5
    rewards mistral fp32 1e-5 1e-4 1e-5
}

# scores SPLIT CP SCHED OPTION...: scores the rollouts, and compares with PyTorch.
scores() {
    # shellcheck disable=SC2086
    ppsplit -q --zero 0 $1 --cp "$2" "$GOLDEN/model" | ppsched -q $3 -m 2 >plan.json
    pppack -q -l 96 --cp "$2" -o packed "$GOLDEN/grpo.jsonl"
    ppscore -q --data packed --weights "$GOLDEN/model" --dtype fp64 --top-k 5 \
        --entropy --logprobs -o lines "${@:4}" plan.json
    # A line has the sequences of a group.
    jq -s '[.[] | to_entries | map(.value |= if type == "array" then . else [] end) |
            from_entries] | {
        logprobs: map(.logprobs[]), entropy: map(.entropy[]),
        topk_ids: map(.topk_ids[]), topk_logits: map(.topk_logits[])}' \
        lines >found.json
    jq -s '{logprobs: map(.logprobs[]), entropy: map(.entropy[]),
        topk_ids: map(.topk_ids[]), topk_logits: map(.topk_logits[])}' \
        "$GOLDEN/scores.jsonl" >wanted.json
    jq -es '.[0] as $found | .[1] | to_entries[] | .key as $name |
        [[.value, $found[$name]] | map(flatten) | transpose[] |
            .[0] - .[1] | fabs] | max |
        if . < 1e-9 then . else error("\($name) is off by \(.)") end' \
        found.json wanted.json >off || return
    jq -es '.[0].topk_ids == .[1].topk_ids and
        (.[0].topk_ids | map(length) | unique) == [0, 5]' found.json wanted.json
}

@test "--logprobs: entropies and the largest logits, on any mesh" {
    scores '-p 1' 1 '-s gpipe' --temperature 0.8
    scores '-p 2' 1 '-s 1f1b --slices 1' --temperature 0.8
    scores '-p 2' 1 '-s seq1f1b --slices 3' --temperature 0.8
    scores '-p 2 --dp 2' 2 '-s 1f1b' --temperature 0.8
    run ! scores '-p 1' 1 '-s gpipe'
    [[ $output == *'entropy is off by'* || $output == *'logprobs is off by'* ]]
    run -2 --separate-stderr ppscore --data packed --weights "$GOLDEN/model" \
        --logprobs --top-k 99 plan.json
    [ "$stderr" = "ppscore: --top-k: '99' is more than the vocabulary of 32" ]
}

@test "the comparison sees every option" {
    local without
    local o='--objective grpo'
    for without in "$o,clip-low=0.1" "$o,clip-high=0.4" "$o,importance-max=1.3" \
        "$o,kl-weight=0.31" "$o,kl-importance=none" "$o,kl=k2" \
        "$o,entropy-weight=0" "$o,aggregate=seq-mean-mean" '--temperature 1' \
        '--temperature 0.81'; do
        # The last of an option counts.
        # shellcheck disable=SC2086
        gradients grpo 48 --dtype fp64 "${GRPO[@]}" $without
        run -1 agrees grpo 1e-9 1e-4
    done
    o='--objective dpo'
    for without in "$o,beta=0.71" "$o,label-smoothing=0" "$o,sft-weight=0.1" \
        "$o,sft-aggregate=seq-mean-mean" "$o,reference-free" \
        "$o,average-logprobs"; do
        # shellcheck disable=SC2086
        gradients dpo 32 --dtype fp64 "${DPO[@]}" $without
        run -1 agrees dpo 1e-9 1e-4
    done
    for without in "$o,sft-aggregate=seq-mean-sum" "$o,preference-loss=sigmoid"; do
        # shellcheck disable=SC2086
        gradients dpo 32 --dtype fp64 "${ROBUST[@]}" $without
        run -1 agrees robust 1e-9 1e-4
    done
}

@test "the comparison sees exchanged columns" {
    local sed
    for sed in 's/"prev_logprobs"/"x"/; s/"logprobs"/"prev_logprobs"/; s/"x"/"logprobs"/' \
        's/"ref_logprobs"/"x"/; s/"logprobs"/"ref_logprobs"/; s/"x"/"logprobs"/'; do
        sed "$sed" "$GOLDEN/grpo.jsonl" >exchanged.jsonl
        pppack -q -l 200 -o packed exchanged.jsonl
        ppsplit -q -p 1 "$GOLDEN/model" | ppsched -q -s 1f1b -m 1 >plan.json
        pprun -q --data packed --weights "$GOLDEN/model" --steps 1 --clip 0 \
            --dtype fp64 --optimizer sgd --dump-grads grads.safetensors \
            "${GRPO[@]}" plan.json >steps.jsonl
        run -1 agrees grpo 1e-9 1e-4
    done
}
