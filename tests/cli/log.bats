#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# log - tests scripts/log with TensorBoard's own reader.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
    PATH=$SRCDIR/scripts:$PATH
}

need_tensorboard() {
    python3 -c 'import tensorboard' 2>/dev/null ||
        skip "Python has no tensorboard"
}

teardown() {
    [ -z "${pid-}" ] || kill -KILL "$pid" 2>/dev/null || true
}

# scalars DIR: name, step and value of everything that TensorBoard finds.
scalars() {
    python3 - "$1" <<'END'
import sys
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator)
events = EventAccumulator(sys.argv[1])
events.Reload()
for name in sorted(events.Tags()["scalars"]):
    print(name, *(f"{e.step}:{e.value:g}" for e in events.Scalars(name)))
END
}

# wait_for LINE: until TensorBoard finds it.
wait_for() {
    local i
    for ((i = 0; i < 100; i++)); do
        scalars runs 2>/dev/null | grep -qxF "$1" && return
        kill -0 "$pid" || return
        sleep 0.1
    done
    return 1
}

first='{"step": 0, "val_loss": 4}
{"step": 1, "loss": 2.5, "grad_norms": {"vision": 1, "text": 2}, "tokens": 7}
{"row": 0, "sequences": [1]}
{"step": 2, "loss": null, "val_loss": 3}'

@test "a pipe: every number at its step, and none twice" {
    need_tensorboard
    log --to tensorboard runs <<<"$first"
    scalars runs >found
    diff - found <<'END'
grad_norms/text 1:2
grad_norms/vision 1:1
loss 1:2.5
tokens 1:7
val_loss 0:4 2:3
END
    # A killed run: its last line has no end.
    printf '%s\n{"step": 3, "loss": 2.25}\n{"step": 4, "lo' "$first" >lines
    run --separate-stderr log --to tensorboard runs lines
    [ "$status" -eq 0 ]
    [ "$stderr" = 'log: runs: had 3 of the steps already' ]
    scalars runs >found
    [ "$(wc -l <found)" -eq 5 ]
    grep -qx 'loss 1:2.5 3:2.25' found
    # Without a new step there is no new file.
    [ "$(find runs -type f | wc -l)" -eq 2 ]
    log --to tensorboard runs lines 2>note
    [ "$(find runs -type f | wc -l)" -eq 2 ]
}

@test "a file that grows, and that a resumed run cuts" {
    need_tensorboard
    printf '%s\n' '{"step": 1, "loss": 5}' '{"step": 2, "loss": 4}' >lines
    log --to tensorboard runs --follow lines &
    pid=$!
    wait_for 'loss 1:5 2:4'
    # Steps 2 and 3 come after a cut. Step 2 has been seen.
    printf '%s\n' '{"step": 1, "loss": 5}' '{"step": 2, "loss": 4.0}' \
        '{"step": 3, "loss": 3}' >lines
    wait_for 'loss 1:5 2:4 3:3'
    printf '{"step": 4, "loss":' >>lines
    sleep 0.7
    echo ' 2}' >>lines
    wait_for 'loss 1:5 2:4 3:3 4:2'
    kill -TERM "$pid"
    wait "$pid"
    pid=
}

@test "mistakes are named" {
    need_tensorboard
    # refused MESSAGE ARGUMENT...
    refused() {
        run -2 --separate-stderr log "${@:2}" <<<"$first"
        [ "$stderr" = "log: $1" ]
    }
    refused "--to: 'x' must be tensorboard" --to x runs
    refused '--follow needs a FILE: a pipe is read to its end' \
        --to tensorboard runs --follow
    refused 'nosuch: No such file or directory' --to tensorboard runs nosuch
    printf '%s\nstep 3\n' "$first" >lines
    refused 'lines:5: not a JSON object' --to tensorboard runs lines
    # The steps before it are kept.
    [ "$(scalars runs | wc -l)" -eq 5 ]
    touch file
    run -3 --separate-stderr log --to tensorboard file <<<"$first"
    [[ $stderr == 'log: file: '* ]]
}

@test "the package is named if it is missing" {
    echo 'raise ImportError' >tensorboard.py
    PYTHONPATH=. run -3 --separate-stderr log --to tensorboard runs <<<"$first"
    [ "$stderr" = \
        "log: Python has no 'tensorboard': try 'pip install tensorboard'" ]
    [ ! -e runs ]
}
