#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppmesh: the plan, the table, settings for other systems, and refusals.

bats_require_minimum_version 1.5.0
load split_helpers

setup() {
    cd "$BATS_TEST_TMPDIR"
    llama 12 >model.json
    jq '.torch_dtype = "bfloat16"' model.json >bf16.json
    jq '. + {architectures: ["MixtralForCausalLM"], model_type: "mixtral",
        num_local_experts: 8, num_experts_per_tok: 2}' bf16.json >experts.json
    on8=(--gpus 8 --gpu h100 --node 4 --global-batch 16 --seq-len 2048)
}

@test "the step is that of ppsched and of ppsplit, and the memory too" {
    ppmesh -q "${on8[@]}" --plans 4 --memory 3GiB bf16.json >plan.json
    ppmesh -q "${on8[@]}" --plans 4 --memory 3GiB --json bf16.json >table.json
    ppsched --stats plan.json >stats.json
    [ "$(jq '.plans[0].step_seconds' table.json)" = "$(jq .step stats.json)" ]
    ppsplit -q -t --json plan.json >split.json
    jq -e --slurpfile t table.json '[.memory[].total] | max ==
        $t[0].plans[0].memory_bytes' split.json
}

@test "linear attention exchanges heads, and its key heads divide" {
    mkdir -p linear
    jq '.layer_types |= map("linear_attention")' \
        "$SRCDIR/tests/golden/families/qwen3_5_text/model/config.json" \
        >linear/config.json
    local o=(--gpus 2 --gpu h100 --global-batch 4 --seq-len 4096)
    ppmesh -q "${o[@]}" --fix cp=2 --json linear >table.json
    jq -e '(.plans | length) > 0 and all(.plans[]; .shares.cp > 0)' table.json
    run -1 ppmesh -q --gpus 4 "${o[@]:2}" --fix cp=4 linear
    [[ $output == *"refused for: cp 1" ]]
}

@test "the order of rows, their bound and the gap" {
    ppmesh -q "${on8[@]}" --plans 12 --json bf16.json >table.json
    jq -e '(.plans | map(.step_seconds)) as $s | $s == ($s | sort) and
        .lower_bound_seconds <= $s[0] and .lower_bound_seconds > 0 and
        (.gap - (1 - .lower_bound_seconds / $s[0]) | fabs) < 1e-12 and
        .obvious.step_seconds >= .lower_bound_seconds' table.json
    jq -e '.plans | all(.tp * .cp * .pp * .dp == 8 and
        .microbatches * .micro_batch_size * .dp == 16 and
        .memory_bytes <= .limit_bytes and
        (.shares | add) < 1 and (.shares.bubble >= -1e-9))' table.json
    jq -e '.meshes == 20 and (.refused | add) < 20' table.json
    ppmesh -q "${on8[@]}" --plans 12 --json bf16.json | cmp - table.json
}

@test "settings are kept" {
    ppmesh -q "${on8[@]}" --plans 4 --json --micro-batch-size 2 \
        --fix tp=2,pp=2,zero=3,schedule=1f1b,recompute=full,order=tp-dp-cp-pp \
        bf16.json >table.json
    jq -e '.plans | length > 0 and all(.tp == 2 and .pp == 2 and .zero == 3 and
        .schedule == "1f1b" and .micro_batch_size == 2 and
        (.recompute | unique == ["full"]) and .order == "tp-dp-cp-pp")' \
        table.json
}

@test "rows are different meshes, and say what memory and links would save" {
    ppmesh -q "${on8[@]}" --memory 3GiB --json bf16.json >table.json
    jq -e '.plans | length > 4 and
        (map([.tp, .cp, .pp, .dp]) | unique | length) == length' table.json
    ppmesh -q "${on8[@]}" --memory 3GiB --row 3 bf16.json |
        ppsched --stats >third.json
    [ "$(jq '.plans[2].step_seconds' table.json)" = "$(jq .step third.json)" ]
    one() {
        ppmesh -q "${on8[@]}" --fix tp=8,pp=1,schedule=1f1b,recompute=none \
            --top 1 --json "$@" bf16.json
    }
    one --link 100GB,10GB >slow.json
    one --link 100GB,20GB >fast.json
    jq -e --slurpfile fast fast.json '.plans[0] | .saved_by_links[1] > 0.01 and
        (.saved_by_links[1] - 1 + $fast[0].plans[0].step_seconds / .step_seconds |
        fabs) < 1e-9' slow.json
    narrow() {
        ppmesh -q "${on8[@]}" --fix tp=1,cp=1,pp=4,dp=2,schedule=1f1b --top 1 \
            --memory "$1" --json bf16.json
    }
    narrow 1600MiB >narrow.json
    narrow 2624MiB >wide.json
    jq -e --slurpfile wide wide.json '.plans[0] | .saved_by_1_gib > 0.01 and
        .saved_by_1_gib <= 1 - $wide[0].plans[0].step_seconds / .step_seconds +
        1e-9' narrow.json
    ppmesh -q -t "${on8[@]}" --memory 3GiB bf16.json >table
    grep -q "^    with twice the bandwidth in a node: [0-9.]* % less" table
}

@test "less memory takes more time, or nothing fits" {
    step() {
        ppmesh -q "${on8[@]}" --plans 8 --fix tp=1,cp=1,pp=4,dp=2 --memory "$1" \
            --json bf16.json | jq '.plans[0].step_seconds'
    }
    wide=$(step 40GiB) narrow=$(step 1600MiB)
    awk -v a="$wide" -v b="$narrow" 'BEGIN { exit !(a < b) }'
    run -1 --separate-stderr ppmesh -q "${on8[@]}" --memory 500MiB bf16.json
    [ -z "$output" ]
    [[ $stderr == "ppmesh: no mesh of 20 fits in 500.00 MiB; the nearest planned, tp"*", needs "* ]]
}

@test "experts are divided, with room for more than the even rows" {
    ppmesh -q "${on8[@]}" --plans 8 --fix ep=4 experts.json >plan.json
    jq -e '.mesh.ep == 4 and .mesh.expert_limit == null' plan.json
    ppmesh -q "${on8[@]}" --plans 8 --fix ep=4 --expert-limit 9 experts.json \
        >plan.json
    jq -e '.mesh.ep == 4 and .mesh.expert_limit == 4' plan.json
    ppsched --check plan.json
    run -2 ppmesh -q "${on8[@]}" --fix tp bf16.json
}

@test "another trainer has its own plans, seconds and bytes" {
    ppmesh -q "${on8[@]}" --plans 6 --trainer megatron bf16.json >plan.json
    ppmesh -q "${on8[@]}" --plans 6 --trainer megatron --json bf16.json >table.json
    jq -e '.model.trainer == "megatron" and
        (.schedule.kind | . == "1f1b" or . == "interleaved")' plan.json
    [ "$(jq '.plans[0].step_seconds' table.json)" = "$(ppsched --stats plan.json | jq .step)" ]
    jq -e '.plans | all((.order == "tp-cp-dp-pp" or .order == "tp-cp-pp-dp") and
        .zero == 1 and (.recompute | unique | length) == 1)' table.json
    ppmesh -q "${on8[@]}" --trainer torchtitan --json bf16.json |
        jq -e '.plans | all(.zero == 3 or .dp * .cp == 1)'
    ppmesh -q "${on8[@]}" --trainer deepspeed --json bf16.json |
        jq -e '.refused.trainer > 0 and (.plans | all(.cp == 1 and .ep == 1))'
    refused() {
        run -2 --separate-stderr ppmesh "${on8[@]}" "${@:2}"
        [ "${stderr_lines[0]}" = "ppmesh: $1" ]
    }
    refused "megatron does not divide state as ZeRO-3 does" \
        --trainer megatron --fix zero=3 bf16.json
    refused "deepspeed has no context-parallel ranks" \
        --export deepspeed --fix cp=2 bf16.json
    refused "megatron has no schedule 'zbv'" \
        --export megatron-args --fix schedule=zbv bf16.json
    refused "--fix schedule: dualpipe has two copies of the weights, which this search does not bound; plan it with --compare of ppsplit on a mesh" \
        --fix schedule=dualpipe bf16.json
    # Kinds that are given are the only ones.
    ppmesh -q "${on8[@]}" --fix schedule=gpipe,schedule=zbv --json bf16.json |
        jq -e '[.plans[].schedule] | unique - ["gpipe", "zbv"] == []'
    refused "deepspeed does not place ranks in this order of axes" \
        --trainer deepspeed --fix order=tp-cp-pp-dp bf16.json
    refused "the memory of megatron is known for bf16 alone; try --dtype bf16" \
        --trainer megatron --dtype fp32 bf16.json
    refused "--export deepspeed: has settings of deepspeed, not of megatron" \
        --trainer megatron --export deepspeed bf16.json
}

@test "meshes that were measured on B200 are in order" {
    # Llama 3 70B of 12 layers with Megatron-LM on eight GPUs: sequences, tp, pp,
    # dp, ms; SimuMax, results for B200. The model does not order steps within
    # 3 %.
    jq '. + {hidden_size: 8192, intermediate_size: 28672, num_hidden_layers: 12,
        num_attention_heads: 64, num_key_value_heads: 8, vocab_size: 128256,
        max_position_embeddings: 8192}' bf16.json >llama.json
    while read -r batch tp pp dp real; do
        ppmesh -q --gpus 8 --gpu b200 --trainer megatron --global-batch "$batch" \
            --seq-len 4096 --micro-batch-size 1 --json \
            --fix "tp=$tp,pp=$pp,dp=$dp,schedule=1f1b,recompute=none" llama.json |
            jq -c --argjson of "[$batch, $real]" \
                '$of + [.plans[0].step_seconds * 1e3]'
    done <<'END' >steps
8 4 1 2 409.8
8 8 1 1 556.7
16 2 1 4 725.5
16 4 1 2 765.6
16 1 2 4 843.0
32 2 1 4 1387.0
32 1 2 4 1476.8
32 8 1 1 2073.7
128 2 1 4 5376.5
128 1 2 4 5436.5
END
    jq -se 'group_by(.[0]) | map(. as $rows | [range(length) as $i |
        range($i) as $k | [$rows[$k], $rows[$i]] | sort_by(.[1]) |
        select(.[1][1] > 1.03 * .[0][1]) | .[0][2] < .[1][2]]) | add |
        length == 7 and all' steps
}

@test "settings of Megatron-LM" {
    ppmesh -q "${on8[@]}" --plans 6 --export megatron-args experts.json >args
    for flag in tensor-model-parallel-size context-parallel-size \
        expert-model-parallel-size expert-tensor-parallel-size \
        pipeline-model-parallel-size micro-batch-size global-batch-size \
        seq-length bf16; do
        grep -q "^--$flag" args
    done
    for size in 'num-layers 12' 'hidden-size 1024' 'ffn-hidden-size 4096' \
        'kv-channels 128' 'num-query-groups 2' 'num-experts 8' \
        'moe-router-topk 2' 'moe-layer-freq [1]*12' \
        untie-embeddings-and-output-weights; do
        grep -qxF -- "--$size" args
    done
    run -1 grep -vE '^(--|# )' args
    ppmesh -q "${on8[@]}" --plans 6 --fix pp=2,dp=2,order=tp-cp-pp-dp,cp=2,recompute=full \
        --export megatron-args bf16.json >args
    grep -qx -- '--use-tp-pp-dp-mapping' args
    run ! grep -q 'reduce-in-bf16\|precision-aware' args
    grep -qx -- '--recompute-granularity full' args
    # Narrow gradients and moments have settings.
    ppmesh -q "${on8[@]}" --plans 2 --fix pp=1 --dtype bf16-state \
        --export megatron-args bf16.json | grep -xcE -- "--(grad-reduce-in-bf16|\
use-precision-aware-optimizer|exp-avg(-sq)?-dtype bf16|main-grads-dtype bf16)" |
        grep -qx 5
    # The layout is read back.
    layout=$(sed -n 's/^--pipeline-model-parallel-layout //p' args)
    ppsplit -q -p 2 --layout "$layout" bf16.json | jq -e '.stages | length % 2 == 0'
}

@test "settings of torchtitan, DeepSpeed and Slurm" {
    ppmesh -q "${on8[@]}" --plans 6 --fix pp=2 --export torchtitan bf16.json >args
    grep -qx -- '--parallelism.pipeline_parallel_degree 2' args
    parts=$(sed -n 's/^--parallelism.module_fqns_per_model_part //p' args)
    [ $(($(wc -w <<<"$parts") % 2)) -eq 0 ]
    [ "$(tr ' ,' '\n\n' <<<"$parts" | wc -l)" -eq 15 ]
    [[ "$parts" == tok_embeddings*lm_head ]]
    ppmesh -q "${on8[@]}" --fix pp=2,schedule=v-half --export torchtitan bf16.json |
        grep -qx -- '--parallelism.pipeline_parallel_schedule_csv schedule.csv'
    run --separate-stderr ppmesh "${on8[@]}" --plans 6 --fix pp=2,tp=2 \
        --export deepspeed bf16.json
    [ "$status" -eq 0 ]
    jq -e '.train_batch_size == 16 and .pipeline.stages == 2 and
        .train_batch_size == .train_micro_batch_size_per_gpu *
            .gradient_accumulation_steps * 2' <<<"$output"
    [[ $stderr == *'topology pipe 2, data 2, model 2'* ]]
    ppmesh -q "${on8[@]}" --plans 2 --export sbatch bf16.json >run.sh
    bash -n run.sh
    grep -qx '#SBATCH --nodes=2' run.sh
    grep -qx '#SBATCH --ntasks-per-node=4' run.sh
}

@test "--svg draws all meshes and plans" {
    ppmesh -q "${on8[@]}" --plans 6 --memory 3GiB --svg meshes.svg --json bf16.json >table.json
    xmllint --noout meshes.svg
    [ -z "$(grep -E '[^a-z](nan|inf)[^a-z]' meshes.svg)" ]
    # Each mesh that passed all checks but memory is drawn or left out.
    drawn=$(grep -cE '<title>tp[^<]*, not planned: at least ' meshes.svg)
    out=$(sed -n 's/.*step (s); \([0-9]*\) more meshes.*/\1/p' meshes.svg)
    plans=$(grep -cE '<title>tp[^<]*: step ' meshes.svg)
    bounded=$(jq '.meshes - (.refused | add - .memory)' table.json)
    echo "$drawn $out $plans $bounded"
    [ $((drawn + plans + ${out:-0})) -eq $((bounded + 6)) ]
    # The first row is the shortest.
    step=$(jq '.plans[0].step_seconds' table.json)
    grep -E 'class="a4"' meshes.svg | grep -F ": step $(printf %.4g "$step") s"
    grep -q '>--memory<' meshes.svg
    run -2 --separate-stderr ppmesh "${on8[@]}" --svg - bf16.json
    [[ $stderr == *'only one of --svg and the result can go to standard output'* ]]
}

@test "the systems' own parsers take the settings" {
    local names=$SRCDIR/tests/data/export_names
    # The names that parsers took from scripts/gen-exports, which compares values
    # too; it runs here if PP_TRAINERS has the systems.
    for fix in pp=1 pp=2,tp=2,recompute=full pp=2,recompute=selective ep=4,pp=1; do
        ppmesh -q "${on8[@]}" --plans 2 --fix $fix --export megatron-args experts.json |
            grep -o '^--[a-z0-9-]*' | sed 's/^/megatron /' >>got
        ppmesh -q "${on8[@]}" --plans 2 --fix $fix --export torchtitan experts.json |
            grep -oE '^(--[a-z_.]*|activation-checkpoint:.*)' | sed 's/^/torchtitan /' >>got
    done
    for fix in pp=1,tp=2 pp=2,recompute=full; do
        ppmesh -q "${on8[@]}" --plans 2 --fix $fix --export deepspeed bf16.json |
            jq -r 'keys[], (.[] | objects | keys[])' | sed 's/^/deepspeed /' >>got
    done
    [ "$(sort -u got | wc -l)" -gt 50 ]
    [ -z "$(LC_ALL=C sort -u got | LC_ALL=C comm -23 - "$names")" ]
    [ -n "${PP_TRAINERS:-}" ] || skip "PP_TRAINERS does not have the systems"
    PYTHONPATH=$PP_TRAINERS "${PP_PYTHON:-python3}" "$SRCDIR/scripts/gen-exports" |
        grep -E '^(megatron|torchtitan|deepspeed) ' | diff "$names" -
}

# stop_after SECONDS: ends a search that would take long after so much processor
# time. Its status is 1 if no plan was found by then.
stop_after() {
    ppmesh --gpus 128 --gpu h100 --global-batch 128 --seq-len 2048 \
        --plans 100000 deep.json >plan.json 2>notes &
    local used=0
    while [ "${used:-$1}" -lt "$1" ]; do
        sleep 0.2
        used=$(ps -o cputimes= -p $! || true)
    done
    kill -TERM $!
    wait $!
}

@test "a signal ends the search with the best plan so far" {
    local seconds status=1
    llama 48 | jq '.torch_dtype = "bfloat16"' >deep.json
    for ((seconds = 2; status == 1 && seconds < 60; seconds *= 2)); do
        status=0
        stop_after $seconds || status=$?
    done
    [ "$status" -eq 0 ]
    grep -q 'stopped: the best plan so far' notes
    ppsched --check plan.json
}

@test "misuse" {
    refused() {
        run --separate-stderr ppmesh "${@:2}"
        [ "$status" -eq 2 ]
        [ "${stderr_lines[0]}" = "ppmesh: $1" ]
    }
    refused "give the number of GPUs (--gpus)" --gpu h100 bf16.json
    refused "give the sequences of a step (--global-batch)" --gpus 8 \
        --gpu h100 bf16.json
    refused "give the GPU (--gpu or --machine)" --gpus 8 --global-batch 8 bf16.json
    refused "--fix: 'x' is not a setting, such as tp=8" "${on8[@]}" --fix x bf16.json
    refused "--fix: 'q' is none of tp, cp, ep, pp, dp, chunks, zero, order, experts-over-tp, schedule and recompute" \
        "${on8[@]}" --fix q=1 bf16.json
    refused "--row: there are '1' plans" "${on8[@]}" --plans 1 \
        --fix tp=2,cp=1,pp=2,dp=2 --row 2 bf16.json
}
