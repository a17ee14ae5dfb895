#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# tensor_parallel - ranks that divide tensors: against one rank in fp64, so that
# only the order of sums differs. The 67 words do not divide by 2 or 4, and 4
# ranks share 2 key and value heads.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    data 1 40 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 4 -o packed data.jsonl
    data 2 9 >eval.jsonl
    pppack -q -l 64 --cp 2 --tp 4 -o eval eval.jsonl
    local tied
    for name in llama qwen3-tied qwen2; do
        [ "$name" = qwen3-tied ] && tied=true || tied=false
        model "$name" "$tied"
        sed -i 's/"num_hidden_layers": 6/"num_hidden_layers": 4/' \
            "model-$name/config.json"
        ppsplit -q -p 1 "model-$name" | ppsched -q -s gpipe -m 4 >"$name.json"
        train "base-$name" "$name.json" --eval eval --dtype fp64
    done
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan FILE KIND M MODEL SPLIT...
plan() {
    local file=$1 kind=$2 m=$3 name=$4
    shift 4
    ppsplit -q "$@" "model-$name" |
        ppsched -q -s "$kind" -m "$m" >"$file"
}

# divided MODEL KIND M SPLIT...: trains the split, and compares it with one rank.
divided() {
    local name=$1 kind=$2 m=$3
    shift 3
    plan plan.json "$kind" "$m" "$name" "$@"
    rm -rf run
    train run plan.json --eval eval --dtype fp64
    near run "base-$name"
}

@test "2 tensor-parallel ranks" { divided llama gpipe 4 -p 1 --tp 2; }
@test "4, more than key and value heads, with biases" {
    divided qwen2 gpipe 4 -p 1 --tp 4
}
@test "2 of zero-bubble V, tied, with selective recomputation" {
    divided qwen3-tied zbv 4 -p 2 -c 2 --placement v --tp 2 \
        --recompute selective
}
@test "4 of 1f1b, tied, with full recomputation" {
    divided qwen3-tied 1f1b 4 -p 2 --tp 4 --recompute full
}
@test "2 of interleaved on 2 replicas" {
    divided qwen2 interleaved 2 -p 2 -c 2 --tp 2 --dp 2 \
        --mesh-order dp-pp-cp-tp
}
@test "2 of 1f1b on 2 context-parallel ranks" {
    divided llama 1f1b 4 -p 2 --tp 2 --cp 2
}
@test "the head's gradients have the same bits in F and in a later B" {
    local split
    for split in '--tp 2' '--tp 4 --cp 2' '--tp 2 --cp 2 --cp-exact'; do
        for kind in gpipe 1f1b zb-h1; do
            # shellcheck disable=SC2086
            plan plan.json $kind 4 llama -p 2 $split
            rm -rf $kind
            train $kind plan.json --eval eval
        done
        same 1f1b gpipe
        same zb-h1 gpipe
    done
}
@test "2 in slices" {
    plan plan.json seq1f1b 4 qwen3-tied -p 2 --tp 2
    ppsched -q -s seq1f1b -m 4 --slices 3 --data packed plan.json >sliced.json
    rm -rf run
    train run sliced.json --eval eval --dtype fp64
    near run base-qwen3-tied
    pprun sliced.json --print-memory --dtype fp32 | jq -c 'map(.total)' >pprun
    ppsched -q --stats sliced.json | jq -c .rank_bytes | diff pprun -
}
@test "4 in slices of a row each, and windows that begin in earlier ones" {
    model mistral false
    sed -i 's/"num_hidden_layers": 6/"num_hidden_layers": 2/' \
        model-mistral/config.json
    ppsplit -q -p 1 model-mistral | ppsched -q -s gpipe -m 4 >mistral.json
    train base-mistral mistral.json --eval eval --dtype fp64
    ppsplit -q -p 2 --tp 4 model-mistral |
        ppsched -q -s gpipe -m 4 --slices 16 >plan.json
    rm -rf run
    train run plan.json --eval eval --dtype fp64
    near run base-mistral
}
@test "2 of fused tensors" {
    jq '.architectures = ["Phi3ForCausalLM"] | .model_type = "phi3"
        | .num_key_value_heads = 4 | .num_hidden_layers = 2
        | del(.head_dim)' model-llama/config.json >phi3.json
    mkdir -p model-phi3
    mv phi3.json model-phi3/config.json
    plan phi3.json gpipe 2 phi3 -p 1
    rm -rf base-phi3
    train base-phi3 phi3.json --eval eval --dtype fp64
    divided phi3 gpipe 2 -p 1 --tp 2
    jq '.num_key_value_heads = 2' model-phi3/config.json >fewer.json
    run --separate-stderr ppsplit -q -p 1 --tp 2 fewer.json
    [ "$status" -eq 2 ]
    [ "$stderr" = "ppsplit: a tensor of the model holds 4 heads of queries, and\
 2 of keys and values; tensor-parallel ranks divide only equal numbers; try --tp\
 1" ]
}

@test "2 of two copies" {
    divided llama dualpipe 4 -p 2 --placement both-ways --tp 2
}

@test "they score all sequences" {
    plan two.json 1f1b 3 llama -p 2 --tp 2
    plan four.json 1f1b 3 llama -p 1 --tp 4
    for name in two four llama; do
        ppscore "$name.json" --data packed --weights base-llama/ckpt/latest \
            --dtype fp64 --logprobs -o "$name.scores" --entropy --top-k 19
    done
    for name in two four; do
        paste "$name.scores" llama.scores | jq -se '
            def near: transpose | all(.[]; .[0] - .[1] | fabs < 1e-12);
            [range(0; length; 2) as $i | [.[$i], .[$i + 1]] |
                (map(.sequence) | .[0] == .[1]) and
                (map(.logprobs) | near) and (map(.entropy) | near) and
                (map(.topk_ids) | .[0] == .[1]) and
                (map(.topk_logits) | transpose | all(near))] |
            length == 40 and all'
    done
    jq -es 'all(.[1].topk_ids[1:][]; length == 19)' four.scores
}

@test "equal logits have the lowest ids first, whichever rank has them" {
    plan four.json 1f1b 3 llama -p 1 --tp 4
    jq -nc '{input_ids: [range(12)]}' | pppack -q -l 64 --tp 4 -o few
    mkdir -p model-flat # in fp32 its weights are 0
    jq '.initializer_range = 1e-60' model-llama/config.json >model-flat/config.json
    jq '.model.source = "model-flat"' four.json >flat.json
    ppscore -q flat.json --data few --init 1 --dtype fp32 --logprobs -o flat \
        --top-k 40 --entropy
    jq -e '.topk_ids[1:] == [range(11) | [range(40)]] and (.entropy[1:] |
        length == 11 and all(.[]; . - (67 | log) | fabs < 1e-6))' flat
    ppscore -q flat.json --data few --init 1 --dtype fp32 --generate 2 |
        jq -se '.[0].response == [0, 0]'
}

@test "a checkpoint of 2 goes on alone with the same numbers, and back" {
    plan two.json 1f1b 4 llama -p 2 --tp 2
    go() { pprun -q "$1.json" --data packed --lr 1e-2 "${@:2}"; }
    go two --init 5 --steps 2 --save at-two --shard-size 20kB -o two.log
    go llama --steps 2 --resume at-two --save at-one --shard-size 20kB
    diff -r at-two at-one
    go two --steps 3 --resume at-one --save one-two --dump-grads a.grads
    go two --steps 3 --resume at-two --save two-two --dump-grads b.grads
    cmp a.grads b.grads
    compare one-two/latest two-two/latest
}

@test "ppsched gives the memory of tensor-parallel ranks" {
    for how in "--tp 4" "--tp 2 --cp 2" "--tp 4 --recompute full" \
        "--tp 2 --dp 2 --zero 0"; do
        for name in qwen3-tied llama; do
            # shellcheck disable=SC2086
            ppsplit -q -p 2 $how "model-$name" |
                ppsched -q -s 1f1b -m 4 --data packed >plan.json
            pprun plan.json --print-memory --dtype fp32 |
                jq -c 'map(.total)' >pprun
            ppsched -q --stats plan.json | jq -c .rank_bytes >ppsched
            diff pprun ppsched
        done
    done
}

# caught FAULT PLAN HINT: the verification names the fault.
caught() {
    run -1 env PP_INJECT="$1" "$BUILDDIR/tests/parity/pprun_inject" \
        --verify --init 1 --data packed "$2"
    [[ $output == *"not the same"*"$3"* ]]
}

@test "the verification judges tensor-parallel ranks, and finds their faults" {
    plan two.json 1f1b 4 llama -p 1 --tp 2
    plan four.json 1f1b 4 llama -p 1 --tp 4
    run -0 env PP_INJECT=none "$BUILDDIR/tests/parity/pprun_inject" \
        --verify --init 1 --data packed four.json
    local shared="gradients of tensors differ that several tensor-parallel \
ranks hold"
    caught tensor-unsummed two.json "$shared"
    caught keys-unsummed four.json "$shared"
    caught norm-replicas two.json "their norm differs"
    caught words two.json "the loss differs: look at the labels"
    pprun --verify --shrink four.json | grep -q '^the same'
}

# received LAYERS SPLIT...: prints the bytes that all ranks of a row receive from
# each other in a step of 4 microbatches of 64 tokens, in fp32.
received() {
    jq ".num_hidden_layers = $1" model-llama/config.json >model-deep/config.json
    ppsplit -q -p 1 "${@:2}" model-deep | ppsched -q -s gpipe -m 4 >deep.json
    PP_RECEIVED=yes "$BUILDDIR/tests/parity/pprun_inject" -q --data even \
        --dtype fp32 --init 1 --steps 2 deep.json 2>&1 >log |
        awk '$1 == "rank" { sum += $4 } END { print sum }'
}

@test "a layer moves the bytes that the manual says" {
    mkdir -p model-deep
    jq -nc 'range(32) | {input_ids: [range(32)]}' | pppack -q -l 64 -o even
    local h=32 T=64 dp zero least norms=64 tensors=9
    local parameters=$(((2 * 48 + 2 * 24 + 3 * 56) * h + norms))
    least=$(received 2 --tp 2)
    [ $(($(received 3 --tp 2) - least)) -eq \
        $(((4 * 12 * T * h + 2 * norms) * 4)) ]
    for zero in 0 1 3; do
        for dp in 2 3; do
            least=$(received 2 --dp "$dp" --zero "$zero")
            [ $(($(received 3 --dp "$dp" --zero "$zero") - least)) -eq \
                $(((dp - 1) * (2 * parameters * 4 + (zero > 0) * tensors * 8))) ]
        done
    done
    # Rows of keys and values by 2 ranks, and of queries too, in 4 microbatches.
    local kv=$((4 * T * 2 * 24)) heads=$((4 * T * (2 * 48 + 2 * 24)))
    local how state=$((2 * parameters * 4 + tensors * 8))
    local -A elements=([gather]=$((3 * kv)) [ring]=$((4 * kv))
        [a2a]=$((3 * heads / 2)))
    for how in gather ring a2a; do
        least=$(received 2 --cp 2 --cp-exchange "$how")
        [ $(($(received 3 --cp 2 --cp-exchange "$how") - least)) -eq \
            $((elements[$how] * 4 + state)) ]
    done
}

@test "sizes that cannot be divided are refused" {
    run -2 --separate-stderr ppsplit -p 1 --tp 3 model-llama
    [[ $stderr == *"the model's 4 heads do not divide by 3 tensor-parallel \
ranks; try --tp 2"* ]]
    plan two.json 1f1b 4 llama -p 1 --tp 2
    jq '.mesh.tp = 3' two.json >three.json
    run -2 --separate-stderr pprun three.json --data packed --init 1 --steps 1
    [[ $stderr == *"the model's 4 heads do not divide by 3"* ]]
    pppack -q -l 64 -o plain data.jsonl
    run -2 --separate-stderr pprun two.json --data plain --init 1 --steps 1
    [[ $stderr == *"are not a multiple of tp = 2; pad it anew with pppack --realign "*" --tp 2" ]]
}

@test "rounding that grows in later steps is no fault" {
    model qwen2 false
    ppsplit -q -p 2 --tp 4 --recompute selective model-qwen2 |
        ppsched -q -s 1f1b -m 4 |
        pprun -q --verify --shrink --init 120 | grep -q '^the same'
}
