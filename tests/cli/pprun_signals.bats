#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Stop requests, and readers that stall or go away: with --save the checkpoint is
# never lost. PP_STOPS is how often a pipeline, a stalled reader and mpirun are
# stopped by each signal.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() { set_up_run; }

setup() {
    cd "$BATS_FILE_TMPDIR"
    rm -rf ckpt log err fifo
    mkfifo fifo
}

teardown() {
    [ -z "${pid-}" ] || kill -KILL "$pid" 2>/dev/null || true
}

long=(plan.json --data packed --init 1 --steps 1000000)
# A background job of a shell ignores SIGINT.
started=(env --default-signal=INT pprun)

# until_or_end COMMAND...: waits until the command succeeds or $pid has ended.
until_or_end() {
    until "$@" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
}

# catches MASK: process $pid has handlers for these signals, and is no shell any
# more.
catches() {
    local caught
    [ "$(cat /proc/"$pid"/comm)" = pprun ] || return 1
    caught=$(sed -n 's/^SigCgt:\t//p' /proc/"$pid"/status)
    (((0x0$caught & $1) == $1))
}

# is_idle: process $pid is no shell any more, used no CPU time in a tenth of a
# second, and does not wait for a core either.
is_idle() {
    local before
    [ "$(cat /proc/"$pid"/comm)" = pprun ] || return 1
    before=$(cut -d ' ' -f 14,15 /proc/"$pid"/stat)
    sleep 0.1
    [ "$before" = "$(cut -d ' ' -f 14,15 /proc/"$pid"/stat)" ] &&
        ! cut -d ' ' -f 3 /proc/"$pid"/task/*/stat | grep -q '[RD]'
}

# ends STATUS: process $pid ends with this status, and within a minute.
ends() {
    local status=0
    timeout 60 tail -s 0.05 --pid="$pid" -f /dev/null || kill -KILL "$pid"
    wait "$pid" || status=$?
    echo "status $status"
    cat err || true
    [ "$status" -eq "$1" ]
}

# is_saved: the checkpoint is complete, and as new as the last line.
is_saved() {
    local saved last
    saved=$(readlink ckpt/latest)
    last=$(tail -n 1 log | jq .step)
    [ -f ckpt/latest/optimizer/state.safetensors ]
    [ "$((10#${saved#step-}))" -ge "$last" ]
    [ "$(cd ckpt && echo *)" = "latest $saved" ]
}

@test "SIGTERM to a whole pipeline gives a checkpoint and status 75" {
    for ((i = 0; i < ${PP_STOPS:-3}; i++)); do
        rm -rf ckpt log
        tee log <fifo >/dev/null &
        reader=$!
        pprun "${long[@]}" --save ckpt >fifo 2>err &
        pid=$!
        until_or_end test -s log
        kill -TERM $reader $pid
        ends 75
        is_saved
        wait $reader || true
    done
}

@test "SIGTERM stops a run whose reader has stalled" {
    exec 9<>fifo
    dd if=/dev/zero of=fifo bs=4096 count=256 oflag=nonblock status=none || true
    for ((i = 0; i < ${PP_STOPS:-2}; i++)); do
        messages=err
        ((i % 2)) || messages=fifo
        rm -rf ckpt
        pprun "${long[@]}" --save ckpt >fifo 2>>$messages 9>&- &
        pid=$!
        until_or_end catches 0x4000
        until_or_end is_idle
        kill -TERM $pid
        ends 75
        [ -f ckpt/latest/optimizer/state.safetensors ]
    done
    exec 9>&-
}

@test "a signal to mpirun gives a checkpoint" {
    needs_mpirun
    # mpirun passes SIGUSR1 on, but its own status after SIGTERM is 1.
    for ((i = 0; i < 2 * ${PP_STOPS:-1}; i++)); do
        signal=USR1:75
        ((i % 2)) || signal=TERM:1
        rm -rf ckpt log
        mpirun --allow-run-as-root --oversubscribe -n 2 pprun "${long[@]}" \
            --transport mpi --save ckpt >log 2>err &
        pid=$!
        until_or_end test -s log
        kill -"${signal%:*}" $pid
        ends "${signal#*:}"
        is_saved
    done
}

@test "a reader that goes away gives a checkpoint and status 3" {
    for _ in 1 2 3; do
        rm -rf ckpt
        { pprun "${long[@]}" --save ckpt 2>err || echo $? >status; } |
            head -n 1 >log
        [ "$(cat status)" -eq 3 ]
        [ "$(cat err)" = "pprun: writing standard output failed: Broken pipe" ]
        is_saved
    done
    # After the last step too.
    rm -rf ckpt
    run --separate-stderr pprun plan.json --data packed --init 1 --steps 1 \
        --save ckpt -o /dev/full
    [ "$status" -eq 3 ]
    [ "$stderr" = "pprun: writing /dev/full failed: No space left on device" ]
    [ "$(readlink ckpt/latest)" = step-00000001 ]
}

@test "SIGINT acts as SIGTERM with --save, and ends the run at once without" {
    "${started[@]}" "${long[@]}" --save ckpt >log 2>err &
    pid=$!
    until_or_end test -s log
    kill -INT $pid
    ends 75
    is_saved
    rm log
    "${started[@]}" "${long[@]}" >log 2>err &
    pid=$!
    until_or_end test -s log
    kill -INT $pid
    ends 130
    # One that was ignored at the start stays ignored.
    rm -rf ckpt log
    (trap '' INT && exec pprun "${long[@]}" --save ckpt >log 2>err) &
    pid=$!
    until_or_end test -s log
    kill -INT $pid
    before=$(wc -l <log)
    more() { [ "$(wc -l <log)" -gt $((before + 20)) ]; }
    until_or_end more
    kill -TERM $pid
    ends 75
}

@test "only SIGINT after more than a second ends a stopping run at once" {
    # The first step takes minutes.
    "${started[@]}" "${long[@]}" --grad-accum 1000000 --save ckpt >log 2>err &
    pid=$!
    until_or_end catches 0x4200
    for signal in USR1 TERM USR1 TERM INT; do
        kill -$signal $pid
        sleep 0.02
    done
    kill -INT $pid
    sleep 1.1
    kill -0 $pid
    kill -INT $pid
    ends 130
}

# has_lines N: the log has more lines.
has_lines() { [ "$(wc -l <log)" -gt "$1" ]; }

# at_the_trace [SIGNAL]: starts a run, stops it by the signal, and waits until
# it writes its trace to a reader that has stalled.
at_the_trace() {
    exec 8<>fifo
    local steps=(--steps 300)
    [ -z "${1-}" ] || steps=()
    pprun "${long[@]}" "${steps[@]}" --save ckpt --trace fifo \
        --trace-steps 300 >log 2>err 3>&- 8>&- &
    pid=$!
    if [ "${1-}" ]; then
        until_or_end has_lines 310
        kill "-$1" "$pid"
    fi
    until_or_end [ -L ckpt/latest ]
    until_or_end is_idle
    kill -0 "$pid"
}

@test "a signal ends a run that is done but for a stalled reader of a trace" {
    at_the_trace
    kill -TERM "$pid"
    ends $((128 + 15))
    is_saved
}

@test "a stopped run gives a stalled reader of a trace some seconds" {
    at_the_trace TERM
    kill -USR1 "$pid"
    ends 75
    is_saved
    grep -q '^pprun: stopped by a signal; the trace or profile is lost' err
}

@test "a signal ends a run that waits for a reader of a trace" {
    for option in --trace --profile; do
        pprun "${long[@]}" --save ckpt $option fifo >log 2>err 3>&- &
        pid=$!
        until_or_end is_idle
        kill -TERM "$pid"
        ends $((128 + 15))
    done
}
