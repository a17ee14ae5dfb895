#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A rank is killed or stopped at a random instant: every other rank names it and
# ends with 3. KILLS and SEED may be set.

bats_require_minimum_version 1.5.0
load ../parity/helpers
load processes_helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    set_up_processes
    local experts="$SRCDIR/tests/golden/mixtral/model"
    ppsplit -q -p 4 "$PWD/model" | ppsched -q -s 1f1b -m 4 >pp.json
    ppsplit -q -p 2 --dp 2 "$PWD/model" | ppsched -q -s 1f1b -m 2 >dp.json
    ppsplit -q -p 2 --dp 2 --zero 3 "$PWD/model" |
        ppsched -q -s 1f1b -m 2 >zero.json
    ppsplit -q -p 2 --dp 2 --ep 2 "$experts" |
        ppsched -q -s 1f1b -m 2 >ep.json
    export KILLS=${KILLS-12} SEED=${SEED-$RANDOM}
    echo "# seed $SEED" >&3
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# hurt PLAN VICTIM SIGNAL SECONDS: sends a rank of a run a signal so long after
# the first step. Prints what is wrong with the other ranks, and at last the time
# that they took to end.
hurt() {
    local r rc
    launch 4 "../$1.json" --data ../packed --init 1 --steps 1000000 --lr 1e-3 \
        --stall-timeout 4
    until [ -s out.0 ] || ! kill -0 "${pids[0]}"; do sleep 0.05; done
    sleep "$4"
    kill "-$3" "${pids[$2]}"
    SECONDS=0
    for r in 0 1 2 3; do
        [ "$r" -ne "$2" ] || continue
        rc=0
        wait "${pids[r]}" || rc=$?
        [ $rc -eq 3 ] || echo "rank $r ended with $rc: $(cat err.$r)"
        [[ "$(head -n 1 err.$r)" == *": rank $2 on $(hostname) "* ||
            "$(cat err.$r)" == *": rank $2 on $(hostname) has not answered"* ]] ||
            echo "rank $r says: $(cat err.$r)"
    done
    echo "$SECONDS s"
    [ "$3" = KILL ] || kill -KILL "${pids[$2]}"
    wait "${pids[$2]}" || true
}

@test "a rank that is killed or stopped ends all others, which name it" {
    local n plans=(pp dp ep zero) signals=(KILL STOP)
    RANDOM=$SEED
    for ((n = 0; n < KILLS; n++)); do
        mkdir -p "job.$n"
        printf '%d %s %d %s 0.%03d\n' $n "${plans[n % 4]}" $((RANDOM % 4)) \
            "${signals[RANDOM % 2]}" $((RANDOM % 1000))
    done >list
    while read -r n arguments; do
        # shellcheck disable=SC2086 # a list
        (cd "job.$n" && hurt $arguments >ends) 3>&- &
        [ $(((n + 1) % 4)) -ne 0 ] || wait
    done <list
    wait
    while read -r n arguments; do
        echo "$arguments: $(cat "job.$n/ends")"
    done <list | tee ends
    [ "$(grep -c ': [0-9]* s$' ends)" -eq "$KILLS" ]
    [ "$(sed 's/.*: \(.*\) s$/\1/' ends | sort -n | tail -n 1)" -lt 60 ]
}

@test "ranks end by force if NCCL does not let them end" {
    mkdir -p forced
    cd forced
    PP_EMULATED_ABORT=never launch 4 ../pp.json --data ../packed --init 1 \
        --steps 1000000
    until [ -s out.0 ]; do sleep 0.05; done
    kill -KILL "${pids[2]}"
    collect
    [ "$statuses" = '3 3 137 3 ' ]
    lost="rank 2 on $(hostname) is lost: its process has ended"
    for r in 0 1 3; do
        name="pprun[$r/4 $(hostname)]"
        [ "$(cat err.$r)" = "$name: $lost
$name: ended by force, because something did not end within 20 s after: $lost" ]
    done
}
