# SPDX-License-Identifier: MIT
# helpers - models, data, runs and exact comparison for the parity tests.

compare() { "$BUILDDIR/tests/golden/compare_tensors" 0 0 "$@"; }

# model NAME TIED QK_NORM: writes model-NAME/config.json.
model() {
    mkdir -p "model-$1"
    local arch=LlamaForCausalLM type=llama bias=false experts=
    case $1 in
    qwen2-moe*)
        arch=Qwen2MoeForCausalLM type=qwen2_moe
        experts='"num_experts": 6, "num_experts_per_tok": 2,
 "mlp_only_layers": [2], "moe_intermediate_size": 8,
 "shared_expert_intermediate_size": 12,'
        ;;
    qwen2*) arch=Qwen2ForCausalLM type=qwen2 bias=true ;;
    qwen3*) arch=Qwen3ForCausalLM type=qwen3 ;;
    mistral*) arch=MistralForCausalLM type=mistral ;;
    gpt-oss*)
        arch=GptOssForCausalLM type=gpt_oss bias=true
        experts='"num_local_experts": 5, "num_experts_per_tok": 2,
 "swiglu_limit": 0.5,'
        ;;
    esac
    cat >"model-$1/config.json" <<END
{"architectures": ["$arch"], "model_type": "$type", "hidden_size": 32,
 "intermediate_size": 56, "num_hidden_layers": 6, "num_attention_heads": 4,
 "num_key_value_heads": 2, "head_dim": 12, "vocab_size": 67,
 "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
 "max_position_embeddings": 128, "attention_bias": $bias,
 "sliding_window": 7, $experts "initializer_range": 0.1, "tie_word_embeddings": $2}
END
}

# eight_heads DIR: gives the model a shape that all meshes of meshes.factors
# divide.
eight_heads() {
    jq '.hidden_size = 32 | .intermediate_size = 24 | .head_dim = 4 |
        .num_attention_heads = 8 | .num_key_value_heads = 4 |
        if .num_experts then .num_experts = 8 else . end' \
        "$1/config.json" >config
    mv config "$1/config.json"
}

# plan_row M MODEL[:epN[-whole]] ROW...: prints a manifest for a row of
# meshes.factors, whose last two factors are not used.
plan_row() {
    local m=$1 model=${2%:ep*} kind chunks placement ep=1 whole=()
    [[ $2 != *:ep* ]] || ep=${2##*:ep}
    [[ $2 != *-whole ]] || whole=(--experts-over-tp)
    shift 2
    IFS=: read -r kind chunks placement <<<"$1"
    ppsplit -q -p "${2#pp}" -c "$chunks" --placement "$placement" \
        --tp "${3#tp}" --cp "${4//[!0-9]/}" --dp "${5#dp}" --zero "${6#zero}" \
        --ep "${ep%-whole}" "${whole[@]}" \
        --cp-exchange "$7" --recompute "$8" "$model" |
        ppsched -q -s "$kind" -m "$m"
}

# data SEED COUNT: prints JSON Lines of uneven lengths; some labels are ignored.
data() {
    awk -v seed="$1" -v n="$2" 'BEGIN {
        srand(seed)
        for (i = 0; i < n; i++) {
            len = 1 + int(rand() * rand() * 40); ids = mask = ""
            for (t = 0; t < len; t++) {
                sep = t ? "," : ""
                ids = ids sep int(rand() * 67)
                mask = mask sep (rand() < 0.8)
            }
            printf "{\"input_ids\": [%s], \"loss_mask\": [%s]}\n", ids, mask
        }
    }'
}

# unlike: changes data that begin with one token twice. It attends to nothing but
# itself, so that only rounding tells which of the two is more probable.
unlike() {
    jq -c 'if .input_ids[0] == .input_ids[1]
        then .input_ids[1] = (.input_ids[1] + 1) % 67 else . end'
}

# set_up_run: writes model-llama, its data and plan.json, two ranks with 1f1b.
set_up_run() {
    cd "$BATS_FILE_TMPDIR" || return
    model llama false
    data 1 20 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 4 >plan.json
}

# skip_some: leaves only one of FEWER tests of a file, if a sanitizer sets FEWER.
skip_some() {
    ((BATS_TEST_NUMBER % ${FEWER:-1} == 0)) || skip 'FEWER is set'
}

# needs_mpirun: skips the test unless pprun and mpirun have MPI, which itself
# leaks memory. Its files get a directory of their own: if one mpirun begins while
# another ends, it may fail to make the directory that they share.
needs_mpirun() {
    # Its dlopen does not look beside pprun.
    ! grep -q __tsan_init "$BUILDDIR/cmd/pprun" ||
        skip 'ThreadSanitizer does not find the module for MPI'
    [[ "$(pprun -V)" == *'transports: threads mpi'* ]] ||
        skip 'this pprun was built without MPI'
    [[ "$(mpirun --version 2>&1)" == *'Open MPI'* ]] ||
        skip "there is no Open MPI's mpirun"
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
    export OMPI_MCA_orte_tmpdir_base="$BATS_FILE_TMPDIR"
}

# members LOG NAME...: prints those members of each line as an array, or the name
# of the log for a line without any. jq would take longer to start than pprun takes
# for a run.
members() {
    awk -F '[{}, ]+' -v names="${*:2}" '{
        split("", of)
        for (i = 2; i < NF; i++)
            if ($i ~ /^".*":$/ && !($i in of)) of[$i] = $(i + 1)
        list = any = ""
        n = split(names, name, " ")
        for (i = 1; i <= n; i++) {
            key = "\"" name[i] "\":"
            any = any of[key]
            list = list "," (key in of && of[key] != "" ? of[key] : "null")
        }
        print any == "" ? FILENAME " " NR : "[" substr(list, 2) "]"
    }' "$1"
}

# Keeps the part of the step lines that must not depend on the split.
numbers() { members "$1" step loss grad_norm lr tokens val_loss; }

# train NAME PLAN ARGS...: runs a plan; its results go to the directory NAME.
train() {
    local name=$1 plan=$2
    shift 2
    mkdir -p "$name"
    pprun "$plan" --data packed --init 5 --steps 5 --lr 1e-2 --clip 0.5 \
        --weight-decay 0.1 --save "$name/ckpt" --dump-grads "$name/grads" \
        -o "$name/log" "$@"
}

# same A B: fails unless losses, gradients and weights of two runs are the same
# bits.
same() {
    diff <(numbers "$1/log") <(numbers "$2/log") &&
        compare "$1/grads" "$2/grads" &&
        compare "$1/ckpt/latest" "$2/ckpt/latest"
}

# near A B: fails unless losses, gradients and weights of two runs are the same
# but for the order of sums.
near() {
    paste -d , <(numbers "$1/log") <(numbers "$2/log") | tr -d '[]' |
        awk -F , 'function near(x, y) {
                return x ~ /[0-9]/ && y ~ /[0-9]/ &&
                    (x - y) ^ 2 <= (1e-11 * y) ^ 2
            }
            { wrong += NF != 12 || $1 != $7 || $5 != $11 || !near($2, $8) ||
                  !near($3, $9) || ($6 $12 != "nullnull" && !near($6, $12)) }
            END { exit wrong || NR != 5 }' &&
        # Gradients are written in fp32.
        "$BUILDDIR/tests/golden/compare_tensors" 1e-6 1e-6 "$1/grads" \
            "$2/grads" &&
        "$BUILDDIR/tests/golden/compare_tensors" 1e-9 1e-9 "$1/ckpt/latest" \
            "$2/ckpt/latest"
}

# longest DIR: prints the tokens of the longest sequence of packed data, a u32
# of the index (pp-pack(5)).
longest() {
    od -An -t u4 -j 104 -N 4 "$1/index" | tr -d ' '
}

# rollouts SEED COUNT: prints JSON Lines of groups of two responses.
rollouts() {
    awk -v seed="$1" -v n="$2" '
    function list(k, what,   s, t) {
        for (t = s = ""; k > 0; k--) {
            s = s t (what == "id" ? int(rand() * 67) : \
                     what == "lp" ? -4 - rand() : rand() - .5)
            t = ","
        }
        return "[" s "]"
    }
    BEGIN {
        srand(seed)
        for (i = 0; i < n; i++) {
            k = 1 + int(rand() * 9)
            printf "{\"prompt\":%s,\"response\":%s,\"group\":%d,", list(3, "id"), list(k, "id"), i / 2
            printf "\"advantages\":%s,\"prev_logprobs\":%s,", list(k, "a"), list(k, "lp")
            printf "\"logprobs\":%s,\"ref_logprobs\":%s}\n", list(k, "lp"), list(k, "lp")
        }
    }'
}

# pairs: the same as preference pairs.
pairs() {
    rollouts "$@" | jq -c 'del(.group,.advantages,.prev_logprobs,.logprobs)' |
        paste -d '\n' - | jq -sc '[range(0; length; 2) as $i | .[$i:$i + 2]][] |
            {prompt: .[0].prompt,
             chosen: {input_ids: .[0].response, ref_logprobs: .[0].ref_logprobs},
             rejected: {input_ids: .[1].response, ref_logprobs: .[1].ref_logprobs}}'
}

# bins DIR: prints the number of bins (pp-pack(5)).
bins() { od -An -tu8 -j32 -N8 "$1/index" | tr -d ' '; }

# step NAME RANKS KIND DATA ARGS...: one step of model-llama over all bins of
# DATA.
step() {
    local split=()
    case $3 in
    interleaved) split=(-c 2) ;;
    zbv | dualpipev) split=(-c 2 --placement v) ;;
    esac
    ppsplit -q -p "$2" "${split[@]}" model-llama |
        ppsched -q -s "$3" -m "$(bins "$4")" >"$1.plan"
    pprun -q --data "$4" --init 1 --steps 1 --clip 0 --optimizer sgd \
        --dump-grads "$1.grads" "${@:5}" "$1.plan" >"$1.log"
}

# metrics LOG: drops what depends on the split.
metrics() { jq -c 'del(.seconds, .tokens_per_s, .bubble)' "$1"; }

# divided NAME DATA SPLIT M KIND -- OPTION...: trains the split and one rank in
# fp64 and compares loss, metrics, the evaluation and every gradient. The step
# is so large that the weights after it are the gradients. The run of one rank is
# kept for the next call with the same model, data and options.
divided() {
    local name=$1 data=$2 mesh=$3 m=$4 kind=$5 case
    shift 6
    local o=(--data "$data" --eval "$data" --init 1 --steps 1 --dtype fp64
        --clip 0 --optimizer sgd --lr 100 "$@")
    case="${o[*]} $(cat model-llama/config.json "$data"/* | cksum)"
    if [ ! -e whole.case ] || [ "$(cat whole.case)" != "$case" ]; then
        rm -rf whole.*
        ppsplit -q -p 1 model-llama |
            ppsched -q -s gpipe -m "$(bins "$data")" >whole.plan
        pprun -q "${o[@]}" --save whole.saved whole.plan >whole.log
        echo "$case" >whole.case
    fi
    # shellcheck disable=SC2086
    ppsplit -q $mesh model-llama | ppsched -q -s $kind -m "$m" >"$name.plan"
    rm -rf "$name.saved"
    pprun -q "${o[@]}" --save "$name.saved" "$name.plan" >"$name.log"
    "$BUILDDIR/tests/golden/compare_tensors" 1e-12 1e-12 "$name.saved/latest" \
        whole.saved/latest
    jq -s '[.[0], .[1]] | map(del(.seconds, .tokens_per_s, .bubble, .step)) |
        .[0] as $one | .[1] | to_entries | if length < 9 then error("few") else
        .[] | select(($one[.key] - .value | fabs) > 1e-12 * ([1, .value | fabs] | max)) |
        error("\(.key) is \(.value), not \($one[.key])") end' whole.log "$name.log"
}
