#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# rewards - reward models through the pipeline: the same bits for every split
# and schedule, the same gradients for every mesh and packing, and the rewards of
# --logprobs.

bats_require_minimum_version 1.5.0
load helpers

# The model is called llama for the helpers.
setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    jq '.architectures = ["LlamaForSequenceClassification"] |
        .id2label = {"0": "LABEL_0"}' model-llama/config.json >config
    mv config model-llama/config.json
    pairs 4 16 | jq -c 'del(.chosen.ref_logprobs, .rejected.ref_logprobs)' \
        >pairs.jsonl
    pppack -q -l 64 --bins-multiple 4 -o pairs pairs.jsonl
    pppack -q -l 200 -o pairs.wide pairs.jsonl
    pppack -q -l 96 --cp 4 --bins-multiple 2 -o pairs.parts pairs.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

REWARD=(--objective reward)

@test "every split and schedule gives the bits of one rank" {
    step one 1 1f1b pairs "${REWARD[@]}"
    jq -e '.accuracy > 0 and .accuracy < 1' one.log
    for kind in gpipe 1f1b zb-h1 interleaved dualpipev; do
        step two 2 $kind pairs "${REWARD[@]}"
        compare one.grads two.grads
        diff <(metrics one.log) <(metrics two.log)
    done
}

@test "every packing gives the same gradient, with padding or without" {
    local data
    [ "$(bins pairs)" -ne "$(bins pairs.wide)" ]
    step wide 1 1f1b pairs.wide --dtype fp64 "${REWARD[@]}"
    for data in pairs pairs.parts; do
        step packed 1 1f1b $data --dtype fp64 "${REWARD[@]}"
        "$BUILDDIR/tests/golden/compare_tensors" 1e-9 1e-7 packed.grads wide.grads
        jq -se '.[0].loss - .[1].loss | fabs < 1e-12' packed.log wide.log
    done
}

@test "any mesh, and slices, give the gradient of one rank" {
    local m
    m=$(bins pairs.parts)
    divided cp2 pairs.parts '-p 2 --cp 2' "$m" 1f1b -- "${REWARD[@]}"
    divided cp4 pairs.parts '-p 1 --cp 4 --cp-exchange ring' "$m" gpipe -- \
        "${REWARD[@]}"
    divided sliced pairs.parts '-p 2' "$m" 'seq1f1b --slices 3' -- "${REWARD[@]}"
    divided tp2 pairs.parts '-p 2 --tp 2 --cp 2' "$m" zb-h1 -- "${REWARD[@]}"
    divided tp4 pairs.parts '-p 1 --tp 4' "$m" gpipe -- "${REWARD[@]}"
    divided zero3 pairs.parts '-p 2 --dp 2 --zero 3 --tp 2 --recompute full' \
        "$((m / 2))" 1f1b -- "${REWARD[@]}"
    divided both pairs.parts \
        '-p 2 -c 2 --placement v --cp 2 --dp 2 --cp-exchange a2a' "$((m / 2))" \
        zbv -- "${REWARD[@]}"
}

@test "sequences with context ranks of their own give the gradient of one rank" {
    local sizes
    ppsplit -q -p 1 --cp 2 model-llama | ppsched -q -s gpipe -m 2 -o sized.plan
    pppack -q -l 96 --balance flops --manifest sized.plan --cp 2 \
        --cp-sizes per-sequence -o pairs.sized pairs.jsonl
    divided sized pairs.sized '-p 2 --cp 2' "$(bins pairs.sized)" 1f1b -- \
        "${REWARD[@]}"
    for sizes in one sized; do
        ppscore -q --data pairs.sized --init 1 --dtype fp64 --logprobs -o $sizes.scores \
            $sizes.plan
    done
    paste -d '\n' one.scores sized.scores | jq -se '[range(0; length; 2) as $i |
        [.[$i].rewards, .[$i + 1].rewards] | transpose[] |
        .[0] - .[1] | fabs < 1e-12] | length == 16 and all'
}

@test "ranks of an exact plan give the bits of one rank" {
    local m
    m=$(bins pairs.parts)
    ppsplit -q -p 2 --cp 2 --cp-exact model-llama |
        ppsched -q -s 1f1b -m "$m" >exact.plan
    step one 1 gpipe pairs.parts --row-invariant "${REWARD[@]}"
    pprun -q --data pairs.parts --init 1 --steps 1 --clip 0 --optimizer sgd \
        "${REWARD[@]}" exact.plan >exact.log
    diff <(metrics one.log | jq 'del(.grad_norm)') \
        <(metrics exact.log | jq 'del(.grad_norm)')
    ppscore -q --data pairs.parts --init 1 --logprobs -o one.scores --row-invariant \
        one.plan
    ppscore -q --data pairs.parts --init 1 --logprobs -o exact.scores exact.plan
    cmp one.scores exact.scores
}

@test "the loss follows from the rewards of --logprobs" {
    step two 2 1f1b pairs --dtype fp64 "${REWARD[@]}"
    ppscore -q --data pairs --init 1 --dtype fp64 --logprobs -o scores two.plan
    jq -se --slurpfile log two.log '
        map(.rewards | .[0] - .[1]) | $log[0] as $l |
        length == 8 and
        ((map(1 / (1 + (-. | exp)) | log | -.) | add / 8) - $l.loss | fabs) < 1e-12 and
        (add / 8 - $l.reward_margin | fabs) < 1e-12 and
        (map(select(. > 0)) | length) / 8 == $l.accuracy' scores
}

@test "--logprobs gives the rewards of one rank on any mesh" {
    local mesh m
    m=$(bins pairs.parts)
    step one 1 gpipe pairs.parts --dtype fp64 "${REWARD[@]}"
    ppscore -q --data pairs.parts --init 1 --dtype fp64 --logprobs -o one one.plan
    jq -se 'map(.sequence) == [range(8)] and all(.[]; .rewards | length == 2)' one
    for mesh in '--cp 2' '--tp 2' '--dp 2'; do
        # shellcheck disable=SC2086
        ppsplit -q -p 2 $mesh model-llama | ppsched -q -s 1f1b -m 3 |
            ppscore -q --data pairs.parts --init 1 --dtype fp64 --logprobs -o found
        paste -d '\n' one found | jq -se '[range(0; 16; 2) as $i |
            [.[$i].rewards, .[$i + 1].rewards] | transpose[] |
            .[0] - .[1] | fabs < 1e-12] | length == 16 and all'
    done
}

@test "documents and groups get a reward for each sequence" {
    local n
    step plan 1 gpipe pairs "${REWARD[@]}"
    ppscore -q --data pairs --init 1 --dtype fp64 --logprobs -o scores plan.plan
    jq -c '(.chosen, .rejected) as $side |
        {input_ids: (.prompt + $side.input_ids)}' pairs.jsonl >documents.jsonl
    jq -c '. as $pair | (.chosen, .rejected) | {prompt: $pair.prompt,
        response: .input_ids, group: ($pair | @base64)}' pairs.jsonl >groups.jsonl
    for n in documents groups; do
        pppack -q -l 64 -o $n $n.jsonl
        ppscore -q --data $n --init 1 --dtype fp64 --logprobs -o found plan.plan
        jq -se --slurpfile of scores '[map(.rewards[]), ($of | map(.rewards[]))] |
            transpose | length == 16 and all(.[]; .[0] - .[1] | fabs < 1e-12)' found
    done
    pppack -q -l 8 --oversize split -o pieces documents.jsonl
    run -2 --separate-stderr ppscore -q --data pieces --init 1 --logprobs plan.plan
    echo "$stderr"
    [[ $stderr == "ppscore: pieces: sequence '"*"' is in pieces, but has one reward; pack with a larger -l" ]]
}

@test "labels do not matter, and a sequence of one token has a reward" {
    jq -c '(.chosen, .rejected).labels = null | (.chosen, .rejected) |=
        (.labels = [.input_ids[] | -100])' pairs.jsonl >masked.jsonl
    pppack -q -l 64 --bins-multiple 4 -o masked masked.jsonl
    step one 1 gpipe pairs "${REWARD[@]}"
    step none 1 gpipe masked "${REWARD[@]}"
    compare one.grads none.grads
    echo '{"input_ids": [5]}' | pppack -q -l 8 -o single -
    ppscore -q --data single --init 1 --logprobs one.plan |
        jq -e '.rewards | length == 1 and .[0] != 0'
}

@test "the gradient is the slope of the loss" {
    step slope 1 1f1b pairs.wide --dtype fp64 "${REWARD[@]}" --lr 1e-8 --steps 2
    jq -se '(.[0].loss - .[1].loss) / 1e-8 / .[0].grad_norm / .[0].grad_norm - 1 |
        fabs < 1e-6' slope.log
}

@test "it learns to prefer the chosen ones, and saves a reward model" {
    step plan 2 1f1b pairs "${REWARD[@]}"
    pprun -q --data pairs --init 1 --steps 30 --lr 1e-2 "${REWARD[@]}" \
        --save saved plan.plan >learn.log
    tail -n 1 learn.log | jq -e '.accuracy == 1 and .loss < 0.1'
    jq -e '.architectures == ["LlamaForSequenceClassification"]' \
        saved/latest/config.json
    ppsplit -q -p 1 saved/latest | ppsched -q -s gpipe -m 4 >again.plan
    ppscore -q --data pairs --logprobs again.plan |
        jq -se 'length == 8 and all(.[]; .rewards[0] > .rewards[1])'
    ppscore -q --data pairs --eval pairs --weights saved/latest "${REWARD[@]}" \
        again.plan | jq -e '.val_loss < 0.1 and .val_accuracy == 1 and
            .val_reward_margin > 1 and .val_chosen_reward > .val_rejected_reward'
}

@test "it verifies, and takes the memory that the plans say" {
    local of
    ppsplit -q -p 2 model-llama |
        ppsched -q -s seq1f1b --slices 3 -m "$(bins pairs.parts)" >slices.plan
    ppsplit -q -p 2 --cp 2 --tp 2 model-llama |
        ppsched -q -s 1f1b -m "$(bins pairs.parts)" >parts.plan
    for of in slices parts; do
        pprun -q --verify --init 1 --data pairs.parts "${REWARD[@]}" $of.plan |
            grep -q '^the same: '
        pprun -q --verify --shrink --data pairs.parts "${REWARD[@]}" $of.plan |
            grep -q '^the same: '
        pprun --print-memory --data pairs.parts "${REWARD[@]}" $of.plan >need.json
        ppsched -q --data pairs.parts --stats "${REWARD[@]}" $of.plan |
            jq -e --slurpfile need need.json '.rank_bytes == [$need[0][].total]'
    done
    ppsplit -q -p 2 --cp 2 --tp 2 "${REWARD[@]}" model-llama \
        >parts.split
    jq -e '.stages | map(.units[]) | .[-1] == "score"' parts.split
}

@test "the plan has the step that the schedule has" {
    local step
    ppsplit -q -p 2 model-llama >two.split
    ppsplit -p 2 -m 8 -t model-llama | grep -o 'takes [0-9.e+]* flop' >split.step
    step=$(ppsched -q -s 1f1b -m 8 --stats two.split | jq .makespan)
    LC_ALL=C printf 'takes %.4g flop\n' "$step" | diff - split.step
}

@test "a reward model refuses what needs words" {
    local word
    step plan 1 gpipe pairs "${REWARD[@]}"
    refused() {
        run -2 --separate-stderr pprun --data pairs --init 1 "$@"
        echo "$stderr"
        [ "$output" = '' ]
    }
    refused --steps 1 plan.plan
    [ "$stderr" = "pprun: plan.plan: /model/architecture: \
'LlamaForSequenceClassification' gives rewards; run it with --objective reward or ppscore --logprobs" ]
    refused --steps 1 --objective dpo,reference-free plan.plan
    for word in '--generate 2' '--top-k 2' --entropy '--logprobs --temperature 2'; do
        # shellcheck disable=SC2086
        run -2 --separate-stderr ppscore -q --data pairs --init 1 $word plan.plan
        [[ $stderr == *"'LlamaForSequenceClassification' gives rewards and no words; run it without --"* ]]
    done
    refused --steps 1 --objective reward,beta=2 plan.plan
    [[ $stderr == *"reward has no setting 'beta'; it has none"* ]]
    pppack -q -l 64 -o documents <(echo '{"input_ids": [1, 2]}')
    run -2 --separate-stderr pprun --data documents --init 1 --steps 1 \
        "${REWARD[@]}" plan.plan
    [[ $stderr == *'documents: holds documents, and --objective reward needs pairs' ]]
    mkdir -p words
    jq '.architectures = ["LlamaForCausalLM"]' model-llama/config.json \
        >words/config.json
    ppsplit -q -p 1 words | ppsched -q -s gpipe -m 4 >words.plan
    refused --steps 1 "${REWARD[@]}" words.plan
    [[ $stderr == *"'LlamaForCausalLM' gives no rewards; --objective reward needs a model like LlamaForSequenceClassification" ]]
}

@test "a model with more labels, or a family without rewards, is refused" {
    mkdir -p labels
    labels() {
        jq "$1" model-llama/config.json >labels/config.json
        run -2 --separate-stderr ppsplit -q -p 1 labels
        echo "$stderr"
    }
    labels '.id2label = {"0": "a", "1": "b", "2": "c"}'
    [ "$stderr" = "ppsplit: labels/config.json: /id2label: '3' labels, but a \
reward is one number: load 'LlamaForSequenceClassification' with num_labels=1 and save it" ]
    labels 'del(.id2label)'
    [[ $stderr == *": '2' labels, but a reward is one number: "* ]]
    labels 'del(.id2label) | .num_labels = 1 |
        .architectures = ["GPT2ForSequenceClassification"]'
    [[ $stderr == *"'GPT2ForSequenceClassification'"* ]]
    jq 'del(.id2label) | .num_labels = 1 | .tie_word_embeddings = true' \
        model-llama/config.json >labels/config.json
    ppsplit -q -p 1 labels | jq -e '.model.tied == false'
}
