#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun_damage - no run starts from a file that is not as it was written.
# PP_FLIPS is the number of bits to flip, one a run.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    echo '{"version": "1.0", "model": {}}' >model-llama/tokenizer.json
    data 1 20 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 4 >plan.json
    pprun -q plan.json --data packed --init 1 --steps 3 --save saved \
        --save-every 1 --shard-size 150kB -o log
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    rm -rf ckpt
    cp -r saved ckpt
}

teardown() {
    [ -z "${pid-}" ] || kill -KILL "$pid" 2>/dev/null || true
}

run_args=(plan.json --data packed)

# flips DIR COMMAND...: flips bits, each in the next file of DIR, and fails unless
# the command exits with status 2 and a message that names the file.
flips() {
    python3 - "${PP_FLIPS:-24}" "$@" <<'EOF'
import os, random, subprocess, sys
count, top, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
files = sorted(os.path.join(at, name)
               for at, _, names in os.walk(top) for name in names)
random.seed(count)
assert subprocess.run(command, capture_output=True).returncode == 0
for i in range(count):
    path = files[i % len(files)]
    byte, bit = random.randrange(os.path.getsize(path)), random.randrange(8)
    with open(path, 'r+b') as f:
        f.seek(byte)
        old = f.read(1)[0]
        f.seek(byte)
        f.write(bytes([old ^ 1 << bit]))
        f.flush()
        run = subprocess.run(command, capture_output=True, text=True)
        f.seek(byte)
        f.write(bytes([old]))
    assert run.returncode == 2 and path in run.stderr and not run.stdout, \
        (path, byte, bit, run)
assert subprocess.run(command, capture_output=True).returncode == 0
EOF
}

# damage FILE...: changes a bit in the middle of each file.
damage() {
    python3 -c '
import os, sys
for path in sys.argv[1:]:
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2)
        byte = f.read(1)[0]
        f.seek(-1, 1)
        f.write(bytes([byte ^ 16]))' "$@"
}

@test "every flipped bit of a checkpoint is found" {
    flips ckpt/step-00000003 pprun "${run_args[@]}" --steps 3 --resume ckpt
}

@test "every flipped bit of packed data is found" {
    cp -r packed damaged
    flips damaged pprun plan.json --data damaged --init 1 --steps 1 -o lines
}

@test "every flipped bit of a list of log-probabilities is found" {
    mkdir lists
    ppscore -q plan.json --data packed --init 1 --top-k 2 --logprobs -o lists/scores
    local column
    for column in logprobs topk; do
        flips lists pppack -q -l 48 -o again \
            --add-column $column=lists/scores data.jsonl
    done
    # A line is summed up to its last member, as xxhsum does it.
    [ "$(sed -n '3s/.*, "xxh3": "\(.*\)"}$/\1/p' lists/scores)" = \
        "$(sed -n '3s/, "xxh3".*//p' lists/scores | tr -d '\n' | xxhsum -H3 |
            grep -o '[0-9a-f]\{16\}')" ]
}

@test "a list that was changed on purpose has no checksums" {
    ppscore -q plan.json --data packed --init 1 --logprobs -o list
    unfit() {
        run --separate-stderr pppack -q -l 48 -o unfit --add-column \
            logprobs=bad data.jsonl
        echo "$stderr"
        [ "$status" -eq 2 ]
        # shellcheck disable=SC2053
        [[ $stderr == $1 ]]
        [ ! -e unfit ]
    }
    local wrong="wrong checksum 'xxh3': the line is damaged; if you changed it,\
 remove this member from all lines"
    sed '2s/-[0-9]/-3/' list >bad
    unfit "pppack: bad: line 2, column *: $wrong"
    jq -c . list >bad
    unfit "pppack: bad: line 1, column *: $wrong"
    sed '3s/, "xxh3".*/}/' list >bad
    unfit "pppack: bad: line 3, column 1: the line has no 'xxh3', but others have"
    sed '1s/, "xxh3".*/}/' list >bad
    unfit "pppack: bad: line 2, column *: the line has an 'xxh3', but others have none"
    sed '2s/, "xxh3"/&: "1"&/' list >bad
    unfit "pppack: bad: line 2, column *: 'xxh3' is there twice"
    sed '$d' list >bad
    unfit "pppack: bad: sequence '19' is missing"
    head -c -9 list >bad
    unfit "pppack: bad: line 20, column *: *"
    jq -c 'del(.xxh3)' list >bad
    pppack -q -l 48 -o changed --add-column logprobs=bad data.jsonl
    pppack -q -l 48 -o same --add-column logprobs=list data.jsonl
    cmp changed/logprobs same/logprobs
}

@test "damage to data is found by every kind of run" {
    pppack -q -l 48 -o other data.jsonl
    damage other/labels
    local arguments
    for arguments in 'pprun --data other --steps 1' \
        'ppscore --data packed --eval other' \
        'pprun --data packed --steps 1 --eval other' \
        'ppscore --data other --logprobs -o lines' \
        'pprun --data other --verify' 'pprun --data other --verify --shrink'; do
        # shellcheck disable=SC2086
        run --separate-stderr $arguments -q plan.json --init 1
        echo "$arguments: $stderr"
        [ "$status" -eq 2 ]
        [ "$stderr" = "${arguments%% *}: other/labels: wrong checksum: the file is damaged" ]
        [ -z "$output" ]
    done
}

# Most of the file is a hole, which is read quickly.
@test "large data are checked beside the steps, and before the end" {
    python3 - >large.safetensors <<'END'
import json, math, struct, sys
tokens, width, at, arrays = 40000, 1024, 0, {}
for name, of, shape in (('input_ids', 'I32', [tokens]),
                        ('lengths', 'I32', [tokens // 40]),
                        ('topk_ids', 'F32', [tokens, width]),
                        ('topk_logits', 'F32', [tokens, width])):
    n = 4 * math.prod(shape)
    arrays[name] = {'dtype': of, 'shape': shape, 'data_offsets': [at, at + n]}
    at += n
head = json.dumps(arrays).encode()
sys.stdout.buffer.write(struct.pack('<Q', len(head)) + head)
sys.stdout.buffer.flush()
lengths = arrays['lengths']['data_offsets'][0]
sys.stdout.buffer.seek(8 + len(head) + lengths)
sys.stdout.buffer.write(struct.pack('<i', 40) * (tokens // 40))
sys.stdout.buffer.truncate(8 + len(head) + at)
END
    pppack -q -l 48 -o large large.safetensors
    run --separate-stderr pprun -q plan.json --data large --init 1 --steps 1
    [ "$status" -eq 0 ]
    damage large/topk_logits
    run --separate-stderr pprun -q plan.json --data large --init 1 --steps 1 \
        --save short
    [ "$status" -eq 2 ]
    [ "$stderr" = 'pprun: large/topk_logits: wrong checksum: the file is damaged' ]
    [ "$(jq .step <<<"$output")" -eq 1 ]
    [ -z "$(compgen -G 'short/step-*')" ] # no weights that the data spoiled
    pprun -q plan.json --data large --init 1 --steps 1000000 >lines 2>err &
    pid=$!
    timeout 60 tail -s 0.05 --pid="$pid" -f /dev/null
    local status=0
    wait "$pid" || status=$?
    [ "$status" -eq 2 ]
    [ "$(cat err)" = 'pprun: large/topk_logits: wrong checksum: the file is damaged' ]
    rm -r large large.safetensors
}

@test "the list of checksums is one that xxhsum reads" {
    cd ckpt/step-00000003
    xxhsum -c checksums.xxh3 >got 2>err
    [ "$(grep -c ': OK$' got)" -eq \
        "$(find . -type f ! -name checksums.xxh3 ! -name got ! -name err | wc -l)" ]
    head -n 1 checksums.xxh3 | grep -qx "# XXH3 of the other lines = $(
        tail -n +2 checksums.xxh3 | xxhsum -H3 | sed 's/.* = //')"
}

@test "a damaged checkpoint is refused, and --fall-back takes one before it" {
    damage ckpt/step-00000003/model-00002-of-00002.safetensors
    run --separate-stderr pprun "${run_args[@]}" --steps 3 --resume ckpt
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "${stderr_lines[1]}" = "pprun: ckpt/step-00000003/model-00002-of-00002.\
safetensors: wrong checksum: the file is damaged; the checkpoint before it is\
 ckpt/step-00000002: give --fall-back to resume from it" ]
    run --separate-stderr pprun -q "${run_args[@]}" --steps 3 --resume ckpt \
        --save ckpt --shard-size 150kB --fall-back
    [ "$status" -eq 0 ]
    [ "$stderr" = "pprun: ckpt/step-00000003/model-00002-of-00002.\
safetensors: wrong checksum: the file is damaged; resuming from\
 ckpt/step-00000002 instead" ]
    diff <(jq .loss <<<"$output") <(tail -n 1 log | jq .loss)
    # The new checkpoint took the place of the damaged one.
    diff -r saved ckpt
    rm ckpt/step-00000003/config.json
    damage ckpt/step-00000002/optimizer/state.safetensors
    pprun -q "${run_args[@]}" --steps 3 --resume ckpt/latest --fall-back \
        >got 2>err
    diff <(jq .loss got) <(tail -n 2 log | jq .loss)
    [ "$(wc -l <err)" -eq 2 ]
    damage ckpt/step-00000001/model.safetensors.index.json
    run --separate-stderr pprun -q "${run_args[@]}" --steps 3 --resume ckpt \
        --fall-back
    [ "$status" -eq 2 ]
    [[ "${stderr_lines[-1]}" == *"step-00000001/model.safetensors.index.json: wrong\
 checksum: the file is damaged; there is no earlier checkpoint" ]]
}

@test "a checkpoint without checksums is not resumed from" {
    rm ckpt/step-00000003/checksums.xxh3
    run --separate-stderr pprun -q "${run_args[@]}" --steps 3 --resume ckpt
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun: ckpt/step-00000003/checksums.xxh3: No such file or\
 directory; the checkpoint before it is ckpt/step-00000002: give --fall-back to\
 resume from it" ]
    # Its weights can be used, as those of other systems.
    ppscore -q "${run_args[@]}" --eval packed --weights ckpt/step-00000003 -o got
}

@test "damaged weights of a checkpoint are refused" {
    local from=ckpt/step-00000003
    ppscore -q "${run_args[@]}" --eval packed --weights $from -o got
    damage $from/optimizer/state.safetensors
    ppscore -q "${run_args[@]}" --eval packed --weights $from -o got
    damage $from/model-00001-of-00002.safetensors
    for weights in $from $from/model.safetensors.index.json; do
        run --separate-stderr ppscore "${run_args[@]}" --eval packed \
            --weights $weights
        [ "$status" -eq 2 ]
        [ "$stderr" = "ppscore: $from/model-00001-of-00002.safetensors: wrong\
 checksum: the file is damaged" ]
    done
}

@test "processes check a checkpoint together" {
    needs_mpirun
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    local ranks=(mpirun --oversubscribe -n 2 pprun -q --transport mpi
        "${run_args[@]}" --steps 3 --resume ckpt)
    for name in config.json checksums.xxh3; do
        damage ckpt/step-00000003/$name
        run --separate-stderr "${ranks[@]}"
        [ "$status" -eq 2 ]
        [ "$(grep -c "^pprun.*step-00000003/$name: wrong checksum" \
            <<<"$stderr")" -eq 1 ]
        run --separate-stderr "${ranks[@]}" --fall-back
        [ "$status" -eq 0 ]
        [ "$(grep -c "^pprun.*resuming from ckpt/step-00000002 instead" \
            <<<"$stderr")" -eq 1 ]
        diff <(jq .loss <<<"$output") <(tail -n 1 log | jq .loss)
        damage ckpt/step-00000003/$name
    done
}
