#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit and a model with two encoders, the thinker of Qwen2.5-Omni:
# tests/data/vision has its published sizes.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    OMNI=$SRCDIR/tests/data/vision/qwen2.5-omni-7b.json
}

# edited FILTER: writes config.json, changed by jq.
edited() { jq "$1" "$OMNI" >config.json; }

# graph FILE: prints the components and the inputs of each stage.
graph() { jq -c '[.stages[] | [.component, .inputs]]' "$1"; }

# chain ARGS...: passes if every stage but the first has the one before it as
# its input.
chain() {
    ppsplit "$@" "$OMNI" | jq -e 'all(.stages[]; .inputs ==
        if .stage == 0 then [] else [.stage - 1] end)'
}

@test "two encoders with stages of their own are branches" {
    ppsplit -p 6 -m 8 -s 1f1b --encoder-ranks 3 -v "$OMNI" >plan.json 2>said
    [ "$(graph plan.json)" = '[["vision",[]],["audio",[]],["audio",[1]],'\
'["language",[0,2]],["language",[3]],["language",[4]]]' ]
    jq -e '[.components[] | [.name, .rank_offset, .mesh.pp]] ==
        [["vision", 0, 1], ["audio", 1, 2], ["language", 3, 3]]' plan.json
    # ppsched simulates what ppsplit planned, on branches.
    best=$(sed -n 's/.* a step of \([^ ]*\) flop.*/\1/p' said)
    jq -ne "$(makespan 1f1b 8 plan.json) / $best - 1 | fabs < 1e-5"
    # Pictures name what the ranks have, if there is room.
    ppsched -s 1f1b -m 8 plan.json >s.json
    [ "$(ppsched -t --width 100 --ascii s.json | sed -n 's/^rank \(.*\)|[^|]*|.*/\1/p' |
        tr -s ' ' | tr '\n' ';')" = \
        '0, vision ;1, audio ;2, audio ;3, language ;4, language ;5, language ;' ]
    ppsplit -q -p 2 "$OMNI" | ppsched -s 1f1b -m 2 >both.json
    ppsched -t --width 80 --ascii both.json | grep -q '^rank 1 |'
    ppsched -t --width 120 --ascii both.json |
        grep -q '^rank 0, vision and audio and language |'
    ppsched --svg - s.json | grep -o '>rank [0-9][^<]*' |
        diff - <(printf '>rank %s\n' '0, vision' '1, audio' '2, audio' \
            '3, language' '4, language' '5, language')
    # Other schedules take branches, or say that they do not.
    ppsched -s zb-h1 -m 8 plan.json | ppsched --check
    run --separate-stderr ppsched -s interleaved -m 8 plan.json
    [ "$status" -eq 2 ]
    [[ $stderr == *"interleaved needs a chain, but stage 1 "* ]]
}

@test "encoders share ranks by operations, and no other cuts have a shorter step" {
    edited '.thinker_config |= (.vision_config.depth = 2 |
        .audio_config.encoder_layers = 2 | .text_config.num_hidden_layers = 2 |
        .text_config.vocab_size = 8192)'
    args=(-p 4 -m 4 -s 1f1b --seq-len 2048)
    ppsplit -p 1 --export fqns config.json | jq -c '.[0]' >all.json
    # Stages begin with units a < b < c, among them each encoder and the
    # embedding: units 0, 4 and 8.
    jq -c '. as $u | length as $n | range(1; $n) as $a | range($a + 1; $n) as
        $b | range($b + 1; $n) as $c | select(([$a, $b, $c] | index(4)) and
        ([$a, $b, $c] | index(8))) |
        [$u[:$a], $u[$a:$b], $u[$b:$c], $u[$c:]]' all.json >splits
    while read -r split; do
        echo "$split" >split.json
        ppsplit "${args[@]}" --fqns split.json config.json >try.json
        echo "$(makespan 1f1b 4 try.json) $(jq -r '.components[0:2] |
            map(.mesh.pp) | "\(add) \(first)"' try.json)"
    done <splits >steps
    [ "$(wc -l <steps)" -eq 10 ]
    ppsplit -p 1 --seq-len 2048 config.json >one.json
    for n in 2 3; do
        # The encoder whose mean stage costs most has the least such cost.
        first=$(jq --argjson n $n 'def sum: map(.fwd_flops[0] * 2048 +
            .fwd_flops[1] * 2048 * 2049 / 2) | add;
            (.model.units[:4] | sum) as $a | (.model.units[4:8] | sum) as $b |
            [range(1; $n) | [([$a / ., $b / ($n - .)] | max), .]] | min[1]' \
            one.json)
        best=$(awk -v n=$n -v first="$first" '$2 == n && $3 == first' steps |
            sort -g | head -n 1)
        ppsplit "${args[@]}" --encoder-ranks $n config.json >plan.json
        ours=$(makespan 1f1b 4 plan.json)
        echo "$n: $first of the first, $ours of $best"
        [ "$(jq '.components[0].mesh.pp' plan.json)" -eq "$first" ]
        [ "$ours" = "${best%% *}" ]
    done
}

@test "without ranks of its own the second encoder is with the embedding" {
    chain -p 1
    chain -p 4
    chain -p 4 --encoder-ranks 1
    # A cut of the second encoder would make 24 stages more even.
    for n in 12 24; do
        ppsplit -p $n "$OMNI" >plan.json
        jq -e '[.stages[] | select(.units | index("audio_tower.conv1"))][0].units |
            index("audio_tower.proj") and index("model.embed_tokens")' plan.json
    done
    [ "$(ppsplit -p 3 --encoder-ranks 1 "$OMNI" |
        jq -c '[.stages[].component]')" = \
        '[["vision","audio"],"language","language"]' ]
}

@test "each encoder has a mesh of its own" {
    ppsplit -p 5 --dp 2 --tp 2 --encoder-mesh audio:pp=2,dp=3 \
        --encoder-mesh vision:pp=1,tp=4,cp=2 "$OMNI" >plan.json
    jq -e '[.components[] | [.name, .first_rank, .rank_offset, .mesh.pp,
        .mesh.dp, .mesh.tp, .mesh.cp]] == [["vision", 0, 0, 1, 1, 4, 2],
        ["audio", 8, 1, 2, 3, 1, 1], ["language", 14, 3, 2, 2, 2, 1]]' plan.json
    ppsched -s 1f1b -m 4 plan.json | ppsched --check
    # A rank has the bytes of its part of the tensors.
    jq -e '.model.units | map({(.fqn): (.weight_bytes / .params)}) | add |
        .["visual.blocks.0"] < 0.51 and .["audio_tower.layers.0"] == 2 and
        .["model.layers.0"] < 1.01' plan.json
}

@test "one encoder has its own ranks, and the other shares those of the model" {
    ppsplit -p 4 --dp 2 --tp 2 --encoder-mesh audio:shared,tp=4 \
        --encoder-mesh vision:pp=2,tp=4 "$OMNI" >plan.json
    jq -e '[.components[] | [.name, .first_rank, .rank_offset, .mesh.pp,
        .mesh.dp, .mesh.tp]] == [["vision", 0, 0, 2, 1, 4],
        ["audio", null, 2, 1, 1, 4], ["language", 8, 2, 2, 2, 2]] and
        .mesh.encoder_tp == 4' plan.json
    jq -e '[.stages[2].units[0], .stages[2].component] ==
        ["audio_tower.conv1", ["audio", "language"]] and
        (.stages[2].units | index("model.embed_tokens"))' plan.json
    ppsched -s 1f1b -m 4 plan.json | ppsched --check
    # A rank has the bytes of its part of the tensors.
    jq -e '.model.units | map({(.fqn): (.weight_bytes / .params)}) | add |
        .["visual.blocks.0"] < 0.51 and .["audio_tower.layers.0"] < 0.51 and
        .["model.layers.0"] < 1.01' plan.json
    ppsplit -t -p 4 --dp 2 --encoder-mesh vision:pp=2 \
        --encoder-mesh audio:shared,tp=2 "$OMNI" | tr '\n' ' ' |
        grep -q 'images of dp 1 x tp 1 x cp 1, for the encoder of audio dp 1 x tp 2'
    # Only the 20 heads of audio divide by 5, only the 16 of images by 8.
    ppsplit -q -p 2 --dp 5 --encoder-mesh audio:shared,tp=5 \
        --encoder-mesh vision:dp=5 "$OMNI" |
        jq -e '[.components[].mesh | [.dp, .tp]] == [[5, 1], [1, 5], [5, 1]]'
    refuses "the encoder's 20 heads, 5120 columns of an MLP and 1280 of its \
projector do not all divide by '8' tensor-parallel ranks; try --encoder-mesh \
shared,tp=4" -p 2 --dp 8 --encoder-mesh audio:shared,tp=8 \
        --encoder-mesh vision:tp=4 "$OMNI"
    refuses "the encoder's 16 heads, 3420 columns of an MLP and 5120 of its \
projector do not all divide by '5' tensor-parallel ranks; try --encoder-mesh \
vision:pp=1,tp=4,cp=1,dp=1" -p 2 --dp 5 --encoder-mesh audio:shared,tp=5 \
        --encoder-mesh vision:tp=5 "$OMNI"
    # Its stages are taken as they are.
    ppsplit -q -p 4 --dp 2 --tp 2 --encoder-mesh audio:shared \
        --encoder-mesh vision:pp=2 "$OMNI" >whole.json
    jq -e '.mesh.encoder_tp == null and .components[1].mesh.dp == 2 and
        (.components[1] | has("first_rank") | not)' whole.json
}

@test "plans of both encoders and of the language model are joined" {
    ppsplit -q -p 5 --dp 2 --tp 2 --clips 2 --encoder-mesh audio:pp=2,dp=3 \
        --encoder-mesh vision:pp=1,tp=4,cp=2 "$OMNI" >direct.json
    ppsplit -q -p 3 --clips 2 --encoder-mesh vision:pp=1,tp=4,cp=2 \
        --encoder-mesh audio:pp=1 "$OMNI" >v.json
    ppsplit -q -p 4 --clips 2 --encoder-mesh audio:pp=2,dp=3 \
        --encoder-mesh vision:pp=1,dp=2 "$OMNI" >a.json
    ppsplit -q --combine vision=v.json,audio=a.json,language=direct.json \
        --edge vision:language --edge audio:language >joined.json
    diff <(jq 'del(.history)' direct.json) <(jq 'del(.history)' joined.json)
    # Plans with a schedule are joined without it.
    for part in v a direct; do
        ppsched -q -s 1f1b -m 4 $part.json >$part-1f1b.json
    done
    ppsplit -q --combine \
        vision=v-1f1b.json,audio=a-1f1b.json,language=direct-1f1b.json |
        diff <(jq 'del(.history)' joined.json) <(jq 'del(.history)' -)
    # A plan on one rank gives each of its parts, which become branches.
    ppsplit -q -p 1 --dp 2 --tp 2 --clips 2 "$OMNI" >one.json
    ppsplit -q --combine language=one.json,audio=one.json,vision=one.json \
        >joined.json
    [ "$(graph joined.json)" = \
        '[["vision",[]],["audio",[]],["language",[0,1]]]' ]
    jq -e '[.components[].mesh | [.pp, .dp, .tp, .cp]] ==
        [[1, 2, 1, 2], [1, 2, 1, 2], [1, 2, 2, 1]]' joined.json
    ppsched -q -s 1f1b -m 4 joined.json | ppsched --check
    refuses "--combine: needs a plan for 'audio'" \
        --combine vision=v.json,language=direct.json
    refuses "--combine: 'audio' is a second plan for it" \
        --combine vision=v.json,audio=a.json,audio=a.json
    refuses "--edge: 'audio:vision', but the edges of this model are \
vision:language and audio:language" --edge audio:vision \
        --combine vision=v.json,audio=a.json,language=direct.json
    refuses "--edge: 'x:y' is one more than there are encoders" --edge a:b \
        --edge a:b --edge x:y --combine vision=v.json
    ppsplit -q -p 2 --clips 3 "$OMNI" >other.json
    refuses "--combine: clips is '2' in v.json and '3' in other.json; make both \
plans of one model with the same options" \
        --combine vision=v.json,audio=a.json,language=other.json
    llava=$SRCDIR/tests/data/vision/llava-1.5-7b.json
    ppsplit -q -p 2 "$llava" >llava.json
    refuses "--combine: llava.json: has '2' components, and another plan 3; make \
both plans of one model" --combine vision=v.json,language=llava.json
}

@test "a given plan with branches is shown" {
    local args
    for args in '-p 5 --encoder-ranks 3' '-p 3 --encoder-ranks 1' '-p 4' \
        '-p 5 --dp 2 --encoder-mesh audio:pp=2,dp=3 --encoder-mesh vision:tp=4'; do
        # shellcheck disable=SC2086
        ppsplit -q $args -m 8 -s 1f1b "$OMNI" >plan.json
        # The same stages and memory; a given split is not compared with others.
        # shellcheck disable=SC2086
        ppsplit -q -t $args -m 8 -s 1f1b "$OMNI" | sed '1,/^$/d; /^A step/,$d' \
            >direct
        ppsplit -t -m 8 -s 1f1b plan.json | sed '1,/^$/d; /^A step/,$d' >given
        diff direct given
        grep -q '^The largest rank has' given
        diff <(ppsplit --export fqns plan.json | jq -c .) \
            <(jq -c '[.stages[].units]' plan.json)
    done
    ppsplit -q -p 5 --encoder-ranks 3 "$OMNI" | ppsplit --svg plan.svg -
    grep -q 'ForConditionalGeneration: 5 stages on 5 ranks' plan.svg
}

@test "each encoder has its own items, and costs what it has in one model" {
    # of FILTER ARGS...: prints numbers of a unit for a sequence.
    of() {
        local unit=$1
        shift
        ppsplit -p 1 --seq-len 4096 "$@" | jq -c --arg u "$unit" '.model.units[] |
            select(.fqn == $u) | [.fwd_flops[0] * 4096,
            .fwd_flops[1] * 4096 * 4097 / 2, .act_bytes[] * 4096] | map(round)'
    }
    # That of images is Qwen2.5-VL's.
    vl=$SRCDIR/tests/data/vision/qwen2.5-vl-7b.json
    for unit in visual.patch_embed visual.blocks.3 visual.blocks.7 visual.merger; do
        [ "$(of $unit --dtype bf16 "$OMNI")" = "$(of $unit --dtype bf16 "$vl")" ]
    done
    [ "$(of visual.blocks.0 --clips 2 "$OMNI")" = "$(of visual.blocks.0 "$OMNI")" ]
    one=$(of audio_tower.layers.0 "$OMNI")
    [ "$(of audio_tower.layers.0 --images 3 "$OMNI")" = "$one" ]
    [ "$(of audio_tower.layers.0 --clips 3 "$OMNI")" = \
        "$(jq -c 'map(3 * .)' <<<"$one")" ]
    # A row attends to the 100 of its chunk.
    [ "$(jq '.[1]' <<<"$one")" -eq $((4 * 1280 * 1500 * 100)) ]
    jq -e '.[1] == 4 * 1280 * 1000 * 100' \
        <<<"$(of audio_tower.layers.0 --clip-rows 1000 "$OMNI")"
}

@test "gradients for one encoder do not pass the other" {
    ppsplit -p 4 -m 4 -s 1f1b --encoder-ranks 2 --freeze audio,projector "$OMNI" \
        >plan.json
    ppsched -s 1f1b -m 4 plan.json >s.json
    # The stage of audio has forwards only.
    jq -e '.schedule.actions | (.[1] | test("1F3") and (test("1B|1I|1W|RECV_B") |
        not)) and (.[0] | test("0B3"))' s.json
    ppsched --check s.json
    # So it costs the same if vision is frozen too.
    for frozen in audio,projector vision,audio,projector; do
        ppsplit -t -p 4 -m 4 -s 1f1b --encoder-ranks 2 --freeze $frozen "$OMNI" |
            grep '  1  audio encoder .* 1\.0 %'
    done
}

@test "the thinker's own configuration gives the same plan" {
    jq '.thinker_config + {dtype: "bfloat16", architectures:
        ["Qwen2_5OmniThinkerForConditionalGeneration"]}' "$OMNI" >config.json
    ppsplit -p 3 config.json | jq 'del(.history, .model.source)' >ours
    ppsplit -p 3 "$OMNI" | jq 'del(.history, .model.source)' | diff - ours
}

@test "options of encoders that do not fit are refused" {
    refuses "--encoder-mesh: '$OMNI' has two encoders; give a mesh for each, \
--encoder-mesh vision:SIZES --encoder-mesh audio:SIZES" -p 4 \
        --encoder-mesh pp=1 "$OMNI"
    refuses "--encoder-mesh: the encoder 'audio' needs a mesh too" -p 4 \
        --encoder-mesh vision:pp=1 "$OMNI"
    refuses "--encoder-mesh: 'vision' cannot share ranks with the language \
model while 'audio' has its own, since its features come first" -p 4 \
        --encoder-mesh vision:shared,tp=1 --encoder-mesh audio:pp=1 "$OMNI"
    refuses "--encoder-mesh: 'shared' is one mesh for all encoders; give no name \
unless another encoder has ranks of its own" -p 4 \
        --encoder-mesh audio:shared,tp=1 "$OMNI"
    refuses "--encoder-mesh: 'shared' needs tp, the ranks that divide the \
encoder's tensors; try shared,tp=2" -p 4 --encoder-mesh audio:shared,dp=1 \
        --encoder-mesh vision:pp=1 "$OMNI"
    refuses "--encoder-mesh: '$OMNI' has no encoder 'video', but vision and \
audio" -p 4 --encoder-mesh video:pp=1 "$OMNI"
    refuses "--encoder-mesh: 'text' is a third encoder" -p 4 \
        --encoder-mesh vision:pp=1 --encoder-mesh audio:pp=1 \
        --encoder-mesh text:pp=1 "$OMNI"
    llava=$SRCDIR/tests/data/vision/llava-1.5-7b.json
    refuses "--encoder-mesh: '$llava' has no encoder 'audio', but vision" -p 4 \
        --encoder-mesh audio:pp=1 "$llava"
    refuses "--clips: '$llava' takes no audio" -p 2 --clips 1 "$llava"
    refuses "--clips: '6' clips of audio of 750 tokens each do not fit into a \
sequence of 4096 tokens (--seq-len), which has images too" -p 2 --seq-len 4096 \
        --clips 6 "$OMNI"
    ppsplit -p 1 --export fqns "$OMNI" | jq '.[0] | [.[:40], .[40:80], .[80:]]' \
        >names.json
    refuses "a stage has the end of one encoder and a part of another, or of \
the language model; begin a stage with each, or keep the second encoder with \
the embedding" -p 3 --fqns names.json "$OMNI"
    ppsplit -p 4 --encoder-ranks 2 --export fqns "$OMNI" |
        jq '.[:1] + [[]] + .[1:]' >names.json
    refuses "stage 1 has no units, but the features of two encoders go to the \
embedding's stage alone" -p 5 --fqns names.json "$OMNI"
}

@test "a manifest whose features take another way is refused" {
    ppsplit -p 4 --encoder-ranks 2 "$OMNI" >plan.json
    jq '.stages[2].inputs = [1]' plan.json >relayed.json
    run --separate-stderr ppsched -s 1f1b -m 4 relayed.json
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsched: relayed.json: /components: stage 2 does not have the \
inputs of its units: features of an encoder go to the embedding's stage alone, \
and from nowhere else" ]
}

@test "configurations of a thinker that are wrong are refused" {
    edited '.thinker_config.audio_config.output_dim = 1280'
    refuses "config.json: /thinker_config/audio_config/output_dim: '1280' is not \
the language model's width, 3584" -p 2 config.json
    edited '.thinker_config.audio_config.n_window = 1501'
    refuses "config.json: /thinker_config/audio_config/n_window: a chunk of \
'1501' rows has more than the 1500 positions (max_source_positions)" \
        -p 2 config.json
    edited '.thinker_config.audio_config.d_model = 1285'
    refuses "config.json: /thinker_config/audio_config/encoder_attention_heads: \
'20' heads do not divide the encoder's width, 1285" -p 2 config.json
    edited '.thinker_config.audio_config |= (.d_model = 1285 |
        .encoder_attention_heads = 5)'
    refuses "config.json: /thinker_config/audio_config/d_model: '1285' is odd, \
but positions have as many sines as cosines" -p 2 config.json
    edited '.thinker_config.audio_config.scale_embedding = true'
    refuses "config.json: /thinker_config/audio_config/scale_embedding: 'true' \
is not supported" -p 2 config.json
    edited '.thinker_config.audio_token_index = 151655'
    refuses "config.json: /thinker_config: token '151655' cannot stand for both \
images and audio" -p 2 config.json
    edited 'del(.thinker_config.audio_config)'
    refuses "config.json: /thinker_config: 'audio_config' is missing" \
        -p 2 config.json
}

@test "weights of a thinker have its names and its shapes" {
    mkdir model
    cp "$SRCDIR"/tests/golden/qwen2.5-omni/{config.json,model.safetensors} model
    ppsplit -p 3 --encoder-ranks 2 --seq-len 64 --image-patches 16 --clip-rows 8 \
        model >plan.json
    jq '.audio_config.num_mel_bins = 5' model/config.json >config.json
    mv config.json model
    run --separate-stderr ppsplit -p 1 model
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsplit: model: 'audio_tower.conv1.weight' is [12, 6, 3], \
expected [12, 5, 3]" ]
}
