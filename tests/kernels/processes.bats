#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Ranks as processes with a device each, and NCCL. The device, its runtime and
# NCCL are emulated; the rest is the code that runs on a cluster. No result depends
# on a time-out: if a run hangs, the whole suite does.
# shellcheck disable=SC2034 # variables of launch

bats_require_minimum_version 1.5.0
load ../parity/helpers
load ../parity/images
load ../cli/trace_helpers
load processes_helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    set_up_processes
    data 2 12 >other.jsonl
    pppack -q -l 48 -o other data.jsonl other.jsonl
    ppsplit -q -p 2 model | ppsched -q -s 1f1b -m 2 >two.json
    ppsplit -q -p 4 model | ppsched -q -s 1f1b -m 2 >four.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# says PATTERN: the ranks print exactly one line, which matches.
says() {
    [ "$(cat err.* | wc -l)" -eq 1 ]
    # shellcheck disable=SC2053
    [[ "$(cat err.*)" == $1 ]]
}

options=(--data packed --init 1 --steps 2 --lr 1e-2 --weight-decay 0.1)

@test "two and four processes give the bits of threads" {
    # There are more GPUs than ranks; the others must not be used.
    export PP_EMULATED_GPUS=8
    ppsplit -q -p 2 --dp 2 model | ppsched -q -s 1f1b -m 2 >lanes.json
    # Each rank has a part of every sequence, or of every tensor.
    pppack -q -l 48 --cp 2 --tp 2 -o parts data.jsonl
    ppsplit -q -p 2 --cp 2 model |
        ppsched -q -s 1f1b -m 2 >parts.json
    ppsplit -q -p 2 --tp 2 model | ppsched -q -s 1f1b -m 2 >tensors.json
    ppsplit -q -p 1 --dp 2 --ep 2 "$SRCDIR/tests/golden/mixtral/model" |
        ppsched -q -s gpipe -m 2 >experts.json
    ppsplit -q -p 1 --tp 2 --experts-over-tp \
        "$SRCDIR/tests/golden/mixtral/model" |
        ppsched -q -s gpipe -m 2 >whole.json
    ppsplit -q -p 1 --cp 2 --ep 2 --expert-capacity 0.7 --expert-drop probs \
        "$SRCDIR/tests/golden/mixtral/model" |
        ppsched -q -s gpipe -m 2 >capped.json
    # An encoder on ranks of its own sends features over a bridge.
    image_lines llava 1 12 | pppack -q --image-token 31 --patch 4 -l 40 -o images
    ppsplit -q -p 2 --dp 2 --encoder-mesh pp=1,dp=3 \
        "$SRCDIR/tests/golden/llava" | ppsched -q -s 1f1b -m 2 >bridge.json
    for run in 'two 2 bf16' 'four 4 fp32' 'lanes 4 bf16' 'parts 4 bf16' \
        'tensors 4 bf16' 'experts 2 bf16' 'whole 2 bf16' 'capped 2 bf16' \
        'bridge 5 fp32'; do
        read -r plan n dtype <<<"$run"
        rm -rf a b
        mkdir a b
        data=packed
        case $plan in
        parts | tensors | whole | capped) data=parts ;;
        bridge) data=images ;;
        esac
        more=(--data "$data" --eval "$data" --dtype "$dtype")
        "$PPRUN" --device cuda "$plan.json" "${options[@]}" "${more[@]}" \
            --save a/ckpt --dump-grads a/grads -o a/log
        ranks "$n" "$plan.json" "${options[@]}" "${more[@]}" \
            --save b/ckpt --dump-grads b/grads -o b/log
        all 0 "$n"
        [ "$(wc -l <b/log)" -eq 2 ]
        same a b
        # Only rank 0 prints, and its output went to the file.
        [ -z "$(cat out.* err.*)" ]
    done
}

@test "schedules of every shape, with random delays" {
    ppsplit -q -p 2 -c 2 --placement v model | ppsched -q -s zbv -m 2 >zbv.json
    ppsplit -q -p 2 -c 2 model |
        ppsched -q -s interleaved -m 2 --depth 2 >interleaved.json
    ppsched -q -s gpipe -m 2 --depth 0 two.json >rendezvous.json
    ppsplit -q -p 2 --placement both-ways model |
        ppsched -q -s dualpipe -m 4 >dualpipe.json
    ppsplit -q -p 1 -c 2 --dp 2 model |
        ppsched -q -s looped-bfs -m 2 >replicas.json
    for plan in zbv interleaved rendezvous dualpipe replicas; do
        "$PPRUN" --device cuda $plan.json "${options[@]}" -o want
        PP_EMULATED_JITTER=1 ranks 2 $plan.json "${options[@]}"
        all 0 2
        diff <(numbers want) <(numbers out.0)
    done
}

@test "every launcher's variables" {
    "$PPRUN" --device cuda two.json "${options[@]}" -o want
    for vars in srun mpirun mpiexec torchrun; do
        ranks 2 two.json "${options[@]}"
        all 0 2
        diff <(numbers want) <(numbers out.0)
    done
}

@test "the manifest comes from standard input, of one rank or of all" {
    "$PPRUN" --device cuda two.json "${options[@]}" -o want
    # It is larger than a pipe's buffer, so every rank has to read it.
    jq '."x-note" = ("n" * 200000)' two.json >large.json
    input=large.json
    for only in 0 ''; do
        ranks 2 "${options[@]}"
        all 0 2
        diff <(numbers want) <(numbers out.0)
    done
}

@test "four processes, and threads, resume a checkpoint of two processes" {
    rm -rf ckpt
    "$PPRUN" --device cuda two.json "${options[@]}" -o want
    ranks 2 two.json "${options[@]}" --save ckpt --resume ckpt --save-every 1 \
        --steps 1
    all 0 2
    cp -r ckpt copy
    ranks 4 four.json "${options[@]}" --resume ckpt
    [ "$(cat out.0 | wc -l)" -eq 1 ]
    diff <(tail -n 1 want | jq -c '[.step, .loss]') <(jq -c '[.step, .loss]' out.0)
    "$PPRUN" --device cuda two.json "${options[@]}" --resume copy |
        jq -c '[.step, .loss]' | diff - <(jq -c '[.step, .loss]' out.0)
    [ "$(cat err.0)" = \
        "pprun[0/4 $(hostname)]: resuming from ckpt/step-00000001" ]
}

@test "a signal to one rank stops all at the same step" {
    for to in 0 1; do
        rm -rf ckpt
        launch 2 two.json "${options[@]}" --steps 100000 --save ckpt
        until [ -s out.0 ]; do sleep 0.02; done
        kill -TERM "${pids[to]}"
        collect
        all 75 2
        last=$(tail -n 1 out.0 | jq .step)
        [ "$(readlink ckpt/latest)" = "step-$(printf %08d "$last")" ]
        [[ "$(cat err.*)" == *": stopped by SIGTERM after step $last; "* ]]
    done
}

@test "when a rank is killed, the others end and name it" {
    for victim in 2 1 0; do
        launch 4 four.json "${options[@]}" --steps 100000
        until [ -s out.0 ]; do sleep 0.02; done
        kill -9 "${pids[victim]}"
        collect
        [ "$(printf '%s\n' $statuses | grep -c '^3$')" -eq 3 ]
        [ "$(echo $statuses | cut -d' ' -f$((victim + 1)))" -eq 137 ]
        lost="rank $victim on $(hostname) is lost: "
        for r in 0 1 2 3; do
            [ $r -eq $victim ] || [[ "$(cat err.$r)" == \
                "pprun[$r/4 $(hostname)]: $lost"* ]]
        done
    done
}

@test "a rank that fails prints why, and rank 0 prints which rank" {
    # Enough memory to open the device, but not for the model.
    each=('' "PP_EMULATED_BYTES=$((40 * 1024 * 1024 + 40000))")
    ranks 2 two.json "${options[@]}"
    all 3 2
    [[ "$(cat err.1)" == "pprun[1/2 $(hostname)]: out of memory: "* ]]
    [[ "$(cat err.0)" == "pprun[0/2 $(hostname)]: rank 1: out of memory: "* ]]
    each=()
    ranks 2 two.json "${options[@]}" -o /dev/full
    all 3 2
    says "pprun?0/2 *: writing /dev/full failed: No space left on device"
}

@test "a rank that cannot start ends all at once" {
    # No rank waits for the time-out.
    each=('' CUDA_DEVICE_MAX_CONNECTIONS=1)
    SECONDS=0
    ranks 4 four.json "${options[@]}"
    all 2 4
    [[ "$(cat err.1)" == "pprun[1/4 "*"]: CUDA_DEVICE_MAX_CONNECTIONS is '1': "* ]]
    [[ "$(cat err.0)" == "pprun[0/4 "*"]: rank 1 on $(hostname) cannot start: \
CUDA_DEVICE_MAX_CONNECTIONS is '1': "* ]]
    [ -z "$(cat err.2 err.3)" ]
    # A rank that does not know its number.
    each=('' RANK=x)
    ranks 4 four.json "${options[@]}"
    all 2 4
    [[ "$(cat err.1)" == "pprun: RANK: 'x' is not "* ]]
    [[ "$(cat err.0)" == "pprun[0/4 "*"]: a rank on $(hostname) cannot start: \
RANK: 'x' is not "* ]]
    [ -z "$(cat err.2 err.3)" ]
    each=()
    ranks 4 four.json "${options[@]}" -o nosuch/log
    all 3 4
    says "pprun?0/4 *: nosuch/log*: No such file or directory"
    [ $SECONDS -lt 60 ]
}

@test "ranks wait for a missing rank for --join-timeout" {
    SECONDS=0
    each=(WORLD_SIZE=4 WORLD_SIZE=4 WORLD_SIZE=4)
    ranks 3 four.json "${options[@]}" --join-timeout 5
    all 3 3
    says "pprun?0/4 *: 1 of 4 ranks did not join in time, for example rank 3"
    [ $SECONDS -lt 60 ]
    run --separate-stderr "$PPRUN" --device cuda four.json "${options[@]}" \
        --join-timeout 2
    [ "$status" -eq 2 ]
    [ "${stderr_lines[0]}" = \
        "pprun: --join-timeout needs --transport mpi or nccl" ]
}

@test "the number of ranks must be that of the mesh" {
    ranks 3 four.json "${options[@]}"
    all 2 3
    says "pprun?0/3 $(hostname)?: WORLD_SIZE: '3', but the manifest's mesh \
has 4 ranks (pp 4 x dp 1 x tp 1 x cp 1)"
}

@test "ranks must agree on their number" {
    each=('' 'WORLD_SIZE=3')
    ranks 2 two.json "${options[@]}"
    all 2 2
    grep -q "rank 1 on $(hostname) expects 3 ranks, but rank 0 expects 2" err.0
}

@test "a rank with other files is refused" {
    mkdir -p elsewhere
    ln -sfn "$PWD/other" elsewhere/packed
    ln -sfn "$PWD/model" elsewhere/model
    dirs=('' "--chdir=$PWD/elsewhere")
    ranks 2 "$PWD/two.json" "${options[@]}"
    all 2 2
    says "pprun?1/2 *: rank 1 on $(hostname) and rank 0 on \
$(hostname) differ in the packed data"
    rm elsewhere/packed
    ranks 2 "$PWD/two.json" "${options[@]}"
    all 2 2
    says "pprun?1/2 *: packed*"
    # The same plan, but another directory of checkpoints.
    ln -sfn "$PWD/packed" elsewhere/packed
    mkdir -p elsewhere/saved saved
    ranks 2 "$PWD/two.json" "${options[@]}" --save saved
    all 2 2
    says "pprun?1/2 *differ in the directory of --save"
}

@test "only one rank prints that a manifest cannot be read" {
    ranks 2 nosuch.json "${options[@]}"
    all 2 2
    says "pprun?0/2 *: nosuch.json: No such file or directory"
    echo '{' >broken.json
    ranks 2 broken.json "${options[@]}"
    all 2 2
    says "pprun?0/2 *: broken.json:*"
}

@test "a missing or old NCCL, and a missing GPU, are refused" {
    PPRUN_NCCL=libnosuch.so ranks 2 two.json "${options[@]}"
    all 3 2
    says "pprun?0/2 *: NCCL: libnosuch.so: cannot open shared object file: *"
    PP_EMULATED_NCCL_VERSION=21703 ranks 2 two.json "${options[@]}"
    all 3 2
    says "pprun?0/2 *: NCCL: version '2.17.3' is too old; 2.18 is needed"
    each=('' PP_EMULATED_GPUS=0)
    ranks 2 two.json "${options[@]}"
    all 3 2
    says "pprun?1/2 *: --device cuda: no GPU can be used: *"
}

@test "log-probabilities are gathered" {
    local PPRUN=$BUILDDIR/tests/kernels/ppscore_emulated
    ranks 2 two.json --data packed --init 1 --logprobs -o lines
    all 0 2
    "$PPRUN" --device cuda two.json --data packed --init 1 --logprobs -o want
    [ -s want ]
    cmp want lines
}

@test "a trace of machines with different clocks, and a profile" {
    "$PPRUN" --device cuda two.json "${options[@]}" --steps 3 -o want
    each=('' PP_EMULATED_CLOCK=5000)
    ranks 2 two.json "${options[@]}" --steps 3 --trace trace.json \
        --profile profile.json
    all 0 2
    [ -z "$(cat out.1 err.*)" ]
    diff <(numbers want) <(numbers out.0)
    check_trace trace.json
    causal trace.json
    steps_tile trace.json
    ppsched --overlay trace.json two.json | grep -q '^makespan'
    # Messages are measured only if a receiver waited.
    jq -e '.messages.seconds_per_byte >= 0 and .messages.latency >= 0
        and (.units | all(.fwd[0] + .fwd[1] > 0))' profile.json
    ppsplit -q -p 2 --costs profile.json model >/dev/null
    # Errors are printed once, before the first step.
    ranks 2 two.json "${options[@]}" --trace nosuch/t
    all 3 2
    says "pprun?0/2 *: nosuch/t: No such file or directory"
    ranks 2 two.json "${options[@]}" --profile p
    all 2 2
    says "pprun?0/2 *: a profile takes 3 steps or more, and 2 are left"
    [ -z "$(find . -name p -o -name "p.*.tmp")" ]
}

@test "messages take time if they have a cost" {
    # A step has two messages each way, one after the other in their streams.
    ranks 2 two.json "${options[@]}" --steps 3
    all 0 2
    cp out.0 want
    PP_EMULATED_COSTS=operations=50000 ranks 2 two.json "${options[@]}" --steps 3
    all 0 2
    diff <(numbers want) <(numbers out.0)
    seconds() { jq .seconds "$1" | sort -g | head -n 1; }
    jq -en "$(seconds out.0) >= 0.15 and $(seconds want) < $(seconds out.0)"
}

@test "reductions begin with the layers of the last backward" {
    # A trace takes the time of the whole action, so it begins behind.
    ppsplit -q -p 1 --dp 2 model | ppsched -q -s gpipe -m 2 >replicas2.json
    for how in inside behind; do
        trace=()
        [ $how = inside ] || trace=(--trace trace.json)
        PP_EMULATED_JITTER=3 PP_EMULATED_COUNTS=counts ranks 2 replicas2.json \
            "${options[@]}" "${trace[@]}" -o log.$how
        all 0 2
        mv counts counts.$how
    done
    diff <(numbers log.inside) <(numbers log.behind)
    operations() { sed -n 's/^operations //p' counts.$1; }
    [ "$(operations inside)" -gt "$(operations behind)" ]
}

@test "NCCL adds gradients if it may, in another order" {
    ppsplit -q -p 1 --dp 4 model | ppsched -q -s gpipe -m 2 >replicas4.json
    ranks 4 replicas4.json "${options[@]}" -o own
    all 0 4
    ranks 4 replicas4.json "${options[@]}" --nccl-sums -o theirs
    all 0 4
    jq -es 'all(.sums == "nccl: bits may differ")' theirs
    [ "$(jq .grad_norm own)" != "$(jq .grad_norm theirs)" ]
    jq -ens --slurpfile a own --slurpfile b theirs \
        '[$a, $b | map(.grad_norm)] | transpose
         | all((.[0] - .[1] | fabs) < 1e-5 * .[0])'
    run --separate-stderr "$PPRUN" --device cuda replicas4.json "${options[@]}" \
        --nccl-sums
    [ "$status" -eq 2 ]
}

@test "too few processors or open files for the messages" {
    printf '%s\n' '#!/bin/bash' \
        '[ "$RANK" != 1 ] || ulimit -n 90' \
        "exec $PPRUN \"\$@\"" >limited
    chmod +x limited
    PPRUN=$PWD/limited ranks 2 two.json "${options[@]}"
    all 3 2
    says "pprun?1/2 *: rank 1 needs 118 open files for its messages in 3 sets of ranks, but the limit is 90 (ulimit -Hn)"
    each=(PP_EMULATED_PROCESSORS=6 PP_EMULATED_PROCESSORS=7)
    ranks 2 two.json "${options[@]}"
    all 3 2
    says "pprun?0/2 *: a rank exchanges messages in 3 sets of ranks, and each may hold a processor of its GPU, which has 6, of which computation needs 4: *"
}

@test "GPUs with few processors, full launch queues, and late loading" {
    "$PPRUN" --device cuda four.json "${options[@]}" -o want
    for setting in PP_EMULATED_PROCESSORS=8 PP_EMULATED_LAUNCHES=16 \
        CUDA_MODULE_LOADING=LAZY CUDA_DEVICE_MAX_CONNECTIONS=2; do
        each=("$setting" "$setting" "$setting" "$setting")
        ranks 4 four.json "${options[@]}"
        all 0 4
        diff <(numbers want) <(numbers out.0)
    done
}

@test "threads under a launcher, and other misuse, are refused" {
    RANK=0 WORLD_SIZE=4 run --separate-stderr "$PPRUN" --device cuda two.json \
        "${options[@]}"
    [ "$status" -eq 2 ]
    [ "${stderr_lines[0]}" = "pprun: --transport threads runs all ranks in one \
process, but torchrun started WORLD_SIZE '4'; start one process, or give \
--transport nccl" ]
    RANK=0 WORLD_SIZE=4 run --separate-stderr "$PPRUN" --device cuda \
        --transport nccl two.json "${options[@]}" </dev/null
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun: torchrun does not say where rank 0 is; set \
MASTER_ADDR to its machine's name" ]
    RANK=4 WORLD_SIZE=4 run --separate-stderr "$PPRUN" --device cuda \
        --transport nccl two.json "${options[@]}" </dev/null
    [ "$status" -eq 2 ]
    run --separate-stderr "$PPRUN" --transport nccl two.json "${options[@]}"
    [ "${stderr_lines[0]}" = "pprun: --transport nccl needs --device cuda" ]
    CUDA_DEVICE_MAX_CONNECTIONS=1 run --separate-stderr "$PPRUN" \
        --device cuda two.json "${options[@]}"
    [ "$status" -eq 2 ]
    [[ "$stderr" == "pprun: CUDA_DEVICE_MAX_CONNECTIONS is '1': "* ]]
    NCCL_COMM_BLOCKING=1 RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 \
        run --separate-stderr "$PPRUN" --device cuda --transport nccl two.json \
        "${options[@]}" </dev/null
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"NCCL_COMM_BLOCKING is '1': "* ]]
}
