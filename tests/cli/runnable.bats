#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# A plan that pprun cannot run is planned with a note, which has pprun's words;
# tests/parity/combos looks for other plans.

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    export G=$SRCDIR/tests/golden
    mkdir two tied scores
    jq '.num_nextn_predict_layers = 2' "$G/deepseek-mtp/model/config.json" \
        >two/config.json
    jq '.tie_word_embeddings = true' "$G/deepseek-mtp/model/config.json" \
        >tied/config.json
    jq '.architectures = ["LlamaForSequenceClassification"] | .num_labels = 1' \
        "$G/llama/model/config.json" >scores/config.json
    ppsplit -q -p 1 "$G/generator/model" >g.json
    ppsplit -q -p 1 --cp 2 --cp-exact "$G/generator/model" >exact.json
    ppsplit -q -p 1 "$G/mixtral/model" >experts.json
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# refused PROGRAM REASON: PROGRAM noted, and pprun says of plan.json, REASON.
# Without arguments neither said anything.
refused() {
    # shellcheck disable=SC2086 # objective may be unset
    run --separate-stderr pprun --print-memory ${objective:+--objective $objective} plan.json
    local said=${stderr#pprun: plan.json: }
    local of=${1:+"$1: pprun cannot run this plan: "}
    cat notes
    echo "$stderr"
    [ "$status" = 2 ]
    [ "$(cat notes)" = "${of}${1:+$said}" ]
    [[ $said == *"${2:-no data: give --data DIR}"* ]]
}

# plan KIND OPTION...: writes plan.json and notes.
plan() {
    { ppsplit "${@:2}" | ppsched -s $1 -m 4 >plan.json; } 2>notes
}

@test "a schedule with slices is noted if something needs whole microbatches" {
    local model=$G/mixtral/model capacity='--expert-capacity 1.5' row
    plan 'seq1f1b --slices 2' -p 2 --cp 2 "$G/llama/model"
    refused
    plan 'seq1f1b --slices 2' -p 2 --cp 2 --cp-exchange ring "$G/llama/model"
    refused ppsched "context-parallel ranks pass on the keys of whole"
    plan 'seq1f1b --slices 2' -p 2 --cp 2 --cp-exact "$G/llama/model"
    refused ppsched "exact context-parallel ranks add up whole microbatches"
    plan seq1f1b -p 2 --cp 2 $capacity "$model"
    refused ppsched "--expert-capacity counts the tokens of whole microbatches on"
    plan seq1f1b -p 2 "$G/llava"
    refused ppsched "images and audio belong to whole microbatches"
    while read -r row; do
        # shellcheck disable=SC2086
        plan seq1f1b -p 2 $capacity ${row%%:*} "$model"
        refused ppsched "${row#*:}"
    done <<'END'
--expert-drop probs:--expert-drop probs counts the tokens
--dp 2 --ep 2 --expert-padding:--expert-padding counts the tokens
--tp 2 --ep 2 --experts-over-tp:the capacity of whole experts
END
    plan seq1f1b -p 2 --dp 2 --ep 2 $capacity "$model"
    refused
    plan 1f1b -p 2 --expert-drop probs $capacity "$model"
    refused
}

@test "a head of several stages is noted with what pprun does not run beside it" {
    plan 1f1b -p 2 --head-stages 2 --tp 2 "$G/llama/model"
    refused ppsplit "'lm_head.0' divides a head with other units, which pprun \
does not run with tensor-parallel ranks"
    # ppsplit does not make such plans.
    plan 1f1b -p 2 --head-stages 2 "$G/llama/model"
    refused
    mv plan.json whole.json
    while read -r what edit; do
        jq "$edit" whole.json >plan.json
        run -2 --separate-stderr pprun --print-memory plan.json
        [[ $stderr == *" does not run with ${what//_/ }; plan without"* ]]
    done <<'END'
a_tied_head .model.tied = true
adapters .model.lora = {rank: 4, alpha: 8, targets: "all-linear"}
frozen_units .model.units[0].frozen = true
END
    jq '.stages[3].inputs = [0] | del(.schedule)' whole.json |
        ppsched -q -s gpipe -m 4 >plan.json
    run -2 --separate-stderr pprun --print-memory plan.json
    [ "$stderr" = "pprun: plan.json: /stages: 'lm_head.0' divides a head: it must \
be a stage behind a chain, and so must each of the others and the loss" ]
}

@test "--schedule of ppsplit notes what the schedule will exclude" {
    ppsplit -s seq1f1b -p 2 "$G/llava" 2>notes |
        ppsched -q -s seq1f1b -m 4 >plan.json
    refused ppsplit "images and audio belong to whole microbatches"
}

@test "multi-token prediction is noted if pprun does not train it" {
    plan 1f1b -p 2 --mtp two
    refused ppsplit "with a second such layer; plan without --mtp"
    plan 1f1b -p 2 --mtp tied
    refused ppsplit "with a tied head; plan without --mtp"
    plan 1f1b -p 2 --mtp --freeze head "$G/deepseek-mtp/model"
    refused ppsplit "with frozen units; plan without --mtp"
    plan 1f1b -p 2 --mtp "$G/deepseek-mtp/model"
    refused
    plan 1f1b -p 2 tied
    refused
}

@test "layers with experts that config.json does not have are noted" {
    plan 1f1b -p 2 --moe-layer-freq '[0,1]' "$G/mixtral/model"
    refused ppsplit "'model.layers.0' has "
    plan 1f1b -p 2 --moe-layer-freq 1 "$G/mixtral/model"
    refused
}

@test "a generator is noted if pprun does not train it" {
    local row
    while read -r row; do
        # shellcheck disable=SC2086
        ppsplit -q ${row%%:*} >l.json
        { ppsplit --combine "language=l.json,generator=$(cut -d: -f2 <<<"$row")" |
            ppsched -s 1f1b -m 4 >plan.json; } 2>notes
        # shellcheck disable=SC2046
        refused $(cut -d: -f3 <<<"$row") "${row##*:}"
    done <<END
-p 1 $G/llama/model:experts.json:ppsplit:has experts
-p 1 --cp 2 $G/llama/model:exact.json:ppsplit:with ppsplit --cp-exact
-p 1 scores:g.json:ppsplit:with a language model that gives rewards
-p 1 --mtp $G/deepseek-mtp/model:g.json:ppsplit:with multi-token prediction
END
    ppsplit -q -p 1 "$G/llama/model" >l.json
    { ppsplit --combine language=l.json,generator=g.json |
        ppsched -s seq1f1b -m 4 >plan.json; } 2>notes
    refused ppsched "with slices"
    { ppsplit --combine language=l.json,generator=g.json |
        ppsched -s 1f1b -m 4 >plan.json; } 2>notes
    refused
}

@test "an objective that pprun does not train is noted" {
    local objective row
    while read -r objective row; do
        # shellcheck disable=SC2086
        plan "1f1b --objective $objective" -p 2 ${row%%:*}
        refused ppsched "${row#*:}"
        # shellcheck disable=SC2086
        plan 1f1b --objective $objective -p 2 ${row%%:*}
        refused ppsplit "${row#*:}"
    done <<END
dpo --mtp $G/deepseek-mtp/model:which pprun does not train with --objective
grpo scores:gives rewards; only --objective reward trains it
reward $G/llama/model:gives no rewards
END
    objective=reward
    plan 1f1b --objective reward -p 2 scores
    refused
}

@test "notes are quiet with -q, and none is for another trainer" {
    ppsplit -q -p 2 --mtp tied 2>notes >plan.json
    ppsplit -p 2 --mtp --export deepspeed tied 2>>notes >layers
    ppsplit -p 2 -t --mtp tied 2>>notes >table
    [ ! -s notes ]
}
