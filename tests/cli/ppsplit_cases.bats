#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit against tests/data/split_cases.txt, a table of other systems' rules.
# Each plan is also exported in every form and read again.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
}

# config LAYERS: writes a model of that many layers into the directory LAYERS.
config() {
    [ ! -d "$1" ] || return 0
    mkdir "$1"
    cat >"$1/config.json" <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": $1,
 "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}
END
}

# cases KIND: prints the table's lines of that kind: layers, options and answer,
# separated by tabs.
cases() {
    awk -F ' ; ' -v kind="$1" -v OFS='\t' 'NF == 4 && $1 == kind {
        print $2, $3, $4 }' "$SRCDIR/tests/data/split_cases.txt"
}

# count_layers: reads a list of lists of names, one stage on a line, and prints
# the layers of each stage.
count_layers() {
    awk '/^  \[/ { n = gsub(/"layers\./, ""); printf "%s%d", sep, n; sep = " " }'
}

# ran ARGS MODEL: runs ppsplit. A shell splits ARGS into words.
ran() {
    eval "ppsplit $1 $2"
}

# all_right KIND LEAST: passes if there are more than LEAST cases of that kind,
# and `answer_KIND ARGS LAYERS` prints the table's answer for each. '*' is any
# answer.
all_right() {
    local n=0 wrong=0 layers args want got
    while IFS=$'\t' read -r layers args want; do
        config "$layers"
        got=$("answer_$1" "$args" "$layers")
        if [ "$got" != "$want" ] && { [ "$want" != '*' ] || [ -z "$got" ]; }
        then
            echo "$layers layers, $args: $got, not $want"
            wrong=$((wrong + 1))
        fi
        n=$((n + 1))
    done < <(cases "$1")
    echo "$n cases, $wrong wrong"
    [ "$n" -gt "$2" ] && [ "$wrong" -eq 0 ]
}

answer_layers() {
    { ran "$1 -q --export torchtitan" "$2" >out; } 2>&1 || true
    count_layers <out
}

# answer_refused ARGS LAYERS: prints the message of a run that prints nothing
# else and exits with 2.
answer_refused() {
    local rc=0 message
    ran "$1" "$2" >out 2>err || rc=$?
    message=$(head -n 1 err)
    if [ "$rc" -eq 2 ] && [ ! -s out ]; then echo "${message#ppsplit: }"; fi
}

answer_bounds() { ran "$1 --export deepspeed" "$2" | tr -d '[],'; }

answer_ranks() { ran "$1" "$2" | jq -r '[.stages[].rank] | join(" ")'; }

@test "layers are on the stages that the rule gives" {
    all_right layers 100
}

@test "splits that a rule cannot make are refused" {
    all_right refused 60
}

@test "boundaries and ranks are as in the table" {
    all_right bounds 5
    all_right ranks 5
}

@test "every third plan is exported in each form and read again" {
    local n=0 layers args
    while IFS=$'\t' read -r layers args _; do
        case $args in *'--placement v'*) continue ;; esac
        n=$((n + 1))
        [ $((n % 3)) -eq 0 ] || continue
        config "$layers"
        p=$(sed -E 's/.*-p ([0-9]+).*/\1/' <<<"$args")
        echo "$layers layers, $args"
        ran "$args --export fqns" "$layers" >fqns
        stages=$(grep -c '^  \[' fqns)
        c=$((stages / p))
        for form in torchtitan torchtitan-output; do
            ran "$args --export $form" "$layers" >names
            ppsplit -p "$p" -c "$c" --fqns names --export fqns "$layers" |
                cmp fqns -
        done
        layout=$(ran "$args --export megatron" "$layers")
        ppsplit -p "$p" --layout "$layout" --export fqns "$layers" | cmp fqns -
    done < <(cases layers)
}
