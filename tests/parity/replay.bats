#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# replay - the experts of tokens are recorded and replayed: the same file from
# every mesh, and the gradients of one rank. tests/golden/replayed.bats compares
# them with transformers.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model qwen2-moe-ep false
    eight_heads model-qwen2-moe-ep
    data 1 24 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 2 -o packed data.jsonl
    N=$(bins packed)
    ((N % 2 == 0)) # two lanes take all bins
    plan one.plan gpipe "$N" -p 1
    score one.plan --init 5 --record-routing routes
    big_step one --init 6 --replay-routing routes
}

setup() {
    skip_some
    cd "$BATS_FILE_TMPDIR"
    N=$(bins packed)
}

# plan FILE KIND M SPLIT...
plan() {
    local file=$1 kind=$2 m=$3
    shift 3
    ppsplit -q "$@" model-qwen2-moe-ep | ppsched -q -s "$kind" -m "$m" >"$file"
}

score() { ppscore -q --data packed --dtype fp64 --logprobs -o scores "$@"; }

# big_step NAME OPTION...: a step so large that the weights after it are the
# gradients.
big_step() {
    rm -rf "$1.saved"
    pprun -q --data packed --dtype fp64 --steps 1 --clip 0 --optimizer sgd \
        --lr 100 --save "$1.saved" "${@:2}" "$1.plan" >"$1.log"
}

# replayed KIND LANES SPLIT...: records the choice of other weights on a mesh
# and replays that of one rank there.
replayed() {
    echo "# $*"
    plan mesh.plan "$1" "$((N / $2))" "${@:3}"
    score mesh.plan --init 5 --record-routing again
    cmp routes again
    big_step mesh --init 6 --replay-routing routes --record-routing again
    cmp routes again
    "$BUILDDIR/tests/golden/compare_tensors" 1e-10 1e-10 mesh.saved/latest \
        one.saved/latest
    jq -se '.[0] as $a | .[1] | [.loss / $a.loss, .grad_norm / $a.grad_norm] |
        all((. - 1 | fabs) <= 1e-11)' one.log mesh.log
}

@test "other weights choose other experts, unless a choice is replayed" {
    score one.plan --init 6 --record-routing other
    run ! cmp routes other
    score one.plan --init 6 --replay-routing routes --record-routing other
    cmp routes other
    # The step without a replay has other gradients.
    cp one.plan free.plan
    big_step free --init 6
    run -1 "$BUILDDIR/tests/golden/compare_tensors" 1e-3 1e-3 \
        free.saved/latest one.saved/latest
}

@test "pipeline ranks, recomputation and slices" {
    replayed 1f1b 1 -p 2 --recompute full
    replayed zbv 1 -p 2 -c 2 --placement v --recompute selective
    replayed seq1f1b 1 -p 2
}
@test "ranks of sequences, by every exchange" {
    replayed gpipe 1 -p 1 --cp 2
    replayed gpipe 1 -p 1 --cp 2 --cp-exchange ring --recompute full
    replayed 1f1b 1 -p 2 --cp 2 --cp-exchange a2a
}
@test "ranks of tensors, lanes and experts" {
    replayed gpipe 1 -p 1 --tp 2 --cp 2 --ep 2
    replayed 1f1b 2 -p 2 --dp 2 --ep 2 --zero 3
    replayed dualpipe 1 -p 2 --placement both-ways --cp 2 --ep 2
    replayed 1f1b 2 -p 2 --cp 2 --dp 2 --ep 4 --recompute full
}

@test "replay of one's own choice changes no bit" {
    pprun -q --data packed --init 5 --steps 3 --lr 1e-2 --record-routing three \
        --dump-grads grads one.plan | jq -c '[.loss, .grad_norm]' >log
    plan two.plan 1f1b "$N" -p 2 --recompute full
    pprun -q --data packed --init 5 --steps 1 --replay-routing routes \
        --dump-grads grads-1 one.plan | jq -c '[.loss, .grad_norm]' >log-1
    pprun -q --data packed --init 5 --steps 1 --dump-grads grads-2 two.plan |
        jq -c '[.loss, .grad_norm]' >log-2
    compare grads-1 grads-2
    cmp log-1 log-2
    # A bin keeps its last choice, of the weights of the third step.
    run ! cmp routes three
}

@test "a policy trains with the experts of its earlier pass" {
    rollouts 3 24 >rollouts.jsonl
    pppack -q -l 64 --cp 2 --tp 2 -o policy rollouts.jsonl
    # The earlier pass makes a column, so it cannot have it.
    jq -c 'del(.prev_logprobs)' rollouts.jsonl |
        pppack -q -l 64 --cp 2 --tp 2 -o drawn
    local n split
    n=$(bins policy)
    local options=(--data policy --dtype fp64 --objective grpo --steps 1
        --init 6 --clip 0 --optimizer sgd --lr 100)
    plan grpo.plan gpipe "$n" -p 1
    ppscore -q --data drawn --dtype fp64 --init 5 --logprobs -o scores \
        --record-routing before grpo.plan
    pprun -q "${options[@]}" --replay-routing before --save grpo.saved \
        grpo.plan >/dev/null
    for split in '-p 2 --cp 2 --ep 2' '-p 2 --tp 2 --recompute full'; do
        # shellcheck disable=SC2086
        plan grpo.plan 1f1b "$n" $split
        rm -rf mesh.saved
        pprun -q "${options[@]}" --replay-routing before \
            --record-routing after --save mesh.saved grpo.plan >/dev/null
        cmp before after
        "$BUILDDIR/tests/golden/compare_tensors" 1e-10 1e-10 \
            mesh.saved/latest grpo.saved/latest
    done
}

@test "processes write the file of threads" {
    needs_mpirun
    plan mpi.plan 1f1b "$((N / 2))" -p 2 --dp 2 --ep 2
    mpirun --allow-run-as-root --oversubscribe -n 4 ppscore -q --transport mpi \
        --data packed --dtype fp64 --init 5 --logprobs -o scores \
        --record-routing processes mpi.plan
    cmp routes processes
    mpirun --allow-run-as-root --oversubscribe -n 4 ppscore -q --transport mpi \
        --data packed --dtype fp64 --init 6 --logprobs -o scores \
        --replay-routing routes --record-routing processes mpi.plan
    cmp routes processes
    [ -z "$(find . -name 'processes.*.tmp')" ]
}

# refused STATUS TEXT OPTION...: one line on standard error that ends with TEXT.
refused() {
    run --separate-stderr pprun -q --init 5 "${@:3}"
    [ "$status" -eq "$1" ]
    [[ ${stderr_lines[0]} == *"$2" ]] || { echo "$stderr"; return 1; }
}

@test "files that do not fit are refused" {
    local replay=(--data packed --steps 1 one.plan --replay-routing)
    head -c 1000 routes >cut-short
    refused 2 "cut-short: has '1000' bytes, which are not those of its header; it \
may be cut" "${replay[@]}" cut-short
    cp routes flipped
    printf '\1' | dd of=flipped bs=1 seek=60 conv=notrunc status=none
    refused 2 "flipped: is damaged: its checksum is not \
'$(od -An -tx8 -j8 -N8 routes | tr -d ' ')'" "${replay[@]}" flipped
    refused 2 "packed/index: is not a recording of routes" "${replay[@]}" \
        packed/index
    refused 2 "missing: No such file or directory" "${replay[@]}" missing
    pppack -q -l 48 --cp 2 --tp 2 -o shorter data.jsonl
    run --separate-stderr pprun -q --init 5 --data shorter --steps 1 one.plan \
        --replay-routing routes
    [ "$status" -eq 2 ]
    [[ $stderr == *"routes: is for data of '$N' bins and '"*"' positions, and \
these have "* ]]
    # Other tokens of the same lengths.
    jq -c '.input_ids[0] = (.input_ids[0] + 1) % 67' data.jsonl >tokens.jsonl
    pppack -q -l 64 --cp 2 --tp 2 -o tokens tokens.jsonl
    run --separate-stderr pprun -q --init 5 --data tokens --steps 1 one.plan \
        --replay-routing routes
    [ "$status" -eq 2 ]
    [[ $stderr == *"routes: is for data whose sequences have the hash '"* ]]
    jq '.num_experts = 4' model-qwen2-moe-ep/config.json >config
    mkdir -p model-four
    mv config model-four/config.json
    ppsplit -q -p 1 model-four | ppsched -q -s gpipe -m 2 >four.plan
    refused 2 "routes: has '8' experts, but the model has 4" --data packed \
        --steps 1 four.plan --replay-routing routes
}

@test "a recording replaces regular files only" {
    mkfifo fifo
    mkdir -p directory
    for path in fifo directory; do
        refused 2 "$path: not a regular file" --data packed --steps 1 \
            --record-routing $path one.plan
    done
    [ -p fifo ]
    [ -z "$(ls directory)" ]
}

@test "a replay of bins that were not recorded is refused" {
    plan short.plan gpipe 2 -p 1
    pprun -q --data packed --init 5 --steps 1 --record-routing some short.plan \
        >/dev/null
    run -2 --separate-stderr ppscore -q --init 5 --data packed --logprobs \
        --replay-routing some one.plan
    [[ $stderr == "ppscore: "*"bin '2' has no experts for position 0; record a \
run that goes through all data" ]]
    pprun -q --data packed --init 5 --steps 1 --replay-routing some \
        short.plan >/dev/null
}

@test "routing options that would have no effect are refused" {
    model llama false
    ppsplit -q -p 1 model-llama | ppsched -q -s gpipe -m 2 >dense.plan
    refused 2 "'LlamaForCausalLM' has no experts, so --replay-routing has no \
effect" --data packed --steps 1 --replay-routing routes dense.plan
    refused 2 "'LlamaForCausalLM' has no experts, so --record-routing has no \
effect" --data packed --steps 1 --record-routing new dense.plan
    [ ! -e new ]
    # The file of a run that fails is removed, and an older one stays.
    cp routes kept
    refused 2 "through all data" --data packed --steps 1 --replay-routing some \
        --record-routing kept one.plan
    cmp routes kept
    [ -z "$(find . -name 'kept.*')" ]
}

# skews BINS: prints, for each layer with experts, the most rows of a rank of
# two, summed over groups of so many bins of 8 tokens, over the mean.
skews() {
    od -An -v -t u2 -w2 -j 56 even.routes | awk -v group="$1" '
        { i = NR - 1; bin = int(i / 80); layer = int(i % 80 / 16)
          n[int(bin / group), layer, int($1 / 4)]++; all[layer]++
          groups = int(bin / group) + 1 }
        END { for (l = 0; l < 5; l++) {
            sum = 0
            for (g = 0; g < groups; g++) {
                a = n[g, l, 0] + 0; b = n[g, l, 1] + 0
                sum += a > b ? a : b
            }
            printf "%s%.17g", l ? "," : "[", 2 * sum / all[l]
        } print "]" }'
}

# skewed BINS SHARERS SPLIT...: checks the operations of the plan with the loads
# of a run against those without, for two experts of three products of 32 x 8 in
# five of six layers.
skewed() {
    local skew bins=$1 sharers=$2
    shift 2
    skew=$(skews "$bins")
    echo "# $* $skew"
    ppsplit -q -p 1 --seq-len 8 "$@" model-qwen2-moe-ep >even.json
    ppsplit -q -p 1 --seq-len 8 "$@" --costs one.profile \
        model-qwen2-moe-ep >skewed.json
    jq -es --argjson skew "$skew" --argjson n "$sharers" '
        map(.model.units | map(.fwd_flops[0])[1:7]) as [$even, $more] |
        [$more, $even] | transpose | map(.[0] - .[1]) |
        (.[2] == 0) and (del(.[2]) | [., $skew] | transpose |
            all(.[0] - (.[1] - 1) * 2 * 3 * 2 * 32 * 8 / $n | fabs < 1e-6))' \
        even.json skewed.json
}

@test "a plan counts the rank with most rows of a profile" {
    local i
    for i in 1 2 3 4 5 6 7; do
        echo "{\"input_ids\": [$i, $((7 * i)), 3, $((60 - i)), 5, 9, $i, 2]}"
    done >even.jsonl
    pppack -q -l 8 -a none --rows 1 --no-shuffle --cp 2 -o even even.jsonl
    plan even.plan gpipe 7 -p 1
    ppscore -q --data even --init 5 --logprobs -o scores \
        --record-routing even.routes even.plan
    pprun -q --data even --init 5 --steps 3 --lr 0 --profile one.profile \
        even.plan >/dev/null
    skewed 1 2 --cp 2 --ep 2
    skewed 1 2 --cp 2 --dp 2 --ep 2
    mv skewed.json profiled.json
    # Seconds grow as operations: those of the run had all experts on a rank. Rows
    # beyond 1.25 of an even share, which go in a further round, are computed again:
    # two of three products in I, and three in W.
    jq -es '.[0].model.units as $plan | .[1].model.units as $run
        | .[0].profile.units as $is | .[2].units as $was
        | all(range(1; 7); . as $i
            | ($plan[$i].fwd_flops[0] * 2) as $all | $run[$i].fwd_flops[0] as $even
            | ([0, $all - $even - 0.25 * 3 * 2 * 2 * 32 * 8] | max / 3) as $further
            | all(["fwd", 0], ["input", 2], ["weight", 3]; . as [$of, $n]
                | $is[$i][$of][0] * 2 / $was[$i][$of][0]
                    / (($all + $n * $further) / $even) - 1 | fabs < 1e-9))' \
        profiled.json <(ppsplit -q -p 1 --seq-len 8 model-qwen2-moe-ep) \
        one.profile
    # A run whose ranks were as uneven as the plan's has their seconds.
    ppsplit -q -p 1 --cp 2 --dp 2 --ep 2 model-qwen2-moe-ep |
        ppsched -q -s gpipe -m 3 >two.plan
    pprun -q --data even --init 5 --steps 3 --profile two.profile two.plan \
        >/dev/null
    # 3 steps of 6 microbatches of 8 tokens, which have 2 experts each.
    jq -e '.experts == {ranks: 2, microbatches: 1} and
        all(.units[1, 2, 4].experts.tokens; add == 3 * 6 * 8 * 2)' two.profile
    ppsplit -q -p 1 --cp 2 --dp 2 --ep 2 --costs two.profile \
        model-qwen2-moe-ep | jq -e --slurpfile p two.profile '.profile.units
            == ($p[0].units | map(del(.experts) | map_values(arrays |= map(. / 2))))'
    # With two microbatches at a time, a part of what each is more uneven counts.
    ppsplit -q -p 1 --seq-len 8 --dp 2 --ep 2 --costs one.profile \
        model-qwen2-moe-ep >profiled.json
    jq -es '.[2].units[1].experts as $of | (.[2].units[1].experts.tokens
            | [add, ([add, (.[:4] | add)] | [.[1], .[0] - .[1]] | max)]) as [$n, $all]
        | (($all + ($of.fullest[1] - $all) / (2 | sqrt)) * 2 / $n) as $skew
        | map(.model.units[1].fwd_flops[0]) | (.[0] - .[1]
            - ($skew - 1) * 2 * 3 * 2 * 32 * 8 | fabs < 1e-6) and .[0] > .[1]' \
        profiled.json <(ppsplit -q -p 1 --seq-len 8 --dp 2 --ep 2 \
            model-qwen2-moe-ep) one.profile
    jq '.units[1].experts = {tokens: [1, 2], fullest: [3, 2]}' one.profile \
        >other.profile
    run --separate-stderr ppsplit -q -p 1 --costs other.profile \
        model-qwen2-moe-ep
    [ "$status" -eq 2 ]
    [[ $stderr == *"'model.layers.0' has loads of '2' experts, but the model \
has 8" ]]
}
