#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit and the rules of Megatron-LM, torchtitan, DeepSpeed and ColossalAI, and
# plans in the forms of these systems.

bats_require_minimum_version 1.5.0
load split_helpers

# config LAYERS: writes a config.json without weights into the directory m.
config() {
    mkdir -p m
    cat >m/config.json <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": $1,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
 "vocab_size": 1000, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "hidden_act": "silu", "max_position_embeddings": 2048,
 "tie_word_embeddings": false}
END
}

setup() {
    cd "$BATS_TEST_TMPDIR"
    config 8
}

# export_as FORM ARGS...: prints the plan of m in that form.
export_as() {
    local form=$1
    shift
    ppsplit --export "$form" "$@" m
}

# fails STATUS MESSAGE ARGS...: passes if ppsplit prints only this message, and a
# hint to --help if usage is wrong.
fails() {
    local want=$1 message=$2
    shift 2
    run --separate-stderr ppsplit "$@"
    echo "status $status, stderr: $stderr"
    [ "$status" -eq "$want" ]
    [ -z "$output" ]
    [ "${stderr_lines[0]}" = "ppsplit: $message" ]
    [ "${#stderr_lines[@]}" -eq 1 ] ||
        [ "${stderr_lines[1]}" = "try 'ppsplit --help'" ]
}

@test "a Megatron layout gives layers, stages and chunks" {
    [ "$(layers -p 2 --layout 'Et|t*4|t|ttL')" = '[1,4,1,2]' ]
    [ "$(layers -p 4 -c 1 --layout 'Et|t*4|t|ttL')" = '[1,4,1,2]' ]
    [ "$(layers -p 1 --method layout --layout 'Et*8L')" = '[8]' ]
    [ "$(layers -p 4 --layout 'E|t|t*2|t||(t|)*2,t*2,L')" = \
        '[0,1,2,1,0,1,1,2]' ]
    ppsplit -p 2 --layout 'E|t*8||L' m >plan.json
    jq -e '[.stages[].rank] == [0, 1, 0, 1]
        and .stages[0].units == ["model.embed_tokens"]
        and .stages[2].units == []
        and .stages[3].units == ["model.norm", "lm_head"]' plan.json
}

@test "a Megatron layout may be a list" {
    [ "$(layers -p 2 --layout '[["embedding", "decoder"], ["decoder",
        "decoder", "decoder", "decoder"], [], [" Decoder ", "DECODER",
        "decoder", "loss\t"]]')" = '[1,4,0,3]' ]
    fails 2 "--layout: 'encoder' is not embedding, decoder, mtp or loss" \
        -p 1 --layout '[["encoder"]]' m
    fails 2 "--layout: line 1, column 3: expected a string, got '['" \
        -p 1 --layout '[[["decoder"]]]' m
    fails 2 "--layout: line 1, column 2: expected '[', got '\"'" \
        -p 1 --layout '["decoder"]' m
    fails 2 '--layout: the embedding E is missing' -p 1 --layout '[[]]' m
    fails 2 "--layout: the first symbol is 't', but must be the embedding E" \
        -p 1 --layout '[["decoder","loss"]]' m
    fails 2 '--layout: the embedding E is missing' -p 1 --layout '[]' m
}

@test "a Megatron layout that is wrong is refused" {
    fails 2 "--layout: character 2, ' ': must be one of E t m L |" \
        -p 2 --layout 'E t|L' m
    fails 2 "--layout: character 5, '*': only one count is allowed" \
        -p 2 --layout 'Et*2*4L' m
    fails 2 '--layout: 4 stages do not divide by 3 ranks' \
        -p 3 --layout 'Et|t*4|t|ttL' m
    fails 2 '--layout: 4 stages are 2 chunks on each rank, not 3' \
        -p 2 -c 3 --layout 'Et|t*4|t|ttL' m
    fails 2 "--layout: 't' occurs 7 times, but the model has 8 layers" \
        -p 2 --layout 'Et|t*4|t|tL' m
    fails 2 "--layout: 'm' occurs 1 times, but the model has 0 layers for \
multi-token prediction" -p 2 --layout 'Et*4|t*4mL' m
    fails 2 '--layout: the embedding E is missing' -p 2 --layout '|' m
    fails 2 'Megatron places stages in a loop, not in a V' \
        -p 2 --placement v --layout 'Et|t*4|t|ttL' m
    fails 2 "methods 'layout' and 'megatron' exclude each other" \
        -p 2 --layout 'Et*4|t*4L' --account-loss m
    fails 2 '--method layout needs --layout' -p 2 --method layout m
}

@test "Megatron: layers are even, uneven, or count embedding and loss" {
    config 12
    [ "$(layers -p 4 --method megatron)" = '[3,3,3,3]' ]
    [ "$(layers -p 2 -c 3 --method megatron)" = '[2,2,2,2,2,2]' ]
    [ "$(layers -p 4 -c 2 --first 2 --last 2)" = '[1,2,2,1,1,2,2,1]' ]
    [ "$(layers -p 3 --last 2)" = '[5,5,2]' ]
    [ "$(layers -p 2 --first 4 --last 8)" = '[4,8]' ]
    config 14
    [ "$(layers -p 4 -c 2 --account-embedding --account-loss)" = \
        '[1,2,2,2,2,2,2,1]' ]
    config 11
    [ "$(layers -p 4 --account-loss)" = '[3,3,3,2]' ]
    [ "$(layers -p 4 --account-embedding)" = '[2,3,3,3]' ]
    fails 2 '11 layers do not divide by 4 ranks' -p 4 --method megatron m
    fails 2 'the 9 layers that are left do not divide by the 2 other ranks' \
        -p 3 --first 2 m
    fails 2 'the first and last rank have 12 layers, but the model has only 11' \
        -p 3 --first 6 --last 6 m
    fails 2 "accounting for embedding or loss excludes layer counts for the first and \
last rank" -p 3 --first 1 --account-loss m
    fails 2 'layer counts for the first or last rank need at least 2 ranks' -p 1 --first 11 m
    fails 2 "--first: '0' is not between 1 and 2147483647" -p 2 --first 0 m
    fails 2 "--last: 'x' is not an integer" -p 2 --last x m
    fails 2 'Megatron places stages in a loop, not in a V' \
        -p 2 --placement v --first 5 m
    fails 2 "methods 'weights' and 'megatron' exclude each other" \
        -p 2 --method weights --first 5 m
}

@test "a split is exported as a Megatron layout and read again" {
    config 31
    [ "$(export_as megatron -p 4 -c 2 --method uniform)" = \
        'Et*4|(t*4|)*6,t*3L' ]
    [ "$(export_as megatron -p 4 --layers 0,31,0,0)" = 'E|t*31||L' ]
    [ "$(export_as megatron -p 1)" = 'Et*31L' ]
    for args in '-p 3' '-p 4 -c 2' '-p 5 --method weights' \
        '-p 3 -c 4 --method colossalai' '-p 31 --method uniform'; do
        layout=$(export_as megatron $args)
        ranks=${args#-p }
        [ "$(layers $args)" = "$(layers -p "${ranks%% *}" \
            --layout "$layout")" ]
        [ "$(export_as megatron -p "${ranks%% *}" --layout "$layout")" = \
            "$layout" ]
    done
    fails 2 '--export: Megatron places stages in a loop, not in a V' \
        -p 2 -c 2 --placement v --export megatron m
    # With one stage on each rank a V is a loop.
    run -0 export_as megatron -p 2 --placement v
    config 1
    echo '[["tok_embeddings","layers.0","norm"],["lm_head"]]' >f.json
    fails 2 '--export: a layout cannot separate norm and head, as this plan does' \
        -p 2 --fqns f.json --export megatron m
    # A plan balanced for a layout keeps them together.
    [ "$(export_as deepspeed -p 4)" = '[0, 1, 2, 3, 4]' ]
    [ "$(export_as megatron -p 3)" = 'E|t|L' ]
    fails 2 "4 stages are too many for 1 layers: a layout keeps norm and head \
together" -p 4 --export megatron m
}

@test "torchtitan: options set the number of stages" {
    config 32
    stages() { ppsplit --method weights "$@" m | jq '.stages | length'; }
    [ "$(stages -p 4 --layers-per-stage 3)" = 12 ]
    [ "$(stages -p 4 -c 3 --layers-per-stage 3)" = 12 ]
    [ "$(stages -p 4 --layers-per-stage 3 --stages multi)" = 12 ]
    [ "$(stages -p 4 --stages multi)" = 8 ]
    [ "$(stages -p 4 --stages single)" = 4 ]
    [ "$(stages -p 4 --layers-per-stage 9)" = 4 ]
    [ "$(stages -p 2 --layers-per-stage 8 --input-weight 0 \
        --output-weight 0)" = 4 ]
    fails 2 "layers per stage: 4 makes 9 stages, which do not divide by 8 ranks; \
values that work: none" -p 8 --method weights --layers-per-stage 4 m
    fails 2 "layers per stage: 9 makes 4 stages, which is fewer than two on each of 4 \
ranks; values that work: 3" \
        -p 4 --method weights --layers-per-stage 9 --stages multi m
    fails 2 "layers per stage: 3 makes 12 stages, which is more than one on each of 4 \
ranks; values that work: 9-11" \
        -p 4 --method weights --layers-per-stage 3 --stages single m
    fails 2 "-c: '2', but torchtitan's rule makes 3 chunks on each rank" \
        -p 4 -c 2 --method weights --layers-per-stage 3 m
    fails 2 '--layers-per-stage needs --method weights or automodel' \
        -p 4 --layers-per-stage 3 m
    fails 2 '--stages needs --method weights or automodel' -p 4 --stages multi m
    fails 2 "--stages: 'both' is not one of: single, multi" \
        -p 4 --method weights --stages both m
    fails 2 "--layers-per-stage: '0' is not between 1 and 2147483647" \
        -p 4 --method weights --layers-per-stage 0 m
}

@test "torchtitan: lists of names are exported and read again" {
    config 6
    export_as torchtitan -p 3 --method weights >new.json
    jq -e '. == [["tok_embeddings", "layers.0", "layers.1"],
        ["layers.2", "layers.3", "layers.4"],
        ["layers.5", "norm", "lm_head"]]' new.json
    export_as torchtitan-output -p 3 --method weights >old.json
    jq -es '.[0][2][2] = "output" | .[0] == .[1]' new.json old.json
    export_as fqns -p 3 --method weights >hf.json
    jq -es '.[0] == [.[1].stages[].units]' hf.json \
        <(ppsplit -p 3 --method weights m)
    for names in new old hf; do
        [ "$(layers -p 3 --fqns $names.json)" = '[2,3,1]' ]
        export_as torchtitan -p 3 --fqns $names.json | cmp - new.json
    done
    # An empty stage is an empty list.
    export_as torchtitan -p 4 --layers 0,0,6,0 | jq -e '.[1] == []'
}

@test "torchtitan: a list that loses a layer is refused" {
    config 2
    names() { printf '%s' "$1" >f.json; }
    names '[["tok_embeddings","layers.0"],["norm","output"]]'
    fails 2 "f.json: 'layers.1' is missing" -p 2 --fqns f.json m
    names '[["tok_embeddings","layers.0"],["layers.1","layer.1","norm","output"]]'
    fails 2 "f.json: /1/1: 'layer.1' is not in the model" -p 2 --fqns f.json m
    names '[["tok_embeddings","layers.0"],["layers.1","norm","output","lm_head"]]'
    fails 2 "f.json: /1/3: 'lm_head' appears twice" -p 2 --fqns f.json m
    names '[["tok_embeddings","layers.1"],["layers.0","norm","output"]]'
    fails 2 "f.json: 'layers.1' comes before 'layers.0'" -p 2 --fqns f.json m
    names '[["tok_embeddings","layers.0","model.layers.0"]]'
    fails 2 "f.json: /0/2: 'model.layers.0' appears twice" \
        -p 1 --fqns f.json m
}

@test "DeepSpeed: stages are even in parameters or in units of a type" {
    config 12
    # Embedding and head have 256000 parameters each, a layer 590336.
    [ "$(export_as deepspeed -p 4 --method parameters)" = '[0, 4, 7, 10, 15]' ]
    # The rule counts layers only.
    [ "$(export_as deepspeed -p 4 --method type:decoder)" = \
        '[0, 4, 7, 10, 15]' ]
    [ "$(layers -p 4 --method type:decoderlayer)" = '[3,3,3,3]' ]
    [ "$(layers -p 4 --method 'type:^Llama(Decoder|RMS)')" = \
        "$(layers -p 4 --method 'type:llama')" ]
    [ "$(export_as deepspeed -p 3 --method uniform)" = '[0, 5, 9, 15]' ]
    fails 2 "--method: no class matches 'type:gpt'; a layer is a \
'LlamaDecoderLayer'" -p 2 --method type:gpt m
    run --separate-stderr ppsplit -p 2 --method 'type:(' m
    [ "$status" -eq 2 ]
    [[ "$stderr" == "ppsplit: --method: 'type:(': Unmatched "* ]]
    fails 2 '--method type needs an expression: type:REGEX' \
        -p 2 --method type m
    fails 2 '--method type needs an expression: type:REGEX' \
        -p 2 --method type: m
    config 2
    fails 2 '6 stages are too many for 5 units (embedding, 2 layers, norm, head)' \
        -p 6 --method parameters m
    [ "$(export_as deepspeed -p 5 --method parameters)" = '[0, 1, 2, 3, 4, 5]' ]
}

@test "ColossalAI: layers that do not divide go to the middle" {
    config 10
    [ "$(layers -p 4 --method colossalai)" = '[2,3,3,2]' ]
    [ "$(layers -p 3 --method colossalai)" = '[3,4,3]' ]
    config 12
    [ "$(layers -p 4 -c 2 --method colossalai)" = '[1,1,2,2,2,2,1,1]' ]
    config 3
    [ "$(layers -p 4 --method colossalai)" = '[0,1,1,1]' ]
}

@test "an exported plan is data only" {
    run -0 --separate-stderr export_as deepspeed -p 2
    [ -z "$stderr" ]
    [ "${#lines[@]}" -eq 1 ]
    run -0 --separate-stderr ppsplit -p 2 --export megatron -o layout m
    [ -z "$output" ]
    [ "$(cat layout)" = "$(export_as megatron -p 2)" ]
    # Choices that a form cannot hold are named.
    local lost='recomputation (full), placement v, the mesh (dp 2, tp 1, cp 1, ep 1), zero 1, units that are not trained, the schedule (zbv)'
    for form in torchtitan torchtitan-output fqns deepspeed; do
        run -0 --separate-stderr ppsplit -p 2 -c 2 --placement v --dp 2 -s zbv \
            --recompute full --freeze embedding --export $form m
        want=$lost
        [ $form != deepspeed ] || want=${lost/placement/2 stages on a rank, placement}
        [ "$stderr" = "ppsplit: --export $form does not hold these choices, so set them in its system: $want" ]
    done
    run -0 --separate-stderr ppsplit -p 2 --recompute full --export megatron m
    [ "$stderr" = "ppsplit: --export megatron does not hold these choices, so set them in its system: recomputation (full)" ]
    ppsplit -p 2 --recompute none,full m >plan.json
    run -0 --separate-stderr ppsplit --export megatron plan.json
    [[ "$stderr" == *": recomputation (by stage)" ]]
    run -0 --separate-stderr ppsplit -q --export megatron plan.json
    [ -z "$stderr" ]
    fails 2 '--export and -t exclude each other' -p 2 -t --export megatron m
    fails 2 "--export: 'yaml' is not one of: megatron, torchtitan, torchtitan-output, deepspeed, fqns" -p 2 --export yaml m
    # A plan that does not fit is not exported.
    run --separate-stderr ppsplit -p 2 --memory 1K --export megatron m
    [ "$status" -eq 1 ]
    [ -z "$output" ]
    run --separate-stderr bash -c 'ppsplit -p 2 --export fqns m >/dev/full'
    [ "$status" -eq 3 ]
}
