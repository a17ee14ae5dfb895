#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pppack_files - pairs, rollouts, arrays, packed directories, parts and other
# formats; and a full disk.

bats_require_minimum_version 1.5.0
load pack_helpers

# int32 FILE prints its numbers.
int32() {
    od -An -v -t d4 -w4 "$1" | tr -d ' ' | paste -sd ' '
}

# float32 FILE prints its numbers.
float32() {
    od -An -v -t f4 -w4 "$1" | tr -d ' ' | paste -sd ' '
}

# npy DESCR SHAPE BYTES NUMBER... writes a .npy file.
npy() {
    local header="{'descr': '$1', 'fortran_order': False, 'shape': $2, }"
    printf '\x93NUMPY\x01\x00'
    little 2 ${#header}
    printf %s "$header"
    shift 2
    little "$@"
}

@test "padding that an attention mask marks is not packed" {
    cat >plain.jsonl <<'END'
{"prompt":[1,2],"chosen":[3,4],"rejected":[5]}
{"chosen":{"input_ids":[6,7],"labels":[-100,7]},"rejected":[8]}
END
    cat >masked.jsonl <<'END'
{"prompt":[0,1,2],"prompt_attention_mask":[0,1,1],"chosen":[3,4,0],"chosen_attention_mask":[1,1,0],"rejected":[5,0],"rejected_attention_mask":[1,0]}
{"chosen":{"input_ids":[6,7,0],"attention_mask":[1,1,0],"labels":[-100,7,-100]},"rejected":{"input_ids":[0,8],"attention_mask":[0,1]}}
END
    pppack -l 8 -o plain plain.jsonl
    pppack -l 8 -o masked masked.jsonl
    diff -r plain masked
    echo '{"response":[3,4],"advantages":[1,2]}' >plain.jsonl
    echo '{"response":[0,3,4,0],"attention_mask":[0,1,1,0],"advantages":[9,1,2,9]}' \
        >masked.jsonl
    pppack -l 8 -o plain plain.jsonl
    pppack -l 8 -o masked masked.jsonl
    diff -r plain masked
    echo '{"input_ids":[3,4],"advantages":[1,2]}' >plain.jsonl
    echo '{"input_ids":[0,3,4],"advantages":[9,1,2],"attention_mask":[0,1,1]}' \
        >masked.jsonl
    pppack -l 8 -o plain plain.jsonl
    pppack -l 8 -o masked masked.jsonl
    diff -r plain masked
    echo '{"chosen":[1],"rejected":[2],"attention_mask":[1]}' >bad.jsonl
    refused "bad.jsonl: line 1: 'attention_mask' must be of one sequence: give \
one to each side or response" -l 8 -o no bad.jsonl
}

@test "pairs stay in one bin, and are dropped as a whole" {
    cat >in.jsonl <<'END'
{"prompt":[1],"chosen":[2,3],"rejected":[4],"margin":0.5}
{"chosen":[5,6,7,8,9],"rejected":[1,2,3,4],"margin":1}
{"chosen":[7],"rejected":[8,9],"margin":2}
END
    run --separate-stderr pppack -l 8 --oversize drop --stats -o out in.jsonl
    [ "$status" -eq 0 ]
    # Nothing predicts the token of [7].
    [ "$stderr" = "pppack: 1 of 3 pairs was too long and dropped, with 9 tokens;\
 the first is document 1
pppack: 1 of 2 pairs has a side without a scored token, the first is document 2;\
 dpo learns from at most one side of it" ]
    [ "$(jq -c '[.inputs, .sequences, .tokens, .scored, .bins, .dropped,
        .input_tokens, .dropped_tokens]' <<<"$output")" = \
        '[3,4,8,4,1,1,17,9]' ]
    [ "$(int32 out/input_ids)" = '1 2 3 1 4 7 8 9' ]
    [ "$(int32 out/labels)" = '-100 2 3 -100 4 7 8 9' ]
    [ "$(float32 out/margins)" = '0.5 2' ]
    pppack --check out
    refused "pair 1 has '9' tokens, more than the 8 of a bin; see --oversize" \
        -l 8 -o no in.jsonl
    refused "pair 1 has '9' tokens, more than a bin, and pairs cannot be \
split; try --oversize truncate" -l 8 --oversize split -o no in.jsonl
}

@test "a pair that is too long loses the ends of its answers" {
    cat >in.jsonl <<'END'
{"prompt":[1,2],"chosen":[3,4,5,6,7,8],"rejected":[9],"margin":0.5}
{"prompt":[1,2],"chosen":[3,4,5,6,7,8],"rejected":[9,10,11,12,13],"margin":1}
{"prompt":[1,2,3,4],"chosen":[5,6],"rejected":[7],"margin":2}
{"prompt":[1],"chosen":[5,6],"rejected":[7,8],"margin":3}
{"chosen":[[1,2],[3],[4,5],[6,7]],"rejected":{"input_ids":[1,2,3,8],"loss_mask":[0,0,1,1]},"margin":4}
END
    jq -c 'if .prompt then .chosen |= {input_ids: ., ref_logprobs: map(-.)} |
        .rejected |= {input_ids: ., ref_logprobs: map(-.)} else . end |
        if .prompt then . else .chosen = {input_ids: [1,2,3,4,5,6,7],
            loss_mask: [0,0,1,0,0,1,1], ref_logprobs: [0,0,-3,0,0,-6,-7]} |
        .rejected.ref_logprobs = [0,0,-3,-8] end' in.jsonl >full.jsonl
    run -0 --separate-stderr pppack -l 8 -a next-fit --no-shuffle \
        --oversize truncate --stats -o out full.jsonl
    pppack --check out
    [ "$stderr" = "pppack: 3 of 5 pairs were too long and cut by 13 tokens
pppack: 1 of 5 pairs was too long and dropped, with 11 tokens; the first is document\
 2" ]
    jq -e '[.inputs, .sequences, .tokens, .truncated, .truncated_tokens, .dropped,
        .dropped_tokens, .input_tokens] == [5, 8, 30, 3, 13, 1, 11, 54]' \
        <<<"$output"
    [ "$(int32 out/input_ids)" = "1 2 3 4 5 1 2 9 1 2 3 4 1 2 9 10 1 5 6 1 7 8 1 2 3\
 4 1 2 3 8" ]
    [ "$(int32 out/labels)" = "-100 -100 3 4 5 -100 -100 9 -100 -100 3 4 -100 -100\
 9 10 -100 5 6 -100 7 8 -100 -100 3 -100 -100 -100 3 8" ]
    [ "$(float32 out/ref_logprobs)" = "0 0 -3 -4 -5 0 0 -9 0 0 -3 -4 0 0 -9 -10 0\
 -5 -6 0 -7 -8 0 0 -3 0 0 0 -3 -8" ]
    [ "$(float32 out/margins)" = '0.5 1 3 4' ]
    # Padding counts: each side of a pair has at most 3 tokens.
    pppack -q -l 8 --pad-to 4 -o aligned full.jsonl --oversize truncate
    pppack --stats aligned | jq -e '[.longest, .sequences] == [4, 8]'
    # Parts have counts of their own.
    pppack -q -l 8 --split 1,1 --oversize truncate -o parts full.jsonl
    pppack --check parts/train
    pppack --check parts/valid
    # A packed directory has no more to cut.
    pppack -q -l 8 -a next-fit --no-shuffle --oversize truncate -o again out
    for file in input_ids labels ref_logprobs margins; do
        cmp out/$file again/$file
    done
    jq -c '.ref_chosen_logps = -1 | .ref_rejected_logps = -2' full.jsonl >sums.jsonl
    refused "document 0 is longer than the '8' tokens of a bin and cannot be cut: \
its ref_logps are sums over all of it; try --oversize drop" \
        -l 8 --oversize truncate -o no sums.jsonl
    pppack -q -l 8 --oversize drop -o dropped sums.jsonl
    [ "$(pppack --stats dropped | jq .sequences)" = 2 ]
}

@test "a response that is too long is cut, or dropped without its group" {
    cat >in.jsonl <<'END'
{"prompt":[1,2],"responses":[[3,4,5,6,7,8],[9]],"rewards":[1,2],"logprobs":[[-1,-2,-3,-4,-5,-6],[-7]]}
{"prompt":[1,2,3,4,5,6,7,8],"response":[3],"rewards":3,"logprobs":-1,"group":4}
{"prompt":[1,2],"response":[3],"rewards":4,"logprobs":-2,"group":4}
{"prompt":[1,2,3,4,5,6,7,8,9],"response":[3],"rewards":3,"logprobs":-1}
END
    pack() {
        run -0 --separate-stderr pppack -l 5 -a next-fit --no-shuffle \
            --advantages group --oversize "$1" --stats -o "$1" in.jsonl
        pppack --check "$1"
    }
    pack truncate
    [ "$stderr" = "pppack: 2 of 3 groups were too long and cut by 12 tokens, with\
 1 whole response
pppack: 1 of 3 groups was too long and dropped, with 10 tokens; the first is document\
 2" ]
    jq -e '[.sequences, .tokens, .truncated_tokens, .dropped_tokens, .input_tokens]
        == [3, 11, 12, 10, 33]' <<<"$output"
    [ "$(int32 truncate/input_ids)" = '1 2 3 4 5 1 2 9 1 2 3' ]
    [ "$(float32 truncate/logprobs)" = '0 0 -1 -2 -3 0 0 -7 0 0 -2' ]
    [ "$(float32 truncate/rewards)" = '1 2 4' ]
    # The advantages are those of the whole groups.
    [ "$(float32 truncate/advantages | jq -cR 'split(" ") | map(tonumber |
        if . < 0 then -1 else ceil end)')" = '[0,0,-1,-1,-1,0,0,1,0,0,1]' ]
    pack drop
    [[ $stderr == *"cut by 17 tokens, with 2 whole responses"* ]]
    [ "$(int32 drop/input_ids)" = '1 2 9 1 2 3' ]
    [ "$(float32 drop/rewards)" = '2 4' ]
    [ "$(float32 drop/advantages)" = "$(float32 truncate/advantages |
        cut -d ' ' -f 6-11)" ]
    # A response without a scored token trains nothing.
    echo '{"prompt":[1],"responses":[{"input_ids":[2,3,4,5,6],"loss_mask":[0,0,0,0,0]},[7]]}' >in.jsonl
    run -0 --separate-stderr pppack -l 5 --oversize truncate -o out in.jsonl
    [[ $stderr == *'cut by 6 tokens, with 1 whole response'* ]]
}

@test "rollouts keep their groups and columns, also when packed again" {
    cat >in.jsonl <<'END'
{"prompt":[1],"response":[2,3],"advantages":1,"logprobs":[-1,-2],"group":1}
{"prompt":[1],"response":[4],"advantages":-1,"logprobs":[-3],"group":1}
{"prompt":[5],"response":[6],"advantages":0,"logprobs":[-4],"group":2}
END
    pppack -l 16 --pad-to 2 -a next-fit -o out in.jsonl
    pppack --check out
    [ "$(int32 out/input_ids)" = '1 2 3 0 1 4 5 6' ]
    [ "$(float32 out/advantages)" = '0 1 1 0 0 -1 0 0' ]
    [ "$(float32 out/logprobs)" = '0 -1 -2 0 0 -3 0 -4' ]
    pppack -l 16 --pad-to 2 -a next-fit -o again out
    diff -r out again
    pppack --export safetensors -o out.safetensors out
    pppack -l 16 --pad-to 2 -a next-fit -o again out.safetensors
    diff -r out again
    refused "an indexed dataset cannot hold 'logprobs'" \
        --export megatron -o indexed out
    [ ! -e indexed.bin ]
}

@test "the responses of a group may lie in several bins" {
    cat >in.jsonl <<'END'
{"prompt":[1],"responses":[[2,3,4],[5],[6,7]],"rewards":[1,0,2]}
{"prompt":[1,2],"response":[8],"rewards":3,"group":"a"}
{"prompt":[1,2],"response":[9,10],"rewards":5,"group":"a"}
END
    pppack -q -l 4 --no-shuffle --advantages group -o small in.jsonl
    pppack --check small
    pppack --stats small | jq -e '[.inputs, .sequences, .bins, .tokens] ==
        [2, 5, 5, 16]'
    [ "$(int32 small/input_ids)" = '1 2 3 4 1 2 9 10 1 6 7 1 2 8 1 5' ]
    # Each directory has the whole groups: packed anew, advantages are the same.
    pppack -q -l 16 --no-shuffle --advantages group -o large in.jsonl
    [ "$(pppack --stats large | jq .bins)" = 1 ]
    pppack -q -l 16 --no-shuffle --advantages group -o again small
    diff -r large again
    pppack --export safetensors -o small.safetensors small
    pppack -q -l 16 --no-shuffle --advantages group -o again small.safetensors
    diff -r large again
    pppack -q --realign small --pad-to 3 -o there
    pppack -q -l 16 --no-shuffle --advantages group -o again there
    diff -r large again
    # A part has whole groups.
    pppack -q -l 8 --split 1,1 -o parts in.jsonl
    [ "$(pppack --stats parts/train | jq .sequences)" = 3 ]
    refused "in.jsonl: line 1: '4' tokens are more than the 3 of a bin; see \
--oversize" -l 3 -o no in.jsonl
    refused "a response of group 0 has '4' tokens, more than a bin, and responses \
cannot be split; try --oversize truncate" -l 3 --oversize split -o no in.jsonl
}

@test "pieces of a document are joined when packed again" {
    documents 5 13 4 2 >in.jsonl
    pppack -l 8 -o want --oversize split in.jsonl
    pppack -l 3 -o small --oversize split in.jsonl
    pppack --check small
    pppack -l 8 -o got --oversize split small
    diff -r want got
}

@test "an exported dataset has the same sequences" {
    documents 5 3 4 2 >in.jsonl
    pppack -l 8 --no-shuffle -o out in.jsonl
    run --separate-stderr pppack --export megatron -o m out
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    [ -z "$stderr" ]
    pppack -l 8 -a next-fit --no-shuffle -o got m
    cmp out/input_ids got/input_ids
    # The header has magic, version 1, 16 bits, 4 sequences and 5 entries.
    [ "$(od -An -v -t x1 -N34 m.idx | tr -d ' \n')" = \
        4d4d4944494458000001000000000000000804000000000000000500000000000000 ]
    [ "$(od -An -v -t u2 -N10 m.bin | tr -s ' ')" = ' 1 2 3 4 5' ]
    echo '{"input_ids":[70000]}' | pppack -l 1 -o wide
    pppack --export megatron -o w wide
    [ "$(od -An -v -t d4 w.bin | tr -d ' ')" = 70000 ]
    echo '{"input_ids":[1,2],"loss_mask":[0,1]}' | pppack -l 2 -o masked
    refused "bin 0: an indexed dataset cannot hold 'labels' that differ from \
the ids" --export megatron -o n masked
    [ ! -e n.bin ]
    refused "--export: 'csv' is not one of: megatron, safetensors" \
        --export csv -o n out
}

# tensor NAME FILE prints the numbers of a tensor of type I64.
tensor() {
    local bytes header from to
    bytes=$(od -An -t u8 -N8 "$2")
    header=$(tail -c +9 "$2" | head -c "$bytes")
    read -r from to < <(jq -r ".$1.data_offsets | @tsv" <<<"$header")
    tail -c +$((9 + bytes + from)) "$2" | head -c $((to - from)) |
        od -An -v -t d8 -w8 | tr -d ' ' | paste -sd ' '
}

@test "cp_index has the positions of each context-parallel rank" {
    documents 5 3 4 2 >in.jsonl
    pppack -l 12 --cp 2 -a next-fit --no-shuffle -o out in.jsonl
    pppack --export safetensors --cp 2 -o two.safetensors out
    # Sequences begin at 0, 8, 12 and 16; rank 0 has their first and last
    # quarters.
    [ "$(tensor cp_index two.safetensors)" = "0 1 6 7 8 11 12 15 16 19 \
2 3 4 5 9 10 13 14 17 18" ]
    # One rank has all positions, also of an odd number.
    pppack -l 12 -a next-fit --no-shuffle -o odd in.jsonl
    pppack --export safetensors --cp 1 -o one.safetensors odd
    [ "$(tensor cp_index one.safetensors)" = "$(echo {0..13})" ]
    # Another cp, by the formula of TransformerEngine.
    pppack -l 72 --cp 3 -a next-fit --no-shuffle -o three in.jsonl
    pppack --export safetensors --cp 3 -o three.safetensors three
    [ "$(tensor cp_index three.safetensors)" = "$(jq -nr \
        --arg cu "$(tensor cu_seqlens_padded three.safetensors)" '
        3 as $c | [$cu | split(" ")[] | tonumber / $c] as $s |
        [range($c) as $r | range($s[-1]) as $t |
        ([$s[] | select(. <= $t)] | length - 1) as $q |
        ($s[$q + 1] - $s[$q]) as $n | ($t - $s[$q]) as $i |
        (if $i < $n / 2 then $r else 2 * ($c - 1) - $r end) as $off |
        $i + $s[$q] * $c + $n / 2 * $off | tostring] | join(" ")')" ]
    pppack -l 72 --cp 3 -a next-fit --no-shuffle -o again three.safetensors
    diff -r three again
    refused "bin 0: the '8' positions of a sequence are not a multiple of 2 x \
3 context-parallel ranks" --export safetensors --cp 3 -o none out
    refused '--cp has no effect with --export megatron' \
        --export megatron --cp 2 -o none out
}

@test "dp_balanced has the bin of each microbatch and rank" {
    documents 5 4 3 2 1 >in.jsonl
    pppack -l 8 --compat megatron-dp-balanced --bins-multiple 2 -o out in.jsonl
    pppack --export safetensors --dp 2 -o two.safetensors out
    [ "$(tensor dp_balanced two.safetensors)" = '0 1 2 3' ]
    [ "$(tensor cu_bins two.safetensors)" = '0 1 3 4 5' ]
    pppack -l 16 --cp 2 -a next-fit --no-shuffle --bins-multiple 2 -o cp \
        in.jsonl
    pppack --export safetensors --dp 2 --cp 2 -o four.safetensors cp
    # By the formula of Megatron: slot j of microbatch i has bin i dp + j / cp.
    [ "$(tensor dp_balanced four.safetensors)" = "$(jq -nr --argjson bins \
        "$(pppack --stats cp | jq .bins)" '2 as $dp | 2 as $cp |
        [range($bins / $dp) as $i | range($dp * $cp) as $j |
        $i * $dp + ($j / $cp | floor) | tostring] | join(" ")')" ]
    pppack -l 16 --cp 2 -a next-fit --no-shuffle -o again four.safetensors
    refused "the '4' bins are not a multiple of 3 data-parallel ranks; pack \
them into such a multiple" --export safetensors --dp 3 -o none out
    refused '--dp has no effect with --export megatron' \
        --export megatron --dp 2 -o none out
}

@test "arrays of NumPy are read" {
    npy '<u2' '(6,)' 2 1 2 3 1 2 1 >a.npy
    pppack -l 6 -o out a.npy
    [ "$(int32 out/input_ids)" = '1 2 3 1 2 1' ]
    npy '<i8' '(4,)' 8 0 3 5 6 >a.cu_seqlens.npy
    npy '|b1' '(6,)' 1 0 1 1 1 1 1 >a.loss_mask.npy
    printf '%s\n' '{"input_ids":[1,2,3],"loss_mask":[0,1,1]}' \
        '{"input_ids":[1,2]}' '{"input_ids":[1]}' | pppack -l 4 -o want
    pppack -l 4 -o out a.npy
    diff -r want out
    pppack -l 4 -o out '*.npy'
    diff -r want out
    npy '<i4' '(2, 2)' 4 1 2 3 4 >b.npy
    run --separate-stderr pppack -l 2 --stats b.npy
    [ "$(jq -c '[.inputs, .tokens]' <<<"$output")" = '[2,4]' ]
    truncate -s -1 b.npy
    refused "b.npy: has '15' bytes of elements, but its shape needs 16" \
        -l 4 -o no b.npy
    : >c.npy
    refused 'c.npy: not a .npy file, or cut short' -l 4 -o no c.npy
}

@test "patterns are expanded, and names of existing files are not" {
    documents 5 >a1.jsonl
    documents 3 >'a[1].jsonl'
    documents 2 >b.jsonl
    documents 5 3 2 | pppack -l 8 -o want
    pppack -l 8 -o got '*.jsonl'
    diff -r want got
    pppack -l 8 -o got 'a[1].jsonl'
    [ "$(int32 got/input_ids)" = '1 2 3' ]
    refused 'c*.jsonl: no file matches' -l 8 -o no 'c*.jsonl'
}

@test "--split divides the documents in order" {
    # shellcheck disable=SC2046
    documents $(seq 1 25) >in.jsonl
    run --separate-stderr pppack -l 25 --split 8,1,1 --stats -o out in.jsonl
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    # 0.8 x 25 is 20; 0.9 x 25 is 22.5, which is rounded to the even 22.
    [ "$(jq -c '[.part, .inputs, .tokens]' <<<"$output" | paste -sd ' ')" = \
        '["train",20,210] ["valid",2,43] ["test",3,72]' ]
    for part in train valid test; do
        pppack --check "out/$part"
    done
    head -n 20 in.jsonl | pppack -l 25 -o want
    diff -r want out/train
    run --separate-stderr pppack -l 25 --split 1,0 -o two in.jsonl
    [ "$(ls two)" = train ]
    sed -n 2p in.jsonl >one.jsonl
    run --separate-stderr pppack -l 25 --split 98,1,1 -o three one.jsonl
    [ "$stderr" = 'pppack: three/train: 1 sequences of 2 tokens in 1 bins of 25, 8.0 % full
pppack: three/valid: not written, since it has no documents
pppack: three/test: not written, since it has no documents' ]
    refused "--split: '0,0' must be one to three positive numbers, such as \
98,1,1" \
        -l 25 --split 0,0 -o no in.jsonl
    refused "--split: '1,1,1,1' must be one to three positive numbers, such as \
98,1,1" \
        -l 25 --split 1,1,1,1 -o no in.jsonl
    refused '--split needs -o' -l 25 --split 1,1 \
        --stats in.jsonl
}

@test "--advantages compares the rewards of a group" {
    cat >in.jsonl <<'END'
{"prompt":[1,1],"responses":[[2,3],[4],[5,6,7]],"rewards":[1,0.5,-2]}
{"prompt":[1],"responses":[[2],[3]],"rewards":[3,5]}
{"prompt":[1],"responses":[[2],[3],[4],[5]],"rewards":[1,1,1,0]}
{"prompt":[1],"responses":[[2]],"rewards":[7]}
{"prompt":[1],"responses":[[2],[3]],"rewards":[4,4]}
{"prompt":[1],"responses":[[2],[3],[4],[5],[6],[7],[8],[9]],"rewards":[1,0.3,0.3,0.3,0.3,0.3,0.3,0.3]}
END
    local how
    for how in group leave-one-out; do
        pppack -q -a next-fit --no-shuffle -l 64 --advantages $how -o $how in.jsonl
        # NeMo-RL's formula: the deviation is from the mean of squares.
        jq -s --arg how $how '[.[] | .rewards as $r | (.prompt | length) as $p |
            .responses | to_entries[] | .key as $i | .value as $tokens |
            [$r | to_entries[] | select($how == "group" or .key != $i).value] |
            length as $n | (if $n == 0 then $r[$i] else add / $n end) as $mean |
            (if $n < 2 then 0 else
                ((map(. * .) | add / $n) - $mean * $mean) * $n / ($n - 1) |
                if . > 1e-12 then sqrt else 0 end end) as $std |
            (($r[$i] - $mean) / (if $std > 0 then $std + 1e-6 else 1 end)) as $a |
            ([range($p) | 0] + [$tokens[] | $a])[]]' in.jsonl >want
        float32 $how/advantages | jq -R 'split(" ") | map(tonumber)' >got
        jq -es '.[0] as $got | .[1] | [., $got] | (map(length) | .[0] == .[1]) and
            all(transpose[]; .[0] - .[1] | fabs < 1e-5)' got want
    done
    run ! cmp group/advantages leave-one-out/advantages
    jq -c 'del(.rewards)' in.jsonl >bare.jsonl
    refused 'advantages need rollouts with rewards, and the input has no rewards' \
        -l 64 --advantages group -o no bare.jsonl
    documents 3 >plain.jsonl
    refused 'advantages need rollouts with rewards, and the input has documents' \
        -l 64 --advantages group -o no plain.jsonl
}

@test "--skip-bad skips malformed lines and counts them" {
    { documents 5; echo '{"input_ids":[1,'; documents 3; echo nonsense; } >in
    run --separate-stderr pppack -l 8 --skip-bad 2 --stats -o out in
    [ "$status" -eq 0 ]
    [ "$(jq -c '[.inputs, .skipped, .tokens]' <<<"$output")" = '[2,2,8]' ]
    [ "$stderr" = "pppack: skipped: in: line 2, column 17: expected a token \
id, got the end
pppack: skipped: in: line 4, column 1: expected '{', got 'nonsense'" ]
    pppack --check out
    run --separate-stderr pppack -q -l 8 --skip-bad 2 -o out in
    [ -z "$stderr" ]
    refused "in: line 4, column 1: expected '{', got 'nonsense'" \
        -q -l 8 --skip-bad 1 -o no in
}

@test "a file that grows too large leaves nothing behind" {
    # shellcheck disable=SC2046
    documents $(seq 200 300) >in.jsonl
    run --separate-stderr bash -c 'ulimit -f 20; pppack -l 512 -o out in.jsonl'
    [ "$status" -eq 3 ]
    [ "$stderr" = 'pppack: out/input_ids: cannot write: File too large' ]
    [ -z "$(find . -name "out*")" ]
}
