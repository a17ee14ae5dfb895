# SPDX-License-Identifier: MIT
# Helpers for the traces of ppsched and pprun.

# Perfetto requires this without saying so: slices of a track do not overlap,
# arrows begin and end inside slices of compute tracks, counters come back to 0,
# and everything has a name.
check_trace() {
    jq -e '
        .traceEvents as $all
        | [$all[] | select(.ph == "X")] as $slices
        | [$all[] | select(.ph == "M" and .name == "thread_name"
                and (.args.name | startswith("compute"))) | [.pid, .tid]]
            as $compute
        | ($slices | group_by([.pid, .tid]) | map(sort_by(.ts)) | all(
            . as $track | all(range(1; length);
                $track[. - 1].ts + $track[. - 1].dur
                    <= $track[.].ts + 0.0004)))
        and ([$all[] | select(.ph == "s" or .ph == "f")]
            | group_by(.id) | all(
                length == 2 and (map(.ph) | sort) == ["f", "s"]))
        and ([$all[] | select(.ph == "s" or .ph == "f")] | all(
            . as $tip | any($slices[];
                .pid == $tip.pid and .tid == $tip.tid
                and ([.pid, .tid] as $key | $compute | index([$key]))
                and .ts <= $tip.ts and $tip.ts < .ts + .dur)))
        and ([$all[] | select(.ph == "C")] | group_by([.pid, .name])
            | all(.[-1].args | to_entries[0].value == 0))
        and ([$all[] | select(.ph == "M" and .name == "thread_name")
                | [.pid, .tid]] | sort) as $named
            | ($slices | map([.pid, .tid]) | unique) - $named == []
    ' "$1" >/dev/null
}

# The slices of a trace by rank and track, times left aside. Where messages of
# a channel overlap is a matter of time.
slices() {
    jq -c '[.traceEvents[] | select(.name == "thread_name")
            | {key: "\(.pid) \(.tid)", value: .args.name}] as $all
        | ($all | from_entries) as $names
        | [.traceEvents[] | select(.ph == "X" and .cat != "step")
            | [.pid, ($names["\(.pid) \(.tid)"] | sub(" [(][0-9]+[)]$"; "")), .name, .cat, .args.op,
               .args.stage, .args.microbatch, .args.slice, .args.peer]]
        | sort[]' "$1"
}

# Nothing is used before it was made: arrows go forward in time, and receives
# end after their sends have begun, as far as the ranks' clocks agree.
causal() {
    jq -e '.traceEvents as $all
        | (.otherData.clocks_agree_within // "0 s" | .[:-2] | tonumber * 1e6)
            as $within
        | ([$all[] | select(.ph == "s" or .ph == "f")] | group_by(.id)
            | all(sort_by(.ph) | .[1].ts <= .[0].ts + $within))
        and ([$all[] | select(.ph == "X" and (.cat | . == "recv" or . == "send"))
                | {end: (.ts + .dur), ts, cat,
                   key: [.args.step, .args.pass, .args.microbatch, .args.slice,
                         .args.op[5:],
                         ([.args.stage, .args.peer] | map(values) | sort)]}]
            | group_by(.key) | all(sort_by(.cat)
                | length == 2 and .[0].cat == "recv" and .[0].end + $within >= .[1].ts))
        ' "$1" >/dev/null
}

# A receive is the wait for a message: no action runs meanwhile, and the next one
# of the rank uses the message.
waits_at_use() {
    jq -e '[.traceEvents[] | select(.ph == "X")] as $all
        | [$all[] | select(.cat | test("forward|backward|gradient"))] as $compute
        | all($all[] | select(.cat == "recv"); . as $recv
            | [$compute[] | select(.pid == $recv.pid
                and .ts + .dur > $recv.ts + 0.001)] | min_by(.ts)
            | .ts + 0.001 >= $recv.ts + $recv.dur
            and .args.stage == $recv.args.stage
            and .args.microbatch == $recv.args.microbatch
            and .args.slice == $recv.args.slice
            and (.args.op == "F") == ($recv.args.op == "RECV_F"))
        ' "$1" >/dev/null
}

# A pass lies between zeroed gradients and norm, and the parts of a step have
# nothing between them.
steps_tile() {
    jq -e '[.traceEvents[] | select(.ph == "X")] as $all
        | all(([$all[].pid] | unique)[]; . as $pid
            | [$all[] | select(.pid == $pid and .cat == "step")] as $step
            | ($step | map(.name)) == ["zero gradients", "schedule", "norm",
                "update"]
            and all(range(1; 4);
                ($step[. - 1].ts + $step[. - 1].dur - $step[.].ts | fabs) < 1e-3)
            and all($all[] | select(.pid == $pid and .tid == 1);
                .ts >= $step[1].ts
                and .ts + .dur <= $step[1].ts + $step[1].dur + 1e-3))
        and ($all | map(.ts) | min) == 0' "$1" >/dev/null
}
