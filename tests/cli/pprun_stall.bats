#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Processes that stop for a while, under a real launcher, and a stop request to
# a rank while rank 0 waits for its reader.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    set_up_run
    # Open MPI may kill a rank before it has printed, so each waits for both.
    cat >rank <<'END'
#!/bin/bash
r=$OMPI_COMM_WORLD_RANK
pprun plan.json --transport mpi --data packed --init 1 --steps 1000000 "$@" \
    2>err.$r <&0 &
echo $! >pid.$r
wait $!
echo $? >status.$r
until [ -s status.0 ] && [ -s status.1 ]; do sleep 0.05; done
exit "$(cat status.$r)"
END
    chmod +x rank
}

setup() {
    needs_mpirun
    cd "$BATS_FILE_TMPDIR"
    rm -rf ckpt err.* pid.* status.* out fifo
}

teardown() {
    for f in pid.*; do
        [ ! -s "$f" ] || kill -KILL "$(cat "$f")" 2>/dev/null || true
    done
}

# start ARGS...: starts two ranks. $pid is mpirun.
start() {
    mpirun --allow-run-as-root --oversubscribe -n 2 \
        --mca orte_abort_on_non_zero_status 0 ./rank "$@" >out 2>mpirun.err &
    pid=$!
}

# until_or_end COMMAND...: waits until the command succeeds or $pid has ended.
until_or_end() {
    until "$@" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
}

# is_ready RANK: the rank has handlers for SIGUSR1 and SIGTERM.
is_ready() {
    local caught
    [ "$(cat "/proc/$(cat "pid.$1")/comm")" = pprun ] || return 1
    caught=$(sed -n 's/^SigCgt:\t//p' "/proc/$(cat "pid.$1")/status")
    (((0x0$caught & 0x4200) == 0x4200))
}

# ends STATUS...: mpirun ends, and the ranks end with these statuses.
ends() {
    wait $pid || true
    cat err.? mpirun.err
    [ "$(cat status.? | tr '\n' ' ')" = "$* " ]
}

# line N: the Nth line of rank 0, without its prefix. MPI may print lines of its
# own.
line() { grep '^pprun' err.0 | sed -n "$1s/^pprun.0\/2 $(hostname).: //p"; }

@test "a rank that is stopped is named, and waited for" {
    start --save ckpt --stall-timeout 2 --stall-wait
    until_or_end test -s out
    kill -STOP "$(cat pid.1)"
    until_or_end grep -qs meanwhile err.0
    cat err.?
    [[ "$(line 1)" == "rank 1 on $(hostname) has not answered for "*\
" s; it was at "* ]]
    [[ "$(line 2)" == 'meanwhile rank 0 is at '* ]]
    kill -CONT "$(cat pid.1)"
    until_or_end grep -qs 'answers again' err.0
    [[ "$(line 3)" == "rank 1 on $(hostname) answers again, after "*' s' ]]
    kill -TERM "$(cat pid.1)"
    ends 75 75
    [[ "$(line 4)" == 'stopped by SIGTERM '* ]]
    [ -z "$(line 5)" ]
    ! grep '^pprun' err.1
}

@test "a rank that is killed with beats unread has ended" {
    start --stall-timeout 2 --stall-wait
    until_or_end test -s out
    kill -STOP "$(cat pid.1)"
    until_or_end grep -qs meanwhile err.0
    kill -KILL "$(cat pid.1)"
    ends 3 137
    [ "$(line 3)" = "rank 1 on $(hostname) is lost: its process has ended" ]
}

@test "without --stall-wait it ends the run" {
    start --stall-timeout 2
    until_or_end test -s out
    kill -STOP "$(cat pid.1)"
    until_or_end test -s status.0
    [ "$(cat status.0)" -eq 3 ]
    [[ "$(line 2)" == "rank 1 on $(hostname) has not answered for "* ]]
    # It learns that when it goes on.
    kill -CONT "$(cat pid.1)"
    ends 3 3
    [[ "$(grep pprun err.1)" == "pprun[1/2 $(hostname)]: "*"rank 1 on \
$(hostname) has not answered for "* ]]
}

@test "a signal to one rank stops rank 0, whose reader has stalled" {
    mkfifo fifo
    exec 9<>fifo
    dd if=/dev/zero of=fifo bs=4096 count=256 oflag=nonblock status=none || true
    start --save ckpt -o fifo 9>&-
    until_or_end test -s pid.1
    until_or_end is_ready 1
    sleep 0.5 # most likely in the first line
    kill -USR1 "$(cat pid.1)"
    ends 75 75
    [ -f ckpt/latest/optimizer/state.safetensors ]
    exec 9>&-
}

@test "misuse of the options" {
    run --separate-stderr pprun plan.json --data packed --init 1 --steps 1 \
        --stall-wait
    [ "$status" -eq 2 ]
    [[ "${stderr_lines[0]}" == 'pprun: --stall-wait needs --transport mpi'* ]]
    run --separate-stderr pprun plan.json --data packed --init 1 --steps 1 \
        --transport mpi --stall-timeout -1
    [ "$status" -eq 2 ]
    [[ "${stderr_lines[0]}" == "pprun: --stall-timeout: '-1' "* ]]
}
