#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pprun_objectives - objectives on given numbers: against an independent
# reference and against published values.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup() { cd "$BATS_TEST_TMPDIR"; }

cases() { pprun --objective-cases -; }

# row OBJECTIVE OPTIONS FIELDS: one sequence of four tokens, three scored.
row() {
    echo "{\"id\":1,\"objective\":\"$1\",\"options\":{$2},\"cu_seqlens\":[0,4],$3}"
}

# loss_is WANT OBJECTIVE OPTIONS FIELDS
loss_is() {
    row "${@:2}" | cases |
        jq -e --argjson want "$1" '(.loss - $want | fabs) < 1e-3 * ($want | fabs)'
}

A='"advantages":[0,1,-1,2]'
P='"p":[0,-1,-1,-1]'
X='"x":[0,-1.69315,-1,-0.59453]'
Q='"q":[0,-0.5,-1.5,-0.8]'

@test "random cases agree with the reference, loss, metrics and gradients" {
    command -v python3 >/dev/null || skip 'no python3'
    reference=$SRCDIR/tests/cli/objective_reference
    "$reference" make 1 400 >cases
    pprun --objective-cases cases >results
    "$reference" check cases <results
    # The reference tells a wrong result.
    sed 's/"loss": *-\{0,1\}[0-9]/"loss": 7/' results >wrong
    run ! "$reference" check cases <wrong
}

@test "clipped losses have the values of NeMo-RL's tests" {
    local plain='"kl":"none"'
    loss_is -0.6333 grpo "$plain" "$A,$P,$X"
    loss_is -0.6667 grpo "$plain,\"ratio\":\"on-policy\"" "$A,$P,$X"
    loss_is 0.1137 grpo "$plain,\"policy-loss\":\"cispo\",\"importance\":\"tis\"" \
        "$A,$P,$X,$Q"
    loss_is -0.4744 grpo \
        "$plain,\"importance\":\"tis\",\"importance-max\":0.8" "$A,$P,$X,$Q"
    loss_is -0.748 grpo "$plain,\"importance\":\"icepop\",\"importance-min\":0.5,\"importance-max\":5" \
        "$A,$P,\"x\":[0,-1,-1,-1],\"q\":[0,-0.5,-3.5,-0.8]"
    loss_is 4.1667 grpo "$plain,\"dual-clip\":3" "\"advantages\":[0,1,-1,-4],$P,\"x\":[0,-1.693147,-1,1.302585]"
    loss_is -0.4959 grpo "$plain,\"ratio\":\"sequence\",\"aggregate\":\"seq-mean-mean\",\"importance\":\"tis\"" \
        "$A,$P,$X,$Q"
    loss_is 0.0362 grpo '"kl-weight":0.1' '"advantages":[0,0,0,0],"p":[0,0,0,0],"x":[0,0,-1,-2],"f":[0,-1,-1,-1]'
    loss_is 999 sft '' '"x":[0,-999,-999,0],"mask":[0,1,1,0]'
}

@test "limits may be none, null is none, and a case needs no id" {
    local fields='"advantages":[0,1,-1,2],"p":[0,-1,-1,-1],"x":[0,-40,-1,-1],"f":[0,-1,-9,-1],"q":[0,-9,-1,-1]'
    local base='"kl-weight":1,"importance":"tis"' of
    for of in null '"none"' 1e300; do
        row grpo "$base,\"kl-clamp\":$of,\"kl-limit\":$of,\"importance-max\":$of" \
            "$fields" | cases
    done | uniq >none
    [ "$(wc -l <none)" -eq 1 ]
    row grpo "$base" "$fields" | cases >usual
    run ! diff none usual
    # verl's dual clip is 3.
    [ "$(row grpo '"preset":"verl","dual-clip":null' "$fields" | cases)" = \
        "$(row grpo '"preset":"verl","dual-clip":0' "$fields" | cases)" ]
    [ "$(row grpo '"kl":null,"beta":null' "$fields" | cases)" = \
        "$(row grpo '"kl":"none"' "$fields" | cases)" ]
    row grpo "$base" "$fields" | sed 's/"id":1,//' | cases |
        jq -e --slurpfile usual usual '. == ($usual[0] | del(.id))'
    [ "$(row grpo '"beta":null' "$fields,\"counts\":null" | cases)" = "$(
        row grpo '"dual-clip":"none"' "$fields" | cases)" ]
    [ "$(row sft '' '"x":[0,-1,-2,-3]' | sed 's/{}/null/' | cases)" = \
        "$(row sft '' '"x":[0,-1,-2,-3]' | cases)" ]
    run -2 pprun --steps 1 nosuch.json --objective \
        grpo,kl-clamp=none,kl-limit=none,dual-clip=none,importance-max=none
    [[ $output == *"nosuch.json: No such file"* ]]
    run -2 pprun --objective grpo,kl-weight=none --steps 1 nosuch.json
    [[ $output == *"kl-weight: 'none' is not a finite number" ]]
}

@test "KL terms have the published values and gradients" {
    row grpo '"kl-weight":1,"kl-clamp":2,"kl-limit":1e9' \
        '"advantages":[0,0,0,0],"p":[0,0,0,0],"x":[0,-3,-1,0],"f":[0,0,0,0],"mask":[0,1,1,0]' |
        cases | jq -e '.dx == [0,0,-0.5,0] and (.loss - (4.389056 + 0.7182818) / 2 | fabs) < 1e-6'
    row grpo '"kl-weight":1,"kl-importance":"none"' \
        '"advantages":[0,0,0,0],"p":[0,0,0,0],"x":[0,-1,0,0],"f":[0,0,0,0],"mask":[0,1,0,0]' |
        cases |
        jq -e '(.dx[1] + 1.718282 | fabs) < 1e-6'
}

@test "TRL weighs its KL term by the ratio, also in the gradient" {
    # x - p = 1 and f - x = 1: the term is e (e - 2), and its derivative is
    # e (e - 2) - e (e - 1) = -e.
    local one='"advantages":[0,0,0,0],"x":[0,-1,0,0],"f":[0,0,0,0],"mask":[0,1,0,0]'
    row grpo '"preset":"trl","importance":"none","kl":"k3","kl-weight":1' \
        "$one,\"p\":[0,-2,0,0]" |
        cases | jq -e '(.loss - 1.952492 | fabs) < 1e-6 and
            (.dx[1] + 2.718282 | fabs) < 1e-6'
    row grpo '"ratio":"on-policy","kl-importance":"previous"' "$one" >without
    run -2 --separate-stderr cases <without
    [ "$stderr" = "pprun: standard input:1: grpo: needs prev_logprobs" ]
}

@test "DPO of a margin of 1 has the published loss" {
    echo '{"id":"a","objective":"dpo","cu_seqlens":[0,2,4],"x":[0,-1,0,-2],"f":[0,-1,0,-1],"groups":[0,2]}' |
        cases | jq -e '.id == "a" and (.loss - 0.668459 | fabs) < 1e-6 and .metrics.accuracy == 1'
}

@test "a reward model reads the last token of each sequence" {
    echo '{"id":"a","objective":"reward","cu_seqlens":[0,2,5],"x":[9,1,9,9,-1],"mask":[0,0,0,0,0],"groups":[0,2]}' |
        cases | jq -e '(.loss - 0.1269280110429726 | fabs) < 1e-12 and
            (.dx[1] + 0.11920292202211755 | fabs) < 1e-12 and
            .dx[4] == -.dx[1] and .dx[0] == 0 and .dx[2] == 0 and .dx[3] == 0 and
            .metrics == {accuracy: 1, reward_margin: 2, chosen_reward: 1, rejected_reward: -1}'
}

@test "equal log-probabilities give a ratio of exactly 1 and no divergence" {
    row grpo '"kl":"none"' "$A,$P,\"x\":[0,-1,-1,-1],\"q\":[0,-1,-1,-1]" | cases |
        jq -e '.metrics | .probs_ratio_min == 1 and .probs_ratio_max == 1 and
               .gen_kl_error == 0 and .policy_kl_error == 0 and
               .js_divergence_error == 0 and .token_mult_prob_error == 1'
}

@test "an impossible sampled token leaves a masked loss finite" {
    row grpo '"kl":"none","importance":"sequence-mask","importance-max":2' \
        "$A,$P,$X,\"q\":[0,null,-1,-1]" | cases | jq -e '.loss == 0'
}

@test "parts of a step add up at its counts, and only at these" {
    command -v python3 >/dev/null || skip 'no python3'
    python3 - >lines <<'END'
import json
x = [-0.1 * k for k in range(12)]
f = [v + 0.3 * (k % 3) for k, v in enumerate(x)]
whole = {"id": 0, "objective": "dpo", "cu_seqlens": [0, 3, 5, 9, 12],
         "x": x, "f": f}
counts = {"tokens": 8, "sequences": 4, "pairs": 2}
print(json.dumps(whole))
for counts in (counts, None):
    for cu in ([0, 3, 5], [5, 9, 12]):
        a, b = cu[0], cu[-1]
        part = dict(whole, cu_seqlens=[c - a for c in cu], x=x[a:b], f=f[a:b])
        if counts:
            part["counts"] = counts
        print(json.dumps(part))
# Two sequences of one token: a dummy pair, which does not count.
print(json.dumps(dict(whole, cu_seqlens=[0, 3, 5, 9, 12, 13, 14],
                      x=x + [0, 0], f=f + [0, 0])))
END
    cases <lines | jq -se '
        def near($a): (. - $a | fabs) < 1e-12;
        . as $r | ($r[1].loss + $r[2].loss | near($r[0].loss)) and
        ($r[3].loss + $r[4].loss | near($r[0].loss) | not) and
        ($r[1].dx + $r[2].dx == $r[0].dx) and
        $r[5].loss == $r[0].loss'
}

@test "help lists the settings of an option in 80 columns" {
    pprun --objective help >help
    grep -q '^  clip-high=X  *how far ratios rise (0.2); also ' help
    grep -q '^  average-logprobs  ' help
    pprun --router help | grep -q '^  rule=WORD .*: tokens,'
    pprun --loss help | grep -q '^  mtp=X .*(0.1)'
    run ! grep -E '.{81}' help
}

@test "bad cases are refused with their line and place" {
    refused() {
        run -2 --separate-stderr cases <<<"$1"
        [ "$output" = '' ]
        echo "$stderr"
        [[ $stderr == "pprun: standard input:1: "*"$2"* ]]
        [ "$(wc -l <<<"$stderr")" -eq 1 ]
    }
    refused '{}' objective
    refused "$(row ppo '' "$X")" "'ppo'"
    refused "$(row grpo '' "$A,$P,$X")" 'needs ref_logprobs'
    refused "$(row grpo '"label-smoothing":1' "$A,$P,$X")" \
        "grpo has no setting 'label-smoothing'; it has preset, policy-loss"
    refused "$(row grpo '"gamma":1' "$A,$P,$X")" '/options/gamma'
    refused "$(row grpo '"clip-low":-1' "$A,$P,$X")" "'-1'"
    refused "$(row grpo '"ratio":"word"' "$A,$P,$X")" "'word'"
    refused "$(row sft '' '"x":[0,1]')" "'2' numbers"
    refused "$(row sft '' '"x":[0,1,2,"a"]')" '/x/3'
    refused "$(row dpo '' "$X,\"f\":[0,0,0,0]")" pairs
    refused "$(row reward '' "$X")" 'reward: the sequences must be pairs'
    local cispo='"kl":"none","policy-loss":"cispo"'
    for other in '"ratio":"none"' '"ratio":"on-policy"' '"ratio":"sequence"' \
        '"dual-clip":3'; do
        refused "$(row grpo "$cispo,$other" "$A,$P,$X")" cispo
    done
}
