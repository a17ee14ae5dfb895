#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Tables of all tools: they fit in 80 columns, and agree on memory.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    mkdir -p m
    small_llama 2048 >m/config.json
}

# fits COMMAND...: passes if no line of the output has more than 80 columns.
fits() {
    run --separate-stderr "$@"
    [ "$status" -le 1 ]
    [ "${#lines[@]}" -gt 1 ]
    awk 'length > 80 { print; n++ } END { exit n > 0 }' <<<"$output"
}

@test "tables have 80 columns" {
    # The longest names of units, many stages on a rank, and long lists.
    jq -n '{format: "pp-units", version: 1, architecture: "T", units:
        [range(40) | {params: 1000, fwd_flops: [1, 0], act_bytes: [4, 4, 4],
            out_bytes: 4, fqn: "vision_tower.model.blocks.layers.\(.)",
            kind: ({"0": "embedding", "39": "head"}["\(.)"] // "layer")}]}' \
        >units.json
    for how in '-p 2' '-p 3 -c 4' '-p 6 --memory 1T' '-p 2 --tp 2 --dp 8' \
        '-p 2 -c 2 --placement v' '-p 2 --placement both-ways' \
        '-p 6 --recompute full,none,full,none,full,none'; do
        # shellcheck disable=SC2086 # options
        fits ppsplit -t $how m
    done
    fits ppsplit -t -p 3 -c 10 --units units.json
    fits ppsplit -t -p 2 -m 4 --method joint m
    fits ppsplit -p 2 -m 4 --memory 3G --compare all m
    ppsplit -p 4 m >stages.json
    fits ppsched --compare all -m 8 stages.json
    fits ppsched --compare all -p 3 -m 6 --max-in-flight 2 --cost 1e9,1e9,1e9,7
    fits ppsched --list
    fits ppsched -p 4 -s zbv -m 8 -t --ascii --width 80
    ppsched -s 1f1b -m 8 stages.json >plan.json
    fits ppsched --check --semantics all plan.json
    ppsched -p 4 -s interleaved -m 8 --export csv-comms --cost 1,1,1,9 >p.csv
    fits ppsched --check --semantics all --depth 0 --csv p.csv
    for tool in ppmesh ppsplit ppsched pppack pprun ppscore; do
        fits $tool --help
        fits $tool --help all
    done
}

@test "tables have the memory that pprun prints, by the same names" {
    for how in '-p 2' '-p 3 --dp 2' '-p 2 -c 2'; do
        # shellcheck disable=SC2086
        ppsplit -m 12 $how -t m >table
        kind=1f1b
        [[ $how != *-c* ]] || kind=interleaved
        # shellcheck disable=SC2086
        ppsplit -m 12 $how m | ppsched -s $kind -m 12 --stats >stats.json
        # Three digits in the table: within half a percent.
        awk '/^rank weights/ { on = 1; next } !NF { on = 0 }
            on { for (i = 2; i <= NF; i++)
                print $i * 1024 ^ index("KMG", substr($i, length($i))) }' table >shown
        jq '.memory[] | .weights, .gradients, .optimizer, .activations,
            .messages, .workspace, .tables, .total' stats.json >exact
        [ "$(wc -l <shown)" -ge 16 ]
        paste shown exact | awk '{
            d = $1 - $2; if (d < 0) d = -d
            if (d > $2 * 0.0051) bad = 1 } END { exit bad + 0 }'
        jq -e '.memory | all(.total == (del(.total) | add))' stats.json
        # With several stages on a rank every total has all of its stages.
        jq -e '.rank_bytes == (.memory | map(.total))' stats.json
    done
    # Refusals name the total.
    echo '{"input_ids": [1, 2, 3]}' | pppack -q -l 2048 -o packed
    ppsplit -p 2 m | ppsched -s 1f1b -m 8 --data packed >plan.json
    pprun --print-memory plan.json >memory.json
    ppsched --stats plan.json | jq .memory |
        diff <(jq 'map(del(.host, .rank, .slots, .ranks, .channels, .stacks, .connections, .mapped))' \
            memory.json) -
    total=$(jq '.[0].total / 1048576 * 100 | round / 100' memory.json)
    run -1 --separate-stderr ppsched --check --memory 1M plan.json
    [[ "$stderr" == "ppsched: rank 0 needs $total MiB, "* ]]
    run -1 --separate-stderr pprun --print-memory --memory 1M plan.json
    [[ "$stderr" == *"rank 0 needs $total MiB, but --memory allows 1.00 MiB" ]]
}

# sized LENGTH...: packs a document of each length into a bin of at most 512.
sized() {
    for n in "$@"; do
        jq -nc --argjson n "$n" '{input_ids: [range($n)]}'
    done | pppack -q -l 512 "${pack[@]}"
}

@test "data that are larger than planned are named, with their memory" {
    local pack=(-o packed) plan="1f1b -m 2" most need planned
    small_llama 512 | jq '.hidden_size = 64 | .vocab_size = 512' >m/config.json
    sized 96 32 32
    ppsplit -q -p 2 --seq-len 32 m | ppsched -q -s $plan >short.json
    ppsched -q -s $plan --data packed short.json >long.json
    # size FILE: prints the bytes of the fullest rank, as messages have them.
    size() {
        ppsched --stats "$1" | jq -r '.rank_bytes | max / 1048576 * 100 |
            round | "\(. / 100 | floor).\("\(100 + . % 100)"[1:]) MiB"'
    }
    planned=$(size short.json) need=$(size long.json)
    [ "$planned" != "$need" ]
    run -0 --separate-stderr pprun --print-memory --data packed short.json
    [ "$stderr" = "pprun: packed: microbatches have up to 160 tokens, but the \
plan is for 32: rank 0 needs $need instead of $planned; plan with ppsched \
--data packed" ]
    run -0 --separate-stderr pprun --print-memory long.json
    [ -z "$stderr" ]
    # A limit between the two is judged by the data.
    most=$(ppsched --stats short.json | jq '.rank_bytes | max + 1')
    ppsched -q --check --memory "${most}B" short.json
    run -1 --separate-stderr ppsched -s $plan --memory "${most}B" \
        --data packed short.json
    [[ $stderr == "ppsched: rank 0 needs $need, "* ]]
    run -1 --separate-stderr pprun --steps 1 --init 1 --memory "${most}B" \
        --data packed short.json
    [ "${#stderr_lines[@]}" -eq 2 ]
    [[ ${stderr_lines[1]} == "pprun: rank 0 needs $need, but --memory allows "* ]]
    # Long sequences in bins as planned have larger tables; an evaluation has
    # larger bins, which is no matter while training needs more.
    ppsplit -q -p 2 --seq-len 32 --micro-batch-tokens 160 m |
        ppsched -q -s $plan >wide.json
    run -0 --separate-stderr pprun --print-memory --data packed wide.json
    [[ $stderr == "pprun: packed: sequences have up to 96 tokens, but the plan \
is for 32: rank 0 needs "* ]]
    pack=(-o large)
    sized 480
    pack=(-o small)
    sized 24
    pprun -q --print-memory --eval packed --data small --steps 1 short.json
    run -0 --separate-stderr ppscore --print-memory --eval large --data packed \
        long.json
    [[ $stderr == "ppscore: large: microbatches have up to 480 tokens, but the \
plan is for 160: rank "*"; pack it with a smaller -l" ]]
    run -0 --separate-stderr pprun --print-memory --data small short.json
    [ -z "$stderr" ]
    # The table of all ranks has 80 columns.
    run -0 --separate-stderr pprun -v --print-memory --data packed long.json
    [[ ${stderr_lines[0]} == "rank weights "* ]]
    head -n 3 <<<"$stderr" | awk 'length > 80 { exit 1 }'
}
