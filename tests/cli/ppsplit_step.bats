#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit at the command line: the split with the shortest step, within memory,
# for ranks of different speed and at measured costs.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    mkdir -p m
    llama 5 64000 >m/config.json
}

# step KIND M [ARGS...]: prints the step of the plan.
step() {
    local kind=$1 m=$2
    shift 2
    ppsplit "$@" m | makespan "$kind" "$m"
}

# shortest KIND M P C [ARGS...]: prints the shortest step of all splits.
shortest() {
    local kind=$1 m=$2 p=$3 c=$4
    shift 4
    splits $((p * c)) m | while read -r split; do
        echo "$split" >split.json
        step "$kind" "$m" -p "$p" -c "$c" --fqns split.json "$@"
    done | jq -s min
}

@test "no split has a shorter step" {
    for t in '1f1b 3 3 1' 'zb-h1 5 3 1' 'interleaved 4 2 2' \
        'zbv 5 2 2 --placement v' 'seq1f1b 3 3 1'; do
        read -r kind m p c place <<<"$t"
        # shellcheck disable=SC2086 # options
        want=$(shortest "$kind" "$m" "$p" "$c" $place)
        # shellcheck disable=SC2086 # options
        got=$(step "$kind" "$m" --schedule "$kind" -m "$m" -p "$p" -c "$c" \
            $place)
        echo "$t: $got, not $want"
        [ "$got" = "$want" ]
    done
}

@test "the bound is near if the optimum cannot be proved" {
    # gap PERCENT ARGS...: passes if the gap for that many layers, on that many
    # ranks, is at most that.
    local layers=317 ranks=16
    gap() {
        local most=$1
        shift
        jq ".num_hidden_layers = $layers" m/config.json >large.json
        run -0 --separate-stderr ppsplit -v -p $ranks -m 64 "$@" large.json
        [[ "$stderr" =~ gap\ ([0-9.]+)\ % ]]
        echo "$layers layers, $ranks ranks, $*: ${BASH_REMATCH[1]} %"
        holds "${BASH_REMATCH[1]} <= $most"
    }
    gap 0.1
    gap 2 --schedule zb-h2
    gap 5 --schedule gpipe
    gap 3.5 -c 2
    gap 7 -c 2 --placement v
    layers=1000 ranks=64
    gap 15 -c 4
    # A head that takes as long as four layers cannot be divided.
    layers=48 ranks=8
    jq '.vocab_size = 85000 | .hidden_size = 1024 | .head_dim = 128 |
        .intermediate_size = 4096' m/config.json >wide.json
    mv wide.json m/config.json
    gap 4 -c 2 --seq-len 1024
}

@test "no rule of another system has a shorter step" {
    for p in 2 3; do
        best=$(step 1f1b 8 -p $p -m 8)
        for method in uniform weights parameters colossalai \
            type:decoderlayer; do
            other=$(step 1f1b 8 -p $p --method $method)
            echo "$method on $p ranks: $other"
            holds "$best <= $other"
        done
    done
}

@test "ppsched accepts the plan at the limit that ppsplit kept to" {
    # gpipe needs most memory because it keeps all microbatches.
    for kind in 1f1b gpipe zb-h1; do
        most=$(least_limit -p 3 --schedule $kind -m 6 m)
        echo "$kind: $most MiB"
        ppsplit -p 3 --schedule $kind -m 6 --memory "${most}M" m |
            ppsched -s $kind -m 6 --memory "${most}M" >/dev/null
        eval "need_${kind%%-*}=$most"
    done
    [ "$need_gpipe" -gt "$need_1f1b" ]
}

# Writes u.json: units with messages of different sizes.
unequal_units() {
    jq -n '[[20, 9, 60], [70, 30, 5], [40, 60, 8], [80, 20, 64], [30, 40, 33],
        [60, 10, 1], [50, 25, 0]] | to_entries | {format: "pp-units",
            version: 1, architecture: "X", units: map({
                fqn: "u\(.key)", params: .value[0], class: "Block",
                kind: ({"0": "embedding", "6": "head"}["\(.key)"] // "layer"),
                fwd_flops: [.value[0], 0], act_bytes: [.value[1], .value[1], 9],
                out_bytes: .value[2]})}' >u.json
}

# keeps_limits KIND CHUNKS: plans at what each split needs, and a byte below the
# least of these.
keeps_limits() {
    local fixed=(-p 2 -c "$2" -m 4 --seq-len 16 --schedule "$1" --units u.json)
    splits $((2 * $2)) --units=u.json | while read -r split; do
        echo "$split" >split.json
        ppsplit "${fixed[@]}" --fqns split.json --memory 1 2>&1 |
            sed -n 's/.*; \([0-9]*\) bytes).*/\1/p'
    done | sort -nu >below
    [ "$(wc -l <below)" -gt 1 ]
    while read -r limit; do
        run --separate-stderr ppsplit "${fixed[@]}" --memory $((limit + 1)) -tv
        [ "$status" -eq 0 ]
        # shellcheck disable=SC2154 # set by run
        [[ "$output$stderr" != *' inf '* && "$output$stderr" != *nan* ]]
        [[ "$output" == *'No split takes less.'* ]]
    done <below
    run --separate-stderr ppsplit "${fixed[@]}" --memory "$(head -n 1 below)"
    echo "$stderr"
    [ "$status" -eq 1 ]
    [[ "$stderr" != *'another split may fit'* ]]
}

@test "a limit is kept to the byte if some split keeps it" {
    unequal_units
    keeps_limits gpipe 1
    keeps_limits interleaved 2
    keeps_limits zb-interleaved 2
}

@test "the message names the least sufficient number of ranks" {
    run --separate-stderr ppsplit -p 2 --memory 2G m
    [ "$status" -eq 1 ]
    [ -z "$output" ]
    echo "$stderr"
    [[ "$stderr" == *'more than the limit of 2.00 GiB (stage '*' bytes): it would fit with '*'-p '* ]]
    p=${stderr##*-p }
    run -0 ppsplit -p "$p" --memory 2G m
    run -1 ppsplit -p $((p - 1)) --memory 2G m
}

@test "the message names the least sufficient recomputation" {
    split() { ppsplit -p 2 --method uniform --micro-batch-tokens 64K "$@" m; }
    # need ARGS...: prints the bytes that the fullest rank needs.
    need() {
        split --memory 1 "$@" 2>&1 |
            sed 's/.*; \([0-9]*\) bytes).*/\1/' | jq '. + 1'
    }
    none=$(need) selective=$(need --recompute selective)
    full=$(need --recompute full)
    [ "$full" -lt "$selective" ]
    [ "$selective" -lt "$none" ]
    for mode in selective full; do
        run --separate-stderr split --memory "${!mode}"
        [ "$status" -eq 1 ]
        [[ "$stderr" == *" bytes): it would fit with --recompute $mode"* ]]
        run -0 split --memory "${!mode}" --recompute "$mode"
        run -1 split --memory $((${!mode} - 1)) --recompute "$mode"
    done
    # If a plan recomputes, the message suggests more recomputation only.
    run --separate-stderr split --memory "$full" --recompute selective
    [[ "$stderr" == *'it would fit with --recompute full'* ]]
    run --separate-stderr split --memory $((full - 1)) --recompute full
    [[ "$stderr" != *--recompute* ]]
}

@test "recomputation adds its operations to a step once" {
    time_of() {
        ppsplit -p 1 --recompute "$1" m | tee "$1.json" |
            ppsched -s gpipe -m 1 --seq-len 64 --stats | jq .makespan
    }
    none=$(time_of none) selective=$(time_of selective) full=$(time_of full)
    for mode in selective full; do
        jq -e ".stages[0].again_flops[0] * 64 +
            .stages[0].again_flops[1] * 64 * 65 / 2 ==
            ${!mode} - $none" "$mode.json"
    done
    # selective recomputes attention; full all but the MLP's last product.
    jq -e '.stages[0] | .again_flops == [0, .fwd_flops[1]]' selective.json
    jq -e '.model.units[1] | .recompute.full.again_flops as $again |
        .fwd_flops[1] == $again[1] and .fwd_flops[0] > $again[0]' full.json
    run -0 ppsplit -p 1 --recompute none m
    jq -e '[.. | objects | has("recompute")] | any | not' none.json
    run --separate-stderr ppsplit -p 2 --recompute some m
    [ "$status" -eq 2 ]
    [ "${stderr_lines[0]}" = "ppsplit: --recompute: 'some' is not one of: none, selective, full, norms, attention, qkv, latent, outputs, mlp_act, mlp, expert_act, experts" ]
}

@test "a faster rank gets more layers" {
    plan=$(ppsplit -p 2 -m 64 --rank-speed 1,3 m)
    jq -e '(.stages | map(.fwd_flops[0])) as [$a, $b] | $b > 2 * $a' \
        <<<"$plan"
    run --separate-stderr ppsplit -p 2 --rank-speed 1,1,1 m
    [ "$status" -eq 2 ]
    [ "${stderr_lines[0]}" = "ppsplit: --rank-speed: '1,1,1' is for 3 ranks, not 2" ]
    run --separate-stderr ppsplit -p 2 --rank-speed 1,0 m
    [ "$status" -eq 2 ]
}

# profile FILTER: writes measured costs, the same for all units, after a jq
# filter.
profile() {
    ppsplit -p 1 --export fqns m | jq '{format: "pp-profile", version: 1,
        units: [.[0][] | {fqn: ., fwd: [1e-6, 0], input: [1e-6, 0],
            weight: [1e-6, 0]}],
        messages: {seconds_per_byte: 0, latency: 0}}' | jq "$1" >p.json
}

@test "few microbatches may need another split than many" {
    # Both gradients of the head make its logits again, but not behind its F.
    profile '.units[-1] |= (.input[0] = 2e-6 | .weight[0] = 2e-6)'
    # The first rank waits while the last one works. A step takes 3 x 5 + 6 x 3
    # with 5 units on the first rank, and 3 x 4 + 6 x 4 with 4.
    [ "$(units -p 2 --costs p.json -m 2 m)" = '[5,3]' ]
    [ "$(units -p 2 --costs p.json -m 200 m)" = '[4,4]' ]
}

@test "measured costs decide the split and the step" {
    profile .
    [ "$(units -p 2 -m 100 --costs p.json m)" = '[4,4]' ]
    # The head alone takes as long as seven others.
    profile '.units[-1].fwd[0] = 19e-6'
    [ "$(units -p 2 -m 100 --costs p.json m)" = '[7,1]' ]
    # Messages take the same time behind every unit, so they move no boundary,
    # but the step gets longer.
    profile .
    takes() { ppsplit -t "$@" m | sed -n 's/.*takes \(.*\) s; .*/\1/p'; }
    before=$(takes -p 2 -m 4 --costs p.json)
    profile '.messages.latency = 1'
    after=$(takes -p 2 -m 4 --costs p.json)
    holds "$after > $before + 2"
}

@test "ranks that divide the work of a token divide its measured seconds" {
    profile '.units[2].input = [4e-6, 8e-9]'
    ppsplit -p 2 --costs p.json m >one.json
    ppsplit -p 2 --tp 2 --cp 2 --costs p.json m >four.json
    seconds() {
        jq -c ".profile.units | map([.fwd, .input, .weight | map(. * $1)])"
    }
    [ "$(seconds 1 <one.json)" = "$(seconds 4 <four.json)" ]
}

@test "a profile that is wrong is refused" {
    refused() {
        profile "$1"
        run --separate-stderr ppsplit -p 2 --costs p.json m
        echo "$stderr"
        [ "$status" -eq 2 ]
        [ "${stderr_lines[0]}" = "ppsplit: p.json: $2" ]
    }
    refused '.format = "x"' "/format: 'x' is not 'pp-profile'"
    refused '.version = 2' "/version: '2' is newer than 1: tools that know version 2 are needed"
    refused 'del(.units[3])' "/units: 'model.layers.2' is missing"
    refused '.units[3].fqn = "model.layers.9"' \
        "/units/3/fqn: 'model.layers.9' is not in the model"
    refused '.units[3].fqn = "model.layers.1"' \
        "/units: 'model.layers.1' is a duplicate name"
    profile '.units[3].fwd[0] = -1'
    run --separate-stderr ppsplit -p 2 --costs p.json m
    [ "$status" -eq 2 ]
    [[ "$stderr" == *'p.json: /units/3/fwd/0: '* ]]
}

@test "the table gives the step and the use of memory" {
    run -0 ppsplit -p 2 -m 8 -t m
    [[ "$output" == *'A step of 8 microbatches under 1f1b takes '*' flop; ranks are idle '*'No split takes less.'* ]]
    [[ "$output" != *' is assumed'* ]]
    run -0 ppsplit -p 2 -t m
    [[ "$output" == *'Without -m a step is assumed to have 8 microbatches.'* ]]
    run -0 ppsplit -p 2 -m 8 --memory 80G -t m
    [[ "$output" == *'Share of the memory limit: rank 0: '*' %, rank 1: '*' %.'* ]]
    run -0 ppsplit -p 2 -m 8 --memory 800T -t m
    [[ "$output" == *'Share of the memory limit: ranks 0-1: 0 %.'* ]]
    run -0 ppsplit -p 10 --layers 1,0,1,0,1,0,1,0,1,0 -m 8 --memory 80G -t m
    [[ "$output" == *'Ranks use from '*' % (rank '*') to '*' % (rank '*') of the memory limit.'* ]]
}

@test "the split without -m is that of the microbatches assumed" {
    # Ranks of equal cost would have 5, 5 and 6 units, and a longer step.
    llama 13 3000 >m/config.json
    run -0 units -p 3 m
    [ "$output" = '[6,4,6]' ]
    run -0 units -p 3 -m 12 m
    [ "$output" = '[6,4,6]' ]
}

@test "a kind that cannot run on the stages is refused" {
    kinds=$(ppsched --list | awk '/^[^ ]/ { printf "%s%s", sep, $1; sep = ", " }')
    run --separate-stderr ppsplit -p 2 --schedule nosuch m
    [ "$status" -eq 2 ]
    [ "${stderr_lines[0]}" = "ppsplit: -s: 'nosuch' is not one of: $kinds" ]
    run --separate-stderr ppsplit -p 2 --schedule zbv -m 4 m
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"2 chunks per rank and placement v"* ]]
}

@test "a head of several stages leaves no rank slow" {
    # over: prints how far the costliest rank is above the mean, in percent.
    over() {
        ppsplit -t "$@" -p 4 -m 16 --gpu h100 --dtype bf16 m |
            sed -n 's/^The largest rank .* cost, \([0-9.]*\) % above.*/\1/p'
    }
    llama 8 128000 >m/config.json
    holds "$(over) > 25"
    holds "$(over --head-stages 4) < 2"
    diff <(ppsplit -p 4 -m 16 --gpu h100 --head-stages 4 -t --json m) \
        <(ppsplit -q -p 4 -m 16 --gpu h100 --head-stages 4 m |
            ppsplit -m 16 -t --json)
    plan() {
        ppsplit -q -p 4 -m 16 --gpu h100 --dtype bf16 "$@" m
    }
    plan --head-stages 4 >head.json
    jq -e '.stages | length == 9 and
        map(.rank) == [0, 1, 2, 3, 0, 1, 2, 3, 3] and .[8].units == ["loss"] and
        .[8].inputs == [4, 5, 6, 7] and .[6].inputs == [3] and
        .[6].out_bytes == 8 and .[3].out_bytes == 2048' head.json
    for kind in 1f1b zb-h1 gpipe seq1f1b; do
        ppsched -q -s $kind -m 16 -o scheduled.json head.json
        run -0 ppsched --check scheduled.json
        [ "$output" = 'valid, canonical' ]
        whole=$(plan | makespan $kind 16)
        holds "$(makespan $kind 16 head.json) < 0.9 * $whole"
    done
    ppsched -q -s 1f1b -m 16 --stats head.json |
        jq -e '.makespan < 1.03 * .lower_bound'
}

@test "a head of several stages is refused where it cannot be" {
    local plan=(-q -p 4 --head-stages 4)
    refuses "--head-stages and --mtp exclude each other" "${plan[@]}" --mtp m
    refuses "a head of 6 stages does not divide evenly over 4 ranks; see \
--head-stages" -q -p 4 --head-stages 6 m
    refuses "interleaved does not run a head of 4 stages: use gpipe, 1f1b, \
eager-1f1b, seq1f1b, zb-h1 or zb-h2, which pass each rank once" "${plan[@]}" \
        -s interleaved m
    ppsplit "${plan[@]}" -o head.json m
    refuses "--export: 'megatron' has no head of several stages; plan without \
--head-stages" --export megatron head.json
    # More ranks would help, but the head does not divide over them.
    run -1 ppsplit "${plan[@]}" --memory 1M m
    llama 5 64000 true >m/config.json
    refuses "--head-stages: '4', but 'm' has a tied head" "${plan[@]}" m
}
