#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# omni - a model with two encoders, of images and of audio, from lines of JSON to
# a checkpoint. test_bridges compares gradients over many meshes.

bats_require_minimum_version 1.5.0
load helpers
load images

lines() { image_lines omni "$@"; }
pack() { pppack -q --image-token 31 --merge 2 --audio-token 32 "$@"; }

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    # Twice as many heads of half the width, for four ranks: weights keep their
    # shapes.
    divisible qwen2.5-omni '.vision_config.num_heads = 4 |
        .audio_config.encoder_attention_heads = 4 |
        .text_config |= (.num_attention_heads = 4 | .num_key_value_heads = 2 |
            .head_dim = 6 | .rope_parameters.mrope_section = [1, 1, 1])'
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    MODEL=model
}

# plan KIND ARGS...: that of images.bash, with the sizes of these items.
plan() {
    local kind=$1
    shift
    ppsplit -q --seq-len 48 --image-patches 16 --clip-rows 8 "$@" "$MODEL" |
        ppsched -q -s "$kind" -m 4 --data "$DATA" -o plan.json
}

@test "ranks give the bits of one, wherever the model is cut" {
    plan gpipe -p 1
    train one --eval eval --eval-every 2
    for kind in 1f1b zb-h1; do
        # Both encoders on a rank, each on its own, and the second one beside
        # the embedding.
        for cuts in '-p 3 --encoder-ranks 1' '-p 4 --encoder-ranks 2' '-p 3' \
            '-p 5 --encoder-mesh vision:pp=2 --encoder-mesh audio:pp=1'; do
            # shellcheck disable=SC2086
            plan $kind $cuts
            train cut --eval eval --eval-every 2
            compare one/latest cut/latest
            diff one.jsonl cut.jsonl
        done
    done
    plan 1f1b -p 4 --encoder-ranks 2
    jq -e '[.stages[] | [.component, .inputs]] == [["vision", []], ["audio", []],
        ["language", [0, 1]], ["language", [2]]]' plan.json
}

@test "any numbers of ranks train alike" {
    plan 1f1b -p 1
    train one --dtype fp64 --eval eval --eval-every 2
    for args in '-p 3 --dp 2 --encoder-mesh vision:dp=1 --encoder-mesh audio:dp=3' \
        '-p 4 --dp 2 --tp 2 --encoder-mesh vision:tp=4 --encoder-mesh audio:pp=2' \
        '-p 3 --cp 2 --zero 3 --encoder-mesh vision:dp=2,tp=2 --encoder-mesh audio:cp=2' \
        '-p 4 --encoder-ranks 2 --dp 2 --cp 2' '-p 2 --tp 2 --zero 0' \
        '-p 3 --dp 2 --encoder-mesh vision:dp=3 --encoder-mesh audio:shared,tp=2'; do
        # shellcheck disable=SC2086
        plan 1f1b $args
        train many --dtype fp64 --eval eval --eval-every 2
        close one many
    done
}

@test "--verify proves plans of two encoders, and finds faults where they meet" {
    local o=(-q --verify --dtype fp64 --data packed plan.json)
    for args in '-p 3 --encoder-ranks 1 --dp 2' '-p 4 --encoder-ranks 2 --tp 2' \
        '-p 4 --encoder-ranks 2 --freeze audio,projector' '-p 2 --cp 2' \
        '-p 4 --dp 2 --encoder-mesh vision:dp=3 --encoder-mesh audio:pp=2' \
        '-p 3 --tp 2 --encoder-mesh vision:pp=2 --encoder-mesh audio:shared'; do
        # shellcheck disable=SC2086
        plan 1f1b $args
        run -0 pprun "${o[@]}"
    done
    # Ranks that share the audio need not divide the other encoder.
    cp -R model odd
    jq '.vision_config.num_heads = 1' model/config.json >odd/config.json
    MODEL=odd plan 1f1b -p 2 --dp 2 --encoder-mesh vision:dp=2 \
        --encoder-mesh audio:shared,tp=2
    run -0 pprun "${o[@]}"
    plan 1f1b -p 3 --encoder-mesh vision:pp=1 --encoder-mesh audio:pp=1
    pprun "${o[@]}" >table
    grep -q '^visual.*  vision ok$' table
    grep -q '^audio_tower.*  audio ok$' table
    caught() {
        PP_INJECT=$1 run "$2" "$BUILDDIR/tests/parity/pprun_inject" "${o[@]}"
    }
    caught none -0
    caught encoders-swapped -1
    [[ $output == *"the loss differs"* ]]
    caught encoders-alike -1
    [[ $output == *"the loss differs"* ]]
    caught bridge-swapped -1
    [[ $output == *"the loss differs"* ]]
    sees_encoders() {
        [[ $output == *"the loss agrees"* ]]
        grep -q '^visual.* DIFFERS' <<<"$output"
        grep -q '^audio_tower.* DIFFERS' <<<"$output"
    }
    caught encoders-gradients -1
    sees_encoders
    caught bridge-twice -1
    sees_encoders
}

@test "plans have the memory of a run" {
    # Every bin has one sequence with an image and two clips, all alike.
    SIZE=4 lines 3 1 2 >line
    for _ in 1 2 3 4 5 6 7 8; do cat line; done >same.jsonl
    local length need
    length=$(jq '(.input_ids | length) / 8 | ceil * 8' line)
    pack -l "$length" --cp 4 -o same same.jsonl
    for args in '-p 1' '-p 2' '-p 3 --encoder-ranks 1' '-p 4 --encoder-ranks 2 --dp 2' \
        '-p 3 --encoder-mesh vision:dp=2 --encoder-mesh audio:tp=2' \
        '-p 3 --zero 3 --encoder-mesh vision:dp=1 --encoder-mesh audio:dp=2' \
        '-p 4 --zero 3 --cp 2 --encoder-mesh vision:tp=2 --encoder-mesh audio:pp=2' \
        '--tp 2 --freeze audio -p 3'; do
        # shellcheck disable=SC2086
        ppsplit -q --seq-len 48 --image-patches 64 --clip-rows 2 $args "$MODEL" |
            ppsched -q -s 1f1b -m 4 --data same -o plan.json
        need=$(planned_bytes same)
        pprun -q --data same --init 5 --steps 1 plan.json
        within() {
            # shellcheck disable=SC2086
            ppsplit -q $args -s 1f1b -m 4 --seq-len "$length" --image-patches 64 \
                --clips 2 --clip-rows 2 --memory "$1" "$MODEL"
        }
        run -0 within "$need"
        # Other cuts may take less.
        [[ $args == *-p\ [23] && $args != *encoder* ]] ||
            run -1 within $((need - 1))
    done
}

@test "steps name both encoders, and parts that are frozen stay" {
    plan 1f1b -p 4 --encoder-ranks 2 --freeze vision,projector
    rm -rf frozen
    pprun -q --data packed --save frozen --steps 2 --lr 1e-2 plan.json >step
    jq -s -e '.[0].grad_norms | (keys_unsorted == ["vision", "audio", "language"]
        and .vision == 0 and .audio > 0 and .language > 0)' step
    run -1 compare "$MODEL" frozen/latest
    [[ $output != *visual* ]]
    [[ $output == *audio_tower* ]]
}

@test "data without images, or without audio, train the rest" {
    jq -c 'select(has("audio") | not)' data.jsonl >images.jsonl
    jq -c 'select(has("images") | not)' data.jsonl >audio.jsonl
    local kind rest
    for kind in images audio; do
        pack -l 48 --bins-multiple 4 -o $kind $kind.jsonl
        DATA=$kind plan 1f1b -p 4 --encoder-ranks 2
        rest=$([ $kind = images ] && echo audio || echo vision)
        pprun -q --data $kind --steps 2 plan.json | jq -s -e --arg rest "$rest" \
            'all(.[].grad_norms; .[$rest] == 0 and .language > 0)'
        run -0 pprun -q --verify --dtype fp64 --data $kind plan.json
    done
    # A stage with both encoders and the embedding has room for the features of
    # no images, to the byte.
    DATA=audio plan 1f1b -p 1
    pprun --print-memory --data audio --steps 1 plan.json >need.json
    ppsched --stats plan.json |
        jq -e --slurpfile need need.json '.rank_bytes == [$need[0][].total]'
}

@test "a run that stopped goes on, with the same bytes on two meshes" {
    plan 1f1b -p 4 --dp 2 --encoder-mesh vision:dp=1 --encoder-mesh audio:dp=3,pp=2
    train whole
    train half --steps 2
    pprun -q --data packed --save half --steps 3 --lr 1e-2 --resume half \
        plan.json
    compare whole/latest half/latest
    # Ranks that add up in the same order write the same files.
    plan 1f1b -p 5 --encoder-mesh vision:pp=2 --encoder-mesh audio:pp=1
    train first
    plan zb-h1 -p 3 --encoder-ranks 1
    train second --steps 2
    plan 1f1b -p 4 --encoder-ranks 2
    pprun -q --data packed --save second --steps 3 --lr 1e-2 --resume second \
        plan.json
    diff -r first/latest second/latest
    # It goes on elsewhere.
    local o=(--dtype fp64 --lr 1e-2)
    plan 1f1b -p 1
    pprun -q --data packed "${o[@]}" --steps 3 plan.json >one.jsonl
    rm -rf moved
    plan 1f1b -p 3 --zero 3 --encoder-mesh vision:tp=4 --encoder-mesh audio:dp=2
    pprun -q --data packed "${o[@]}" --steps 1 --save moved plan.json >moved.jsonl
    plan 1f1b -p 4 --encoder-ranks 2 --tp 2
    pprun -q --data packed "${o[@]}" --steps 2 --save moved --resume moved \
        plan.json >>moved.jsonl
    plan 1f1b -p 1
    pprun -q --data packed "${o[@]}" --steps 3 --resume moved plan.json \
        >>moved.jsonl
    close one moved
}

@test "processes train as threads do" {
    needs_mpirun
    plan 1f1b -p 3 --dp 2 --encoder-mesh vision:tp=2 --encoder-mesh audio:dp=1
    train threads
    rm -rf processes
    mpirun --allow-run-as-root --oversubscribe -n 5 pprun --transport mpi -q \
        --data packed --save processes --steps 3 --lr 1e-2 plan.json
    compare threads/latest processes/latest
}

# divided FILTER: writes cut.json, a plan of stages that jq makes of all units $u.
divided() {
    ppsplit -q --seq-len 48 --image-patches 16 --clip-rows 8 -p 1 --export fqns \
        "$MODEL" | jq -c ".[0] as \$u | $1" >fqns.json
    ppsplit -q --seq-len 48 --image-patches 16 --clip-rows 8 \
        -p "$(jq length fqns.json)" --fqns fqns.json "$MODEL" >cut.json
}

@test "stages without units pass on rows, and no features" {
    plan gpipe -p 1
    train one
    # shellcheck disable=SC2016 # variables of jq
    for stages in '[$u[:2], [], $u[2:]]' '[$u[:10], [], $u[10:]]'; do
        divided "$stages"
        ppsched -q -s 1f1b -m 4 --data packed -o plan.json cut.json
        train empty
        compare one/latest empty/latest
    done
    # shellcheck disable=SC2016 # a variable of jq
    divided '[$u[:2], $u[2:4], $u[4:8], $u[8:]]'
    jq '.stages[0].units += .stages[1].units | .stages[1].units = [] |
        .stages[3].inputs = [0, 2] | .stages |= map(del(.params, .fwd_flops,
            .act_bytes, .out_bytes, .passing_bytes))' cut.json |
        ppsched -q -s gpipe -m 4 --data packed -o plan.json
    run -2 --separate-stderr pprun -q --data packed --steps 1 plan.json
    [ "$stderr" = "pprun: plan.json: /stages/1/units: none, but the features of \
two encoders go to the embedding's stage alone" ]
}

@test "a plan of two encoders names its components" {
    plan 1f1b -p 3
    jq 'del(.components, .stages[].component)' plan.json >bare.json
    run -2 --separate-stderr pprun -q --data packed --steps 1 bare.json
    [ "$stderr" = "pprun: bare.json: /components: must name both encoders of \
'Qwen2_5OmniThinkerForConditionalGeneration' and its language model" ]
}
