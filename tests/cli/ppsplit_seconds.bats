#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit --gpu, --flops and --link: seconds, tokens a second and MFU.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    llama 6 16000 >model.json
}

# figure NAME ARGS...: prints the step, its unit, the tokens/s or the MFU of the
# plan's table.
figure() {
    local name=$1 text
    shift
    text=$(ppsplit -p 2 -m 6 "$@" -t model.json | tr '\n' ' ')
    case $name in
    step) sed 's/.* takes \([^ ]*\) \(flop\|s\); .*/\1/' <<<"$text" ;;
    update) sed 's/.*update it takes \([^ ]*\) s: .*/\1/' <<<"$text" ;;
    tokens) sed 's/.* s: \([^ ]*\) \([KM]\?\) \?tokens.*/\1\2/; s/K/e3/; s/M/e6/' <<<"$text" ;;
    mfu) sed 's/.*MFU \([^ ]*\) %.*/\1/' <<<"$text" ;;
    esac
}

# near A B SHARE: passes if A is within that share of B.
near() {
    echo "$1, wanted $2"
    awk -v a="$1" -v b="$2" -v s="$3" 'BEGIN { d = a - b
        exit !(b > 0 && (d < 0 ? -d : d) <= s * b) }'
}

@test "seconds are operations over the rate" {
    for how in '-s 1f1b' '-s zbv -c 2 --placement v' '--recompute full' \
        '--tp 2'; do
        # shellcheck disable=SC2086 # options
        near "$(figure step $how --flops 100T)" \
            "$(figure step $how | awk '{ print $1 / 100e12 }')" 1e-3
    done
    # A slow link makes the step longer; ppsched has the same step.
    fast=$(figure step --flops 100T --link 1000GB)
    slow=$(figure step --flops 100T --link 1GB/s)
    awk -v a="$fast" -v b="$slow" 'BEGIN { exit !(b > 1.02 * a) }'
    ppsplit -p 2 -m 6 --flops 100T --link 1G model.json |
        ppsched -s 1f1b -m 6 --depth auto --stats >stats.json
    jq -e '.time == "seconds"' stats.json
    near "$(jq .at_depth.makespan stats.json)" "$slow" 1e-3
    near "$(jq .tokens_per_s stats.json)" \
        "$(figure tokens --flops 100T --link 1G)" 1e-2
}

@test "tokens and MFU follow from the step" {
    step=$(figure update --gpu h100 --dtype bf16)
    near "$(figure tokens --gpu h100 --dtype bf16)" \
        "$(jq -n "6 * 2048 / $step")" 1e-2
    # 6 operations for each weight of a product and token, and 3 times those
    # of the forward of attention: 4 x heads x head_dim for each pair.
    layer=$((1024 * 1024 * 2 + 2 * 1024 * 256 + 3 * 1024 * 4096))
    flops=$(jq -n "6 * 2048 * (6 * (6 * $layer + 1024 * 16000)
        + 3 * 6 * 4 * 1024 * 2049 / 2)")
    near "$(figure mfu --gpu h100 --dtype bf16)" \
        "$(jq -n "100 * $flops / ($step * 2 * 989.4e12)")" 1e-2
    # Recomputation is no use, and another rate counts against the peak.
    near "$(figure mfu --gpu h100 --flops 494.7T --dtype bf16)" \
        "$(jq -n "100 * $flops / ($(figure update --gpu h100 --flops 494.7T \
            --dtype bf16) * 2 * 989.4e12)")" 1e-2
    ppsplit -p 2 -m 6 --gpu a100 --dtype bf16 --compare all model.json >rows
    grep -qE '^kind .* step \(s\) .* tokens/s +MFU$' rows
    near "$(awk '$1 == "1f1b" { print $(NF - (/  best$/ ? 1 : 0)) }' rows | tr -d %)" \
        "$(figure mfu --gpu a100 --dtype bf16 -s 1f1b)" 1e-2
    awk 'length > 80 { exit 1 }' rows
}

@test "the memory of the GPU is the limit" {
    run -1 --separate-stderr ppsplit -p 2 -m 6 --gpu a100-40 --dtype fp32 \
        --micro-batch-tokens 64K -s gpipe model.json
    [[ "$stderr" == *' more than the limit of 37.25 GiB'* ]]
    ppsplit -p 2 -m 6 --gpu a100-40 --dtype fp32 --micro-batch-tokens 64K -s gpipe \
        --memory 2000G model.json >plan.json
}

@test "rates that are none are refused" {
    refuses "--flops: '400X' is not a rate such as 400T or 50GB" -p 2 \
        --flops 400X model.json
    refuses "--flops: '-1T' is not between 1 and 1e+30" -p 2 --flops -1T model.json
    refuses '--link needs --gpu or --flops' -p 2 --link 50G model.json
    run -2 --separate-stderr ppsplit -p 2 --gpu h1000 model.json
    [[ "$stderr" == *"--gpu: 'h1000' is not one of: a100, a100-40, h100, "* ]]
}
