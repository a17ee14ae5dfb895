#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Slices of sequences, copies of the weights, and recomputation on the emulated
# device. Gradients are those of the CPU within rounding errors, and bits do not
# depend on the number of ranks.

bats_require_minimum_version 1.5.0
load ../parity/helpers
load device_helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    small llama LlamaForCausalLM llama false
    small qwen3 Qwen3ForCausalLM qwen3 true
    data 1 10 >data.jsonl
    pppack -q -l 32 -o packed data.jsonl
    # Longer than a tile of 64 keys, with sequences that begin inside a tile.
    awk 'BEGIN { for (i = 0; i < 4; i++) {
        ids = ""
        for (t = 0; t < 90 - 30 * (i % 2); t++)
            ids = ids (t ? "," : "") (t * t + 5 * i) % 67
        print "{\"input_ids\": [" ids "]}" } }' >long.jsonl
    pppack -q -l 150 -o long long.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# small NAME ARCHITECTURE TYPE TIED [HEAD_DIM [LAYERS]]
small() {
    mkdir -p "model-$1"
    cat >"model-$1/config.json" <<END
{"architectures": ["$2"], "model_type": "$3", "hidden_size": 16,
 "intermediate_size": 24, "num_hidden_layers": ${6:-2}, "num_attention_heads": 2,
 "num_key_value_heads": 1, "head_dim": ${5:-8}, "vocab_size": 67,
 "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
 "max_position_embeddings": 128, "attention_bias": false,
 "initializer_range": 0.1, "tie_word_embeddings": $4}
END
}

# plan FILE MODEL SCHED... -- SPLIT...
plan() {
    local file=$1 name=$2 sched=()
    shift 2
    while [ "$1" != -- ]; do
        sched+=("$1")
        shift
    done
    shift
    ppsplit -q "$@" "model-$name" | ppsched -q "${sched[@]}" >"$file"
}

@test "slices: the CPU's gradients, and the same bits on more ranks" {
    plan one.json qwen3 -s gpipe -m 3 --slices 3 -- -p 1
    plan two.json qwen3 -s seq1f1b -m 3 --slices 3 -- -p 2
    plan four.json qwen3 -s seq1f1b -m 3 --slices 3 -- -p 4
    cpu host one.json --eval packed
    gpu one one.json --eval packed
    near 1e-4 one host
    run ! same one host
    for plan in two four; do
        gpu ranks $plan.json --eval packed
        same ranks one
    done
    gpu one one.json --dtype bf16 --optimizer sgd
    # A plan for bf16 needs no --dtype.
    plan half.json qwen3 -s seq1f1b -m 3 --slices 3 -- -p 2 --dtype bf16
    gpu ranks half.json --optimizer sgd
    same ranks one
    # bf16 has a relative rounding error of 0.002. Terms of these gradients
    # cancel, so that the worst error is 0.05.
    cpu host one.json --optimizer sgd
    near 0.1 one host
}

@test "adapters of low rank: the CPU's gradients, and the same bits on more ranks" {
    local lora=(--lora "rank=4,alpha=8")
    plan one.json qwen3 -s gpipe -m 3 -- -p 1 "${lora[@]}"
    plan two.json qwen3 -s zb-h1 -m 3 -- -p 2 "${lora[@]}"
    cpu host one.json --lr 0.02
    gpu one one.json --lr 0.02
    near 1e-4 one host
    gpu ranks two.json --lr 0.02
    same ranks one
    plan one.json qwen3 -s gpipe -m 3 -- -p 1 --dtype bf16 "${lora[@]}"
    plan two.json qwen3 -s 1f1b -m 3 -- -p 2 --dtype bf16 "${lora[@]}"
    gpu one one.json --optimizer sgd
    gpu ranks two.json --optimizer sgd
    same ranks one
    cpu host one.json --dtype fp32 --optimizer sgd
    near 0.1 one host
}

@test "OLMo 2, Gemma 3 and Phi-4-mini: the CPU's gradients, on ranks too" {
    for family in olmo2 gemma3 phi3-partial; do
        golden one-$family.json $family 1
        golden two.json $family 2
        cpu host one-$family.json --optimizer sgd
        gpu one one-$family.json --optimizer sgd
        near 1e-4 one host
        gpu ranks two.json --optimizer sgd
        same ranks one
    done
    # Tensor-parallel ranks tell each other the sums of OLMo 2's QK-norm.
    ppsplit -q -p 1 --tp 2 "$SRCDIR/tests/golden/olmo2/model" |
        ppsched -q -s 1f1b -m 3 >tensor.json
    pppack -q -l 32 --tp 2 -o even data.jsonl
    local -x packed=even
    cpu host one-olmo2.json --optimizer sgd
    gpu tensor tensor.json --optimizer sgd
    near 1e-4 tensor host
}

@test "families of parts that the others lack: the CPU's gradients, on ranks too" {
    for family in afmoe apertus arcee cohere2 cohere2_moe ernie4_5_moe glm4 granitemoeshared hunyuan_v1_dense \
        llama4_text mimo_v2_flash ministral3; do
        golden one.json families/$family 1
        golden two.json families/$family 2
        cpu host one.json --optimizer sgd
        gpu one one.json --optimizer sgd
        near 1e-4 one host
        gpu ranks two.json --optimizer sgd
        same ranks one
    done
}

# gemma2 NAME FILTER: large weights, so that scores are near the cap.
gemma2() {
    mkdir -p "model-$1"
    jq ".initializer_range = 0.2 | $2" \
        "$SRCDIR/tests/golden/gemma2/model/config.json" >"model-$1/config.json"
}

@test "Gemma 2: capped scores and logits" {
    gemma2 capped .
    plan one.json capped -s 1f1b -m 3 -- -p 1
    plan two.json capped -s 1f1b -m 3 -- -p 2
    cpu host one.json --optimizer sgd
    gpu one one.json --optimizer sgd
    near 1e-4 one host
    gpu ranks two.json --optimizer sgd
    same ranks one
    # The gradients without a cap are others.
    gemma2 free '.attn_logit_softcapping = null'
    plan free.json free -s 1f1b -m 3 -- -p 1
    gpu free free.json --optimizer sgd
    run ! near 0.1 free host
}

@test "tensor cores: capped scores with heads of 16 and of 256" {
    local width o=(--optimizer sgd --steps 1) packed=long
    for width in 16 256; do
        gemma2 wide ".head_dim = $width | .sliding_window = 50 |
            .query_pre_attn_scalar = $width"
        plan one.json wide -s gpipe -m 2 -- -p 1
        cpu host one.json "${o[@]}"
        gpu half one.json "${o[@]}" --dtype bf16
        near 0.1 half host
    done
}

@test "slices train like whole sequences, in other bits" {
    plan whole.json llama -s gpipe -m 3 -- -p 1
    plan sliced.json llama -s gpipe -m 3 --slices 5 -- -p 2 -c 2 --placement v
    gpu whole whole.json
    gpu sliced sliced.json
    near 1e-4 sliced whole
    run ! same sliced whole
}

@test "slices of sequences of several tiles, on tensor cores" {
    small wide LlamaForCausalLM llama false 64 2
    plan whole.json wide -s gpipe -m 2 -- -p 1
    plan sliced.json wide -s seq1f1b -m 2 --slices 3 -- -p 2
    packed=long cpu host whole.json --steps 1
    packed=long gpu sliced sliced.json --steps 1
    near 1e-4 sliced host
    packed=long gpu whole whole.json --dtype bf16 --optimizer sgd --steps 1
    packed=long gpu sliced sliced.json --dtype bf16 --optimizer sgd --steps 1
    # The worst error is 0.014.
    near 0.04 sliced whole
}

@test "tensor cores: heads of 72, of 24 and 16, and of 256" {
    local name o=(--optimizer sgd --steps 1) packed=long
    small tower LlamaForCausalLM llama false 72
    mkdir -p model-latent model-gemma
    jq '.qk_nope_head_dim = 16 | .v_head_dim = 16 | .num_hidden_layers = 1' \
        "$SRCDIR/tests/golden/deepseek-v2/model/config.json" \
        >model-latent/config.json
    jq '.head_dim = 256 | .query_pre_attn_scalar = 256 | .sliding_window = 50 |
        .num_hidden_layers = 2 | .layer_types |= .[:2]' \
        "$SRCDIR/tests/golden/gemma3/model/config.json" \
        >model-gemma/config.json
    for name in tower latent gemma; do
        plan one.json $name -s gpipe -m 2 -- -p 1
        cpu host one.json "${o[@]}"
        gpu half one.json "${o[@]}" --dtype bf16
        near 0.04 half host
    done
}

@test "context-parallel ranks: the CPU's gradients" {
    # One step each, as these runs take longest.
    local o=(--optimizer sgd --steps 1)
    plan whole.json llama -s gpipe -m 1 -- -p 1
    head -n 2 long.jsonl | pppack -q -l 160 --cp 4 -o chunks
    plan parts.json llama -s 1f1b -m 1 -- -p 2 --cp 4
    packed=chunks cpu host whole.json --steps 1
    packed=chunks gpu parts parts.json --steps 1
    near 1e-4 parts host
    small heads LlamaForCausalLM llama false 64 2
    sed -i 's/"num_key_value_heads": 1/"num_key_value_heads": 2/' \
        model-heads/config.json
    plan whole.json heads -s gpipe -m 1 -- -p 1
    packed=chunks cpu host whole.json --steps 1
    packed=chunks gpu whole whole.json --dtype bf16 "${o[@]}"
    for how in gather a2a ring; do
        plan parts.json heads -s 1f1b -m 1 -- -p 2 --cp 2 \
            --cp-exchange $how
        packed=chunks gpu parts parts.json --steps 1
        near 1e-4 parts host
        packed=chunks gpu parts parts.json --dtype bf16 "${o[@]}"
        near 0.04 parts whole
    done
}

@test "sequences with context-parallel ranks of their own: the same" {
    local length how
    for length in 120 40 40; do
        jq -cn --argjson n $length '{input_ids: [range($n) | . * . % 67]}'
    done | pppack -q -l 208 --cp 2 --balance tokens \
        --cp-sizes per-sequence -o ranges
    # The long one is cut, the others are whole.
    [ "$(tail -c 16 ranges/index | od -An -v -N12 -tu2 | tr -s " ")" = \
        " 0 2 0 1 1 1" ]
    plan whole.json llama -s gpipe -m 1 -- -p 1
    packed=ranges cpu host whole.json
    for how in gather ring; do
        plan parts.json llama -s 1f1b -m 1 -- -p 2 --cp 2 --cp-exchange $how
        packed=ranges gpu parts parts.json
        near 1e-4 parts host
    done
    # The rows of a span are behind others, of elements and of statistics.
    local o=(--dtype bf16 --optimizer sgd --steps 1)
    packed=ranges gpu whole whole.json "${o[@]}"
    packed=ranges gpu parts parts.json "${o[@]}"
    near 0.04 parts whole
}

@test "on tensor cores bits do not depend on addresses of tensors" {
    # An odd number of tokens changes the alignment of later tensors.
    small wide LlamaForCausalLM llama false 64 2
    plan one.json wide -s 1f1b -m 4 -- -p 1
    pppack -q -l 67 -o odd data.jsonl
    packed=odd gpu one one.json --dtype bf16
    for p in 2 3; do
        plan ranks.json wide -s 1f1b -m 4 -- -p $p
        packed=odd gpu ranks ranks.json --dtype bf16
        same ranks one
    done
}

@test "products with biases, fused or not, have the CPU's gradients" {
    small qwen2 Qwen2ForCausalLM qwen2 false
    plan one.json qwen2 -s 1f1b -m 3 -- -p 1
    plan two.json qwen2 -s 1f1b -m 3 -- -p 2
    # The worst error is 2e-6. A key's bias changes all scores of a query nearly
    # equally, so that much of its gradient is rounding, which AdamW would enlarge.
    cpu host one.json --optimizer sgd
    gpu one one.json --optimizer sgd
    near 1e-5 one host
    gpu ranks two.json --optimizer sgd
    same ranks one
    for lt in none declines; do
        PP_EMULATED_LT=$lt gpu apart one.json --optimizer sgd
        near 1e-5 apart one
        run ! same apart one
    done
}

@test "a head of several stages has the CPU's gradients, on ranks too" {
    plan one.json llama -s 1f1b -m 3 -- -p 1
    plan apart.json llama -s zb-h1 -m 3 -- -p 1 --head-stages 2
    plan ranks.json llama -s zb-h1 -m 3 -- -p 2 --head-stages 2
    cpu host one.json --optimizer sgd
    gpu apart apart.json --optimizer sgd
    near 1e-5 apart host
    gpu ranks ranks.json --optimizer sgd
    same ranks apart
}

@test "a teacher's distributions have the CPU's gradients" {
    plan one.json llama -s 1f1b -m 3 -- -p 1
    plan two.json llama -s 1f1b -m 3 -- -p 2 --tp 2
    pppack -q -l 32 --tp 2 -o plain data.jsonl
    ppscore -q --data plain --init 7 --logprobs -o lists --top-k 12 one.json
    pppack -q -l 32 --tp 2 --add-column topk=lists -o taught plain
    local packed=taught o=(--objective distill --optimizer sgd)
    cpu host one.json "${o[@]}"
    gpu one one.json "${o[@]}"
    near 1e-5 one host
    gpu ranks two.json "${o[@]}"
    near 1e-5 ranks host
    gpu one one.json --optimizer sgd
    run ! near 1e-5 one host
}

@test "a reward model has the CPU's gradients and rewards" {
    small reward LlamaForSequenceClassification llama false
    jq '.id2label = {"0": ""}' model-reward/config.json >config
    mv config model-reward/config.json
    pairs 2 12 >pairs.jsonl
    pppack -q -l 64 --tp 2 --bins-multiple 2 -o pairs pairs.jsonl
    plan one.json reward -s 1f1b -m 2 -- -p 1
    plan ranks.json reward -s 1f1b -m 2 -- -p 2 --tp 2
    local -x packed=pairs
    local o=(--objective reward --optimizer sgd)
    cpu host one.json "${o[@]}"
    gpu one one.json "${o[@]}"
    near 1e-5 one host
    gpu ranks ranks.json "${o[@]}"
    near 1e-5 ranks host
    gpu half one.json "${o[@]}" --dtype bf16
    jq -se '.[0].loss - .[2].loss | fabs < 0.02' host/log half/log
    ppscore -q --data pairs --init 5 --logprobs -o host.scores one.json
    "$BUILDDIR/tests/kernels/ppscore_emulated" -q --device cuda --data pairs \
        --init 5 --logprobs -o scores ranks.json
    paste -d '\n' host.scores scores | jq -se '[range(0; length; 2) as $i |
        [.[$i].rewards, .[$i + 1].rewards] | transpose[] |
        .[0] - .[1] | fabs < 1e-5] | length == 12 and all'
}

@test "slices with padding, and without tokens" {
    pppack -q -l 32 --pad-to 16 -o padded data.jsonl
    plan sliced.json qwen3 -s gpipe -m 1 --slices 36 -- -p 2
    packed=padded cpu host sliced.json
    packed=padded gpu sliced sliced.json
    near 1e-4 sliced host
}

@test "two copies have the CPU's gradients, on one rank or on two" {
    plan both.json qwen3 -s dualpipe -m 4 -- -p 2 --placement both-ways
    plan four.json qwen3 -s dualpipe -m 8 -- -p 4 --placement both-ways
    plan v.json qwen3 -s dualpipev -m 4 -- -p 2 -c 2 --placement v
    plan lanes.json llama -s 1f1b -m 2 -- -p 2 --dp 3
    ppsched -q --without-rank 4 --time 0.1 lanes.json >lost.json
    for plan in both four v lost; do
        cpu host $plan.json
        gpu copies $plan.json
        near 1e-4 copies host
        run ! same copies host
    done
    gpu one both.json --dtype bf16
    PP_EMULATED_JITTER=3 gpu again both.json --dtype bf16
    same one again
}

@test "replicas have the CPU's gradients" {
    plan replicas.json qwen3 -s 1f1b -m 4 -- -p 2 --dp 2
    cpu host replicas.json
    PP_EMULATED_JITTER=5 gpu replicas replicas.json
    near 1e-4 replicas host
}

@test "dividing the optimizer's state changes no bit on a device" {
    plan divided.json qwen3 -s 1f1b -m 2 -- -p 2 --dp 2
    plan whole.json qwen3 -s 1f1b -m 2 -- -p 2 --dp 2 --zero 0
    for name in divided whole; do
        PP_EMULATED_JITTER=5 gpu "$name" "$name.json" --dtype bf16
    done
    same divided whole
}

@test "files with transposes are those of a state that is not divided" {
    # Each tensor-parallel rank has three blocks of the MLP's matrices.
    mkdir model-gpt2
    jq '.n_embd = 160 | .n_inner = 2000 | .n_layer = 1 | .n_positions = 32' \
        "$SRCDIR/tests/golden/gpt2/model/config.json" >model-gpt2/config.json
    pppack -q -l 32 --tp 2 -o even data.jsonl
    for name in 1 0; do
        ppsplit -q -p 1 --tp 2 --dp 2 --zero "$name" model-gpt2 |
            ppsched -q -s gpipe -m 1 >"zero-$name.json"
        PP_EMULATED_JITTER=5 packed=even gpu "zero-$name" "zero-$name.json"
    done
    same zero-1 zero-0
}

@test "a missing copy in the sum of gradients is detected" {
    plan both.json llama -s dualpipe -m 4 -- -p 2 --placement both-ways
    plan half.json llama -s 1f1b -m 2 -- -p 2
    gpu both both.json
    gpu half half.json
    run ! near 1e-4 both half
}

@test "recomputation has the same bits in every mode" {
    while read -r dtype name sched; do
        read -ra sched <<<"$sched"
        plan none.json "$name" "${sched[@]}"
        gpu none none.json --dtype "$dtype" --steps 1
        for mode in selective full; do
            # Mode full keeps no keys for later slices.
            [[ $mode/${sched[*]} != full/*slices* ]] || continue
            plan again.json "$name" "${sched[@]}" --recompute $mode
            [ "$(jq -r '.stages[0].recompute' again.json)" = $mode ]
            gpu again again.json --dtype "$dtype" --steps 1
            same none again
        done
    done <<'END'
fp32 llama -s 1f1b -m 3 -- -p 2
bf16 qwen3 -s zbv -m 4 -- -p 2 -c 2 --placement v
bf16 qwen3 -s seq1f1b -m 2 --slices 3 -- -p 2
fp32 llama -s dualpipe -m 4 -- -p 2 --placement both-ways
END
}

@test "offloaded activations: the same bits in less of the device's memory" {
    small tied Qwen3ForCausalLM qwen3 true
    local limit=(--offload auto --copy 1 --max-in-flight) name seed
    plan gpipe.json llama -s gpipe -m 4 -- -p 2
    plan gpipe-away.json llama -s gpipe -m 4 "${limit[@]}" 2 -- -p 2
    plan pairs.json tied -s dualpipev -m 4 -- -p 2 -c 2 --placement v
    plan pairs-away.json tied -s dualpipev -m 4 "${limit[@]}" 4 -- -p 2 -c 2 \
        --placement v
    for name in gpipe pairs; do
        gpu whole $name.json
        for seed in 1 2 3; do
            PP_EMULATED_JITTER=$seed gpu away $name-away.json
            same away whole
        done
        "$EMULATED" --device cuda $name.json --data packed --print-memory >need.json
        "$EMULATED" --device cuda $name-away.json --data packed --print-memory |
            jq -e --slurpfile whole need.json '(map(.host) | max > 0) and
                .[0].total < $whole[0][0].total'
    done
    run --separate-stderr "$EMULATED" --device cuda gpipe-away.json --data packed \
        --init 1 --steps 1 --offload-dir .
    [ "$status" -eq 2 ]
}

@test "recomputation takes less of the device's memory" {
    plan none.json llama -s 1f1b -m 3 -- -p 2
    plan full.json llama -s 1f1b -m 3 -- -p 2 --recompute full
    for mode in none full; do
        "$EMULATED" --device cuda $mode.json --data packed --init 1 --steps 1 \
            --print-memory >$mode.plan
    done
    jq -e --slurpfile none none.plan \
        '.[0].activations < $none[0][0].activations' full.plan
}

@test "a GPU needs the memory that --print-memory prints" {
    small tied Qwen3ForCausalLM qwen3 true
    plan pairs.json tied -s dualpipev -m 4 -- -p 2 -c 2 --placement v
    plan sliced.json tied -s seq1f1b -m 2 --slices 3 -- -p 2
    plan copies.json tied -s dualpipe -m 4 -- -p 2 --placement both-ways
    plan away.json llama -s gpipe -m 4 --offload auto --copy 1 \
        --max-in-flight 2 -- -p 2
    for plan in pairs sliced copies away; do
        run_it=("$EMULATED" --device cuda "$plan.json" --data packed --init 1
            --steps 1)
        "${run_it[@]}" --print-memory >need.json
        need=$(jq 'map(.total) | add' need.json)
        jq -e 'all(.total == ([.weights, .gradients, .optimizer,
            .activations, .messages, .workspace, .tables] | add))' need.json
        echo "$plan $need"
        # The device rounds up to pages.
        PP_EMULATED_BYTES=$((need + 40 * 4096)) "${run_it[@]}" >/dev/null
        PP_EMULATED_BYTES=$((need - 4096)) run --separate-stderr "${run_it[@]}"
        [ "$status" -eq 3 ]
        [[ "$stderr" == *"out of memory"* || "$stderr" == *"partial sums"* ]]
        most=$(jq 'map(.total) | max' need.json)
        run --separate-stderr "${run_it[@]}" --memory "$((most - 1 >> 10))K"
        [ "$status" -eq 1 ]
    done
}

@test "--verify compares a device with one rank in fp64" {
    plan chain.json llama -s 1f1b -m 3 -- -p 2
    plan tied.json qwen3 -s zbv -m 2 -- -p 2 -c 2 --placement v
    verify=("$EMULATED" --verify --device cuda --data packed --init 1)
    "${verify[@]}" tied.json >table
    tail -n 1 table | grep -qE '^the same: [0-9]+ tensors$'
    # The device's arithmetic is not the CPU's.
    pprun --verify --data packed --init 1 tied.json >table.cpu
    run ! cmp table table.cpu
    PP_EMULATED_PRODUCTS=off run --separate-stderr "${verify[@]}" --shrink \
        chain.json
    [ "$status" -eq 1 ]
    [[ "${lines[-1]}" == "not the same: "*stage\ 0* ]]
    # A model with large rounding errors in fp32 needs fp64.
    small steep LlamaForCausalLM llama false
    jq '.initializer_range = 1 | .num_hidden_layers = 10' \
        model-steep/config.json >config
    mv config model-steep/config.json
    plan steep.json steep -s gpipe -m 3 -- -p 2
    run --separate-stderr "${verify[@]}" steep.json
    [ "$status" -eq 2 ]
    [[ "$stderr" == "pprun: --verify: on this model fp32 rounding errors grow"* ]]
}

@test "a sampler gets frozen weights too, which have no master weights" {
    plan frozen.json llama -s 1f1b -m 2 -- -p 2 --dtype bf16 --freeze embedding
    mkfifo fifo
    cat fifo >got &
    "$EMULATED" frozen.json --data packed --init 5 --steps 1 --device cuda \
        --dtype bf16 --save-dtype fp32 --save ckpt --stream-weights fifo -q
    wait $!
    tail -n +2 got >got.safetensors # after the line with step and size
    compare got.safetensors ckpt/latest/model.safetensors
}

@test "checkpoints written beside training have the same files" {
    local more=(--dtype bf16 --device cuda --steps 4 --save-every 1 -q)
    plan plan.json llama -s 1f1b -m 2 -- -p 2 --dp 2 --dtype bf16
    go "$EMULATED" here plan.json "${more[@]}"
    PP_EMULATED_JITTER=7 go "$EMULATED" beside plan.json "${more[@]}" \
        --save-background
    diff -r here/ckpt beside/ckpt
    [ "$(ls beside/ckpt | wc -l)" -eq 5 ]
}

@test "divided weights: the bits of whole ones, on streams that fall behind" {
    local type
    plan whole.json llama -s interleaved -m 2 -- -p 2 -c 2 --dp 2
    plan parts.json llama -s interleaved -m 2 -- -p 2 -c 2 --dp 2 --zero 3 \
        --resident 1
    for type in fp32 bf16; do
        gpu whole whole.json --dtype $type --eval packed
        PP_EMULATED_JITTER=3 gpu parts parts.json --dtype $type --eval packed
        same whole parts
    done
}

@test "linear attention: the CPU's gradients, on ranks and in slices" {
    golden one.json families/qwen3_next 1
    golden two.json families/qwen3_next 2
    cpu host one.json --optimizer sgd
    gpu one one.json --optimizer sgd
    near 1e-4 one host
    gpu ranks two.json --optimizer sgd
    same ranks one
    ppsplit -q -p 2 "$SRCDIR/tests/golden/families/qwen3_next/model" |
        ppsched -q -s seq1f1b --slices 3 -m 3 >slices.json
    gpu slices slices.json --optimizer sgd
    near 1e-4 slices host
    pppack -q -l 32 --cp 2 -o chunked data.jsonl
    for cp in 1 2; do
        ppsplit -q -p 1 --cp $cp "$SRCDIR/tests/golden/families/qwen3_next/model" |
            ppsched -q -s 1f1b -m 3 >cp.json
        packed=chunked gpu cp$cp cp.json --optimizer sgd
    done
    near 1e-5 cp1 cp2
}
