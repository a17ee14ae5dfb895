# SPDX-License-Identifier: MIT
# images - sequences with images for the parity tests, and runs on them. Token 31
# stands for a feature.

# image_lines FORM SEED COUNT [IMAGES]: prints sequences with 0, 1 or 2 images,
# or with as many as given. FORM llava: images of 8 x 8 pixels, which have four
# features. FORM qwen: grids of FRAMES frames (1), of features of four patches of
# 24 pixels each: SIZE each way, or as it falls. FORM audio: clips of six
# frequencies and SIZE frames, or as it falls, and three more frames behind. FORM
# omni: as qwen, and clips for token 32; a sequence has none, an image, a clip, or
# an image and IMAGES (2) clips.
image_lines() {
    awk -v form="$1" -v seed="$2" -v n="$3" -v fixed="${4:--1}" \
        -v frames="${FRAMES:-1}" -v size="${SIZE:-0}" '
    function sep() { return ids == "" ? "" : "," }
    function text(count,  t) {
        for (t = 0; t < count; t++) ids = ids sep() int(2 + rand() * 29)
    }
    function places(count, token) {
        while (count-- > 0) ids = ids sep() (token ? token : 31)
    }
    function numbers(count,  x, all) {
        for (x = 0; x < count; x++)
            all = all (x ? "," : "") sprintf("%.3f", rand() * 2 - 1)
        return "[" all "]"
    }
    function rows(count, width,  r, all) {
        for (r = 0; r < count; r++) all = all (r ? "," : "") numbers(width)
        return "[" all "]"
    }
    function pixels(  c, all) {
        places(4)
        for (c = 0; c < 3; c++) all = all (c ? "," : "") rows(8, 8)
        return "[" all "]"
    }
    function grid(  down, across) {
        down = size ? size : 1 + int(rand() * 3)
        across = size ? size : 1 + int(rand() * 2)
        places(frames * down * across)
        return "{\"pixels\":" rows(4 * frames * down * across, 24) \
            ",\"grid\":[" frames "," 2 * down "," 2 * across "]}"
    }
    function clip(  frames) {
        frames = size ? size : 3 + int(rand() * 14)
        places(int(int((frames + 1) / 2) / 2), form == "omni" ? 32 : 31)
        return "{\"features\":" rows(6, frames + 3) ",\"frames\":" frames "}"
    }
    function item() {
        return form == "llava" ? pixels() : form == "audio" ? clip() : grid()
    }
    function both(i,  kind, j, clips) {
        ids = ""
        text(1 + int(rand() * 6))
        kind = fixed < 0 ? i % 4 : 3
        if (kind % 2) images = grid()
        for (j = kind < 2 ? 0 : kind == 2 ? 1 : fixed < 0 ? 2 : fixed; j > 0; j--) {
            text(1 + int(rand() * 3))
            clips = clips (clips ? "," : "") clip()
        }
        text(2)
        printf "{\"input_ids\": [%s]%s%s}\n", ids,
            kind % 2 ? ", \"images\": [" images "]" : "",
            clips ? ", \"audio\": [" clips "]" : ""
    }
    BEGIN {
        srand(seed)
        for (i = 0; i < n && form == "omni"; i++)
            both(i)
        for (i = 0; i < n && form != "omni"; i++) {
            ids = images = ""
            text(1 + int(rand() * 6))
            k = fixed < 0 ? i % 3 : fixed
            for (j = 0; j < k; j++) {
                images = images (j ? "," : "") item()
                text(1 + int(rand() * 5))
            }
            printf "{\"input_ids\": [%s]%s}\n", ids,
                (k ? ", \"" (form == "audio" ? form : "images") "\": [" \
                    images "]" : "")
        }
    }'
}

# same_images FORM: packs eight sequences with two images, all alike, into `same`,
# with the function pack, and sets length to that of a bin.
same_images() {
    image_lines "$1" 3 1 2 >line
    for _ in 1 2 3 4 5 6 7 8; do cat line; done >same.jsonl
    length=$(jq '(.input_ids | length) / 8 | ceil * 8' line)
    pack -l "$length" --cp 4 -o same same.jsonl
}

# The data of plans and runs.
DATA=packed

# plan KIND ARGS...: writes plan.json, for four microbatches of $DATA, of the model
# in $MODEL.
plan() {
    local kind=$1
    shift
    ppsplit -q "$@" "$MODEL" | ppsched -q -s "$kind" -m 4 --data "$DATA" \
        -o plan.json
}

# train TO ARGS...: trains three steps of plan.json, with checkpoints in TO, and
# the numbers of the steps in TO.jsonl.
train() {
    local to=$1
    shift
    rm -rf "$to" "$to.jsonl"
    pprun -q --data "$DATA" --save "$to" --steps 3 --lr 1e-2 "$@" plan.json |
        jq -c '{loss, grad_norm, val_loss}' >"$to.jsonl"
}

# divisible FAMILY FILTER: makes a model in `model`, that of tests/golden with the
# configuration that the filter makes of its own, and data for it and for
# evaluation, which two tensor-parallel and two context-parallel ranks can divide.
divisible() {
    mkdir model
    jq "$2" "$SRCDIR/tests/golden/$1/config.json" >model/config.json
    ln -s "$SRCDIR/tests/golden/$1/model.safetensors" model
    lines 1 18 >data.jsonl
    pack --tp 2 --cp 2 -l 48 -o packed data.jsonl
    lines 2 5 >eval.jsonl
    pack --tp 2 --cp 2 -l 48 -o eval eval.jsonl
}

# close A B: losses and norms of two runs in fp64 agree.
close() {
    jq -s -e '(length / 2) as $n | .[:$n] as $a | .[$n:] as $b |
        [range($n) | ($a[.].loss / $b[.].loss - 1 | fabs) < 1e-12 and
            ($a[.].grad_norm / $b[.].grad_norm - 1 | fabs) < 1e-12] | all' \
        "$1.jsonl" "$2.jsonl"
}

# planned_bytes DATA: checks that ppsched plans the memory of a run of plan.json,
# which it prints: the most of a rank.
planned_bytes() {
    pprun --print-memory --data "$1" --init 5 --steps 1 plan.json >need.json
    ppsched --stats plan.json |
        jq -e --slurpfile need need.json \
            '.rank_bytes == [$need[0][].total]' >/dev/null &&
        jq 'map(.total) | max' need.json
}

# renamed MODEL TO FILTER: copies a model whose tensors get the names that the
# filter of jq makes of theirs.
renamed() {
    local file=$1/model.safetensors size head i
    mkdir -p "$2"
    cp "$1/config.json" "$2"
    size=$(od -An -t u8 -N 8 "$file")
    head=$(head -c $((8 + size)) "$file" | tail -c "$size" |
        jq -c "with_entries(.key |= ($3))")
    {
        for i in 0 8 16 24 32 40 48 56; do
            printf '%b' "\\x$(printf %02x $((${#head} >> i & 255)))"
        done
        printf %s "$head"
        tail -c +$((9 + size)) "$file"
    } >"$2/model.safetensors"
}
