#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# generator_gradients - a generator behind a language model, against PyTorch: both losses,
# every gradient of both models and of the connector between them, and ten AdamW
# steps, whatever meshes the two have. scripts/gen-generator wrote what is
# expected. pprun computes in fp64; dumps of gradients have fp32.

bats_require_minimum_version 1.5.0

GRADIENT=1e-6

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    export D=$SRCDIR/tests/golden/generator
    export COMPARE=$BUILDDIR/tests/golden/compare_tensors
    # A step takes all six bins: 6, 3 or 2 microbatches of 1, 2 or 3 lanes.
    pppack -q -l 24 --cp 2 --tp 2 --bins-multiple 6 -o packed "$D/data.jsonl"
    [ "$(pppack --stats packed | jq -c '[.bins, .scored, .generator_scored]')" = \
        "$(jq -c '[6] + .scored' "$D/expected.json")" ]
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan LANGUAGE GENERATOR SCHEDULE [OPTION...]: writes plan.json for meshes that
# are given as options of ppsplit.
plan() {
    local lanes=1
    [[ $1 =~ --dp\ ([0-9]) ]] && lanes=${BASH_REMATCH[1]}
    # shellcheck disable=SC2086
    ppsplit -q $1 "$D/model" >l.json
    # shellcheck disable=SC2086
    ppsplit -q $2 "$D/model/generator" >g.json
    ppsplit -q --combine language=l.json,generator=g.json |
        ppsched -q -s "$3" -m $((6 / lanes)) "${@:4}" >plan.json
}

# train STEPS [OPTION...]: trains the models of the golden with its optimizer.
train() {
    pprun -q --data packed --dtype fp64 --weights "$D/model" --steps "$1" \
        --loss generator="$(jq .weight "$D/expected.json")" --lr 1e-3 \
        "${@:2}" plan.json >steps.jsonl
}

# agrees: compares the numbers of steps.jsonl with the first ones expected.
agrees() {
    jq -se --slurpfile want "$D/expected.json" '$want[0] as $w | length as $n
        | def close($got; $want): [$got, $want] | transpose
              | all((.[0] - .[1] | fabs) <= 1e-9 * .[1]);
        $n > 0 and close(map(.loss); $w.losses[:$n])
        and close(map(.generator_loss); $w.generator_losses[:$n])
        and close(map(.grad_norm); $w.grad_norms[:$n])' steps.jsonl ||
        { cat steps.jsonl; return 1; }
}

# one_step LANGUAGE GENERATOR SCHEDULE [OPTION...]: compares a step of a plan.
one_step() {
    plan "$@"
    train 1 --dump-grads grads.safetensors ||
        { echo "$*"; return 1; }
    agrees && "$COMPARE" $GRADIENT 1e-12 grads.safetensors \
        "$D/grads.safetensors" || { echo "$*"; return 1; }
}

@test "losses and every gradient of one step, in one row each and in two" {
    one_step '-p 1' '-p 1' 1f1b
    one_step '-p 2' '-p 2' 1f1b
    one_step '-p 2' '-p 1' zb-h1
}

@test "ten AdamW steps" {
    plan '-p 1 --dp 2' '-p 2' 1f1b
    train 10
    agrees
}

@test "an evaluation has the losses of the next step" {
    plan '-p 2' '-p 1 --dp 2' 1f1b
    train 2 --eval packed --eval-every 1
    jq -se '[.[0].val_loss - .[1].loss, .[0].val_generator_loss -
        .[1].generator_loss] | all(fabs < 1e-12)' steps.jsonl
    # Empty microbatches of the last pass count nothing.
    ppscore -q --eval packed --dtype fp64 --weights "$D/model" plan.json |
        jq -e --slurpfile want "$D/expected.json" '$want[0] as $w
            | (.val_loss - $w.losses[0] | fabs) < 1e-9 and
              (.val_generator_loss - $w.generator_losses[0] | fabs) < 1e-9'
}

@test "data-parallel ranks may be fewer or more than the language model's" {
    one_step '-p 1 --dp 2' '-p 1' 1f1b
    one_step '-p 2' '-p 1 --dp 2' 1f1b
    one_step '-p 1 --dp 3' '-p 1 --dp 2' gpipe
    one_step '-p 1 --dp 2' '-p 2 --dp 3' zb-h1
}

@test "tensor-parallel and context-parallel ranks may be others" {
    one_step '-p 1 --tp 2' '-p 1' 1f1b
    one_step '-p 1' '-p 1 --tp 2' 1f1b
    one_step '-p 1 --cp 2' '-p 1' 1f1b
    one_step '-p 1 --dp 2' '-p 1 --cp 2' 1f1b
    one_step '-p 1 --cp 2 --tp 2' '-p 1 --cp 2 --dp 2' 1f1b
    one_step '-p 1 --cp 2' '-p 2 --cp 2' zb-h1
}

@test "ranks may divide weights, and recompute" {
    one_step '-p 1 --dp 2 --zero 3' '-p 1 --dp 3 --zero 3' gpipe
    one_step '-p 2 --recompute full --tp 2' '-p 1 --recompute full' 1f1b
}

@test "without a place in a channel nothing waits for ever" {
    one_step '-p 2 --dp 2' '-p 2' 1f1b --depth 0
    one_step '-p 2' '-p 2 --dp 2' zb-h1 --depth 0
}

# numbers FILE TENSOR: prints the bytes of a tensor of a dump.
numbers() {
    local size
    size=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    head -c $((8 + size)) "$1" | tail -c "$size" |
        jq -r --arg t "$2" '.[$t].data_offsets | "\(.[0]) \(.[1])"' |
        while read -r from to; do
            tail -c +$((9 + size + from)) "$1" | head -c $((to - from)) | od -v
        done
}

@test "a weight of 0 leaves the language model its own gradients" {
    local t
    plan '-p 1 --dp 2' '-p 1' 1f1b
    pprun -q --data packed --dtype fp64 --weights "$D/model" --steps 1 \
        --loss generator=0 --dump-grads none.safetensors plan.json |
        jq -e '.generator_loss > 5 and .grad_norms.generator == 0'
    ppsplit -q -p 1 --dp 2 "$D/model" | ppsched -q -s 1f1b -m 3 >alone.json
    pprun -q --data packed --dtype fp64 --weights "$D/model" --steps 1 \
        --dump-grads alone.safetensors alone.json >/dev/null
    for t in lm_head.weight model.norm.weight model.embed_tokens.weight \
        model.layers.0.self_attn.q_proj.weight; do
        [ -n "$(numbers alone.safetensors $t)" ]
        cmp <(numbers none.safetensors $t) <(numbers alone.safetensors $t)
    done
    # With a weight they differ: the comparison can fail.
    train 1 --dump-grads grads.safetensors
    run cmp <(numbers grads.safetensors model.norm.weight) \
        <(numbers alone.safetensors model.norm.weight)
    [ "$status" = 1 ]
}

@test "a generator without scored tokens has no loss and no gradient" {
    jq -c '.generator_mask = (.input_ids | map(0))' "$D/data.jsonl" >mute.jsonl
    pppack -q -l 24 --bins-multiple 6 -o mute mute.jsonl
    plan '-p 1' '-p 1 --dp 2' 1f1b
    pprun -q --data mute --weights "$D/model" --steps 1 plan.json |
        jq -e '.generator_loss == null and .grad_norms.generator == 0 and
            .grad_norms.language > 1'
}

@test "checkpoints open in transformers' format, and resume on any mesh" {
    plan '-p 1 --dp 2' '-p 1' 1f1b
    train 2 --save saved
    jq -e '.architectures == ["LlamaForCausalLM"]' \
        saved/latest/generator/config.json
    train 4 --save saved --resume saved
    tail -n 1 steps.jsonl >whole.jsonl
    plan '-p 2' '-p 2 --tp 2' zb-h1
    pprun -q --data packed --dtype fp64 --resume saved/step-00000002 --steps 4 \
        --loss generator=0.6 --lr 1e-3 plan.json >steps.jsonl
    tail -n 1 steps.jsonl | jq -e --slurpfile want whole.jsonl \
        '(.loss - $want[0].loss | fabs) < 1e-12 and .step == 4 and
            (.generator_loss - $want[0].generator_loss | fabs) < 1e-12'
    # Its weights begin another run, and small files are read again.
    pprun -q --data packed --dtype fp64 --weights saved/latest --steps 1 \
        --save small --shard-size 1K plan.json >steps.jsonl
    [ "$(jq '.weight_map | length' \
        small/latest/generator/model.safetensors.index.json)" = 21 ]
    [ -e small/latest/generator/connector.safetensors ]
    pprun -q --data packed --dtype fp64 --resume small --steps 2 plan.json \
        >steps.jsonl
    [ "$(wc -l <steps.jsonl)" = 1 ]
    # Without a file the connector begins at random.
    cp -r "$D/model" bare
    rm bare/generator/connector.safetensors
    run --separate-stderr pprun --data packed --weights bare --steps 1 \
        --lr 1e-3 plan.json
    [ "$stderr" = "pprun: bare/generator has no connector.safetensors: the \
connector begins at random" ]
    # Part of a connector is a mistake.
    LC_ALL=C sed 's/"weight"/"kernel"/' \
        "$D/model/generator/connector.safetensors" \
        >bare/generator/connector.safetensors
    run -2 --separate-stderr pprun --data packed --weights bare --steps 1 \
        --lr 1e-3 plan.json
    [ "$stderr" = "pprun: bare: no tensor 'generator.connector.weight'" ]
}
