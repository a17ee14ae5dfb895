#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# experts - mixtures of experts: splits, recomputation and restarts give the
# same bits, and what pprun cannot do with them is refused by name. meshes.bats
# has their meshes.

bats_require_minimum_version 1.5.0
load helpers
load experts

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    mkdir model-experts model-mixtral
    # Expert 0 of 6 gets every third token or none, as it happens.
    cat >model-experts/config.json <<'END'
{"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
 "vocab_size": 67, "hidden_size": 32, "intermediate_size": 40,
 "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 128, "initializer_range": 0.1,
 "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20,
 "num_experts": 6, "num_experts_per_tok": 2, "mlp_only_layers": [1]}
END
    jq '.architectures = ["MixtralForCausalLM"] | .model_type = "mixtral"
        | .num_local_experts = 40 | del(.num_experts, .mlp_only_layers)' \
        model-experts/config.json >model-mixtral/config.json
    data 1 20 >data.jsonl
    pppack -q -l 64 --tp 2 -o packed data.jsonl
    ppsplit -q -p 1 model-experts | ppsched -q -s gpipe -m 4 >one.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

@test "splits and recomputation give the same bits" {
    train base one.json
    ppsplit -q -p 2 -c 2 --placement v --recompute selective model-experts |
        ppsched -q -s zbv -m 4 >plan.json
    train zbv plan.json
    same zbv base
    ppsplit -q -p 3 --recompute full model-experts |
        ppsched -q -s 1f1b -m 4 >plan.json
    train full plan.json
    same full base
}

@test "DeepSeek's latent attention and routers divide over all meshes" {
    pppack -q -l 64 --cp 2 --tp 2 -o both data.jsonl
    local m=$SRCDIR/tests/golden/deepseek-v3/model
    # Splits and recomputation give the same bits, the others close numbers.
    ppsplit -q -p 1 "$m" | ppsched -q -s gpipe -m 4 >plan.json
    train latent plan.json
    ppsplit -q -p 2 --recompute full "$m" | ppsched -q -s 1f1b -m 4 >plan.json
    train latent-full plan.json
    same latent-full latent
    ppsplit -q -p 2 --tp 2 --cp 2 --cp-exchange a2a --recompute selective \
        "$SRCDIR/tests/golden/deepseek-v2/model" |
        ppsched -q -s 1f1b -m 4 >plan.json
    pprun --verify --init 1 --data both --dtype fp64 plan.json | tail -n 1 |
        grep -q '^the same'
}

@test "the bias of a router is kept, without a gradient" {
    ppsplit -q -p 1 "$SRCDIR/tests/golden/deepseek-v3/model" |
        ppsched -q -s gpipe -m 4 >plan.json
    pprun -q plan.json --data packed --steps 1 --decay-all --save biased \
        --weights "$SRCDIR/tests/golden/deepseek-v3/model" --lr 1 \
        --weight-decay 0.5 --dump-grads grads.safetensors
    [[ $(head -c 9000 grads.safetensors) != *e_score_correction_bias* ]]
    [ "$(router_bias biased/latest)" = \
        "$(router_bias "$SRCDIR/tests/golden/deepseek-v3/model")" ]
    run --separate-stderr pprun -q one.json --data packed --steps 1 --init 1 \
        --router bias-rate=0.1
    [ "$status" -eq 2 ]
    [[ $stderr == *"'Qwen2MoeForCausalLM' has no biases of routers, so \
--router bias-rate has no effect" ]]
}

# Loads are integers, so that only other routes could change the bias. Other
# products of fp64 could do so in a near tie, which does not occur here.
@test "the bias of a router follows the loads of all ranks, to the bit" {
    local m=$SRCDIR/tests/golden/deepseek-v3/model split rule=(--router bias-rate=0.03)
    pppack -q -l 64 --cp 2 --tp 2 -o both data.jsonl
    rule+=(--router bias-rule=torchtitan)
    ppsplit -q -p 1 "$m" | ppsched -q -s gpipe -m 8 >plan.json
    follow() { # NAME
        rm -rf "$1"
        pprun -q plan.json --data both --weights "$m" --steps 4 --lr 1e-2 \
            --dtype fp64 --save "$1" "${rule[@]}" >"$1.log"
        router_bias "$1/latest" >"$1.bias"
    }
    follow followed-one
    [ "$(cat followed-one.bias)" != "$(router_bias "$m")" ]
    jq -es 'length == 4 and all(.[]; .expert_load > 1 and (has("aux_loss") | not))' \
        followed-one.log
    for split in '1f1b 8 -p 2 --recompute full' \
        'gpipe 4 -p 1 --dp 2 --zero 0' '1f1b 4 -p 2 --dp 2 --ep 2 --zero 3' \
        'gpipe 8 -p 1 --cp 2 --tp 2' '1f1b 4 -p 2 --cp 2 --dp 2 --ep 4' \
        'dualpipe 8 -p 2 --placement both-ways' \
        'dualpipe 4 -p 2 --placement both-ways --dp 2 --zero 1' \
        'seq1f1b 8 -p 2'; do
        echo "$split"
        # shellcheck disable=SC2086
        set -- $split
        ppsplit -q "${@:3}" "$m" | ppsched -q -s "$1" -m "$2" >plan.json
        follow followed
        diff followed-one.bias followed.bias
        [[ $split == seq1f1b* ]] || diff <(jq .expert_load followed-one.log) \
            <(jq .expert_load followed.log)
    done
    # A resumed run goes on with it.
    pprun -q plan.json --data both --weights "$m" --steps 2 --lr 1e-2 \
        --dtype fp64 --save followed-half "${rule[@]}" >/dev/null
    pprun -q plan.json --data both --resume followed-half --steps 4 --lr 1e-2 \
        --dtype fp64 --save followed-half "${rule[@]}" >/dev/null
    diff <(router_bias followed-half/latest) followed-one.bias
}

@test "losses of routers with sigmoids are those of one rank" {
    ppsplit -q -p 2 --tp 2 --dp 2 "$SRCDIR/tests/golden/deepseek-v3/model" |
        ppsched -q -s 1f1b -m 2 >plan.json
    pprun --verify --init 1 --data packed --dtype fp64 \
        --router aux=0.3,z=0.02,rule=documents plan.json | tail -n 1 |
        grep -q '^the same'
}

@test "weights of layers for multi-token prediction are ignored" {
    # The second of two layers stands for one that predicts.
    cp -r "$SRCDIR/tests/golden/deepseek-v3/model" predicts
    jq '.num_hidden_layers = 1 | .num_nextn_predict_layers = 1' \
        predicts/config.json >config
    mv config predicts/config.json
    ppsplit -q -p 1 predicts | ppsched -q -s gpipe -m 4 >plan.json
    run --separate-stderr pprun -q plan.json --data packed --steps 1 \
        --weights predicts
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    jq '.num_nextn_predict_layers = 0' predicts/config.json >config
    mv config predicts/config.json
    run --separate-stderr pprun -q plan.json --data packed --steps 1 \
        --weights predicts
    [[ $stderr == *"have no place in the model: 'model.layers.1."* ]]
}

@test "most of many experts get no token" {
    # 40 experts, two for each token; a microbatch has few tokens.
    head -n 4 data.jsonl >few.jsonl
    pppack -q -l 40 -o few few.jsonl
    bins=$(pppack -l 40 --stats few.jsonl | jq .bins)
    ppsplit -q -p 2 model-mixtral | ppsched -q -s 1f1b -m "$bins" >plan.json
    pprun --verify --init 1 --data few --dtype fp64 plan.json | tail -n 1 |
        grep -q '^the same'
    pprun -q --init 1 --data few --steps 1 --dump-grads grads.safetensors \
        plan.json >log
    [ "$(jq '.loss > 3 and .grad_norm > 0' log)" = true ]
}

@test "a resumed run continues with the same bits on other ranks" {
    local options=(--data packed --lr 1e-2)
    ppsplit -q -p 2 --dp 2 model-experts | ppsched -q -s 1f1b -m 2 >plan.json
    pprun -q plan.json "${options[@]}" --init 5 --steps 4 >whole
    pprun -q plan.json "${options[@]}" --init 5 --steps 2 --save half >/dev/null
    ppsplit -q -p 1 --zero 0 --dp 2 model-experts |
        ppsched -q -s gpipe -m 2 >other.json
    pprun -q other.json "${options[@]}" --resume half --steps 4 >rest
    diff <(tail -n 2 whole | jq -c '[.loss, .grad_norm]') \
        <(jq -c '[.loss, .grad_norm]' rest)
}

@test "the losses of routers are the same over meshes, and tokens count once" {
    local options=(--dtype fp64 --router 'aux=0.3,z=0.02')
    train aux one.json "${options[@]}"
    ppsplit -q -p 2 --recompute full model-experts |
        ppsched -q -s zb-h1 -m 4 >plan.json
    train aux-pp plan.json "${options[@]}"
    same aux-pp aux
    ppsplit -q -p 1 --dp 2 --zero 1 --recompute selective model-experts |
        ppsched -q -s 1f1b -m 2 >plan.json
    train aux-dp plan.json "${options[@]}"
    near aux-dp aux
    ppsplit -q -p 2 --tp 2 model-experts | ppsched -q -s 1f1b -m 4 >plan.json
    train aux-tp plan.json "${options[@]}"
    near aux-tp aux
    local mesh
    for mesh in pp dp tp; do
        paste -d '\n' aux/log "aux-$mesh/log" | jq -es '
            map([.aux_loss, .z_loss, .expert_load]) as $of | length == 10 and
            all(range(0; 10; 2) as $i | range(3) as $k
                | ($of[$i][$k] - $of[$i + 1][$k] | fabs)
                  <= 1e-12 * $of[$i][$k]; .) and all($of[][2]; . > 1)'
    done
}

@test "slices drop the tokens that whole microbatches drop" {
    local split
    ppsplit -q -p 1 --expert-capacity 0.5 model-experts |
        ppsched -q -s gpipe -m 4 >whole.json
    train capped whole.json --eval packed --dtype fp64
    for split in '-p 2' '-p 2 --tp 2 --recompute selective'; do
        # shellcheck disable=SC2086
        ppsplit -q $split --expert-capacity 0.5 model-experts |
            ppsched -q -s seq1f1b --slices 3 -m 4 >sliced.json
        rm -rf sliced
        train sliced sliced.json --eval packed --dtype fp64
        near sliced capped
        diff <(jq .dropped sliced/log) <(jq .dropped capped/log)
    done
    jq -es 'all(.[]; .dropped > 20)' sliced/log
}

@test "slices cannot know all of a capacity" {
    refused() { # MESSAGE ARGS...
        local message=$1
        shift
        run --separate-stderr pprun -q plan.json "$@"
        echo "$status: $stderr"
        [ "$status" -eq 2 ]
        [[ $stderr == *"$message" ]]
    }
    ppsplit -q -p 2 --dp 2 --ep 2 --expert-capacity 1.5 model-experts |
        ppsched -q -s seq1f1b --slices 2 -m 4 >plan.json
    refused "/schedule/slices: '2', but expert-parallel ranks have room for \
what experts keep of whole microbatches; plan with ppsplit --expert-limit" \
        --data packed --steps 1
    ppsplit -q -p 2 --expert-capacity 1.5 --expert-drop probs model-experts |
        ppsched -q -s seq1f1b --slices 2 -m 4 >plan.json
    refused "/schedule/slices: '2', but --expert-drop probs counts the tokens \
of whole microbatches; take a schedule without slices" --data packed --steps 1
    ppsplit -q -p 2 --dp 2 --ep 2 --expert-capacity 1.5 --expert-padding \
        model-experts | ppsched -q -s seq1f1b --slices 2 -m 4 >plan.json
    refused "/schedule/slices: '2', but --expert-padding counts the tokens of \
whole microbatches; take a schedule without slices" --data packed --steps 1
}

@test "the loss of documents does not depend on how they are packed" {
    local options=(--init 5 --steps 1 --lr 1e-2 --dtype fp64
        --router 'aux=0.3,z=0.02,rule=documents')
    pppack -q -l 200 -o wide data.jsonl
    local bins wide
    bins=$(pppack -l 64 --tp 2 --stats data.jsonl | jq .bins)
    wide=$(pppack -l 200 --stats data.jsonl | jq .bins)
    [ "$wide" -lt "$bins" ]
    ppsplit -q -p 1 model-experts | ppsched -q -s gpipe -m "$bins" >narrow.json
    ppsplit -q -p 1 model-experts | ppsched -q -s gpipe -m "$wide" >wide.json
    pprun -q narrow.json --data packed "${options[@]}" >narrow.log
    pprun -q wide.json --data wide "${options[@]}" >wide.log
    jq -es '.[0] as $a | .[1] as $b | all("grad_norm", "aux_loss", "z_loss";
        ($a[.] - $b[.] | fabs) <= 1e-12 * $a[.])' narrow.log wide.log
    # Those of microbatches do.
    pprun -q narrow.json --data packed "${options[@]}" --router rule=tokens >narrow.log
    pprun -q wide.json --data wide "${options[@]}" --router rule=tokens >wide.log
    jq -es '.[0].aux_loss - .[1].aux_loss | fabs > 1e-6' narrow.log wide.log
}

@test "losses of routers that would have no effect or be wrong are refused" {
    model llama false
    ppsplit -q -p 1 model-llama | ppsched -q -s gpipe -m 4 >dense.json
    run --separate-stderr pprun dense.json --data packed --init 1 --steps 1 \
        --router aux=0.1
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun: dense.json: /model/architecture: 'LlamaForCausalLM' \
has no experts, so --router aux has no effect" ]
    ppsplit -q -p 2 model-experts | ppsched -q -s seq1f1b --slices 2 -m 4 \
        >sliced.json
    run --separate-stderr pprun sliced.json --data packed --init 1 --steps 1 \
        --router z=0.1
    [ "$status" -eq 2 ]
    [ "$stderr" = "pprun: sliced.json: /schedule/slices: '2', but --router z \
counts the tokens of whole microbatches; take a schedule without slices" ]
    run --separate-stderr pprun one.json --data packed --init 1 --verify \
        --router aux=0.1
    [ "$status" -eq 2 ]
    [ "${stderr_lines[0]}" = "pprun: --verify needs --router rule=documents: other \
losses depend on what shares a microbatch" ]
}

@test "weights without an expert's tensor are refused by its name" {
    pprun -q one.json --data packed --init 1 --steps 1 --save saved >/dev/null
    cp -r "$SRCDIR/tests/golden/mixtral/model" lacks
    # Five experts are asked for where the files have four.
    jq '.num_local_experts = 5' lacks/config.json >config
    mv config lacks/config.json
    run --separate-stderr ppsplit -p 1 lacks
    [ "$status" -eq 2 ]
    [[ $stderr == *"'model.layers.0.block_sparse_moe.gate.weight' is [4, 32], \
expected [5, 32]" ]]
}
