#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# threads - every way in which threads of a run meet, once, for ThreadSanitizer.
# Other tests have the numbers. Two runs of the same plan give the same bits.

bats_require_minimum_version 1.5.0
load helpers
load images

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    local name
    model llama false
    model qwen3-tied true
    model qwen2-moe false
    for name in llama qwen3-tied qwen2-moe; do
        eight_heads "model-$name"
    done
    data 1 16 >data.jsonl
    pppack -q -l 64 --cp 2 --tp 2 --bins-multiple 4 -o packed data.jsonl
    pppack -q -l 64 --cp 2 --tp 2 --balance tokens --cp-sizes per-sequence \
        -o ranges data.jsonl
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# plan MODEL KIND SPLIT...: writes plan.json, for four microbatches.
plan() {
    ppsplit -q "${@:3}" "$1" | ppsched -q -s $2 -m 4 -o plan.json
}

# meets DATA OPTION...: makes a step of plan.json twice.
meets() {
    local i
    for i in one two; do
        pprun -q --data "$1" --init 5 --steps 1 --lr 1e-2 -o $i \
            "${@:2}" plan.json
    done
    diff <(numbers one) <(numbers two)
}

@test "pipeline ranks, and copies of their weights" {
    plan model-qwen3-tied 1f1b -p 4
    meets packed
    plan model-qwen3-tied '1f1b --depth 0' -p 2 --recompute full
    meets packed
    plan model-qwen3-tied zbv -p 2 -c 2 --placement v --recompute selective
    meets packed
    plan model-qwen3-tied dualpipe -p 2 --placement both-ways
    meets packed
    plan model-qwen3-tied dualpipev -p 2 -c 2 --placement v
    meets packed --grad-accum 2
    plan model-llama 'seq1f1b --slices 3' -p 2 --freeze embedding,model.layers.0
    meets packed --message-size exchange
}

@test "a layer for multi-token prediction" {
    plan "$SRCDIR/tests/golden/deepseek-mtp/model" 1f1b -p 2 --mtp --tp 2 --cp 2
    meets packed
}

@test "replicas, and state that they divide" {
    local zero
    for zero in 0 1; do
        plan model-llama 1f1b -p 2 --dp 2 --zero $zero
        meets packed
    done
    plan model-llama interleaved -p 2 -c 2 --dp 2 --zero 3 --resident 1
    meets packed
}

@test "ranks that divide sequences, and matrices" {
    local how
    for how in gather a2a ring; do
        plan model-llama 1f1b -p 1 --cp 2 --tp 2 --cp-exchange $how
        meets packed
        meets ranges
    done
    plan model-llama 1f1b -p 2 --cp 2 --cp-exact
    meets packed
}

@test "ranks that divide experts" {
    plan model-qwen2-moe 1f1b -p 2 --cp 2 --ep 2
    meets packed --router aux=0.1,z=0.1
    plan model-qwen2-moe gpipe -p 1 --dp 2 --ep 2 --expert-capacity 1 \
        --expert-drop probs --expert-padding
    meets packed
    plan model-qwen2-moe gpipe -p 1 --tp 2 --dp 2 --ep 4 --experts-over-tp
    meets packed
    ppscore -q --data packed --init 1 --logprobs -o scores --record-routing routes \
        plan.json
    meets packed --replay-routing routes
    plan "$SRCDIR/tests/golden/deepseek-v3/model" gpipe -p 1 --dp 2 --ep 2
    meets packed --router bias-rate=0.01
}

@test "encoders, beside the language model and with ranks of their own" {
    image_lines llava 3 8 >images.jsonl
    pppack -q --image-token 31 --patch 4 -l 48 -o images images.jsonl
    for split in '-p 2' '-p 2 --dp 2 --encoder-mesh dp=3'; do
        # shellcheck disable=SC2086
        plan "$SRCDIR/tests/golden/llava" 1f1b $split
        meets images
    done
    image_lines omni 3 8 >both.jsonl
    pppack -q --image-token 31 --audio-token 32 --merge 2 --tp 2 -l 48 -o both \
        both.jsonl
    plan "$SRCDIR/tests/golden/qwen2.5-omni" 1f1b -p 2 --tp 2 \
        --seq-len 48 --image-patches 16 --clip-rows 8 \
        --encoder-mesh vision:dp=3 --encoder-mesh audio:shared
    meets both
}

@test "a generator behind a language model with an encoder" {
    image_lines llava 1 8 | jq -c '.generator_ids = [.input_ids[] | . % 7]' |
        pppack -q --image-token 31 --patch 4 -l 48 --bins-multiple 4 -o generated -
    ppsplit -q -p 2 --dp 2 --encoder-mesh pp=1,dp=3 "$SRCDIR/tests/golden/llava" \
        >language.json
    ppsplit -q -p 2 "$SRCDIR/tests/golden/generator/model/generator" \
        >generator.json
    ppsplit -q --combine language=language.json,generator=generator.json |
        ppsched -q -s 1f1b -m 2 -o plan.json
    meets generated
}

@test "objectives, and passes that read out" {
    rollouts 2 8 >rollouts.jsonl
    pppack -q -l 64 --cp 2 --bins-multiple 4 -o rollouts rollouts.jsonl
    pairs 2 16 >pairs.jsonl
    pppack -q -l 64 --cp 2 --bins-multiple 4 -o pairs pairs.jsonl
    plan model-llama 1f1b -p 2 --cp 2
    meets rollouts --objective grpo,entropy-weight=0.1
    meets pairs --objective dpo
    jq '.architectures = ["LlamaForSequenceClassification"] |
        .id2label = {"0": "LABEL_0"}' model-llama/config.json >config
    mkdir -p model-reward
    mv config model-reward/config.json
    plan model-reward zb-h1 -p 2 --tp 2
    meets pairs --objective reward
    plan model-llama 1f1b -p 2 --cp 2
    ppscore -q --data packed --init 1 --logprobs -o scores --top-k 4 --entropy plan.json
    pppack -q -l 64 --cp 2 --bins-multiple 4 -o taught --add-column topk=scores \
        packed
    meets taught --objective distill
    local generate=(ppscore -q --data packed --init 1 --generate 3 --sample 1)
    "${generate[@]}" -o whole plan.json
    # Some sequences end before the others.
    "${generate[@]}" --stop-id "$(jq -s '.[0].response[0]' whole)" -o ended \
        plan.json
    run -1 cmp -s whole ended
}

@test "evaluations, checkpoints and streams beside the steps" {
    local options=(-q --data packed --init 5 --lr 1e-2 --eval packed)
    plan model-llama 1f1b -p 2 --dp 2
    mkfifo fifo
    cat fifo >weights &
    pprun "${options[@]}" --steps 3 --eval-every 1 --save saved --save-every 1 \
        --save-background --keep 2 --shard-size 9kB --stream-weights fifo \
        --trace trace --trace-steps 2 --dump-grads grads --profile costs \
        --time-products --print-metadata-hash plan.json >log
    wait $!
    [ -s weights ]
    # Other ranks go on.
    plan model-llama zb-h1 -p 2 --dp 2 --tp 2
    pprun "${options[@]}" --steps 6 --resume saved --svg curves.svg \
        --stream-weights streamed --stream-every 1 plan.json
    pprun "${options[@]}" --verify plan.json
    # Twelve microbatches would fit, and the data have eight.
    plan model-llama 1f1b -p 2 --dp 3
    pprun "${options[@]}" --epochs 2 --last-batch short plan.json >log
}

@test "ranks that end before the others" {
    plan model-llama 1f1b -p 4
    run --separate-stderr pprun -q --data packed --init 5 --steps 9 --lr 1e6 \
        --clip 0 --optimizer sgd plan.json
    [ "$status" -eq 3 ]
    rm -f log
    run bash -c 'pprun -q --data packed --init 5 --steps 100000 --save stopped \
        --stream-weights asked plan.json >log &
        until [ -s log ]; do kill -0 $! || exit; sleep 0.01; done
        kill -USR2 $!
        until [ -e asked/latest ]; do kill -0 $! || exit; sleep 0.01; done
        kill -TERM $!
        wait $!'
    [ "$status" -eq 75 ]
}
