#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit with tensor, context, data and expert parallelism.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    small_llama 2048 >dense.json
    cat >moe.json <<'END'
{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
 "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8,
 "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64,
 "vocab_size": 32000, "num_experts": 16, "num_experts_per_tok": 2,
 "moe_intermediate_size": 256, "max_position_embeddings": 2048}
END
}

@test "one rank of a mesh has its part of operations and bytes" {
    ppsplit -p 2 dense.json >one.json
    ppsplit -p 2 --tp 4 --cp 2 --dp 3 dense.json >mesh.json
    jq -e '.mesh == {"pp": 2, "dp": 3, "tp": 4, "cp": 2, "ep": 1}' mesh.json
    # Operations, activations and messages are divided by tp x cp, but every
    # tensor-parallel rank has two numbers of each row of logits. Parameters are
    # those of the whole unit.
    jq -s -e '
        def part($k): [.[0].model.units[:-1], .[1].model.units[:-1]]
            | transpose | all(((.[0][$k] | arrays) // [.[0][$k]]) as $a |
                ((.[1][$k] | arrays) // [.[1][$k]]) as $b |
                [$a, $b] | transpose | all(.[0] == 8 * .[1]));
        part("fwd_flops") and part("act_bytes") and part("out_bytes") and
        .[0].model.params == .[1].model.params' one.json mesh.json
    # Norms are whole, matrices divided by tp, and moments by dp x cp in blocks
    # of 65536 elements: 13, two of them half, and two norms for 6 ranks.
    ppsplit -p 2 --tp 4 --cp 2 --dp 3 --zero 0 dense.json >whole.json
    n=$((2 * 512 + (2 * 512 * 512 + 2 * 256 * 512 + 3 * 512 * 1536) / 4))
    jq -s -e --argjson n $n 'map(.model.units[1].state_bytes) |
        .[0] == 16 * $n and (((.[1] - 8 * $n) / 8) as $most |
            $most >= $n / 6 and $most <= 4 * 65536)' whole.json mesh.json
    jq -e '.model.units[0] | has("state_bytes") | not' one.json
}

@test "expert-parallel ranks divide the experts" {
    # One rank has the moments of its experts. Those of other tensors are in
    # blocks of 65536 elements, on four ranks.
    ppsplit -p 2 --dp 4 --ep 4 --tp 2 moe.json >mesh.json
    jq -e '.model.units[1] |
        (2 * 512 + 2 * 64 + 16 * 512 +
            (2 * 1024 * 512 + 2 * 512 * 512) / 2) as $dense |
        (16 / 4 * 3 * 256 * 512 / 2) as $experts |
        (.state_bytes - 8 * ($dense + $experts) - 8 * $experts) / 8 |
        . >= $dense / 4 and . <= $dense / 4 + 65536' mesh.json
}

# reduced ARGS...: prints the bytes that REDUCE_GRAD moves to a rank, by a plan
# of one stage in which nothing takes time but bytes.
reduced() {
    ppsplit -p 1 --export fqns moe.json | jq '{format: "pp-profile", version: 1,
        units: [.[0][] | {fqn: ., fwd: [0, 0], input: [0, 0], weight: [0, 0]}],
        messages: {seconds_per_byte: 1, latency: 0}}' >costs.json
    ppsplit -p 1 "$@" --costs costs.json moe.json | makespan gpipe 4
}

@test "gradients of experts are added over fewer ranks" {
    dense=$((2 * 32000 * 512 + 512 + 8 * (2 * 512 + 2 * 64 + 16 * 512 +
        2 * 1024 * 512 + 2 * 512 * 512)))
    experts=$((8 * 16 * 3 * 256 * 512))
    # A rank gets 4 bytes of each parameter from each of n ranks, less its own.
    # With ep 4 no other rank has its experts.
    [ "$(reduced --dp 4)" -eq $((3 * (dense + experts))) ]
    [ "$(reduced --dp 4 --ep 2)" -eq $((3 * dense + experts)) ]
    [ "$(reduced --dp 4 --ep 4)" -eq $((3 * dense)) ]
    [ "$(reduced --dp 2 --cp 2 --ep 4)" -eq $((3 * dense)) ]
    [ "$(reduced --dp 4 --ep 4 --zero 0)" -eq $((6 * dense)) ]
}

@test "ranks have room for rows of experts, up to a limit" {
    # A token has rows at 2 of 16 experts, and all tokens of 4 ranks may come to
    # one.
    act() { jq '.model.units[1].act_bytes[:2] | add' mesh.json; }
    ppsplit -p 2 --dp 4 moe.json >mesh.json
    local one most least
    one=$(act)
    ppsplit -p 2 --dp 4 --ep 4 --expert-limit 4 moe.json >mesh.json
    most=$(act)
    ppsplit -p 2 --dp 4 --ep 4 --expert-limit 1.5 moe.json >mesh.json
    least=$(act)
    jq -e '.mesh.expert_limit == 1.5' mesh.json
    echo "$one $least $most"
    jq -en "$most - $least == 5 * ($least - $one) and $least > $one"
    ppsplit -p 2 --dp 4 --ep 4 moe.json >mesh.json
    jq -en "$(act) - $one == ($least - $one) / 2"
    # Further rounds need room of their own, but less than all rows at once.
    room() { jq '.model.units[1].workspace_bytes[0]' mesh.json; }
    least=$(room)
    ppsplit -p 2 --dp 4 --ep 4 --expert-limit 4 moe.json >mesh.json
    [ "$(room)" -gt "$least" ]
    refuses "--expert-limit: '0.9' is not between 1 and 1e+06" \
        -p 2 --dp 4 --ep 4 --expert-limit 0.9 moe.json
    refuses "a limit of '4.5' times an even share of the rows of experts must be from 1 to 4, the most that may come; see --expert-limit" \
        -p 2 --dp 4 --ep 4 --expert-limit 4.5 moe.json
    refuses "a limit of '3' for rows of experts has no effect without expert-parallel ranks; see --expert-limit" \
        -p 2 --dp 4 --ep 1 --expert-limit 3 moe.json
    refuses "--expert-limit needs --ep" -p 2 --expert-limit 3 moe.json
    jq '.mesh.expert_limit = 0.5' mesh.json >bad.json
    run -2 --separate-stderr ppsched -s 1f1b -m 4 bad.json
    [[ $stderr == *"/mesh/expert_limit: '0.5' is not between 1 and 1e+06"* ]]
}

@test "a capacity of experts lowers the room for their rows" {
    act() { jq '.model.units[1].act_bytes[:2] | add' mesh.json; }
    ppsplit -p 2 --dp 4 --ep 4 --expert-limit 1 moe.json >mesh.json
    local even
    even=$(act)
    # 2 choices of a token, times 0.5, and one to round up.
    ppsplit -p 2 --dp 4 --ep 4 --expert-capacity 0.5 moe.json >mesh.json
    jq -e '.mesh.expert_capacity == 0.5' mesh.json
    [ "$(act)" -eq "$even" ]
    ppsched -q -s 1f1b -m 4 mesh.json | jq -e '.mesh.expert_capacity == 0.5'
    # Two ranks of sequences may send all that is kept to one group of two.
    ppsplit -p 2 --cp 4 --ep 2 --expert-capacity 0.1 moe.json >mesh.json
    two=$(act)
    ppsplit -p 2 --cp 4 --ep 2 --expert-limit 1 moe.json >mesh.json
    [ "$(act)" -eq "$two" ]
    # With padding each of two ranks may send an expert all that it keeps.
    ppsplit -p 2 --cp 2 --dp 2 --ep 4 --expert-capacity 1 --expert-padding \
        --expert-drop probs moe.json >mesh.json
    jq -e '.mesh.expert_padding and .mesh.expert_drop == "probs"' mesh.json
    two=$(act)
    ppsched -q -s 1f1b -m 4 mesh.json >again.json
    jq -e '.mesh.expert_padding and .mesh.expert_drop == "probs"' again.json
    ppsplit -p 2 --cp 2 --dp 2 --ep 4 --expert-limit 2.5 moe.json >mesh.json
    [ "$(act)" -eq "$two" ]
    refuses "a limit of '4.5' times an even share of the rows of experts must be from 1 to 4, the most that may come; see --expert-limit" \
        -p 2 --dp 4 --ep 4 --expert-limit 4.5 --expert-capacity 1 moe.json
    refuses "--expert-drop needs --expert-capacity" -p 2 --expert-drop probs moe.json
    refuses "--expert-padding needs --expert-capacity" -p 2 --expert-padding moe.json
    # With padding up to a row for each expert may come.
    ppsplit -p 2 --dp 2 --ep 2 --expert-capacity 1 --expert-padding \
        --expert-limit 8 moe.json >mesh.json
    jq -e '.mesh.expert_padding and .mesh.expert_limit == 8' mesh.json
    refuses "a limit of '9' times an even share of the rows of experts must be from 1 to 8, the most that may come; see --expert-limit" \
        -p 2 --dp 2 --ep 2 --expert-capacity 1 --expert-padding --expert-limit 9 \
        moe.json
    refuses "padded rows of experts have no effect without expert-parallel ranks; see --expert-padding" \
        -p 2 --expert-capacity 1 --expert-padding moe.json
    refuses "--expert-drop: 'last' is not one of: position, probs" \
        -p 2 --expert-capacity 1 --expert-drop last moe.json
    refuses "--expert-capacity: '0' is not between 0.001 and 1e+06" \
        -p 2 --expert-capacity 0 moe.json
    refuses "the model has no experts for a capacity of '1.25'; see --expert-capacity" \
        -p 2 --expert-capacity 1.25 "$SRCDIR/tests/golden/llama/model"
    jq '.mesh.expert_capacity = 0' mesh.json >bad.json
    run -2 --separate-stderr ppsched -s 1f1b -m 4 bad.json
    echo "$stderr"
    [[ $stderr == *"/mesh/expert_capacity: '0' is not between 0.001 and 1e+06"* ]]
}

@test "experts folded over tp are whole" {
    ppsplit -p 2 --dp 2 --ep 4 --tp 2 --experts-over-tp moe.json >mesh.json
    jq -e '.mesh.experts_over_tp and (.model.units[1] |
        (2 * 512 + 2 * 64 + 16 * 512 +
            (2 * 1024 * 512 + 2 * 512 * 512) / 2) as $dense |
        (16 / 4 * 3 * 256 * 512) as $experts |
        # Two owners have half the blocks of the four matrices each; one has the
        # router, a norm of the hidden size and a norm of heads.
        ((2 * 1024 * 512 + 2 * 512 * 512) / 4 + 16 * 512 + 512 + 64)
            as $owned |
        .state_bytes == 8 * ($dense + $experts) + 8 * ($owned + $experts))' \
        mesh.json
    refuses "dp x cp x tp is 4 ranks, which do not divide by 8 expert-parallel ranks; see --ep" \
        -p 2 --dp 2 --ep 8 --tp 2 --experts-over-tp moe.json
}

@test "the order of the axes is in the manifest, and in a component's mesh" {
    ppsplit -p 2 --dp 2 --mesh-order tp-cp-pp-dp dense.json >mesh.json
    jq -e '.mesh.order == "tp-cp-pp-dp"' mesh.json
    ppsched -s 1f1b -m 4 mesh.json >plan.json
    jq -e ".mesh.order == \"tp-cp-pp-dp\"" plan.json
    refuses "--mesh-order: 'tp-dp' is not an order of tp, cp, dp and pp, such as 'tp-cp-dp-pp'" \
        -p 2 --mesh-order tp-dp dense.json
    jq '.mesh.order = "pp"' mesh.json >bad.json
    run -2 --separate-stderr ppsched -s 1f1b -m 4 bad.json
    [[ $stderr == *"/mesh/order: 'pp' is not an order of tp, cp, dp and pp"* ]]
}

@test "the default length is one that the ranks divide" {
    run -0 --separate-stderr ppsplit -p 2 --cp 3 dense.json
    [ "$(jq .microbatch.seq_len <<<"$output")" -eq 2052 ]
    [[ $stderr == *"ppsplit: the plan is for sequences of 2052 tokens, as the \
ranks cannot divide 2048: it is not a multiple of 6"* ]]
    run -0 --separate-stderr ppsplit -p 2 --cp 2 --tp 2 dense.json
    [[ $stderr != *"the plan is for sequences"* ]]
}

@test "a mesh that does not divide the model is refused" {
    refuses "the model's 16 heads do not divide by 3 tensor-parallel ranks; try --tp 2" \
        -p 2 --tp 3 dense.json
    refuses "the model's 16 heads do not divide by 24 tensor-parallel ranks; try --tp 16" \
        -p 2 --tp 24 dense.json
    refuses "the model has no experts for 2 expert-parallel ranks; try --ep 1" \
        -p 2 --dp 2 --ep 2 dense.json
    refuses "dp x cp is 2 ranks, which do not divide by 4 expert-parallel ranks; see --ep" \
        -p 2 --dp 2 --ep 4 moe.json
    refuses "the sequence length 1002 is not a multiple of 8 (2 x cp x tp); try --seq-len 1008" \
        -p 2 --tp 2 --cp 2 --seq-len 1002 dense.json
    refuses "--dp: '0' is not between 1 and 65536" -p 2 --dp 0 dense.json
}

@test "ppsched counts the same memory" {
    # The least limit that ppsplit accepts is also the least for ppsched.
    for mesh in '--tp 2 --dp 3' '--cp 2 --dp 2' '--tp 4 --cp 2'; do
        # shellcheck disable=SC2086
        most=$(least_limit -p 3 $mesh --method uniform --schedule 1f1b -m 6 \
            dense.json)
        echo "$mesh: $most MiB"
        # shellcheck disable=SC2086
        ppsplit -p 3 $mesh --method uniform dense.json >plan.json
        ppsched -s 1f1b -m 6 --memory "${most}M" plan.json >/dev/null
        run -1 ppsched -s 1f1b -m 6 --memory $((most - 1))M plan.json
    done
}

@test "the message names the least sufficient number of data-parallel ranks" {
    run --separate-stderr ppsplit -p 2 --memory 400M --seq-len 64 dense.json
    echo "$stderr"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *'it would fit with '*'--dp '*' (ZeRO-1)'* ]]
    dp=${stderr##*--dp }
    dp=${dp%% *}
    ppsplit -p 2 --memory 400M --seq-len 64 --dp "$dp" dense.json >/dev/null
    run -1 ppsplit -p 2 --memory 400M --seq-len 64 --dp $((dp - 1)) dense.json
}

@test "the message names no way that would not help" {
    # Ranks that divide the weights divide the state of the optimizer already.
    run --separate-stderr ppsplit -p 2 -c 2 --dp 2 --zero 3 --memory 400M \
        --seq-len 64 dense.json
    echo "$stderr"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *'it would fit with '* && "$stderr" != *ZeRO-1* ]]
}

@test "the table shows the size of a pipeline rank" {
    ppsplit -p 2 --tp 2 --dp 4 --dtype bf16 -t dense.json >table
    cat table
    grep -q 'Each pipeline rank is a group of dp 4 x tp 2 x cp 1 ranks; 16 in all' table
    # Master weights and two moments of 4 bytes, divided by 4 ranks; weights of
    # 2 bytes. One of 4 ranks has 8 of the 24 blocks of a layer.
    awk '$1 == "0" && NF == 9 { sub("M", "", $2); sub("M", "", $4)
        exit $4 / $2 < 1.5 || $4 / $2 > 2 }' table
}
