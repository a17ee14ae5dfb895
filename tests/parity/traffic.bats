#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# traffic - what the ranks of a row send each other, and when.

bats_require_minimum_version 1.5.0
load helpers

setup() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
}

# received LAYERS SPLIT...: prints the bytes that all ranks of a row receive from
# each other in a step of 4 microbatches of 64 tokens, in fp32. KIND is that of the
# schedule, of P ranks, MODEL the directory of the model.
received() {
    jq ".num_hidden_layers = $1 | .mlp_only_layers = []" \
        "${MODEL:-model-llama}/config.json" >model-deep/config.json
    ppsplit -q -p "${P:-1}" "${@:2}" model-deep |
        ppsched -q -s "${KIND:-gpipe}" -m 4 >deep.json
    PP_RECEIVED=yes "$BUILDDIR/tests/parity/pprun_inject" -q --data even \
        --dtype fp32 --init 1 --steps 2 deep.json 2>&1 >log |
        awk '$1 == "rank" { sum += $4 } END { print sum }'
}

@test "a layer moves the bytes that the manual says" {
    mkdir -p model-deep
    jq -nc 'range(32) | {input_ids: [range(32)]}' | pppack -q -l 64 -o even
    local h=32 T=64 dp zero least norms=64 tensors=9
    local parameters=$(((2 * 48 + 2 * 24 + 3 * 56) * h + norms))
    least=$(received 2 --tp 2)
    [ $(($(received 3 --tp 2) - least)) -eq \
        $(((4 * 10 * T * h + 2 * norms) * 4)) ]
    # One layer more on each of two ranks of the row. The first has no input
    # gradient, and does all in W; in the other one I and W gather apart.
    model qwen2-moe false
    eight_heads model-qwen2-moe
    local kind model per_row whole
    while read -r kind model per_row whole; do
        least=$(P=2 KIND=$kind MODEL=model-$model received 6 --tp 2)
        [ $(($(P=2 KIND=$kind MODEL=model-$model received 8 --tp 2) - least)) -eq \
            $(((4 * per_row * T * h + 4 * (norms + whole)) * 4)) ]
    done <<END
gpipe llama $((10 + 10)) 0
gpipe qwen2-moe $((11 + 11)) $((8 * h + h))
zb-h1 llama $((10 + 12)) 0
zb-h1 qwen2-moe $((11 + 12)) $((8 * h + h))
END
    for zero in 0 1 3; do
        for dp in 2 3; do
            least=$(received 2 --dp "$dp" --zero "$zero")
            [ $(($(received 3 --dp "$dp" --zero "$zero") - least)) -eq \
                $(((dp - 1) * (2 * parameters * 4 + (zero > 0) * tensors * 8))) ]
        done
    done
    # Rows of keys and values by 2 ranks, and of queries too, in 4 microbatches.
    local kv=$((4 * T * 2 * 24)) heads=$((4 * T * (2 * 48 + 2 * 24)))
    local how state=$((2 * parameters * 4 + tensors * 8))
    local -A elements=([gather]=$((3 * kv)) [ring]=$((4 * kv))
        [a2a]=$((3 * heads / 2)))
    for how in gather ring a2a; do
        least=$(received 2 --cp 2 --cp-exchange "$how")
        [ $(($(received 3 --cp 2 --cp-exchange "$how") - least)) -eq \
            $((elements[$how] * 4 + state)) ]
    done
}

# waited TIMES BEHIND OPTION...: fails unless each of 2 ranks waits so often, and so
# often behind a product, in each of 3 microbatches of 5 layers of experts.
waited() {
    model qwen2-moe false
    eight_heads model-qwen2-moe
    [ -e packed ] || data 1 40 | pppack -q -l 64 --cp 2 --tp 2 -o packed
    ppsplit -q -p 1 --dp 2 --ep 2 --recompute full "${@:3}" model-qwen2-moe |
        ppsched -q -s gpipe -m 3 >plan.json
    PP_RECEIVED=yes "$BUILDDIR/tests/parity/pprun_inject" -q --data packed \
        --init 1 --steps 2 plan.json 2>waits >log
    cat waits
    [ "$(grep -c "waited $((15 * $1)) times, $((15 * $2)) behind a" waits)" -eq 2 ]
}

@test "shared experts and routers are computed while rows travel" {
    # A rank waits for counts of rows in F, in recomputation, in I and in W; for
    # rows to and from experts in F and I, again to them in recomputation, and
    # twice in W; and for weights of rows and their gradients in I. A product comes
    # before each wait for rows.
    waited 13 7 --expert-limit 2
    # Ranks that pad rows tell each other no counts.
    waited 9 7 --expert-capacity 1 --expert-padding
}
