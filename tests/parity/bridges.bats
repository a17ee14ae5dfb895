#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# bridges - an encoder with a mesh and ranks of its own, from a plan to a
# checkpoint. test_bridges compares gradients over many meshes.

bats_require_minimum_version 1.5.0
load helpers
load images

lines() { image_lines llava "$@"; }
pack() { pppack -q --image-token 31 --patch 4 "$@"; }

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    # Twice as many heads of half the width, for four ranks: weights keep their
    # shapes.
    divisible llava '.vision_config.num_attention_heads = 4 |
        .text_config += {num_attention_heads: 4, num_key_value_heads: 2,
            head_dim: 4}'
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    MODEL=model
}

@test "a manifest gives the mesh and the ranks of each component" {
    plan 1f1b -p 3 --dp 2 --encoder-mesh pp=1,dp=3
    jq -e '.mesh.pp == 3 and .mesh.dp == 2 and
        [.components[] | [.rank_offset, .first_rank, .mesh.pp, .mesh.dp]] ==
        [[0, 0, 1, 3], [1, 3, 2, 2]]' plan.json
    # 3 + 2 x 2 ranks.
    ppsplit -t -p 3 --dp 2 --encoder-mesh pp=1,dp=3 "$MODEL" | tr '\n' ' ' |
        grep -q 'one of the encoder of dp 3 x tp 1 x cp 1; 7 in all'
    # As many ranks take as long, however they are called.
    speed() {
        ppsplit -t -p 3 --gpu h100 --dtype bf16 "$@" "$MODEL" | tr '\n' ' ' |
            grep -o 'A step of.* MFU [0-9.]*'
    }
    diff <(speed --dp 2 --encoder-ranks 1) \
        <(speed --dp 2 --encoder-mesh dp=2)
    pprun -q --data packed --init 1 --steps 1 --print-metadata-hash plan.json |
        jq -s -e '[.[] | select(.hash) | [.component[:3], .row, .dp]] ==
            [["vis",0,0], ["vis",0,1], ["vis",0,2], ["lan",1,0], ["lan",1,1],
             ["lan",2,0], ["lan",2,1]]'
    plan 1f1b -p 2 --tp 2 --encoder-mesh tp=4,cp=2,dp=3
    jq -e '[.components[].mesh | [.pp, .tp, .cp, .dp]] ==
        [[1, 4, 2, 3], [1, 2, 1, 1]] and .components[1].first_rank == 24' \
        plan.json
    pprun -q --data packed --init 1 --steps 1 --print-metadata-hash plan.json |
        jq -s -e '[.[] | select(.hash) | .hash] | length == 26 and
            (unique | length) > 3'
}

@test "steps, traces and the verification name components" {
    plan 1f1b -p 3 --encoder-mesh dp=2
    ppsched --trace simulated.json plan.json >/dev/null
    pprun -q --data packed --steps 1 --trace trace.json plan.json >step
    jq -e '(.grad_norms | keys_unsorted) == ["vision", "language"] and
        .grad_norms.vision > 0 and .grad_norms.language > 0 and
        ((.grad_norms | map(. * .) | add) / (.grad_norm * .grad_norm) - 1 |
            fabs) < 1e-12' step
    for file in simulated.json trace.json; do
        jq -e '[.traceEvents[] | select(.name == "process_name") | .args.name]
            == ["rank 0, vision", "rank 1, language", "rank 2, language"]' $file
    done
    pprun -q --verify --dtype fp64 --data packed plan.json >table
    grep -q '^vision_tower.*  vision ok$' table
    grep -q '^language_model.*  language ok$' table
    # One rank of both.
    plan 1f1b -p 2
    pprun -q --verify --json --dtype fp64 --data packed plan.json |
        jq -e '[.parameters[] | select(.rank == 0) | .components] | unique |
            . == ["vision and language"] or . == ["vision"]'
}

@test "alone in its mesh, an encoder has the bits of one rank" {
    plan 1f1b -p 1
    train one --eval eval --eval-every 2
    plan 1f1b -p 3 --encoder-mesh pp=1
    train apart --eval eval --eval-every 2
    compare one/latest apart/latest
    diff one.jsonl apart.jsonl
}

@test "behind an encoder each rank may have several stages of the language model" {
    local args k
    plan gpipe -p 1
    train one
    for args in 'interleaved -p 3 -c 2 --encoder-ranks 1' \
        'zbv -p 4 -c 2 --placement v --encoder-mesh pp=2' \
        'dualpipev -p 3 -c 2 --placement v --encoder-mesh tp=1'; do
        # shellcheck disable=SC2086
        plan $args
        train many
        compare one/latest many/latest
        diff one.jsonl many.jsonl
        train begun --steps 2
        train rest --resume begun
        compare one/latest rest/latest
    done
    plan gpipe -p 1 --dp 2
    train two --dtype fp64
    for args in 'zb-interleaved -p 3 -c 2 --dp 2 --zero 3 --encoder-mesh dp=3' \
        'v-half -p 4 -c 2 --placement v --dp 2 --cp 2 --encoder-mesh pp=2,tp=2'; do
        # shellcheck disable=SC2086
        plan $args
        train many --dtype fp64
        close two many
        pprun -q --verify --dtype fp64 --data packed plan.json
    done
    # A given plan keeps its stages, alone or beside another encoder's.
    ppsplit -q -t plan.json | grep -q '^6 stages on 4 ranks in a V, given;'
    k=(-c 2 --placement v --dp 2 --cp 2)
    ppsplit -q -p 3 "${k[@]}" --encoder-mesh tp=2,dp=2 "$MODEL" >language.json
    ppsplit -q -p 5 "${k[@]}" --encoder-mesh pp=3 "$MODEL" >vision.json
    ppsplit -q --combine vision=vision.json,language=language.json |
        ppsched -q -s dualpipev -m 4 --data packed -o plan.json
    jq -e '[.stages[].rank] == [0, 1, 2, 3, 4, 4, 3]' plan.json
    train many --dtype fp64
    close two many
    run -2 --separate-stderr ppsplit -q --combine \
        vision=vision.json,language=<(ppsplit -q -p 1 -c 7 --dp 2 "$MODEL")
    [[ $stderr == *"has '7' stages on 1 pipeline ranks; it needs one stage on \
each, or none with units of an encoder" ]]
}

@test "as many ranks of its own give an encoder the bits of a shared mesh" {
    # The images of all bins are alike: each rank has those of one mesh.
    lines 3 1 2 >line
    for _ in {1..16}; do cat line; done >even.jsonl
    pack --cp 2 -l "$(jq '(.input_ids | length) / 8 | ceil * 8' line)" \
        -o even even.jsonl
    local mesh
    export DATA=even
    for mesh in '1 2' '2 1' '2 2'; do
        read -r dp cp <<<"$mesh"
        plan 1f1b -p 1 --dp "$dp" --cp "$cp"
        train shared
        plan 1f1b -p 2 --dp "$dp" --cp "$cp" --encoder-mesh "dp=$dp,cp=$cp"
        train apart
        compare shared/latest apart/latest
        diff shared.jsonl apart.jsonl
    done
    # And a division of the same ranks that has their number again.
    plan 1f1b -p 1 --dp 2 --cp 2 --encoder-mesh shared,tp=1
    train apart
    compare shared/latest apart/latest
    diff shared.jsonl apart.jsonl
}

@test "any numbers of ranks train alike" {
    plan 1f1b -p 1 --dp 2
    train two --dtype fp64 --eval eval --eval-every 2
    for mesh in pp=1,dp=1 pp=1,dp=2 dp=3,pp=2 tp=4 tp=2,cp=2,pp=2; do
        plan 1f1b -p 3 --dp 2 --encoder-mesh $mesh
        train apart --dtype fp64 --eval eval --eval-every 2
        close two apart
        plan 1f1b -p 3 --dp 2 --tp 2 --zero 0 --encoder-mesh $mesh
        train apart --dtype fp64 --eval eval --eval-every 2 \
            --message-size exchange
        close two apart
    done
}

@test "plans have the memory of a run" {
    # Every bin has one sequence with two images, all alike.
    lines 3 1 2 >line
    for _ in 1 2 3 4 5 6 7 8; do cat line; done >same.jsonl
    local length need kind
    length=$(jq '(.input_ids | length) / 8 | ceil * 8' line)
    pack -l "$length" --cp 4 -o same same.jsonl
    for args in '-p 2 --encoder-mesh dp=2' '-p 3 --encoder-mesh pp=2 --dp 2' \
        '-p 4 -c 2 --tp 2 --encoder-mesh dp=2,pp=2' '-p 3 -c 2 --encoder-ranks 1' \
        '-p 3 --tp 2 --cp 2 --encoder-mesh dp=3' \
        '-p 2 --zero 3 --encoder-mesh dp=2 --freeze language' \
        '-p 3 --encoder-mesh pp=2,tp=4' '-p 2 --tp 2 --encoder-mesh tp=2,cp=3' \
        '-p 2 --zero 3 --encoder-mesh tp=2,dp=2 --cp 2' \
        '-p 1 --tp 2 --dp 2 --encoder-mesh shared,tp=2' \
        '-p 1 --dp 4 --zero 3 --encoder-mesh shared,tp=2' \
        '-p 1 --dp 2 --cp 2 --encoder-mesh shared,tp=4'; do
        kind=1f1b
        [[ $args != *'-c 2'* ]] || kind=interleaved
        # shellcheck disable=SC2086
        ppsplit -q $args "$MODEL" |
            ppsched -q -s "$kind" -m 4 --data same -o plan.json
        pprun --print-memory --data same --init 5 --steps 1 plan.json >need.json
        ppsched --stats plan.json |
            jq -e --slurpfile need need.json '.rank_bytes == [$need[0][].total]'
        pprun -q --data same --init 5 --steps 1 plan.json
        need=$(jq 'map(.total) | max' need.json)
        within() {
            # shellcheck disable=SC2086
            ppsplit -q $args -s $kind -m 4 --seq-len "$length" --images 2 \
                --memory "$1" "$MODEL"
        }
        run -0 within "$need"
        run -1 within $((need - 1))
    done
}

@test "a profile of an encoder predicts its time in another plan" {
    lines 6 16 2 >even.jsonl
    pack --cp 2 -l 48 --bins-multiple 8 -o even even.jsonl
    plan 1f1b -p 2
    pprun -q --data packed --steps 6 --profile costs.json plan.json >/dev/null
    # Every unit that runs has a time, those around the encoder too.
    jq -e '[.units[] | select(.fwd == [0, 0]) | .fqn[26:]] ==
        ["encoder.layers.2", "post_layernorm"]' costs.json
    # A rank that has half of the images takes half of the time.
    times() {
        ppsplit -q --costs costs.json --seq-len 24 --images 2 "$@" "$MODEL" |
            jq '[.profile.units[] | select(.fqn | test("vision_tower.*layers.1$"))
                | .fwd] | .[0]'
    }
    times -p 2 --encoder-mesh dp=1 >all
    times -p 2 --encoder-mesh dp=2 >half
    jq -s -e '.[0][0] == 2 * .[1][0] and .[0][1] == 2 * .[1][1]' all half
    # A frozen encoder has no gradients.
    ppsplit -q -p 2 --freeze vision "$MODEL" |
        ppsched -q -s 1f1b -m 4 --data packed |
        pprun -q --data packed --steps 3 --profile frozen.json >/dev/null
    jq -e '[.units[] | select(.fqn | test("vision_tower.*layers.1$"))][0] |
        .fwd[0] > 0 and (has("input") or has("weight") | not)' frozen.json
}

@test "objectives have numbers for each rank that divides sequences" {
    lines 4 8 | jq -c '{prompt: .input_ids, response: [3, 4, 5],
        group: input_line_number,
        advantages: [1, -1, 0.5], logprobs: [-1, -2, -3],
        prev_logprobs: [-1, -2, -3], images}' >rollouts.jsonl
    pack --cp 2 -l 48 --bins-multiple 4 -o rollouts rollouts.jsonl
    local o=(--objective 'grpo,kl=none' --dtype fp64)
    DATA=rollouts plan 1f1b -p 2 --cp 2 --encoder-mesh dp=3
    pprun -q --data rollouts --steps 2 "${o[@]}" plan.json >apart.jsonl
    pprun --print-memory --data rollouts --steps 1 "${o[@]:0:2}" plan.json >need.json
    ppsched --stats --objective grpo plan.json |
        jq -e --slurpfile need need.json '.rank_bytes == [$need[0][].total]'
    DATA=rollouts plan 1f1b -p 1
    pprun -q --data rollouts --steps 2 "${o[@]}" plan.json >one.jsonl
    close one apart
    jq -s -e '.[0].ratio_max == .[2].ratio_max' one.jsonl apart.jsonl
}

@test "--verify proves both components, and finds faults of the bridge" {
    plan 1f1b -p 3 --tp 2 --cp 2 --encoder-mesh pp=1,dp=3
    run -0 pprun -q --verify --dtype fp64 --data packed plan.json
    plan 1f1b -p 2 --dp 2 --encoder-mesh pp=1,dp=3
    caught() {
        PP_INJECT=$1 run "$2" "$BUILDDIR/tests/parity/pprun_inject" -q \
            --verify --dtype fp64 --data packed plan.json
    }
    caught none -0
    caught bridge-swapped -1
    [[ $output == *"the loss differs"* ]]
    sees_encoder() {
        [[ $output == *"the loss agrees"* ]]
        grep -q '^vision_tower.* DIFFERS' <<<"$output"
    }
    caught bridge-twice -1
    sees_encoder
    caught bridge-factor -1
    sees_encoder
    caught bridge-absent -1
    sees_encoder
    plan 1f1b -p 2 --dp 2 --encoder-mesh pp=1,tp=2,dp=2
    caught none -0
    caught encoder-bias -1
    [[ $output == *"the loss differs"* ]]
    caught encoder-norms -1
    sees_encoder
    # The same ranks in two divisions: one of the encoder has two lanes.
    plan 1f1b -p 2 --dp 4 --encoder-mesh shared,tp=2
    caught none -0
    for fault in bridge-absent bridge-factor encoder-norms; do
        caught $fault -1
        grep -q '^loss of step 1 .* ok' <<<"$output"
        grep -q '^vision_tower.* DIFFERS' <<<"$output"
    done
}

@test "the ranks of a language model in two divisions train alike" {
    local o=(--dtype fp64 --lr 1e-2)
    plan 1f1b -p 1 --dp 2
    pprun -q --data packed "${o[@]}" --steps 3 plan.json >one.jsonl
    plan 1f1b -p 1 --tp 4 --dp 2 --encoder-mesh shared,tp=2,dp=4
    jq -e '.mesh.encoder_tp == 2 and [.components[] | [.name, .mesh.tp, .mesh.dp]]
        == [["vision", 2, 4], ["language", 4, 2]]' plan.json
    ppsplit -t -p 1 --tp 4 --dp 2 --encoder-mesh shared,tp=2 "$MODEL" |
        tr '\n' ' ' | grep -q 'dp 2 x tp 4 x cp 1 ranks, for the encoder dp 4 x tp 2; 8 in all'
    rm -rf moved
    pprun -q --data packed "${o[@]}" --steps 1 --save moved plan.json >moved.jsonl
    plan 1f1b -p 2 --dp 2 --encoder-mesh shared,tp=2
    pprun -q --data packed "${o[@]}" --steps 2 --save moved --resume moved \
        plan.json >>moved.jsonl
    plan 1f1b -p 1 --dp 2 --cp 2
    pprun -q --data packed "${o[@]}" --steps 3 --resume moved plan.json >>moved.jsonl
    close one moved
}

@test "a run that stopped goes on, on the same ranks with the same bits" {
    plan 1f1b -p 3 --dp 2 --encoder-mesh pp=1,dp=3
    train whole
    train half --steps 2
    pprun -q --data packed --save half --steps 3 --lr 1e-2 --resume half \
        plan.json
    compare whole/latest half/latest
    # Its weights open anywhere.
    plan 1f1b -p 2
    ppscore -q --data packed --weights whole/latest --logprobs -o got plan.json
    plan 1f1b -p 3 --encoder-mesh pp=2
    ppscore -q --data packed --resume whole --logprobs -o want plan.json
    diff got want
}

@test "ranks that divide an encoder's tensors go on with those of others" {
    local o=(--dtype fp64 --lr 1e-2)
    plan 1f1b -p 1
    pprun -q --data packed "${o[@]}" --steps 3 plan.json >one.jsonl
    plan 1f1b -p 3 --zero 3 --encoder-mesh pp=2,tp=4
    rm -rf moved
    pprun -q --data packed "${o[@]}" --steps 1 --save moved plan.json >moved.jsonl
    plan 1f1b -p 2 --tp 2 --encoder-mesh tp=2,dp=2
    pprun -q --data packed "${o[@]}" --steps 2 --save moved --resume moved \
        plan.json >>moved.jsonl
    plan 1f1b -p 1
    pprun -q --data packed "${o[@]}" --steps 3 --resume moved plan.json >>moved.jsonl
    close one moved
    # The same seed gives the same weights.
    plan 1f1b -p 1
    pprun -q --data packed "${o[@]}" --init 7 --steps 1 plan.json >one.jsonl
    plan 1f1b -p 2 --encoder-mesh tp=4
    pprun -q --data packed "${o[@]}" --init 7 --steps 1 plan.json >moved.jsonl
    close one moved
}

@test "processes train as threads do" {
    needs_mpirun
    plan 1f1b -p 2 --encoder-mesh tp=2 --dp 2
    train threads
    rm -rf processes
    mpirun --allow-run-as-root --oversubscribe -n 4 pprun --transport mpi -q \
        --data packed --save processes --steps 3 --lr 1e-2 plan.json
    compare threads/latest processes/latest
    run -2 --separate-stderr mpirun --allow-run-as-root --oversubscribe -n 2 \
        pprun --transport mpi -q --data packed --steps 1 plan.json
    [[ $stderr == *"'2', but the components of the manifest have 4 ranks"* ]]
}

# refuses TEXT ARGS...: ppsplit fails with status 2 and says it.
refuses() {
    local text=$1
    shift
    run -2 --separate-stderr ppsplit -q "$@"
    [[ ${stderr_lines[0]} == *"$text"* ]]
}

@test "other sizes of an encoder's mesh are refused by name" {
    refuses "--encoder-mesh: 'ep=2' is not possible, as an encoder has no \
experts; it has pp, dp, tp and cp" -p 2 --encoder-mesh pp=1,ep=2 "$MODEL"
    refuses "the encoder's 4 heads, 20 columns of an MLP and 16 of its projector \
do not all divide by '5' tensor-parallel ranks; try --encoder-mesh \
pp=1,tp=4,cp=2,dp=1" -p 2 --encoder-mesh tp=5,cp=2 "$MODEL"
    refuses "--encoder-mesh: 'dp' is not a size such as pp=1,dp=2" \
        -p 2 --encoder-mesh pp=1,dp "$MODEL"
    refuses "--encoder-mesh: 'dp=3' is a second value for it" \
        -p 2 --encoder-mesh dp=2,dp=3 "$MODEL"
    refuses "--encoder-mesh: '0' is" -p 2 --encoder-mesh dp=0 "$MODEL"
    refuses "--encoder-mesh: '2' of 2 ranks leave none for the \
language model" -p 2 --encoder-mesh pp=2 "$MODEL"
    refuses "--encoder-mesh" -p 3 --encoder-mesh pp=1 --encoder-ranks 1 "$MODEL"
    refuses "--encoder-mesh: 'shared' needs tp, the ranks that divide the \
encoder's tensors; try shared,tp=2" -p 1 --dp 2 --encoder-mesh shared "$MODEL"
    refuses "--encoder-mesh: 'pp' is not possible on the language model's ranks" \
        -p 2 --encoder-mesh shared,tp=2,pp=1 "$MODEL"
    refuses "--encoder-mesh: dp 3 x tp 2 x cp 1 is '6' ranks, but a pipeline rank \
of the language model has 8 (dp 2 x tp 4 x cp 1)" \
        -p 1 --dp 2 --tp 4 --encoder-mesh shared,tp=2,dp=3 "$MODEL"
    refuses "the 6 ranks of a pipeline rank (dp 3 x tp 2 x cp 1) do not divide by \
'4' tensor-parallel ranks of the encoder; try --encoder-mesh shared,tp=2" \
        -p 1 --dp 3 --tp 2 --encoder-mesh shared,tp=4 "$MODEL"
    refuses "all 4 ranks of a pipeline rank divide the encoder's tensors" \
        -p 1 --dp 4 --zero 3 --encoder-mesh shared,tp=4 "$MODEL"
    refuses "--encoder-mesh needs --method balanced" -p 3 \
        --encoder-mesh pp=1 --method uniform-units "$MODEL"
    model llama false
    refuses "--encoder-mesh: 'model-llama' has no encoder" -p 2 \
        --encoder-mesh pp=1 model-llama
    refuses "--encoder-mesh: 'model-llama' has no encoder" -p 1 --dp 2 \
        --encoder-mesh shared,tp=2 model-llama
    plan 1f1b -p 2 --encoder-mesh dp=2
    run -2 --separate-stderr pprun -q --message-size max --data packed --steps 1 \
        plan.json
    [[ $stderr == *"run without --message-size max" ]]
}
