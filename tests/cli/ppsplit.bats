#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit at the command line: the layers of each stage, and refusals.

bats_require_minimum_version 1.5.0
load split_helpers

# config LAYERS [VOCAB] [TIED]: writes a llama into the directory m.
config() {
    mkdir -p m
    llama "$@" >m/config.json
}

setup() {
    cd "$BATS_TEST_TMPDIR"
    config 8
}

# fails STATUS MESSAGE ARGS...: passes if ppsplit fails so and prints no data.
fails() {
    local want=$1 message=$2
    shift 2
    run --separate-stderr ppsplit "$@"
    echo "status $status, stderr: $stderr"
    [ "$status" -eq "$want" ]
    [ -z "$output" ]
    [ "${stderr_lines[0]}" = "ppsplit: $message" ]
}

@test "a plan is a manifest with all units in order" {
    run --separate-stderr ppsplit -p 3 m
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    jq -e '.format == "pp-manifest" and .version == 1 and .mesh.pp == 3
        and .model.source == "m" and .model.architecture == "LlamaForCausalLM"
        and .model.dtype == "fp32" and (.model.tied | not)
        and .history[0].tool == "ppsplit"
        and .history[0].args == "-p 3 m"' <<<"$output"
    jq -e '[.stages[].units[]] == [.model.units[].fqn]' <<<"$output"
    jq -e '[.model.units[].fqn] == ["model.embed_tokens"]
        + [range(8) | "model.layers.\(.)"] + ["model.norm", "lm_head"]' \
        <<<"$output"
    jq -e '[.stages[].rank] == [0, 1, 2] and [.stages[].inputs] ==
        [[], [0], [1]]' <<<"$output"
    jq -e '([.stages[].params] | add) == .model.params' <<<"$output"
}

@test "sizes and costs are those of the architecture" {
    ppsplit -p 1 m >plan.json
    # The products of q, k, v, o and the MLP are per token, attention per pair.
    jq -e '.model.units[1].fwd_flops == [
        2 * 1024 * (1024 + 2 * 256) + 2 * 1024 * 1024 + 6 * 1024 * 4096,
        4 * 1024]' plan.json
    jq -e '.model.units[10].fwd_flops == [2 * 1024 * 32000, 0]' plan.json
    jq -e '.model.units[1].params == 1024 * (1024 * 2 + 512) + 3 * 1024 * 4096
        + 2 * 1024' plan.json
    jq -e '[.model.units[].out_bytes] == [range(10) | 4096] + [0]' plan.json
    jq -e '.stages[0].act_bytes as $s
        | [range(3) as $b | [.model.units[].act_bytes[$b]] | add] == $s' \
        plan.json
    ppsplit -p 1 --dtype fp64 m >wide.json
    jq -es '.[0].model.units[1].act_bytes == (.[1].model.units[1].act_bytes
        | map(. / 2)) and .[1].model.dtype == "fp64"' plan.json wide.json
}

@test "equal layers are split evenly" {
    config 8 64
    [ "$(layers -p 1)" = '[8]' ]
    [ "$(layers -p 2)" = '[4,4]' ]
    [ "$(layers -p 4)" = '[2,2,2,2]' ]
    [ "$(layers -p 2 -c 2)" = '[2,2,2,2]' ]
    [ "$(layers -p 2 -c 2 --placement v)" = '[2,2,2,2]' ]
    [ "$(layers -p 4 -c 2)" = '[1,1,1,1,1,1,1,1]' ]
}

@test "a heavy head moves layers to earlier stages" {
    # A layer costs 3 x 30.4 M and attention 14.7 M, this head 393 M, 3.7
    # layers: its backward follows its forward, so that it has three products.
    config 8 64000
    [ "$(layers -p 2)" = '[6,2]' ]
    # In a V the first rank has the head too.
    run -0 layers -p 2 -c 2 --placement v
    jq -e '.[1] + .[2] == 6' <<<"$output"
}

@test "long sequences make layers heavier than the head" {
    config 8 80000
    [ "$(layers -p 2 --seq-len 1)" = '[7,1]' ]
    [ "$(layers -p 2 --seq-len 1000000)" = '[4,4]' ]
}

@test "placement decides the ranks" {
    loop=$(ppsplit -p 2 -c 3 m | jq -c '[.stages[].rank]')
    v=$(ppsplit -p 2 -c 3 --placement v m | jq -c '[.stages[].rank]')
    [ "$loop" = '[0,1,0,1,0,1]' ]
    [ "$v" = '[0,1,1,0,0,1]' ]
}

@test "uniform counts layers and nothing else" {
    config 10 96000
    [ "$(layers -p 3 --method uniform)" = '[4,3,3]' ]
    [ "$(layers -p 2 --method uniform)" = '[5,5]' ]
}

@test "weights is torchtitan's rule" {
    config 6
    [ "$(layers -p 3 --method weights)" = '[2,3,1]' ]
    [ "$(layers -p 8 --method weights)" = '[0,1,1,1,1,1,1,0]' ]
    config 13
    [ "$(layers -p 5 --method weights --output-weight 2)" = '[3,3,3,3,1]' ]
    [ "$(layers -p 4 --method weights --input-weight 0 --output-weight 0)" = \
        '[4,3,3,3]' ]
}

@test "weights fails in torchtitan's words" {
    config 4
    fails 2 'number of stages (10) cannot be greater than effective layers (6)' \
        -p 10 --method weights m
    fails 2 'input_weight (2) exceeds minimum layers per stage (1)' \
        -p 4 --method weights --input-weight 2 m
    fails 2 'output_weight (3) exceeds minimum layers per stage (2)' \
        -p 3 --method weights --input-weight 0 --output-weight 3 m
}

@test "--layers gives the layers of each stage" {
    run -0 layers -p 4 --layers 0,8,0,0
    [ "$output" = '[0,8,0,0]' ]
    ppsplit -p 4 --layers 0,8,0,0 m >plan.json
    jq -e '.stages[0].units == ["model.embed_tokens"]
        and .stages[2].units == [] and .stages[2].out_bytes == 4096
        and .stages[3].units == ["model.norm", "lm_head"]' plan.json
    fails 2 "--layers: '4,4' is for 2 stages, not 3" -p 3 --layers 4,4 m
    fails 2 "--layers: '4,5' adds up to 9, not 8" -p 2 --layers 4,5 m
    fails 2 "--layers: '' is not an integer" -p 2 --layers 8, m
    fails 2 "--layers: '-1' is not between 0 and 2147483647" \
        -p 2 --layers 9,-1 m
}

@test "--fqns gives the units of each stage by name" {
    config 2
    E=model.embed_tokens N=model.norm H=lm_head L=model.layers
    echo "[[\"$E\"], [], [\"$L.0\", \"$L.1\", \"$N\"], [\"$H\"]]" >f.json
    ppsplit -p 4 --fqns f.json m >plan.json
    jq -es '.[0] == [.[1].stages[].units]' f.json plan.json
    names() { printf '%s' "$1" >f.json; }
    names "[[\"$E\",\"$L.0\"],[\"$L.2\",\"$N\",\"$H\"]]"
    fails 2 "f.json: /1/0: 'model.layers.2' is not in the model" \
        -p 2 --fqns f.json m
    names "[[\"$E\",\"$L.0\"],[\"$L.0\",\"$L.1\",\"$N\",\"$H\"]]"
    fails 2 "f.json: /1/0: 'model.layers.0' appears twice" -p 2 --fqns f.json m
    names "[[\"$E\",\"$L.0\"],[\"$N\",\"$H\"]]"
    fails 2 "f.json: 'model.layers.1' is missing" -p 2 --fqns f.json m
    names "[[\"$E\",\"$L.1\"],[\"$L.0\",\"$N\",\"$H\"]]"
    fails 2 "f.json: 'model.layers.1' comes before 'model.layers.0'" \
        -p 2 --fqns f.json m
    names "[[],[\"$E\",\"$L.0\",\"$L.1\",\"$N\",\"$H\"]]"
    fails 2 "f.json: /0: the first stage holds no unit" -p 2 --fqns f.json m
    names "[[\"$E\",\"$L.0\",\"$L.1\",\"$N\",\"$H\"],[]]"
    fails 2 "f.json: /1: the last stage holds no unit" -p 2 --fqns f.json m
    fails 2 "f.json: 2 stages, not 3" -p 3 --fqns f.json m
    names "[[\"$E\",1]]"
    fails 2 "f.json: line 1, column 24: expected a string, got '1'" \
        -p 1 --fqns f.json m
    names '{}'
    fails 2 "f.json: line 1, column 1: expected '[', got '{'" \
        -p 1 --fqns f.json m
}

@test "more stages than units are refused" {
    config 2
    fails 2 '6 stages are too many for 5 units (embedding, 2 layers, norm, head)' \
        -p 6 m
    [ "${#stderr_lines[@]}" -eq 1 ]
    fails 2 '6 stages are too many for 5 units (embedding, 2 layers, norm, head)' \
        -p 3 -c 2 m
    fails 2 '3 stages are too many for 2 layers' -p 3 --method uniform m
    run -0 ppsplit -p 5 m
}

@test "the manifest says that a head is tied, and counts it once" {
    config 2 1000 true
    ppsplit -p 2 m >plan.json
    jq -e '.model.tied and .model.params
        == ([.stages[].params] | add) - 1000 * 1024' plan.json
}

@test "a plan that needs more than --memory is refused with numbers" {
    # A parameter has a weight, a gradient and two moments of 4 bytes. One
    # microbatch is alive.
    # The largest workspace of a unit, and tables: integers of a microbatch,
    # angles, statistics of one rank.
    bytes=$(ppsplit -p 1 m | jq '
        def lines: (. / 64 | ceil) * 64;
        def least($n): if . < $n then . else $n end;
        (.model.units | map(.workspace_bytes | .[0] * 1024 + .[1]
            + .[2] * (.[3] | least(1024)) | lines) | max) as $workspace |
        .model as $m | ($m.tensors + 4 + 13 + 1) as $numbers |
        ((1025 * (8 + 13 * 4) | lines) + 2 * (1024 * $m.rotary_dim / 2 * 4)
            + (8 * (2 + $m.tensors + ($m.params / 65536 | floor)) | lines)
            + 2 * (8 * $numbers | lines)
            + (16 * $numbers | lines) + (8 * 4 | lines) + 3 * 64) as $tables |
        .stages[0] | .params * 16 + (.act_bytes[:2] | add) * 1024
            + ($m.units | map(.act_bytes[2]) | max) * 1024 + $workspace + $tables')
    run --separate-stderr ppsplit -p 1 --memory 1G --seq-len 1024 m
    [ "$status" -eq 1 ]
    [ -z "$output" ]
    over=$((bytes - 1024 * 1024 * 1024))
    [ "$stderr" = "ppsplit: rank 0 needs 3.50 GiB (optimizer 1.39 GiB), 2.50 GiB more than the limit of 1.00 GiB (stage 0; $over bytes): it would fit with -p 7" ]
    run -0 --separate-stderr ppsplit -p 1 --memory "$bytes" --seq-len 1024 m
    run -1 ppsplit -p 1 --memory $((bytes - 1)) --seq-len 1024 m
    # At most as many microbatches are alive as there are ranks.
    need() { ppsplit -p 4 --memory 1K "$@" m 2>&1 | sed 's/.*needs \([^,]*\), .*/\1/'; }
    [ "$(need -m 1)" != "$(need -m 4)" ]
    [ "$(need -m 4)" = "$(need -m 400)" ]
    [ "$(need)" = "$(need -m 4)" ]
    [ "$(need --micro-batch-tokens 10)" != "$(need)" ]
}

@test "-t prints a table for people" {
    run -0 --separate-stderr ppsplit -p 2 -t m
    [ -z "$stderr" ]
    [ "${lines[0]}" = 'm: LlamaForCausalLM, 8 layers, 187 M parameters' ]
    [[ "$output" == *'0     0  embedding, layers 0-4 '*'#'*'<- largest'* ]]
    [[ "$output" == *'1     1  layers 5-7, norm, head '*'#'* ]]
    [[ "$output" != *'{'* ]]
    run -0 ppsplit -p 2 -c 2 --layers 0,1,7,0 --placement v -t m
    [[ "$output" == *'embedding  '*'layer 0 '*'layers 1-7'*'norm, head'* ]]
    [[ "$output" == *' rank  stages '*'0  0, 3 '*'1  1, 2 '* ]]
}

@test "weights beside the config are compared with it" {
    cp -r "$SRCDIR/tests/golden/llama/model" w
    chmod -R u+w w
    run -0 --separate-stderr ppsplit -p 2 w
    jq '.num_hidden_layers = 5' w/config.json >c && cp c w/config.json
    fails 2 "w: no tensor 'model.layers.4.input_layernorm.weight'" -p 2 w
    jq '.num_hidden_layers = 4 | .vocab_size = 129' w/config.json >c &&
        cp c w/config.json
    fails 2 "w: 'model.embed_tokens.weight' is [128, 32], expected [129, 32]" \
        -p 2 w
    head -c 400 w/model.safetensors >part && cp part w/model.safetensors
    run --separate-stderr ppsplit -p 2 w
    [ "$status" -eq 2 ]
    [[ "$stderr" == 'ppsplit: w/model.safetensors: the header ends at '* ]]
    # Weights are compared only if the model is a directory.
    run -0 ppsplit -p 2 w/config.json
}

@test "a model that cannot be read is refused" {
    mkdir empty
    fails 2 'empty/config.json: No such file or directory' -p 2 empty
    echo '{"architectures": ["T5Model"]}' >t5.json
    run --separate-stderr ppsplit -p 2 t5.json
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [[ "$stderr" == "ppsplit: t5.json: /architectures"*"'T5Model'"* ]]
    echo 'no json' >bad.json
    run --separate-stderr ppsplit -p 2 bad.json
    [ "$status" -eq 2 ]
    [[ "$stderr" == 'ppsplit: bad.json: line 1, '* ]]
    [ "${#stderr_lines[@]}" -eq 1 ]
}

@test "misuse is refused" {
    fails 2 'give the number of ranks (-p)' m
    [ "${stderr_lines[1]}" = "try 'ppsplit --help'" ]
    fails 2 "-p: '0' is not between 1 and 65536" -p 0 m
    fails 2 "-p: 'x' is not an integer" -p x m
    fails 2 "-c: '0' is not between 1 and 65536" -p 1 -c 0 m
    fails 2 '65536 ranks of 2 chunks are more than 65536 stages' \
        -p 65536 -c 2 m
    fails 2 'give a model: its directory or config.json' -p 2
    fails 2 "unexpected operand 'n'" -p 2 m n
    fails 2 "--method: 'best' is not one of: balanced, joint, uniform, weights,\
 layers, fqns, layout, megatron, parameters, type, colossalai,\
 colossalai-legacy, automodel, uniform-units" -p 2 --method best m
    fails 2 "--placement: 'w' is not one of: loop, v, both-ways" -p 2 --placement w m
    fails 2 "--dtype: 'fp8' is not one of: fp32, fp64, bf16, bf16-grads, \
bf16-moments, bf16-state" -p 2 --dtype fp8 m
    fails 2 '--method layers needs --layers' -p 2 --method layers m
    fails 2 '--method fqns needs --fqns' -p 2 --method fqns m
    fails 2 "methods 'weights' and 'layers' exclude each other" \
        -p 2 --method weights --layers 4,4 m
    fails 2 '--input-weight needs --method weights' -p 2 --input-weight 2 m
    fails 2 '--output-weight needs --method weights' -p 2 --output-weight 2 m
    fails 2 "--memory: '0' must be positive" -p 2 --memory 0 m
    fails 2 "unknown option '--nosuch'" --nosuch
}

@test "output goes to a file as a whole, with the same bytes each time" {
    run -0 --separate-stderr ppsplit -p 2 -o plan.json m
    [ -z "$output" ]
    ppsplit -p 2 -o plan.json m && cp plan.json again.json
    ppsplit -p 2 -o plan.json m
    cmp plan.json again.json
    [ -z "$(find . -name "*.tmp")" ]
    fails 3 'writing /dev/full failed: No space left on device' \
        -p 2 -o /dev/full m
    run --separate-stderr bash -c 'ppsplit -p 2 m >/dev/full'
    [ "$status" -eq 3 ]
    [ "$stderr" = 'ppsplit: writing standard output failed: No space left on device' ]
    # A run that fails leaves the old file.
    run ppsplit -p 99 -o plan.json m
    [ "$status" -eq 2 ]
    cmp plan.json again.json
}

@test "--help and -V print to standard output" {
    run -0 --separate-stderr ppsplit --help
    [ -z "$stderr" ]
    [ "${lines[0]}" = 'usage: ppsplit -p RANKS [-c CHUNKS] [options] MODEL' ]
    run -0 --separate-stderr ppsplit -V
    [[ "${lines[0]}" =~ ^ppsplit\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
    [ "${#lines[@]}" -eq 2 ]
}

@test "numbers of tokens take K and M" {
    ppsplit -p 2 --seq-len 4096 --micro-batch-tokens 8192 m | jq .stages >a
    ppsplit -p 2 --seq-len 4K --micro-batch-tokens 8K m | jq .stages >b
    cmp a b
    run --separate-stderr ppsplit -p 2 --seq-len 4G m
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsplit: --seq-len: '4G' is not between 1 and 2147483647" ]
}

@test "--freeze names parts and units" {
    frozen() {
        ppsplit -q -p 2 --freeze "$1" "$SRCDIR/tests/golden/llama/model" |
            jq -rc '[.model.units[] | select(.frozen).fqn]'
    }
    [ "$(frozen embedding,head)" = '["model.embed_tokens","lm_head"]' ]
    [ "$(frozen 'model.layers.[12]')" = '["model.layers.1","model.layers.2"]' ]
    run -2 --separate-stderr ppsplit -p 2 --freeze vision "$SRCDIR/tests/golden/llama/model"
    [ "$stderr" = "ppsplit: --freeze: 'vision' is not a part of the model (language, vision or audio, projector, embedding, head), and no unit has this name" ]
    run -2 --separate-stderr ppsplit -p 2 --freeze language "$SRCDIR/tests/golden/llama/model"
    [ "$stderr" = "ppsplit: --freeze: 'language' leaves no unit of the model to train" ]
}
