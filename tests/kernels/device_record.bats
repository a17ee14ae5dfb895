#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun --trace and --profile on the emulated device, whose streams are threads.
# Times are those of the device's work, not of the host that queues it.

bats_require_minimum_version 1.5.0
load ../parity/helpers
load ../cli/trace_helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    export EMULATED="$BUILDDIR/tests/kernels/pprun_emulated"
    mkdir model
    cat >model/config.json <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
 "vocab_size": 67, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "hidden_act": "silu", "max_position_embeddings": 128,
 "attention_bias": false, "initializer_range": 0.1,
 "tie_word_embeddings": true}
END
    data 1 8 >data.jsonl
    pppack -q -l 40 -o packed data.jsonl
    ppsplit -q -p 2 model | ppsched -q -s 1f1b -m 3 >plan.json
    ppsplit -q -p 2 -c 2 --placement v model |
        ppsched -q -s dualpipev -m 4 --trace pairs.planned >pairs.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

gpu() { "$EMULATED" -q --device cuda --data packed --init 1 "$@"; }

# Work of a rank on one stream does not overlap. The forward of an overlap pair is
# on another stream and is left out.
one_after_the_other() {
    jq -e '[.traceEvents[] | select(.name == "thread_name")
            | {key: "\(.pid) \(.tid)", value: .args.name}] as $all
        | ($all | from_entries) as $names
        | [.traceEvents[] | select(.ph == "X" and .cat != "step"
            and .cat != "send" and $names["\(.pid) \(.tid)"] != "compute (2)")]
        | length > 0 and (group_by(.pid) | map(sort_by(.ts, .dur)) | all(
            . as $row | all(range(1; length);
                $row[. - 1].ts + $row[. - 1].dur <= $row[.].ts + 0.0004)))
        ' "$1" >/dev/null
}

# Counts the forwards that ran at the same time as a backward and ended first.
n_overlapping() {
    jq '[.traceEvents[] | select(.ph == "X" and (.cat | . == "forward"
            or . == "backward"))] as $all
        | [$all[] | select(.cat == "forward") | . as $f
            | select(any($all[]; .cat == "backward" and .pid == $f.pid
                and .ts < $f.ts + $f.dur
                and $f.ts + $f.dur < .ts + .dur))]
        | length' "$1"
}

@test "a device's trace has the tracks, slices and arrows of ppsched's" {
    while read -r kind how; do
        read -ra how <<<"$how"
        ppsplit -q -p 2 "${how[@]}" model |
            ppsched -q -s "$kind" -m 4 --trace planned.json >kind.json
        gpu --steps 1 --trace trace.json kind.json >/dev/null
        echo "$kind"
        check_trace trace.json
        causal trace.json
        steps_tile trace.json
        one_after_the_other trace.json
        diff <(slices planned.json) <(slices trace.json)
        jq -e '.otherData.clocks_agree_within[:-2] | tonumber | . > 0' \
            trace.json
        ppsched --overlay trace.json kind.json | grep -q '^makespan'
    done <<'END'
1f1b
zbv -c 2 --placement v
seq1f1b --recompute selective
END
}

@test "overlap pairs run at the same time and are drawn so" {
    PP_EMULATED_JITTER=1 gpu --steps 2 --trace trace.json pairs.json >with
    check_trace trace.json
    causal trace.json
    one_after_the_other trace.json
    diff <(slices pairs.planned) <(slices trace.json)
    [ "$(n_overlapping trace.json)" -gt 0 ]
    jq -e '[.traceEvents[] | select(.name == "thread_name"
        and .args.name == "compute (2)")] | length > 0' trace.json
    ppsched --overlay trace.json -t --svg trace.svg pairs.json |
        grep -q '^bubble'
    gpu --steps 2 pairs.json >without
    diff <(numbers without) <(numbers with)
}

@test "a device's profile has units that run alone" {
    gpu --steps 3 --profile profile.json --trace trace.json pairs.json >with
    [ "$(n_overlapping trace.json)" -eq 0 ]
    gpu --steps 3 pairs.json >without
    diff <(numbers without) <(numbers with)
    # Messages are measured only if a receiver waited.
    jq -e --slurpfile plan pairs.json '
        .format == "pp-profile" and .version == 1
        and (.units | map(.fqn)) == ($plan[0].model.units | map(.fqn))
        and (.units[1:-2] | all(.fwd[0] + .fwd[1] > 0
            and .input[0] + .input[1] > 0 and .weight[0] > 0))
        and .step.seconds_per_param > 0
        and .messages.seconds_per_byte >= 0
        and .messages.latency >= 0' profile.json
    ppsplit -q -p 2 --costs profile.json model |
        ppsched -q -s zb-h1 -m 3 --data packed >measured.json
    ppsched --stats --data packed measured.json | jq -e '.time == "seconds"
        and .at_depth.makespan > 0 and .step > .at_depth.makespan'
    gpu --steps 1 measured.json >/dev/null
}

@test "times of units are within those of their actions" {
    gpu --steps 3 --grad-accum 2 --trace trace.json --trace-steps 2 plan.json \
        >/dev/null
    check_trace trace.json
    causal trace.json
    jq -e '[.traceEvents[] | select(.ph == "X" and .cat != "step")
            | [.args.step, .args.pass]] | unique
        == [[2,0],[2,1],[3,0],[3,1]]' trace.json
    # The profile has one step with one microbatch.
    ppsplit -q -p 1 model | ppsched -q -s 1f1b -m 1 >one.json
    gpu --steps 3 --trace trace.json --profile profile.json one.json >/dev/null
    ppsplit -q -p 1 --costs profile.json model |
        ppsched -q -s 1f1b -m 1 >again.json
    ppsched --stats --data packed --step 3 again.json | jq -e --slurpfile t trace.json '
        ([$t[0].traceEvents[] | select(.ph == "X" and .tid == 1) | .dur]
            | add * 1e-6) as $actions
        | .makespan > 0 and .makespan <= $actions + 1e-8'
}
