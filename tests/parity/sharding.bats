#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# sharding - lists, traces and checkpoints of data-parallel ranks, with and
# without weights that are divided. replicas.rows compares their numbers.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    data 1 60 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan NAME KIND M SPLIT...: makes NAME.json.
plan() {
    ppsplit -q "${@:4}" model-llama | ppsched -q -s "$2" -m "$3" -o "$1.json"
}

@test "a run resumes only with the microbatches of its steps" {
    plan two 1f1b 3 -p 2 --dp 2
    pprun -q two.json --data packed --init 5 --steps 2 --save two >log
    plan three 1f1b 2 -p 1 --dp 3
    pprun -q three.json --data packed --steps 3 --resume two | jq -e '.step == 3'
    plan nine 1f1b 3 -p 1 --dp 3
    run -2 --separate-stderr pprun nine.json --data packed --steps 4 --resume two
    [[ $stderr == *"with 6 microbatches a step, not 9" ]]
}

@test "a list in PyTorch's form runs with whole and with divided weights" {
    file=$SRCDIR/tests/data/csv/zb1p_2rank_2stagep_comms.csv
    [ "$(wc -l <"$file")" -eq 2 ]
    for zero in 0 1 3; do
        ppsplit -q -p 2 -c 2 --dp 2 --zero $zero model-llama >split.json
        ppsched -q --csv "$file" -o plain.json split.json
        ppsched -q --csv "$file" --export csv-comms split.json >comms.csv
        [[ "$(head -n 1 comms.csv)" == *0UNSHARD,*0RESHARD* ]]
        ppsched -q --csv comms.csv -o listed.json split.json
        jq -r '.schedule.actions[]' listed.json >actions
        [ "$(grep -o UNSHARD actions | wc -l)" -eq 4 ]
        for name in plain listed; do
            rm -rf "$name$zero"
            train "$name$zero" $name.json
            same plain0 "$name$zero"
        done
    done
}

@test "a plan that does not list its reductions is refused" {
    plan listed zbv 3 -p 2 -c 2 --placement v --dp 2
    jq '.schedule.actions |= map(gsub(" [0-9]REDUCE_GRAD"; ""))' listed.json \
        >old.json
    [ "$(grep -o REDUCE_GRAD listed.json | wc -l)" -eq 4 ]
    run ! grep -q REDUCE_GRAD old.json
    ppsched --check old.json
    run --separate-stderr pprun -q old.json --data packed --init 1 --steps 1
    [ "$status" -eq 1 ]
    [ "$stderr" = "pprun: old.json: rank 0: '0REDUCE_GRAD' is missing; make the\
 schedule with ppsched" ]
}

@test "a stage that is used without its weights is refused" {
    plan parts 1f1b 2 -p 2 --dp 2 --zero 3
    jq '.schedule.actions |= map(gsub("1(UN|RE)SHARD "; ""))' parts.json >bad.json
    run -1 --separate-stderr pprun bad.json --data packed --init 1 --steps 1
    [[ $stderr == *"rank 1, action 1: '1F0' comes before UNSHARD of its stage" ]]
    jq '.mesh.zero = 2' parts.json >bad.json
    run -2 --separate-stderr pprun bad.json --data packed --init 1 --steps 1
    [[ $stderr == *"/mesh/zero: '2' is not 0, 1 or 3" ]]
    run -2 --separate-stderr ppsplit -p 2 --dp 2 --zero 2 model-llama
    [[ $stderr == *"--zero: '2' "* ]]
    run -2 --separate-stderr ppsplit -p 2 --dp 2 --resident 2 model-llama
    [[ $stderr == *"--resident needs --zero 3"* ]]
}

@test "traces have a row of each pipeline rank" {
    plan two 1f1b 3 -p 2 --dp 2
    pprun two.json --data packed --init 1 --steps 3 --trace trace.json
    jq -e '[.traceEvents[] | select(.name == "thread_name")] | length > 2' \
        trace.json
    jq -e '[.traceEvents[] | select(.name == "1REDUCE_GRAD")] | length == 1 and
        .[0].dur > 0' trace.json
    ppsched --overlay trace.json two.json
}

@test "a trace and a timeline show the gatherings" {
    plan parts interleaved 4 -p 2 -c 2 --dp 2 --zero 3 --resident 1
    pprun -q parts.json --data packed --init 1 --steps 3 --trace trace.json \
        >/dev/null
    jq -e '[.traceEvents[] | select(.name == "0UNSHARD")] | length > 1 and
        all(.dur > 0)' trace.json
    ppsched -q --overlay trace.json parts.json
    none=$(ppsched --stats --cost 1,1,1 parts.json | jq .makespan)
    some=$(ppsched --stats --cost 1,1,1 --unshard 0.5 parts.json | jq .makespan)
    jq -ne "$none < $some"
}

@test "the simulation takes the microbatches of the first replica" {
    # Every other bin is short.
    seq 6 | awk '{ printf "{\"input_ids\": [1"
        for (t = 1; t < ($1 % 2 ? 40 : 10); t++) printf ",1"
        print "]}" }' >uneven.jsonl
    sed -n 1~2p uneven.jsonl >long.jsonl
    for name in uneven long; do
        pppack -l 48 -a none --rows 1 --no-shuffle -o $name $name.jsonl
    done
    ppsplit -p 2 --dp 2 model-llama |
        ppsched -s 1f1b -m 3 --data uneven --stats | jq .makespan >first
    ppsplit -p 2 model-llama |
        ppsched -s 1f1b -m 3 --data long --stats | jq .makespan >alone
    cmp first alone
}
