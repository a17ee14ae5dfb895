# SPDX-License-Identifier: MIT
# What ppsched's and pprun's traces have in common.

# What Perfetto asks of a trace and does not say: slices of a track do not
# overlap, arrows begin and end inside slices of compute tracks, counters come
# back to 0, everything has a name.
check_trace() {
    jq -e '
        .traceEvents as $all
        | [$all[] | select(.ph == "X")] as $slices
        | ($slices | group_by([.pid, .tid]) | map(sort_by(.ts)) | all(
            . as $track | all(range(1; length);
                $track[. - 1].ts + $track[. - 1].dur
                    <= $track[.].ts + 0.0004)))
        and ([$all[] | select(.ph == "s" or .ph == "f")]
            | group_by(.id) | all(
                length == 2 and (map(.ph) | sort) == ["f", "s"]))
        and ([$all[] | select(.ph == "s" or .ph == "f")] | all(
            . as $tip | any($slices[];
                .pid == $tip.pid and .tid == $tip.tid and .tid == 1
                and .ts <= $tip.ts and $tip.ts < .ts + .dur)))
        and ([$all[] | select(.ph == "C")] | group_by([.pid, .name])
            | all(.[-1].args | to_entries[0].value == 0))
        and ([$all[] | select(.ph == "M" and .name == "thread_name")
                | [.pid, .tid]] | sort) as $named
            | ($slices | map([.pid, .tid]) | unique) - $named == []
    ' "$1" >/dev/null
}
