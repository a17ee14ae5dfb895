#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# whole_experts - expert-parallel ranks that are cut from tensor-parallel ranks
# too, so that no expert is divided: against one rank in fp64. Each rank routes
# its own rows. meshes.bats has more meshes. SLOW=yes takes all meshes of this
# file.

bats_require_minimum_version 1.5.0
load helpers
load experts

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model qwen2-moe-ep false
    eight_heads model-qwen2-moe-ep
    data 1 40 | unlike >data.jsonl
    pppack -q -l 64 --cp 2 --tp 4 -o packed data.jsonl
    data 2 9 | unlike >eval.jsonl
    pppack -q -l 64 --cp 2 --tp 4 -o eval eval.jsonl
    plan one.json gpipe 8 -p 1
    train base one.json --eval eval --dtype fp64
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan_of MODEL FILE KIND M SPLIT...
plan_of() {
    local model=$1 file=$2 kind=$3 m=$4
    shift 4
    ppsplit -q --experts-over-tp "$@" "$model" |
        ppsched -q -s "$kind" -m "$m" >"$file"
}

plan() { plan_of model-qwen2-moe-ep "$@"; }

# verified OPTION...: --verify finds nothing in plan.json.
verified() {
    pprun --verify --init 1 --dtype fp64 "$@" plan.json | tail -n 1 |
        grep -q '^the same'
}

# whole KIND M SPLIT...: compares the split with one rank: losses, norms, the last
# gradients and the weights after five steps; with SLOW set also the losses of
# routers.
whole() {
    local losses=(--router 'aux=0.3,z=0.02,rule=documents')
    echo "# $*"
    rm -rf run
    plan plan.json "$@"
    train run plan.json --eval eval --dtype fp64
    near run base
    [ "$1" != seq1f1b ] || losses=()
    [ -z "${SLOW:-}" ] || verified --data packed "${losses[@]}"
}

# slow: skips a test unless SLOW is set.
slow() { [ -n "${SLOW:-}" ] || skip 'SLOW is not set'; }

@test "groups of tp alone, and of tp with lanes or sequences" {
    whole gpipe 8 -p 1 --tp 2
    whole 1f1b 8 -p 2 --tp 2 --ep 2 --recompute full
    whole interleaved 4 -p 2 -c 2 --tp 2 --dp 2 --ep 4 --zero 3
    whole 1f1b 8 -p 2 --tp 2 --cp 2 --ep 4 --zero 0
}

@test "groups smaller and larger than tp, and copies of weights" {
    whole gpipe 8 -p 1 --tp 4 --ep 2 --recompute selective
    whole gpipe 2 -p 1 --tp 2 --dp 4 --ep 8 --mesh-order dp-cp-tp-pp
    whole dualpipe 4 -p 2 --placement both-ways --tp 2 --dp 2 --ep 2
}

@test "an exact plan has the bits of one rank" {
    plan plan.json gpipe 4 -p 1 --tp 2 --cp 2 --cp-exact --ep 2
    verified --data packed
}

@test "all meshes" {
    slow
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
                # shellcheck disable=SC2086
                whole ${way%% *} $((8 / $3)) ${way#* } --tp "$1" --cp "$2" \
                    --dp "$3" --ep "$4" --zero "$zero"
            done
        done
        [ "$2" -gt 1 ] ||
            whole seq1f1b $((8 / $3)) -p 2 --tp "$1" --dp "$3" --ep "$4"
    done
}

@test "biased experts, and routers with groups" {
    local m
    pppack -q -l 64 --cp 2 --tp 2 -o both data.jsonl
    for m in gpt-oss deepseek-v3; do
        m=$SRCDIR/tests/golden/$m/model
        plan_of "$m" plan.json 1f1b 4 -p 2 --tp 2 --dp 2 --ep 2
        verified --data both
        plan_of "$m" plan.json gpipe 8 -p 1 --tp 2 --cp 2 --ep 4
        verified --data both
    done
}

@test "ranks without a token, and lanes without a microbatch" {
    # A microbatch has one or two sequences of three tokens, so that the last
    # ranks have padding alone.
    jq -nc '[range(8) | {input_ids: [., 11, 12], loss_mask: [1, 1, 1]}][]' \
        >three.jsonl
    pppack -q -l 8 --tp 4 -o three three.jsonl
    plan plan.json 1f1b "$(bins three)" -p 2 --tp 4 --ep 4
    verified --data three --router aux=0.3,z=0.02,rule=documents
    plan plan.json gpipe 1 -p 1 --tp 2 --dp 8 --ep 8
    [ "$(bins eval)" -lt 8 ]
    train lanes plan.json --eval eval --dtype fp64
    near lanes base
}

@test "the losses of routers are those of one rank by every rule" {
    local rule mesh options
    for rule in tokens documents megatron; do
        options=(--dtype fp64 --router "aux=0.3,z=0.02,rule=$rule")
        rm -rf aux aux-*
        train aux one.json "${options[@]}"
        for mesh in '1f1b 8 -p 2 --tp 2 --ep 2 --recompute full' \
            'gpipe 8 -p 1 --tp 2 --cp 2 --ep 4'; do
            # shellcheck disable=SC2086
            plan plan.json $mesh
            rm -rf aux-whole
            train aux-whole plan.json "${options[@]}"
            near aux-whole aux
            near_routers aux aux-whole
        done
    done
}

@test "the bias of a router follows the loads of all ranks, to the bit" {
    local m=$SRCDIR/tests/golden/deepseek-v3/model split rule
    pppack -q -l 64 --cp 2 --tp 2 -o both data.jsonl
    follow() { # NAME
        rm -rf "$1"
        pprun -q plan.json --data both --weights "$m" --steps 4 --lr 1e-2 \
            --dtype fp64 --save "$1" --router bias-rate=0.03,bias-rule="$rule" \
            >"$1.log"
        router_bias "$1/latest" >"$1.bias"
    }
    for rule in megatron torchtitan; do
        ppsplit -q -p 1 "$m" | ppsched -q -s gpipe -m 8 >plan.json
        follow followed-one
        [ "$(cat followed-one.bias)" != "$(router_bias "$m")" ]
        for split in '1f1b 8 -p 2 --tp 2 --ep 2 --recompute full' \
            'dualpipe 4 -p 2 --placement both-ways --tp 2 --dp 2 --ep 4' \
            'gpipe 8 -p 1 --tp 2 --cp 2 --zero 0'; do
            echo "$rule $split"
            # shellcheck disable=SC2086
            plan_of "$m" plan.json $split
            follow followed
            diff followed-one.bias followed.bias
            diff <(jq .expert_load followed-one.log) \
                <(jq .expert_load followed.log)
        done
    done
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
        plan plan.json ${split%% *} "$n" ${split#* }
        score plan.json --init 5 --record-routing again
        cmp routes again
        big_step replayed --init 6 --replay-routing routes \
            --record-routing again
        cmp routes again
        "$BUILDDIR/tests/golden/compare_tensors" 1e-10 1e-10 \
            replayed.saved/latest replayed-one.saved/latest
    done
}

@test "experts drop the same tokens on every mesh" {
    local mesh drop
    # Rounding errors of an update may change which of two weights is larger, so
    # that there is one step.
    step() { # NAME
        pprun -q plan.json --data packed --init 5 --steps 1 --dtype fp64 \
            --row-invariant --router aux=0.3 --dump-grads "$1.grads" >"$1.log"
    }
    for drop in position probs; do
        options=(--expert-capacity 0.5 --expert-drop "$drop")
        plan plan.json gpipe 8 -p 1 "${options[@]}"
        step capped
        jq -e '.dropped > 20' capped.log
        for mesh in '1f1b 8 -p 2 --tp 2 --ep 2 --recompute full' \
            'gpipe 8 -p 1 --tp 4 --ep 2 --expert-padding' \
            'gpipe 8 -p 1 --tp 4 --ep 4' \
            'gpipe 4 -p 1 --tp 2 --cp 2 --dp 2 --ep 8'; do
            # shellcheck disable=SC2086
            plan plan.json $mesh "${options[@]}"
            step mesh
            "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-6 mesh.grads \
                capped.grads
            jq -se '.[0] as $a | .[1] | .dropped == $a.dropped and
                ([.loss / $a.loss, .grad_norm / $a.grad_norm,
                    .aux_loss / $a.aux_loss]
                | all((. - 1 | fabs) <= 1e-11))' capped.log mesh.log
        done
    done
    plan plan.json seq1f1b 8 -p 2 --tp 2 --expert-capacity 0.5
    run --separate-stderr pprun plan.json --data packed --init 1 --steps 1
    [ "$status" -eq 2 ]
    [[ $stderr == *"the capacity of whole experts on tensor-parallel ranks "* ]]
}

@test "with --row-invariant, experts on other ranks change no bit" {
    ranks() { plan plan.json gpipe 4 -p 1 --tp 2 --dp 2 --ep "$1"; }
    alike_over_ep ranks '*norm.weight' '*self_attn*' '*mlp.gate.weight' \
        '*shared*' '*embed*'
}

@test "pipeline ranks, ZeRO and recomputation change no bit, nor does a file" {
    local split options=(--data packed --lr 1e-2)
    plan plan.json gpipe 4 -p 1 --tp 2 --dp 2 --ep 2
    train bits plan.json
    for split in '1f1b 4 -p 3 --recompute full --zero 0' \
        'zbv 4 -p 2 -c 2 --placement v --recompute selective --zero 3'; do
        # shellcheck disable=SC2086
        plan plan.json $split --tp 2 --dp 2 --ep 2
        rm -rf run
        train run plan.json
        same run bits
    done
    pprun -q plan.json "${options[@]}" --init 5 --steps 4 --save full >log
    pprun -q plan.json "${options[@]}" --init 5 --steps 2 --save half >/dev/null
    cp -r half third
    pprun -q plan.json "${options[@]}" --resume third --steps 4 --save third \
        >rest
    diff <(tail -n 2 log | numbers -) <(numbers rest)
    compare third/latest full/latest
    # Other meshes load what this one saves, and save the same files.
    for split in '--dp 4 --ep 4 --zero 0' '--tp 2 --dp 2' \
        '--tp 2 --dp 2 --experts-over-tp' \
        '--tp 4 --ep 4 --experts-over-tp' \
        '--tp 2 --cp 2 --ep 4 --experts-over-tp --zero 3'; do
        local lanes=1
        [[ $split != *'--dp 2'* ]] || lanes=2
        [[ $split != *'--dp 4'* ]] || lanes=4
        # shellcheck disable=SC2086
        ppsplit -q -p 1 $split model-qwen2-moe-ep |
            ppsched -q -s gpipe -m $((8 / lanes)) >plan.json
        pprun -q plan.json "${options[@]}" --resume half --steps 2 --save there
        diff -r half there
        rm -r there
    done
}

@test "a rank allocates what the plan says, to the byte" {
    local mesh
    for mesh in '-p 2 --tp 2 --ep 2' '-p 2 --tp 2' \
        '-p 2 --tp 2 --dp 2 --ep 4 --zero 3' \
        '-p 1 --tp 2 --cp 2 --ep 4 --expert-capacity 1' \
        '-p 2 --tp 4 --dp 2 --ep 2 --recompute full'; do
        echo "$mesh"
        # shellcheck disable=SC2086
        ppsplit -q --method uniform --experts-over-tp $mesh \
            model-qwen2-moe-ep |
            ppsched -q -s 1f1b -m 8 --data packed -o plan.json
        pprun --print-memory --data packed --init 5 --steps 1 plan.json >need.json
        ppsched --stats plan.json | jq -e --slurpfile need need.json \
            '.rank_bytes == [$need[0][].total]'
        pprun -q --init 1 --data packed --steps 1 plan.json >log
    done
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

@test "the verification finds faults of whole experts" {
    plan plan.json 1f1b 4 -p 2 --tp 2 --dp 2 --ep 2
    caught none 0 'the same*'
    caught experts-twice 1 '*only stage 1 on rank 1 has wrong gradients*'
    caught router-rows 1 '*only gradients of tensors differ that several tensor-parallel ranks hold*'
    caught experts-source 1 '*the loss differs*'
}
