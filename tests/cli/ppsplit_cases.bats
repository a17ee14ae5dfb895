#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit against tests/data/split_cases.txt, a table of other systems' rules;
# and what it makes of them goes out in every form and comes back the same.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
}

# config LAYERS: a model of that many layers in the directory LAYERS.
config() {
    [ ! -d "$1" ] || return 0
    mkdir "$1"
    cat >"$1/config.json" <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": $1,
 "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}
END
}

# cases KIND...: the table's lines of that kind.
cases() {
    awk -F ' ; ' -v kinds=" $* " \
        'NF == 4 && index(kinds, " " $1 " ")' "$SRCDIR/tests/data/split_cases.txt"
}

# Layers of each stage, of a list of lists of names with one stage on a line.
count_layers() {
    awk '/^  \[/ { n = gsub(/"layers\./, ""); printf "%s%d", sep, n; sep = " " }'
}

# ran ARGS MODEL: ppsplit, words of ARGS split by a shell's rules.
ran() {
    eval "ppsplit $1 $2"
}

@test "layers are where the rule puts them" {
    local n=0 wrong=0
    while IFS= read -r line; do
        layers=$(awk -F ' ; ' '{ print $2 }' <<<"$line")
        args=$(awk -F ' ; ' '{ print $3 }' <<<"$line")
        want=$(awk -F ' ; ' '{ print $4 }' <<<"$line")
        config "$layers"
        got=$(ran "$args --export torchtitan" "$layers" 2>&1 >out || true)
        got=$got$(count_layers <out)
        [ "$got" = "$want" ] ||
            { echo "$layers layers, $args: $got, not $want"; wrong=$((wrong + 1)); }
        n=$((n + 1))
    done < <(cases layers)
    echo "$n cases, $wrong wrong"
    [ "$n" -gt 100 ] && [ "$wrong" -eq 0 ]
}

@test "what cannot be split is refused" {
    local n=0 wrong=0
    while IFS= read -r line; do
        layers=$(awk -F ' ; ' '{ print $2 }' <<<"$line")
        args=$(awk -F ' ; ' '{ print $3 }' <<<"$line")
        want=$(awk -F ' ; ' '{ print $4 }' <<<"$line")
        config "$layers"
        rc=0
        ran "$args" "$layers" >out 2>err || rc=$?
        got=$(head -n 1 err)
        got=${got#ppsplit: }
        if [ "$rc" -ne 2 ] || [ -s out ] || [ -z "$got" ] ||
            { [ "$want" != '*' ] && [ "$got" != "$want" ]; }; then
            echo "$layers layers, $args: $rc, $got"
            wrong=$((wrong + 1))
        fi
        n=$((n + 1))
    done < <(cases refused)
    echo "$n cases, $wrong wrong"
    [ "$n" -gt 60 ] && [ "$wrong" -eq 0 ]
}

@test "boundaries of units, and ranks of stages" {
    local n=0 wrong=0
    while IFS= read -r line; do
        kind=${line%% *}
        layers=$(awk -F ' ; ' '{ print $2 }' <<<"$line")
        args=$(awk -F ' ; ' '{ print $3 }' <<<"$line")
        want=$(awk -F ' ; ' '{ print $4 }' <<<"$line")
        config "$layers"
        if [ "$kind" = bounds ]; then
            got=$(ran "$args --export deepspeed" "$layers" | tr -d '[],')
        else
            got=$(ran "$args" "$layers" | jq -r '[.stages[].rank] | join(" ")')
        fi
        [ "$got" = "$want" ] ||
            { echo "$layers layers, $args: $got, not $want"; wrong=$((wrong + 1)); }
        n=$((n + 1))
    done < <(cases bounds ranks)
    echo "$n cases, $wrong wrong"
    [ "$n" -gt 10 ] && [ "$wrong" -eq 0 ]
}

@test "every third goes out in each form and comes back" {
    local n=0
    while IFS= read -r line; do
        layers=$(awk -F ' ; ' '{ print $2 }' <<<"$line")
        args=$(awk -F ' ; ' '{ print $3 }' <<<"$line")
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
