#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun at the command line: its output, and its errors.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    set_up_run
    pprun plan.json --data packed --init 1 --steps 1 --save trained -q -o log
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

@test "the pipeline of the manual runs" {
    ppsplit -p 2 -c 2 model-llama | ppsched -s interleaved -m 4 |
        pprun --data packed --init 1 --steps 3 >out
    [ "$(wc -l <out)" -eq 3 ]
    jq -e '.loss > 0 and .grad_norm > 0 and .tokens > 0 and .seconds > 0
        and .tokens_per_s > 0 and .bubble >= 0 and .bubble < 1' out >ok
    run ! grep -q false ok
    [ "$(tail -n 1 out | jq .step)" -eq 3 ]
}

@test "the loss falls" {
    pprun plan.json --data packed --init 1 --steps 30 --lr 1e-2 >out
    jq -se '.[29].loss < 0.8 * .[0].loss' out
}

@test "a channel depth above the number of messages of a pass" {
    ppsplit -q -p 3 model-llama | ppsched -q -s 1f1b -m 2 --depth 3 >deep.json
    ppsched -q -s 1f1b -m 2 --depth 1 deep.json >shallow.json
    for depth in deep shallow; do
        pprun $depth.json --data packed --init 1 --steps 4 --grad-accum 2 |
            jq -c '[.loss, .grad_norm]' >$depth
    done
    [ "$(wc -l <deep)" -eq 4 ]
    cmp deep shallow
}

@test "a manifest whose sizes differ from the data is refused" {
    ppsched -q -s 1f1b -m 4 --data packed plan.json >with.json
    pprun --init 1 --steps 1 --message-size max with.json >out
    local key n
    for key in capacity max_tokens n_bins; do
        n=$(jq ".data.$key" with.json)
        jq ".data.$key = $((n - 1)) | .data.max_tokens |=
            ([., $((n - 1))] | if \"$key\" == \"n_bins\" then .[0] else min end)" \
            with.json >less.json
        fails 2 "pprun: /data/$key: '$((n - 1))', but 'packed' has $n;\
 run ppsched --data again" pprun --init 1 --steps 1 less.json
    done
}

@test "columns of other formats train the same" {
    jq -c '{input_ids}' data.jsonl >ids.jsonl
    pppack -q -l 48 -o ids ids.jsonl
    jq -c '. + {advantages: 1, reward: 0.5}' ids.jsonl |
        pppack -q -l 48 -o columns
    pprun plan.json --data columns --init 1 --steps 3 |
        jq -c '[.loss, .grad_norm]' >columns.out
    [ "$(wc -l <columns.out)" -eq 3 ]
    pprun plan.json --data ids --init 1 --steps 3 |
        jq -c '[.loss, .grad_norm]' | cmp - columns.out
}

@test "pprun without a task is refused" {
    run --separate-stderr pprun plan.json --data packed
    [ "$status" -eq 2 ]
    [ "${stderr_lines[0]}" = \
        "pprun: nothing to do: give --steps, --epochs, --print-memory or --verify;\
 ppscore evaluates and scores" ]
    [ "${stderr_lines[1]}" = "try 'pprun --help'" ]
}

@test "unknown words are refused" {
    for option in --optimizer --dtype --device --transport --objective \
        --lr-schedule; do
        run --separate-stderr pprun plan.json $option nosuch
        [ "$status" -eq 2 ]
        [[ "${stderr_lines[0]}" == "pprun: $option: 'nosuch' is not "* ]]
    done
    run --separate-stderr pprun plan.json --lr 1e
    [ "${stderr_lines[0]}" = "pprun: --lr: '1e' is not a finite number" ]
    run --separate-stderr pprun plan.json --betas 0.9
    [ "$status" -eq 2 ]
}

@test "the progress line has whole parts, the curve after the speed" {
    command -v python3 >/dev/null || skip 'no python3'
    cat >on_terminal.py <<'END'
import fcntl, os, pty, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    size = struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0)
    fcntl.ioctl(2, termios.TIOCSWINSZ, size)
    os.execvp(sys.argv[2], sys.argv[2:])
try:
    while data := os.read(fd, 4096):
        sys.stdout.buffer.write(data)
except OSError:
    pass
END
    local columns line parts=0 shown
    for columns in 48 64 80 120; do
        line=$(LC_ALL=C.UTF-8 python3 on_terminal.py $columns \
            pprun plan.json --data packed --init 1 --steps 4 |
            tr '\r' '\n' | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | grep '4/4' | tail -n 1)
        echo "$columns: $line"
        [ "$(LC_ALL=C.UTF-8 wc -m <<<"$line")" -le $columns ]
        LC_ALL=C.UTF-8 grep -Eqx '\[#{10}\] 4/4  0:0[0-9] in all(  loss [0-9.]{6}(  norm [0-9.e+-]+(  [0-9]+ tok/s(  [^ a-z]{2,16}(  bubble [0-9]+%)?)?)?)?)?' <<<"$line"
        shown=$(sed 's/  /\n/g' <<<"$line" | wc -l)
        [ "$shown" -ge "$parts" ]
        parts=$shown
    done
    [ "$parts" -eq 7 ]
}

@test "a missing device is refused with a reason" {
    compgen -G '/dev/nvidia[0-9]*' >/dev/null && skip 'there is a GPU'
    # A backend that the build lacks is the caller's to change.
    local status_of=3
    [[ $(pprun -V) == *cuda* ]] || status_of=2
    fails $status_of "pprun: --device cuda: *" \
        pprun plan.json --device cuda --data packed --init 1 --steps 1
    if [[ $(pprun -V) == *cuda* ]]; then
        [[ $stderr == *"no GPU "* ]]
        pprun plan.json --device cuda --data packed --init 1 --steps 1 \
            --print-memory | jq -e 'length == 2' >/dev/null
        fails 2 "pprun: CUDA_DEVICE_MAX_CONNECTIONS is '1': *" \
            env CUDA_DEVICE_MAX_CONNECTIONS=1 pprun plan.json --device cuda \
            --data packed --init 1 --steps 1
    else
        [[ $stderr == *"built without CUDA" ]]
    fi
    fails 2 "pprun*: --transport mpi: this pprun was built without MPI" \
        env PPRUN_MPI= pprun plan.json --transport mpi --data packed --init 1 \
        --steps 1
}

@test "the error of a missing section names the tool that adds it" {
    ppsplit -p 2 model-llama >split.json
    fails 2 "pprun: split.json: no schedule; add one with ppsched *" \
        pprun split.json --data packed --init 1 --steps 1
    fails 2 "pprun: plan.json: no data: give --data DIR*" \
        sh -c 'pprun plan.json --init 1 --steps 1 2>&1 |
            sed "s/^pprun: no/pprun: plan.json: no/" | head -n 1 >&2; exit 2'
}

@test "a truncated manifest is refused" {
    head -c 400 plan.json >cut.json
    fails 2 "pprun: cut.json: line *" \
        pprun cut.json --data packed --init 1 --steps 1
    fails 2 "pprun: standard input: *" \
        sh -c 'pprun --data packed --init 1 --steps 1 <cut.json'
}

@test "an invalid schedule gives status 1" {
    sed 's/0F0 /0F1 /' plan.json >swapped.json
    fails 1 "pprun: swapped.json: *" \
        pprun swapped.json --data packed --init 1 --steps 1
}

@test "a missing manifest or packed directory is refused" {
    fails 2 "pprun: nosuch.json: No such file or directory" \
        pprun nosuch.json --data packed --init 1 --steps 1
    fails 2 "pprun: nosuch*" pprun plan.json --data nosuch --init 1 --steps 1
}

@test "a run without weights and seed is refused" {
    fails 2 "pprun: 'model-llama' has no weights; give --weights *" \
        pprun plan.json --data packed --steps 1
}

@test "a truncated safetensors file is refused" {
    rm -rf cut
    cp -rL trained/latest cut
    for f in cut/*.safetensors; do
        head -c 900 "$f" >part && mv part "$f"
    done
    fails 2 "pprun: cut/model.safetensors: *" \
        pprun plan.json --data packed --weights cut --steps 1
}

@test "a tensor of the wrong shape is refused" {
    mkdir -p model-wide
    sed 's/"intermediate_size": 56/"intermediate_size": 60/' \
        model-llama/config.json >model-wide/config.json
    ppsplit -p 2 model-wide | ppsched -s 1f1b -m 4 >wide.json
    fails 2 "*'model.layers.*.mlp.gate_proj.weight' is \[56, 32\], expected \[60, 32\]" \
        pprun wide.json --data packed --weights trained/latest --steps 1
}

@test "NaN in a config is refused" {
    mkdir -p model-nan
    sed 's/"rms_norm_eps": 1e-6/"rms_norm_eps": NaN/' \
        model-llama/config.json >model-nan/config.json
    sed 's/model-llama/model-nan/' plan.json >nan.json
    fails 2 "pprun: *model-nan/config.json: /rms_norm_eps: 'NaN' is not finite" \
        pprun nan.json --data packed --init 1 --steps 1
}

@test "ids outside the vocabulary are refused" {
    echo '{"input_ids": [1, 67]}' >wrong.jsonl
    pppack -l 48 -o wrong wrong.jsonl
    fails 2 "pprun: wrong: token id '67' is not in the model's vocabulary of 67" \
        pprun plan.json --data wrong --init 1 --steps 1
}

@test "data that changed after planning is refused" {
    head -c -4 packed/input_ids >/dev/null
    cp -r packed short
    head -c -4 packed/input_ids >short/input_ids
    fails 2 "pprun: short*" pprun plan.json --data short --init 1 --steps 1
}

@test "a full disk is an error" {
    run --separate-stderr sh -c \
        'pprun plan.json --data packed --init 1 --steps 1 >/dev/full'
    [ "$status" -eq 3 ]
    [ "$stderr" = \
        "pprun: writing standard output failed: No space left on device" ]
    fails 3 "pprun: *No space left on device" \
        pprun plan.json --data packed --init 1 --steps 1 -o /dev/full
    fails 3 "ppscore: writing /dev/full failed: *" \
        ppscore plan.json --data packed --init 1 --logprobs -o /dev/full
}

@test "a directory that cannot be written keeps the old checkpoint" {
    fails 3 "pprun: /proc/nosuch: *" \
        pprun plan.json --data packed --init 1 --steps 1 --save /proc/nosuch
    echo >file
    fails 2 "pprun: file: is not a directory" \
        pprun plan.json --data packed --init 1 --steps 1 --save file
}

@test "a note warns of sequences beyond the model's positions" {
    mkdir -p short
    jq '.max_position_embeddings = 8' model-llama/config.json \
        >short/config.json
    ppsplit -q -p 2 --seq-len 48 short | ppsched -q -s 1f1b -m 4 >short.json
    longest=$(jq '.input_ids | length' data.jsonl | sort -n | tail -n 1)
    run --separate-stderr pprun short.json --data packed --init 1 --steps 1
    [ "$status" -eq 0 ]
    [ "$stderr" = "pprun: packed: sequences have up to $longest tokens, more\
 than the model's max_position_embeddings '8'" ]
    run --separate-stderr pprun -q short.json --data packed --init 1 --steps 1
    [ -z "$stderr" ]
    run --separate-stderr pprun plan.json --data packed --init 1 --steps 1
    [ -z "$stderr" ]
}

@test "a loss that is not finite is an error" {
    run --separate-stderr pprun plan.json --data packed --init 1 --steps 9 \
        --optimizer sgd --lr 1e6 --clip 0 --dtype fp32
    [ "$status" -eq 3 ]
    [[ "$stderr" =~ ^"pprun: step "[2-9]": loss is "(nan|inf)" and the gradient norm "(nan|inf)$ ]]
}

@test "a run without --resume does not replace checkpoints" {
    rm -rf ckpt nosuch
    local train="pprun plan.json --data packed --init 1 --save ckpt -q"
    $train --steps 2 --save-every 1 -o log
    before=$(ls ckpt)
    for resume in "" "--resume nosuch"; do
        # shellcheck disable=SC2086
        fails 2 "pprun: --save: 'ckpt/step-00000002' exists: continue from it\
 with --resume ckpt, or save elsewhere" \
            $train --steps 1 --keep 1 $resume
        [ "$(ls ckpt)" = "$before" ]
    done
    # A resumed run may start from an earlier checkpoint.
    $train --steps 2 --resume ckpt/step-00000001 -o log
    [ "$(jq .step log | paste -sd " ")" = "1 2" ]
    # A directory without checkpoints is used like a new one.
    mkdir none
    echo >none/notes
    pprun plan.json --data packed --init 1 --save none -q --steps 1 -o log
}

@test "--print-memory needs neither steps nor weights, and writes nothing" {
    rm -rf ckpt
    pprun plan.json --data packed --init 1 --steps 1 --print-memory >want
    pprun plan.json --data packed --print-memory >got
    pprun plan.json --data packed --print-memory --optimizer sgd |
        jq -e '.[0].optimizer == 0' >/dev/null
    cmp want got
    pprun plan.json --data packed --print-memory --steps 1 --save ckpt >got
    cmp want got
    [ ! -e ckpt ]
    # Forward passes keep no gradients.
    for forward in "--eval packed" "--logprobs"; do
        # shellcheck disable=SC2086
        ppscore plan.json --data packed --print-memory $forward |
            jq -e 'all(.[]; .gradients == 0 and .optimizer == 0)'
    done
    fails 2 "try 'pprun --help'" pprun plan.json --print-memory
}

@test "a tokenizer that cannot be copied is found before the first step" {
    rm -rf ckpt
    mkdir model-llama/tokenizer.json
    fails 2 "pprun: *model-llama/tokenizer.json: not a regular file" \
        pprun plan.json --data packed --init 1 --steps 1 --save ckpt
    rmdir model-llama/tokenizer.json
    mkfifo model-llama/tokenizer.json
    fails 2 "pprun: *model-llama/tokenizer.json: not a regular file" \
        timeout 20 pprun plan.json --data packed --init 1 --steps 1 --save ckpt
    rm model-llama/tokenizer.json
    echo '{}' >model-llama/tokenizer.json
    if [ "$(id -u)" -ne 0 ]; then
        chmod 0 model-llama/tokenizer.json
        fails 2 "pprun: *model-llama/tokenizer.json: Permission denied" \
            pprun plan.json --data packed --init 1 --steps 1 --save ckpt
    fi
    chmod 600 model-llama/tokenizer.json
    pprun plan.json --data packed --init 1 --steps 1 --save ckpt -q -o log
    [ "$(stat -c %a ckpt/latest/tokenizer.json)" = 600 ]
    rm -r ckpt model-llama/tokenizer.json
}

@test "a disk that fills up during a save keeps the old checkpoint" {
    rm -rf ckpt
    pprun plan.json --data packed --init 1 --steps 1 --save ckpt -q -o log
    run --separate-stderr bash -c 'ulimit -f 16
        pprun plan.json --data packed --steps 2 --save ckpt --resume ckpt -q'
    [ "$status" -eq 3 ]
    [[ "${stderr_lines[-1]}" == "pprun: ckpt/"*": File too large" ]]
    [ "$(echo ckpt/step-*)" = "ckpt/step-00000001" ]
    pprun plan.json --data packed --steps 2 --save ckpt --resume ckpt -q -o log
    [ -d ckpt/step-00000002 ]
}

@test "--max-in-flight accepts the simulated peak and refuses one less" {
    peak=$(ppsched --stats plan.json | jq '.peak | max')
    pprun plan.json --data packed --init 1 --steps 1 --max-in-flight "$peak" -v \
        >out 2>err
    for r in 0 1; do
        want=$(ppsched --stats plan.json | jq ".peak[$r]")
        grep -qx "pprun: rank $r: at most $want microbatches were alive" err
    done
    fails 1 "pprun: rank 0 keeps $peak microbatches alive, but --max-in-flight \
allows $((peak - 1))" pprun plan.json --data packed --init 1 --steps 1 \
        --max-in-flight $((peak - 1))
}

@test "an error of --memory says how many bytes are needed" {
    fails 1 "pprun: rank 0 needs *iB, but --memory allows 1.00 KiB" \
        pprun plan.json --data packed --init 1 --steps 1 --memory 1K
}

@test "pprun allocates the bytes that ppsched predicts" {
    for split in "1f1b -p 2" "gpipe -p 2 -c 2 --placement v" \
        "interleaved -p 2 -c 3" "1f1b -p 1"; do
        # shellcheck disable=SC2086
        ppsplit ${split#* } model-llama |
            ppsched -s "${split%% *}" -m 6 --data packed >p.json
        ppsched --stats p.json >stats.json
        pprun p.json --init 1 --steps 1 --print-memory >need.json
        diff <(jq -c .arena_bytes stats.json) <(jq -c \
            'map(.activations + .messages + .workspace)' need.json)
        diff <(jq -S .memory stats.json) \
            <(jq -S 'map(del(.host, .rank, .slots, .ranks, .channels, .stacks, .connections, .mapped))' \
                need.json)
        diff <(jq -c .peak stats.json) <(jq -c 'map(.slots)' need.json)
        jq -e 'all(.arena_bytes[]; . > 0)' stats.json
    done
    # In bf16, statistics have larger elements than other tensors.
    [[ $(pprun -V) == *cuda* ]] || return 0
    model qwen3 true
    ppsplit -p 2 --dtype bf16 model-qwen3 |
        ppsched -s 1f1b -m 6 --data packed >p.json
    ppsched --stats p.json >stats.json
    pprun p.json --init 1 --steps 1 --print-memory --device cuda --dtype bf16 \
        >need.json
    diff <(jq -c .rank_bytes stats.json) <(jq -c 'map(.total)' need.json)
    jq -e 'all(.[]; .gradients == 2 * .weights and
        .optimizer == 6 * .weights)' need.json
}

@test "--keep removes old checkpoints, and latest is the newest" {
    rm -rf ckpt
    pprun plan.json --data packed --init 1 --steps 5 --save ckpt \
        --save-every 1 --keep 2 -o log
    [ "$(cd ckpt && echo step-*)" = "step-00000004 step-00000005" ]
    [ "$(readlink ckpt/latest)" = step-00000005 ]
    [ -f ckpt/latest/config.json ]
}

@test "a run with all steps done removes what a kill during pruning left" {
    rm -rf ckpt
    pprun plan.json --data packed --init 1 --steps 1 --save ckpt -q -o log
    mkdir ckpt/step-0000000{1,8,9}.tmp
    touch ckpt/step-0000000{1,8,9}.tmp/config.json
    echo "pptools host 1" | tee ckpt/step-0000000{1,8}.tmp/owner >/dev/null
    # A live run holds a lock.
    exec 9<ckpt/step-00000008.tmp/owner
    flock 9
    pprun plan.json --data packed --steps 1 --save ckpt --resume ckpt -q -o log
    [ "$(cd ckpt && echo *)" = "latest step-00000001 step-00000008.tmp\
 step-00000009.tmp" ]
}

@test "--save-every and --eval-every need --save and --eval" {
    for pair in "--save-every --save" "--keep --save" "--eval-every --eval"; do
        read -r interval what <<<"$pair"
        run --separate-stderr pprun plan.json --data packed --init 1 \
            --steps 1 "$interval" 1
        [ "$status" -eq 2 ]
        [ -z "$output" ]
        [ "${stderr_lines[0]}" = "pprun: $interval needs $what" ]
    done
}

# refused MESSAGE OPTION...: a usage error with this first line.
refused() {
    local message=$1
    shift
    run --separate-stderr pprun plan.json --data packed --init 1 "$@"
    echo "status $status, stderr: $stderr"
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "${stderr_lines[0]}" = "pprun: $message" ]
    [ "${stderr_lines[1]}" = "try 'pprun --help'" ]
}

@test "options without an effect are refused" {
    refused "--min-lr needs --lr-schedule cosine" --steps 1 --min-lr 1e-4
    refused "--betas needs --optimizer adamw" --steps 1 --optimizer sgd \
        --betas 0.9,0.99
    refused "--eps needs --optimizer adamw" --steps 1 --eps 1e-6 --optimizer sgd
    refused "--eval-at-start needs --eval" --steps 1 --eval-at-start
    refused "--blas-threads needs --device cpu" --steps 1 --device cuda \
        --blas-threads 2
    while read -r option value; do
        # shellcheck disable=SC2086 # a flag has no value
        refused "$option needs --steps" $option $value
    done <<END
--save d
--dump-grads g
--time-products
--grad-accum 2
--lr 1
--optimizer sgd
--betas 0.9,0.99
--eps 1
--weight-decay 0
--clip 1
--warmup 1
--lr-schedule cosine
END
    refused "--decay-steps needs --lr-schedule cosine" --steps 9 --decay-steps 3
    # They are accepted if they have an effect.
    pprun plan.json --data packed --init 1 --steps 2 --lr 1e-2 \
        --lr-schedule cosine --min-lr 1e-3 -o log
    [ "$(tail -n 1 log | jq ".lr * 1e4 | round")" = 55 ]
    pprun plan.json --data packed --init 1 --steps 5 --lr 1e-2 --warmup 1 \
        --lr-schedule 1-sqrt --decay-steps 2 -o stable
    [ "$(jq ".lr * 1e4 | round" stable | xargs)" = "0 100 100 100 29" ]
}

@test "the last step is printed although its gradients cannot be written" {
    run --separate-stderr pprun -q plan.json --data packed --init 1 \
        --steps 2 --dump-grads /dev/full
    echo "status $status, stderr: $stderr"
    [ "$status" -eq 3 ]
    [ "$(jq -c .step <<<"$output" | xargs)" = "1 2" ]
    [[ "$stderr" == "pprun: /dev/full"* ]]
    [ "${#stderr_lines[@]}" -eq 1 ]
    pprun -q plan.json --data packed --init 1 --steps 1 --save dumped -o log
    run --separate-stderr pprun -q plan.json --data packed --init 1 --steps 1 \
        --resume dumped --dump-grads grads
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun: a dump of gradients takes 1 step or more, and 0 are\
 left" ]
}

@test "data without a scored token are refused, and a step without is named" {
    local line='{"input_ids": [1, 2, 3], "loss_mask": [0, 0, 0]}'
    run --separate-stderr pppack -l 3 -o unscored <<<"$line"
    [ "${stderr_lines[0]}" = 'pppack: no token is scored, so pprun does not train on this data' ]
    # Also to evaluate and to verify, but not to score.
    for how in 'pprun --steps 2' 'ppscore --eval unscored' 'pprun --verify' \
        'pprun --steps 2 --data packed --eval unscored'; do
        # shellcheck disable=SC2086
        run --separate-stderr $how --data unscored -q plan.json --init 1
        [ "$status" -eq 2 ]
        [ -z "$output" ]
        [ "$stderr" = "${how%% *}: unscored: none of its '3' tokens is scored; look\
 at the masks and labels of the documents, or pack with a larger -l" ]
    done
    ppscore -q plan.json --data unscored --init 1 --logprobs -o scores
    # Two steps of four microbatches; the first has none.
    {
        printf "%s\n" "$line" "$line" "$line" "$line"
        echo '{"input_ids": [1, 2, 3]}'
        printf "%s\n" "$line" "$line" "$line"
    } | pppack -q -l 3 --no-shuffle -o late
    run --separate-stderr pprun plan.json --data late --init 1 --steps 4
    [ "$(jq -s -c 'map(.loss == null)' <<<"$output")" = '[true,false,true,false]' ]
    [ "$(grep -c 'no scored token' <<<"$stderr")" -eq 1 ]
    [[ $stderr == *'pprun: step 1 has no scored token, so its loss is null; later ones like it are not named'* ]]
}

@test "a note says when a checkpoint has all steps" {
    rm -rf ended
    pprun -q plan.json --data packed --init 1 --steps 2 --save ended -o log
    for steps in 1 2; do
        run --separate-stderr pprun -q plan.json --data packed --init 1 \
            --steps "$steps" --resume ended
        [ "$status" -eq 0 ]
        [ -z "$output$stderr" ]
    done
    local all="pprun: nothing left to do: ended/step-00000002 has all of --steps '1'"
    run --separate-stderr pprun plan.json --data packed --steps 1 \
        --resume ended --save ended
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    [ "${stderr_lines[1]}" = "$all" ]
    run --separate-stderr pprun plan.json --data packed --steps 1 \
        --resume ended --save elsewhere
    [ "${stderr_lines[1]}" = "$all; it is saved as elsewhere/step-00000002" ]
}

@test "help and version" {
    run --separate-stderr pprun --help
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = "usage: pprun [options] [MANIFEST]" ]
    run --separate-stderr pprun --version
    [ "$status" -eq 0 ]
    [[ "${lines[0]}" == "pprun "* ]]
    run --separate-stderr sh -c 'pprun --help >/dev/full'
    [ "$status" -eq 3 ]
}

@test "too little address space is an error, not a hang" {
    # Sanitizers map far more memory than any limit.
    ! grep -qE "__(asan|tsan)_init" "$BUILDDIR/cmd/pprun" || skip "a sanitizer's build"
    run --separate-stderr timeout 200 bash -c \
        'ulimit -v 400000; exec pprun plan.json --data packed --init 1 --steps 2'
    [ "$status" -eq 3 ]
    [ -z "$output" ]
    [[ "$stderr" == "pprun: out of memory: matrix products need "* ]]
    # Two ranks and three helper threads need 256 MiB each. OpenBLAS's threads
    # take some of the limit, but leave enough for the ranks.
    run --separate-stderr timeout 200 bash -c 'ulimit -v 800000; exec pprun \
        plan.json --data packed --init 1 --steps 2 --blas-threads 4'
    [ "$status" -eq 3 ]
    [[ "$stderr" == *": matrix products need 1.25 GiB of address space" ]]
}

@test "matrix products can use several threads" {
    run --separate-stderr pprun plan.json --data packed --init 1 --steps 2 \
        --blas-threads 2
    [ "$status" -eq 0 ]
    pprun plan.json --data packed --init 1 --steps 2 >one.jsonl
    jq -es --argjson one "$(jq -s 'map(.loss)' one.jsonl)" \
        '[map(.loss), $one] | transpose
        | all((.[0] - .[1] | fabs) < 1e-5 * .[1])' <<<"$output" >/dev/null
    fails 2 "pprun: --blas-threads: '0' is not between 1 and 64" \
        pprun plan.json --data packed --init 1 --steps 2 --blas-threads 0
}

@test "a manifest of another model is refused" {
    jq '.model.architecture = "Qwen2ForCausalLM"' plan.json >other.json
    fails 2 "pprun: other.json: /model/architecture: 'Qwen2ForCausalLM', but *" \
        pprun --data packed --init 1 --steps 1 other.json
    jq 'del(.model.params) | .model.tied |= not' plan.json |
        ppsched -q -s 1f1b -m 2 >other.json
    fails 2 "pprun: other.json: /model/tied: *" \
        pprun --data packed --init 1 --steps 1 other.json
}
