#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit --recompute: what each stage makes again, by a list, or as little as
# fits into memory.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
    mkdir -p m
    cat >m/config.json <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 5,
 "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
 "vocab_size": 64000, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "hidden_act": "silu", "max_position_embeddings": 2048,
 "tie_word_embeddings": false}
END
}

modes() { jq -c '[.stages[] | .recompute // "none"]' "$@"; }

# refuses STATUS MESSAGE ARGS...
refuses() {
    local want=$1 message=$2
    shift 2
    run --separate-stderr ppsplit "$@" m
    echo "status $status: $stderr"
    [ "$status" -eq "$want" ]
    [ -z "$output" ]
    # shellcheck disable=SC2053
    [[ "${stderr_lines[0]}" == "ppsplit: "$message ]]
}

@test "a list says it by stage" {
    ppsplit -p 3 --recompute full,selective,none m >mixed.json
    [ "$(modes mixed.json)" = '["full","selective","none"]' ]
    jq -e '.model.units[1].recompute | keys == ["full", "selective"]' mixed.json
    # A stage without a decoder layer has nothing to make again.
    ppsplit -p 2 --layers 5,0 --recompute none,full m >none.json
    [ "$(modes none.json)" = '["none","none"]' ]
    # Both copies of a stage make the same again.
    ppsplit -p 2 --placement both-ways --recompute full,none m >both.json
    [ "$(modes both.json)" = '["full","none","full","none"]' ]
    ppsplit -p 3 --recompute full,selective,none -t m |
        grep -qx 'Stages 0, 1, ... recompute: full, selective, none.'
}

@test "the simulator adds to each stage what that stage makes again" {
    time_of() { ppsched -s gpipe -m 1 --seq-len 64 --stats "$1" | jq .makespan; }
    ppsplit -p 3 --layers 2,2,1 m >none.json
    ppsplit -p 3 --layers 2,2,1 --recompute full,none,selective m >mixed.json
    jq -e "[.stages[] | .again_flops // [0, 0] | .[0] * 64 + .[1] * 64 * 65 / 2]
        | .[0] > .[2] and .[1] == 0 and .[2] > 0
        and add == $(time_of mixed.json) - $(time_of none.json)" mixed.json
}

# shortest KIND M P C LIMIT [PLACEMENT]: of all splits and lists that fit.
shortest() {
    local kind=$1 m=$2 p=$3 c=$4 limit=$5 list lists=
    shift 5
    ppsplit -p 1 --export fqns m >all.json
    lists=$(jq -nr --argjson n $((p * c)) '["none", "selective", "full"] as $m
        | [limit($n; repeat($m))] | [combinations] | .[] | join(",")')
    jq -c --argjson n $((p * c)) '.[0] as $u | ($u | length) as $k
        | def cut($from; $left): if $left == 1 then [[$u[$from:]]] else
            [range($from + 1; $k - $left + 2) as $to
             | cut($to; $left - 1)[] | [$u[$from:$to]] + .] end;
        cut(0; $n)[]' all.json |
        while read -r split; do
            echo "$split" >split.json
            for list in $lists; do
                ppsplit -q -p "$p" -c "$c" --for "$kind" -m "$m" --memory \
                    "$limit" --fqns split.json --recompute "$list" "$@" m \
                    2>/dev/null >one.json || continue
                ppsched -s "$kind" -m "$m" --seq-len 2048 --stats one.json |
                    jq .makespan
            done
        done | jq -s 'min'
}

@test "auto: no split with any recomputation that fits has a shorter step" {
    local kind m p c limit place
    for t in '1f1b 4 2 1 2700M' '1f1b 4 2 1 3500M' 'zb-h1 3 2 1 4G'; do
        read -r kind m p c limit place <<<"$t"
        # shellcheck disable=SC2086 # options
        want=$(shortest "$kind" "$m" "$p" "$c" "$limit" $place)
        # shellcheck disable=SC2086 # options
        ppsplit -p "$p" -c "$c" --for "$kind" -m "$m" --memory "$limit" \
            --recompute auto $place m >auto.json
        got=$(ppsched -s "$kind" -m "$m" --seq-len 2048 --stats auto.json |
            jq .makespan)
        echo "$t: $got, not $want, $(modes auto.json)"
        jq -ne "$got == $want"
        ppsched -q -s "$kind" -m "$m" --seq-len 2048 --memory "$limit" \
            auto.json >/dev/null
    done
}

@test "auto: less memory, more recomputation; none where all fits" {
    last=0
    for limit in 80G 4G 3G 2500M; do
        ppsplit -p 2 -m 4 --recompute auto --memory $limit m >auto.json
        step=$(ppsched -s 1f1b -m 4 --seq-len 2048 --stats auto.json |
            jq .makespan)
        jq -ne "$step >= $last"
        last=$step
        echo "$limit: $(modes auto.json)" >>all
    done
    cat all
    [ "$(head -n 1 all)" = '80G: ["none","none"]' ]
    [ "$(tail -n 1 all)" = '2500M: ["full","none"]' ]
    refuses 1 '*more than the limit of*' -p 2 -m 4 --recompute auto \
        --memory 2G
    # All of it was tried: it is not among what would help.
    [[ "$stderr" != *--recompute* ]]
}

@test "auto keeps to a split that is given, and says how good it is" {
    ppsplit -p 2 --layers 4,1 -m 4 --recompute auto --memory 3500M -v m \
        2>said >auto.json
    jq -e '[.stages[].units | length] == [5, 3]' auto.json
    [ "$(modes auto.json)" != '["none","none"]' ]
    step=$(ppsched -s 1f1b -m 4 --seq-len 2048 --stats auto.json | jq .makespan)
    grep -q 'recomputation: a step of .* flop, at least .* for this split' said
    for list in none,none none,selective selective,none selective,selective \
        full,none none,full full,selective selective,full full,full; do
        ppsplit -p 2 --layers 4,1 -m 4 --recompute $list --memory 3500M m \
            >list.json 2>/dev/null || continue
        other=$(ppsched -s 1f1b -m 4 --seq-len 2048 --stats list.json |
            jq .makespan)
        jq -ne "$step <= $other"
    done
}

@test "auto never chooses what slices cannot have" {
    n=0
    for limit in 4G 2800M 2600M 2G; do
        ppsplit -q -p 2 --for seq1f1b -m 4 --recompute auto --memory $limit m \
            >auto.json || continue
        modes auto.json
        ppsched -q -s seq1f1b -m 4 auto.json >/dev/null
        n=$((n + $(grep -c '"recompute": "selective"' auto.json || true)))
    done
    [ "$n" -gt 0 ]
}

@test "what is no list" {
    refuses 2 "--recompute: 'some' is not one of: none, selective, full" -p 2 --recompute none,some
    refuses 2 "--recompute: '' is not one of: none, selective, full" -p 2 --recompute none,
    refuses 2 "--recompute: 'auto' is not one of: none, selective, full" -p 2 --recompute none,auto
    refuses 2 "--recompute: 'none,full,none' is for 3 stages, not 2" \
        -p 2 --recompute none,full,none
    refuses 2 "--recompute auto needs --memory" -p 2 --recompute auto
}
