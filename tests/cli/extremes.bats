#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The largest numbers that tables and manifests may hold, and zeros. The tools
# plan with them or refuse them. The sanitizers of scripts/test find conversions
# that overflow.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
    jq -n '{format: "pp-units", version: 1, architecture: "A", units: [
        {fqn: "e", kind: "embedding", out_bytes: 1e30},
        {fqn: "l.0", class: "T", out_bytes: 1e30},
        {fqn: "l.1", class: "T", out_bytes: 1e30},
        {fqn: "h", kind: "head", out_bytes: 0}]
        | map(. + {params: 1000000000000, fwd_flops: [1e30, 1e30],
            act_bytes: [1e30, 1e30, 1e30]})}' >most.json
    jq '.units[] |= (.params = 0 | .fwd_flops = [0, 0] | .act_bytes = [0, 0, 0]
        | .out_bytes = 0)' most.json >least.json
    jq -n '{format: "pp-manifest", version: 1, mesh: {pp: 2}, stages: [
        range(2) | {stage: ., rank: ., params: 1000000000000,
            fwd_flops: [1e30, 1e30], act_bytes: [1e30, 1e30, 1e30],
            out_bytes: 1e30}]}' >stages.json
}

# plans COMMAND...: it plans, or refuses in one line of its own.
plans() {
    run --separate-stderr timeout 100 "$@"
    echo "$*: status $status: $stderr"
    [ "$status" -le 3 ]
    [[ "$stderr" != *"runtime error"* ]]
    [ "$status" -eq 0 ] || [[ "$stderr" == "pps"*": "* ]]
}

@test "the inputs are well-formed" {
    # Sums of two units are beyond what a manifest holds.
    ppsplit -q -p 4 --units most.json | jq -e '.stages[1].params == 1e12' >ok
    # Their buffers are beyond any memory.
    run -3 --separate-stderr ppsched -q -s 1f1b -m 4 --stats stages.json
    [ "$stderr" = 'ppsched: buffers are too large' ]
}

@test "ppsplit with the largest and the smallest units" {
    local units more
    for units in most least; do
        for more in '-q' '-t' '--memory 80GiB' '--memory 80GiB -t' \
            '-s 1f1b -m 8 -t' '-s zb-h1 -m 4' '--method uniform -t' \
            '--method parameters -t' '-q --seq-len 16777216'; do
            # shellcheck disable=SC2086 # words
            plans ppsplit -p 2 $more --units $units.json
        done
    done
}

@test "ppsched with the largest stages" {
    local more
    for more in '--stats' '-t' '--check --svg p.svg --trace t.json' \
        '--memory 80GiB' '--memory 80GiB --compare all' \
        '--cost 1e30,1e30,1e30,1e30 -t' '--comm 1e30 --stats'; do
        [[ $more == *compare* ]] || more="-s 1f1b $more"
        # shellcheck disable=SC2086 # words
        plans ppsched -q -m 4 $more stages.json
    done
}

# A reader of text stops at the first byte that cannot belong.
@test "an input without an end is refused, with one line and little memory" {
    cd "$BATS_TEST_TMPDIR"
    echo '{"input_ids": [1, 2]}' >data
    pppack -q -l 8 -o packed data
    mkfifo fifo
    # A sanitizer needs much address space, and a build with one has no such file.
    local source command most=unlimited
    [ -z "${CUT_MAPPED-}" ] || most=400000
    local train='pprun --data packed --steps 1 --init 1'
    for source in 'cat /dev/zero' yes 'yes {' 'yes [' 'yes [0,'; do
        for command in 'ppsched -s 1f1b -m 4' 'ppsplit -t' "$train" \
            "$train --transport mpi" 'pppack -q -l 8 --manifest - -o out data' \
            'pppack -q -l 8 -o out' 'pppack -q -l 8 --lengths' \
            'pppack -q -l 8 -o out --add-column logprobs=fifo data' \
            'pprun --objective-cases -'; do
            if [[ $command = *fifo* ]]; then
                $source >fifo 2>/dev/null &
            fi
            # shellcheck disable=SC2086
            run --separate-stderr bash -c 'ulimit -v $3
                $1 2>/dev/null | timeout 20 $2' - "$source" "$command" "$most"
            echo "$source | $command: $status: $stderr"
            [[ $stderr != *'built without MPI'* ]] || continue
            [ "$status" -eq 2 ]
            [ "${#stderr_lines[@]}" -eq 1 ]
            [[ $stderr != *memory* ]]
            [ ! -e out ]
        done
    done
    run -2 --separate-stderr ppsched --csv - </dev/zero
    [ "$stderr" = 'ppsched: standard input: has a zero byte' ]
    run -2 --separate-stderr bash -c 'yes 2>/dev/null | timeout 60 ppsched --csv -'
    [ "$stderr" = 'ppsched: standard input: has more than 16777216 lines' ]
}

@test "an empty standard input is one short line" {
    local command
    while read -r command; do
        run -2 --separate-stderr $command </dev/null
        echo "$command: $stderr"
        [ "$stderr" = "${command%% *}: standard input: is empty; the program before it wrote nothing" ]
    done <<'END'
ppsplit -t
ppsched -s 1f1b -m 2
ppsched --check
ppsched --check --csv -
pppack -l 8 -o out
pppack -l 8 --lengths
pppack -l 8 --manifest - -o out most.json
pprun --print-memory
pprun --objective-cases -
END
}

@test "a file that is read as a whole is a regular file" {
    local bad command file
    printf '{"input_ids": [9, 1], "images": ["in.npy"]}\n' >images
    jq -n '{architectures: ["LlamaForCausalLM"], model_type: "llama",
        hidden_size: 8, intermediate_size: 8, num_hidden_layers: 2,
        num_attention_heads: 2, vocab_size: 67, rms_norm_eps: 1e-6}' >config.json
    ppsplit -q -p 2 config.json | ppsched -q -s 1f1b -m 2 -o plan.json
    pppack -q -l 8 -o packed - <<<'{"input_ids": [1, 2]}'
    mkfifo fifo
    mkdir dir in
    touch in.bin
    local train='pprun plan.json --steps 1'
    for bad in /dev/zero dir fifo; do
        for file in in.idx in.npy in/index in/config.json \
            in/model.safetensors.index.json; do
            ln -sfn "$(realpath "$bad")" $file
        done
        for command in "ppsplit -p 2 $bad" "ppsplit -p 2 --units $bad" \
            "ppsplit -p 2 --costs $bad config.json" \
            "ppsplit -p 2 --fqns $bad config.json" \
            "ppsched plan.json --overlay $bad" "pppack -l 8 -o out in.idx" \
            "pppack -l 8 -o out in.npy" "pppack -o out --export megatron $bad" \
            "pppack -l 8 --image-token 9 --patch 1 -o out images" \
            "$train --data packed --weights $bad" "$train --init 1 --data $bad" \
            "ppsplit -p 2 in" "pppack -l 8 --stats in" "$train --init 1 --data in" \
            "$train --data packed --weights in"; do
            run --separate-stderr timeout 20 $command
            echo "$command: $status: $stderr"
            [ "$status" -eq 2 ]
            [ "${#stderr_lines[@]}" -eq 1 ]
        done
    done
}

@test "files and directories of other programs are named" {
    local first file what of
    while IFS='|' read -r file first what; do
        # shellcheck disable=SC2059 # bytes in octal
        printf "$first\1\1\1\1\1\1\1\1" >"$file"
        for reader in 'pppack -l 8 --stats' 'ppsplit -p 2' 'ppsched -s 1f1b -m 2' \
            'ppsched --check --csv' 'pprun --print-memory'; do
            run -2 --separate-stderr $reader "$file"
            echo "$reader: $stderr"
            [[ $stderr == *": "*"is $what" && $stderr != *$'\n'* ]]
        done
    done <<'END'
m.gguf|GGUF|a GGUF file; take the model's own safetensors
t.parquet|PAR1|a Parquet table; scripts/tokenize reads it
t.arrow|ARROW1|an Arrow table; scripts/tokenize reads it
m.pkl|\200\2|a pickle of PyTorch (.pt, .bin); save the model as safetensors with save_pretrained
m.pt|PK\3\4|a zip file of PyTorch (.pt, .bin, .distcp); save the model as safetensors with save_pretrained
d.jsonl.gz|\037\213|compressed; read what zcat prints
END
    mkdir adapter parts none
    echo '{}' >adapter/adapter_config.json
    touch parts/.metadata
    run -2 --separate-stderr ppsplit -p 2 adapter
    [ "$stderr" = 'ppsplit: adapter: is an adapter; merge it into its model with peft (merge_and_unload) and save that' ]
    run -2 --separate-stderr ppsplit -p 2 parts
    [ "$stderr" = 'ppsplit: parts: is a checkpoint of torch.distributed (.distcp); save the model as safetensors with save_pretrained' ]
    for of in "none: is no packed directory; pppack makes one of documents" \
        "t.parquet: is a Parquet table; scripts/tokenize reads it" \
        "parts: is a checkpoint of torch.distributed (.distcp); save the model as safetensors with save_pretrained" \
        "absent/index: No such file or directory"; do
        run -2 --separate-stderr pppack --check "${of%%[/:]*}"
        [ "$stderr" = "pppack: $of" ]
    done
    yes '{"input_ids":[1,2,3]}' | head -n 30 >lines.jsonl
    printf '# A page\n\nof text, as it is.\n' >page.md
    for of in "lines.jsonl:1:1: rank 0, cell 0: '{\"input_ids\":[1'" \
        "page.md:1:1: rank 0, cell 0: '# A page'"; do
        run -2 --separate-stderr ppsched --check --csv "${of%%:*}"
        [ "$stderr" = "ppsched: $of is not an action; the file has none, such as '0F0'" ]
    done
}
