#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit --recompute: a mode for each stage, from a list or as little as fits
# into memory.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    mkdir -p m
    llama 5 64000 >m/config.json
}

modes() { jq -c '[.stages[] | .recompute // "none"]' "$@"; }

@test "a list gives a mode for each stage" {
    ppsplit -p 3 --recompute full,selective,none m >mixed.json
    [ "$(modes mixed.json)" = '["full","selective","none"]' ]
    jq -e '.model.units[1].recompute | keys == ["full", "selective"]' mixed.json
    # A stage without a decoder layer recomputes nothing.
    ppsplit -p 2 --layers 5,0 --recompute none,full m >none.json
    [ "$(modes none.json)" = '["none","none"]' ]
    # Both copies of a stage have the same mode.
    ppsplit -p 2 --placement both-ways --recompute full,none m >both.json
    [ "$(modes both.json)" = '["full","none","full","none"]' ]
    ppsplit -p 3 --recompute full,selective,none -t m |
        grep -qx 'Recomputation: stage 0: full, stage 1: selective, stage 2: none.'
    ppsplit -p 3 --recompute full,none,none -t m |
        grep -qx 'Recomputation: stage 0: full, stages 1-2: none.'
}

@test "parts are written as sets, and cost what they add" {
    ppsplit -p 2 --layers 3,2 --recompute norms+mlp,mlp_act+attention m >parts.json
    [ "$(modes parts.json)" = '["mlp+norms","attention+mlp_act"]' ]
    ppsplit -p 2 --layers 3,2 --recompute mlp_act+attention+norms+expert_act,norms+selective m \
        >same.json
    [ "$(modes same.json)" = '["selective","selective"]' ]
    # Operations of sets add up; norms and activations have none.
    for set in full qkv attention outputs mlp norms+mlp_act; do
        ppsplit -p 1 --recompute $set m |
            jq -c --arg set "$set" '[$set] + .stages[0].again_flops'
    done | jq -es '(map({(.[0]): .[1:]}) | add) as $x
        | ([$x.qkv, $x.attention, $x.outputs, $x.mlp] | transpose | map(add))
        == $x.full and $x["norms+mlp_act"] == [0, 0]
        and $x.attention[0] == 0 and $x.mlp == [5 * 2 * 1024 * 2 * 4096, 0]
        and $x.outputs[0] == 5 * 2 * 1024 * 1024
        and $x.qkv[0] == 5 * 2 * 1024 * 12 * 128'
    ppsplit -p 2 --layers 3,2 --recompute norms+mlp,mlp_act+attention -t m |
        grep -qx 'Recomputation: stage 0: mlp+norms, stage 1: attention+mlp_act.'
    refuses "--recompute: stages have more than 8 sets" -p 1 -c 9 --layers \
        1,1,1,1,1,0,0,0,0 --recompute \
        norms,qkv,mlp,mlp_act,attention,outputs,latent,experts,selective m
}

@test "the simulator adds to each stage what that stage recomputes" {
    time_of() { makespan gpipe 1 --seq-len 64 "$1"; }
    ppsplit -p 3 --layers 2,2,1 m >none.json
    ppsplit -p 3 --layers 2,2,1 --recompute full,none,selective m >mixed.json
    jq -e "[.stages[] | .again_flops // [0, 0] | .[0] * 64 + .[1] * 64 * 65 / 2]
        | .[0] > .[2] and .[1] == 0 and .[2] > 0
        and add == $(time_of mixed.json) - $(time_of none.json)" mixed.json
}

# shortest KIND M P C LIMIT [PLACEMENT]: prints the shortest step of all splits
# and lists that fit.
shortest() {
    local kind=$1 m=$2 p=$3 c=$4 limit=$5 list lists=
    shift 5
    lists=$(jq -nr --argjson n $((p * c)) '["none", "norms+mlp_act+expert_act", "selective", "full"] as $m
        | [limit($n; repeat($m))] | [combinations] | .[] | join(",")')
    splits $((p * c)) m | while read -r split; do
        echo "$split" >split.json
        for list in $lists; do
            ppsplit -q -p "$p" -c "$c" --schedule "$kind" -m "$m" --memory \
                "$limit" --fqns split.json --recompute "$list" "$@" m \
                2>/dev/null >one.json || continue
            makespan "$kind" "$m" one.json
        done
    done | jq -s 'min'
}

@test "no split with any recomputation that fits beats auto" {
    local kind m p c limit place
    for t in '1f1b 4 2 1 2700M' '1f1b 4 2 1 3500M' 'zb-h1 3 2 1 4G'; do
        read -r kind m p c limit place <<<"$t"
        # shellcheck disable=SC2086 # options
        want=$(shortest "$kind" "$m" "$p" "$c" "$limit" $place)
        # shellcheck disable=SC2086 # options
        ppsplit -p "$p" -c "$c" --schedule "$kind" -m "$m" --memory "$limit" \
            --recompute auto $place m >auto.json
        got=$(makespan "$kind" "$m" auto.json)
        echo "$t: $got, not $want, $(modes auto.json)"
        holds "$got == $want"
        ppsched -q -s "$kind" -m "$m" --memory "$limit" auto.json >/dev/null
    done
}

@test "auto recomputes more with less memory, and nothing if all fits" {
    last=0
    for limit in 80G 4G 3G 2500M; do
        ppsplit -p 2 -m 4 --recompute auto --memory $limit m >auto.json
        step=$(makespan 1f1b 4 auto.json)
        holds "$step >= $last"
        last=$step
        echo "$limit: $(modes auto.json)" >>all
    done
    cat all
    [ "$(head -n 1 all)" = '80G: ["none","none"]' ]
    [ "$(tail -n 1 all)" = '2500M: ["full","none"]' ]
    run --separate-stderr ppsplit -p 2 -m 4 --recompute auto --memory 2G m
    [ "$status" -eq 1 ]
    [[ "$stderr" == *'more than the limit of'* ]]
    # auto tried all modes, so the message suggests none.
    [[ "$stderr" != *--recompute* ]]
}

@test "auto keeps a given split, and says how good it is" {
    ppsplit -p 2 --layers 4,1 -m 4 --recompute auto --memory 3G -v m \
        2>said >auto.json
    jq -e '[.stages[].units | length] == [5, 3]' auto.json
    [ "$(modes auto.json)" != '["none","none"]' ]
    step=$(makespan 1f1b 4 auto.json)
    grep -q 'recomputation: a step of .* flop, at least .* for this split' said
    for list in none,none none,selective selective,none selective,selective \
        full,none none,full full,selective selective,full full,full; do
        ppsplit -p 2 --layers 4,1 -m 4 --recompute $list --memory 3G m \
            >list.json 2>/dev/null || continue
        other=$(makespan 1f1b 4 list.json)
        holds "$step <= $other"
    done
}

@test "auto never chooses full recomputation for slices" {
    n=0
    for limit in 4G 2800M 2600M 2G; do
        ppsplit -q -p 2 --schedule seq1f1b -m 4 --recompute auto --memory $limit m \
            >auto.json || continue
        modes auto.json
        ppsched -q -s seq1f1b -m 4 auto.json >/dev/null
        n=$((n + $(grep -c '"recompute": "norms+mlp_act+expert_act"' auto.json || true)))
    done
    [ "$n" -gt 0 ]
    # A stage that recomputes keys and values keeps none for later slices.
    local what='seq1f1b divides sequences into 2 slices, and a stage that
recomputes keys and values keeps none for later ones; try --recompute
selective'
    refuses "${what//$'\n'/ }" -p 2 --schedule seq1f1b -m 4 --recompute full m
    refuses "${what//$'\n'/ }" -p 2 --schedule seq1f1b -m 4 --recompute none,full m
    refuses "${what//$'\n'/ }" -p 2 --schedule seq1f1b -m 4 --recompute qkv m
    ppsplit -q -p 2 --schedule seq1f1b -m 4 --recompute norms+outputs+mlp m
    ppsplit -q -p 2 --compare seq1f1b,1f1b -m 4 --recompute full m |
        grep -q '^seq1f1b *cannot run: seq1f1b divides'
    # In full it fits without slices, but is no remedy for them.
    ppsplit -q -p 2 --schedule 1f1b -m 4 --recompute full --memory 1850K \
        "$SRCDIR/tests/golden/llama/model" >one.json
    run -1 --separate-stderr ppsplit -q -p 2 --schedule seq1f1b -m 4 \
        --memory 1850K "$SRCDIR/tests/golden/llama/model"
    [[ $stderr == *' or more ranks alone are not enough' ]]
}

@test "a list that is wrong is refused" {
    local of="is not one of: none, selective, full, norms, attention, qkv, \
latent, outputs, mlp_act, mlp, expert_act, experts"
    refuses "--recompute: 'some' $of" -p 2 --recompute none,some m
    refuses "--recompute: '' $of" -p 2 --recompute none, m
    refuses "--recompute: '' $of" -p 2 --recompute norms+ m
    refuses "--recompute: 'auto' $of" \
        -p 2 --recompute none,auto m
    refuses "--recompute: 'none,full,none' is for 3 stages, not 2" \
        -p 2 --recompute none,full,none m
    refuses "--recompute auto needs --memory or --gpu" -p 2 --recompute auto m
}
