#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit and models with an encoder of images or audio: LLaVA, Qwen2-VL,
# Qwen2.5-VL, Qwen2-Audio.
# tests/data/vision has configurations with published sizes, and their
# parameters and operations by transformers (scripts/gen-vision).

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    DATA=$SRCDIR/tests/data/vision
}

# edited MODEL FILTER: writes config.json, changed by jq.
edited() { jq "$2" "$DATA/$1.json" >config.json; }

@test "every unit has the parameters that transformers gives it" {
    local n=0
    for config in "$DATA"/*.json; do
        name=$(basename "$config" .json)
        ppsplit -p 1 "$config" >plan.json
        # Each line has a kind, how many there are, and the parameters of each.
        # A tied head has no parameters of its own.
        jq -r '(.model.tied as $tied | [.model.units[] |
            select(($tied and .fqn == "lm_head") | not)] |
            group_by(.fqn | sub("\\.[0-9]+$"; ""))[] |
            "\(.[0].fqn | sub("\\.[0-9]+$"; "")) \(length) \(.[0].params) \(
                map(.params) | unique | length)"),
            "total 1 \(.model.params) 1"' plan.json | sort >ours
        awk -v m="$name" '$1 == m && $2 != "flops" { print $2, $3, $4, 1 }' \
            "$DATA/parameters.txt" | sort >theirs
        echo "$name"
        diff ours theirs
        [ "$(wc -l <ours)" -ge 6 ]
        n=$((n + 1))
    done
    [ "$n" -eq 11 ]
    # The comparison notices a wrong number.
    sed -i '1s/[0-9]* 1$/7 1/' theirs
    ! diff ours theirs >/dev/null
}

@test "a model has the published number of parameters" {
    total() { ppsplit -p 1 "$DATA/$1.json" | jq .model.params; }
    [ "$(total llava-1.5-7b)" -eq 7063427072 ]
    [ "$(total qwen2-vl-2b)" -eq 2208985600 ]
    [ "$(total qwen2-vl-2b-text)" -eq 2208985600 ]
    [ "$(total qwen2-vl-7b)" -eq 8291375616 ]
    [ "$(total qwen2.5-vl-7b)" -eq 8292166656 ]
    [ "$(total qwen2-audio-7b)" -eq 8397094912 ]
}

# flops MODEL UNIT [IMAGES]: prints the operations of a forward of the images in
# a sequence of 4096 tokens.
flops() {
    ppsplit -p 1 --seq-len 4096 --images "${3:-1}" "$DATA/$1.json" |
        jq --arg u "$2" '.model.units[] | select(.fqn | endswith($u)) |
            .fwd_flops[0] * 4096 + .fwd_flops[1] * 4096 * 4097 / 2 | round'
}

@test "an image takes the operations that PyTorch counts" {
    local n=0
    while read -r model _ unit count _; do
        # In the measured model the second of two layers attends the whole
        # image. In this one layer 7 does.
        [ "$model $unit" != "qwen2.5-vl-7b blocks.1" ] || unit=blocks.7
        echo "$model $unit: $count"
        [ "$(flops "$model" "$unit")" -eq "$count" ]
        n=$((n + 1))
    done < <(grep ' flops ' "$DATA/parameters.txt")
    [ "$n" -eq 18 ]
    # The projector has two products of 576 tokens, without the class token.
    [ "$(flops llava-1.5-7b multi_modal_projector)" -eq \
        $((2 * 576 * (1024 * 4096 + 4096 * 4096))) ]
    one=$(flops llava-1.5-7b encoder.layers.0)
    [ "$(flops llava-1.5-7b encoder.layers.0 3)" -eq $((3 * one)) ]
}

@test "layers behind the last one that is used only hold parameters" {
    [ "$(flops llava-1.5-7b encoder.layers.22)" -gt 0 ]
    [ "$(flops llava-1.5-7b encoder.layers.23)" -eq 0 ]
    ppsplit -p 1 "$DATA/llava-1.5-7b.json" | jq -e '.model.units |
        map(select(.fqn | test("encoder.layers.23|post_layernorm"))) |
        length == 2 and all(.act_bytes == [0, 0, 0] and .params > 0 and .frozen)'
    edited llava-1.5-7b '.vision_feature_layer = 24 |
        .vision_feature_select_strategy = "full"'
    ppsplit -p 1 --seq-len 4096 config.json | jq -e '.model.units |
        (.[25].fwd_flops == .[2].fwd_flops) and
        # The class token is projected too: 577 rows of 4096 numbers.
        (.[27].out_bytes * 4096 | round) == 577 * 4096 * 4'
}

@test "messages in the encoder are its tokens, then the projected ones" {
    ppsplit -p 2 --seq-len 2048 --images 2 --image-patches 1600 --dtype bf16 \
        "$DATA/qwen2-vl-2b.json" | jq -e '.model.units |
        (.[5].out_bytes * 2048 | round) == 2 * 1600 * 1280 * 2 and
        (.[33].out_bytes * 2048 | round) == 2 * 400 * 1536 * 2 and
        .[34].out_bytes == 1536 * 2'
}

@test "a layer of the encoder keeps the same tensors as a decoder layer" {
    # These are the input, two normed inputs, attention, MLP and statistics.
    ppsplit -p 2 --seq-len 4096 "$DATA/qwen2-vl-2b.json" |
        jq -e '(1024 / 4096) as $rate | .model.units[1].act_bytes == [
            4 * $rate * (3 * 1280 + 16 + 5120),
            4 * $rate * (5 * 1280 + 4 + 5120),
            4 * $rate * (7 * 1280 + 5120)]'
}

@test "ranks that divide tokens divide images, and all have the encoder" {
    unit() {
        ppsplit -p 2 "$@" "$DATA/qwen2-vl-2b.json" | jq -c '.model.units[1] |
            .fwd_flops + .act_bytes + [.out_bytes] | map(. * 4096 | round)'
    }
    # The rank with most images counts: one image is on one rank.
    [ "$(unit --tp 2)" = "$(unit)" ]
    [ "$(unit --tp 2 --images 4)" = "$(unit --images 2)" ]
    [ "$(unit --cp 4 --images 4)" = "$(unit)" ]
    [ "$(unit --tp 2 --cp 4 --images 12)" = "$(unit --images 2)" ]
    ppsplit -p 2 --tp 2 --cp 2 "$DATA/qwen2-vl-2b.json" |
        jq -e '.model.units[1] | .weight_bytes == .params * 4'
    refuses "the model's 12 heads do not divide by 5 tensor-parallel ranks; try --tp 4" \
        -p 2 --tp 5 "$DATA/qwen2-vl-2b.json"
    edited qwen2-vl-7b '.vision_config.num_heads = 10'
    ppsplit -q -p 2 --tp 4 config.json >/dev/null
    refuses "2 context-parallel ranks divide the images of an encoder, so a \
plan cannot be exact; try --cp 1" -p 2 --cp 2 --cp-exact "$DATA/qwen2-vl-2b.json"
}

@test "ppsched simulates the step that ppsplit planned for an encoder" {
    ppsplit -p 4 -m 8 --schedule zb-h1 --images 8 -v "$DATA/qwen2-vl-2b.json" \
        >plan.json 2>said
    best=$(sed -n 's/.* a step of \([^ ]*\) flop.*/\1/p' said)
    jq -ne "$(makespan zb-h1 8 plan.json) / $best - 1 | fabs < 1e-5"
}

@test "names of an encoder are exported and read again" {
    ppsplit -p 4 --export fqns "$DATA/llava-1.5-7b.json" >names.json
    jq -e 'add | length == 28 + 35 and .[0] ==
        "vision_tower.vision_model.embeddings" and .[27] ==
        "multi_modal_projector" and .[28] == "model.embed_tokens"' names.json
    ppsplit -p 4 --fqns names.json --export fqns "$DATA/llava-1.5-7b.json" |
        cmp names.json -
    jq '.[0] |= map(select(. != "multi_modal_projector"))' names.json >less.json
    refuses "less.json: 'multi_modal_projector' is missing" -p 4 --fqns less.json \
        "$DATA/llava-1.5-7b.json"
}

# small: writes a model of few units, with an encoder about as costly as the rest.
small() {
    edited qwen2-vl-2b '.vision_config.depth = 3 | .num_hidden_layers = 2 |
        .vocab_size = 8192'
}

# step [ARGS...]: prints the step of 4 microbatches on 3 ranks.
step() {
    ppsplit -p 3 --seq-len 2048 --images 4 "$@" config.json |
        makespan "$kind" 4
}

@test "--encoder-ranks gives the shortest step of its splits" {
    small
    for kind in 1f1b zb-h1; do
        splits 3 config.json | while read -r split; do
            echo "$split" >split.json
            echo "$(step --fqns split.json) $split"
        done >steps
        [ "$(wc -l <steps)" -eq 36 ]
        # Compare any split, then splits with one and two ranks for the encoder.
        best() { grep -E "$1" steps | sort -g | head -n 1 | cut -d ' ' -f 1; }
        any=$(step --schedule "$kind" -m 4)
        one=$(step --schedule "$kind" -m 4 --encoder-ranks 1)
        two=$(step --schedule "$kind" -m 4 --encoder-ranks 2)
        echo "$kind: $any $one $two"
        [ "$any" = "$(best .)" ]
        [ "$one" = "$(best '"visual.merger"\],\["model.embed_tokens".*\],\[')" ]
        [ "$two" = "$(best '\],\[.*"visual.merger"\],\["model.embed_tokens"')" ]
        [ "$one" != "$two" ]
    done
}

@test "a manifest gives the component and the ranks of each stage" {
    small
    args=(-p 3 --seq-len 2048 --images 4)
    ppsplit "${args[@]}" --encoder-ranks 2 config.json >apart.json
    jq -e '[.components[] | [.name, .units, .rank_offset, .mesh.pp]] ==
        [["vision", 5, 0, 2], ["language", 5, 2, 1]] and
        [.stages[].component] == ["vision", "vision", "language"]' apart.json
    ppsplit -p 1 --export fqns config.json |
        jq '.[0] | [.[:3], .[3:7], .[7:]]' >names.json
    ppsplit "${args[@]}" --tp 2 --fqns names.json config.json >shared.json
    jq -e '[.components[] | [.name, .units, .rank_offset, .mesh.pp,
        .mesh.tp]] == [["vision", 5, 0, 2, 2], ["language", 5, 1, 2, 2]] and
        [.stages[].component] ==
            ["vision", ["vision", "language"], "language"]' shared.json
    [ "$(jq -c 'keys_unsorted' shared.json)" = '["format","version","model",'\
'"microbatch","mesh","stages","components","history"]' ]
    [ "$(jq -c '.components[0] | keys_unsorted' shared.json)" = \
        '["name","mesh","rank_offset","units"]' ]
    # ppsched keeps the components.
    ppsched -s 1f1b -m 4 shared.json | jq -s -e '.[0].components ==
        .[1].components and .[0].stages == .[1].stages' - shared.json
    # A model without an encoder has no components.
    jq '.text_config | .model_type = "qwen2" | del(.rope_scaling)' \
        "$DATA/qwen2-vl-2b-text.json" >text.json
    ppsplit -p 2 text.json | jq -e 'has("components") | not'
}

@test "--encoder-ranks keeps to a limit of memory" {
    small
    args=(-p 4 --schedule 1f1b -m 4 --seq-len 2048 --images 4 --encoder-ranks 2)
    ppsplit "${args[@]}" config.json >free.json
    ppsplit "${args[@]}" -t --memory 64G config.json | tail -n 1 >full
    grep -q '^Share of the memory limit: rank' full
    jq -e '.stages[2].units[0] == "model.embed_tokens"' free.json
    ppsplit "${args[@]}" --memory 3700M config.json >tight.json
    jq -e '.stages[2].units[0] == "model.embed_tokens"' tight.json
    run --separate-stderr ppsplit "${args[@]}" --memory 3G config.json
    [ "$status" -eq 1 ]
    echo "$stderr"
    [[ $stderr == "ppsplit: rank 0 needs 3.58 GiB ("* ]]
}

@test "kinds are compared behind the encoder's ranks" {
    ppsplit -q -p 5 -m 16 --encoder-ranks 1 --compare dualpipe,zbv,interleaved,1f1b \
        "$DATA/llava-1.5-7b.json" | sed '1,/^kind/d' | awk '{ print $1, $2, $3 }' >rows
    [ "$(head -n 1 rows)" = 'zbv v 2' ]
    [ "$(cut -d ' ' -f 1,2 rows | tail -n 3 | head -n 1)" = '1f1b chain' ]
    grep -q '^interleaved loop 4' rows
    grep -q '^dualpipe cannot run:' rows
}

@test "--encoder-ranks is refused if ranks have no unit" {
    model=$DATA/qwen2-vl-2b.json
    refuses "--encoder-ranks: '4' of 4 ranks leave none for the language \
model" -p 4 --encoder-ranks 4 "$model"
    refuses "35 ranks are too many for the encoder's 34 units; see --encoder-ranks" \
        -p 36 --encoder-ranks 35 "$model"
    refuses "64 stages are too many for the language model's 31 units; see \
--encoder-ranks" -p 18 -c 4 --encoder-ranks 2 "$model"
    refuses "--encoder-ranks needs one copy of the weights, not --placement \
both-ways" -p 4 --placement both-ways --encoder-ranks 2 "$model"
    refuses "--encoder-ranks needs --method balanced" -p 4 \
        --method parameters --encoder-ranks 2 "$model"
}

@test "methods and forms without an encoder are refused" {
    model=$DATA/qwen2-vl-2b.json
    refuses "--method: 'megatron' counts decoder layers only, but the model \
has an encoder" -p 2 --first 10 "$model"
    refuses "--method: 'layout' counts decoder layers only, but the model has \
an encoder" -p 2 --layout 'Et*14|t*14L' "$model"
    refuses "--export: a layout of Megatron-LM has no symbol for an encoder's \
layers" -p 2 --export megatron "$model"
    refuses "--export: torchtitan has no names for an encoder's layers; try \
--export fqns" -p 2 --export torchtitan "$model"
    [ "$(ppsplit -p 2 --method type:visionblock --export deepspeed "$model")" \
        = '[0, 17, 65]' ]
}

@test "images that the model or the sequence cannot have are refused" {
    refuses "--images: '17' images of 256 tokens each do not fit into a \
sequence of 4096 tokens (--seq-len)" -p 2 --images 17 "$DATA/qwen2-vl-2b.json"
    ppsplit -p 2 --images 16 "$DATA/qwen2-vl-2b.json" >/dev/null
    refuses "--image-patches: '1023' must be a multiple of 4, the patches of \
one token" -p 2 --image-patches 1023 "$DATA/qwen2-vl-2b.json"
    refuses "--image-patches: images of '$DATA/llava-1.5-7b.json' have 576 \
patches, not '1024'" -p 2 --image-patches 1024 "$DATA/llava-1.5-7b.json"
    jq '.text_config + {hidden_size: 64, num_attention_heads: 4,
        intermediate_size: 128, num_hidden_layers: 2}' \
        "$DATA/llava-1.5-7b.json" >config.json
    refuses "--images: 'config.json' has no encoder" -p 2 \
        --images 1 config.json
}

@test "the architecture is found by model_type if there is no class" {
    edited llava-1.5-7b .
    ppsplit -p 2 -t config.json >want
    edited llava-1.5-7b '.architectures = null'
    ppsplit -p 2 -t config.json | diff want -
}

@test "configurations that are wrong are refused" {
    edited llava-1.5-7b '.vision_config.model_type = "siglip_vision_model"'
    refuses "config.json: /vision_config/model_type: 'siglip_vision_model' is \
not supported, only 'clip_vision_model'" -p 2 config.json
    edited llava-1.5-7b '.text_config.model_type = "gemma"'
    refuses "config.json: /text_config/model_type: 'gemma' is not one of: llama, \
mistral, qwen2, qwen3, qwen2_vl, qwen2_vl_text, qwen2_5_vl, qwen2_5_vl_text, \
qwen2_5_omni_text" \
        -p 2 config.json
    edited llava-1.5-7b '.vision_feature_layer = -26'
    refuses "config.json: /vision_feature_layer: '-26' is not between -25 and \
24" -p 2 config.json
    edited llava-1.5-7b '.vision_feature_layer = [-2, 23]'
    refuses "config.json: /vision_feature_layer/1: state '23' is in the list \
twice" -p 2 config.json
    edited llava-1.5-7b '.vision_config.num_hidden_layers = 1024 |
        .vision_feature_layer = [-1, 0, 1024]'
    refuses "config.json: /vision_feature_layer/2: state '1024' is in the list \
twice" -p 2 config.json
    edited llava-1.5-7b '.vision_feature_layer = []'
    refuses "config.json: /vision_feature_layer: '0' layers; there must be 1 to \
8" -p 2 config.json
    edited llava-1.5-7b '.vision_feature_layer = [3, 25]'
    refuses "config.json: /vision_feature_layer/1: '25' is not between -25 and \
24" -p 2 config.json
    # Four states of 1024 numbers reach the projector, and are in its product.
    edited llava-1.5-7b '.vision_feature_layer = [-2, 3, 8, 13]'
    ppsplit -p 1 config.json | jq -e '.model.units | map({(.fqn): .}) | add |
        (.multi_modal_projector.params == 4096 * (4 * 1024 + 1 + 4096 + 1)) and
        (."vision_tower.vision_model.encoder.layers.22".out_bytes ==
         4 * ."vision_tower.vision_model.encoder.layers.1".out_bytes) and
        (."vision_tower.vision_model.encoder.layers.2".out_bytes ==
         2 * ."vision_tower.vision_model.encoder.layers.1".out_bytes)' >/dev/null
    edited llava-1.5-7b '.vision_feature_select_strategy = "cls"'
    refuses "config.json: /vision_feature_select_strategy: 'cls' is not one \
of: default, full" -p 2 config.json
    edited llava-1.5-7b 'del(.vision_config)'
    refuses "config.json: 'vision_config' is missing" -p 2 config.json
    edited qwen2-vl-2b '.vision_config.hidden_size = 1024'
    refuses "config.json: /vision_config/hidden_size: '1024' is not the \
language model's width, 1536" -p 2 config.json
    edited qwen2-vl-2b '.vision_config.num_heads = 7'
    refuses "config.json: /vision_config/num_heads: '7' heads do not divide \
the encoder's width, 1280" -p 2 config.json
}

@test "configurations of audio that are wrong are refused" {
    edited qwen2-audio-7b '.audio_config.model_type = "whisper"'
    refuses "config.json: /audio_config/model_type: 'whisper' is not supported, \
only 'qwen2_audio_encoder'" -p 2 config.json
    edited qwen2-audio-7b 'del(.audio_config)'
    refuses "config.json: 'audio_config' is missing" -p 2 config.json
    edited qwen2-audio-7b 'del(.text_config)'
    refuses "config.json: 'text_config' is missing" -p 2 config.json
    edited qwen2-audio-7b '.audio_config.encoder_attention_heads = 7'
    refuses "config.json: /audio_config/encoder_attention_heads: '7' heads do \
not divide the encoder's width, 1280" -p 2 config.json
    edited qwen2-audio-7b '.audio_config.max_source_positions = 1'
    refuses "config.json: /audio_config/max_source_positions: '1' is below 2, \
the positions of a feature" -p 2 config.json
    refuses "--image-patches: clips of audio of '$DATA/qwen2-audio-7b.json' have \
at most 1500 rows, not '1502'" -p 2 --image-patches 1502 \
        "$DATA/qwen2-audio-7b.json"
    refuses "--images: '6' clips of audio of 750 tokens each do not fit into a \
sequence of 4096 tokens (--seq-len)" -p 2 --images 6 "$DATA/qwen2-audio-7b.json"
    # The names of parts differ.
    refuses "--freeze: 'vision' is not a part of the model (language, vision or \
audio, projector, embedding, head), and no unit has this name" -p 2 --freeze vision \
        "$DATA/qwen2-audio-7b.json"
    ppsplit -p 2 --freeze audio "$DATA/qwen2-audio-7b.json" | jq -e '
        [.model.units[] | select(.frozen) | .fqn | split(".")[0]] | unique ==
            ["audio_tower"]'
}

@test "positions on several axes that are wrong are refused" {
    edited qwen2-vl-2b '.rope_scaling.mrope_section = [16, 24, 23]'
    refuses "config.json: /rope_scaling/mrope_section: '3' numbers, of \
frequencies of time, row and column, must be 3 with the sum 64" -p 2 config.json
    edited qwen2-vl-2b '.rope_scaling.mrope_section = [32, 32]'
    refuses "config.json: /rope_scaling/mrope_section: '2' numbers, of \
frequencies of time, row and column, must be 3 with the sum 64" -p 2 config.json
    edited qwen2-vl-2b '.vision_config.num_heads = 640'
    refuses "config.json: /vision_config/num_heads: '640' heads of 2 elements: \
row and column rotate a multiple of 4, up to 4096" -p 2 config.json
    edited qwen2-vl-2b '.vision_config.rope_parameters.rope_theta = 500'
    refuses "config.json: /vision_config/rope_parameters/rope_theta: '500' is \
not supported, only 10000" -p 2 config.json
}

@test "windows and activations of Qwen2.5-VL that are wrong are refused" {
    edited qwen2.5-vl-3b '.vision_config.window_size = 27'
    refuses "config.json: /vision_config/window_size: a window of '27' pixels \
has no feature, which is 2 patches of 14 pixels each way" -p 2 config.json
    edited qwen2.5-vl-3b '.vision_config.hidden_act = "gelu"'
    refuses "config.json: /vision_config/hidden_act: 'gelu' is not supported, \
only 'silu'" -p 2 config.json
    edited qwen2.5-vl-3b '.vision_config.fullatt_block_indexes = [-1]'
    refuses "config.json: /vision_config/fullatt_block_indexes/0: '-1' is not \
between 0 and 1023" -p 2 config.json
}

@test "weights of LLaVA are compared with their config, by both of their names" {
    local golden=$SRCDIR/tests/golden/llava
    cp -r "$golden" model
    rm model/tower.safetensors
    ppsplit -q -p 2 model >plan.json
    jq '.vision_config.num_channels = 1' "$golden/config.json" >model/config.json
    run --separate-stderr ppsplit -q -p 2 model
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "$stderr" = "ppsplit: model: 'vision_tower.embeddings.patch_embedding.weight' is [12, 3, 4, 4], expected [12, 1, 4, 4]" ]
    # These have the names of released files, and no language model.
    cp "$golden/tower.safetensors" model/model.safetensors
    cp "$golden/config.json" model
    run --separate-stderr ppsplit -q -p 2 model
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsplit: model: no tensor 'language_model.model.embed_tokens.weight'" ]
}

@test "an activation of an encoder that no kernel has is refused" {
    edited llava-1.5-7b '.vision_config.hidden_act = "relu"'
    run --separate-stderr ppsplit -p 2 config.json
    [ "$status" -eq 2 ]
    [[ $stderr = *"/vision_config/hidden_act: 'relu' is "* ]]
}

@test "the components of two plans are joined" {
    local config=$DATA/llava-1.5-7b.json
    ppsplit -q -p 5 --dp 2 --tp 2 --zero 3 --images 2 \
        --encoder-mesh pp=2,tp=4,dp=3 "$config" >direct.json
    ppsplit -q -p 3 --zero 3 --images 2 --encoder-mesh pp=2,tp=4,dp=3 "$config" >e.json
    ppsplit -q -p 3 --dp 2 --tp 2 --zero 3 --images 2 "$config" >l.json
    # As a plan of both, with the stages of each.
    ppsplit -q --combine vision=e.json,language=direct.json >joined.json
    diff <(jq 'del(.history)' direct.json) <(jq 'del(.history)' joined.json)
    # A stage of both components is cut between them.
    ppsplit -q --combine language=l.json,vision=e.json --edge vision:language \
        >joined.json
    jq -e '[.stages[].component] == ["vision", "vision", "language", "language",
        "language"] and .mesh.pp == 5 and .mesh.dp == 2 and
        .components[1].first_rank == 24' joined.json
    diff <(jq '[.stages[].units[]]' l.json) <(jq '[.stages[].units[]]' joined.json)
    ppsched -q -s 1f1b -m 4 joined.json >plan.json
    # Ranks that share images are an encoder's as well.
    ppsplit -q --combine vision=l.json,language=e.json |
        jq -e '.components[0].mesh | [.dp, .tp, .cp] == [2, 1, 2]'
    ppsplit -q -p 2 --dp 2 --tp 2 --zero 3 --images 2 \
        --encoder-mesh shared,tp=2 "$config" >s.json
    ppsplit -q --combine vision=s.json,language=e.json |
        jq -e '.components[0].mesh | [.dp, .tp, .cp] == [2, 2, 1]'
}

@test "plans that do not belong together are not joined" {
    local config=$DATA/llava-1.5-7b.json
    ppsplit -q -p 2 "$config" >a.json
    other() { ppsplit -q "$@" >b.json; }
    joins() {
        run -2 --separate-stderr ppsplit -q --combine vision=a.json,language=b.json
        [[ ${stderr_lines[0]} == "ppsplit: --combine: $1"* ]]
    }
    other -p 2 --images 2 "$config"
    joins "images is '1' in a.json and '2' in b.json; make both plans of one \
model with the same options"
    other -p 2 --zero 3 "$config"
    joins "zero is '1' in a.json and '3' in b.json"
    other -p 2 --mesh-order dp-tp-cp-pp "$config"
    joins "order is 'tp-cp-dp-pp' in a.json and 'dp-tp-cp-pp' in b.json"
    other -p 2 --dtype fp64 "$config"
    joins "dtype is 'fp32' in a.json and 'fp64' in b.json"
    other -p 2 --freeze language "$config"
    joins "model.embed_tokens is 'trained' in a.json and 'frozen' in b.json"
    other -p 2 -c 2 "$config"
    run -0 ppsplit -q --combine vision=a.json,language=b.json
    other -p 2 --placement both-ways "$config"
    joins "b.json: has '4' stages on 2 pipeline ranks; it needs one stage on each"
    other -p 2 "$DATA/llava-1.5-13b.json"
    joins "'multi_modal_projector' has 20979712 parameters in a.json and"
    refuses "--combine: a.json: has no component 'audio'; it has 'vision' and \
'language'" --combine audio=a.json,language=a.json
    refuses "--combine: 'vision' is a second plan for it" \
        --combine vision=a.json,vision=a.json
    refuses "--combine: needs a plan for 'language'" --combine vision=a.json
    refuses "--combine: 'vision' is not a component and a plan, such as \
vision=plan.json" --combine vision,language=a.json
    refuses "--edge: 'language:vision', but the edge of this model is \
vision:language" --combine vision=a.json,language=b.json --edge language:vision
    refuses "--edge needs --combine" --edge vision:language a.json
    refuses "--combine and -p exclude each other" -p 2 --combine vision=a.json
    refuses "unexpected operand 'a.json': --combine names the plans" \
        --combine vision=a.json a.json
}

@test "a given plan keeps its encoder's mesh, its images and what it freezes" {
    local config=$DATA/llava-1.5-7b.json args
    for args in '--encoder-mesh dp=3,tp=2 --images 2' '--freeze vision' \
        '--dp 2 --encoder-mesh shared,tp=2 --images 3'; do
        # shellcheck disable=SC2086
        ppsplit -q -t -p 3 $args "$config" |
            sed -E 's/balanced;/given;/; s/ No (such )?split takes .*less\.//' >want
        # shellcheck disable=SC2086
        ppsplit -q -p 3 $args "$config" | ppsplit -q -t - >got
        diff want got
    done
}

@test "a table claims an optimum where it is proved, and nothing with a frozen stage" {
    local config=$DATA/llava-1.5-7b.json
    run -0 ppsplit -q -t -p 2 "$config"
    [[ $output == *'No split takes less.'* ]]
    run -0 ppsplit -q -t -p 2 --encoder-ranks 1 --freeze vision,projector "$config"
    [[ $output == *'flop; ranks are idle'* && $output != *'split takes'* ]]
}
