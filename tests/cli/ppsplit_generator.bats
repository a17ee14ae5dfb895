#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# ppsplit --combine with a generator behind the language model: a plan of both,
# which ppsched schedules. tests/data/vision has the published sizes of encoders.

bats_require_minimum_version 1.5.0
load split_helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    llama 4 >lm.json
    llama 3 8192 | jq '.hidden_size = 512 | .num_attention_heads = 4' >gen.json
    ppsplit -q -p 2 --seq-len 512 lm.json >l.json
    ppsplit -q -p 2 --seq-len 512 gen.json >g.json
    ppsplit -q --combine language=l.json,generator=g.json >plan.json
}

setup() {
    cd "$BATS_FILE_TMPDIR"
    OMNI=$SRCDIR/tests/data/vision/qwen2.5-omni-7b.json
}

# join LANGUAGE GENERATOR: prints the plan of both.
join() { ppsplit -q --combine "language=$1,generator=$2" --edge language:generator; }

# stats PLAN FILTER [KIND]: prints what the filter of jq makes of statistics with 8
# microbatches. The kind may have options.
stats() { ppsched -s ${3:-1f1b} -m 8 --stats "$1" | jq -c "$2"; }

@test "a generator reads what the language model puts out" {
    [ "$(jq -c '[.stages[] | [.component, .rank, .inputs]]' plan.json)" = \
        '[["language",0,[]],["language",1,[0]],["generator",2,[1]],'\
'["generator",3,[2]]]' ]
    jq -e '[.components[] | [.name, .rank_offset, .first_rank, .mesh.pp,
        .behind, .source]] == [["language", 0, 0, 2, null, null],
        ["generator", 2, 2, 2, "language", "gen.json"]]' plan.json
    # The units of both. The head puts out the rows before it, of 4 x 1024 bytes,
    # and has room for their gradient. The connector is a product of 1024 x 512
    # with a bias, which keeps these rows. Its unit takes and gives 1024 + 512
    # values in place of 2 x 512, and sorts the 1024.
    diff <(jq -s '.[0].model.units[-1] |= (.out_bytes = 4096 |
                .workspace_bytes[0] += 4096) |
            .[1].model.units[0] |= (.params += 1025 * 512 |
                .fwd_flops[0] = 2 * 1024 * 512 | .act_bytes[1] = 4 * 1024 |
                .workspace_bytes[0] += 4 * 512 + 4 * 1024) |
            [.[].model.units[]] | map(del(.fqn))' l.json g.json) \
        <(jq '.model.units | map(del(.fqn))' plan.json)
    jq -e '.stages[1].out_bytes == 4096 and
        ([.model.units[].fqn] | index("generator.lm_head"))' plan.json
    jq -e '[.history[].args] | length == 2 and (.[1] | test("--combine"))' \
        plan.json
    # --edge changes nothing.
    diff <(jq 'del(.history)' plan.json) <(join l.json g.json | jq 'del(.history)')
}

@test "its stages take their time and memory, and warm up as in a chain" {
    # The second stage of each is the same as alone: a stage before it has
    # gradients. But the backward of the first head waits for the generator, so
    # that it makes logits again.
    [ "$(stats plan.json '[.idle[1].busy, .idle[3].busy]')" = \
        "$(jq -c "[$(stats l.json '.idle[1].busy') + 8 * 512 *
            .model.units[-1].fwd_flops[0], $(stats g.json '.idle[1].busy')]" l.json)" ]
    # F, I and W of the connector, for 8 microbatches of 512 tokens.
    [ "$(jq -n "$(stats plan.json '.idle[2].busy') - $(stats g.json '.idle[0].busy')")" = \
        $((3 * 2 * 1024 * 512 * 8 * 512)) ]
    local part parts='[.memory[] | [.weights, .gradients, .optimizer]]'
    diff <(stats plan.json "$parts") <(jq -nc "$(stats l.json "$parts") +
        $(stats g.json "$parts") | .[2] |= (
            .[0] += 4 * 1025 * 512 | .[1] += 4 * 1025 * 512 |
            .[2] += 8 * 1025 * 512)")
    # Activations of the last rank, which warms up with one forward.
    [ "$(stats plan.json '.memory[3].activations')" = \
        "$(stats g.json '.memory[1].activations')" ]
    [ "$(stats plan.json .peak)" = '[4,3,2,1]' ]
    for kind in gpipe 1f1b eager-1f1b zb-h1 zb-h2 'auto --time 0.2'; do
        # shellcheck disable=SC2086
        ppsched -q -s $kind -m 8 plan.json | ppsched --check
        stats plan.json '.lower_bound <= .makespan * 1.000001' "$kind" | grep true
    done
    ppsched -q -s 1f1b -m 8 --depth 0 plan.json | ppsched --check
    # Unit times give the makespan of 1F1B.
    [ "$(ppsched -s 1f1b -m 8 --cost 1,1,1 --stats plan.json | jq .makespan)" = 33 ]
    ppsched -q -s 1f1b -m 4 plan.json | ppsched -t --width 90 --ascii - |
        grep -q '^rank 3, generator *|'
    ppsched -q -s 1f1b -m 4 plan.json | ppsched --svg - - |
        grep -q '>rank 2, generator<'
}

@test "warmup counts the longest path to the loss, through the generator" {
    local like=(--seq-len 4096 --dtype bf16 --device cuda)
    ppsplit -q -p 1 "${like[@]}" gen.json >one.json
    ppsplit -q -p 4 --encoder-mesh vision:pp=1 --encoder-mesh audio:pp=1 "$OMNI" \
        >omni.json
    join omni.json one.json >both.json
    jq -e '[.stages[] | [.component, .inputs]] == [["vision", []],
        ["audio", []], ["language", [0, 1]], ["language", [2]],
        ["generator", [3]]] and [.components[].first_rank] == [0, 1, 2, 4]' \
        both.json
    # Image 1, audio 1, language model 2 and generator 1: image and audio 3,
    # language model 2 and 1, generator 0, and the forward before each backward.
    warmup() {
        ppsched -q -s 1f1b -m 8 both.json | jq -c '[.schedule.actions[] |
            split(" ") | map(select(test("^[0-9]+[FB]"))) |
            map(test("F")) | index(false)]'
    }
    [ "$(warmup)" = '[4,4,3,2,1]' ]
    for depth in 0 1 2; do
        ppsched -q -s 1f1b -m 8 --depth $depth both.json | ppsched --check
    done
    ppsched -q -s auto --time 0.2 -m 4 both.json | ppsched --check
    # An image branch of two: it warms up with one more, audio does not.
    ppsplit -q -p 5 --encoder-mesh vision:pp=2 --encoder-mesh audio:pp=1 "$OMNI" \
        >omni.json
    join omni.json one.json >both.json
    [ "$(warmup)" = '[5,4,4,3,2,1]' ]
    # A generator behind a model whose encoders share its ranks has its mesh.
    ppsplit -q -p 2 --dp 2 "$OMNI" >omni.json
    ppsplit -q -p 1 --dp 2 "${like[@]}" gen.json >one.json
    join omni.json one.json >both.json
    jq -e '.components[-1] | .rank_offset == 2 and .first_rank == null and
        .mesh.dp == 2' both.json
    ppsched -q -s 1f1b -m 4 both.json | ppsched --check
    ppsplit -q -p 1 --dp 4 "${like[@]}" gen.json >other.json
    refuses "--combine: other.json: has not the dp 2 x tp 1 x cp 1 x ep 1 ranks \
of the language model, which its encoder shares; plan the encoder on ranks of its \
own" \
        -q --combine language=omni.json,generator=other.json
    # Then it exchanges keys as the language model does; on its own ranks not.
    ppsplit -q -p 2 --cp 2 "$OMNI" >omni.json
    ppsplit -q -p 1 --cp 2 --cp-exchange ring "${like[@]}" gen.json >other.json
    refuses "--combine: other.json: exchanges keys by 'ring', but the language \
model, which an encoder shares ranks with, by 'gather'; plan the encoder on ranks \
of its own, or both models in the same way" \
        --combine language=omni.json,generator=other.json
    ppsplit -q -p 3 --cp 2 --encoder-ranks 1 --cp-exchange ring "$OMNI" >omni.json
    join omni.json other.json | jq -e '.components[-1].mesh.cp_exchange == "ring"'
    ppsplit -q -p 3 --cp 2 --encoder-mesh vision:pp=1 --encoder-mesh \
        audio:shared "$OMNI" >omni.json
    join omni.json other.json | jq -e '.components[-1].mesh.cp_exchange == "ring"
        and .mesh.cp_exchange == null'
}

@test "other tokens and data-parallel ranks scale its costs" {
    # Its own microbatch has other sequences.
    ppsplit -q -p 2 --seq-len 256 --micro-batch-tokens 1024 gen.json >other.json
    join l.json other.json >plan2.json
    [ "$(stats plan2.json '.idle[3].busy')" = "$(stats other.json '.idle[1].busy')" ]
    [ "$(stats plan2.json '.memory[3].activations')" = \
        "$(stats other.json '.memory[1].activations')" ]
    # ratio LANGUAGE GENERATOR: prints how much longer the generator's last rank
    # works than alone.
    ratio() {
        ppsplit -q -p 2 --seq-len 512 $1 lm.json >a.json
        ppsplit -q -p 2 --seq-len 512 $2 gen.json >b.json
        join a.json b.json >c.json
        jq -n "$(stats c.json '.idle[3].busy') / $(stats b.json '.idle[1].busy')"
    }
    [ "$(ratio '--dp 4' '--dp 2')" = 2 ]
    [ "$(ratio '--dp 2' '--dp 4')" = 0.5 ]
    [ "$(ratio '--dp 2 --tp 2' '--dp 2')" = 1 ]
    [ "$(ratio '--dp 2' '--dp 2 --tp 2')" = 1 ]
    jq -e '[.components[] | [.first_rank, .mesh.dp, .mesh.tp]] ==
        [[0, 2, 1], [4, 2, 2]]' c.json
    for part in weights gradients optimizer activations workspace; do
        [ "$(stats c.json ".memory[3].$part")" = "$(stats b.json ".memory[1].$part")" ]
    done
}

@test "frozen units have no backward where nothing before them is trained" {
    ppsplit -q -p 2 --seq-len 512 --freeze 'model.embed_tokens,model.layers.*,model.norm' \
        lm.json >a.json
    join a.json g.json >c.json
    ppsched -q -s 1f1b -m 4 c.json -o s.json
    ppsched --check s.json
    jq -e '.schedule.actions | map(test("[0-9][BIW][0-9]")) ==
        [false, true, true, true]' s.json
    # The last layers, behind units that are trained, pass gradients on.
    ppsplit -q -p 2 --seq-len 512 --freeze 'model.layers.[12]' gen.json >b.json
    join l.json b.json >c.json
    [ "$(stats c.json '.idle[3].busy')" = "$(stats b.json '.idle[1].busy')" ]
    jq -ne "$(stats c.json '.idle[3].busy') < $(stats plan.json '.idle[3].busy')"
    # The first ones pass those for the language model, unlike in their plan.
    ppsplit -q -p 2 --seq-len 512 --freeze 'model.embed_tokens,model.layers.0' \
        gen.json >b.json
    refuses "--combine: b.json: 'model.embed_tokens' is frozen, and nothing \
before it is trained, but gradients for the language model pass it; freeze no \
first units" --combine language=l.json,generator=b.json
}

@test "the language model may have many components, or predict several tokens" {
    jq -n '[range(9) | "c\(.)"] as $names | {format: "pp-manifest", version: 1,
        mesh: {}, model: {source: "m", architecture: "A", dtype: "fp32",
            units: [$names[] | {fqn: ., params: 1, fwd_flops: [1, 1],
                act_bytes: [1, 1, 1], out_bytes: 1}]},
        stages: [{stage: 0, rank: 0, units: $names, component: $names}],
        components: [$names[] | {name: ., units: 1, rank_offset: 0,
            mesh: {pp: 1}}]}' >many.json
    jq 'del(.components, .stages[0].component)' many.json >one.json
    join many.json one.json | jq -e '.components | length == 10 and
        .[9].behind == "c8"'
    # The generator does not read the rows for other tokens.
    ppsplit -q -p 2 --mtp "$SRCDIR/tests/golden/deepseek-mtp/model" >mtp.json
    join mtp.json g.json >c.json
    jq -e '.model.units | map({(.fqn): .out_bytes}) | add |
        ."lm_head" == ."model.norm" and ."model.norm" * 2 == ."model.layers.2"' \
        c.json
    ppsched -q -s 1f1b -m 4 c.json | ppsched --check
}

@test "measured costs are joined" {
    ppsplit -q -p 2 --seq-len 512 --gpu h100 --dtype bf16 lm.json >a.json
    ppsplit -q -p 2 --seq-len 512 --gpu h100 --dtype bf16 gen.json >b.json
    join a.json b.json >c.json
    jq -e '.profile.units | length == 13' c.json
    # The connector takes as long for an operation as the layer behind it.
    jq '.profile.units[1] |= (.fwd = [6e-6, 0] | .input = [8e-6, 0] |
        .weight = [4e-6, 0])' b.json >measured.json
    join a.json measured.json >c.json
    jq -e '(.model.units[7].fwd_flops[0] / .model.units[8].fwd_flops[0]) as $r |
        .profile.units[7] | .fqn == "generator.model.embed_tokens" and
        ([.fwd[0] / 6e-6, .input[0] / 8e-6, .weight[0] / 4e-6] |
            all(. / $r - 1 | fabs < 1e-12)) and .fwd[1] == 0' c.json
    [ "$(stats c.json '.idle[3].busy')" = "$(stats b.json '.idle[1].busy')" ]
    refuses "--combine: g.json: is for 'fp32' on a CPU, but the language model's \
plan for bf16 on a GPU" -q --combine language=a.json,generator=g.json
    ppsplit -q -p 2 --seq-len 512 --device cuda --dtype bf16 gen.json >b.json
    refuses "--combine: b.json: one of the plans has measured costs, and the \
other one none" -q --combine language=a.json,generator=b.json
}

@test "a connector counts between tables of units, too" {
    jq -n '{format: "pp-units", version: 1, architecture: "Speech", units: [
        {fqn: "embed", kind: "embedding", params: 1000, fwd_flops: [0, 0],
            act_bytes: [0, 0, 160], out_bytes: 160,
            workspace_bytes: [320, 256, 0, 0, 0]},
        {fqn: "block.0", params: 500, fwd_flops: [1000, 4],
            act_bytes: [160, 160, 160], out_bytes: 160}]}' >units.json
    ppsplit -q -p 1 --dp 3 --seq-len 512 --units units.json >b.json
    ppsplit -q -p 1 --dp 3 --seq-len 512 lm.json >a.json
    join a.json b.json >c.json
    # 1024 x 40 and a bias. A rank has a third of both moments, in whole lines
    # of 16 elements: 14000 of 42000.
    jq -e '.model.units[7] | .params == 1000 + 1025 * 40 and
        .fwd_flops == [2 * 1024 * 40, 0] and .act_bytes == [0, 4096, 160] and
        .workspace_bytes == [320 + 4 * 984 + 4096, 256, 0, 0, 0] and
        .state_bytes == 8 * 42000 + 8 * 14000' c.json
}

@test "other plans and options are refused by name" {
    refuses "--combine: needs a plan for 'language'" --combine generator=g.json
    refuses "--combine: 'generator' is a second plan for it" \
        --combine generator=g.json,language=l.json,generator=g.json
    refuses "--combine: 'generator' is not a component and a plan, such as \
language=plan.json" --combine language=l.json,generator=g.json,generator
    run -2 --separate-stderr ppsplit --combine vision=l.json,generator=g.json
    [[ $stderr == "ppsplit: --combine: 'vision' is not"* ]]
    refuses "--edge: 'generator:language', but the edge is language:generator" \
        --combine language=l.json,generator=g.json --edge generator:language
    refuses "--combine with a generator prints a manifest and excludes --table" \
        -t --combine language=l.json,generator=g.json
    local has='plan.json: has a generator, which ppsplit does not split; give the
plan of its language model'
    refuses "${has//$'\n'/ }" -t plan.json
    refuses "${has//$'\n'/ }" --combine language=plan.json,generator=g.json
    llama 3 8192 true >tied.json
    ppsplit -q -p 2 --seq-len 512 tied.json >t.json
    refuses "--combine: t.json: has a tied head, which a generator cannot have" \
        --combine language=l.json,generator=t.json
    join t.json g.json | ppsched -q -s 1f1b -m 4 | ppsched --check
    ppsplit -q -p 2 --seq-len 512 --zero 0 gen.json >z.json
    refuses "--combine: z.json: has not the zero, resident and order of the \
language model's mesh" --combine language=l.json,generator=z.json
    llama 3 9000 >moved.json
    ppsplit -q -p 2 --seq-len 512 moved.json >m.json
    llama 3 9001 >moved.json
    refuses "--combine: m.json: 'moved.json' is another model than the one that \
was planned; plan it again" --combine language=l.json,generator=m.json
    # Only what the connector depends on is compared here.
    ppsplit -q -p 2 --mtp "$SRCDIR/tests/golden/deepseek-mtp/model" >m.json
    refuses "--combine: m.json: has multi-token prediction, which a generator \
cannot have" --combine language=l.json,generator=m.json
    ppsplit -q -p 2 --moe-layer-freq 2 "$SRCDIR/tests/golden/mixtral/model" >m.json
    join l.json m.json >plan3.json
    ppsplit -q -p 2 --encoder-ranks 1 "$OMNI" >o.json
    refuses "--combine: o.json: has '3' components, but a generator is one \
model" --combine language=l.json,generator=o.json
}
