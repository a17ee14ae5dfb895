#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# mtp - a layer for multi-token prediction: splits and recomputation give the
# same bits, meshes and slices close numbers; plans know its memory, and what
# pprun does not do with it is refused. golden.bats compares it with
# transformers.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    export MODEL=$SRCDIR/tests/golden/deepseek-mtp/model
    data 1 20 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 2 -o packed data.jsonl
    mkdir -p model-mtp
    cp "$MODEL/config.json" model-mtp
    ppsplit -q -p 1 --mtp "$MODEL" | ppsched -q -s gpipe -m 4 >one.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan SCHEDULE OPTION...: writes plan.json.
plan() {
    # shellcheck disable=SC2086
    ppsplit -q --mtp "${@:2}" "$MODEL" | ppsched -q -s $1 -m 4 >plan.json
}

# verified SCHEDULE OPTION...: a plan with these options of ppsplit.
verified() {
    plan "$@"
    pprun --verify --init 1 --loss mtp=0.7 --data packed --dtype fp64 \
        plan.json >table || { echo "$*"; cat table; return 1; }
}

@test "splits and recomputation give the same bits" {
    local how
    train base one.json --loss mtp=0.5
    for how in none selective full; do
        plan zbv -p 2 -c 2 --placement v --recompute $how
        train "zbv-$how" plan.json --loss mtp=0.5
        same "zbv-$how" base
        diff <(jq .mtp_loss "zbv-$how/log") <(jq .mtp_loss base/log)
    done
    # The layer, the head and the norm on ranks of their own.
    for how in 'Et|t|mL' 'Ett|m|L'; do
        plan 1f1b -p 3 --layout "$how"
        train "$how" plan.json --loss mtp=0.5
        same "$how" base
    done
}

@test "meshes and slices compute the same" {
    verified 'zb-h1' -p 2 --tp 2 --recompute full
    verified 1f1b -p 2 --cp 2 --cp-exchange gather --dp 2
    verified gpipe -p 1 --cp 2 --cp-exchange ring --recompute selective
    verified 1f1b -p 2 --cp 2 --cp-exchange a2a --tp 2
    verified 'seq1f1b --slices 2' -p 2 --dp 2
    verified dualpipe -p 2 --placement both-ways
    verified zbv -p 2 -c 2 --placement v --dp 2 --ep 2 --zero 1
    verified 1f1b -p 2 --dp 2 --zero 3
}

@test "an exact plan of context-parallel ranks has the bits of one rank" {
    plan 1f1b -p 2 --cp 2 --cp-exact
    pprun --verify --init 1 --data packed plan.json | tail -n 1 |
        grep -q '^the same'
}

@test "no document sees the next one" {
    # A bin of many documents has the loss of bins of one each.
    pppack -q -l 64 -a none --rows 1 -o single data.jsonl
    local n name
    for name in packed single; do
        n=$(bins $name)
        ppsplit -q -p 1 --mtp "$MODEL" | ppsched -q -s gpipe -m "$n" >plan.json
        pprun -q plan.json --data $name --init 3 --steps 1 --dtype fp64 \
            --dump-grads $name.grads >$name.log
    done
    "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-9 packed.grads single.grads
    jq -se '(.[0].mtp_loss - .[1].mtp_loss | fabs) < 1e-12 and
        .[0].mtp_loss > 1' packed.log single.log
}

@test "a run goes on, and other meshes take its checkpoint" {
    pprun -q one.json --data packed --init 5 --steps 4 --save whole >whole.log
    pprun -q one.json --data packed --init 5 --steps 2 --save half >/dev/null
    plan 1f1b -p 2
    pprun -q plan.json --data packed --resume half --steps 4 --save half \
        >half.log
    diff <(jq -c '[.loss, .mtp_loss, .grad_norm]' half.log) \
        <(tail -n 2 whole.log | jq -c '[.loss, .mtp_loss, .grad_norm]')
    compare whole/latest half/latest
    # Files have neither of the copies of embedding and head.
    run -1 grep -qa -e layers.2.embed_tokens -e shared_head.head \
        whole/latest/model.safetensors
    grep -qa layers.2.shared_head.norm.weight whole/latest/model.safetensors
}

@test "without its plan the layer is left alone" {
    ppsplit -q -p 2 "$MODEL" | ppsched -q -s 1f1b -m 4 >plan.json
    run --separate-stderr pprun -q plan.json --data packed --weights "$MODEL" \
        --steps 1
    [ "$status" -eq 0 ]
    [ "$(jq 'has("mtp_loss")' <<<"$output")" = false ]
    run --separate-stderr pprun -q plan.json --data packed --init 1 --steps 1 \
        --loss mtp=1
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun: plan.json: /model/units: no layer for multi-token \
prediction, so --loss mtp has no effect; plan with ppsplit --mtp" ]
}

@test "plans know the bytes of the layer" {
    local kind need
    for kind in '1f1b Ett|mL -p 2' '1f1b E|ttm|L -p 3' \
        'interleaved E|t|t|mL -p 2 -c 2' '1f1b Ett|mL -p 2 --tp 2' \
        '1f1b Ett|mL -p 2 --dp 2 --zero 1'; do
        # shellcheck disable=SC2086
        set -- ${kind/ / --layout }
        plan "$@"
        ppsched -q --data packed -s "$1" -m 4 plan.json >sized.json
        pprun --print-memory --data packed --init 5 --steps 1 sized.json >need.json
        need=$(jq 'map(.total) | max' need.json)
        ppsched --stats sized.json | jq -e --slurpfile need need.json \
            '.rank_bytes == [$need[0][].total]'
        split() {
            ppsplit -q --mtp --schedule "$1" -m 4 --seq-len "$(longest packed)" \
                --micro-batch-tokens "$(jq .data.max_tokens sized.json)" \
                --memory "$need" "${@:2}" "$MODEL"
        }
        echo "$kind: $need"
        run -0 split "$@"
        need=$((need - 1))
        run -1 split "$@"
    done
}

# refused MESSAGE OPTION...: of pprun, with plan.json.
refused() {
    run --separate-stderr pprun -q plan.json --data packed --init 1 "${@:2}"
    [ "$status" -eq 2 ]
    [[ "$stderr" == "pprun: plan.json: /model/units: "*"$1"*"plan without --mtp" ]]
}

@test "objectives, frozen units, a tied head and two layers are refused" {
    plan 1f1b -p 2
    refused "does not train with --objective" --steps 1 --objective dpo
    plan 1f1b -p 2 --freeze model.embed_tokens
    refused "does not train with frozen units" --steps 1
    jq '.tie_word_embeddings = true' "$MODEL/config.json" >model-mtp/config.json
    ppsplit -q -p 2 --mtp model-mtp | ppsched -q -s 1f1b -m 4 >plan.json
    refused "does not train with a tied head" --steps 1
    jq '.num_nextn_predict_layers = 2' "$MODEL/config.json" \
        >model-mtp/config.json
    ppsplit -q -p 2 --mtp model-mtp | ppsched -q -s 1f1b -m 4 >plan.json
    refused "does not train with a second such layer" --steps 1
}
