#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun_stream - weights for a sampler: a directory, a FIFO, a socket, and
# readers that are slow or gone.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model qwen3 true
    data 1 20 >data.jsonl
    pppack -q --tp 2 -l 48 -o packed data.jsonl
    ppsplit -q -p 2 --tp 2 --dp 2 model-qwen3 | ppsched -q -s 1f1b -m 2 >mesh.json
    ppsplit -q -p 1 model-qwen3 | ppsched -q -s 1f1b -m 4 >one.json
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    rm -rf fifo weights saved log
    reader=
}

# A reader whose writer never came would keep the test waiting.
teardown() { [ -z "$reader" ] || kill "$reader" 2>/dev/null || true; }

# go PLAN STEPS ARGS...
go() {
    pprun -q "$1" --data packed --init 1 --steps "$2" --lr 1e-2 -o log "${@:3}"
}

# read_versions N: takes N versions from fifo to v1, v2 and so on.
read_versions() {
    mkfifo fifo
    (for ((i = 1; i <= $1; i++)); do cat fifo >"v$i"; done) 3>&- &
    reader=$!
}

# is_whole VERSION STEP CHECKPOINT: the frame is right and the weights are those
# of the checkpoint.
is_whole() {
    local want
    want=$(stat -c %s "$3/model.safetensors")
    [ "$(head -n 1 "$1")" = "{\"format\": \"pp-weights\", \"version\": 1, \
\"step\": $2, \"bytes\": $want}" ] &&
        tail -n +2 "$1" | cmp - "$3/model.safetensors"
}

@test "a FIFO gets the bytes of the checkpoints of the same steps" {
    read_versions 3
    go mesh.json 3 --save saved --save-every 1 --stream-weights fifo \
        --stream-every 1
    wait "$reader"
    for i in 1 2 3; do is_whole v$i $i saved/step-0000000$i; done
    ! cmp -s v1 v2
}

@test "GPT-2's transposed tensors and another dtype arrive as they are saved" {
    mkdir -p model-gpt2
    echo '{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
        "n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 64,
        "vocab_size": 67, "tie_word_embeddings": true}' >model-gpt2/config.json
    ppsplit -q -p 2 --tp 2 model-gpt2 | ppsched -q -s 1f1b -m 2 >gpt2.json
    read_versions 1
    go gpt2.json 1 --dtype fp64 --save-dtype bf16 --save saved \
        --stream-weights fifo
    wait "$reader"
    is_whole v1 1 saved/latest
}

@test "experts arrive from the ranks that divide them" {
    local experts='{"architectures": ["Qwen2MoeForCausalLM"],
        "model_type": "qwen2_moe", "hidden_size": 32, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 67,
        "num_experts": 6, "num_experts_per_tok": 2, "mlp_only_layers": [1],
        "moe_intermediate_size": 8, "shared_expert_intermediate_size": 12,
        "intermediate_size": 24, "max_position_embeddings": 128}'
    mkdir -p model-experts
    echo "$experts" >model-experts/config.json
    ppsplit -q -p 2 --tp 2 --dp 2 model-experts |
        ppsched -q -s 1f1b -m 2 >experts.json
    read_versions 1
    go experts.json 1 --save saved --stream-weights fifo
    wait "$reader"
    is_whole v1 1 saved/latest
    # Two layers have six experts each.
    [ "$(tail -n +2 v1 | head -c 20000 |
        grep -aoE 'mlp[.]experts[.][0-5][.]up_proj' | wc -l)" -eq 12 ]
}

@test "a directory gets two versions, and the newest is latest" {
    go mesh.json 3 --save saved --stream-weights weights --stream-every 1
    [ "$(cd weights && echo *)" = "latest step-00000002 step-00000003" ]
    [ "$(readlink weights/latest)" = step-00000003 ]
    cmp weights/latest/model.safetensors saved/latest/model.safetensors
    cmp weights/latest/config.json saved/latest/config.json
    [ ! -e weights/latest/optimizer ]
    # A run takes them, and compares their checksums.
    ppscore -q one.json --weights weights/latest --eval packed >a
    ppscore -q one.json --weights saved/latest --eval packed >b
    cmp a b
}

@test "a socket gets a version over each connection" {
    command -v python3 >/dev/null || skip 'needs python3 to listen'
    python3 -c '
import socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("weights")
listener.listen()
for i in (1, 2):
    connection, _ = listener.accept()
    with connection, open(f"v{i}", "wb") as out:
        while data := connection.recv(1 << 16):
            out.write(data)' 3>&- &
    reader=$!
    for ((i = 0; i < 500; i++)); do
        [ -S weights ] && break
        sleep 0.01
    done
    go mesh.json 2 --save saved --save-every 1 --stream-weights weights \
        --stream-every 1
    wait "$reader"
    is_whole v1 1 saved/step-00000001
    is_whole v2 2 saved/step-00000002
}

@test "no reader costs a version and a note, not the run" {
    mkfifo fifo
    run --separate-stderr pprun one.json --data packed --init 1 --steps 2 \
        --stream-weights fifo --stream-every 1 --stream-timeout 0.02
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 2 ]
    [ "$stderr" = "pprun: the weights of step 1 were not taken: fifo: no \
reader came within 0.02 s
pprun: the weights of step 2 were not taken: fifo: no reader came within \
0.02 s" ]
}

# waits PROCESS: passes if no thread of it runs, or could run, for 0.2 s.
waits() {
    for _ in 1 2 3 4; do
        ! grep -q '^State:.[RD]' /proc/"$1"/task/*/status || return 1
        sleep 0.05
    done
}

@test "a run that is asked to stop does not wait for a reader" {
    mkfifo fifo
    exec 9<>fifo
    for reads in yes no; do
        rm -rf saved
        [ $reads = yes ] || exec 9>&-
        pprun one.json --data packed --init 1 --steps 100000 --save saved \
            --stream-weights fifo --stream-every 1 --stream-timeout 100000 \
            >log 2>err 9>&- &
        reader=$!
        until [ -s log ]; do sleep 0.05; done
        until waits $reader; do sleep 0.05; done
        kill -TERM $reader
        local status=0
        timeout 60 tail -s 0.05 --pid=$reader -f /dev/null
        wait $reader || status=$?
        cat err
        [ "$status" -eq 75 ]
        grep -qx "pprun: the weights of step 1 were not taken: fifo: the run \
was asked to stop" err
        [ -f saved/latest/model.safetensors ]
    done
}

@test "a reader that leaves costs a version, and the next one gets a whole" {
    mkfifo fifo
    # The FIFO has room for less than a version.
    (
        head -c 100 fifo >short
        sleep 1 # until the writer has seen that no reader is left
        cat fifo >v2
    ) 3>&- &
    reader=$!
    run --separate-stderr pprun one.json --data packed --init 1 --steps 2 \
        --save saved --stream-weights fifo --stream-every 1
    [ "$status" -eq 0 ]
    [ "$stderr" = "pprun: the weights of step 1 were not taken: fifo: \
the reader left" ]
    wait "$reader"
    is_whole v2 2 saved/latest
}

@test "a slow reader gets a whole version, a stalled one does not" {
    mkfifo fifo
    (while sleep 0.01 && head -c 30000 >part && [ -s part ]; do
        cat part
    done <fifo >v1) 3>&- &
    reader=$!
    go one.json 1 --save saved --stream-weights fifo --stream-timeout 5
    wait "$reader"
    is_whole v1 1 saved/latest
    (
        exec <fifo
        exec sleep 60
    ) 3>&- &
    reader=$!
    run --separate-stderr pprun one.json --data packed --init 1 --steps 1 \
        --stream-weights fifo --stream-timeout 0.1
    [ "$status" -eq 0 ]
    [[ $stderr == *"fifo: the reader took nothing within 0.1 s" ]]
}

@test "SIGUSR2 asks for the weights after the step" {
    pprun -q one.json --data packed --init 1 --steps 1000000 \
        --stream-weights weights -o log 3>&- &
    reader=$!
    for ((i = 0; i < 500; i++)); do
        [ -s log ] && break
        sleep 0.01
    done
    kill -USR2 "$reader"
    for ((i = 0; i < 500; i++)); do
        [ -e weights/latest/model.safetensors ] && break
        sleep 0.01
    done
    [ -e weights/latest/model.safetensors ]
    kill -0 "$reader"
}

@test "a place that cannot be written to is refused before the first step" {
    touch file
    run --separate-stderr pprun one.json --data packed --init 1 --steps 1 \
        --stream-weights file
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun: file: is not a directory" ]
    run --separate-stderr pprun one.json --data packed --init 1 --steps 1 \
        --save saved --stream-weights saved
    [ "$status" -eq 2 ]
    [ "${stderr_lines[0]}" = "pprun: --save and --stream-weights: both write to \
'saved'; give two places" ]
}
