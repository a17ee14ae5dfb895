#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# verify - pprun --verify where a fault stops it, and where numbers are not finite
# or diverge. faults.rows has a fault of every kind.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    data 1 20 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 3 model-llama |
        ppsched -q -s gpipe -m 5 --depth 2 >three.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# injected FAULT OPTION...: runs the verification with a fault.
injected() {
    run --separate-stderr env PP_INJECT="$1" timeout 200 \
        "$BUILDDIR/tests/parity/pprun_inject" --verify --init 1 "${@:2}"
    echo "status $status: $output $stderr"
}

# Rank 1 receives a gradient and an activation in another order than rank 0 sends
# them. This is right as long as they have channels of their own.
@test "activations and gradients on one channel" {
    data 1 20 | jq -c '.input_ids += [range(12)] |
        {input_ids: .input_ids[:12]}' | pppack -q -l 24 -o even
    ppsplit -q -p 2 -c 2 model-llama |
        ppsched -q -s interleaved -m 4 --depth 2 >straight.json
    sed 's/1RECV_B0 1RECV_F3/1RECV_F3 1RECV_B0/' straight.json >crossed.json
    run ! cmp straight.json crossed.json
    injected none --data even crossed.json
    [ "$status" -eq 0 ]
    injected shared-channel --message-size exchange --data even crossed.json
    [ "$status" -eq 1 ]
    [ -z "$stderr" ]
    [[ ${lines[-1]} == *"stage 1 on rank 1 is the first"*"look at what this stage receives" ]]
}

@test "adapters that take part in the reference" {
    local golden=$SRCDIR/tests/golden
    jq -c 'del(.. | .ref_logprobs?)' "$golden/objectives/dpo.jsonl" |
        pppack -q -l 32 -o pairs
    ppsplit -q -p 2 --lora "$golden/lora/dpo" "$golden/objectives/model" |
        ppsched -q -s 1f1b -m 3 >adapted.json
    adapter_injected() {
        run --separate-stderr env PP_INJECT="$1" timeout 200 \
            "$BUILDDIR/tests/parity/pprun_inject" --verify --data pairs \
            --objective dpo --reference base --adapter "$golden/lora/dpo" adapted.json
        echo "$output $stderr"
    }
    adapter_injected none
    [ "$status" -eq 0 ]
    adapter_injected reference-adapted
    [ "$status" -eq 1 ]
    [[ ${lines[-1]} == *"the outputs of all stages agree and the loss differs:"*"at the columns that the objective reads"* ]]
}

@test "sizes of the previous evaluation" {
    # Smaller bins do not fill the last pass of an evaluation.
    data 2 11 | jq -c '{input_ids: .input_ids[:9]}' | pppack -q -l 24 -o eval
    local how
    for how in planned exchange; do
        injected stale-shapes --data packed --eval eval --message-size $how \
            three.json
        [ "$status" -eq 3 ]
        [[ "$stderr" == "pprun: microbatch 0: rank 1: "*"message from rank 0 "*\
" bytes, "* ]]
    done
}

@test "if fp32 itself diverges, later steps are judged in fp64" {
    # This model is so steep that fp32 diverges within five steps, at any rate.
    model qwen2-steep false
    jq '.initializer_range = 1 | .num_hidden_layers = 10 |
        .hidden_size = 30 | .num_attention_heads = 3 |
        .num_key_value_heads = 1 | del(.head_dim)' \
        model-qwen2-steep/config.json >config
    mv config model-qwen2-steep/config.json
    ppsplit -q -p 3 model-qwen2-steep | ppsched -q -s zb-h1 -m 6 >steep.json
    local said="fp32 rounding errors grow too large"
    for dtype in fp32 fp64; do
        pprun --verify --init 1 --data packed --dtype $dtype steep.json >table
        [ "$(grep -cx "$said" table)" -eq $([ $dtype = fp32 ] && echo 1 ||
            echo 0) ]
    done
    pprun --verify --init 1 --data packed --json steep.json |
        jq -e '.later_steps == "fp64" and .scalars[2].bound < 1e-9 and
            all(.parameters[]; .weights_bound < 1e-6)'
    pprun --verify --init 1 --data packed --json three.json |
        jq -e '.later_steps == "as planned"'
}

@test "non-finite numbers differ, and are null in JSON" {
    PP_INJECT=update-infinite run --separate-stderr \
        "$BUILDDIR/tests/parity/pprun_inject" --verify --shrink --json \
        three.json
    [ "$status" -eq 1 ]
    jq -e '.same == false and .scalars[2].found == null' <<<"$output"
}
