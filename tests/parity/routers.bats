#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# routers - routers with biases, equal experts, little room, and recorded routes.
# SLOW=yes takes all meshes of whole experts.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model qwen2-moe false
    eight_heads model-qwen2-moe
    data 1 40 | unlike >data.jsonl
    pppack -q -l 64 --cp 2 --tp 4 -o packed data.jsonl
    plan one.json gpipe 8 -p 1
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan FILE KIND M SPLIT...
plan() {
    ppsplit -q "${@:4}" model-qwen2-moe | ppsched -q -s "$2" -m "$3" >"$1"
}

# router_bias DIR: prints the bytes of the bias of DeepSeek's router.
router_bias() {
    local file=$1/model.safetensors size at
    size=$(od -An -t u8 -N 8 "$file")
    at=$(head -c $((8 + size)) "$file" | tail -c "$size" | jq 'to_entries[]
        | select(.key | endswith("e_score_correction_bias"))
        | .value.data_offsets | @tsv' -r)
    tail -c +$((9 + size + ${at%%$'\t'*})) "$file" |
        head -c $((${at##*$'\t'} - ${at%%$'\t'*})) | od -An -t x1
}

@test "the bias of a router is kept, without a gradient" {
    ppsplit -q -p 1 "$SRCDIR/tests/golden/deepseek-v3/model" |
        ppsched -q -s gpipe -m 4 >plan.json
    pprun -q plan.json --data packed --steps 1 --decay-all --save biased \
        --weights "$SRCDIR/tests/golden/deepseek-v3/model" --lr 1 \
        --weight-decay 0.5 --dump-grads grads.safetensors
    [[ $(head -c 9000 grads.safetensors) != *e_score_correction_bias* ]]
    [ "$(router_bias biased/latest)" = \
        "$(router_bias "$SRCDIR/tests/golden/deepseek-v3/model")" ]
}

@test "weights of layers for multi-token prediction are ignored" {
    # The second of two layers stands for one that predicts.
    cp -r "$SRCDIR/tests/golden/deepseek-v3/model" predicts
    jq '.num_hidden_layers = 1 | .num_nextn_predict_layers = 1' \
        predicts/config.json >config
    mv config predicts/config.json
    ppsplit -q -p 1 predicts | ppsched -q -s gpipe -m 4 >plan.json
    run --separate-stderr pprun -q plan.json --data packed --steps 1 \
        --weights predicts
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    jq '.num_nextn_predict_layers = 0' predicts/config.json >config
    mv config predicts/config.json
    run --separate-stderr pprun -q plan.json --data packed --steps 1 \
        --weights predicts
    [[ $stderr == *"have no place in the model: 'model.layers.1."* ]]
}

@test "the loss of documents does not depend on how they are packed" {
    local options=(--init 5 --steps 1 --lr 1e-2 --dtype fp64
        --router 'aux=0.3,z=0.02,rule=documents')
    pppack -q -l 200 -o wide data.jsonl
    local bins wide
    bins=$(pppack -l 64 --cp 2 --tp 4 --stats data.jsonl | jq .bins)
    wide=$(pppack -l 200 --stats data.jsonl | jq .bins)
    [ "$wide" -lt "$bins" ]
    ppsplit -q -p 1 model-qwen2-moe | ppsched -q -s gpipe -m "$bins" >narrow.json
    ppsplit -q -p 1 model-qwen2-moe | ppsched -q -s gpipe -m "$wide" >wide.json
    pprun -q narrow.json --data packed "${options[@]}" >narrow.log
    pprun -q wide.json --data wide "${options[@]}" >wide.log
    jq -es '.[0] as $a | .[1] as $b | all("grad_norm", "aux_loss", "z_loss";
        ($a[.] - $b[.] | fabs) <= 1e-12 * $a[.])' narrow.log wide.log
    # Those of microbatches do.
    pprun -q narrow.json --data packed "${options[@]}" --router rule=tokens >narrow.log
    pprun -q wide.json --data wide "${options[@]}" --router rule=tokens >wide.log
    jq -es '.[0].aux_loss - .[1].aux_loss | fabs > 1e-6' narrow.log wide.log
}

@test "weights without an expert's tensor are refused by its name" {
    cp -r "$SRCDIR/tests/golden/mixtral/model" lacks
    # Five experts are asked for where the files have four.
    jq '.num_local_experts = 5' lacks/config.json >config
    mv config lacks/config.json
    run --separate-stderr ppsplit -p 1 lacks
    [ "$status" -eq 2 ]
    [[ $stderr == *"'model.layers.0.block_sparse_moe.gate.weight' is [4, 32], \
expected [5, 32]" ]]
}

# make_ties: writes weights whose routers are equal for all experts, so that each
# token takes the first two, to the directory ties.
make_ties() {
    local file=ties/model.safetensors size at end
    [ ! -e ties ] || return 0
    pprun -q one.json --data packed --init 1 --steps 1 --lr 0 --save saved \
        >/dev/null
    cp -rL saved/latest ties
    rm ties/checksums.xxh3
    size=$(od -An -t u8 -N 8 "$file")
    head -c $((8 + size)) "$file" | tail -c "$size" |
        jq -r 'to_entries[] | select(.key | endswith("mlp.gate.weight"))
            | .value.data_offsets | @tsv' |
        while read -r at end; do
            dd if=/dev/zero of="$file" bs=1 seek=$((8 + size + at)) \
                count=$((end - at)) conv=notrunc status=none
        done
}

@test "all tokens tie and go to one rank, in as many rounds as ranks" {
    local i kind m split
    make_ties
    for i in $(seq 32); do
        jq -nc "{input_ids: [range(24) | (. * (. + $i) * 3 + $i * 7) % 67]}"
    done >full.jsonl
    pppack -q -l 24 -a none --rows 1 -o full full.jsonl
    while read -r kind m split; do
        echo "# $kind $split"
        for limit in 1 1.6 4; do
            # shellcheck disable=SC2086
            plan plan.json $kind $m $split --expert-limit $limit
            pprun -q plan.json --weights ties --data full --dtype fp64 \
                --steps 1 --dump-grads grads-$limit >log-$limit
        done
        [ "$(jq .expert_rounds log-1 log-1.6 log-4 | xargs)" = '4 3 1' ]
        for limit in 1 1.6; do
            "$BUILDDIR/tests/golden/compare_tensors" 1e-12 1e-15 \
                grads-$limit grads-4
        done
    done <<END
gpipe 2 -p 1 --dp 4 --ep 4
1f1b 2 -p 2 --dp 4 --ep 4 --recompute full
zb-h1 2 -p 2 --dp 4 --ep 4 --recompute selective
zb-h1 4 -p 2 --dp 2 --cp 2 --ep 4 --recompute full
seq1f1b 2 -p 2 --dp 4 --ep 4
zb-h1 4 -p 1 --tp 2 --dp 2 --ep 4 --experts-over-tp
END
}

@test "among equals experts keep the first tokens" {
    local policy
    make_ties
    for policy in position probs; do
        plan plan.json gpipe 8 -p 1 --expert-capacity 0.5 --expert-drop $policy
        pprun -q plan.json --weights ties --data packed --steps 1 |
            jq -c '[.loss, .grad_norm, .dropped]' >$policy.log
    done
    cmp position.log probs.log
    jq -e '.[2] > 20' probs.log
}

@test "padding for few tokens takes one round, or none is padded" {
    # 64 experts keep 2 tokens each, and there is room for 3 rows of a token.
    mkdir many
    jq '.num_experts = 64' model-qwen2-moe/config.json >many/config.json
    data 1 8 | pppack -q -l 40 -o few
    local split=(-p 1 --dp 2 --ep 2 --expert-capacity 1)
    for name in padded wider tight; do
        case $name in
        padded) more=(--expert-padding) ;;
        wider) more=(--expert-padding --expert-limit 2) ;;
        tight) more=() ;;
        esac
        ppsplit -q "${split[@]}" "${more[@]}" many |
            ppsched -q -s gpipe -m 1 >plan.json
        pprun -q plan.json --init 1 --data few --steps 1 --dtype fp64 >$name
    done
    jq -es '.[0] as $a | all(.[]; .dropped > 20 and .dropped == $a.dropped and
        (.loss / $a.loss - 1 | fabs) < 1e-12 and
        (.grad_norm / $a.grad_norm - 1 | fabs) < 1e-12)' tight padded wider
}

@test "generation drops no token" {
    data 3 6 >prompts.jsonl
    pppack -q -l 64 -o prompts prompts.jsonl
    plan plan.json 1f1b 2 -p 2 --dp 2 --ep 2
    ppscore -q --generate 5 --init 1 --data prompts plan.json >all.jsonl
    plan plan.json 1f1b 2 -p 2 --dp 2 --ep 2 --expert-capacity 0.001 \
        --expert-padding
    ppscore -q --generate 5 --init 1 --data prompts plan.json >kept.jsonl
    cmp all.jsonl kept.jsonl
    [ -s all.jsonl ]
}

@test "a limit lowers the room for rows of other ranks, to the byte" {
    local limit most bytes
    for limit in 4 2 1.5 1; do
        plan plan.json 1f1b 2 -p 2 --dp 4 --ep 4 --expert-capacity 2 \
            --expert-limit $limit
        bytes=$(pprun --print-memory --data packed plan.json |
            jq 'map(.total) | add')
        echo "$limit: $bytes"
        [ "$bytes" -lt "${most:-$((bytes + 1))}" ]
        most=$bytes
    done
    # A rank allocates what it plans, or fails.
    pprun -q plan.json --init 1 --data packed --steps 1 >log
    jq -e '.dropped > 0 and .expert_load > 1' log
}

# alike_over_ep COMMAND NAME...: COMMAND EP OPTION... writes plan.json for so many
# expert-parallel ranks. With row-invariant products, experts of other ranks add up
# as one's own: only the gradients of their weights, and of the weights that sum
# over tokens of several ranks, depend on the ranks. Fails unless log-probabilities,
# losses and the gradients of the tensors NAME have the same bits for 1, 2 and 4,
# with rows in several rounds.
alike_over_ep() {
    local ep of options=(--data packed --init 5 --row-invariant)
    for ep in 1 '2 --expert-limit 1' '4 --expert-limit 1'; do
        # shellcheck disable=SC2086
        "$1" $ep
        ep=${ep%% *}
        ppscore -q plan.json "${options[@]}" --logprobs -o "scores-$ep" >/dev/null
        pprun -q plan.json "${options[@]}" --steps 1 --lr 0 \
            --dump-grads "grads-$ep" >"log-$ep"
        jq .loss "log-$ep" >"loss-$ep"
    done
    jq -es 'any(.[]; .expert_rounds > 1)' log-2 log-4
    shift
    for ep in 2 4; do
        cmp scores-1 "scores-$ep"
        cmp loss-1 "loss-$ep"
        for of; do
            "$BUILDDIR/tests/golden/compare_tensors" 0 0 "grads-$ep" grads-1 \
                "$of"
        done
        "$BUILDDIR/tests/golden/compare_tensors" 1e-6 0 "grads-$ep" grads-1
    done
}

@test "with --row-invariant, experts on other ranks change no bit" {
    local alike=('*norm.weight' '*self_attn*' '*mlp.gate.weight' '*shared*' '*embed*')
    ranks() { plan plan.json gpipe 2 -p 1 --dp 4 --ep "$@"; }
    alike_over_ep ranks "${alike[@]}"
    ranks() { plan plan.json gpipe 4 -p 1 --tp 2 --dp 2 --experts-over-tp --ep "$@"; }
    alike_over_ep ranks "${alike[@]}"
    ranks() { # with biases
        ppsplit -q -p 1 --dp 4 --ep "$@" "$SRCDIR/tests/golden/gpt-oss/model" |
            ppsched -q -s gpipe -m 2 >plan.json
    }
    alike_over_ep ranks '*norm.weight' '*self_attn*' '*mlp.router*' '*embed*'
}

@test "recorded routing is the same file, and replayed on each rank" {
    local n split
    n=$(bins packed)
    score() { ppscore -q --data packed --dtype fp64 --logprobs -o scores "$@"; }
    big_step() { # NAME OPTION...
        rm -rf "$1.saved"
        pprun -q --data packed --dtype fp64 --steps 1 --clip 0 --optimizer sgd \
            --lr 100 --save "$1.saved" "${@:2}" plan.json >"$1.log"
    }
    plan plan.json gpipe "$n" -p 1
    score plan.json --init 5 --record-routing routes
    big_step replayed-one --init 6 --replay-routing routes
    for split in '1f1b -p 2 --tp 4 --ep 4 --recompute full' \
        'gpipe -p 1 --tp 2 --cp 2 --ep 2'; do
        # shellcheck disable=SC2086
        plan plan.json ${split%% *} "$n" ${split#* } --experts-over-tp
        score plan.json --init 5 --record-routing again
        cmp routes again
        big_step replayed --init 6 --replay-routing routes \
            --record-routing again
        cmp routes again
        "$BUILDDIR/tests/golden/compare_tensors" 1e-10 1e-10 \
            replayed.saved/latest replayed-one.saved/latest
    done
}

@test "all meshes of whole experts" {
    [ -n "${SLOW:-}" ] || skip 'SLOW is not set'
    local group way zero
    for group in '2 1 1 1' '2 1 1 2' '2 1 2 1' '2 1 2 2' '2 1 2 4' '2 2 1 4' \
        '2 2 2 8' '4 1 1 2' '4 1 1 4' '4 1 2 8' '4 2 1 8'; do
        # shellcheck disable=SC2086
        set -- $group
        for way in 'gpipe -p 1' '1f1b -p 2 --recompute full' \
            'interleaved -p 2 -c 2 --recompute selective' \
            'zbv -p 2 -c 2 --placement v' \
            'dualpipe -p 2 --placement both-ways'; do
            for zero in 0 1 3; do
                [ "$zero" -lt 3 ] || [ $(($2 * $3)) -gt 1 ] || continue
                echo "experts | ${way%% *} $((8 / $3)) | ${way#* } --tp $1 --cp $2 \
--dp $3 --ep $4 --zero $zero --experts-over-tp"
            done
        done
    done >meshes
    {
        grep -E '^(model|data) ' "$SRCDIR/tests/parity/whole_experts.rows"
        echo 'near --eval eval:'
        cat meshes
        echo 'verify --router aux=0.3,z=0.02,rule=documents:'
        cat meshes
    } >all.rows
    "$SRCDIR/tests/parity/rows" all.rows
}
