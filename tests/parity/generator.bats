#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# generator - a generator behind a language model with an encoder, in processes,
# and what pprun refuses of it. tests/golden/generator.bats has the numbers.

bats_require_minimum_version 1.5.0
load helpers
load images

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    export D=$SRCDIR/tests/golden/generator/model
    image_lines llava 1 8 >images.jsonl
    jq -c '.generator_ids = [.input_ids[] | . % 7]' images.jsonl >both.jsonl
    pppack -q --image-token 31 --patch 4 --tp 2 --cp 2 -l 48 --bins-multiple 4 \
        -o packed both.jsonl
    pppack -q --image-token 31 --patch 4 -l 48 -o images images.jsonl
    jq -c 'del(.images)' both.jsonl >text.jsonl
    pppack -q -l 48 -o text text.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# generates LANGUAGE GENERATOR [MODEL [SCHEDULE]]: writes plan.json.
generates() {
    # shellcheck disable=SC2086
    ppsplit -q $1 "${3:-$SRCDIR/tests/golden/llava}" >l.json
    # shellcheck disable=SC2086
    ppsplit -q $2 "$D/generator" >g.json
    ppsplit -q --combine language=l.json,generator=g.json |
        ppsched -q -s "${4:-1f1b}" -m 2 >plan.json
}

# verified LANGUAGE GENERATOR: proves a plan of LLaVA with a generator.
verified() {
    generates "$@"
    pprun --verify --init 1 --data packed --dtype fp64 plan.json >table ||
        { echo "$*"; cat table; return 1; }
}

@test "an encoder in front of the language model may be anywhere" {
    verified '-p 1' '-p 1'
    verified '-p 2 --dp 2 --encoder-mesh pp=1,dp=3' '-p 1'
    verified '-p 2 --tp 2 --encoder-mesh pp=1,dp=2' '-p 1 --dp 2'
    verified '-p 1 --dp 2 --tp 2 --encoder-mesh shared,tp=1' \
        '-p 1 --dp 2 --tp 2'
    # The encoder is there, and its gradients depend on the generator's loss.
    grep -q '^generator.connector.weight .*generator ok' table
    grep -q '^multi_modal_projector.linear_1.weight .* ok' table
}

# planned LANGUAGE GENERATOR: the plan has the bytes of pprun, but for its tables.
planned() {
    generates "$@" "$D"
    diff <(ppsched --stats --data aligned plan.json |
            jq -c '.memory[] | del(.tables, .total)') \
        <(pprun -q --init 1 --print-memory --steps 1 --data aligned plan.json |
            jq -c '.[] | del(.tables, .total, .host, .rank, .slots, .ranks,
                .channels, .stacks, .connections, .mapped)') ||
        { echo "$*"; return 1; }
}

@test "plans have its memory and that of the connector" {
    pppack -q --tp 2 --cp 2 -l 48 --bins-multiple 6 -o aligned text.jsonl
    planned '-p 1' '-p 1'
    planned '-p 2 --tp 2' '-p 2 --tp 2'
    planned '-p 1 --dp 3' '-p 2 --dp 3'
    planned '-p 1 --cp 2 --zero 3' '-p 1 --cp 2 --zero 3'
    planned '-p 2 --dp 2' '-p 1'
    planned '-p 1' '-p 1 --tp 2'
    # With more ranks than microbatches one of them may get whole sequences.
    planned '-p 1' '-p 2 --dp 2'
    planned '-p 1 --dp 2' '-p 1 --dp 3 --cp 2'
}

# hashes LANGUAGE GENERATOR [MODEL]: the component and the hash of each rank.
hashes() {
    generates "$@"
    pprun -q --data packed --init 1 --steps 1 --print-metadata-hash plan.json |
        jq -c 'select(.hash) | [.component, .hash]' | sort -u
}

@test "ranks of a generator have a hash of their sequences" {
    # As many ranks for the data as the language model: the same sequences.
    hashes '-p 2 --encoder-mesh dp=2' '-p 1 --tp 2' >got
    [ "$(jq -r '.[0]' got | tr '\n' ' ')" = 'generator language vision ' ]
    [ "$(jq -r '.[1]' got | sort -u | wc -l)" -eq 2 ]
    # Half as many: those of two ranks.
    hashes '-p 2 --dp 2 --cp 2 --encoder-mesh dp=1' '-p 2 --cp 2' >got
    [ "$(jq -r '.[0]' got | tr '\n' ' ')" = 'generator language language vision ' ]
    [ "$(jq -r '.[1]' got | sort -u | wc -l)" -eq 4 ]
}

@test "processes exchange rows as threads do" {
    needs_mpirun
    generates '-p 1 --dp 2' '-p 1' "$D"
    local options=(-q --data text --init 1 --steps 2 --loss generator=0.5)
    pprun "${options[@]}" plan.json >threads
    mpirun --allow-run-as-root --oversubscribe -n 3 \
        pprun --transport mpi "${options[@]}" plan.json >mpi
    [ "$(wc -l <threads)" = 2 ]
    diff <(jq -c '[.loss, .generator_loss, .grad_norm]' threads) \
        <(jq -c '[.loss, .generator_loss, .grad_norm]' mpi)
}

# refuses TEXT ARGS...: pprun fails with status 2 and says it.
refuses() {
    run -2 --separate-stderr pprun --init 1 "${@:2}" plan.json
    [ "${stderr_lines[0]}" = "pprun: $1" ] || { echo "$stderr"; return 1; }
}

@test "a plan with what a generator cannot have is refused by name" {
    local of="plan.json: /components/1: 'generator' is a generator, which \
pprun does not train with"
    generates '-p 1' '-p 1' "$D"
    refuses "$of --profile" --data text --steps 3 --profile p.json
    run -2 --separate-stderr ppscore --init 1 --data text --generate 2 plan.json
    [ "$stderr" = "ppscore: $of --generate" ]
    refuses "$of --message-size max" --data text --steps 1 --message-size max
    refuses 'no data: give --data DIR' --verify --shrink
    generates '-p 1 --cp 2' '-p 1 --cp 2 --cp-exact' "$D"
    refuses "$of ppsplit --cp-exact" --data text --steps 1
    generates '-p 1' '-p 1'
    refuses "images: has no tokens for the generator; pack JSON Lines with \
generator_ids" --data images --steps 1
    ppsplit -q -p 1 "$D" >l.json
    ppsched -q -s 1f1b -m 2 l.json >plan.json
    refuses "plan.json: /components: no generator, so --loss generator has no \
effect; plan with ppsplit --combine" --data text --steps 1 --loss generator=2
    ppsplit -q -p 1 "$SRCDIR/tests/golden/mixtral/model" >g.json
    ppsplit -q --combine language=l.json,generator=g.json |
        ppsched -q -s 1f1b -m 2 >plan.json
    refuses "plan.json: /components/1: '$SRCDIR/tests/golden/mixtral/model' has \
experts, which pprun does not train as a generator" --data text --steps 1
}

@test "sequences may have ranks of their own if both models have the same" {
    pppack -q -l 48 --cp 2 --cp-sizes per-sequence --balance tokens \
        --bins-multiple 2 -o sized text.jsonl
    generates '-p 1 --cp 2' '-p 2 --cp 2' "$D"
    pprun --verify --init 1 --data sized --dtype fp64 plan.json
    generates '-p 1 --cp 2' '-p 1' "$D"
    refuses "sized: sequences have context-parallel ranks of their own, which a \
generator with another mesh cannot follow; pack with pppack --cp-sizes fixed" \
        --data sized --steps 1
}

@test "ranks of the generator exchange keys or heads as its own plan says" {
    # Its three heads do not divide by two ranks.
    mkdir odd
    jq '.num_attention_heads = 3 | .num_key_value_heads = 1' \
        "$D/generator/config.json" >odd/config.json
    ppsplit -q -p 1 --cp 2 --cp-exchange a2a "$D" >l.json
    ppsplit -q -p 1 --cp 2 --cp-exchange ring odd >g.json
    ppsplit -q --combine language=l.json,generator=g.json |
        ppsched -q -s 1f1b -m 2 >plan.json
    pppack -q -l 48 --cp 2 --bins-multiple 4 -o halves text.jsonl
    pprun --verify --init 1 --data halves --dtype fp64 plan.json
    jq '.components[1].mesh.cp_exchange = "a2a"' plan.json >a2a.json
    mv a2a.json plan.json
    refuses "plan.json: /components/1: the model's 3 heads and 1 key and value \
heads do not divide by 2 ranks (cp)" --data halves --steps 1
}

@test "sequences must divide by the generator's ranks" {
    generates '-p 1' '-p 1 --cp 2' "$D"
    run -2 --separate-stderr pprun -q --init 1 --data text --steps 1 plan.json
    [[ ${stderr_lines[0]} == "pprun: text: bin 0: the padded length of sequence \
"*" does not divide by the generator's ranks; pad it anew with pppack \
--realign text --cp 2 --tp 1, or a multiple" ]]
}
