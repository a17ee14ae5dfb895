# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# experts - comparisons of runs with experts, for the parity tests.

# router_bias DIR: prints the bytes of the bias of DeepSeek's router.
router_bias() {
    local file=$1/model.safetensors size at
    size=$(od -An -t u8 -N 8 "$file")
    at=$(head -c $((8 + size)) "$file" | tail -c "$size" | jq 'to_entries[]
        | select(.key | endswith("e_score_correction_bias"))
        | .value.data_offsets | @tsv' -r)
    tail -c +$((9 + size + ${at%%$'\t'*})) "$file" |
        head -c $((${at##*$'\t'} - ${at%%$'\t'*})) | od -An -t x1
}

# near_routers NAME...: fails unless the losses of routers and the loads of runs of
# five steps are those of the first.
near_routers() {
    jq -es --argjson n $# 'map([.aux_loss, .z_loss, .expert_load]) as $of |
        length == 5 * $n and all($of[][2]; . > 1) and
        all(range(1; $n) as $run | range(5) as $i | range(3) as $k
            | ($of[$i][$k] - $of[5 * $run + $i][$k] | fabs)
              <= 1e-12 * $of[$i][$k]; .)' "${@/%//log}"
}

# alike_over_ep COMMAND NAME...: COMMAND EP writes plan.json for so many
# expert-parallel ranks. With row-invariant products, experts of other ranks add up
# as one's own: only the gradients of their weights, and of the weights that sum
# over tokens of several ranks, depend on the ranks. Fails unless log-probabilities,
# losses and the gradients of the tensors NAME have the same bits for 1, 2 and 4.
alike_over_ep() {
    local ep of options=(--data packed --init 5 --row-invariant)
    for ep in 1 2 4; do
        "$1" $ep
        ppscore -q plan.json "${options[@]}" --logprobs -o "scores-$ep" >/dev/null
        pprun -q plan.json "${options[@]}" --steps 1 --lr 0 \
            --dump-grads "grads-$ep" | jq .loss >"loss-$ep"
    done
    shift
    for ep in 2 4; do
        cmp scores-1 "scores-$ep"
        cmp loss-1 "loss-$ep"
        for of; do
            "$BUILDDIR/tests/golden/compare_tensors" 0 0 "grads-$ep" grads-1 \
                "$of"
        done
        "$BUILDDIR/tests/golden/compare_tensors" 1e-6 0 "grads-$ep" grads-1
    done
}
