#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppscore at the command line: its tasks, its output, and its errors. The values
# are tested in tests/parity.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    set_up_run
    pprun plan.json --data packed --init 1 --steps 2 --save trained \
        --save-every 1 -q -o log
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# fails STATUS PATTERN COMMAND...: one line on stderr, nothing on stdout.
fails() {
    local want=$1 pattern=$2
    shift 2
    run --separate-stderr "$@"
    echo "status $status, stderr: $stderr"
    [ "$status" -eq "$want" ]
    [ -z "$output" ]
    # shellcheck disable=SC2053
    [[ "${stderr_lines[-1]}" == $pattern ]]
}

# refused MESSAGE OPTION...: a usage error.
refused() {
    run -2 --separate-stderr ppscore plan.json --data packed --init 1 "${@:2}"
    [ "${stderr_lines[0]}" = "ppscore: $1" ]
    [ "${stderr_lines[1]}" = "try 'ppscore --help'" ]
}

@test "a task is needed, and one only" {
    refused 'nothing to do: give --logprobs, --top-k, --entropy, --generate or --eval'
    refused '--logprobs and --eval exclude each other' --logprobs --eval packed
    refused '--top-k and --generate exclude each other' --top-k 2 --generate 2
    refused '--sample needs --generate' --logprobs --sample 1
    refused '--objective needs --eval' --logprobs --objective dpo
    refused "--record-routing needs --logprobs, --top-k or --entropy" \
        --eval packed --record-routing x
    refused "unknown option '--steps'" --steps 3
}

@test "each kind of score is a task, and the lines have them all" {
    ppscore -q plan.json --data packed --init 1 --logprobs >plain
    for how in '--top-k 3' --entropy; do
        # shellcheck disable=SC2086
        ppscore -q plan.json --data packed --init 1 $how -o more
        jq -c 'del(.topk_ids, .topk_logits, .entropy, .xxh3)' more |
            cmp - <(jq -c 'del(.xxh3)' plain)
    done
    jq -se 'all(.[]; has("entropy") and (has("topk_ids") | not))' more
}

@test "units that divide a head give no more than log-probabilities" {
    ppsplit -q -p 2 --head-stages 2 "$SRCDIR/tests/golden/llama/model" |
        ppsched -q -s 1f1b -m 4 >divided.json
    for how in '--top-k 2' --entropy '--generate 2'; do
        # shellcheck disable=SC2086
        fails 2 "ppscore: divided.json: /model/units: several units divide the \
head of 'LlamaForCausalLM'; plan without --head-stages for ${how% *}" \
            ppscore -q divided.json --data packed --init 1 $how
    done
}

@test "weights are those of a checkpoint, or of the one before it" {
    local last=trained/step-00000002/model.safetensors
    ppscore -q plan.json --data packed --weights $last --logprobs -o want
    ppscore -q plan.json --data packed --resume trained --logprobs -o got
    cmp want got
    cp -r trained damaged
    printf '\1' | dd of=damaged/${last#*/} bs=1 seek=3000 conv=notrunc status=none
    fails 2 "ppscore: damaged/*: wrong checksum: the file is damaged; the *" \
        ppscore -q plan.json --data packed --resume damaged --logprobs
    ppscore -q plan.json --data packed --resume damaged --fall-back --logprobs \
        -o fallen 2>/dev/null
    ppscore -q plan.json --data packed --weights trained/step-00000001 \
        --logprobs | cmp - fallen
    run ! cmp want fallen
}

@test "a plan made for other data scores and continues any data" {
    ppsched -q -s 1f1b -m 4 --data packed plan.json >planned.json
    head -n 3 data.jsonl | pppack -q -l 48 -o other
    ppscore -q --data other --init 1 --logprobs planned.json >got
    ppscore -q --data other --init 1 --logprobs plan.json >want
    cmp got want
    ppscore -q --data other --init 1 --generate 2 planned.json >got
    [ "$(wc -l <got)" -eq 3 ]
    run --separate-stderr pprun --data other --init 1 --steps 1 planned.json
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun: other: is not the data that the manifest was made \
for; run ppsched --data again" ]
}

@test "an evaluation is a line, and trains nothing" {
    ppscore -q plan.json --eval packed --weights trained/latest >line
    jq -e 'keys == ["val_loss"] and .val_loss > 0' line
    [ "$(ls trained)" = "$(printf 'latest\nstep-00000001\nstep-00000002')" ]
}

@test "the file of log-probabilities appears when it is complete" {
    fails 3 "ppscore: nosuch/lines: No such file or directory" \
        ppscore plan.json --data packed --init 1 --logprobs -o nosuch/lines
    ppscore plan.json --data packed --init 1 --logprobs -o lines
    [ "$(jq -s length lines)" -eq "$(wc -l <data.jsonl)" ]
    # Scores take 8 bytes in a file, before they are lines.
    local kb error
    kb=$(($(wc -c <lines) / 1024 - 1))
    echo old >lines
    for error in "1 ppscore: .: no room for * bytes of scores: File too large" \
        "$kb ppscore: writing lines failed: File too large"; do
        run --separate-stderr bash -c "ulimit -f ${error%% *}
            ppscore plan.json --data packed --init 1 --logprobs -o lines"
        [ "$status" -eq 3 ]
        # shellcheck disable=SC2053
        [[ $stderr == ${error#* } ]]
        [ "$(cat lines)" = old ]
        [ -z "$(find . -name "lines*.tmp")" ]
    done
}

# set_start VALUE: a copy of the packed directory whose first start is VALUE. The
# checksum is right.
set_start() {
    rm -rf lying
    cp -r packed lying
    python3 - "$1" <<'EOF'
import struct, subprocess, sys
with open('lying/index', 'r+b') as f:
    table = f.read()
    entry = table.index(b'start' + bytes(27))
    f.seek(struct.unpack_from('<Q', table, entry + 48)[0])
    f.write(struct.pack('<I', int(sys.argv[1])))
    f.seek(24)
    line = subprocess.run(['xxhsum', '-H3'], input=f.read(), check=True,
                          capture_output=True).stdout
    f.seek(16)
    f.write(struct.pack('<Q', int(line.split()[-1], 16)))
EOF
}

@test "a start outside its document is refused" {
    set_start 4294967295
    fails 2 "ppscore: lying/index: sequence 0: start '4294967295' must be *" \
        ppscore plan.json --data lying --init 1 --logprobs
    set_start 2147483647
    fails 2 "ppscore: lying/index: sequence 0: start '2147483647' must be *" \
        ppscore plan.json --data lying --init 1 --logprobs
    set_start 1
    fails 2 "ppscore: lying/index: input '*': tokens before position 1 are missing" \
        ppscore plan.json --data lying --init 1 --logprobs
}
