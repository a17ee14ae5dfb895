#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit --gpu, --flops and --link: seconds, tokens a second and MFU.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    llama 6 16000 >model.json
}

# experts LAYERS: prints a configuration with 8 experts a layer.
experts() {
    llama "$1" | jq '. + {architectures: ["MixtralForCausalLM"],
        model_type: "mixtral", num_local_experts: 8, num_experts_per_tok: 2}'
}

# figure NAME ARGS...: prints the step, its unit, the tokens/s or the MFU of the
# plan's table.
figure() {
    local name=$1 text
    shift
    text=$(ppsplit -p 2 -m 6 "$@" -t model.json | tr '\n' ' ')
    case $name in
    step) sed 's/.* takes \([^ ]*\) \(flop\|s\); .*/\1/' <<<"$text" ;;
    update) sed 's/.*update it takes \([^ ]*\) s: .*/\1/' <<<"$text" ;;
    tokens) sed 's/.* s: \([^ ]*\) \([KM]\?\) \?tokens.*/\1\2/; s/K/e3/; s/M/e6/' <<<"$text" ;;
    mfu) sed 's/.*MFU \([^ ]*\) %.*/\1/' <<<"$text" ;;
    esac
}

# near A B SHARE: passes if A is within that share of B.
near() {
    echo "$1, wanted $2"
    awk -v a="$1" -v b="$2" -v s="$3" 'BEGIN { d = a - b
        exit !(b > 0 && (d < 0 ? -d : d) <= s * b) }'
}

@test "seconds are operations over the rate" {
    for how in '-s 1f1b' '-s zbv -c 2 --placement v' '--recompute full' \
        '--tp 2'; do
        # shellcheck disable=SC2086 # options
        near "$(figure step $how --flops 100T)" \
            "$(figure step $how | awk '{ print $1 / 100e12 }')" 1e-3
    done
    # A slow link makes the step longer; ppsched has the same step.
    fast=$(figure step --flops 100T --link 1000GB)
    slow=$(figure step --flops 100T --link 1GB/s)
    awk -v a="$fast" -v b="$slow" 'BEGIN { exit !(b > 1.02 * a) }'
    ppsplit -p 2 -m 6 --flops 100T --link 1G model.json |
        ppsched -s 1f1b -m 6 --depth auto --stats >stats.json
    jq -e '.time == "seconds"' stats.json
    near "$(jq .at_depth.makespan stats.json)" "$slow" 1e-3
    near "$(jq .tokens_per_s stats.json)" \
        "$(figure tokens --flops 100T --link 1G)" 1e-2
}

@test "tokens and MFU follow from the step" {
    step=$(figure update --gpu h100 --dtype bf16)
    near "$(figure tokens --gpu h100 --dtype bf16)" \
        "$(jq -n "6 * 2048 / $step")" 1e-2
    # 6 operations for each weight of a product and token, and 3 times those
    # of the forward of attention: 4 x heads x head_dim for each pair.
    layer=$((1024 * 1024 * 2 + 2 * 1024 * 256 + 3 * 1024 * 4096))
    flops=$(jq -n "6 * 2048 * (6 * (6 * $layer + 1024 * 16000)
        + 3 * 6 * 4 * 1024 * 2049 / 2)")
    near "$(figure mfu --gpu h100 --dtype bf16)" \
        "$(jq -n "100 * $flops / ($step * 2 * 989.4e12)")" 1e-2
    # Recomputation is no use, and another rate counts against the peak.
    near "$(figure mfu --gpu h100 --flops 494.7T --dtype bf16)" \
        "$(jq -n "100 * $flops / ($(figure update --gpu h100 --flops 494.7T \
            --dtype bf16) * 2 * 989.4e12)")" 1e-2
    ppsplit -p 2 -m 6 --gpu a100 --dtype bf16 --compare all model.json >rows
    grep -qE '^kind .* step \(s\) .* tokens/s +MFU$' rows
    near "$(awk '$1 == "1f1b" { print $(NF - (/  best$/ ? 1 : 0)) }' rows | tr -d %)" \
        "$(figure mfu --gpu a100 --dtype bf16 -s 1f1b)" 1e-2
    awk 'length > 80 { exit 1 }' rows
}

# A way is a kind of schedule, the chunks per rank and a placement.
factors() {
    cat <<'END'
way gpipe:1:loop 1f1b:1:loop eager-1f1b:1:loop interleaved:2:loop looped-bfs:2:loop zb-h1:1:loop zb-h2:1:loop zb-interleaved:2:loop zbv:2:v dualpipev:2:v v-half:2:v hanayo:2:v dualpipe:1:both-ways seq1f1b:1:loop
ranks 1 2 4
mesh --dp=1 --dp=2 --tp=2 --cp=2 --dp=4+--tp=2 --dp=2+--cp=2+--tp=2
zero 0 1 3
model dense experts
experts --ep=1 --ep=2 --ep=2+--expert-imbalance=1.7
recompute none selective full norms+mlp_act+outputs
rate --gpu=h100 --flops=100T+--link=1GB --gpu=h100+--node=2+--link=300GB,20GB
! dualpipe:1:both-ways 1
! zb-h2:1:loop 1
! seq1f1b:1:loop full
! dense --ep=2
! --dp=1 --ep=2
! --tp=2 --ep=2
! dense --ep=2+--expert-imbalance=1.7
! --dp=1 --ep=2+--expert-imbalance=1.7
! --tp=2 --ep=2+--expert-imbalance=1.7
END
}

@test "ppsplit, ppsched and pprun have one step, over a pairwise cover" {
    experts 6 >experts.json
    cp model.json dense.json
    # Every microbatch is one sequence, as plans assume.
    jq -nc 'range(32) | {input_ids: [range(64)]}' |
        pppack -q -l 64 --pad-to 8 -o even
    "$SRCDIR/tests/parity/cover" <(factors) >rows
    while read -r way ranks mesh zero model experts recompute rate; do
        IFS=: read -r kind chunks placement <<<"$way"
        plan="-p $ranks -c $chunks --placement $placement ${mesh//+/ } ${experts//+/ }
            --zero $zero --recompute $recompute ${rate//+/ } --memory 1T
            --dtype bf16 --seq-len 64"
        # shellcheck disable=SC2086 # options
        want=$(ppsplit $plan -s "$kind" -m 8 -t --json "$model.json" |
            jq -r '.step_seconds | @json')
        # shellcheck disable=SC2086
        ppsplit $plan -s "$kind" -m 8 "$model.json" >plan.json
        got=$(ppsched -s "$kind" -m 8 --stats plan.json | jq -r '.step | @json')
        echo "$kind $plan $model: $got, wanted $want"
        [ "$got" = "$want" ]
        # The table of the plan keeps its seconds.
        ppsched -s "$kind" -m 8 plan.json >run.json
        ppsplit -t --json run.json >given
        [ "$(jq -r '.step_seconds | @json' given)" = "$want" ]
        pprun -v --init 1 --data even --print-memory run.json >memory 2>note
        grep -F "expects a step of $(printf %.9g "$want") s" note
    done <rows
    [ "$(wc -l <rows)" -gt 40 ]
}

@test "pprun expects the step of ppsched, with the sizes of the data" {
    jq '. + {hidden_size: 64, intermediate_size: 96, head_dim: 8,
        num_attention_heads: 8}' model.json >config.json
    for n in 9 40 17 64 33 50 21 60; do
        echo "{\"input_ids\": [$(seq -s, 1 "$n")]}"
    done >data.jsonl
    pppack -q -l 64 --pad-to 8 -o packed data.jsonl
    for mesh in '--dp 1' '--dp 2' '--tp 2' '--cp 2 --zero 0'; do
        for kind in 1f1b zb-h1; do
            # shellcheck disable=SC2086 # options
            ppsplit -p 2 $mesh --flops 1T --link 1GB --seq-len 64 config.json |
                ppsched -s $kind -m 4 --data packed >plan.json
            want=$(ppsched --stats plan.json | jq .step)
            run -0 --separate-stderr pprun -v --init 1 --data packed \
                --print-memory plan.json
            got=$(sed -n 's/.*the plan expects a step of \(.*\) s$/\1/p' <<<"$stderr")
            echo "$mesh $kind: $got, wanted $want"
            [ "$got" = "$(printf %.9g "$want")" ]
        done
    done
    # Other sizes take another time.
    ppsched --stats --seq-len 64 plan.json | jq -e ".step != $want"
}

@test "costs come from a plain table" {
    cat >costs.txt <<'END'
# unit            forward  input  weight: seconds of a microbatch
model.embed_tokens 1e-3     0      2e-3
model.layers.*     4e-3     5e-3   3e-3

model.layers.5     8e-3     10e-3  6e-3   # the last line counts
model.norm         0        0      0
lm_head            6e-3     7e-3   7e-3
END
    # One rank does all of it: 5 layers and one of twice their time, and both
    # gradients of the head compute its forward again. If its backward follows,
    # neither does.
    for kind in gpipe 1f1b; do
        [ $kind = gpipe ] && again=6 || again=12
        near "$(ppsplit -p 1 -m 3 -s $kind --costs costs.txt -t --json model.json |
            jq .step_seconds)" \
            "$(jq -n "3 * (3 + 7 * 12 + 6 + 14 - $again) / 1000")" 1e-9
    done
    # Links of a machine, and its update.
    echo '{"gpu": "h100"}' >machine.json
    ppsplit -p 2 -m 3 --costs costs.txt --machine machine.json --dtype bf16 \
        model.json >plan.json
    jq -e '.profile.units[1].fwd == [4e-3 / 2048, 0] and .machine.gpu == "h100"
        and .profile.step.seconds_per_param == 34 / 2.9e12' plan.json
    sed '$d' costs.txt >short.txt
    refuses "short.txt: no line is for the unit 'lm_head'" -p 2 --costs short.txt \
        model.json
    echo 'model.norm 1 2' >few.txt
    refuses "few.txt: line 1: needs a unit and the seconds of its forward, input \
gradient and weight gradient" -p 2 --costs few.txt model.json
    echo 'model.norm 1 2 x' >word.txt
    refuses "word.txt: line 1: 'x' is not a finite number" -p 2 --costs word.txt model.json
}

@test "the update takes the parameters that a rank updates" {
    # One rank has all layers; without messages only the update depends on this.
    update() {
        ppsplit -p 1 -m 4 --gpu h100 --dtype bf16 --memory 1T --zero 1 "$@" \
            model.json >plan.json
        ppsched -s 1f1b -m 4 --stats plan.json >stats.json
        jq '.step - .at_depth.makespan' stats.json
    }
    params=$(ppsplit -p 1 model.json | jq '[.model.units[].params] | add')
    # AdamW moves 7 numbers of four bytes and one of two, the norm one of four.
    near "$(update)" "$(jq -n "$params * 34 / 2.9e12")" 1e-9
    near "$(update --dp 4)" "$(jq -n "$params / 4 * 34 / 2.9e12")" 1e-9
    near "$(update --tp 2)" "$(jq -n "$params / 2 * 34 / 2.9e12")" 1e-9
    near "$(update --dp 4 --zero 0)" "$(jq -n "$params * 34 / 2.9e12")" 1e-9
    # Megatron-LM moves gradients twice more and master weights once, and clears
    # and checks all gradients.
    for tp in 1 2; do
        near "$(update --tp $tp --trainer megatron)" \
            "$(jq -n "$params / $tp * (46 + 8) / 2.9e12")" 1e-2
    done
}

@test "kinds are compared by the step with reductions and the update" {
    plan="-p 4 --tp 2 --dp 4 -m 16 --gpu h100 --dtype bf16 --memory 1T"
    # shellcheck disable=SC2086 # options
    ppsplit $plan --compare 1f1b,zbv,dualpipe,zb-h1 model.json |
        awk '$1 ~ /^(1f1b|zb|dual)/ { print $1, $(2 + ($2 != "chain") + 1) }' >rows
    [ "$(wc -l <rows)" -eq 4 ]
    sort -s -k 2 -g rows | diff - rows
    # shellcheck disable=SC2086
    near "$(awk '$1 == "1f1b" { print $2 }' rows)" \
        "$(ppsplit $plan -s 1f1b -t --json model.json | jq .step_seconds)" 1e-3
}

# step ARGS...: prints the seconds of a step.
step() {
    ppsplit "$@" --memory 1T --dtype bf16 -t --json model.json | jq .step_seconds
}

# longer A B SHARE: passes if A is more than B by at least that share.
longer() {
    echo "$1 after $2"
    awk -v a="$1" -v b="$2" -v s="$3" 'BEGIN { exit !(a > b * (1 + s)) }'
}

@test "exchanges take the links that their groups cross" {
    one="-p 1 -m 4 --tp 8 --gpu h100"
    # shellcheck disable=SC2086 # options
    {
        longer "$(step $one --node 4)" "$(step $one)" 0.2
        longer "$(step ${one/h100/l40s})" "$(step $one)" 2
        near "$(step $one --node 16)" "$(step $one)" 1e-9
    }
    cp="-p 1 -m 4 --cp 2 --gpu h100 --seq-len 2048"
    for exchange in gather a2a ring; do
        # shellcheck disable=SC2086
        longer "$(step $cp --cp-exchange $exchange --node 1)" \
            "$(step $cp --cp-exchange $exchange)" 0.005
    done
    # Without a group of data-parallel ranks nothing else crosses nodes.
    near "$(step -p 1 -m 4 --gpu h100 --node 1)" "$(step -p 1 -m 4 --gpu h100)" \
        1e-9
    longer "$(step -p 1 -m 4 --dp 16 --gpu h100 --node 1)" \
        "$(step -p 1 -m 4 --dp 16 --gpu h100)" 0.05
    longer "$(step -p 2 -m 8 --gpu h100 --node 1)" \
        "$(step -p 2 -m 8 --gpu h100)" 0.001
    experts 6 >model.json
    longer "$(step -p 1 -m 4 --dp 8 --ep 8 --gpu h100 --node 2)" \
        "$(step -p 1 -m 4 --dp 8 --ep 8 --gpu h100)" 0.2
}

@test "small products are slow, and tensor-parallel ranks wait" {
    rate() {
        ppsplit -p 1 -m 4 --gpu h100 --dtype bf16 --memory 1T -t --json "$@" \
            model.json | jq .mfu
    }
    last=1
    for tp in 1 2 4 8; do
        next=$(rate --tp $tp)
        longer "$last" "$next" 0.05
        last=$next
    done
    longer "$(rate --micro-batch-tokens 8192)" "$(rate --micro-batch-tokens 256)" 0.3
    awk -v x="$(rate)" 'BEGIN { exit !(x > 0.2 && x < 0.65) }'
}

@test "elementwise work that is recomputed takes the time of its bytes" {
    plan() {
        ppsplit -q -p 1 -m 4 --gpu h100 --memory 1T --dtype bf16 --recompute "$@" \
            model.json >plan.json
        ppsplit -t --json plan.json | jq .step_seconds
    }
    none=$(plan none)
    # Bytes of a token: two norms read and write rows of hidden; a sum reads two
    # and writes one; an activation reads gate and up. The rest of F counts by
    # operations.
    for part in 'norms 8192 0' 'mlp_act 24576 0' 'outputs 6144 1048576' \
        'qkv 5120 1572864' 'norms+mlp_act 32768 0'; do
        read -r set bytes weights <<<"$part"
        took=$(plan "$set")
        again=$(jq --argjson bytes "$bytes" --argjson weights "$weights" '
            .profile.units[1] as $t | .model.units[1].fwd_flops[0] as $all |
            4 * 2048 * 6 * ($bytes / 2.9e12 + 2 * $weights / $all *
            ($t.fwd[0] - ($t.elementwise | add)))' plan.json)
        echo "$set"
        near "$(jq -n "$took - $none")" "$again" 1e-6
    done
    # The loss reads two bytes of each word in F, and reads and writes them in I.
    plan none
    echo '{"gpu": "h100", "memory_bandwidth": 1e9}' >slow.json
    ppsplit -q -p 1 --machine slow.json --memory 1T --dtype bf16 model.json |
        jq -e --slurpfile fast plan.json '(16000 * 2 * (1e-9 - 1 / 2.9e12)) as $t |
            $fast[0].profile.units[-1] as $f | .profile.units[-1] |
            [(.fwd[0] - $f.fwd[0]) / $t, (.input[0] - $f.input[0]) / $t] |
            [.[] * 1e6 | round] == [1e6, 2e6]'
    # Without a machine nobody knows these bytes.
    for rate in '--flops 100T' ''; do
        # shellcheck disable=SC2086 # options
        ppsplit -q -p 1 -m 1 $rate --recompute norms model.json |
            jq -e '[.profile.units[]?.elementwise] | all(not)'
    done
}

@test "context-parallel ranks exchange heads of linear attention" {
    echo '{"peaks": {"fp32": 1e15}, "efficiency": 1,
        "levels": [{"bandwidth": 1e3, "latency": 0}]}' >slow.json
    # A millisecond for each element of 4 bytes: half are another rank's, and a
    # rank has half of the tokens. 72 inputs of heads, and 20 outputs. W with
    # adapters alone sends nothing.
    for lora in '' '--lora rank=2'; do
        # shellcheck disable=SC2086 # options
        ppsplit -q -p 1 -m 1 --cp 2 --machine slow.json --memory 1T --dtype fp32 \
            $lora "$SRCDIR/tests/golden/families/qwen3_5_text/model" |
            jq '.profile.units[1] | .fwd[0], .input[0], .weight[0]'
    done | jq -se 'map(1e3 * . | round) == [92, 164, 144, 92, 164, 0]'
}

@test "uneven experts take time, rounds and the memory of other trainers" {
    experts 6 >model.json
    plan="-p 1 -m 1 --dp 4 --ep 4 --memory 1T"
    times() { # ARGS...: prints seconds of a token of F, I and W in a layer
        # shellcheck disable=SC2086 # options
        ppsplit -q $plan --flops 100T "$@" model.json |
            jq -c '.profile.units[1] | [.fwd[0], .input[0], .weight[0]]'
    }
    even=$(times)
    # Three products of the rows of two experts; of rows beyond the room, I has
    # two more and W three.
    for case in '1 1.25 0' '1.2 1.25 0' '2 1.25 0.75' '2 2 0' '3 1.25 1.75' \
        '9 1.25 2.75'; do
        read -r skew limit further <<<"$case"
        echo "$case"
        jq -en --argjson even "$even" --argjson s "$skew" --argjson f "$further" \
            --argjson got "$(times --expert-imbalance "$skew" \
                --expert-limit "$limit")" '[0, 2, 3] as $again |
            (2 * 1024 * 4096 * 2 / 100e12) as $e | (([$s, 4] | min) - 1) as $more |
            [range(3) | ($got[.] - $even[.]) - $e * (3 * $more + $again[.] * $f) |
                fabs < 1e-9 * $e] | all'
    done
    # Rows are exchanged, too; I and W send those of further rounds once more.
    echo '{"peaks": {"fp32": 1e15}, "efficiency": 1,
        "levels": [{"bandwidth": 1e6, "latency": 0}]}' >slow.json
    sent() {
        # shellcheck disable=SC2086
        ppsplit -q $plan --machine slow.json "$@" model.json |
            jq -c '.profile.units[1] | [.fwd[0], .input[0], .weight[0]]'
    }
    jq -en --argjson even "$(sent)" \
        --argjson fit "$(sent --expert-imbalance 2 --expert-limit 2)" \
        --argjson twice "$(sent --expert-imbalance 2 --expert-limit 1)" '
        [range(3) | $fit[.] / $even[.], $twice[.] / $even[.] | 100 * . | round] ==
            [200, 200, 200, 250, 200, 250]'
    # The rank of another trainer keeps all rows that come: inputs, two products
    # and the activation, of two experts a token in six layers.
    kept() {
        # shellcheck disable=SC2086
        ppsplit -q $plan --gpu h100 --dtype bf16 "$@" -t --json model.json |
            jq '.memory[0].activations'
    }
    [ "$(kept --expert-imbalance 2)" = "$(kept)" ]
    near "$(($(kept --trainer megatron --expert-imbalance 1.5) -
        $(kept --trainer megatron)))" \
        "$((2048 * 6 * 2 * 2 * (1024 + 3 * 4096) / 2))" 1e-3
    refuses "--expert-imbalance needs --ep" -p 1 --dp 4 --expert-imbalance 2 model.json
    printf '%s 1 1 1\n' '*' >costs.txt
    refuses "costs.txt: has no loads of experts, which an imbalance of '2' would \
replace" -p 1 --dp 4 --ep 4 --expert-imbalance 2 --costs costs.txt model.json
}

@test "a plan keeps the loads of experts that its costs had" {
    experts 2 >model.json
    jq -n '{format: "pp-profile", version: 1, experts: {ranks: 1, microbatches: 1},
        units: [("model.embed_tokens", "model.layers.0", "model.layers.1",
            "model.norm", "lm_head") | {fqn: ., fwd: [1e-6, 1e-9],
            input: [1e-6, 2e-9], weight: [1e-6, 0]} |
            if .fqn | test("layers") then . + {experts: {
                tokens: [51, 13, 40, 24, 9, 9, 2, 1], fullest: [149, 128, 71, 59]}}
            else . end]}' >costs.json
    for set in none full outputs experts; do
        ppsplit -q -p 2 -m 4 --dp 4 --ep 4 --recompute $set --costs costs.json \
            model.json | ppsched -q -s 1f1b -m 4 >plan.json
        want=$(ppsched --stats plan.json | jq -r '.step | @json')
        got=$(ppsplit -t --json plan.json | jq -r '.step_seconds | @json')
        echo "$set: $got, wanted $want"
        [ "$got" = "$want" ]
    done
}

@test "published steps of B200 are in order, and not far away" {
    # Megatron-LM on eight GPUs, in ms: SimuMax, results for B200. These runs
    # neither reduced gradients nor gathered weights beside the computation.
    jq '. + {hidden_size: 8192, intermediate_size: 28672, num_hidden_layers: 12,
        num_attention_heads: 64, num_key_value_heads: 8, vocab_size: 128256,
        max_position_embeddings: 8192}' model.json >llama.json
    mv llama.json model.json
    last=0
    while read -r tp pp dp m real; do
        layers=12
        [ "$pp" -eq 1 ] || layers=6,6
        next=$(step -p "$pp" --layers $layers --tp "$tp" --dp "$dp" -m "$m" \
            --seq-len 4096 --gpu b200 --trainer megatron)
        near "$(jq -n "$next * 1000")" "$real" 0.08
        longer "$next" "$last" 0
        last=$next
    done <<'END'
8 1 1 4 280.9
4 1 2 4 409.8
8 1 1 8 556.7
2 1 4 4 725.5
1 2 4 4 843.0
2 1 4 8 1387.0
1 2 4 8 1476.8
8 1 1 32 2073.7
4 1 2 32 2964.6
2 1 4 32 5376.5
1 2 4 32 5436.5
END
}

@test "an encoder's products and attention have its own rows" {
    echo '{"gpu": "h100", "efficiency": 0.5, "levels": [{"bandwidth": 2e11,
        "latency": 5e-6}]}' >one.json
    for n in 1 2; do
        ppsplit -q -p 1 -m 1 --seq-len 2048 --images $n --machine one.json \
            --dtype bf16 --memory 10T "$SRCDIR/tests/data/vision/llava-1.5-7b.json"
    done | jq -es '(989.4e12 * 0.5) as $peak | def part(n): n / (n + 200);
        def product(m; k; n):
            2 * m * k * n / ($peak * part(m) * part(k) * part(n)) + 4e-6;
        def is(a; b): (a - b) / b | fabs < 1e-9;
        [.[] | (.microbatch.images * 577) as $rows | .profile.units[3].fwd as $t |
            is($t[0] * 2048; 4 * product($rows; 1024; 1024) +
                2 * product($rows; 1024; 4096)) and
            is($t[1]; .model.units[3].fwd_flops[1] /
                ($peak * (16 * $rows | . / (. + 70000)) * part(577)))] | all'
}

@test "a machine comes from a file, and stays in the plan" {
    cat >machine.json <<'END'
{"gpu": "h100", "efficiency": 0.5,
 "levels": [{"size": 4, "bandwidth": 2e11, "latency": 5e-6},
            {"bandwidth": 2.5e10, "latency": 2e-5}]}
END
    ppsplit -p 2 --tp 4 -m 4 --machine machine.json --dtype bf16 --memory 1T \
        model.json >plan.json
    jq -e '.machine | .levels[0].size == 4 and .efficiency == 0.5
        and .peaks.bf16 == 989.4e12 and (.levels[1] | has("size") | not)' plan.json
    longer "$(step -p 2 --tp 4 -m 4 --machine machine.json)" \
        "$(step -p 2 --tp 4 -m 4 --gpu h100)" 0.3
    ppsched -s 1f1b -m 4 plan.json | ppsplit -t --json >given
    near "$(jq .step_seconds given)" \
        "$(step -p 2 --tp 4 -m 4 --machine machine.json)" 1e-12
    jq -e '.mfu > 0' given
    echo '{"levels": []}' >none.json
    refuses "none.json: has no peak and efficiency for bf16; give --flops" -p 2 \
        --machine none.json --dtype bf16 model.json
    echo '{"levels": [{"size": 8, "bandwidth": 1e9, "latency": 0},
        {"size": 12, "bandwidth": 1e9, "latency": 0}]}' >uneven.json
    refuses "uneven.json: /levels/1/size: '12' is not a larger multiple of 8, the \
size of the level before it" -p 2 --machine uneven.json model.json
    refuses '--node needs a --link with two rates, in a node and between nodes' \
        -p 2 --gpu h100 --link 50GB --node 8 model.json
}

@test "the memory of the GPU is the limit" {
    run -1 --separate-stderr ppsplit -p 2 -m 6 --gpu a100-40 --dtype fp32 \
        --micro-batch-tokens 64K -s gpipe model.json
    [[ "$stderr" == *' more than the limit of 38.00 GiB'* ]]
    ppsplit -p 2 -m 6 --gpu a100-40 --dtype fp32 --micro-batch-tokens 64K -s gpipe \
        --memory 2000G model.json >plan.json
}

@test "rates that are none are refused" {
    refuses "--flops: '400X' is not a rate such as 400T or 50GB" -p 2 \
        --flops 400X model.json
    refuses "--flops: '-1T' is not between 1 and 1e+30" -p 2 --flops -1T model.json
    refuses '--link needs --gpu, --machine, --flops or --costs' -p 2 --link 50G model.json
    run -2 --separate-stderr ppsplit -p 2 --gpu h1000 model.json
    [[ "$stderr" == *"--gpu: 'h1000' is not one of: a100, a100-40, h100, "* ]]
}
