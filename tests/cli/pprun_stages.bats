#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun runs or refuses every plan that ppsched accepts: random stages, some of
# them empty, with random ranks, inputs and copies of the weights. PP_CASES is
# the number of plans.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    data 1 20 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 1 model-llama >base.json
    ppsplit -q -p 3 model-llama >three.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

@test "a later stage without inputs is refused" {
    jq '.stages[1].inputs = []' three.json | ppsched -q -s gpipe -m 2 >roots.json
    run --separate-stderr pprun roots.json --data packed --init 1 --steps 1
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "$stderr" = "pprun: roots.json: /stages/1/inputs: must be the previous stage alone; pprun supports only chains of stages so far" ]
}

@test "a stage that reads two stages, or one stage too early, is refused" {
    local inputs
    for inputs in '[0, 1]' '[0]'; do
        jq ".stages[2].inputs = $inputs" three.json |
            ppsched -q -s gpipe -m 2 >branch.json
        run --separate-stderr pprun branch.json --data packed --init 1 --steps 1
        [ "$status" -eq 2 ]
        [[ "$stderr" == "pprun: branch.json: /stages/2/inputs: must be the "* ]]
    done
}

# manifests SEED COUNT: one manifest a line. A third of the graphs are chains, a
# third are chains that one stage breaks, and a third are any graphs.
manifests() {
    awk -v seed="$1" -v n="$2" 'BEGIN {
        srand(seed)
        while (n-- > 0) {
            for (i = 0; i < 64; i++)
                printf "%d ", int(rand() * 5040)
            print ""
        }
    }' | jq -Rc --slurpfile base base.json '
        (split(" ") | map(select(. != "") | tonumber)) as $r
        | [$base[0].model.units[].fqn] as $units
        | (1 + $r[0] % 2) as $copies
        | (1 + $r[1] % 5) as $n
        | (1 + $r[2] % ($n * $copies)) as $ranks
        | ([range(1; $n) | $r[8 + .] % (1 + ($units | length))] | sort) as $cuts
        | ([0] + $cuts + [$units | length]) as $ends
        | ($r[4] % $n) as $odd
        | [range($n)
           | . as $s
           | if $r[3] % 3 == 2 then [range($s) | select($r[16 + 5 * $s + .] % 2 == 0)]
             elif $r[3] % 3 == 1 and $s == $odd then [range($s) | select($r[16 + .] % 3 == 0)]
             elif $s > 0 then [$s - 1]
             else [] end] as $inputs
        | $base[0] | del(.schedule, .profile, .components)
        | .mesh.pp = $ranks
        | .stages = [range($n * $copies)
            | . as $at | (. % $n) as $s
            | {stage: $at,
               rank: (if $at < $ranks then ($at + $r[5]) % $ranks
                      else $r[48 + $at % 16] % $ranks end),
               inputs: [$inputs[$s][] + $at - $s],
               units: $units[$ends[$s]:$ends[$s + 1]]}
              + if $at < $n then {} else {copy_of: $s} end]'
}

@test "pprun runs what ppsched accepts, or refuses it with status 2" {
    manifests "${PP_SEED:-1}" "${PP_CASES:-500}" >manifests
    # AddressSanitizer spends a third of the time on a search for leaks, which all
    # plans would share: only the first part has it.
    split -a 3 -l 125 manifests part.
    local part
    for part in part.*; do
        # A fork is slow beside the threads of OpenBLAS.
        OPENBLAS_NUM_THREADS=1 run "$BUILDDIR/tests/cli/run_graphs" "$part" packed
        echo "$output"
        [ "$status" -eq 0 ]
        [[ "$output" == "$(wc -l <"$part") plans: "* ]]
        export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
    done
}
