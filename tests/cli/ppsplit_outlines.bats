#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit and models that pprun does not train: described families against
# transformers (scripts/gen-outlines), and models known by their tensors alone.

bats_require_minimum_version 1.5.0

setup() { cd "$BATS_TEST_TMPDIR"; }

# units FILE: prints parameters, operations and pairs of the units of a plan.
units() {
    jq -c '.model.units[] | [.fqn, .params, .fwd_flops]' "$1"
}

# rename TYPE SED...: copies a golden model to the directory m, whose class
# nobody knows. sed edits the header of its tensors; names keep their lengths.
rename() {
    local golden=$SRCDIR/tests/golden/$1/model
    shift
    rm -rf m
    cp -r "$golden" m
    chmod -R u+w m
    jq '.architectures = ["UnknownForCausalLM"] | .model_type = "unknown"' \
        "$golden/config.json" >m/config.json
    LC_ALL=C sed -i -e '' "$@" m/model.safetensors
}

@test "described families have the parameters and operations of transformers" {
    local n=0
    jq -c 'select(.others | not)' "$SRCDIR/tests/golden/outlines.jsonl" >rows
    jq -c .config rows >configs
    while read -r config; do
        echo "$config" >config.json
        ppsplit -q -p 1 --seq-len 1 config.json >"plan-$n.json"
        n=$((n + 1))
    done <configs
    ((n >= 100))
    for ((i = 0; i < n; i++)); do
        jq -c '.model as $m | $m.units | {embedding: .[0].params,
            layers: ([.[1:-2][].params] | reduce .[] as $p ([];
                if .[-1][1] == $p then .[-1][0] += 1 else . + [[1, $p]] end)),
            norm: .[-2].params, head: (if $m.tied then 0 else .[-1].params end),
            token: ([.[].fwd_flops[0]] | add), pair: ([.[].fwd_flops[1]] | add)
            }' "plan-$i.json"
    done >found
    jq -n -r --slurpfile found found --slurpfile want rows '
        range($want | length) | $want[.] as $w | $found[.] as $f |
        (if $w.flops then ($f.token * $w.tokens + $f.pair * $w.tokens *
            $w.tokens) / $w.flops else 1 end) as $ratio |
        select(([$w, $f | [.embedding, .layers, .norm, .head]] |
            .[0] != .[1]) or $ratio < 0.98 or $ratio > 1.02) |
        "\($w.type) \($w.size): \($ratio) \($f)"' >wrong
    cat wrong
    [ ! -s wrong ]
}

@test "described encoders have the parameters and operations of transformers" {
    local n=0 row
    jq -c 'select(.others)' "$SRCDIR/tests/golden/outlines.jsonl" >rows
    while read -r row; do
        jq .config <<<"$row" >config.json
        # shellcheck disable=SC2046
        ppsplit -q -p 1 --seq-len 4096 config.json \
            $(jq -r '.patches // empty | "--image-patches \(.)"' <<<"$row") |
            jq -c '.model.units | map(.fqn) as $names |
                .[:($names | index("model.embed_tokens"))] | {
                layers: ([.[1:-1][].params] | reduce .[] as $p ([];
                    if .[-1][1] == $p then .[-1][0] += 1
                    else . + [[1, $p]] end)),
                others: (.[0].params + .[-1].params),
                flops: ([.[].fwd_flops | .[0] * 4096 + .[1] * 4096 * 4097 / 2] |
                    add)}'
        n=$((n + 1))
    done <rows >found
    ((n >= 24))
    jq -n -r --slurpfile found found --slurpfile want rows '
        range($want | length) | $want[.] as $w | $found[.] as $f |
        (if $w.flops then $f.flops / $w.flops else 1 end) as $ratio |
        select(([$w, $f | [.layers, .others]] | .[0] != .[1]) or
            $ratio < 0.98 or $ratio > 1.02) |
        "\($w.type) \($w.size): \($ratio) \($f)"' >wrong
    cat wrong
    [ ! -s wrong ]
}

# tower KEYS: writes a Qwen3.5 whose encoder has the sizes of Qwen2-VL's.
tower() {
    jq -c --argjson keys "$1" 'select(.type == "qwen3_5" and .size == "small") |
        .config | .text_config.hidden_size = 3584 | .vision_config += $keys' \
        "$SRCDIR/tests/golden/outlines.jsonl" >config.json
}
sizes='{"depth": 32, "hidden_size": 1280, "intermediate_size": 5120,
    "num_heads": 16, "patch_size": 14, "out_hidden_size": 3584}'

@test "an encoder that is planned only costs what an equal one that trains does" {
    local options
    tower "$sizes"
    while read -r options; do
        # shellcheck disable=SC2086
        ppsplit -q -p 1 --dtype bf16 $options config.json >found.json
        # shellcheck disable=SC2086
        ppsplit -q -p 1 --dtype bf16 $options \
            "$SRCDIR/tests/data/vision/qwen2-vl-7b.json" >want.json
        # Its patches have a bias and positions, too; statistics of norms are
        # left out.
        jq -e -n --slurpfile a want.json --slurpfile b found.json '
            [$a, $b | .[0].model.units[0, 1, 32, 33] | [.fwd_flops, .out_bytes]]
            | .[:4] == .[4:]' || { echo "$options"; return 1; }
        jq -e -n --slurpfile a want.json --slurpfile b found.json '
            [$a, $b | .[0].model.units[1, 32, 33] | .params] | .[:3] == .[3:]'
        jq -e -n --slurpfile a want.json --slurpfile b found.json '
            [$a, $b | .[0].model.units[0, 1, 32, 33].act_bytes] |
            [.[:4], .[4:] | flatten] | transpose |
            all(.[1] <= .[0] and .[1] >= 0.995 * .[0])'
    done <<'END'
--seq-len 4096
--seq-len 8192 --images 5 --image-patches 256
--seq-len 4096 --images 4 --dp 2 --tp 2 --encoder-mesh shared,tp=2
--seq-len 4096 --images 4 --cp 2
END
}

@test "an encoder that is planned only has a mesh and messages of its own" {
    jq -c 'select(.type == "qwen3_vl" and .size == "small") | .config' \
        "$SRCDIR/tests/golden/outlines.jsonl" >config.json
    run -0 --separate-stderr ppsplit -p 3 --dp 2 --seq-len 64 --images 2 \
        --image-patches 64 --encoder-mesh pp=1,dp=1,tp=2 -o plan.json config.json
    [ "${stderr_lines[0]}" = "ppsplit: estimated: activations, from the sizes of products" ]
    [[ ${stderr_lines[1]} == *"'Qwen3VLForConditionalGeneration' is planned only: pprun does not train it" ]]
    [ "${#stderr_lines[@]}" = 2 ]
    # 32 features for 64 tokens, of three states each.
    jq -e '.model.units[4] | .fqn == "visual.merger" and
        .out_bytes == 32 * 3 * 64 * 4 * 2 / 64' plan.json
    jq -e '.components | map(.name) == ["vision", "language"]' plan.json
    # States 1 and 2 travel on behind the layers that make them.
    ppsplit -q -p 1 --seq-len 64 --image-patches 64 config.json | jq -e '
        [.model.units[:4][].out_bytes] == [128, 256, 384, 384]'
    ppsched -q -s 1f1b -m 4 plan.json | ppsched --check -q
    ppsched -q -s 1f1b -m 4 plan.json >run.json
    run -2 --separate-stderr pprun --steps 1 --data none run.json
    [ "$stderr" = "pprun: run.json: /model/architecture: 'Qwen3VLForConditionalGeneration' is planned only: pprun does not train it" ]
    ppsplit -q -t -p 2 --seq-len 64 --image-patches 64 config.json |
        grep -q 'patches, blocks 0-2, proj'
    run -0 --separate-stderr ppmesh --gpus 2 --gpu h100 --global-batch 2 \
        --seq-len 64 -t config.json
    [ "${stderr_lines[1]}" = "ppmesh: left out: encoders" ]
}

@test "an encoder that is planned only is left out where only layers count" {
    local options
    jq -c 'select(.type == "qwen3_vl" and .size == "small") | .config' \
        "$SRCDIR/tests/golden/outlines.jsonl" >config.json
    for options in '--method megatron' '--export torchtitan'; do
        # shellcheck disable=SC2086
        run -0 --separate-stderr ppsplit -p 2 $options config.json
        [ "${stderr_lines[1]}" = "ppsplit: left out: encoders" ]
    done
    # A plan is read with the units that it has.
    ppmesh -q --gpus 2 --gpu h100 --global-batch 2 --seq-len 64 config.json |
        ppsplit -q -t | grep -q 'embedding, layers 0-3'
    ppsplit -q -p 2 --seq-len 64 --image-patches 64 config.json |
        ppsplit -q -t | grep -q 'patches, blocks 0-2, proj'
    jq -c 'select(.type == "gemma4" and .size == "small") | .config |
        .audio_config = {}' "$SRCDIR/tests/golden/outlines.jsonl" >audio.json
    run -0 --separate-stderr ppsplit -p 1 audio.json
    [ "${stderr_lines[1]}" = "ppsplit: left out: encoders of audio" ]
}

@test "sizes of an encoder that is planned only are checked" {
    local keys want
    while read -r keys want; do
        tower "$keys"
        run -2 --separate-stderr ppsplit -p 1 config.json
        [ "$stderr" = "ppsplit: config.json: /vision_config: $want" ] ||
            { echo "$stderr"; return 1; }
    done <<'END'
{"depth":0} '0' is no size (L)
{"depth":4096} '4096' is no size (L)
{"spatial_merge_size":0.5} '0.5' is no size (side)
END
    tower '{}'
    run -2 --separate-stderr ppsplit -p 1 --image-patches 63 config.json
    [ "${stderr_lines[1]}" = "ppsplit: --image-patches: '63' must be a multiple of 4, the patches of one token" ]
}

@test "a model is planned from the names and shapes of its tensors" {
    local type
    for type in llama qwen3-moe olmo2 deepseek-v3; do
        ppsplit -q -p 2 "$SRCDIR/tests/golden/$type/model" >want.json
        rename $type
        run -0 --separate-stderr ppsplit -p 2 -o plan.json m
        [ "${#stderr_lines[@]}" = 2 ]
        [ "${stderr_lines[0]}" = 'ppsplit: estimated: operations and activations, from names and shapes of tensors' ]
        [[ ${stderr_lines[1]} == *"'UnknownForCausalLM' is planned only: pprun does not train it" ]]
        jq -e '.model.estimated == "costs" and
            .model.architecture == "UnknownForCausalLM"' plan.json
        # The bias of a router of DeepSeek chooses experts and is not trained.
        [ $type = deepseek-v3 ] && continue
        diff <(units want.json) <(units plan.json)
        # Activations are estimated within a tenth of pprun's.
        jq -e -n --slurpfile a want.json --slurpfile b plan.json '
            [$a, $b | .[0].model.units[2].act_bytes | add] |
            .[1] / .[0] | . > 0.75 and . < 1.1'
    done
}

@test "names of tensors that nobody knows change no parameters or products" {
    ppsplit -q -p 2 "$SRCDIR/tests/golden/qwen3-moe/model" >want.json
    rename qwen3-moe -e 's/self_attn/attention/g;s/attention/mixing123/g' \
        -e 's/\(model\.\)layers/\1blurbs/g;s/q_proj/a_name/g' \
        -e 's/experts/writers/g;s/lm_head/zz_lead/g'
    ppsplit -q -p 2 m >plan.json
    diff <(units want.json) <(units plan.json)
}

@test "pprun refuses a model that is planned only" {
    rename llama
    ppsplit -q -p 1 m | ppsched -q -s 1f1b -m 2 >plan.json
    run -2 --separate-stderr pprun --steps 1 --data none plan.json
    [ "$stderr" = "pprun: plan.json: /model/architecture: 'UnknownForCausalLM' is planned only: pprun does not train it" ]
}

@test "a model that nobody knows needs its weights" {
    rename llama
    rm m/model.safetensors
    run -2 --separate-stderr ppsplit -p 1 m
    [ "$stderr" = "ppsplit: m/config.json: /architectures/0: 'UnknownForCausalLM' is not known; it can be planned from its weights, if they are beside it" ]
    rename llama
    jq 'del(.hidden_size)' m/config.json >c && mv c m/config.json
    run -2 --separate-stderr ppsplit -p 1 m
    [ "$stderr" = "ppsplit: m/config.json: 'hidden_size' is missing" ]
    jq -c 'select(.type == "deepseek_v32" and .size == "small") | .config |
        del(.moe_intermediate_size, .intermediate_size)' \
        "$SRCDIR/tests/golden/outlines.jsonl" >config.json
    run -2 --separate-stderr ppsplit -p 1 config.json
    [ "$stderr" = "ppsplit: config.json: 'intermediate_size' is missing, which 'model.layers.0.mlp.gate_proj.weight' needs" ]
}

@test "the table and --models name what is planned only" {
    rename llama
    ppsplit -q -p 2 -t m >table
    grep -q '^Estimated: operations and activations, from names and shapes' table
    grep -q 'embedding, layer' table
    ppsplit -q -p 2 m | ppsplit -t >again
    diff table again || true
    ppsplit --models --json | jq -e '[.[] | select(.trains.cpu | not)] |
        length > 10 and all(.plans and .refused == []) and
        any(.model_type == "jamba" and .architecture == "JambaForCausalLM") and
        any(.architecture == "Mistral3ForConditionalGeneration") and
        all(.architecture)'
    ppsplit --models | grep -q '^jamba .* no$'
}

@test "parts that are left out, and recomputation, are said" {
    jq -c 'select(.type == "deepseek_v32" and .size == "small") | .config' \
        "$SRCDIR/tests/golden/outlines.jsonl" >text.json
    jq '{architectures: ["Glm4vMoeForConditionalGeneration"],
        vision_config: {}, tie_word_embeddings: true,
        text_config: (. + {model_type: "glm4v_moe_text",
            num_nextn_predict_layers: 1})}' text.json >config.json
    run -0 --separate-stderr ppsplit -p 1 config.json
    [ "${stderr_lines[1]}" = 'ppsplit: left out: encoders and layers for multi-token prediction' ]
    jq -e '.model.tied and .model.estimated == "memory"' <<<"$output"
    run -2 --separate-stderr ppsplit -p 1 --mtp config.json
    [[ $stderr == "ppsplit: --mtp: 'config.json' is a model that pprun does not train, of which these layers are left out" ]]
    # Full recomputation keeps a layer's input alone, and takes its forward again.
    ppsplit -q -p 1 --recompute full text.json | jq -e '.model.units[1] |
        .recompute.full.again_flops == .fwd_flops and
        .recompute.full.act_bytes[0] == 0 and
        .recompute.full.act_bytes[1] == .out_bytes'
    ppsplit -q -p 1 --recompute selective text.json |
        jq -e '.model.units[1] | .recompute.selective.again_flops ==
            [0, .fwd_flops[1]] and .act_bytes[0] ==
            .recompute.selective.act_bytes[0]'
}

@test "ranks divide the tensors of a model that is planned only" {
    local type options
    # pprun divides these tensors into equal parts, so that all bytes are equal.
    while read -r type options; do
        rename $type
        # shellcheck disable=SC2086
        ppsplit -q -p 2 --zero 0 $options "$SRCDIR/tests/golden/$type/model" |
            jq -c '.model.units[1:-1][] | [.fwd_flops, .state_bytes]' >want
        # shellcheck disable=SC2086
        ppsplit -q -p 2 --zero 0 $options m |
            jq -c '.model.units[1:-1][] | [.fwd_flops, .state_bytes]' >found
        diff want found || { echo "$type $options"; return 1; }
    done <<'END'
llama --tp 2
llama --dp 2 --cp 2 --seq-len 64
qwen3-moe --ep 3 --dp 3
END
    rename llama
    run -2 --separate-stderr ppsplit -p 1 --tp 8 m
    [[ ${stderr_lines[1]} == "ppsplit: the model's 4 heads do not divide by 8 tensor-parallel ranks"* ]]
    run -2 --separate-stderr ppsplit -p 1 --ep 2 --dp 2 m
    [[ ${stderr_lines[1]} == "ppsplit: the model has no experts for 2 expert-parallel ranks"* ]]
}

@test "a language model that pprun trains is planned inside another model" {
    local family m
    for family in ministral3 granitemoe exaone4; do
        m=$SRCDIR/tests/golden/families/$family/model
        jq '{architectures: ["OtherForConditionalGeneration"], vision_config: {},
            model_type: "other", text_config: (. | del(.architectures))}' \
            "$m/config.json" >config.json
        run -0 --separate-stderr ppsplit -p 1 -o plan.json config.json
        [ "${stderr_lines[1]}" = 'ppsplit: left out: encoders' ]
        ppsplit -q -p 1 "$m" >want.json
        diff <(units want.json) <(units plan.json)
        jq -e -n --slurpfile a want.json --slurpfile b plan.json \
            '[$a, $b | [.[0].model.units[].act_bytes]] | .[0] == .[1]'
    done
}

@test "a step of 0 layers between experts is refused, planned or trained" {
    local m=$SRCDIR/tests/golden/families/qwen3_next/model
    jq '.decoder_sparse_step = 0' "$m/config.json" >trained.json
    jq '{architectures: ["Other"], model_type: "other",
        text_config: (.model_type = "qwen3_vl_moe_text")}' trained.json >planned.json
    run -2 --separate-stderr ppsplit -p 1 trained.json
    [[ $stderr == "ppsplit: trained.json: /decoder_sparse_step: '0' "* ]]
    run -2 --separate-stderr ppsplit -p 1 planned.json
    [[ $stderr == "ppsplit: planned.json: /decoder_sparse_step: '0' "* ]]
}
