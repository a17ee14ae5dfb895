#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# scripts/node-check on emulated GPUs, without faults and with injected ones. GPUS
# may be set.
bats_require_minimum_version 1.5.0

setup_file() {
    export CHECK="$SRCDIR/scripts/node-check" GPUS=${GPUS-2}
    export WHOLE="$BATS_FILE_TMPDIR/bundle"
    "$SRCDIR/scripts/gpu-check" --emulated --build "$BUILDDIR" \
        --bundle "$WHOLE" >&2
}

setup() { cd "$BATS_TEST_TMPDIR"; }

# check ARGS...: runs node-check so that it finds programs only in its bundle.
check() {
    run --separate-stderr env PATH=/usr/bin:/bin "$@"
    echo "$output"
    echo "$stderr"
}

says() { grep -qxE -- "$1" <<<"$output"; }

# faulty SCRIPT: makes a bundle whose pprun is this script; $real is pprun.
faulty() {
    cp -rs "$WHOLE" faulty
    mv faulty/pprun faulty/real
    printf '#!/bin/bash\nreal=${0%%/*}/real\n%s\n' "$1" >faulty/pprun
    chmod +x faulty/pprun
}

@test "a bundle checks and measures all of its GPUs" {
    check "$WHOLE/node-check" --emulated "$GPUS" --json all.json --seconds 3000
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    says "== machine: 1 of 1 passed, .*"
    says 'threads +sum GB/s [0-9.]+, slowest GB/s [0-9.]+, .*'
    says 'NCCL +sum GB/s [0-9.]+, nccl-sum GB/s [0-9.]+, .*'
    says '== meshes: ([0-9]+) of \1 passed, .*'
    says '== delays: 4 of 4 passed, .*'
    says '== losses: 4 of 4 passed, .*'
    says 'freeze rank 1 +s [0-9.]+'
    says "pp $GPUS +tokens/s [0-9]+, of linear [0-9.]+"
    says 'predicted from a profile +predicted / measured [0-9.]+'
    says "== [0-9]+ passed, 0 failed on $GPUS emulated GPUs of 1 machine"
    jq -e --argjson n "$GPUS" '.emulated and (.tests | length > 20 and
        all(.ok) and (map(select(.part == "links"))[0].figures.pairs |
            length) == $n * ($n - 1))' all.json
}

@test "ranks of other machines run, end and are named" {
    # Programs of such a machine are out of the reach of the caller's signals.
    printf '#!/bin/bash\nexec setsid -w bash -c "$2"\n' >reach
    chmod +x reach
    printf '127.0.0.1 1 # rank 0\n\n127.0.0.2 1\n' >hosts
    check "$CHECK" --from "$WHOLE" --emulated 2 --hosts hosts --ssh "$PWD/reach" \
        machine links losses
    [ "$status" -eq 0 ]
    says '== machine: 2 of 2 passed, .*'
    says '== links: 1 of 1 passed, .*'
    says '== losses: 4 of 4 passed, .*'
    says '== 7 passed, 0 failed on 2 emulated GPUs of 2 machines'
    run ! compgen -G 'node-check-*'
}

@test "other bits, and a rank that ends wrongly, are reported" {
    # Every job over NCCL has other weights.
    # shellcheck disable=SC2016 # for the program
    faulty '[ -z "$RANK" ] || set -- "$@" --init "$MASTER_PORT"
"$real" "$@"
status=$?
[ $status -ne 3 ] || status=1
exit $status'
    check "$CHECK" --from faulty --emulated 2 delays losses
    [ "$status" -eq 1 ]
    says 'dp, repeat 1 +FAILED: other losses than the first run'
    says 'kill rank 1 +FAILED: rank 0 ended with 1'
    says '== delays: 2 of 4 passed, .*'
    says '== losses: 0 of 4 passed, .*'
}

@test "a test without time is not begun" {
    check "$CHECK" --from "$WHOLE" --emulated 2 --seconds 0 links
    [ "$status" -eq 1 ]
    says 'NCCL +FAILED: no time was left'
}

@test "a signal ends the programs and prints the table" {
    "$CHECK" --from "$WHOLE" --emulated 2 --json "$PWD/part.json" losses \
        >out 2>err 3>&- &
    until pgrep -f "$WHOLE/pprun|pprun -q .* lost.json" >/dev/null; do
        sleep 0.1
    done
    kill -TERM $!
    status=0
    wait $! || status=$?
    output=$(<out)
    echo "$output"
    [ "$status" -eq 1 ]
    says '== stopped: the tests behind were not begun'
    [ ! -s err ]
    run ! pgrep -f 'pprun -q .* lost.json'
    jq -e .emulated part.json
}

@test "misuse gives status 2, and too few GPUs 3" {
    echo 'one' >hosts
    for args in '--nonsense' '--from nowhere --emulated 2' 'nothing' \
        '--emulated 2' '--hosts nosuch' '--hosts hosts' '--seconds ten' \
        '--emulated 2 --build . --json no/such' '--dir nosuch'; do
        # shellcheck disable=SC2086 # words
        check "$CHECK" $args
        [ "$status" -eq 2 ]
        [ "$(wc -l <<<"$stderr")" -eq 1 ]
        [ -z "$output" ]
    done
    CUDA_VISIBLE_DEVICES=0 check "$CHECK"
    [ "$status" -eq 3 ]
    [ "$stderr" = \
        'node-check: 1 GPUs here, and 2 are needed; see gpu-check for one' ]
}
