#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# generate - ppscore --generate: the same tokens on every mesh, with the
# log-probabilities and the frequencies of the model, and rollouts that train.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    data 4 9 | jq -c '{input_ids: .input_ids[:12]}' >prompts.jsonl
    pppack -q -l 32 -o prompts prompts.jsonl
    ppsplit -q -p 1 model-llama | ppsched -q -s gpipe -m 2 >one.json
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 3 >two.json
    ppsplit -q -p 2 model-llama | ppsched -q -s seq1f1b -m 3 --slices 2 >slices.json
    ppsplit -q --zero 0 -p 2 --dp 2 model-llama | ppsched -q -s 1f1b -m 2 >four.json
    ppsplit -q -p 2 --tp 2 model-llama | ppsched -q -s 1f1b -m 2 >words2.json
    ppsplit -q -p 1 --tp 4 model-llama | ppsched -q -s gpipe -m 2 >words4.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# generate DATA PLAN OPTION...
generate() {
    ppscore -q --data "$1" --init 1 --dtype fp64 --generate "${@:3}" "$2"
}

# scored OPTION...: adds what --logprobs says about the lines of `out`.
scored() {
    jq -c '{input_ids: (.prompt + .response)}' out >whole.jsonl
    pppack -q -l 64 -o whole whole.jsonl
    ppscore -q --data whole --init 1 --dtype fp64 --logprobs -o scores "$@" one.json
    paste out scores | jq -c --slurp '[range(0; length; 2) as $i |
        .[$i] + {scores: .[$i + 1]} | .n = (.prompt | length)][]' >both
}

@test "greedy tokens are the largest logits" {
    generate prompts one.json 6 >out
    [ "$(jq -s length out)" -eq 9 ]
    diff <(jq -c .prompt out) <(jq -c .input_ids prompts.jsonl)
    scored --top-k 1
    jq -es 'all(.[]; .n as $n | .response == [.scores.topk_ids[$n:][][0]] and
        ([.logprobs, .scores.logprobs[$n:]] | transpose | length == 6 and
            all(.[]; .[0] - .[1] | fabs < 1e-12)))' both
}

@test "every mesh draws the same tokens" {
    local plan
    generate prompts one.json 6 --sample 3 --temperature 1.5 >out
    for plan in two slices four words2 words4; do
        generate prompts $plan.json 6 --sample 3 --temperature 1.5 >other
        diff <(jq -c .response out) <(jq -c .response other)
        paste out other | jq -es '[range(0; length; 2) as $i | [.[$i], .[$i + 1]] |
            map(.logprobs) | transpose[] | .[0] - .[1] | fabs] | max < 1e-12'
    done
    scored --temperature 1.5
    jq -es 'all(.[]; .temperature == 1.5 and (.n as $n |
        [.logprobs, .scores.logprobs[$n:]] | transpose |
            all(.[]; .[0] - .[1] | fabs < 1e-12)))' both
    generate prompts one.json 6 --sample 4 --temperature 1.5 >other
    run ! diff <(jq -c .response out) <(jq -c .response other)
}

@test "samples have the frequencies of the model" {
    head -n 1 prompts.jsonl >same.jsonl
    for _ in $(seq 599); do head -n 1 prompts.jsonl; done >>same.jsonl
    pppack -q -l 4096 -o same same.jsonl
    generate same one.json 1 --sample 1 --temperature 0.2 >out
    generate same one.json 1 | head -n 1 |
        jq -c '{input_ids: (.prompt + .response)}' | pppack -q -l 64 -o whole
    ppscore -q --data whole --init 1 --dtype fp64 --temperature 0.2 --top-k 67 \
        --logprobs -o scores one.json
    # Chi-squared; tokens that are expected less than five times are one cell.
    jq -ne --slurpfile score scores --slurpfile lines out '
        [$lines[].response[0]] as $drawn | $score[0] |
        [.topk_ids[-1], (.topk_logits[-1] | map(exp) | add as $z |
            map(. / $z * 600))] | transpose |
        map([.[1], (.[0] as $id | [$drawn[] | select(. == $id)] | length)]) |
        map(select(.[0] >= 5)) + [[map(select(.[0] < 5)) | transpose[] | add]] |
        length as $cells | map(.[1] - .[0] | . * .) as $off |
        [$off, map(.[0])] | transpose | map(.[0] / .[1]) | add |
        if $cells > 8 and . < 3 * $cells then . else
            error("chi-squared of \($cells) cells is \(.)") end'
}

@test "a sequence ends with the stop token" {
    local stop
    generate prompts one.json 6 --sample 3 >out
    stop=$(jq -s '.[0].response[2]' out)
    generate prompts two.json 6 --sample 3 --stop-id "$stop" >ended
    paste out ended | jq -es --argjson stop "$stop" '
        [range(0; length; 2) as $i | .[$i].response as $all | .[$i + 1] |
            ($all | index($stop) // 5) as $last |
            .response == $all[:$last + 1] and
            (.logprobs | length) == (.response | length)] | all'
    jq -e --argjson stop "$stop" '.response | length <= 3 and .[-1] == $stop' \
        <(head -n 1 ended)
}

@test "generated rollouts train, and agree with the sampler" {
    local options=(--init 1 --dtype fp64 --temperature 0.8)
    jq -c '., .' prompts.jsonl | pppack -q -l 32 -o twice
    ppscore -q --data twice "${options[@]}" --generate 4 --sample 5 two.json |
        jq -c '.group = (.sequence / 2 | floor) | .rewards = (.response[0] % 7) |
            del(.sequence, .temperature)' >rollouts.jsonl
    pppack -q -l 96 --bins-multiple 2 -o once rollouts.jsonl
    ppscore -q --data once "${options[@]}" --logprobs -o scores two.json
    pppack -q -l 96 --bins-multiple 2 --advantages leave-one-out -o rollouts \
        --add-column prev_logprobs=scores rollouts.jsonl
    pprun -q --data rollouts "${options[@]}" --steps 1 \
        --objective grpo,kl=none two.json | jq -e '.gen_kl_error < 1e-12 and .grad_norm > 0 and
            (.probs_ratio_max - 1 | fabs < 1e-6)'
}

@test "a model without positions for all tokens is refused" {
    local n most=18
    n=$(jq -s 'map(.input_ids | length) | max' prompts.jsonl)
    [ "$n" -eq 12 ]
    mkdir model-dynamic
    jq --argjson most $most '.max_position_embeddings = $most |
        .rope_scaling = {type: "dynamic", factor: 2}' model-llama/config.json \
        >model-dynamic/config.json
    ppsplit -q -p 1 model-dynamic | ppsched -q -s gpipe -m 2 >dynamic.json
    generate prompts dynamic.json $((most - n)) >out
    run -2 --separate-stderr generate prompts dynamic.json $((most - n + 1))
    [[ $stderr == "ppscore: --generate: bin "*": sequence "*" has 12 tokens; with '7' more it is longer than the 18 positions of the model" ]]
}

@test "ranks that divide sequences draw the same tokens" {
    local mesh
    pppack -q -l 32 --cp 4 -o even prompts.jsonl
    generate even one.json 5 --sample 3 --temperature 1.5 >out
    for mesh in '-p 1 --cp 2' '-p 2 --cp 2 --cp-exchange ring' \
        '-p 1 --cp 4 --tp 2' '-p 1 --cp 2 --dp 2 --cp-exchange a2a'; do
        # shellcheck disable=SC2086
        ppsplit -q $mesh model-llama | ppsched -q -s gpipe -m 2 >parts.json
        generate even parts.json 5 --sample 3 --temperature 1.5 >other
        diff <(jq -c '[.prompt, .response]' out) \
            <(jq -c '[.prompt, .response]' other)
        paste out other | jq -es '[range(0; length; 2) as $i | [.[$i], .[$i + 1]] |
            map(.logprobs) | transpose[] | .[0] - .[1] | fabs] | max < 1e-12'
    done
}

@test "unknown tokens are refused" {
    run -2 --separate-stderr generate prompts one.json 3 --stop-id 67
    [ "$stderr" = "ppscore: --stop-id: '67' is not in the vocabulary of 67" ]
    run -2 --separate-stderr generate prompts one.json 3 --logprobs
    [[ $stderr == *'--logprobs'*'--generate'* ]]
}

@test "equal logits have the lowest ids first, whichever rank has them" {
    jq -nc '{input_ids: [range(12)]}' | pppack -q -l 64 --tp 4 -o few
    mkdir -p model-flat # in fp32 its weights are 0
    jq '.initializer_range = 1e-60' model-llama/config.json >model-flat/config.json
    jq '.model.source = "model-flat"' words4.json >flat.json
    ppscore -q flat.json --data few --init 1 --dtype fp32 --logprobs -o flat \
        --top-k 40 --entropy
    jq -e '.topk_ids[1:] == [range(11) | [range(40)]] and (.entropy[1:] |
        length == 11 and all(.[]; . - (67 | log) | fabs < 1e-6))' flat
    ppscore -q flat.json --data few --init 1 --dtype fp32 --generate 2 |
        jq -se '.[0].response == [0, 0]'
}
