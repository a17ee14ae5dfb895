#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# distill - a student learns the distributions of a teacher, from what pprun
# --logprobs --top-k wrote: on any mesh, in any bins, and no other lists.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    data 1 12 >data.jsonl
    pppack -q -l 64 --cp 4 --bins-multiple 2 -o plain data.jsonl
    plan one -p 1 -- gpipe
    ppscore -q --data plain --init 2 --logprobs -o teacher --top-k 9 one.plan
    pppack -q -l 64 --cp 4 --bins-multiple 2 -o packed \
        --add-column topk=teacher plain
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan NAME SPLIT... -- KIND...: writes NAME.plan for all bins.
plan() {
    local name=$1 split=()
    shift
    while [ "$1" != -- ]; do split+=("$1"); shift; done
    ppsplit -q "${split[@]}" model-llama |
        ppsched -q -s "${@:2}" -m "${M:-$(bins plain)}" >"$name.plan"
}

# learn NAME ARGS...: one large step of NAME.plan, whose weights are then the
# gradients.
learn() {
    rm -rf "$1.saved"
    pprun -q --data packed --init 1 --dtype fp64 --objective distill --steps 1 \
        --clip 0 --optimizer sgd --lr 100 --save "$1.saved" "${@:2}" \
        "$1.plan" >"$1.log"
}

# agrees NAME: compares with one rank.
agrees() {
    "$BUILDDIR/tests/golden/compare_tensors" 1e-12 1e-12 "$1.saved/latest" \
        one.saved/latest
    jq -se '.[0].loss - .[1].loss | fabs < 1e-12' "$1.log" one.log
}

@test "any mesh gives the loss and the gradient of one rank" {
    learn one
    jq -e '.loss > 0.1' one.log
    plan pipe -p 3 -- zb-h1
    plan slices -p 2 -- seq1f1b --slices 3
    plan context -p 2 --cp 2 -- 1f1b
    plan tensor -p 2 --tp 2 -- 1f1b
    plan uneven -p 1 --tp 4 --cp 2 -- gpipe
    M=$(($(bins plain) / 2)) plan both -p 2 --cp 2 --dp 2 --tp 2 -- 1f1b
    for name in pipe slices context tensor uneven both; do
        learn $name
        agrees $name
    done
    # The comparison sees another temperature.
    learn pipe --temperature 1.1
    run ! agrees pipe
}

@test "other bins give the same gradient" {
    learn one
    pppack -q -l 500 -o wide packed
    ppsplit -q -p 1 model-llama | ppsched -q -s gpipe -m "$(bins wide)" >wide.plan
    learn wide --data wide
    [ "$(bins wide)" -lt "$(bins packed)" ]
    agrees wide
    # From the input, as arrays, and the lists added after packing.
    pppack -q --export safetensors -o wide.safetensors wide
    pppack -q -l 500 -o again wide.safetensors
    cmp wide/topk_ids again/topk_ids
    cmp wide/topk_logits again/topk_logits
    pppack -q -l 500 --add-column topk=teacher -o added data.jsonl
    cmp wide/topk_ids added/topk_ids
}

@test "nothing is to learn from all logits of oneself" {
    ppscore -q --data plain --init 1 --dtype fp64 --logprobs -o self --top-k 67 one.plan
    pppack -q -l 64 --cp 4 --bins-multiple 2 -o own --add-column topk=self packed
    learn one --data own
    # The lists hold numbers of fp32.
    jq -e '.loss | fabs < 1e-12' one.log
    jq -e '.grad_norm < 1e-5' one.log
    learn one
    jq -e '.grad_norm > 0.01' one.log
}

@test "an evaluation has the loss of the step before its update" {
    learn one --eval packed
    ppscore -q --data packed --eval packed --init 1 --dtype fp64 \
        --objective distill one.plan >one.val
    jq -se '.[0].loss - .[1].val_loss | fabs < 1e-12' one.log one.val
}

@test "the gradient is the slope of the loss" {
    plan slope -p 1 -- gpipe
    pprun -q --data packed --init 1 --dtype fp64 --objective distill --steps 2 \
        --clip 0 --optimizer sgd --lr 1e-8 slope.plan |
        jq -se '(.[0].loss - .[1].loss) / 1e-8 / .[0].grad_norm /
            .[0].grad_norm - 1 | fabs < 1e-6'
}

@test "it verifies, and takes the memory that the plans say" {
    local of
    plan slices -p 2 -- seq1f1b --slices 3
    plan parts -p 2 --cp 2 --tp 2 -- 1f1b
    for of in slices parts; do
        pprun -q --verify --init 1 --data packed --objective distill $of.plan |
            grep -q '^the same: '
        pprun -q --verify --shrink --data packed --objective distill $of.plan |
            grep -q '^the same: '
        pprun --print-memory --data packed --objective distill $of.plan >need.json
        ppsched -q --data packed --stats --objective distill $of.plan |
            jq -e --slurpfile need need.json '.rank_bytes == [$need[0][].total]'
    done
}

@test "lists that do not fit are refused" {
    refused() {
        run -2 --separate-stderr pppack -q -l 64 -o unfit --add-column topk=bad plain
        echo "$stderr"
        # shellcheck disable=SC2053
        [[ $stderr == $1 ]]
        [ ! -e unfit ]
    }
    jq -c 'del(.xxh3) | .topk_ids[1] += [0]' teacher >bad
    refused "pppack: bad: line 1, *: a list has '9' elements, but must have 10"
    jq -c 'del(.xxh3) | .topk_ids[1][3] = .topk_ids[1][0]' teacher >bad
    refused "pppack: bad: line 1, *: a list has the id '*' twice"
    jq -c 'del(.xxh3) | .topk_ids[1][3] = 16777216' teacher >bad
    refused "pppack: bad: line 1, *a token id*16777216*"
    jq -c 'del(.xxh3, .topk_logits)' teacher >bad
    refused "pppack: bad: line 1, *: has no 'topk_logits'; score with the largest logits"
    jq -c 'del(.xxh3) | .topk_ids += [[]]' teacher >bad
    refused "pppack: bad: line 1, *: sequence '0' has * lists, but * tokens"
    jq -c 'del(.xxh3) | .topk_ids |= map([]) | .topk_logits |= map([])' teacher >bad
    refused 'pppack: bad: all lists are empty'
    jq -c 'del(.xxh3) | select(.sequence != 2)' teacher >bad
    refused "pppack: bad: sequence '2' is missing"
}

@test "data without a teacher, or of another model, are refused" {
    run -2 --separate-stderr pprun --data plain --init 1 --steps 1 \
        --objective distill one.plan
    [[ $stderr == 'pprun: plain: --objective distill needs the column topk_ids: '* ]]
    jq -c 'del(.xxh3) | .topk_ids[1][3] = 67' teacher >lists
    pppack -q -l 64 --cp 4 --bins-multiple 2 -o alien --add-column topk=lists plain
    run -2 --separate-stderr pprun -q --data alien --init 1 --steps 1 \
        --objective distill one.plan
    echo "$stderr"
    [[ $stderr == *"the teacher's list at position "*" has the id '67'"* ]]
    jq -c 'del(.xxh3) | .topk_ids[1] = [] | .topk_logits[1] = []' teacher >lists
    pppack -q -l 64 --cp 4 --bins-multiple 2 -o short --add-column topk=lists plain
    run -2 --separate-stderr pprun -q --data short --init 1 --steps 1 \
        --objective distill one.plan
    [[ $stderr == *" has the id '-1'"* ]]
    run -2 --separate-stderr pprun --objective-cases - \
        <<<'{"id": 1, "objective": "distill", "cu_seqlens": [0, 2], "x": [0, -1]}'
    [[ $stderr == *": objective 'distill' needs logits, which a case does not have" ]]
}

@test "a student that caps its logits learns the same on any mesh" {
    local name o=(--data packed --init 1 --dtype fp64 --objective distill --clip 0
        --optimizer sgd)
    mkdir -p model-capped
    jq '.vocab_size = 67' "$SRCDIR/tests/golden/gemma2/model/config.json" \
        >model-capped/config.json
    ppsplit -q -p 1 model-capped | ppsched -q -s gpipe -m "$(bins packed)" >one.plan
    ppsplit -q -p 2 --tp 2 --cp 2 model-capped |
        ppsched -q -s 1f1b -m "$(bins packed)" >parts.plan
    rm -rf one.saved parts.saved
    for name in one parts; do
        pprun -q "${o[@]}" --steps 1 --lr 100 --save $name.saved \
            --temperature 1.3 $name.plan >$name.log
    done
    agrees parts
    pprun -q "${o[@]}" --steps 2 --lr 1e-8 --temperature 1.3 one.plan |
        jq -se '(.[0].loss - .[1].loss) / 1e-8 / .[0].grad_norm /
            .[0].grad_norm - 1 | fabs < 1e-6'
}
