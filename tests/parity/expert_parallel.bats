#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# expert_parallel - ranks that divide experts: against one rank in fp64, and to
# the bit if only pipeline ranks or the transport change. meshes.bats has more
# meshes.

bats_require_minimum_version 1.5.0
load helpers
load experts

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model qwen2-moe-ep false
    eight_heads model-qwen2-moe-ep
    data 1 40 | unlike >data.jsonl
    pppack -q -l 64 --cp 2 --tp 2 -o packed data.jsonl
    data 2 9 | unlike >eval.jsonl
    pppack -q -l 64 --cp 2 --tp 2 -o eval eval.jsonl
    plan one.json gpipe 8 -p 1
    train base-qwen2-moe-ep one.json --eval eval --dtype fp64
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan FILE KIND M SPLIT...
plan() {
    local file=$1 kind=$2 m=$3
    shift 3
    # shellcheck disable=SC2086
    ppsplit -q "$@" model-qwen2-moe-ep | ppsched -q -s $kind -m "$m" >"$file"
}

# divided KIND M SPLIT...: compares the split with one rank: losses, norms, the
# last gradients and the weights after five steps.
divided() {
    echo "# $*"
    rm -rf run
    plan plan.json "$@"
    train run plan.json --eval eval --dtype fp64
    near run base-qwen2-moe-ep
}

@test "2 and 4 ranks of lanes" {
    divided gpipe 4 -p 1 --dp 2 --ep 2 --zero 0
    divided 1f1b 2 -p 2 --dp 4 --ep 4 --recompute full
    divided zbv 2 -p 2 -c 2 --placement v --dp 4 --ep 2 --recompute selective
    divided 1f1b 2 -p 2 --dp 4 --ep 2 --zero 3
}
@test "2 and 4 ranks of sequences, and of both" {
    divided gpipe 8 -p 1 --cp 2 --ep 2
    divided 1f1b 4 -p 2 --cp 2 --dp 2 --ep 4 --zero 0
    divided gpipe 4 -p 1 --cp 2 --dp 2 --ep 2 --cp-exchange ring \
        --mesh-order dp-cp-tp-pp
}
@test "2 ranks whose experts others divide too" {
    divided 1f1b 4 -p 2 --tp 2 --dp 2 --ep 2 --recompute full
    divided gpipe 8 -p 1 --tp 2 --cp 2 --ep 2 --zero 0
}
@test "2 ranks of both copies, and of slices" {
    divided dualpipe 4 -p 2 --placement both-ways --dp 2 --ep 2
    divided dualpipe 4 -p 2 --placement both-ways --dp 2 --ep 2 --zero 0
    divided seq1f1b 4 -p 2 --dp 2 --ep 2
}

@test "lanes without a microbatch take part" {
    local bins
    bins=$(bins packed)
    echo "$bins bins"
    [ "$bins" -gt 8 ]
    # A step takes 8 of them; an evaluation of 4 leaves lanes without any.
    divided gpipe 1 -p 1 --dp 8 --ep 8
    [ "$(bins eval)" -lt 8 ]
}

@test "pipeline ranks, schedules and recomputation change no bit" {
    plan plan.json gpipe 4 -p 1 --dp 2 --ep 2
    train bits plan.json
    for split in '1f1b 4 -p 3 --recompute full' '1f1b 4 -p 2 --zero 0' \
        'zbv 4 -p 2 -c 2 --placement v --recompute selective'; do
        # shellcheck disable=SC2086
        plan plan.json $split --dp 2 --ep 2
        rm -rf run
        train run plan.json
        same run bits
    done
}

@test "processes give the bits of threads" {
    needs_mpirun
    plan plan.json 1f1b 2 -p 2 --cp 2 --dp 2 --ep 4
    train threads plan.json
    mkdir mpi
    mpirun --allow-run-as-root --oversubscribe -n 8 pprun --transport mpi plan.json \
        --data packed --init 5 --steps 5 --lr 1e-2 --clip 0.5 \
        --weight-decay 0.1 --save mpi/ckpt --dump-grads mpi/grads -o mpi/log
    same mpi threads
}

@test "with --row-invariant, experts on other ranks change no bit" {
    ranks() { plan plan.json gpipe 2 -p 1 --dp 4 --ep "$1"; }
    alike_over_ep ranks '*norm.weight' '*self_attn*' '*mlp.gate.weight' \
        '*shared*' '*embed*'
}

@test "with --row-invariant, biased experts on other ranks change no bit" {
    ranks() {
        ppsplit -q -p 1 --dp 4 --ep "$1" "$SRCDIR/tests/golden/gpt-oss/model" |
            ppsched -q -s gpipe -m 2 >plan.json
    }
    alike_over_ep ranks '*norm.weight' '*self_attn*' '*mlp.router*' '*embed*'
}

@test "a resumed run goes on with the same bits, and on other numbers of ranks" {
    local ep options=(--data packed --lr 1e-2)
    plan plan.json 1f1b 4 -p 2 --dp 2 --ep 2
    pprun -q plan.json "${options[@]}" --init 5 --steps 4 --save whole >log
    pprun -q plan.json "${options[@]}" --init 5 --steps 2 --save half >/dev/null
    cp -r half again
    pprun -q plan.json "${options[@]}" --resume again --steps 4 --save again \
        >rest
    diff <(tail -n 2 log | numbers -) <(numbers rest)
    compare again/latest whole/latest
    # Another number of ranks loads what this one saves, and saves it again.
    for ep in 1 4 2; do
        plan plan.json gpipe 2 -p 1 --dp 4 --ep $ep --zero $((ep % 2))
        pprun -q plan.json "${options[@]}" --resume half --steps 2 --save there
        diff -r half there
        rm -r there
    done
}

# zero_routers DIR: makes the routers of saved weights equal for all experts, so
# that each token takes the first two.
zero_routers() {
    local file=$1/model.safetensors size at
    size=$(od -An -t u8 -N 8 "$file")
    head -c $((8 + size)) "$file" | tail -c "$size" |
        jq -r 'to_entries[] | select(.key | endswith("mlp.gate.weight"))
            | .value.data_offsets | @tsv' |
        while read -r at end; do
            dd if=/dev/zero of="$file" bs=1 seek=$((8 + size + at)) \
                count=$((end - at)) conv=notrunc status=none
        done
}

@test "all tokens tie and go to one rank, which may have no room" {
    pprun -q one.json --data packed --init 1 --steps 1 --lr 0 --save saved \
        >/dev/null
    cp -rL saved/latest ties
    rm ties/checksums.xxh3
    zero_routers ties
    plan plan.json 1f1b 4 -p 2 --dp 2 --ep 2
    pprun --verify --weights ties --data packed --dtype fp64 plan.json |
        tail -n 1 | grep -q '^the same'
    plan plan.json 1f1b 4 -p 2 --dp 2 --ep 2 --expert-limit 2
    jq -e '.mesh.expert_limit == 2' plan.json
    run --separate-stderr pprun -q plan.json --weights ties --data packed \
        --steps 1
    echo "$status $stderr"
    [ "$status" -eq 1 ]
    [[ $stderr == *"model.layers.0: "*" rows of experts come to rank "*", which \
has room for '"*"', 2 for each of "*" tokens; plan with a limit of 4" ]]
    # Less room is enough for tokens that spread.
    plan plan.json 1f1b 4 -p 2 --dp 2 --ep 2 --expert-limit 3
    train limited plan.json --eval eval --dtype fp64
    near limited base-qwen2-moe-ep
}

@test "the losses of routers are those of one rank" {
    local options=(--dtype fp64 --router 'aux=0.3,z=0.02')
    train aux one.json "${options[@]}"
    plan plan.json 1f1b 2 -p 2 --dp 4 --ep 4 --recompute full
    train aux-ep plan.json "${options[@]}"
    near aux-ep aux
    plan plan.json gpipe 4 -p 1 --cp 2 --dp 2 --ep 2
    train aux-cp plan.json "${options[@]}"
    near aux-cp aux
    near_routers aux aux-ep aux-cp
}

@test "shared experts and routers are computed while rows travel" {
    plan plan.json gpipe 3 -p 1 --dp 2 --ep 2 --recompute full
    PP_RECEIVED=yes "$BUILDDIR/tests/parity/pprun_inject" -q --data packed \
        --init 1 --steps 2 plan.json 2>waits >log
    cat waits
    # In a layer of experts a rank waits, for each microbatch, for counts of
    # rows in F, in recomputation, in I and in W; for rows to and from experts in
    # F and I, again to them in recomputation, and twice in W; and for weights of
    # rows and their gradients in I. A product comes before each wait for rows.
    local n=$((3 * 5)) # microbatches and layers of experts
    [ "$(grep -c "waited $((13 * n)) times, $((7 * n)) behind a" waits)" -eq 2 ]
}

# The options of a policy. Tokens that are alike at the beginning of two documents
# have one probability, unless rounding parts them.
policy_options() { [ "$1" = position ] || echo --row-invariant; }

# one_capped POLICY CAPACITY: trains on one rank with it.
one_capped() {
    rm -rf "capped-$1-$2"
    plan plan.json gpipe 8 -p 1 --expert-capacity "$2" --expert-drop "$1"
    # shellcheck disable=SC2046 # no option, or one
    train "capped-$1-$2" plan.json --eval eval --dtype fp64 --router aux=0.3 \
        $(policy_options "$1")
    jq -es 'all(.[]; .dropped > 20)' "capped-$1-$2/log"
}

# capped_as POLICY CAPACITY KIND M SPLIT...: compares the split with one rank:
# losses, norms, gradients, weights, and the choices that are dropped.
capped_as() {
    local of=capped-$1-$2 options=(--expert-capacity "$2" --expert-drop "$1")
    echo "# $*"
    rm -rf run
    plan plan.json "${@:3}" "${options[@]}"
    # shellcheck disable=SC2046
    train run plan.json --eval eval --dtype fp64 --router aux=0.3 \
        $(policy_options "$1")
    near run "$of"
    diff <(jq -c '[.dropped, .tokens]' run/log) \
        <(jq -c '[.dropped, .tokens]' "$of/log")
}
capped() { capped_as position "$@"; }

@test "experts drop the same tokens on every mesh" {
    local capacity
    for capacity in 0.5 1; do
        one_capped position $capacity
        capped $capacity gpipe 8 -p 1 --cp 2 --ep 2
        capped $capacity 1f1b 4 -p 2 --dp 2 --ep 2 --recompute full
    done
    run ! near capped-position-0.5 capped-position-1
    run ! near capped-position-1 base-qwen2-moe-ep
    capped 1 1f1b 2 -p 2 --cp 2 --dp 4 --ep 8 --zero 3
    capped 1 gpipe 8 -p 1 --tp 2 --cp 2 --cp-exchange ring --recompute selective
    capped 0.5 zbv 4 -p 2 -c 2 --placement v --tp 2 --dp 2 --ep 2
    capped 0.5 dualpipe 8 -p 2 --placement both-ways --cp 2 --ep 2
}

@test "slices on expert-parallel ranks drop the same tokens" {
    plan plan.json gpipe 8 -p 1 --expert-capacity 0.5
    train whole plan.json --eval eval --dtype fp64
    # 4 rows of a token are the most that may come to a rank of a slice.
    plan plan.json seq1f1b 4 -p 2 --dp 2 --ep 2 --expert-limit 4 \
        --expert-capacity 0.5
    train sliced plan.json --eval eval --dtype fp64
    near sliced whole
    diff <(jq .dropped sliced/log) <(jq .dropped whole/log)
    jq -es 'all(.[]; .dropped > 20)' sliced/log
}

# Blocks of slices then have one layout, whatever their tokens.
@test "an objective finds the slices of ranks that divide experts, or drop tokens" {
    local split
    rollouts 3 12 >rollouts.jsonl
    pppack -q -l 64 --bins-multiple 4 -o rollouts rollouts.jsonl
    for split in '--dp 2 --ep 2' '--expert-capacity 0.7'; do
        # shellcheck disable=SC2086
        plan plan.json 'seq1f1b --slices 3' 2 -p 2 $split
        pprun -q --verify --init 1 --data rollouts --dtype fp64 \
            --objective grpo plan.json | tail -n 1 | grep '^the same'
    done
}

@test "experts keep the same most probable tokens on every mesh" {
    one_capped position 0.5
    one_capped probs 0.5
    run ! near capped-probs-0.5 capped-position-0.5
    capped_as probs 0.5 gpipe 8 -p 1 --cp 2 --ep 2
    capped_as probs 0.5 1f1b 4 -p 2 --dp 2 --ep 2 --recompute full
    capped_as probs 0.5 1f1b 2 -p 2 --cp 2 --dp 4 --ep 8 --zero 3
    capped_as probs 0.5 zbv 8 -p 2 -c 2 --placement v --tp 2 --cp 2
}

@test "among equals experts keep the first tokens" {
    local policy
    pprun -q one.json --data packed --init 1 --steps 1 --lr 0 --save equal \
        >/dev/null
    cp -rL equal/latest zero
    rm zero/checksums.xxh3
    zero_routers zero
    for policy in position probs; do
        plan plan.json gpipe 8 -p 1 --expert-capacity 0.5 --expert-drop $policy
        pprun -q plan.json --weights zero --data packed --steps 1 |
            jq -c '[.loss, .grad_norm, .dropped]' >$policy.log
    done
    cmp position.log probs.log
    jq -e '.[2] > 20' probs.log
}

@test "rows that are padded to the capacity change no number" {
    one_capped position 1
    one_capped probs 0.5
    capped 1 1f1b 4 -p 2 --dp 2 --ep 2 --recompute full --expert-padding
    capped 1 gpipe 1 -p 1 --dp 8 --ep 8 --expert-padding
    capped 1 1f1b 2 -p 2 --cp 2 --dp 4 --ep 4 --zero 3 --expert-padding
    capped_as probs 0.5 zbv 4 -p 2 -c 2 --placement v --tp 2 --dp 2 --ep 2 \
        --expert-padding
}

@test "padding for few tokens needs a limit, which the error names" {
    # 64 experts keep 2 tokens each, and there is room for 3 rows of a token.
    mkdir many
    jq '.num_experts = 64' model-qwen2-moe-ep/config.json >many/config.json
    data 1 8 | pppack -q -l 40 -o few
    local split=(-p 1 --dp 2 --ep 2 --expert-capacity 1)
    ppsplit -q "${split[@]}" --expert-padding many |
        ppsched -q -s gpipe -m 1 >plan.json
    run --separate-stderr pprun -q plan.json --init 1 --data few --steps 1
    echo "$stderr"
    [ "$status" -eq 1 ]
    [[ $stderr == *"128 rows of experts come to rank "*", which has room for \
'117', 3 for each of 39 tokens; plan with a limit of 4" ]]
    ppsplit -q "${split[@]}" --expert-padding --expert-limit 4 many |
        ppsched -q -s gpipe -m 1 >plan.json
    pprun -q plan.json --init 1 --data few --steps 1 --dtype fp64 >padded
    ppsplit -q "${split[@]}" many | ppsched -q -s gpipe -m 1 >plan.json
    pprun -q plan.json --init 1 --data few --steps 1 --dtype fp64 >tight
    jq -es '.[0].dropped > 20 and .[0].dropped == .[1].dropped and
        (.[0].loss / .[1].loss - 1 | fabs) < 1e-12 and
        (.[0].grad_norm / .[1].grad_norm - 1 | fabs) < 1e-12' padded tight
}

@test "ranks that pad rows tell each other no counts" {
    local n=$((3 * 5))
    plan plan.json gpipe 3 -p 1 --dp 2 --ep 2 --recompute full \
        --expert-capacity 1 --expert-padding
    PP_RECEIVED=yes "$BUILDDIR/tests/parity/pprun_inject" -q --data packed \
        --init 1 --steps 2 plan.json 2>waits >log
    cat waits
    # 13 n with counts, as above, of which F, recomputation, I and W have one.
    [ "$(grep -c "waited $((9 * n)) times, $((7 * n)) behind a" waits)" -eq 2 ]
}

@test "sequences with ranks of their own drop the same tokens" {
    local policy
    data 1 40 | pppack -q -l 64 --per-rank --cp 2 --cp-sizes per-sequence \
        --balance tokens -o sized
    for policy in position probs; do
        plan plan.json gpipe 4 -p 1 --expert-capacity 0.5 --expert-drop $policy
        pprun -q plan.json --data sized --init 5 --steps 3 --dtype fp64 \
            --optimizer sgd >one.log
        plan plan.json 1f1b 4 -p 2 --cp 2 --ep 2 --expert-capacity 0.5 \
            --expert-drop $policy
        pprun -q plan.json --data sized --init 5 --steps 3 --dtype fp64 \
            --optimizer sgd >two.log
        paste -d '\n' one.log two.log | jq -es 'def near($x; $y):
            ($x - $y | fabs) <= 1e-11 * $y;
            length == 6 and all(range(0; 6; 2) as $i | [.[$i], .[$i + 1]];
                .[0].dropped > 20 and .[0].dropped == .[1].dropped and
                near(.[0].loss; .[1].loss) and
                near(.[0].grad_norm; .[1].grad_norm))'
    done
}

@test "a microbatch may have fewer choices than ranks divide" {
    # A token chooses two experts, and four ranks divide the tokens.
    yes '{"input_ids": [3]}' | head -n 7 >tokens.jsonl
    echo '{"input_ids": [5, 6, 7]}' >>tokens.jsonl
    pppack -q -l 64 --cp 4 --tp 2 -a none --rows 1 --no-shuffle -o tokens \
        tokens.jsonl
    local split
    for split in '--cp 4' '--cp 2 --tp 2 --experts-over-tp --ep 2'; do
        # shellcheck disable=SC2086
        plan plan.json gpipe 8 -p 1 $split --expert-capacity 1
        pprun --verify --init 1 --data tokens --dtype fp64 plan.json |
            tail -n 1 | grep '^the same'
    done
}

@test "the verification knows a capacity" {
    local split
    for split in '1f1b 4 -p 2 --dp 2 --ep 2' \
        'gpipe 8 -p 1 --cp 2 --ep 2 --expert-drop probs' \
        '1f1b 4 -p 2 --dp 2 --ep 2 --expert-padding'; do
        # shellcheck disable=SC2086
        plan plan.json $split --expert-capacity 0.5
        pprun --verify --init 1 --data packed --eval eval --dtype fp64 \
            plan.json | tail -n 1 | grep -q '^the same'
    done
    caught experts-averaged 1 '*only stage 1 on rank 1 has wrong gradients*'
    caught experts-source 1 '*the output of stage 0 * is the first that differs*'
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

@test "a capacity lowers the room for rows of other ranks, to the byte" {
    local capacity most=0 bytes
    for capacity in '' 2 1.5 1; do
        # shellcheck disable=SC2086
        plan plan.json 1f1b 2 -p 2 --dp 4 --ep 4 \
            ${capacity:+--expert-capacity $capacity}
        bytes=$(pprun --print-memory --data packed plan.json |
            jq 'map(.total) | add')
        echo "$capacity: $bytes"
        [ -z "$capacity" ] || [ "$bytes" -lt "$most" ]
        most=$bytes
    done
    # A rank allocates what it plans, or fails.
    pprun -q plan.json --init 1 --data packed --steps 1 >log
    jq -e '.dropped > 0 and .expert_load > 1' log
}

# caught NAME STATUS PATTERN: --verify ends so with the fault.
caught() {
    run --separate-stderr env PP_INJECT="$1" timeout 200 \
        "$BUILDDIR/tests/parity/pprun_inject" --verify --init 1 \
        --data packed plan.json
    echo "$1: status $status: ${lines[-1]} $stderr"
    [ "$status" -eq "$2" ]
    # shellcheck disable=SC2053
    [[ "${lines[-1]}" == $3 ]]
}

@test "the verification finds faults of experts on other ranks" {
    plan plan.json 1f1b 4 -p 2 --dp 2 --ep 2
    caught none 0 'the same*'
    caught experts-averaged 1 '*only stage 1 on rank 1 has wrong gradients*'
    caught experts-source 1 '*the output of stage 0 * is the first that differs*'
    caught experts-count 1 '*the output of stage 0 * is the first that differs*'
}
