#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun_log - the file of step lines grows while the run goes on, and continues
# with a resumed run; a stop by a signal is reported; a terminal has the progress.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() { set_up_run; }

setup() {
    cd "$BATS_FILE_TMPDIR"
    rm -rf ckpt log err
}

teardown() {
    [ -z "${pid-}" ] || kill -KILL "$pid" 2>/dev/null || true
}

loud=(plan.json --data packed --init 1)
run=("${loud[@]}" -q)

# steps: the steps of the log, in order.
steps() { jq .step log | paste -sd ' '; }

# starts OPTION...: trains in the background until the log has a line.
starts() {
    pprun "${loud[@]}" --steps 1000000 -o log "$@" 2>err &
    pid=$!
    until [ -s log ] || ! kill -0 $pid; do sleep 0.02; done
}

@test "a resumed run continues its file" {
    pprun "${run[@]}" --steps 2 --save ckpt -o log
    pprun "${run[@]}" --steps 3 --resume ckpt -o log
    [ "$(steps)" = '1 2 3' ]
    # Step 3 was not saved: its line is removed, and so is a broken one.
    printf '{"step": 4, "lo' >>log
    pprun "${run[@]}" --steps 4 --resume ckpt --save ckpt -o log
    [ "$(steps)" = '1 2 3 4' ]
    pprun "${run[@]}" --steps 4 >want
    diff <(numbers log) <(numbers want)
    # A run that starts anew starts its file anew.
    pprun "${run[@]}" --steps 1 -o log
    [ "$(steps)" = 1 ]
}

@test "a run that cannot start changes nothing" {
    pprun "${run[@]}" --steps 2 --save ckpt -o log
    run --separate-stderr pprun "${run[@]}" --steps 1 --save ckpt -o log
    [ "$status" -eq 2 ]
    [ "$(steps)" = '1 2' ]
    run --separate-stderr pprun "${run[@]}" --steps 1 --data nosuch -o new
    [ "$status" -eq 2 ]
    [ ! -e new ]
    printf 'notes\n' >notes
    run --separate-stderr pprun "${run[@]}" --steps 3 --resume ckpt -o notes
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun: notes: has other lines than those of steps; give \
--output another name" ]
    [ "$(cat notes)" = notes ]
}

@test "a killed run leaves its lines, and a live one keeps its file" {
    starts
    run --separate-stderr pprun "${run[@]}" --steps 1 -o log
    [ "$status" -eq 3 ]
    [ "$stderr" = 'pprun: log: another run is writing its lines here' ]
    kill -KILL $pid
    wait $pid || true
    [ "$(head -n 1 log | jq .step)" -eq 1 ]
    [ -z "$(find . -name '*.tmp')" ]
}

@test "a stop by a signal says where the run continues" {
    local signal last
    for signal in TERM USR1; do
        rm -rf ckpt log
        starts --save ckpt
        kill -$signal $pid
        wait $pid || [ $? -eq 75 ]
        last=$(tail -n 1 log | jq .step)
        [ "$(cat err)" = "pprun: stopped by SIG$signal after step $last; \
checkpoint ckpt/step-$(printf %08d "$last")" ]
    done
    rm log
    starts
    kill -TERM $pid
    wait $pid || [ $? -eq 143 ]
    [ "$(cat err)" = \
        'pprun: stopped by a signal; without --save nothing is kept' ]
}

# progress COLUMNS STEPS: prints the progress lines of a terminal of that width.
progress() {
    script -qec "stty cols $1; LC_ALL=C pprun plan.json --data packed --init 1 \
        --steps $2 -o log" /dev/null | sed 's/\x1b\[K//g' | tr '\r' '\n'
}

@test "progress stays on one line of the terminal" {
    command -v script >/dev/null || skip 'script is missing'
    [[ "$(progress 80 1)" == *"the first step ..."* ]]
    progress 10 1 >lines
    grep -qx 'the first' lines
    # Some lines after a tenth of a second, each with its bar.
    progress 60 300 >lines
    grep -Eq '^\[#*\.*\] [0-9]+/300  [0-9]:[0-9]{2} left  loss [0-9.]+' lines
    awk 'length > 59 { exit 1 }' lines
    [ "$(wc -l <log)" -eq 300 ]
    # Lines of JSON would tear the progress on one terminal.
    script -qec "stty cols 120; LC_ALL=C.UTF-8 pprun plan.json --data packed \
        --init 1 --steps 20 --lr 1e-2" /dev/null | tr '\r' '\n' >lines
    run ! grep '{' lines
    grep -qE '^\S*\[#{10}\] 20/20  0:.. in all  loss [0-9.]+  norm [0-9.]+  [0-9]+ tok/s  [▆▇█][▁▂▃▄▅▆▇█]+[▁▂] ' lines
}
