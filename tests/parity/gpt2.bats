#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# gpt2 - a model of other parts: LayerNorm, an MLP without gate, learned
# positions, matrices that files have transposed.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    mkdir model-gpt2
    # 40 positions, as many as the longest sequence has tokens.
    cat >model-gpt2/config.json <<'END'
{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 67,
 "n_embd": 32, "n_layer": 3, "n_head": 4, "n_inner": 56, "n_positions": 40,
 "activation_function": "gelu", "initializer_range": 0.1, "attn_pdrop": 0,
 "embd_pdrop": 0, "resid_pdrop": 0}
END
    { data 1 20; jq -nc '{input_ids: [range(40)]}'; } >data.jsonl
    pppack -q -l 64 --cp 2 --tp 2 -o packed data.jsonl
    ppsplit -q -p 1 model-gpt2 | ppsched -q -s gpipe -m 4 >one.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

@test "splits and recomputation give the same bits" {
    train base one.json
    ppsplit -q -p 2 -c 2 --placement v --recompute selective model-gpt2 |
        ppsched -q -s zbv -m 4 >plan.json
    train zbv plan.json
    same zbv base
    ppsplit -q -p 3 --recompute full model-gpt2 | ppsched -q -s 1f1b -m 4 \
        >plan.json
    train full plan.json
    same full base
}

@test "ranks that divide sequences and tensors, and replicas, add in another order" {
    train base64 one.json --dtype fp64
    ppsplit -q -p 2 --cp 2 --dp 2 model-gpt2 |
        ppsched -q -s 1f1b -m 2 >plan.json
    train ranks plan.json --dtype fp64
    near ranks base64
    for mesh in '--tp 4 --recompute selective' '--tp 2 --cp 2'; do
        rm -rf ranks
        # shellcheck disable=SC2086
        ppsplit -q -p 2 $mesh model-gpt2 |
            ppsched -q -s 1f1b -m 4 >plan.json
        train ranks plan.json --dtype fp64
        near ranks base64
    done
    pprun --verify --shrink plan.json | grep -q '^the same'
}

@test "--verify agrees with slices" {
    ppsplit -q -p 2 model-gpt2 | ppsched -q -s seq1f1b -m 4 --slices 3 \
        >plan.json
    pprun --verify --init 1 --data packed plan.json | tail -n 1 |
        grep -q '^the same: 41 tensors'
}

@test "a resumed run continues with the same bits" {
    ppsplit -q -p 2 model-gpt2 | ppsched -q -s 1f1b -m 4 >plan.json
    local options=(--data packed --lr 1e-2)
    pprun -q plan.json "${options[@]}" --init 5 --steps 4 >whole
    pprun -q plan.json "${options[@]}" --init 5 --steps 2 --save half >/dev/null
    # One rank reads what two wrote.
    pprun -q one.json "${options[@]}" --resume half --steps 4 >rest
    diff <(tail -n 2 whole | jq -c '[.loss, .grad_norm]') \
        <(jq -c '[.loss, .grad_norm]' rest)
}

@test "a sequence that is longer than the positions is refused by name" {
    { data 1 3; jq -nc '{input_ids: [range(41)]}'; } >long.jsonl
    pppack -q -l 50 -o long long.jsonl
    run --separate-stderr pprun one.json --data long --init 1 --steps 1
    [ "$status" -eq 2 ]
    [[ $stderr == "pprun: long: bin "*": sequence "*" has '41' tokens, but the \
model has 40 positions; pack with pppack -l 40 --oversize split" ]]
    pppack -q -l 40 --oversize split -o cut long.jsonl
    pprun -q one.json --data cut --init 1 --steps 1 >log
    # Padding needs no positions.
    pppack -q -l 63 --pad-to 21 -o padded data.jsonl
    pprun -q one.json --data padded --init 1 --steps 1 >log
    [ "$(wc -l <log)" -eq 1 ]
}

@test "a note says that dropout is not applied" {
    mkdir -p dropout
    jq 'del(.attn_pdrop)' model-gpt2/config.json >dropout/config.json
    ppsplit -q -p 1 dropout |
        ppsched -q -s gpipe -m 4 --data packed >dropout.json
    run --separate-stderr pprun dropout.json --data packed --init 1 --steps 1
    [ "$status" -eq 0 ]
    [ "$stderr" = \
        "pprun: 'dropout' asks for dropout by attn_pdrop, which pprun does not apply" ]
}

@test "ranks divide the state of transposed tensors, and any number reads it" {
    mkdir -p model-wide
    jq '.n_embd = 96 | .n_inner = 1500 | .n_layer = 1' \
        model-gpt2/config.json >model-wide/config.json
    for zero in 0 1; do
        ppsplit -q --zero $zero -p 1 --dp 3 model-wide |
            ppsched -q -s 1f1b -m 1 >"zero$zero.json"
        pprun -q "zero$zero.json" --data packed --init 5 --steps 2 --lr 1e-2 \
            --save "zero$zero" >/dev/null
    done
    diff -r zero0 zero1
    pprun -q zero1.json --data packed --resume zero0 --steps 2 --save back
    diff -r zero0 back
}

@test "every kind gives the bits of the same slices on one rank" {
    local kind plan
    ppsplit -q -p 1 model-gpt2 | ppsched -q -s gpipe -m 4 --slices 3 >plan.json
    train slices plan.json
    for plan in '1f1b -p 3' 'zb-h1 -p 3' 'interleaved -p 2 -c 2' \
        'zb-interleaved -p 2 -c 2' 'zbv -p 2 -c 2 --placement v' \
        'v-min -p 2 -c 2 --placement v' 'hanayo -p 2 -c 2 --placement v' \
        'dualpipev -p 2 -c 2 --placement v'; do
        kind=${plan%% *}
        rm -rf sliced
        # shellcheck disable=SC2086
        ppsplit -q ${plan#* } model-gpt2 |
            ppsched -q -s "$kind" -m 4 --slices 3 >plan.json
        train sliced plan.json
        same sliced slices
    done
    ppsplit -q -p 2 --placement both-ways model-gpt2 |
        ppsched -q -s dualpipe -m 4 --slices 3 >plan.json
    pprun --verify --init 1 --data packed plan.json | tail -n 1 |
        grep -q '^the same: '
}
