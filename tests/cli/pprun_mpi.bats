#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Ranks as processes on the CPU, with MPI between them. No result depends on a
# time-out: if a run hangs, the whole suite does.

bats_require_minimum_version 1.5.0
load ../parity/helpers
load trace_helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama true
    data 1 12 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 2 >two.json
    ppsplit -q -p 4 model-llama | ppsched -q -s 1f1b -m 2 >four.json
    pprun two.json "${options[@]}" -o want
    # mpirun may kill all ranks when one ends without MPI_Finalize. The ranks must
    # end by themselves here, so each shell waits until all ranks have ended.
    # one=R:NAME=VALUE sets a variable of rank R.
    cat >rank <<'END'
#!/bin/bash
r=$OMPI_COMM_WORLD_RANK
[ "${one%%:*}" != "$r" ] || export "${one#*:}"
pprun --transport mpi "$@" 2>err.$r <&0 &
echo $! >pid.$r
wait $!
rc=$?
echo $rc >status.$r.tmp
mv status.$r.tmp status.$r
until [ "$(find . -maxdepth 1 -name 'status.?' | wc -l)" -eq \
    "$OMPI_COMM_WORLD_SIZE" ]; do
    sleep 0.05
done
exit $rc
END
    chmod +x rank
}

setup() {
    needs_mpirun
    cd "$BATS_FILE_TMPDIR"
}

options=(--data packed --init 1 --steps 2 --lr 1e-2 --weight-decay 0.1)

# mpi N COMMAND...
mpi() {
    local n=$1
    shift
    mpirun --allow-run-as-root --oversubscribe -n "$n" "$@"
}

# until_or_end PID COMMAND...: waits until the command succeeds or process PID
# has ended.
until_or_end() {
    local pid=$1
    shift
    until "$@" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
}

# ended N: all N ranks have ended.
ended() { [ "$(find . -maxdepth 1 -name 'status.?' | wc -l)" -eq "$1" ]; }

# ranks N ARGS...: runs N ranks, which may fail. Their stdout goes to out, the
# stderr of rank R to err.R, and the exit statuses to $statuses. mpirun does not
# always notice that failed ranks have ended, so it is killed 10 seconds later.
ranks() {
    local n=$1 mpirun i
    shift
    rm -f out err.* status.* pid.*
    mpirun --allow-run-as-root --oversubscribe -n "$n" \
        --mca orte_abort_on_non_zero_status 0 ./rank "$@" >out 2>mpirun.err <&0 &
    mpirun=$!
    until_or_end $mpirun ended "$n"
    for ((i = 0; i < 500; i++)); do
        kill -0 $mpirun 2>/dev/null || break
        sleep 0.02
    done
    kill -KILL $mpirun 2>/dev/null || true
    wait $mpirun || true
    statuses=$(cat status.? | tr '\n' ' ')
    echo "statuses $statuses"
    grep . err.* || true
}

# all STATUS N: N ranks have ended with this status.
all() { [ "$statuses" = "$(printf "$1 %.0s" $(seq "$2"))" ]; }

# says PATTERN: the ranks print exactly one line, which matches.
says() {
    [ "$(cat err.* | wc -l)" -eq 1 ]
    # shellcheck disable=SC2053
    [[ "$(cat err.*)" == $1 ]]
}

@test "processes give the bits of threads: lines, gradients, checkpoints" {
    ppsplit -q -p 2 --dp 2 model-llama |
        ppsched -q -s zb-h1 -m 2 >lanes.json
    pppack -q -l 48 --cp 2 --tp 2 -o parts data.jsonl
    ppsplit -q -p 2 --cp 2 --cp-exchange a2a model-llama |
        ppsched -q -s zb-h1 -m 2 >parts.json
    ppsplit -q -p 2 --tp 2 model-llama | ppsched -q -s zb-h1 -m 2 >tensors.json
    for n in 2:two 4:four 4:lanes 4:parts 4:tensors; do
        rm -rf a b
        mkdir a b
        more=(--eval packed --eval-every 1 --save-every 1)
        case $n in 4:parts | 4:tensors) more+=(--data parts --eval parts) ;; esac
        pprun "${n#*:}.json" "${options[@]}" "${more[@]}" --save a/ckpt \
            --dump-grads a/grads -o a/log
        mpi "${n%:*}" pprun --transport mpi "${n#*:}.json" "${options[@]}" \
            "${more[@]}" --save b/ckpt --dump-grads b/grads -o b/log \
            >out 2>err
        [ "$(wc -l <b/log)" -eq 2 ]
        diff <(numbers a/log) <(numbers b/log)
        cmp a/grads b/grads
        diff -r a/ckpt b/ckpt
        # Only rank 0 prints, and its output went to the file.
        [ ! -s out ]
        [ ! -s err ]
    done
}

@test "schedules of every shape" {
    ppsched -q -s gpipe -m 2 --depth 0 two.json >rendezvous.json
    ppsplit -q -p 2 -c 2 model-llama |
        ppsched -q -s interleaved -m 2 --depth 2 >interleaved.json
    ppsplit -q -p 2 -c 2 --placement v model-llama | ppsched -q -s zbv -m 2 >zbv.json
    ppsplit -q -p 2 --placement both-ways model-llama |
        ppsched -q -s dualpipe -m 4 >dualpipe.json
    ppsched -q -s seq1f1b -m 2 --slices 3 two.json >slices.json
    for plan in rendezvous interleaved zbv dualpipe slices; do
        pprun $plan.json "${options[@]}" -o want.$plan
        mpi 2 pprun --transport mpi $plan.json "${options[@]}" >out
        diff <(numbers want.$plan) <(numbers out)
    done
}

@test "messages that carry their size, and scores" {
    mpi 2 pprun --transport mpi --message-size exchange two.json "${options[@]}" >out
    diff <(numbers want) <(numbers out)
    ppscore two.json --data packed --init 1 --logprobs -o lines.want
    mpi 2 ppscore --transport mpi two.json --data packed --init 1 \
        --logprobs -o lines
    [ -s lines ]
    cmp lines.want lines
}

@test "processes draw the tokens of threads" {
    data 4 9 | jq -c '{input_ids: .input_ids[:12]}' |
        pppack -q -l 32 -o prompts
    local draw=(--data prompts --init 1 --generate 3 --sample 3 two.json)
    ppscore -q "${draw[@]}" >drawn.want
    mpi 2 ppscore -q --transport mpi "${draw[@]}" >drawn
    [ "$(wc -l <drawn)" -eq 9 ]
    cmp drawn.want drawn
}

@test "processes give a sampler the weights of threads" {
    rm -rf fifo weights saved
    pprun -q two.json "${options[@]}" --save saved >out
    mkfifo fifo
    cat fifo >version 3>&- &
    mpi 2 pprun -q --transport mpi two.json "${options[@]}" \
        --stream-weights fifo >out
    wait $!
    head -n 1 version | jq -e '.step == 2'
    tail -n +2 version | cmp - saved/latest/model.safetensors
    mpi 2 pprun -q --transport mpi two.json "${options[@]}" \
        --stream-weights weights >out
    cmp weights/latest/model.safetensors saved/latest/model.safetensors
}

@test "a trace and a profile of processes" {
    mpi 2 pprun --transport mpi two.json "${options[@]}" --steps 3 \
        --trace trace.json --profile profile.json >out
    [ "$(wc -l <out)" -eq 3 ]
    check_trace trace.json
    causal trace.json
    steps_tile trace.json
    ppsplit -q -p 2 --costs profile.json model-llama >/dev/null
}

@test "four processes, and threads, resume a checkpoint of two processes" {
    rm -rf ckpt
    last=$(numbers want | tail -n 1)
    mpi 2 pprun --transport mpi two.json "${options[@]}" --steps 1 --save ckpt \
        >out
    mpi 4 pprun --transport mpi four.json "${options[@]}" --resume ckpt \
        >out 2>err
    [ "$(numbers out)" = "$last" ]
    [ "$(cat err)" = \
        "pprun[0/4 $(hostname)]: resuming from ckpt/step-00000001" ]
    pprun -q two.json "${options[@]}" --resume ckpt >out
    [ "$(numbers out)" = "$last" ]
}

@test "the manifest comes from standard input" {
    # It is larger than a pipe's buffer.
    jq '."x-note" = ("n" * 200000)' two.json >large.json
    # Open MPI's mpirun itself crashes now and then while it forwards the input.
    for ((i = 0, rc = 139; i < 3 && rc == 139; i++)); do
        rc=0
        mpi 2 pprun --transport mpi "${options[@]}" <large.json >out || rc=$?
    done
    [ "$rc" -eq 0 ]
    diff <(numbers want) <(numbers out)
}

@test "when a rank is killed, the others end and name it" {
    for victim in 1 0; do
        rm -f out
        lost="rank $victim on $(hostname) is lost: its process has ended"
        ranks 4 four.json "${options[@]}" --steps 100000 &
        until_or_end $! test -s out
        kill -9 "$(cat pid.$victim)"
        # mpirun sends SIGTERM, but ranks that know the reason keep status 3.
        until_or_end $! grep -qs "$lost" err.$((victim == 0))
        for r in 0 1 2 3; do
            [ $r -eq $victim ] || kill -TERM "$(cat pid.$r)" || true
        done
        wait $!
        for r in 0 1 2 3; do
            [ "$(cat status.$r)" -eq $((r == victim ? 137 : 3)) ]
            if [ $r -eq $victim ]; then
                ! grep pprun err.$r
            else
                [ "$(grep pprun err.$r)" = \
                    "pprun[$r/4 $(hostname)]: $lost" ]
            fi
        done
    done
}

@test "a signal to one rank stops all at the same step" {
    rm -rf ckpt out
    ranks 2 two.json "${options[@]}" --steps 100000 --save ckpt &
    until_or_end $! test -s out
    kill -TERM "$(cat pid.1)"
    wait $!
    [ "$(cat status.0 status.1 | tr '\n' ' ')" = '75 75 ' ]
    last=$(tail -n 1 out | jq .step)
    [ "$(readlink ckpt/latest)" = "step-$(printf %08d "$last")" ]
    [[ "$(cat err.0)" == *": stopped by SIGTERM after step $last; "* ]]
    [ ! -s err.1 ]
}

@test "only one rank prints an error" {
    ranks 2 two.json "${options[@]}" --lr 1e5 --clip 0 --steps 9
    all 3 2
    says "pprun?0/2 $(hostname)?: step ?: loss is * and the gradient norm *nan"
    ranks 2 two.json "${options[@]}" -o /dev/full
    all 3 2
    says 'pprun?0/2 *: writing /dev/full failed: No space left on device'
    ranks 3 two.json "${options[@]}"
    all 2 3
    says "pprun?0/3 *: OMPI_COMM_WORLD_SIZE: '3', but the manifest's mesh has \
2 ranks (pp 2 x dp 1 x tp 1 x cp 1)"
}

@test "ranks that find the same mistake end alike, and one prints it" {
    rm -rf other
    pprun -q two.json "${options[@]}" --steps 1 --save other >out
    ppsplit -q -p 4 model-llama | ppsched -q -s 1f1b -m 3 >three.json
    for ((i = 0; i < 4; i++)); do
        ranks 4 three.json "${options[@]}" -q --resume other
        all 2 4
        says 'pprun?0/4 *: other/step-00000001: was made with 2 microbatches a '`
            `'step, not 3'
    done
}

@test "a missing or wrong MPI module" {
    PPRUN_MPI=libm.so.6 ranks 2 two.json "${options[@]}"
    all 3 2
    says "pprun?0/2 *: MPI: 'libm.so.6' is not an MPI module of pprun"
    # Rank 0 does not wait inside MPI for the rank that cannot start.
    one=1:PPRUN_MPI=./nosuch.so ranks 2 two.json "${options[@]}"
    all 3 2
    says 'pprun?1/2 *: MPI: ./nosuch.so: cannot open shared object file: *'
}

@test "processes that MPI did not start" {
    port=$((15000 + $$ % 9000))
    for r in 0 1; do
        # MPI makes a directory for each (needs_mpirun).
        mkdir mpi.$r
        OMPI_MCA_orte_tmpdir_base="$PWD/mpi.$r" \
            RANK=$r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            pprun --transport mpi two.json "${options[@]}" >out.$r 2>err.$r \
            </dev/null 3>&- &
    done
    wait
    cat err.0 err.1
    [ "$(cat err.0 err.1)" = "pprun[0/2 $(hostname)]: rank 0 of 2 is rank 0 of \
1 in MPI: start the ranks with this MPI's mpirun, or with the MPI plugin of srun" ]
    run --separate-stderr pprun --transport mpi two.json "${options[@]}"
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun[0/1 $(hostname)]: ranks: '1', but the manifest's mesh \
has 2 ranks (pp 2 x dp 1 x tp 1 x cp 1); start them with mpirun or srun" ]
    # A plan of one rank needs no launcher.
    ppsplit -q -p 1 model-llama | ppsched -q -s 1f1b -m 2 |
        pprun --transport mpi "${options[@]}" >out
    diff <(numbers want) <(numbers out)
}

@test "misuse" {
    run --separate-stderr pprun --transport mpi --device cuda two.json \
        "${options[@]}"
    [ "$status" -eq 2 ]
    [ "${stderr_lines[0]}" = 'pprun: --transport mpi needs --device cpu' ]
    run --separate-stderr pprun --transport mpi --verify two.json --init 1
    [ "$status" -eq 2 ]
    [[ "${stderr_lines[0]}" == *'--verify needs --transport threads, not mpi' ]]
    run --separate-stderr mpi 2 pprun two.json "${options[@]}"
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"OMPI_COMM_WORLD_SIZE '2'; start one process, or give \
--transport mpi"* ]]
}
