#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# sharding - ranks that divide the weights and gather those of a stage while it
# is used (ZeRO-3): the same bits as with whole weights, in the memory that the
# plans say.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    model qwen3-tied true
    eight_heads model-llama
    eight_heads model-qwen3-tied
    mkdir model-wide
    jq '.vocab_size = 4100 | .num_hidden_layers = 1' \
        model-qwen3-tied/config.json >model-wide/config.json
    data 1 90 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 4 -o packed data.jsonl
    data 2 11 >eval.jsonl
    pppack -q -l 64 --cp 2 --tp 4 -o eval eval.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan NAME KIND M MODEL SPLIT...: makes NAME.json.
plan() {
    ppsplit -q "${@:5}" "model-$4" | ppsched -q -s "$2" -m "$3" -o "$1.json"
}

# divided N MODEL KIND M SPLIT...: trains with whole and divided weights, at most
# N stages of a rank whole, and compares everything.
divided() {
    local resident=$1 model=$2 kind=$3 m=$4
    shift 4
    echo "$model $kind $*"
    rm -rf whole parts
    plan whole "$kind" "$m" "$model" "$@"
    plan parts "$kind" "$m" "$model" "$@" --zero 3 --resident "$resident"
    train whole whole.json --eval eval
    train parts parts.json --eval eval
    same whole parts
    diff -r whole/ckpt/latest/ parts/ckpt/latest/
}

@test "dividing the weights changes no bit" {
    divided 1 llama interleaved 4 -p 2 -c 2 --dp 2
    divided 2 qwen3-tied looped-bfs 3 -p 2 -c 3 --dp 2 --recompute selective
    divided 1 qwen3-tied zbv 2 -p 2 -c 2 --placement v --dp 3
    divided 1 qwen3-tied dualpipe 4 -p 2 --placement both-ways -s dualpipe --dp 2
}

@test "nor does it with other axes, of tensors of many blocks" {
    divided 1 llama interleaved 4 -p 2 -c 2 --dp 2 --tp 2 --cp 2
    divided 1 wide gpipe 2 -p 1 -c 2 --dp 4
    divided 1 wide 1f1b 2 -p 2 --cp 2 --cp-exchange a2a --tp 2
}

@test "frozen layers, scores and several passes of a step too" {
    local frozen=model.layers.0,model.layers.1
    plan whole interleaved 2 llama -p 2 -c 2 --dp 2 --freeze $frozen
    plan parts interleaved 2 llama -p 2 -c 2 --dp 2 --freeze $frozen \
        --zero 3 --resident 1
    for name in whole parts; do
        rm -rf $name
        train $name $name.json --grad-accum 2 --eval eval
        ppscore -q $name.json --data packed --resume $name/ckpt \
            --logprobs -o $name.logps --top-k 2
    done
    same whole parts
    cmp whole.logps parts.logps
}

@test "a run goes on with divided weights, and with whole ones again" {
    plan parts interleaved 4 llama -p 2 -c 2 --dp 2 --zero 3 --resident 1
    plan whole zbv 4 llama -p 2 -c 2 --placement v --dp 2
    go() { pprun -q "$1.json" --data packed --lr 1e-2 "${@:2}" >/dev/null; }
    go whole --init 5 --steps 6 --save six
    go parts --init 5 --steps 2 --save two
    go whole --resume two --steps 4 --save four
    go parts --resume four --steps 6 --save again
    diff -r six/latest/ again/latest/
}

@test "all programs plan the bytes that a run allocates" {
    for mesh in '-p 2 --dp 2 --zero 3' '-p 2 -c 3 --dp 2 --zero 3 --resident 1' \
        '-p 2 -c 3 --dp 2 --zero 3 --resident 2 --tp 2' \
        '-p 1 -c 2 --cp 2 --zero 3 --resident 1 --recompute full' \
        '-p 2 -c 2 --dp 2 --zero 3 --freeze model.embed_tokens'; do
        kind=interleaved
        [[ $mesh == *'-c '* ]] || kind=1f1b
        # shellcheck disable=SC2086 # lists of words
        ppsplit -q --method uniform $mesh model-qwen3-tied |
            ppsched -q -s $kind -m 4 --data packed -o plan.json
        pprun plan.json --data packed --steps 1 --print-memory >need.json
        ppsched --stats plan.json |
            jq -e --slurpfile need need.json '.rank_bytes == [$need[0][].total]'
        need=$(jq 'map(.total) | max' need.json)
        within() {
            # shellcheck disable=SC2086
            ppsplit -q --method uniform -s $kind -m 4 $mesh \
                --seq-len "$(longest packed)" \
                --micro-batch-tokens "$(jq .data.max_tokens plan.json)" \
                --memory "$1" model-qwen3-tied
        }
        run -0 within "$need"
        run -1 within $((need - 1))
        [[ $output == *"it would fit with"* && $output != *ZeRO-1* ]]
        # Every rank allocates what its plan says, or fails.
        pprun -q plan.json --data packed --init 1 --steps 1 --eval eval >/dev/null
    done
}

@test "processes give the bits of threads" {
    needs_mpirun
    plan parts interleaved 2 qwen3-tied -p 2 -c 2 --dp 2 --zero 3 --resident 1
    rm -rf threads processes
    train threads parts.json
    mkdir processes
    mpirun --allow-run-as-root --oversubscribe -n 4 pprun parts.json \
        --transport mpi --data packed --init 5 --steps 5 --lr 1e-2 --clip 0.5 \
        --weight-decay 0.1 --save processes/ckpt --dump-grads processes/grads \
        -o processes/log
    same threads processes
}

# caught FAULT HINT: the verification passes without the fault, and names it.
caught() {
    run -0 env PP_INJECT=none "$BUILDDIR/tests/parity/pprun_inject" \
        --verify --init 1 --data packed parts.json
    run -1 env PP_INJECT="$1" "$BUILDDIR/tests/parity/pprun_inject" \
        --verify --init 1 --data packed parts.json
    [[ ${lines[-1]} == *"$2"* ]]
}

@test "the verification finds weights of an earlier step, and released ones" {
    plan parts interleaved 4 llama -p 2 -c 2 --dp 2 --zero 3 --resident 1
    caught weights-stale "the first step agrees and a later one differs"
    caught weights-released "stage 1"
}

# Every stage has its collectives, as PyTorch's runtime adds them.
@test "a list in PyTorch's form runs with whole and with divided weights" {
    file=$SRCDIR/tests/data/csv/zb1p_2rank_2stagep_comms.csv
    [ "$(wc -l <"$file")" -eq 2 ]
    for zero in 0 1 3; do
        ppsplit -q -p 2 -c 2 --dp 2 --zero $zero model-llama >split.json
        ppsched -q --csv "$file" -o plain.json split.json
        ppsched -q --csv "$file" --export csv-comms split.json >comms.csv
        [[ "$(head -n 1 comms.csv)" == *0UNSHARD,*0RESHARD* ]]
        ppsched -q --csv comms.csv -o listed.json split.json
        jq -r '.schedule.actions[]' listed.json >actions
        [ "$(grep -o UNSHARD actions | wc -l)" -eq 4 ]
        for name in plain listed; do
            rm -rf "$name$zero"
            train "$name$zero" $name.json
            same plain0 "$name$zero"
        done
    done
}

@test "a stage that is used without its weights is refused" {
    plan parts 1f1b 2 llama -p 2 --dp 2 --zero 3
    jq '.schedule.actions |= map(gsub("1(UN|RE)SHARD "; ""))' parts.json >bad.json
    run -1 --separate-stderr pprun bad.json --data packed --init 1 --steps 1
    [[ $stderr == *"rank 1, action 1: '1F0' comes before UNSHARD of its stage" ]]
    jq '.mesh.zero = 2' parts.json >bad.json
    run -2 --separate-stderr pprun bad.json --data packed --init 1 --steps 1
    [[ $stderr == *"/mesh/zero: '2' is not 0, 1 or 3" ]]
    run -2 --separate-stderr ppsplit -p 2 --dp 2 --zero 2 model-llama
    [[ $stderr == *"--zero: '2' "* ]]
    run -2 --separate-stderr ppsplit -p 2 --dp 2 --resident 2 model-llama
    [[ $stderr == *"--resident needs --zero 3"* ]]
}

@test "a trace and a timeline show the gatherings" {
    plan parts interleaved 4 llama -p 2 -c 2 --dp 2 --zero 3 --resident 1
    pprun -q parts.json --data packed --init 1 --steps 3 --trace trace.json \
        >/dev/null
    jq -e '[.traceEvents[] | select(.name == "0UNSHARD")] | length > 1 and
        all(.dur > 0)' trace.json
    ppsched -q --overlay trace.json parts.json
    none=$(ppsched --stats --cost 1,1,1 parts.json | jq .makespan)
    some=$(ppsched --stats --cost 1,1,1 --unshard 0.5 parts.json | jq .makespan)
    beside=$(ppsched --stats --cost 1,1,1 --unshard 0.5 --reduce-beside \
        parts.json | jq .makespan)
    jq -ne "$none < $beside and $beside <= $some"
}
