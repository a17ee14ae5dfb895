# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# bench_paced - runs whose actions, messages and copies take fixed times
# (tests/parity/paced.c), so that two cores are enough for eight ranks. The caller
# has set $build, and is in a directory of its own.
build=${build:?}

# tiny: makes the model tiny-model, and data of 32 microbatches.
tiny() {
    mkdir -p tiny-model
    jq -n '{architectures: ["LlamaForCausalLM"], model_type: "llama",
        vocab_size: 16, hidden_size: 8, num_hidden_layers: 14,
        num_attention_heads: 1, num_key_value_heads: 1, intermediate_size: 8,
        hidden_act: "silu", max_position_embeddings: 4096, rms_norm_eps: 1e-5,
        rope_theta: 10000.0, tie_word_embeddings: false}' >tiny-model/config.json
    jq -nc 'range(32) | {input_ids: [range(8)]}' | pppack -q -l 8 -o tiny
}

# paced WAY PLAN COSTS: prints the measured makespan of a pipeline of fixed times, in
# units of 2 ms. COSTS has the times of F, I, W, a message and perhaps a copy.
paced() {
    local launch=() options=()
    command -v chrt >/dev/null && chrt --rr 1 true 2>/dev/null &&
        launch=(chrt --rr 1) # short waits for a core
    if [ "$1" = mpi ]; then
        launch+=(mpirun --allow-run-as-root --oversubscribe -n 8)
        options=(--transport mpi)
    fi
    rm -f times
    touch times
    PP_PACED=$(jq -rn "[$3] | map(. * 0.002 | tostring) | join(\",\")") \
        PP_PACED_TIMES=times PPRUN_MPI=$build/cmd/pprun-mpi.so \
        "${launch[@]}" "$build/tests/parity/pprun_paced" -q --data tiny --init 1 \
        --steps 2 --trace trace.json "${options[@]}" "$2" </dev/null >/dev/null
    jq '[.traceEvents[]
         | select(.ph == "X" and (.cat | test("forward|backward|gradient")))]
        | ((map(.ts + .dur) | max) - (map(.ts) | min)) / 2000' trace.json
}
