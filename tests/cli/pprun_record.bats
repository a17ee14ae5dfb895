#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun --trace and --profile, and the use of profiles in ppsplit and ppsched.

bats_require_minimum_version 1.5.0
load ../parity/helpers
load trace_helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    data 1 40 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 4 >plan.json
    pprun -q plan.json --data packed --init 1 --steps 6 --profile profile.json \
        -o log
}

setup() { cd "$BATS_FILE_TMPDIR"; }

run_pprun() { pprun -q --data packed --init 1 "$@"; }

# fails STATUS MESSAGE COMMAND...: expects this line on stderr and no stdout.
fails() {
    local want=$1 message=$2
    shift 2
    run --separate-stderr "$@"
    echo "status $status, stderr: $stderr"
    [ "$status" -eq "$want" ]
    [ -z "$output" ]
    [ "${stderr_lines[0]}" = "$message" ]
}

@test "--trace has the tracks, slices and arrows of ppsched's" {
    for kind in 1f1b zb-h1 seq1f1b interleaved zbv dualpipe; do
        case $kind in
        interleaved) how='-c 2' ;;
        zbv) how='-c 2 --placement v' ;;
        dualpipe) how='--placement both-ways' ;;
        *) how= ;;
        esac
        # shellcheck disable=SC2086 # words
        ppsplit -q -p 2 $how model-llama |
            ppsched -q -s $kind -m 4 --trace planned.json >"$kind.json"
        run_pprun --steps 2 --trace trace.json "$kind.json" >/dev/null
        echo "$kind"
        check_trace trace.json
        causal trace.json
        waits_at_use trace.json
        diff <(slices planned.json) <(slices trace.json)
        ppsched -q --import trace.json "$kind.json" |
            jq .schedule.actions | diff - <(jq .schedule.actions "$kind.json")
        jq -se '.[0].otherData == (.[1].otherData
            | .a_millisecond_is = "0.001 s")' trace.json planned.json
        jq -e '[.traceEvents[] | select(.ph == "X") | .args.step] | unique
            == [2]' trace.json
    done
}

@test "with --message-size exchange a trace has the waits of the receives" {
    run_pprun --steps 1 --trace trace.json --message-size exchange plan.json \
        >/dev/null
    check_trace trace.json
    causal trace.json
}

@test "a pass of a trace lies between zeroed gradients and norm" {
    run_pprun --steps 3 --trace trace.json plan.json >/dev/null
    steps_tile trace.json
}

@test "a trace of several steps has all their passes" {
    run_pprun --steps 5 --grad-accum 2 --trace trace.json --trace-steps 3 \
        plan.json >/dev/null
    check_trace trace.json
    causal trace.json
    jq -e '[.traceEvents[] | select(.ph == "X" and .cat != "step")
            | [.args.step, .args.pass]] | group_by(.) | map([.[0], length])
        | map(.[0]) == [[3,0],[3,1],[4,0],[4,1],[5,0],[5,1]]
        and (map(.[1]) | unique | length) == 1' trace.json
    # More steps than the run has give all of them.
    run_pprun --steps 2 --trace trace.json --trace-steps 9 plan.json >/dev/null
    jq -e '[.traceEvents[].args.step | values] | unique == [1, 2]' trace.json
}

@test "recording does not change results" {
    run_pprun --steps 4 plan.json >without
    run_pprun --steps 4 --trace t.json --profile p.json plan.json >with
    diff <(numbers without) <(numbers with)
}

@test "a profile has the model's units and the other parts of a step" {
    jq -e --slurpfile plan plan.json '
        .format == "pp-profile" and .version == 1
        and (.units | map(.fqn)) == ($plan[0].model.units | map(.fqn))
        and (.units[1:-2] | all(.fwd[0] + .fwd[1] > 0
            and .input[0] + .input[1] > 0 and .weight[0] > 0
            and .weight[1] == 0))
        and (.units[0, -2, -1] | .fwd[0] > 0 and .fwd[1] == 0)
        and .messages.seconds_per_byte >= 0 and .messages.latency >= 0
        and .messages.seconds_per_byte + .messages.latency > 0
        and .step.seconds_per_param > 0' profile.json
}

@test "a note warns of microbatches that are too similar" {
    head -n 1 data.jsonl >one.jsonl
    for ((i = 0; i < 8; i++)); do cat one.jsonl; done >alike.jsonl
    n=$(jq -c '.input_ids | length' one.jsonl)
    pppack -q -l "$n" -o alike alike.jsonl
    run --separate-stderr pprun --data alike --init 1 --steps 3 \
        --profile alike.json plan.json
    [ "$status" -eq 0 ]
    [ "$stderr" = "pprun: --profile: the microbatches are too similar to separate the cost of a token from that of a pair of tokens; the time is divided by operation counts" ]
    # Divided by the operations of a layer: the gradient has 2.5 times the forward.
    jq -e --slurpfile plan plan.json '$plan[0].model.units[1].fwd_flops as $f
        | .units[1] | (.fwd[1] / .fwd[0] * $f[0] / $f[1] - 1 | fabs) < 1e-9
        and (.input[1] / .input[0] * $f[0] / $f[1] - 2.5 | fabs) < 1e-9' \
        alike.json
    run --separate-stderr pprun --data packed --init 1 --steps 3 \
        --profile p.json plan.json
    [ -z "$stderr" ]
}

@test "a profile predicts the step time of a manifest in seconds" {
    ppsplit -q -p 2 --costs profile.json model-llama |
        ppsched -q -s zb-h1 -m 4 --data packed >measured.json
    jq -e --slurpfile p profile.json '.profile == ($p[0]
        | {units, messages, step, copies})' measured.json
    ppsched --stats --data packed measured.json | jq -e '.time == "seconds"
        and .at_depth.makespan > 0 and .step > .at_depth.makespan'
    pprun -q --init 1 --data packed --steps 1 measured.json >/dev/null
}

@test "a predicted step time is right" {
    # Two stages of one unit each, with times per token only.
    jq '.units[] |= {fqn, fwd: [0, 0], input: [0, 0], weight: [0, 0]}
        | .units[1] |= (.fwd[0] = 1e-3 | .input[0] = 2e-3 | .weight[0] = 4e-3)
        | .units[6] |= (.fwd[0] = 1e-3 | .input[0] = 2e-3 | .weight[0] = 4e-3)
        | .messages = {seconds_per_byte: 0, latency: 0}
        | .step = {seconds_per_param: 1e-6}' profile.json >even.json
    plan() { ppsplit -q -p 2 --layers 3,3 --costs "$1" model-llama |
        ppsched -q -s gpipe -m 4; }
    plan even.json >even-plan.json
    # (m + p - 1) (f + b) with 1 + 2 + 4 ms per token and 10 tokens, and the
    # parameters of the larger rank.
    ppsched --stats --seq-len 10 even-plan.json | jq -e --slurpfile p \
        even-plan.json '(.makespan - 5 * 7e-2 | fabs) < 1e-12
        and (.step - .makespan
            - 1e-6 * ($p[0].stages | map(.params) | max) | fabs) < 1e-12'
    # Ten tokens have 55 pairs. A message takes 3 s and 10 x 32 x 4 bytes at 1 ms,
    # in each direction.
    jq '.units[].fwd = [0, 0] | .units[].input = [0, 0]
        | .units[].weight = [0, 0] | .units[1].fwd = [0, 2]
        | .messages = {seconds_per_byte: 1e-3, latency: 3}' even.json >pairs.json
    ppsplit -q -p 2 --layers 3,3 --costs pairs.json model-llama |
        ppsched -q -s gpipe -m 1 | ppsched --stats --seq-len 10 |
        jq -e '(.makespan - (110 + 2 * (3 + 1.28)) | fabs) < 1e-9'
    # Two ranks that are left of three update all parameters, and add their
    # gradients: half of them moves twice.
    ppsplit -q -p 1 --dp 3 --costs pairs.json model-llama |
        ppsched -q -s gpipe -m 1 | ppsched -q --without-rank 0 -o left.json
    ppsched --stats --seq-len 10 left.json | jq -e --slurpfile p left.json '
        $p[0].stages[0].params as $n | (.step - .at_depth.makespan
            - 1e-6 * $n - 2 * (3 + 1e-3 * 4 * $n / 2) | fabs) < 1e-9'
    # Full recomputation adds 110 s of pairs to I.
    ppsplit -q -p 2 --layers 3,3 --recompute full --costs pairs.json \
        model-llama | ppsched -q -s gpipe -m 1 | ppsched --stats --seq-len 10 |
        jq -e '(.makespan - (220 + 2 * (3 + 1.28)) | fabs) < 1e-9'
    # The head's I and W take 4 + 3 ms per token; together one forward less, and
    # two less behind the F of their microbatch.
    jq '.units |= map(.fwd = [0, 0] | .input = [0, 0] | .weight = [0, 0])
        | .units[-1] |= (.fwd[0] = 1e-3 | .input[0] = 4e-3
            | .weight[0] = 3e-3)' even.json >head.json
    for kind in gpipe 1f1b zb-h1; do
        ppsplit -q -p 2 --layers 3,3 --costs head.json model-llama |
            ppsched -q -s $kind -m 4 | ppsched --stats --seq-len 10
    done | jq -se 'map(.idle[1].busy / 4e-2 * 1e9 | round / 1e9) == [7, 6, 6]'
    # Literal costs replace measured ones.
    ppsched --stats --cost 1,1,1 even-plan.json |
        jq -e '.time == "units" and (has("step") | not)'
}

@test "a profile of frozen units and adapters lacks what the run did" {
    # profiled FILE ARGS...: profiles a plan with these options.
    profiled() {
        ppsplit -q -p 2 "${@:2}" model-llama | ppsched -q -s 1f1b -m 4 >part.json
        run_pprun --steps 3 --profile "$1" part.json >/dev/null
    }
    profiled head.json --freeze embedding,head
    jq -e '.units | (.[0] | has("input") or has("weight") | not) and
        (.[-1] | has("input") and (has("weight") | not)) and
        (.[1:-1] | all(has("weight")))' head.json
    ppsplit -q -p 2 --costs head.json --freeze embedding,head model-llama >/dev/null
    ppsplit -q -p 2 --costs profile.json --freeze embedding model-llama >/dev/null
    fails 2 "ppsplit: head.json: /units/8/weight: 'lm_head' was frozen in the \
run; the plan needs this gradient" ppsplit -p 2 --costs head.json \
        --freeze embedding model-llama
    profiled lora.json --lora rank=4
    # Two products of rank 4 at each of seven.
    jq -e '.units[1] | has("weight") and .frozen > 0.5 and .frozen < 0.9' lora.json
    fails 2 "ppsplit: lora.json: /units/0/weight: 'model.embed_tokens' was frozen \
in the run; the plan needs this gradient" ppsplit -p 2 --costs lora.json model-llama
    fails 2 "ppsplit: lora.json: /units/1/weight: 'model.layers.0' had adapters in \
the run, and only they were trained; the plan trains all of it" \
        ppsplit -p 2 --costs lora.json --freeze embedding,model.norm,head model-llama
    # Times of the same adapters stay. Other ranks scale them by operations, and
    # so do none: F and I have more, and W a part.
    at() { jq -c '.profile.units[1] | [.fwd[0], .input[0], .weight[0]]'; }
    [ "$(ppsplit -q -p 1 --costs lora.json --lora rank=4 model-llama | at)" = \
        "$(jq -c '.units[1] | [.fwd[0], .input[0], .weight[0]]' lora.json)" ]
    ppsplit -q -p 1 --costs profile.json --lora rank=4 model-llama | at >adapted
    own=$((32 * (48 + 2 * 24 + 48 + 3 * 56)))
    more=$((4 * (32 + 48 + 2 * (32 + 24) + 48 + 32 + 3 * (32 + 56))))
    jq -e --argjson own $own --argjson more $more --slurpfile to adapted '.units[1] |
        [.fwd[0] * ($own + $more) / $own, .input[0] * ($own + $more) / $own,
            .weight[0] * 2 * $more / $own] as $want |
        [range(3)] | all(. as $k |
            ($to[0][$k] - $want[$k] | fabs) <= 1e-9 * $want[$k])' \
        profile.json
}

@test "pictures of measured costs are in seconds" {
    ppsplit -q -p 2 --costs profile.json model-llama |
        ppsched -q -s 1f1b -m 4 --svg a.svg --trace a.json >/dev/null
    grep -q '>s</text>' a.svg
    jq -e '.otherData.a_millisecond_is | endswith(" s")' a.json
    ppsplit -q -p 2 --costs profile.json model-llama |
        ppsched -q -s 1f1b -m 4 | ppsched -t | grep -q '^s  '
}

@test "recording needs steps and no recomputation" {
    fails 2 "pprun: --trace needs --steps" \
        pprun --data packed --init 1 --trace t plan.json
    fails 2 "pprun: --profile needs --steps" \
        pprun --data packed --init 1 --profile t plan.json
    fails 2 "pprun: --trace-steps needs --trace" \
        run_pprun --steps 3 --trace-steps 2 plan.json
    # One of the two was lost.
    fails 2 "pprun: --trace and --profile: both write to 'x'; give two places" \
        run_pprun --steps 3 --trace x --profile x plan.json
    fails 2 "pprun: --dump-grads and --output: both write to 'x'; give two \
places" run_pprun --steps 3 --dump-grads x -o x plan.json
    run_pprun -q --steps 3 --dump-grads /dev/null -o /dev/null plan.json
    fails 2 "pprun: a profile takes 3 steps or more, and 2 are left" \
        run_pprun --steps 2 --profile p plan.json
    run_pprun --steps 2 --save ended plan.json >/dev/null
    fails 2 "pprun: a trace takes 1 step or more, and 0 are left" \
        run_pprun --steps 1 --resume ended --trace t plan.json
    ppsplit -q -p 2 --recompute full model-llama |
        ppsched -q -s 1f1b -m 4 -o again.json
    fails 2 "pprun: --profile: stage 0 recomputes: make the plan with ppsplit\
 --recompute none" run_pprun --steps 3 --profile p again.json
    [ -z "$(find . -name p -o -name "p.*.tmp")" ]
    fails 3 "pprun: nosuch/t: No such file or directory" \
        run_pprun --steps 1 --trace nosuch/t plan.json
}

@test "--svg draws the curves of a run" {
    pprun -q plan.json --data packed --eval packed --eval-every 2 --init 1 \
        --steps 6 --svg curves.svg >log
    xmllint --noout curves.svg
    for title in Loss 'Gradient norm' 'Learning rate' 'Tokens per second' \
        'held out'; do
        grep -q ">$title</text>" curves.svg
    done
    grep -q '<title>LlamaForCausalLM: step 6 of 6</title>' curves.svg
    # The curves have a point for each step, in order.
    [ "$(grep -c '<circle class="a1"' curves.svg)" -eq 4 ] # and the legend's
    grep -E '<path class="l[0-4]" d="M' curves.svg | grep -v h16 >lines
    [ "$(wc -l <lines)" -eq 4 ]
    run ! grep -vE 'd="M[^ML]+(L[^L]+){5,}"' lines
    run -3 --separate-stderr pprun plan.json --data packed --init 1 --steps 2 \
        --svg nosuch/curves.svg
    [[ $stderr == "pprun: nosuch/curves.svg"* ]]
    [ -z "$output" ]
}
