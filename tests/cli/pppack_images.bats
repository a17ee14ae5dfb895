#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# pppack_images - documents with images: packed, packed anew and refused.

bats_require_minimum_version 1.5.0
load pack_helpers

# lines N... prints a document for each number: N images of one channel and 2 x
# 4 pixels, which are two patches, among N + 2 other tokens. The pixels of image
# k of document d are 100 d + 10 k + 0..7.
lines() {
    jq -nc '$ARGS.positional | to_entries[] | .key as $d | (.value | tonumber)
        as $n | {input_ids: ([range($n) | 9, 9] + [range($n + 2) | 20 + $d]),
        images: [range($n) | [[range(8)]] | .[0] as $r | . as $k |
            [[$r[0:4], $r[4:8]]]]} |
        .images = [.images | to_entries[] | .key as $k | .value |
            map(map(map(. + 100 * $d + 10 * $k)))]' --args "$@"
}

# pixels DIR prints the pixels, a line per patch, in ascending order.
pixels() {
    od -An -v -t f4 -w16 "$1/pixels" | tr -s ' ' | sed 's/^ //' | sort -n
}

@test "images are packed beside the tokens" {
    lines 1 0 2 1 >in.jsonl
    pppack -q -l 12 --image-token 9 --patch 2 -o packed in.jsonl
    pppack --check packed
    [ "$(pppack --stats packed | jq -c '[.images, .patches, .sequences]')" = \
        '[4,8,4]' ]
    # Patch by patch: two columns of both rows.
    [ "$(pixels packed | head -n 2)" = $'0 1 4 5\n2 3 6 7' ]
    [ "$(pixels packed | tail -n 1)" = '302 303 306 307' ]
}

@test "a processor makes patches as transformers does, to the last bit" {
    local golden=$SRCDIR/tests/golden/pixels case
    args=(-q -l 64 -a next-fit --no-shuffle --image-token 7)
    for case in usual single frames rescaled; do
        pppack "${args[@]}" --processor "$golden/$case" -o $case \
            "$golden/$case/lines.jsonl"
        cmp $case/pixels "$golden/$case/rows"
    done
    # The file alone, and sizes that the options give.
    jq 'del(.patch_size, .merge_size)' \
        "$golden/usual/preprocessor_config.json" >sizes.json
    pppack "${args[@]}" --processor sizes.json --patch 2 --merge 2 -o given \
        "$golden/usual/lines.jsonl"
    cmp given/pixels usual/pixels
    refused "--merge: '3' is not the merge_size of $golden/usual, 2" \
        "${args[@]}" --processor "$golden/usual" --merge 3 -o other \
        "$golden/usual/lines.jsonl"
    jq 'del(.image_std)' sizes.json >no.json
    refused "no.json: 'image_std' is missing, which do_normalize needs" \
        "${args[@]}" --processor no.json -o other lines.jsonl
    jq '.image_mean = [1, 2]' sizes.json >no.json
    refused "no.json: image_mean has '2' channels and image_std 3" \
        "${args[@]}" --processor no.json -o other lines.jsonl
    echo '{"input_ids":[7],"images":[[[[1]]]]}' >one.jsonl
    refused "one.jsonl: line 1: an image of '1' channels, but the processor \
normalises 3" "${args[@]}" --processor sizes.json --patch 1 -o other one.jsonl
    refused "none/preprocessor_config.json: No such file or directory" \
        "${args[@]}" --processor none/preprocessor_config.json -o other \
        lines.jsonl
    # Without a processor pixels stay as they are, in squares.
    echo '{"input_ids":[7],"images":[[[[1,2],[3,4]]]]}
{"input_ids":[7,7],"images":[[[[1,2,3,4],[5,6,7,8]]]]}' >plain.jsonl
    pppack "${args[@]}" --patch 1 --merge 2 -o plain plain.jsonl
    [ "$(od -An -v -t f4 -w48 plain/pixels | tr -s ' ')" = \
        ' 1 2 3 4 1 2 5 6 3 4 7 8' ]
}

@test "an image can have a feature of a class token" {
    lines 1 0 2 1 | jq -c '.images as $i | .input_ids |=
        if ($i | length) > 0 then [range($i | length) | 9] + . else .
        end' >in.jsonl
    args=(-l 16 --image-token 9 --patch 2)
    pppack -q "${args[@]}" --class-feature -o packed in.jsonl
    pppack --check packed
    [ "$(pppack --stats packed | jq -c '[.images, .patches, .sequences]')" = \
        '[4,8,4]' ]
    # Packed anew they keep it.
    pppack -q -l 16 -o again packed
    cmp packed/index again/index
    refused "in.jsonl: line 1: '3' placeholders (id 9) for 2 features of images" \
        "${args[@]}" -o other in.jsonl
    lines 1 >out.jsonl
    refused "out.jsonl: line 1: '2' placeholders (id 9) for 3 features of \
images" "${args[@]}" --class-feature -o other out.jsonl
    pppack -q "${args[@]}" -o without out.jsonl
    refused "without: images with and without a feature of a class token cannot \
be mixed" -l 16 -o other packed without
    refused "--class-feature needs --image-token" -l 16 --class-feature -o other \
        in.jsonl
    # Audio beside such images has no such feature.
    echo '{"input_ids":[8,20],"audio":[[[0,1,2],[3,4,5]]]}' >audio.jsonl
    pppack -q "${args[@]}" --class-feature --audio-token 8 --no-shuffle -o both \
        in.jsonl audio.jsonl
    pppack --check both
    pppack --stats both | jq -e '[.images, .audio] == [4, 1]'
    pppack -q -l 16 --audio-token 8 -o audio audio.jsonl
    pppack -q -l 16 --no-shuffle -o again packed audio
    cmp both/index again/index
    cmp both/audio audio/audio
}

@test "audio is packed in place of images" {
    echo '{"input_ids":[5,9,6],"audio":[[[0,1,2],[3,4,5]]]}' >in.jsonl
    pppack -q -l 8 --audio-token 9 -o packed in.jsonl
    pppack --check packed
    [ "$(pppack --stats packed | jq -c '[.audio, .patches, .images]')" = \
        '[1,2,null]' ]
    [ "$(od -An -v -t f4 -w24 packed/audio | tr -s ' ')" = \
        $' 0 1 2 3 4 5\n 2 0 0 5 0 0' ]
    pppack -q -l 30 -o again packed
    cmp packed/audio again/audio
    refused "--audio-token: '9' is also that of images; each needs its \
own id" -l 8 --audio-token 9 --image-token 9 -o other in.jsonl
    refused "in.jsonl: line 1: the line has clips of audio, but the id of their \
placeholders is not known; see --audio-token" -l 8 --image-token 9 -o other \
        in.jsonl
    refused "other: '1' clips of audio cannot be written as safetensors" \
        --export safetensors -o other packed
}

@test "images and audio are packed together" {
    clip='[[0,1,2],[3,4,5]]'
    echo '{"input_ids":[9,9,8,5],"audio":['$clip'],
        "images":[[[[0,1,2,3],[4,5,6,7]]]]}' | jq -c . >in.jsonl
    echo '{"input_ids":[8,20],"audio":['$clip']}' >audio.jsonl
    args=(-q -l 10 --image-token 9 --audio-token 8 --patch 2)
    pppack "${args[@]}" -o packed in.jsonl audio.jsonl
    pppack --check packed
    [ "$(pppack --stats packed | jq -c '[.images, .patches, .max_patches,
        .audio, .audio_rows, .max_audio_rows]')" = '[1,2,2,2,4,4]' ]
    [ "$(pixels packed)" = $'0 1 4 5\n2 3 6 7' ]
    [ "$(od -An -v -t f4 -w24 packed/audio | tr -s ' ' | sort -u)" = \
        $' 0 1 2 3 4 5\n 2 0 0 5 0 0' ]
    # Packed anew with a limit of two rows in a bin, and back.
    [ "$(pppack "${args[@]}" --audio-rows 2 --stats -o once packed |
        jq -c '[.bins, .lower_bound, .audio, .max_audio_rows]')" = '[2,2,2,2]' ]
    pppack -q -l 10 -o back once
    cmp packed/index back/index
    cmp packed/audio back/audio
    # Messages name what the document has, not what others have.
    jq -c '.input_ids = [8, (range(10) + 20)]' audio.jsonl >long.jsonl
    refused "sequence 1 has '11' tokens, more than a bin, and clips of audio \
cannot be cut; try --oversize drop" "${args[@]}" --oversize split -o other \
        in.jsonl long.jsonl
    # More bins keep to the limit, even if tokens want both clips in one.
    jq -nc 'range(2) | {input_ids: [range(5) + 20]}' >text.jsonl
    pppack -l 10 --audio-token 8 --audio-rows 2 --bins-multiple 3 --stats \
        audio.jsonl audio.jsonl text.jsonl |
        jq -e '.bins == 3 and .max_patches == 2' >/dev/null
    # One of both is packed as if the other were not taken.
    pppack "${args[@]}" -o with audio.jsonl
    pppack -q -l 10 --audio-token 8 -o without audio.jsonl
    cmp with/index without/index
    sed -i 's/9,9,8/9,9,9/' in.jsonl
    refused "in.jsonl: line 1: '3' placeholders (id 9) for 2 features of images" \
        "${args[@]}" -o other in.jsonl
    sed -i 's/9,9,9/9,9,5/' in.jsonl
    refused "in.jsonl: line 1: '0' placeholders (id 8) for 1 features of clips \
of audio" "${args[@]}" -o other in.jsonl
}

@test "--audio-cost is apart from --patch-cost" {
    jq -nc '{input_ids: [9, 9, range(8)], images: [[[[0,1,2,3],[4,5,6,7]]]]},
        {input_ids: [8, (range(9) + 20)], audio: [[[0,1,2],[3,4,5]]]}' >in.jsonl
    args=(-l 10 --image-token 9 --audio-token 8 --patch 2 --balance tokens
        --stats --patch-cost 5 in.jsonl)
    # Two rows each: 10 + 2 x 5 twice, or 20 and 10 + 2 x 15.
    pppack "${args[@]}" | jq -e '.imbalance == 1' >/dev/null
    pppack "${args[@]}" --audio-cost 15 |
        jq -e '(.imbalance - 40 / 30 | fabs) < 1e-9' >/dev/null
    # Parts of a token count: 6.2 and 6 go together, twice, not 6.2 and 6.2.
    clip='[[0,1,2],[3,4,5]]'
    jq -nc --argjson clip "$clip" 'range(4) | if . % 2 == 0
        then {input_ids: [8, (range(5) + 20)], audio: [$clip]}
        else {input_ids: [range(6) + 20]} end' >in.jsonl
    pppack -l 30 --audio-token 8 --balance tokens --bins-min 2 --stats \
        --audio-cost 0.1 in.jsonl | jq -e '.imbalance == 1' >/dev/null
}

@test "text alone is packed as before" {
    lines 0 0 | jq -c 'del(.images)' >in.jsonl
    pppack -q -l 12 -o without in.jsonl
    pppack -q -l 12 --image-token 9 -o with in.jsonl
    cmp with/index without/index
    [ ! -e with/pixels ]
}

@test "a directory that is packed anew keeps its images" {
    lines 1 0 2 1 3 0 >in.jsonl
    pppack -q -l 12 --image-token 9 --patch 2 -o once in.jsonl
    pppack -q -l 30 -o twice once
    pppack -q -l 12 -o back twice
    pppack --check twice
    cmp once/index back/index
    cmp once/pixels back/pixels
    diff <(pixels once) <(pixels twice)
    # It needs no option for them, so the documents say that ranks cannot differ.
    refused "documents with images or audio cannot have ranks of their own \
(--cp-sizes per-sequence)" -l 32 --cp 2 --cp-sizes per-sequence \
        --balance tokens -o back once
    cmp once/index back/index
    # Together with other lines, and in parts.
    pppack -q -l 30 --image-token 9 --patch 2 --split 1,1 -o parts once in.jsonl
    pppack --check parts/train
    pppack --check parts/valid
    cmp parts/train/index parts/valid/index
    diff <(pixels once) <(pixels parts/valid)
}

@test "a part without images has no file of pixels" {
    lines 2 0 0 0 >in.jsonl
    pppack -q -l 12 --image-token 9 --patch 2 --split 1,1 -o parts in.jsonl
    [ -e parts/train/pixels ]
    [ ! -e parts/valid/pixels ]
    pppack --check parts/valid
}

@test "placeholders must match" {
    lines 1 2 | sed '2s/9,9,/9,/' >in.jsonl
    refused "in.jsonl: line 2: '3' placeholders (id 9) for 4 features of \
images" -l 12 --image-token 9 --patch 2 -o packed in.jsonl
    # The features of two images may follow each other.
    lines 2 | sed 's/9,9,9,9,20/9,20,9,9,9/' >in.jsonl
    refused "in.jsonl: line 1: token '20' is between placeholders (id 9) of one \
image, which must follow each other" -l 12 --image-token 9 --patch 2 -o packed \
        in.jsonl
    lines 1 >in.jsonl
    refused "in.jsonl: line 1: the line has images, but the id of their \
placeholders is not known; see --image-token" -l 12 -o packed in.jsonl
    refused "in.jsonl: line 1: an image of '1 x 2 x 4' pixels, without a grid, \
needs the size of its patches; see --patch" -l 12 --image-token 9 -o packed \
        in.jsonl
    refused "in.jsonl: line 1: a grid of '1 x 1 x 2' patches cannot be merged \
by 2 x 2" -l 12 --image-token 9 --patch 2 --merge 2 -o packed in.jsonl
    # A directory has one id for them.
    pppack -q -l 12 --image-token 9 --patch 2 -o packed in.jsonl
    sed 's/9,9,/8,8,/' in.jsonl >other.jsonl
    refused "other.jsonl: line 1: images for the token '8', merged by 1, \
cannot be mixed with earlier ones for 9, merged by 1" -l 12 --image-token 8 \
        --patch 2 -o both packed other.jsonl
}

@test "a patch of more than 2^32 pixels is refused" {
    # Only a hole: nothing of it is read.
    local shape="(257, 4096, 4096), }"
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' \
        "{'descr': '<f4', 'fortran_order': False, 'shape': $shape" >image.npy
    truncate -s $((128 + 4 * 257 * 4096 * 4096)) image.npy
    echo '{"input_ids": [9, 1], "images": ["image.npy"]}' >in.jsonl
    refused "in.jsonl: line 1: an image of '257 x 4096 x 4096' pixels cannot be \
cut into patches of 4096 x 4096" -l 12 --image-token 9 --patch 4096 -o packed \
        in.jsonl
}

@test "images are never cut" {
    lines 1 4 >in.jsonl
    for what in split truncate; do
        refused "sequence 1 has '14' tokens, more than a bin, and images \
cannot be cut; try --oversize drop" -l 8 --oversize "$what" --image-token 9 \
            --patch 2 -o packed in.jsonl
    done
    refused "--compat trl-wrapped: documents with images or audio cannot be cut\
 to fill bins" -l 8 \
        --compat trl-wrapped --image-token 9 --patch 2 -o packed in.jsonl
    pppack -q -l 8 --oversize drop --image-token 9 --patch 2 -o packed in.jsonl
    pppack --check packed
    [ "$(pppack --stats packed | jq .images)" = 1 ]
}

@test "--patches limits the patches of a bin" {
    lines 1 0 2 1 3 0 0 1 >in.jsonl
    args=(-l 40 --image-token 9 --patch 2 --stats)
    [ "$(pppack "${args[@]}" in.jsonl | jq -c '[.bins, .max_patches]')" = \
        '[1,16]' ]
    [ "$(pppack "${args[@]}" --patches 6 in.jsonl | jq -c \
        '[.bins, .lower_bound, .images, .patches, .max_patches]')" = \
        '[3,3,8,16,6]' ]
    pppack "${args[@]}" --patches 6 --bins-multiple 4 -o packed in.jsonl |
        jq -e '.bins == 4 and .max_patches <= 6' >/dev/null
    pppack --check packed
    # Also if tokens want both images in one bin: 14, 14 and 5 + 5.
    { lines 1 1; jq -nc 'range(2) | {input_ids: [range(14) + 20]}'; } >two.jsonl
    pppack "${args[@]}" --patches 2 --bins-multiple 3 two.jsonl |
        jq -e '.bins == 3 and .max_patches == 2' >/dev/null
    # The bins keep to it when they are packed anew.
    refused "sequence 4 has '6' patches, more than the 5 of a bin; try \
--oversize drop" -l 40 --patches 5 -o again packed
    pppack -l 40 --patches 5 --oversize drop --stats packed |
        jq -e '.max_patches <= 5 and .dropped == 1' >/dev/null
}

@test "--balance counts patches" {
    # Documents of 20 and 8 tokens with 12 and 4 patches, and two of 14 without:
    # 28 tokens and 28, or 12 patches and 4.
    lines 6 2 >in.jsonl
    jq -nc 'range(2) | {input_ids: [range(14) + 20]}' >>in.jsonl
    args=(-l 60 --image-token 9 --patch 2 --stats --balance tokens --dp 2
        --bins-min 2)
    [ "$(pppack "${args[@]}" in.jsonl | jq -c '[.max_patches, .imbalance]')" = \
        '[16,1]' ]
    # 20 + 8 x 12 = 116 and 8 + 8 x 4 + 28 = 68, of 92 in the mean.
    pppack "${args[@]}" --patch-cost 8 in.jsonl | jq -e '.max_patches == 12 and
        (.imbalance - 116 / 92 | fabs) < 1e-9' >/dev/null
    # 12 and 4 patches must not share a bin, even if tokens want it.
    pppack "${args[@]}" --patches 12 -o packed in.jsonl |
        jq -e '.max_patches == 12 and .bins == 2' >/dev/null
    pppack --check packed
}

@test "--balance flops takes the cost of a patch from the plan" {
    lines 6 2 >in.jsonl
    jq -nc 'range(2) | {input_ids: [range(14) + 20]}' >>in.jsonl
    args=(-l 60 --image-token 9 --patch 2 --stats --balance flops --dp 2
        --bins-min 2 --manifest)
    # A patch costs c tokens: what the encoder needs for 2 images of 576
    # patches, among 2048 tokens. 28 tokens with 16 patches and 28 with none are
    # as even as possible.
    ppsplit -q -p 2 --seq-len 2048 --images 2 \
        "$SRCDIR/tests/data/vision/llava-1.5-7b.json" >vision.json
    c=$(jq '.components[0].units as $n | .model.units |
        (.[:$n] | map(.fwd_flops[0] + .fwd_flops[1] * 1024.5) | add) * 2048 /
        1152 / (.[$n:] | map(.fwd_flops[0]) | add)' vision.json)
    pppack "${args[@]}" vision.json in.jsonl | jq -e --argjson c "$c" \
        '.imbalance > 1.01 and
        (.imbalance - (28 + 16 * $c) / (28 + 8 * $c) | fabs) < 0.001' \
        >/dev/null
    pppack "${args[@]}" vision.json --patch-cost 0 in.jsonl |
        jq -e '.imbalance < 1.001' >/dev/null
    # --audio-cost is in tokens: 14 + 4 x 7 in one bin and 14 in the other.
    jq -nc '[range(7)] as $x |
        {input_ids: [8, 8, (range(12) + 20)], audio: [[$x, $x]]},
        {input_ids: [range(14) + 20]}' >in.jsonl
    pppack -l 20 --audio-token 8 --audio-cost 7 --stats --balance flops \
        --manifest vision.json in.jsonl |
        jq -e '(.imbalance - 1.5 | fabs) < 0.001' >/dev/null
}

@test "exports refuse images" {
    lines 1 >in.jsonl
    pppack -q -l 12 --image-token 9 --patch 2 -o packed in.jsonl
    refused "x: '1' images cannot be written as safetensors" \
        --export safetensors -o x packed
    refused "an indexed dataset cannot hold 'pixels'" --export megatron -o x \
        packed
    [ ! -e x ] && [ ! -e x.idx ]
}

@test "--check finds a changed pixel and a changed placeholder" {
    lines 1 0 >in.jsonl
    pppack -q -l 12 --image-token 9 --patch 2 -o packed in.jsonl
    printf '\x01' | dd of=packed/pixels bs=1 seek=3 conv=notrunc 2>/dev/null
    run --separate-stderr pppack --check packed
    [ "$status" -eq 1 ]
    [[ $stderr == *packed/pixels:* ]]
}

# picture TOKEN COUNT CHANNELS SIDE prints a document with COUNT placeholders and
# an image of black pixels.
picture() {
    jq -nc --argjson token "$1" --argjson count "$2" --argjson c "$3" \
        --argjson side "$4" '{input_ids: ([range($count) | $token] + [1, 2]),
        images: [[range($c) | [range($side) | [range($side) | 0]]]]}'
}

@test "images that the model of --manifest cannot take are refused" {
    # Three channels, 8 x 8 pixels, patches of 4 x 4.
    ppsplit -q -p 2 "$SRCDIR/tests/golden/llava" >plan.json
    cp plan.json before.json
    args=(-l 40 --image-token 31 --patch 4 --manifest plan.json -o packed)
    picture 31 4 2 8 >two.jsonl
    refused "plan.json: patches have '32' values and 1 of them make a feature, \
but the model takes 48 and 1" "${args[@]}" two.jsonl
    picture 31 1 3 4 >small.jsonl
    refused "plan.json: images have up to '1' patches, but the model takes 4 \
of each" "${args[@]}" small.jsonl
    picture 7 4 3 8 >other.jsonl
    refused "plan.json: token '7' stands for images, but 31 in the model; \
pack them with this one" "${args[@]}" --image-token 7 other.jsonl
    # One that was packed for another model.
    pppack -q -l 40 --image-token 31 --patch 4 -o once two.jsonl
    refused "plan.json: patches have '32' values and 1 of them make a feature, \
but the model takes 48 and 1" -l 40 --manifest plan.json -o packed once
    picture 31 5 3 8 >full.jsonl
    refused "plan.json: images have a feature of a class token, but the model \
takes none; pack them without it" "${args[@]}" --class-feature full.jsonl
    ppsplit -q -p 2 "$SRCDIR/tests/golden/llava-full" >full.json
    picture 31 4 3 8 >in.jsonl
    refused "full.json: images have no feature of a class token, but the model \
takes one; pack them with it" "${args[@]}" --manifest full.json in.jsonl
    [ ! -e packed ]
    cmp plan.json before.json
    pppack -q "${args[@]}" in.jsonl
    jq -e '.data.max_images == 1' plan.json >/dev/null
    ppsplit -q -p 2 "$SRCDIR/tests/golden/llama/model" >text.json
    refused "text.json: 'LlamaForCausalLM' has no encoder for the 1 images" \
        -l 40 --manifest text.json -o text once
}
