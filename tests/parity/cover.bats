#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# cover - pprun --verify over a pairwise cover of the settings of a pipeline.
# FEWER=3 takes only a third of the rows, for builds in which a row takes long.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    export FACTORS="$SRCDIR/tests/parity/cover.factors"
    "$SRCDIR/tests/parity/cover" "$FACTORS" >rows
    local name head n
    for name in llama qwen2 qwen3 gpt-oss; do
        for head in tied untied; do
            model "$name-$head" "$([ $head = tied ] && echo true || echo false)"
            jq '.hidden_size = 16 | .intermediate_size = 24 | .head_dim = 6' \
                "model-$name-$head/config.json" >config
            for n in 4 6 8 9 12; do
                mkdir "model-$name-$head-$n"
                sed "s/\(\"num_hidden_layers\": \)6/\1$n/" config \
                    >"model-$name-$head-$n/config.json"
            done
        done
    done
    data 1 40 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    pppack -q -l 48 --pad-to 8 -o aligned data.jsonl
    pppack -q -l 144 -a none --rows 3 -o rows-of-3 data.jsonl
    mv rows-of-3 padded
    pppack -q -l 48 -a none --rows 1 -o single data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# layers HOW LAYERS STAGES: prints options of ppsplit; some stages have no layers.
layers() {
    [ "$1" = uneven ] || return 0
    awk -v left="$2" -v n="$3" 'BEGIN {
        printf "--layers "
        for (i = 1; i < n; i++) {
            k = (i * 7) % 3
            left -= k
            printf "%d,", k
        }
        print left
    }'
}

# microbatches KIND RANKS: prints a number, odd if the kind takes any.
microbatches() {
    case $1 in
    interleaved | zb-interleaved | dualpipe | dualpipev) echo $((2 * $2)) ;;
    *) echo $((2 * $2 + 1)) ;;
    esac
}

# adapters WHAT: prints options of ppsplit.
adapters() {
    case $1 in
    adapters) echo --lora rank=2,targets=q_proj+o_proj ;;
    ends) echo --lora rank=2,targets=k_proj,saved=embed_tokens+lm_head ;;
    esac
}

# plan WAY RANKS LAYERS HEAD MODEL DEPTH MODE WHAT: prints a manifest. The model
# has about one layer for each stage.
plan() {
    local kind chunks placement stages n search=()
    IFS=: read -r kind chunks placement <<<"$1"
    [ "$kind" != auto ] || search=(--time 0.1)
    stages=$((chunks * $2))
    n=$((stages < 4 ? 4 : stages))
    # shellcheck disable=SC2046
    ppsplit -q -p "$2" -c "$chunks" --placement "$placement" --recompute "$7" \
        $(layers "$3" $n $stages) $(adapters "$8") "model-$5-$4-$n" |
        ppsched -q -s "$kind" -m "$(microbatches "$kind" "$2")" --depth "$6" \
            "${search[@]}"
}

@test "the cover has every pair, and misses some without its last rows" {
    [ "$(wc -l <rows)" -ge 60 ]
    local check="$SRCDIR/tests/parity/cover"
    [ -z "$("$check" -v check=rows "$FACTORS")" ]
    head -n 50 rows >fewer
    [ -n "$("$check" -v check=fewer "$FACTORS")" ]
}

@test "a third of the rows has every value, and more pairs than every third row" {
    local check="$SRCDIR/tests/parity/cover" i
    "$check" -v fewer=3 "$FACTORS" >third
    [ "$(wc -l <third)" -eq $(($(wc -l <rows) / 3)) ]
    [ -z "$(sort third | uniq -d)" ]
    [ -z "$(sort third rows rows | uniq -u)" ]
    diff <(values third) <(values rows)
    for i in 0 1 2; do
        awk -v i=$i 'NR % 3 == i' rows >every
        [ "$("$check" -v check=third "$FACTORS" | wc -l)" -lt \
            "$("$check" -v check=every "$FACTORS" | wc -l)" ]
    done
}

# values FILE: prints each value of each factor once.
values() { awk '{ for (i = 1; i <= NF; i++) print i, $i }' "$1" | sort -u; }

@test "every kind that pprun runs is in the cover" {
    ppsched --list | sed -n 's/^\([a-z0-9-]\{1,\}\) .*/\1/p' | sort >kinds
    grep '^way ' "$FACTORS" | tr ' ' '\n' | sed -n 's/:.*//p' | sort -u >run
    diff kinds run
}

@test "every row of the cover computes the same as one rank" {
    local way ranks how data head model dtype depth mode what
    while read -r way ranks how data head model dtype depth mode what; do
        plan "$way" "$ranks" "$how" "$head" "$model" "$depth" "$mode" "$what" >plan.json
        pprun --verify --init 1 --data "$data" --dtype "$dtype" plan.json \
            >table || {
            echo "$way $ranks $how $data $head $model $dtype $depth $mode $what:"
            cat table
            return 1
        }
    done < <("$SRCDIR/tests/parity/cover" -v fewer="${FEWER:-1}" "$FACTORS")
}
