#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# reroute - a run that goes on without ranks that are lost, from the newest
# checkpoint of the whole mesh. In fp64 it has the weights of the whole mesh but
# for rounding, since the gradients of a lane are added in another order.

bats_require_minimum_version 1.5.0
load helpers

options=(--data packed --lr 1e-2 --dtype fp64)

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    model llama false
    data 1 200 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 2 --dp 4 model-llama | ppsched -q -s 1f1b -m 4 >whole.json
    pprun -q whole.json "${options[@]}" --init 5 --steps 6 --save whole \
        --save-every 3 -o whole.log
}

setup() { cd "$BATS_FILE_TMPDIR" || return; }

# without RANKS: the plan without these ranks.
without() {
    ppsched -q --without-rank "$1" --time 0.1 whole.json -o without.json
}

# is_near DIR: the last checkpoint has the weights of the whole mesh.
is_near() {
    "$BUILDDIR/tests/golden/compare_tensors" 1e-12 1e-12 "$1/latest" \
        whole/latest
}

# close LOG: step lines 4 to 6 are those of the whole mesh.
close() {
    jq -se '.[0] as $want | .[1] | length == 3 and
        ([range(3) as $i | .[$i].step == $want[$i].step and
        (.[$i].loss - $want[$i].loss | fabs) < 1e-12 and
        (.[$i].grad_norm - $want[$i].grad_norm | fabs) < 1e-12 and
        .[$i].tokens == $want[$i].tokens] | all)' \
        <(tail -n 3 whole.log | jq -s .) <(jq -s . "$1")
}

@test "weights are those of the whole mesh, whatever is lost" {
    for ranks in 5 1,3,4,5,6; do
        without "$ranks"
        rm -rf part
        cp -r whole part
        rm -r part/step-00000006
        ln -sfn step-00000003 part/latest
        pprun -q without.json "${options[@]}" --resume part --save part \
            --steps 6 -o "$ranks.log"
        close "$ranks.log"
        is_near part
    done
}

@test "every gradient is that of one rank" {
    without 1,6
    pprun --verify --dtype fp64 --init 1 --data packed without.json
}

@test "a rank allocates what the plan says, and holds its weights once" {
    without 5
    for plan in without whole; do
        pprun -q $plan.json --data packed --init 1 --print-memory --steps 1 \
            >$plan.memory
    done
    ppsched --stats --data packed without.json | jq -c .rank_bytes |
        diff - <(jq -c '[.[].total]' without.memory)
    # Rank 1 is on three ways, rank 4 does work of two lanes.
    jq -e --slurpfile whole whole.memory '.[1].weights == $whole[0][0].weights
        and .[4].weights == $whole[0][1].weights' without.memory
}

@test "a tied embedding is refused" {
    model qwen2-tied true
    for dp in 2 4; do
        ppsplit -q -p 2 --dp $dp model-qwen2-tied | ppsched -q -s 1f1b -m 4 |
            ppsched -q --without-rank 1 --time 0.1 -o t.json
        run -2 --separate-stderr pprun t.json --data packed --init 1 --steps 1
        [[ "$stderr" == *"/stages: $((2 * dp - 2)) copies of the weights, which pprun does not run with a tied embedding" ]]
    done
}

@test "a rank is killed, and the others go on without it" {
    needs_mpirun
    rm -rf ckpt pid.* err.* status.*
    # mpirun ends all ranks when one ends without MPI_Finalize, so each shell
    # waits for the statuses of all.
    cat >rank <<'END'
#!/bin/bash
r=$OMPI_COMM_WORLD_RANK
pprun --transport mpi "$@" 2>err.$r <&0 &
echo $! >pid.$r
wait $!
echo $? >status.$r.tmp
mv status.$r.tmp status.$r
until [ "$(find . -maxdepth 1 -name 'status.?' | wc -l)" -eq 8 ]; do
    sleep 0.05
done
END
    chmod +x rank
    mpirun --allow-run-as-root --oversubscribe -n 8 \
        --mca orte_abort_on_non_zero_status 0 ./rank whole.json \
        "${options[@]}" --init 5 --steps 100000 --save ckpt --save-every 1 \
        >out 2>mpirun.err &
    until [ -e ckpt/step-00000001 ] || ! kill -0 $!; do sleep 0.02; done
    kill -9 "$(cat pid.5)"
    wait $! || true
    [ "$(cat status.? | xargs)" = '3 3 3 3 3 137 3 3' ]
    grep -q 'rank 5 on .* is lost' err.0
    # The next start: seven ranks, from what the eight had saved.
    from=$(readlink ckpt/latest)
    steps=$((10#${from#step-} + 3))
    without 5
    mpirun --allow-run-as-root --oversubscribe -n 7 pprun --transport mpi -q \
        without.json "${options[@]}" --resume ckpt --save ckpt --steps $steps \
        >seven.log
    [ "$(wc -l <seven.log)" -eq 3 ]
    pprun -q whole.json "${options[@]}" --init 5 --steps $steps --save eight \
        -o eight.log
    "$BUILDDIR/tests/golden/compare_tensors" 1e-12 1e-12 ckpt/latest eight/latest
}
