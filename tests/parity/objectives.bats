#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# objectives - preference and policy objectives through the pipeline: the same
# bits for every split and schedule, the same gradients for every packing, and
# the gradient of the loss against differences of the loss.

bats_require_minimum_version 1.5.0
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama false
    rollouts 3 16 >rollouts.jsonl
    pairs 4 16 >pairs.jsonl
    for kind in rollouts pairs; do
        pppack -q -l 64 --bins-multiple 4 -o $kind $kind.jsonl
        pppack -q -l 200 -o $kind.wide $kind.jsonl
        pppack -q -l 96 --cp 4 --bins-multiple 2 -o $kind.parts $kind.jsonl
    done
}

setup() { cd "$BATS_FILE_TMPDIR"; }

GRPO=(--objective 'grpo,kl-weight=0.3,importance=tis,importance-max=1.5')

@test "every split and schedule gives the bits of one rank" {
    for o in grpo dpo; do
        local data=rollouts options=("${GRPO[@]}")
        [ $o = grpo ] || { data=pairs; options=(--objective 'dpo,sft-weight=.2'); }
        step one 1 1f1b $data "${options[@]}"
        for kind in gpipe 1f1b zb-h1 interleaved dualpipev; do
            step two 2 $kind $data "${options[@]}"
            compare one.grads two.grads
            diff <(metrics one.log) <(metrics two.log)
        done
    done
}

# long: gives responses 600 and 400 tokens by turns. The head has blocks of 512.
long() {
    jq -sc 'to_entries[] | (if .key % 2 == 0 then 600 else 400 end) as $n |
        .value * {group: .key} |
        map_values(if type == "array" and length != 3 then
            . as $x | [range($n) | $x[. % ($x | length)]] else . end)'
}

@test "microbatches of one and of two blocks of logits give the bits of one rank" {
    rollouts 5 8 | jq -c 'select(.response | length != 3)' | long >long.jsonl
    pppack -q -l 640 --no-shuffle -o long long.jsonl
    [ "$(bins long)" -eq "$(wc -l <long.jsonl)" ]
    [ "$(bins long)" -ge 4 ]
    step one 1 1f1b long "${GRPO[@]}"
    for kind in gpipe 1f1b zb-h1 zb-h2; do
        step two 2 $kind long "${GRPO[@]}"
        compare one.grads two.grads
        diff <(metrics one.log) <(metrics two.log)
    done
}

@test "every packing gives the same gradient" {
    local of
    for of in "rollouts ${GRPO[*]}" \
        'rollouts --objective grpo,ratio=sequence,aggregate=seq-mean-mean' \
        'rollouts --objective grpo,aggregate=seq-mean-sum,importance=sequence-mask,importance-max=1.1' \
        'pairs --objective dpo,label-smoothing=.1' \
        'pairs --objective dpo,preference-loss=ipo,average-logprobs,sft-weight=.5,sft-aggregate=seq-mean-mean'; do
        read -ra words <<<"$of"
        [ "$(bins "${words[0]}")" -ne "$(bins "${words[0]}.wide")" ]
        step packed 1 1f1b "${words[0]}" --dtype fp64 "${words[@]:1}"
        step wide 1 1f1b "${words[0]}.wide" --dtype fp64 "${words[@]:1}"
        "$BUILDDIR/tests/golden/compare_tensors" 1e-9 1e-7 packed.grads wide.grads
        jq -se '.[0].loss - .[1].loss | fabs < 1e-12' packed.log wide.log
    done
}

@test "a pair without a scored token does not count" {
    local nothing='"labels":[-100,-100],"ref_logprobs":[0,0]'
    {
        cat pairs.jsonl
        echo "{\"prompt\":[1],\"chosen\":{\"input_ids\":[1,2],$nothing},\"rejected\":{\"input_ids\":[3,4],$nothing}}"
    } >more.jsonl
    pppack -q -l 200 -o more more.jsonl
    for loss in sigmoid ipo; do
        step without 1 1f1b pairs.wide --dtype fp64 \
            --objective dpo,preference-loss=$loss
        step with 1 1f1b more --dtype fp64 \
            --objective dpo,preference-loss=$loss
        jq -se '.[0].loss - .[1].loss | fabs < 1e-12' without.log with.log
    done
}

@test "data-parallel ranks give the gradient of one" {
    local o=(--dtype fp64 "${GRPO[@]}" --objective 'grpo,aggregate=seq-mean-mean')
    # Two ranks of replicas take half of the microbatches each.
    [ $(($(bins rollouts) % 2)) -eq 0 ]
    step one 1 1f1b rollouts "${o[@]}"
    ppsplit -q -p 2 --dp 2 model-llama |
        ppsched -q -s 1f1b -m $(($(bins rollouts) / 2)) >dp.plan
    pprun -q --data rollouts --init 1 --steps 1 --clip 0 --optimizer sgd \
        --dump-grads dp.grads "${o[@]}" dp.plan >dp.log
    "$BUILDDIR/tests/golden/compare_tensors" 1e-9 1e-7 one.grads dp.grads
    jq -se '[.[0], .[1]] | map(del(.seconds, .tokens_per_s, .bubble, .step)) |
        .[0] as $one | .[1] | to_entries | length > 15 and
        all(.[]; ($one[.key] - .value | fabs) < 1e-12 * ([1, .value] | max))' \
        one.log dp.log
}

@test "ranks that divide sequences, and slices, give the gradient of one" {
    local of m two=()
    for of in "rollouts.parts ${GRPO[*]} --objective grpo,entropy-weight=.1" \
        'rollouts.parts --objective grpo,ratio=sequence,aggregate=seq-mean-mean,clip-low=.01,dual-clip=1.5' \
        'rollouts.parts --objective grpo,aggregate=constant,aggregate-length=7,importance=sequence-mask,importance-max=1.1' \
        'pairs.parts --objective dpo,label-smoothing=.1,sft-weight=.5,sft-aggregate=token-mean,preference-loss=robust' \
        'rollouts.parts --objective grpo,ratio=sequence,kl-importance=previous,kl-weight=.3' \
        'pairs.parts --objective dpo,preference-loss=ipo,average-logprobs'; do
        read -ra two <<<"$of"
        m=$(bins "${two[0]}")
        divided cp2 "${two[0]}" '-p 2 --cp 2' "$m" 1f1b -- "${two[@]:1}"
        divided sliced "${two[0]}" '-p 2' "$m" 'seq1f1b --slices 3' \
            -- "${two[@]:1}"
    done
    divided tp2 "${two[0]}" '-p 2 --tp 2 --cp 2' "$m" 1f1b -- "${two[@]:1}"
    divided tp4 rollouts.parts '-p 1 --tp 4' "$(bins rollouts.parts)" gpipe \
        -- "${GRPO[@]}"
    divided cp4 "${two[0]}" '-p 1 --cp 4' "$m" gpipe -- "${two[@]:1}"
    divided both "${two[0]}" '-p 2 -c 2 --placement v --cp 2 --dp 2 --cp-exchange a2a' \
        "$((m / 2))" zbv -- "${two[@]:1}"
}

@test "an evaluation has the loss of the step before its update" {
    step eval 2 1f1b pairs --dtype fp64 --objective dpo,sft-weight=.2
    ppscore -q --data pairs --eval pairs --init 1 --dtype fp64 \
        --objective dpo,sft-weight=.2 eval.plan >eval.val
    jq -se '.[0].loss - .[1].val_loss | fabs < 1e-12' eval.log eval.val
}

@test "-v prints the settings of an objective, and they can be given again" {
    step said 2 1f1b pairs --objective dpo,beta=.2,sft-weight=.3,preset=trl
    pprun -v --data pairs --init 1 --steps 1 --lr 1e-2 said.plan \
        --objective dpo,beta=.2,sft-weight=.3,preset=trl >once 2>said
    local given
    given=$(sed -n 's/^pprun: --objective //p' said)
    [[ $given == dpo,preset=trl,*,beta=0.2,*,sft-aggregate=token-mean,* ]]
    pprun -q --data pairs --init 1 --steps 1 --lr 1e-2 said.plan \
        --objective "$given" >again
    diff <(jq '[.loss, .grad_norm]' once) <(jq '[.loss, .grad_norm]' again)
}

# at_start N DATA PLAN OPTION...: the evaluation of step 0 has the loss and the N
# metrics that step 1 has before its update.
at_start() {
    pprun -q --data "$2" --eval "$2" --init 1 --dtype fp64 --steps 1 \
        --eval-at-start "${@:4}" "$3" >start.log
    jq -se --argjson n "$1" '.[0] as $zero | .[1] as $one | $zero.step == 0 and
        ($zero | del(.step, .temperature) | keys | length == $n + 1 and
        all(.[]; . as $key | $one[$key[4:]] as $x |
            $zero[$key] - $x | fabs < 1e-12 * ([1, ($x | fabs)] | max))) and
        $one.val_loss != $zero.val_loss' start.log
}

@test "an evaluation has the metrics of the objective, on any mesh" {
    local m=$(($(bins rollouts) / 2))
    step plain 2 1f1b rollouts "${GRPO[@]}"
    at_start 17 rollouts plain.plan "${GRPO[@]}"
    ppsplit -q -p 2 --dp 2 model-llama | ppsched -q -s 1f1b -m $m >dp.plan
    at_start 17 rollouts dp.plan "${GRPO[@]}"
    # More passes than one.
    ppsplit -q -p 1 model-llama | ppsched -q -s gpipe -m 1 >few.plan
    ppscore -q --data rollouts --eval rollouts --init 1 --dtype fp64 "${GRPO[@]}" \
        few.plan | jq -e --slurpfile want start.log 'to_entries | length == 18 and
        all(.[]; $want[0][.key] - .value | fabs < 1e-9)'
    step preference 2 1f1b pairs --objective dpo,sft-weight=.2
    at_start 6 pairs preference.plan --objective dpo,sft-weight=.2
    ppsplit -q -p 2 --cp 2 model-llama |
        ppsched -q -s 1f1b -m "$(bins pairs.parts)" >cp.plan
    at_start 6 pairs.parts cp.plan --objective dpo,sft-weight=.2
    # A resumed run has no step 0.
    pprun -q --data pairs --eval pairs --init 1 --objective dpo --steps 1 \
        --save dpo.saved preference.plan >/dev/null
    pprun -q --data pairs --eval pairs --objective dpo --steps 2 --eval-at-start \
        --resume dpo.saved/latest preference.plan | jq -se 'length == 1'
}

# own NAME ARGS...: packs the rollouts as if the model had made them, with the
# log-probabilities that it gives them in the bins of rollouts.
own() {
    step zero 2 1f1b rollouts "${GRPO[@]}"
    ppscore -q --data rollouts --init 1 --logprobs -o scores "${@:2}" zero.plan
    local add=(--add-column prev_logprobs=scores --add-column logprobs=scores)
    pppack -q -l 64 --bins-multiple 4 -o "$1" "${add[@]}" rollouts
    pppack -q -l 200 -o "$1.wide" "${add[@]}" rollouts.jsonl
}

is_certain() {
    jq -e '.probs_ratio_min == 1 and .probs_ratio_max == 1 and
        .gen_kl_error == 0 and .policy_kl_error == 0 and
        .token_mult_prob_error - 1 < 1e-12 and .clip_fraction == 0' "$1"
}

@test "log-probabilities of --logprobs certify a ratio of exactly 1" {
    own own
    for kind in gpipe 1f1b zb-h1; do
        step own 2 $kind own --objective grpo,importance=tis
        is_certain own.log
    done
    # After an update it is not 1 any more, and the sampler still agrees.
    step own 2 1f1b own --objective grpo --steps 2 --lr 0.1
    tail -n 1 own.log | jq -e '.probs_ratio_max > 1 and .gen_kl_error == 0'
}

@test "the certificate holds at a temperature, and at no other" {
    own cool --temperature 0.7
    head -n 1 scores | jq -e '.temperature == 0.7'
    step cool 2 zb-h1 cool --objective grpo --temperature 0.7
    is_certain cool.log
    jq -e '.temperature == 0.7' cool.log
    step warm 2 zb-h1 cool --objective grpo
    jq -e '.probs_ratio_max > 1.01 and .temperature == null' warm.log
}

# certify MODEL MESH M: scores on one pipeline rank of the mesh and trains on two.
certify() {
    local add=(--add-column prev_logprobs=scores --add-column logprobs=scores)
    # shellcheck disable=SC2086
    ppsplit -q -p 1 $2 "$1" | ppsched -q -s gpipe -m "$3" >mesh.plan
    ppscore -q --data rollouts.parts --init 1 --logprobs -o scores mesh.plan
    pppack -q -l 96 --cp 4 --bins-multiple 2 -o meshed "${add[@]}" rollouts.parts
    # shellcheck disable=SC2086
    ppsplit -q -p 2 -c 2 --placement v $2 "$1" | ppsched -q -s zbv -m "$3" >mesh.plan
    pprun -q --data meshed --init 1 --steps 1 --objective grpo,importance=tis \
        mesh.plan >mesh.log
    is_certain mesh.log
}

# is_near MODEL: fails unless one rank, which adds in another order, has a ratio
# near 1.
is_near() {
    ppsplit -q -p 1 "$1" | ppsched -q -s gpipe -m "$(bins meshed)" >one.plan
    pprun -q --data meshed --init 1 --steps 1 --objective grpo one.plan >one.log
    run ! is_certain one.log
    jq -e '.probs_ratio_max - 1 | . > 0 and . < 1e-4' one.log
}

@test "it holds on other splits of the same tensor and context ranks" {
    local mesh
    for mesh in '--tp 2' '--cp 2' '--tp 2 --cp 2 --cp-exchange ring'; do
        certify model-llama "$mesh" "$(bins rollouts.parts)"
    done
    is_near model-llama
}

@test "it holds on other splits of the same ranks of experts" {
    local mesh
    model qwen2-moe false
    eight_heads model-qwen2-moe
    for mesh in '--ep 2' '--ep 2 --tp 2' '--ep 4 --cp 2 --tp 2'; do
        certify model-qwen2-moe "--dp 2 $mesh" $(($(bins rollouts.parts) / 2))
    done
    is_near model-qwen2-moe
}

@test "in other bins too, with row-invariant products" {
    own rows --row-invariant
    step rows 2 1f1b rows.wide --objective grpo --row-invariant
    is_certain rows.log
}

@test "in slices and on exact context ranks too, with row-invariant products" {
    local plan m add=(--add-column prev_logprobs=scores --add-column logprobs=scores)
    m=$(bins rollouts.parts)
    ppsplit -q -p 1 model-llama | ppsched -q -s gpipe -m "$m" >one.plan
    ppscore -q --data rollouts.parts --init 1 --row-invariant --logprobs -o scores one.plan
    pppack -q -l 96 --cp 4 --bins-multiple 2 -o rows.parts "${add[@]}" rollouts.parts
    ppsplit -q -p 2 model-llama |
        ppsched -q -s seq1f1b --slices 3 -m "$m" >slices.plan
    ppsplit -q -p 2 --cp 2 --cp-exact model-llama |
        ppsched -q -s 1f1b -m "$m" >exact.plan
    for plan in slices exact; do
        pprun -q --data rows.parts --init 1 --steps 1 --row-invariant \
            --objective grpo,importance=tis $plan.plan >rows.log
        is_certain rows.log
    done
    # Other products round in another way.
    pprun -q --data rows.parts --init 1 --steps 1 \
        --objective grpo,importance=tis slices.plan >rows.log
    run ! is_certain rows.log
}

@test "a reference's log-probabilities are added to packed pairs" {
    ppsplit -q -p 1 model-llama | ppsched -q -s 1f1b -m "$(bins pairs)" >ref.plan
    ppscore -q --data pairs --init 2 --dtype fp64 --logprobs -o ref.scores ref.plan
    pppack -q -l 64 --bins-multiple 4 -o referenced \
        --add-column ref_logprobs=ref.scores pairs
    cmp pairs/input_ids referenced/input_ids
    cmp pairs/labels referenced/labels
    step own 1 1f1b referenced --dtype fp64 --objective dpo --init 2
    # The reference itself: no pair is preferred, and the loss is log 2.
    jq -e '.reward_margin | fabs < 1e-4' own.log
    jq -e '.loss - 0.6931471805599453 | fabs < 1e-4' own.log
    step other 1 1f1b referenced --dtype fp64 --objective dpo
    jq -e '.reward_margin | fabs > 1e-3' other.log
}

@test "log-probabilities of other sequences are refused" {
    ppscore -q --data rollouts --init 1 --logprobs \
        <(ppsplit -q -p 1 model-llama | ppsched -q -s 1f1b -m 4) >summed
    sed 's/, "xxh3": "[^"]*"//' summed >scores
    unfit() {
        run -2 --separate-stderr pppack -q -l 64 -o unfit \
            --add-column ref_logprobs=bad rollouts
        echo "$stderr"
        # shellcheck disable=SC2053
        [[ $stderr == $1 ]]
        [ ! -e unfit ]
    }
    sed 3d scores >bad
    unfit "pppack: bad: sequence '2' is missing"
    sed '3s/,[^,]*]/]/' scores >bad
    unfit "pppack: bad: line 3, *: sequence '2' has * log-probabilities, but * tokens"
    sed '3s/]/,-1]/' scores >bad
    unfit "pppack: bad: line 3, *: sequence '2' has *"
    sed '3s/: 2,/: 99,/' scores >bad
    unfit "pppack: bad: line 3, *: sequence '99' is not in the data, which have 8"
    sed 3p scores >bad
    unfit "pppack: bad: line 4, *: sequence '2' is there twice"
    sed '3s/sequence/number/' scores >bad
    unfit "pppack: bad: line 3, *: has no 'sequence'"
    rm bad
    unfit 'pppack: bad: No such file or directory'
    run --separate-stderr pppack -q -l 64 -o unfit --add-column rewards=scores \
        rollouts
    [ "$status" -ne 0 ]
    [[ $stderr == *"--add-column: 'rewards=scores' must be logprobs, "* ]]
}

@test "losses and metrics are those of the objective on log-probabilities" {
    step grpo 2 1f1b rollouts.wide --dtype fp64 "${GRPO[@]}"
    step dpo 2 1f1b pairs.wide --dtype fp64 --objective dpo,sft-weight=.2
    for o in grpo dpo; do
        local data=rollouts
        [ $o = grpo ] || data=pairs
        ppscore -q --data $data.wide --init 1 --dtype fp64 --logprobs -o $o.scores \
            $o.plan
        # A case of all sequences, from the input and --logprobs alone.
        jq -sc --slurpfile in $data.jsonl --arg o $o '
            def pad($n; $v): [range($n) | 0] + $v;
            (if $o == "grpo" then [$in[] |
                 {n: (.prompt | length), k: (.response | length),
                  a: .advantages, p: .prev_logprobs, q: .logprobs,
                  f: .ref_logprobs}]
             else [$in[] | . as $pair | (.chosen, .rejected) |
                 {n: ($pair.prompt | length), k: (.input_ids | length),
                  f: .ref_logprobs, a: [], p: [], q: []}] end) as $s |
            def column($c): [$s[] | pad(.n; .[$c])[]];
            {id: 1, objective: $o,
             options: (if $o == "grpo" then {kl_weight: .3, importance: "tis",
                           importance_max: 1.5} else {sft_weight: .2} end),
             cu_seqlens: ([0] + [foreach $s[] as $q (0; . + $q.n + $q.k)]),
             x: [.[].logprobs[]], f: column("f"),
             mask: [$s[] | ([range(.n) | 0] + [range(.k) | 1])[]]} +
            (if $o == "grpo" then {advantages: column("a"), p: column("p"),
                                   q: column("q")} else {} end)' \
            $o.scores >$o.case
        pprun --objective-cases $o.case >$o.want
        jq -se '.[1] as $want | .[0] as $got |
            [$want.metrics + {loss: $want.loss} | to_entries[] |
             ($got[.key] - .value | fabs) < 1e-6 * ([1, .value] | max)] |
            length > 5 and all' $o.log $o.want
    done
}

@test "the gradient is the slope of the loss" {
    # One step of SGD moves the weights by lr times the gradient: the loss falls
    # by lr times the square of its norm. The score weight of the divergence adds
    # a gradient that is no slope of the loss.
    for of in "rollouts.wide ${GRPO[*]} --objective grpo,kl-importance=none" \
        'rollouts.wide --objective grpo,ratio=sequence,aggregate=seq-mean-mean,entropy-weight=.1,kl=k2,kl-importance=none' \
        'rollouts.wide --objective grpo,kl-weight=.3,kl-importance=none --temperature .6' \
        'pairs.wide --objective dpo,beta=.5' \
        'pairs.wide --objective dpo --temperature 1.7'; do
        read -ra words <<<"$of"
        step slope 1 1f1b "${words[0]}" --dtype fp64 "${words[@]:1}" \
            --lr 1e-8 --steps 2
        jq -se '(.[0].loss - .[1].loss) / 1e-8 / .[0].grad_norm /
            .[0].grad_norm - 1 | fabs < 1e-6' slope.log
    done
}

@test "weights without a finite loss of the objective are not saved" {
    # Without limits the divergence from the reference is exp(f - x), which
    # overflows before the log-likelihood of the same weights does.
    step plan 2 1f1b rollouts --objective grpo
    run -3 --separate-stderr pprun -q --data rollouts --init 1 --steps 1 \
        --dtype fp64 --optimizer sgd --lr 1e4 --clip 0 --save diverged \
        --objective grpo,preset=trl,kl=k3,kl-weight=1,kl-importance=none plan.plan
    echo "$stderr"
    [[ $stderr == *'after step 1 the loss is inf: no checkpoint is written' ]]
    [ -z "$(ls diverged)" ]
    pprun -q --data rollouts --init 1 --steps 1 --dtype fp64 \
        --optimizer sgd --lr 1e-3 --save converges --objective grpo plan.plan
    [ -e converges/latest ]
}

@test "a schedule that mixes slices of microbatches is refused" {
    ppsplit -q -p 1 model-llama | ppsched -q -s gpipe -m 4 --slices 2 |
        sed 's/"0F0 0F0.1 0F1 0F1.1 /"0F0 0F1 0F0.1 0F1.1 /' >mixed.plan
    run -2 --separate-stderr pprun --data rollouts --init 1 --steps 1 \
        --objective grpo mixed.plan
    [ "$stderr" = 'pprun: --objective grpo needs a schedule whose last stage goes through all slices of microbatch 0 before it begins microbatch 1' ]
}

@test "data without what an objective needs are refused" {
    step plan 1 1f1b rollouts --objective grpo
    refused() {
        run -2 --separate-stderr pprun --init 1 --steps 1 "$@" plan.plan
        echo "$stderr"
        [ "$output" = '' ]
    }
    refused --data rollouts
    [[ $stderr == *'rollouts'*'--objective sft'* ]]
    refused --data rollouts --objective dpo
    [[ $stderr == *'--objective dpo needs pairs'* ]]
    jq -c 'del(.ref_logprobs)' rollouts.jsonl >bare.jsonl
    pppack -q -l 64 -o bare bare.jsonl
    refused --data bare --objective grpo
    [ "$stderr" = "pprun: bare: --objective grpo needs the column ref_logprobs:\
 write FILE with ppscore --logprobs, then pppack -l 64 --add-column\
 ref_logprobs=FILE -o NEW bare" ]
    # The cure cures.
    ppscore -q --data bare --init 2 --logprobs -o FILE plan.plan
    pppack -q -l 64 --add-column ref_logprobs=FILE -o NEW bare
    pprun -q --data NEW --init 1 --steps 1 --objective grpo plan.plan |
        jq -e '.kl_penalty > 0'
    pprun -q --data bare --init 1 --steps 1 --objective grpo,kl=none plan.plan |
        jq -e '.kl_penalty == null and .gen_kl_error > 0'
    refused --data pairs --objective dpo,clip-low=.1
    [[ $stderr == *"--objective: dpo has no setting 'clip-low'; it has preset,"* ]]
    refused --data rollouts --objective grpo,policy-loss=cispo,dual-clip=3
    [[ $stderr == *'cispo'* ]]
}
