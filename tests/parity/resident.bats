#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# resident - the memory that a run takes from the system is its plan: at most 5 %
# more or less for plans of 512 MiB and more, OpenBLAS included. That of
# --logprobs does not grow with the data.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
    mkdir m
    cat >m/config.json <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6,
 "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 12000,
 "rms_norm_eps": 1e-5, "max_position_embeddings": 512,
 "tie_word_embeddings": false}
END
    awk 'BEGIN { for (i = 0; i < 24; i++) {
        n = 60 + i * 37 % 196
        printf "{\"input_ids\": [%d", i
        for (t = 1; t < n; t++) printf ", %d", (i * 7919 + t * 104729) % 12000
        print "]}" } }' | pppack -q -l 256 -o packed -
}

# peak PROGRAM ARGS...: prints the most resident bytes of PROGRAM with ARGS.
peak() {
    python3 - "$@" <<'END'
import os, sys
pid = os.fork()
if pid == 0:
    os.dup2(os.open('/dev/null', os.O_WRONLY), 1)
    os.execvp(sys.argv[1], [sys.argv[1], '-q', '--data', 'packed'] + sys.argv[2:])
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss * 1024)
sys.exit(status != 0)
END
}

@test "resident memory grows by the plan" {
    command -v python3 || skip "no python3"
    for ranks in 1 2; do
        ppsplit -q -p "$ranks" m |
            ppsched -q -s gpipe -m 3 --data packed -o plan.json
        for how in "pprun --steps 1" "pprun --steps 1 --eval packed" \
            "ppscore --logprobs"; do
            # shellcheck disable=SC2086
            start=$(peak $how --print-memory plan.json)
            # shellcheck disable=SC2086
            plan=$($how -q --data packed --print-memory plan.json |
                jq 'map(.total) | add')
            # shellcheck disable=SC2086
            most=$(peak $how --init 1 plan.json)
            echo "$ranks $how: plan $plan, growth $((most - start))"
            [[ $how == ppscore* ]] || [ "$plan" -ge $((512 << 20)) ]
            if [ "$plan" -ge $((512 << 20)) ]; then
                jq -ne "($most - $start) / $plan | . > 0.95 and . < 1.05"
            fi
        done
    done
}

# measure ARGS...: prints the most memory of ppscore with ARGS that is not of a
# file, and its peak of all resident memory, in kB.
measure() {
    python3 - "$@" <<'END'
import re, subprocess, sys, time
run = subprocess.Popen(['ppscore', '-q'] + sys.argv[1:])
most = peak = 0
while run.poll() is None:
    try:
        status = open(f'/proc/{run.pid}/status').read()
    except OSError:
        continue
    of = dict(re.findall(r'(RssAnon|VmHWM):\s+(\d+)', status))
    most = max(most, int(of.get('RssAnon', 0)))
    peak = max(peak, int(of.get('VmHWM', 0)))
    time.sleep(.002)
print(most, peak)
sys.exit(run.returncode != 0)
END
}

@test "the memory of --logprobs does not grow with the sequences" {
    command -v python3 || skip "no python3"
    jq '.hidden_size = 16 | .intermediate_size = 16 | .num_hidden_layers = 1 |
        .num_attention_heads = 1 | .num_key_value_heads = 1 | .vocab_size = 64' m/config.json >config
    mv config m/config.json
    local few_most few_peak most peak
    for n in 1000 100000; do
        awk -v n="$n" 'BEGIN { srand(9); for (i = 0; i < n; i++) {
            printf "{\"input_ids\": [%d", i % 64
            for (t = 4 + int(rand() * 16); t > 0; t--)
                printf ", %d", rand() * 64
            print "]}" } }' | pppack -q -l 256 -o "many$n" -
        ppsplit -q -p 2 m | ppsched -q -s 1f1b -m 8 -o plan.json
        measure --data "many$n" --init 1 --logprobs -o "scores$n" plan.json >"most$n"
        [ "$(wc -l <"scores$n")" -eq "$n" ]
    done
    read -r few_most few_peak <most1000
    read -r most peak <most100000
    echo "$few_most kB of $few_peak, then $most kB of $peak"
    [ "$most" -le $((few_most + 512)) ]
    # The index, 18 bytes a sequence, is mapped and read at the beginning, and
    # again later in the pages that the system likes to map at once.
    [ "$peak" -le $((few_peak + 4096)) ]
}

@test "scores that wait in a file take no memory" {
    command -v python3 || skip "no python3"
    jq '.hidden_size = 16 | .intermediate_size = 16 | .num_hidden_layers = 1 |
        .num_attention_heads = 1 | .num_key_value_heads = 1 | .vocab_size = 64' m/config.json >config
    mv config m/config.json
    ppsplit -q -p 1 m | ppsched -q -s gpipe -m 8 -o plan.json
    # 8 bytes for each of 129 numbers: pages of the file would be 26 MiB.
    for n in 100 1000; do
        awk -v n="$n" 'BEGIN { for (i = 0; i < n; i++) {
            printf "{\"input_ids\": [%d", i % 64
            for (t = 1; t < 26; t++) printf ", %d", i * t % 64
            print "]}" } }' | pppack -q -l 256 -o packed -
        peak ppscore --init 1 --top-k 64 -o scores plan.json >"most$n"
        [ "$(wc -l <scores)" -eq "$n" ]
    done
    echo "$(cat most100) bytes, then $(cat most1000)"
    [ "$(cat most1000)" -le $(($(cat most100) + (4 << 20))) ]
}
