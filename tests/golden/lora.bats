#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# lora - compares adapters with PEFT: the loss of the base, losses and gradient
# norms of twenty steps, and every gradient of the first, in fp64. scripts/gen-lora
# wrote the expected values.

bats_require_minimum_version 1.5.0

setup() {
    GOLDEN=$SRCDIR/tests/golden
    cd "$BATS_TEST_TMPDIR"
    pppack -q -l 48 -o packed "$GOLDEN/data.jsonl"
    BINS=$(pppack --stats packed | jq .bins)
}

# plan CASE [OPTION...]: a step takes every bin.
plan() {
    local model=${1%-patterns}
    model=$GOLDEN/${model%-saved}/model
    [ -d "$model" ] || model=$GOLDEN/families/$1/model
    ppsplit -q "${@:2}" "$model" | ppsched -q -s 1f1b -m "$BINS" >plan.json
}

# train CASE STEPS [OPTION...]
train() {
    pprun -q --data packed --steps "$2" --lr 1e-2 --betas 0.9,0.999 --clip 1 \
        --weight-decay 0.1 --dtype fp64 --adapter "$GOLDEN/lora/$1" "${@:3}" \
        plan.json >steps.jsonl
}

# losses CASE TOLERANCE: compares as many steps as there are.
losses() {
    jq -se --argjson bound "$2" --slurpfile want "$GOLDEN/lora/$1/expected.json" '
        def near($x): . / $x - 1 | fabs < $bound;
        $want[0] as $w | to_entries | length > 0 and all(.[]; . as $s |
            ($s.value.loss | near($w.losses[$s.key])) and
            ($s.value.grad_norm | near($w.grad_norms[$s.key])))' steps.jsonl ||
        { cat steps.jsonl "$GOLDEN/lora/$1/expected.json"; return 1; }
}

# gradients CASE [OPTION...]: the loss of the first step and its gradients.
gradients() {
    plan "$@" --lora "$GOLDEN/lora/$1"
    train "$1" 1 --dump-grads grads.safetensors
    losses "$1" 1e-9
    "$BUILDDIR/tests/golden/compare_tensors" 1e-9 1e-13 grads.safetensors \
        "$GOLDEN/lora/$1/grads.safetensors"
}

# agrees CASE [STEPS]: twenty steps, and the gradients of the first.
agrees() {
    gradients "$1" -p 2
    train "$1" "${2-20}"
    [ "$(wc -l <steps.jsonl)" -eq "${2-20}" ]
    losses "$1" 1e-8
}

# merged CASE: the loss of the merged model is that of the model with its adapter.
merged() {
    plan "$1" -p 1 --lora "$GOLDEN/lora/$1"
    rm -rf merged
    pprun -q --merge merged --adapter "$GOLDEN/lora/$1" plan.json
    ppsplit -q -p 1 merged | ppsched -q -s gpipe -m "$BINS" >whole.json
    pprun -q --data packed --steps 1 --lr 0 --dtype fp64 whole.json >steps.jsonl
    jq -se '.[0].losses[0] / .[1].loss - 1 | fabs < 1e-7' \
        "$GOLDEN/lora/$1/expected.json" steps.jsonl
}

@test "adapters of all products of Llama, Qwen3 and OLMo 2" {
    agrees llama
    agrees qwen3
    agrees olmo2
}

@test "adapters of some products of Qwen2, Mistral, SmolLM3 and Gemma 3" {
    agrees qwen2
    agrees mistral
    agrees smollm3
    agrees gemma3
}

@test "adapters of linear attention" {
    # Twenty steps multiply rounding by 1e10, in PEFT too.
    agrees qwen3_5_text 8
    agrees qwen3_next
    merged qwen3_5_text
    # Ranks have parts of A or of B, or of the tokens.
    pppack -q -l 48 --cp 2 -o packed "$GOLDEN/data.jsonl"
    BINS=$(pppack --stats packed | jq .bins)
    for o in '-p 1 --tp 2' '-p 1 --cp 2'; do
        gradients qwen3_5_text $o
        gradients qwen3_next $o
    done
}

@test "adapters of fused products, of GPT-2 and Phi-3, and of Gemma 2" {
    agrees gpt2
    agrees phi3
    agrees gemma2
}

@test "adapters of attention beside experts" {
    agrees qwen3-moe
    agrees gpt-oss
    agrees deepseek-v3
}

@test "ranks and scales of some products, in some layers" {
    agrees llama-patterns
    jq -e '.model.lora | .layers == "0+2+3" and
        .ranks == "layers.2.mlp.down_proj:1+q_proj:4+k_proj::7+layers.0.self_attn.q_proj::9+q_proj::3"' \
        plan.json
    # Our file has the same adapters, and the plan of it the same numbers.
    train llama-patterns 2 --save saved
    jq -e '.rank_pattern == {"layers.2.mlp.down_proj": 1, q_proj: 4} and
        .alpha_pattern == {k_proj: 7, q_proj: 3, "layers.0.self_attn.q_proj": 9} and
        (.target_modules | length) == 18' saved/latest/adapter_config.json
    plan llama-patterns -p 1 --lora saved/latest
    train llama-patterns 4 --resume saved
    jq -se --slurpfile want "$GOLDEN/lora/llama-patterns/expected.json" '
        (.[1].loss / $want[0].losses[3] - 1 | fabs) < 1e-8' steps.jsonl
    merged llama-patterns
    # The comparison sees a scale that is another product's.
    plan llama-patterns -p 1 --lora "$GOLDEN/lora/llama-patterns"
    jq '.model.lora.ranks |= sub("k_proj::7"; "v_proj::7")' plan.json >other.json
    run -2 --separate-stderr pprun -q --data packed --steps 1 \
        --adapter "$GOLDEN/lora/llama-patterns" other.json
    [[ $stderr == *"but the plan has rank 2 and scale 3.53553 for 'model.layers.0.self_attn.k_proj.weight'"* ]]
}

@test "the embedding and the head trained whole beside adapters" {
    agrees llama-saved
    # Our file is PEFT's, another mesh goes on from it, and a merge has its modules.
    train llama-saved 2 --save saved
    jq -e '.modules_to_save == ["embed_tokens", "lm_head"]' saved/latest/adapter_config.json
    plan llama-saved -p 1 --lora saved/latest
    train llama-saved 4 --resume saved
    jq -se --slurpfile want "$GOLDEN/lora/llama-saved/expected.json" '
        (.[1].loss / $want[0].losses[3] - 1 | fabs) < 1e-8' steps.jsonl
    merged llama-saved
    # Ranks that divide them, or their states, have the numbers of one.
    pppack -q -l 48 --tp 2 -o even "$GOLDEN/data.jsonl"
    for mesh in '-p 1 --dp 2' '-p 2 --dp 2 --tp 2' '-p 1 --dp 2 --zero 3'; do
        # shellcheck disable=SC2086
        ppsplit -q $mesh --lora "$GOLDEN/lora/llama-saved" "$GOLDEN/llama/model" |
            ppsched -q -s 1f1b -m 2 >plan.json
        train llama-saved 2 --data even
        jq -s -c 'map(.loss, .grad_norm)' steps.jsonl
    done | jq -se '.[0] as $one | length == 3 and
        all(.[]; to_entries | all(.[]; .value / $one[.key] - 1 | fabs < 1e-12))'
    plan llama-saved -p 1 --lora rank=2,alpha=4,targets=q_proj+down_proj
    run -2 --separate-stderr train llama-saved 1
    [[ $stderr == *"'base_model.model."*".weight' is not among the targets of the plan"* ]]
    # A plan counts the states of the modules, as the run does.
    ppsplit -q -p 1 --lora rank=2,saved=lm_head "$GOLDEN/llama/model" | jq -e '.model.units |
        (.[-1] | .frozen == null and .state_bytes - .weight_bytes == 12 * .params) and
        (.[0] | .frozen and .state_bytes == 0)'
    plan llama-saved -p 2 --lora rank=2,saved=embed_tokens+model.norm+lm_head
    pprun --data packed --print-memory plan.json >need
    ppsched --stats --data packed plan.json | jq -e --slurpfile need need '
        def parts: map({weights, states: (.gradients + .optimizer), activations, total});
        (.memory | parts) == ($need[0] | parts)'
    for o in "x_proj:no module outside of layers ends with 'x_proj', as" \
        "norm:modules of layers end with 'norm'; give the whole"; do
        run -2 --separate-stderr ppsplit -q -p 1 --lora "saved=${o%%:*}" "$GOLDEN/llama/model"
        [[ $stderr == "ppsplit: --lora: ${o#*:}"* ]]
    done
    run -2 --separate-stderr ppsplit -q -p 1 --lora rank=2,saved=lm_head "$GOLDEN/gemma/model"
    [ "$stderr" = "ppsplit: --lora: 'lm_head' cannot be trained beside adapters: the embedding and the head are one tensor" ]
}

@test "the base is PEFT's without adapters" {
    plan llama -p 1
    pprun -q --data packed --steps 1 --lr 0 --dtype fp64 plan.json >steps.jsonl
    jq -se '.[0].base_loss / .[1].loss - 1 | fabs < 1e-10' \
        "$GOLDEN/lora/llama/expected.json" steps.jsonl
    # Adapters whose B is zero change no bit: these scores are a reference.
    ppscore -q --data packed --logprobs -o base plan.json
    plan llama -p 2 --lora rank=4
    ppscore -q --data packed --logprobs -o without plan.json
    cmp base without
    plan llama -p 2 --lora "$GOLDEN/lora/llama"
    ppscore -q --data packed --logprobs --adapter "$GOLDEN/lora/llama" -o with plan.json
    run ! cmp base with
}

@test "the comparison sees another scale, and B that starts as zeros" {
    plan llama -p 1 --lora rank=3,alpha=7
    run -2 --separate-stderr train llama 1
    [[ $stderr == *"has rank 3 and scale 2, but the plan has rank 3 and scale 2.33"* ]]
    jq '.model.lora.alpha = 6' plan.json >right.json
    pprun -q --data packed --steps 1 --dtype fp64 right.json >steps.jsonl
    run -1 losses llama 1e-6
}

# pairs NAME PLAN_OPTION...: packs the pairs of the golden of DPO without their
# reference, and plans a step over all of them.
pairs() {
    jq -c 'del(.. | .ref_logprobs?)' "$GOLDEN/objectives/dpo.jsonl" >pairs.jsonl
    pppack -q -l 32 --cp 2 --tp 2 -o pairs pairs.jsonl
    ppsplit -q "${@:2}" --lora "$GOLDEN/lora/dpo" "$GOLDEN/objectives/model" |
        ppsched -q -s 1f1b -m "$(pppack --stats pairs | jq .bins)" >"$1"
}

# prefer PLAN OPTION...: four steps of DPO, as TRL's.
prefer() {
    pprun -q --data pairs --steps 4 --lr 1e-2 --clip 0 --dtype fp64 \
        --objective dpo,beta=0.5 --adapter "$GOLDEN/lora/dpo" "${@:2}" "$1" \
        >steps.jsonl
}

@test "the reference of dpo is the base, as in TRL with a model of PEFT" {
    local mesh
    pairs one.json -p 1
    for mesh in '-p 2' '-p 1 --cp 2' '-p 1 --cp 2 --cp-exact' '-p 2 --tp 2'; do
        # shellcheck disable=SC2086
        pairs plan.json $mesh
        prefer plan.json --reference base
        # The reference is kept in fp32.
        losses dpo 1e-6
        prefer plan.json --reference base --steps 1 --dump-grads grads.safetensors
        "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-9 grads.safetensors \
            "$GOLDEN/lora/dpo/grads.safetensors"
    done
    # Adapters that have no part in training have none in the reference.
    prefer one.json --reference base
    cp steps.jsonl want.jsonl
    ppscore -q --data pairs --dtype fp64 --logprobs -o scores one.json
    pppack -q -l 32 --cp 2 --tp 2 -o given --add-column ref_logprobs=scores pairs
    prefer one.json --data given
    diff <(jq -c .loss want.jsonl) <(jq -c .loss steps.jsonl)
    # A reference with adapters is another.
    ppscore -q --data pairs --dtype fp64 --logprobs -o scores \
        --adapter "$GOLDEN/lora/dpo" one.json
    pppack -q -l 32 --cp 2 --tp 2 -o given --add-column ref_logprobs=scores pairs
    prefer one.json --data given
    run -1 losses dpo 1e-3
}

@test "a reference lasts an epoch and more, an evaluation and a resumption" {
    pairs whole.json -p 1
    # A step has two bins of three: each comes up on either rank. A run that goes
    # on needs two of them.
    ppsplit -q -p 1 --dp 2 --lora "$GOLDEN/lora/dpo" "$GOLDEN/objectives/model" |
        ppsched -q -s 1f1b -m 1 >plan.json
    pppack --stats pairs | jq -e '.bins > 2'
    ppscore -q --data pairs --dtype fp64 --logprobs -o scores whole.json
    pppack -q -l 32 --cp 2 --tp 2 -o given --add-column ref_logprobs=scores pairs
    # An epoch that leaves a bin out has another one than the next.
    prefer plan.json --data given --steps 7 --last-batch drop
    jq -c .loss steps.jsonl >want
    prefer plan.json --reference base --steps 7 --last-batch drop
    diff want <(jq -c .loss steps.jsonl)
    prefer plan.json --data given --steps 7 --eval given
    jq -c '[.loss, .val_loss, .val_reward_margin]' steps.jsonl >want
    prefer plan.json --reference base --steps 7 --eval pairs --save saved --save-every 6
    diff want <(jq -c '[.loss, .val_loss, .val_reward_margin]' steps.jsonl)
    rm -r saved/step-00000007
    prefer plan.json --reference base --steps 7 --eval pairs --resume saved
    diff <(tail -n 1 want) <(jq -c '[.loss, .val_loss, .val_reward_margin]' steps.jsonl)
    # The reference is beside the checkpoints, and a run that goes on takes it: one
    # of fp32 in its place changes the loss a little. A damaged one is made and
    # written again.
    local of=(saved/reference-*)
    [ "$(stat -c %s "${of[0]}")" -gt 24 ]
    pprun -q --data pairs --steps 7 --objective dpo,beta=0.5 --reference base --eval pairs \
        --adapter "$GOLDEN/lora/dpo" --save other plan.json
    mv other/reference-* "${of[0]}"
    prefer plan.json --reference base --steps 7 --eval pairs --resume saved
    jq -se --slurpfile want want '(.[0].loss / $want[-1][0] - 1 | fabs) as $x |
        $x > 0 and $x < 1e-6' steps.jsonl
    printf damage | dd of="${of[0]}" bs=1 seek=32 conv=notrunc status=none
    prefer plan.json --reference base --steps 7 --eval pairs --resume saved --save saved
    diff <(tail -n 1 want) <(jq -c '[.loss, .val_loss, .val_reward_margin]' steps.jsonl)
    run ! grep -qa damage "${of[0]}"
    run -2 --separate-stderr prefer plan.json --reference base --data given
    [ "$stderr" = 'pprun: given: has the column ref_logprobs; run without --reference base' ]
    run -2 --separate-stderr prefer plan.json --reference base --objective dpo,reference-free
    [[ $stderr == *"--reference: 'base', but the objective 'dpo' with its settings has no reference" ]]
    ppsplit -q -p 1 "$GOLDEN/objectives/model" | ppsched -q -s 1f1b -m 1 >bare.json
    run -2 --separate-stderr pprun -q --data pairs --steps 1 --objective dpo \
        --reference base bare.json
    [[ $stderr == *"the plan has none; make it with ppsplit --lora" ]]
    ppsplit -q -p 1 --lora rank=2,saved=model.norm "$GOLDEN/objectives/model" |
        ppsched -q -s 1f1b -m 1 >bare.json
    run -2 --separate-stderr pprun -q --data pairs --steps 1 --objective dpo \
        --reference base bare.json
    [[ $stderr == *"--reference: 'base', but the plan trains 'model.norm' of the base, too; "* ]]
}

# two NAME OPTION...: two steps with adapters of all products of the model in
# $MODEL, as NAME.jsonl; B starts as zeros, and moves.
two() {
    ppsplit -q --dtype fp32 "${@:2}" --lora rank=4,alpha=8 "$MODEL" |
        ppsched -q -s 1f1b -m 2 >"$1.json"
    pprun -q --data "$DATA" --steps 2 --lr 1e-2 $TYPE "$1.json" >"$1.jsonl"
}

# in_place: a base that stays in its file has the numbers of one that is read, as
# ranks that divide it do, and the same bits for all pipelines. Its memory is that
# of the file.
in_place() {
    local o values
    TYPE='--dtype fp64'
    two read -p 1 --dp 2 --zero 3
    for o in '-p 1 --dp 2' '-p 2 --dp 2 --tp 2'; do
        # shellcheck disable=SC2086
        two mapped $o
        jq -se 'map(.loss) | (.[0] / .[2], .[1] / .[3]) - 1 | fabs < 1e-12' \
            read.jsonl mapped.jsonl | sort -u | diff <(echo true) -
    done
    TYPE=
    two one -p 1
    two two -p 2
    diff <(jq -c '[.loss, .grad_norm]' one.jsonl) <(jq -c '[.loss, .grad_norm]' two.jsonl)
    # Behind 8 bytes and the header, whose length they are, are the values.
    values=$(($(stat -Lc %s "$MODEL"/*.safetensors) - 8 -
        $(od -An -tu8 -N8 "$MODEL"/*.safetensors)))
    for o in '' '--init 1'; do
        # shellcheck disable=SC2086
        pprun -q --data "$DATA" $o --print-memory one.json
    done | jq -se --argjson values "$values" '.[1][0].mapped == 0 and
        (.[0][0].mapped / $values | . > 0.9 and . < 1) and
        .[1][0].weights - .[0][0].weights >= .[0][0].mapped'
    # Plans have the same bytes. Of owners that hold unequal parts they have the sum
    # of gradients and optimizer alone.
    for o in one two mapped; do
        pprun -q --data "$DATA" --print-memory $o.json >need
        ppsched -q -s 1f1b -m 2 --data "$DATA" $o.json |
            ppsched --stats | jq -e --slurpfile need need '
            def parts: map({weights, states: (.gradients + .optimizer), activations,
                messages, workspace, tables, total, mapped});
            (.memory | parts) == ($need[0] | parts)'
    done
}

@test "the base stays in its file, as bf16, fp32 and blocks of fp8" {
    # A head of more than a million elements is read in several blocks. It is tied:
    # a rank that has the embedding, too, reads one of both.
    mkdir plain
    pppack -q -l 48 --tp 2 -o even "$GOLDEN/data.jsonl"
    jq '.vocab_size = 40000 | .tie_word_embeddings = true' \
        "$GOLDEN/llama/model/config.json" >plain/config.json
    ppsplit -q -p 1 plain | ppsched -q -s gpipe -m 2 >plain.json
    for o in bf16 fp32; do
        pprun -q --data even --init 1 --steps 1 --save $o --save-dtype $o plain.json
        MODEL=$o/latest DATA=even in_place
    done
    # A product of several tensors.
    MODEL=$GOLDEN/families/qwen3_5_text/model DATA=even in_place
    for i in 1 2 3 4; do
        echo "{\"input_ids\": [$i, 5, 9, 2, 11, 3, 17, $((i + 7))]}"
    done >data.jsonl
    pppack -q -l 8 --tp 2 -o short data.jsonl
    MODEL=$GOLDEN/quantized/qwen3/model DATA=short in_place
}

@test "a checkpoint is an adapter of PEFT, which goes on beside its base alone" {
    plan llama -p 2 --lora "$GOLDEN/lora/llama"
    train llama 10
    mv steps.jsonl whole.jsonl
    train llama 4 --save saved
    [ "$(cd saved/latest && echo *)" = \
        "adapter_config.json adapter_model.safetensors checksums.xxh3 optimizer" ]
    jq -e '.peft_type == "LORA" and .r == 3 and .lora_alpha == 6 and
        (.target_modules | length) == 7' saved/latest/adapter_config.json
    # On another mesh.
    plan llama -p 1 --lora saved/latest
    train llama 10 --resume saved
    jq -se 'map(.step) == [range(5; 11)]' steps.jsonl
    tail -n 6 whole.jsonl | jq -c .loss >want
    jq -c .loss steps.jsonl | diff want -
    # The state has a checksum of the base.
    run -2 --separate-stderr pprun -q --data packed --init 3 --steps 10 \
        --dtype fp64 --resume saved plan.json
    [[ $stderr == *"saved/step-00000004: was made beside other weights; see --weights" ]]
}

@test "a merge replaces and removes nothing" {
    local plan=plan.json adapter=$GOLDEN/lora/llama
    ppsplit -q -p 1 --lora "$adapter" "$GOLDEN/llama/model" >split.json
    ppsched -q -s gpipe -m "$BINS" split.json >$plan
    mkdir merged.tmp
    echo mine >merged.tmp/file
    pprun -q --merge merged/ --adapter "$adapter" $plan
    [ -s merged/model.safetensors ]
    [ "$(cat merged.tmp/file)" = mine ]
    run -2 --separate-stderr pprun -q --merge merged --adapter "$adapter" $plan
    [ "$stderr" = \
        'pprun: merged: exists; a model is merged into a new directory' ]
    # A file is in the way of its parent.
    run -3 --separate-stderr pprun -q --merge $plan/merged --adapter "$adapter" $plan
    [ "$(wc -l <<<"$stderr")" -eq 1 ]
    run ! compgen -G '*.[0-9]*.tmp'
}

@test "an adapter is merged into its model" {
    merged llama
    merged gpt2
    merged phi3
    merged deepseek-v3
    # The types of tensors stay, and what has no adapter keeps its bits.
    merged gemma3
    "$BUILDDIR/tests/golden/compare_tensors" 0 0 merged \
        "$GOLDEN/gemma3/model/model.safetensors" 'model.layers.1.*'
    run -1 "$BUILDDIR/tests/golden/compare_tensors" 0 0 merged \
        "$GOLDEN/gemma3/model/model.safetensors" 'model.layers.2.*'
    [[ ${lines[0]} =~ ^model.layers.2.mlp.up_proj.weight\ +off\ by ]]
    [[ ${lines[1]} == *" off by 0.000e+00 "* ]]
}

@test "a plan counts the operations and the states of adapters alone" {
    # Products of a layer: 2 (2 32 32 + 2 32 16 + 3 32 56) = 16896 operations, and
    # of its adapters 4 (64 + 2 48 + 64 + 3 88) = 1952, which W computes twice.
    # The latter have 976 numbers with a gradient and two moments.
    ppsplit -q -p 1 --lora rank=2 "$GOLDEN/llama/model" | jq -e '.model.units |
        (.[1] | .fwd_flops[0] == 18848 and .frozen_flops == 14944 and
            .state_bytes - .weight_bytes == 12 * 976) and
        (.[0], .[-1] | .frozen and .state_bytes == 0 and .mapped_bytes == 4 * .params)'
    # A step without weight gradients takes two thirds of a whole one.
    for lora in '' '--lora rank=1,targets=q_proj'; do
        # shellcheck disable=SC2086
        ppsplit -q -p 1 $lora --seq-len 2 "$GOLDEN/llama/model" |
            ppsched -q -s gpipe -m 1 --stats | jq .makespan
    done | jq -se '.[1] / .[0] | . > 0.66 and . < 0.72'
    # Recomputation adds half of such a step.
    for again in none full; do
        ppsplit -q -p 1 --lora rank=1,targets=q_proj --seq-len 2 --recompute $again \
            "$GOLDEN/llama/model" | ppsched -q -s gpipe -m 1 --stats | jq .makespan
    done | jq -se '.[1] / .[0] | . > 1.3 and . < 1.5'
}

@test "adapters that are refused" {
    local change
    for change in 'use_dora = true' 'bias = "all"' 'layers_to_transform = [4]' \
        'rank_pattern = {"q.*": 4}' 'alpha_pattern = {"q_proj": -1}' \
        'rank_pattern = {"q_proj": 1.5}' \
        'layers_pattern = "blocks" | .layers_to_transform = 1' \
        'modules_to_save = ["q_proj"]' \
        'init_lora_weights = "pissa"' 'target_modules = ".*_proj"' \
        'peft_type = "IA3"' 'target_modules = ["lm_head"]'; do
        mkdir -p bad
        jq ".$change" "$GOLDEN/lora/llama/adapter_config.json" >bad/adapter_config.json
        run -2 --separate-stderr ppsplit -q -p 1 --lora bad "$GOLDEN/llama/model"
        [[ ${#stderr_lines[@]} -eq 1 ]]
        [[ $stderr == *"${change%% *}"* || $stderr == *"'lm_head' names experts"* ||
            $stderr == *"modules of layers end with 'q_proj'"* ||
            $stderr == *"layer '4' is none of 4" ]]
    done
    run -2 --separate-stderr ppsplit -q -p 1 --lora rank=0 "$GOLDEN/llama/model"
    for change in ranks=q_proj ranks=:4 ranks=q_proj:0 ranks=q_proj:4:x \
        ranks=q_proj:4+q_proj:5 layers=1-2 layers=x; do
        run -2 --separate-stderr ppsplit -q -p 1 --lora "$change" "$GOLDEN/llama/model"
        [[ $stderr == "ppsplit: --lora: '"*"'"* ]]
    done
    run -2 --separate-stderr ppsplit -q -p 1 --lora targets=x_proj "$GOLDEN/llama/model"
    [ "$stderr" = "ppsplit: --lora: 'x_proj' names no product of a layer" ]
    run -2 --separate-stderr ppsplit -q -p 1 --lora rank=2 "$GOLDEN/mixtral/model"
    [[ $stderr == *"'all-linear' names experts and routers"* ]]
    run -2 --separate-stderr ppsplit -q -p 1 --lora rank=2 "$GOLDEN/llava"
    [[ $stderr == *"a model with an encoder cannot have adapters"* ]]
    plan llama -p 1
    run -2 --separate-stderr train llama 1
    [[ $stderr == *"the plan has no adapters; make it with ppsplit --lora"* ]]
    plan llama -p 1 --lora rank=3,alpha=6,targets=q_proj
    run -2 --separate-stderr train llama 1
    [[ $stderr == *"lora_A.weight' is not among the targets of the plan"* ]]
}
