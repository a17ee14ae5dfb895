#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# tokenize - tests scripts/tokenize, which makes JSON Lines for pppack.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
    PATH=$SRCDIR/scripts:$PATH
    mkdir model
    # A token per word is enough.
    cat >model/tokenizer.json <<'END'
{"version": "1.0", "truncation": null, "padding": null, "normalizer": null,
 "added_tokens": [
  {"id": 0, "content": "<s>", "single_word": false, "lstrip": false,
   "rstrip": false, "normalized": false, "special": true},
  {"id": 1, "content": "</s>", "single_word": false, "lstrip": false,
   "rstrip": false, "normalized": false, "special": true}],
 "pre_tokenizer": {"type": "WhitespaceSplit"},
 "post_processor": {"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
             {"Sequence": {"id": "A", "type_id": 0}}],
  "pair": [{"Sequence": {"id": "A", "type_id": 0}},
           {"Sequence": {"id": "B", "type_id": 1}}],
  "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
 "decoder": null,
 "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"<s>": 0,
  "</s>": 1, "?": 2, "user:": 3, "assistant:": 4, "good": 5, "day": 6}}}
END
    cat >model/tokenizer_config.json <<'END'
{"eos_token": {"content": "</s>"},
 "chat_template": "{% for m in messages %}{{ m.role + ': ' + m.content + eos_token + ' ' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"}
END
}

need() {
    python3 -c "import $1" 2>/dev/null || skip "Python has no $1"
}

@test "a file is a document, and with --lines each line is one" {
    need tokenizers
    printf 'good day\n\nday é\n' >text
    run --separate-stderr tokenize --tokenizer model text
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [ "$output" = '{"input_ids":[0,5,6,6,2,1]}' ]
    run --separate-stderr tokenize --tokenizer model --lines --end day text
    [ "${lines[0]}" = '{"input_ids":[0,5,6]}' ]  # It ends with that.
    [ "${lines[1]}" = '{"input_ids":[0,6,2,6]}' ]
    run --separate-stderr tokenize --tokenizer model --no-special --no-end - \
        <text
    [ "$output" = '{"input_ids":[5,6,6,2]}' ]
    # Without an end token it says so, once.
    echo '{}' >model/tokenizer_config.json
    run --separate-stderr tokenize --tokenizer model --lines text
    [ "${lines[1]}" = '{"input_ids":[0,6,2]}' ]
    [ "$stderr" = "tokenize: note: 2 documents have no end token: the tokenizer\
 has no 'eos_token'; give --end" ]
}

@test "a text without an end is refused at its first zero byte" {
    need tokenizers
    local options
    for options in '' --lines '--key text'; do
        # shellcheck disable=SC2086
        run --separate-stderr timeout 60 tokenize \
            --tokenizer model $options /dev/zero
        echo "$options: $status: $stderr"
        [ "$status" -eq 2 ]
        [ -z "$output" ]
        [[ $stderr = 'tokenize: /dev/zero: '*'has a zero byte' ]]
        [ "${#stderr_lines[@]}" -eq 1 ]
    done
}

@test "--key reads a text of every object" {
    need tokenizers
    printf '%s\n' '{"text":"good\nday","id":1}' '' '{"text":""}' \
        '{"id":2,"text":"day"}' >lines.jsonl
    run --separate-stderr tokenize --tokenizer model --key text lines.jsonl
    [ "$status" -eq 0 ]
    [ "$output" = '{"input_ids":[0,5,6,1]}
{"input_ids":[0,6,1]}' ]
    echo "$stderr"
    [ "$stderr" = "tokenize: note: not used, with the number of lines: 'id' (2)" ]
    for line in '{"content":"day"}' '["text"]' '"day"'; do
        { echo '{"text":"day"}'; echo "$line"; } >lines.jsonl
        run --separate-stderr tokenize --tokenizer model --key text lines.jsonl
        [ "$status" -eq 2 ]
        [ "$stderr" = \
            "tokenize: lines.jsonl: line 2: must be an object with 'text'" ]
    done
    echo '{"text":["day"]}' >lines.jsonl
    run --separate-stderr tokenize --tokenizer model --key text lines.jsonl
    [ "$status" -eq 2 ]
    [ "$stderr" = "tokenize: lines.jsonl: line 1: 'text' must be a string" ]
}

@test "--chat scores only the turns of the assistant" {
    need tokenizers
    need jinja2
    echo '{"messages":[{"role":"user","content":"good day"},
        {"role":"assistant","content":"day"},{"role":"user","content":"good"},
        {"role":"assistant","content":"good good"}]}' | tr -d '\n' >chat
    run --separate-stderr tokenize --tokenizer model --chat chat
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [ "$(jq -c .input_ids <<<"$output")" = '[3,5,6,1,4,6,1,3,5,1,4,5,5,1]' ]
    [ "$(jq -c .loss_mask <<<"$output")" = '[0,0,0,0,0,1,1,0,0,0,0,1,1,1]' ]
    pppack -l 16 -o packed <<<"$output"
    pppack --check packed
}

# template TEXT: gives the model this chat template.
template() {
    jq --arg template "$1" '.chat_template = $template' \
        model/tokenizer_config.json >new && mv new model/tokenizer_config.json
}

# masks CHAT: the loss mask of a chat.
masks() {
    run --separate-stderr tokenize --tokenizer model --chat <<<"${1//$'\n'/}"
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    jq -c .loss_mask <<<"$output"
}

@test "--chat takes the mask of a template's generation tags" {
    need tokenizers
    need jinja2
    template "{% for m in messages %}{{ m.role + ': ' }}{% if m.role == \
'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{{ ' ' + \
eos_token + ' ' }}{% else %}{{ m.content + ' ' }}{% endif %}{% endfor %}"
    [ "$(masks '{"messages":[{"role":"user","content":"good"},
        {"role":"assistant","content":"day good"}]}' | tail -n 1)" = \
        '[0,0,0,1,1,0]' ]
}

@test "--chat reads ShareGPT, lists of parts and tools" {
    need tokenizers
    need jinja2
    local want='[0,0,0,0,1,1]'
    [ "$(masks '{"conversations":[{"from":"human","value":"good"},
        {"from":"gpt","value":"day"}]}' | tail -n 1)" = "$want" ]
    [ "$(masks '{"messages":[{"role":"user","content":[{"type":"text",
        "text":"good"}]},{"role":"assistant","content":"day"}]}' |
        tail -n 1)" = "$want" ]
    template "{% for t in tools or [] %}{{ t.name + ' ' }}{% endfor %}{% for m \
in messages %}{{ m.role + ': ' }}{% for c in m.tool_calls or [] %}{{ c.name }}\
{% endfor %}{{ (m.content or '') + eos_token + ' ' }}{% endfor %}\
{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    [ "$(masks '{"tools":[{"name":"day"}],"messages":[{"role":"user","content":
        "good"},{"role":"assistant","tool_calls":[{"name":"day"}]}]}' |
        tail -n 1)" = '[0,0,0,0,0,1,1]' ]
}

@test "--chat scores earlier turns whose thinking the template drops" {
    need tokenizers
    need jinja2
    # As in Qwen3: thoughts stay in the last turn only, and a newline follows
    # the end of a turn.
    template "{{ strftime_now('good') + ' ' }}{% for m in messages %}\
{{ m.role + ': ' }}{% set c = m.content %}{% if not loop.last %}\
{% set c = c.split('/')[-1] %}{% endif %}{{ c + eos_token + '\\n' }}\
{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    [ "$(masks '{"messages":[{"role":"user","content":"good"},
        {"role":"assistant","content":"good / day"},
        {"role":"user","content":"good"},
        {"role":"assistant","content":"good / day"}]}' | tail -n 1)" = \
        '[0,0,0,0,0,1,1,0,0,0,0,1,1,1,1]' ]
}

@test "a malformed chat is named" {
    need tokenizers
    need jinja2
    printf '%s\n' '{"messages":[{"role":"user","content":"day"}]}' \
        '{"messages":[{"role":"user"}]}' >chat
    run --separate-stderr tokenize --tokenizer model --chat chat
    [ "$status" -eq 2 ]
    [ "$stderr" = "tokenize: chat: line 2: messages must be objects with 'role'\
 and 'content'" ]
}

@test "a missing file, key or token is named" {
    run --separate-stderr tokenize --tokenizer absent
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "$stderr" = 'tokenize: absent/tokenizer.json: no such file; --tokenizer'\
' needs a model directory with tokenizer.json' ]
    mkdir hidden
    echo 'raise ImportError' >hidden/tokenizers.py
    PYTHONPATH=hidden run --separate-stderr tokenize --tokenizer model
    [ "$status" -eq 3 ]
    [ "$stderr" = \
        "tokenize: Python has no 'tokenizers': try 'pip install tokenizers'" ]
}

@test "--chat reads Alpaca, and prompts with completions" {
    need tokenizers
    need jinja2
    local want='[0,0,0,0,1,1]'
    [ "$(masks '{"instruction":"good","input":"","output":"day"}' |
        tail -n 1)" = "$want" ]
    [ "$(masks '{"prompt":"good","completion":"day"}' | tail -n 1)" = "$want" ]
    [ "$(masks '{"prompt":[{"role":"user","content":"good"}],"completion":[
        {"role":"assistant","content":"day"}]}' | tail -n 1)" = "$want" ]
    [ "$(masks '{"instruction":"good","input":"day","output":"day"}' |
        tail -n 1)" = '[0,0,0,0,0,1,1]' ]
}

# pair LINE: prints the ids of a preference pair that pppack takes.
pair() {
    tokenize --tokenizer model --pairs <<<"${1//$'\n'/}" >pairs
    pppack -q -l 32 -o "packed.$RANDOM" pairs
    cat pairs
}

@test "--pairs reads texts and messages" {
    need tokenizers
    need jinja2
    [ "$(pair '{"prompt":"good","chosen":" day","rejected":" good good"}')" = \
        '{"prompt":[0,5],"chosen":[6,1],"rejected":[5,5,1]}' ]
    # Without the space one token has characters of both.
    run --separate-stderr tokenize --tokenizer model --pairs --no-end \
        <<<'{"prompt":"good day","chosen":"day","rejected":" good"}'
    [ "$output" = '{"prompt":[0,5],"chosen":[2],"rejected":[6,5]}' ]
    [ "$stderr" = "tokenize: note: 1 documents have a token with the end of a\
 prompt and the beginning of an answer; it is scored" ]
    local want='{"prompt":[3,5,1,4],"chosen":[6,1],"rejected":[5,5,1]}'
    local user='{"role":"user","content":"good"}'
    local good='{"role":"assistant","content":"day"}'
    local bad='{"role":"assistant","content":"good good"}'
    [ "$(pair "{\"prompt\":[$user],\"chosen\":[$good],
        \"rejected\":[$bad]}")" = "$want" ]
    [ "$(pair "{\"prompt\":\"good\",\"chosen\":[$user,$good],
        \"rejected\":[$user,$bad]}")" = "$want" ]
    run -2 --separate-stderr tokenize --tokenizer model --pairs \
        <<<'{"prompt":"good","chosen":"day"}'
    [ "$stderr" = "tokenize: -: line 1: must be an object with 'chosen' and \
'rejected'" ]
}

@test "a list, a byte order mark and .gz are the records of JSON Lines" {
    need tokenizers
    local want='{"input_ids":[0,5,1]}
{"input_ids":[0,6,1]}'
    printf '%s\n' '[{"text":"good"},' ' {"text":"day"}]' >list.json
    jq -c '.[]' list.json >lines.jsonl
    { printf '\357\273\277'; cat lines.jsonl; } >marked.jsonl
    gzip -k marked.jsonl
    for file in list.json lines.jsonl marked.jsonl marked.jsonl.gz; do
        run --separate-stderr tokenize --tokenizer model --key text "$file"
        [ "$status" -eq 0 ]
        [ "$output" = "$want" ]
    done
    run tokenize --tokenizer model --key text - <marked.jsonl
    [ "$output" = "$want" ]
    head -c 30 marked.jsonl.gz >cut.gz
    run -2 tokenize --tokenizer model --key text cut.gz
    [ "$output" = "tokenize: cut.gz: Compressed file ended before the\
 end-of-stream marker was reached" ]
    { head -c 23 marked.jsonl.gz; printf '\377\377\377\377'; } >bad.gz
    run -2 tokenize --tokenizer model --key text bad.gz
    [ "$output" = "tokenize: bad.gz: Error -3 while decompressing data: invalid\
 block type" ]
}

@test "text that is not JSON or not Unicode is refused at its line" {
    need tokenizers
    { echo '{"text":"day"}'; echo '{"text":"day",}'; } >comma.jsonl
    run -2 tokenize --tokenizer model --key text comma.jsonl
    [ "${lines[1]}" = "tokenize: comma.jsonl: line 2, column 15: not JSON:\
 Expecting property name enclosed in double quotes" ]
    printf '%s\n' '[{"text":"day"},' '{"text":}]' >list.json
    run -2 tokenize --tokenizer model --key text list.json
    [ "$output" = "tokenize: list.json: line 2, column 9: not JSON: Expecting\
 value" ]
    printf '%s\n' '{"text":"\uD83D\uDE00"}' '{"text":"\uD83D"}' >half.jsonl
    run -2 tokenize --tokenizer model --key text half.jsonl
    [ "${lines[0]}" = '{"input_ids":[0,2,1]}' ]
    [ "${lines[1]}" = \
        'tokenize: half.jsonl: line 2: incomplete surrogate pair' ]
    printf '%100000s' '' | tr ' ' '[' >deep.json
    run -2 tokenize --tokenizer model --key text deep.json
    [[ "$output" == 'tokenize: deep.json: line 1: '*recursion* ]]
    [ "${#lines[@]}" -eq 1 ]
}

@test "tables have the records of JSON Lines" {
    need tokenizers
    need pyarrow
    printf '%s\n' '{"text":"good day"}' '{"text":"day"}' >lines.jsonl
    python3 - <<'END'
import json
import pyarrow
import pyarrow.feather
import pyarrow.parquet

rows = [json.loads(line) for line in open("lines.jsonl")]
table = pyarrow.Table.from_pylist(rows)
pyarrow.parquet.write_table(table, "table.parquet")
pyarrow.feather.write_feather(table, "table.feather")
with pyarrow.ipc.new_stream("table.arrow", table.schema) as out:
    out.write_table(table)
END
    tokenize --tokenizer model --key text lines.jsonl >want
    for table in table.parquet table.feather table.arrow; do
        tokenize --tokenizer model --key text $table | cmp - want
    done
    run -2 --separate-stderr tokenize --tokenizer model table.parquet
    [ "$stderr" = "tokenize: table.parquet: a table needs --key, --chat or \
--pairs" ]
    run -2 --separate-stderr tokenize --tokenizer model --key id table.arrow
    [ "$stderr" = "tokenize: table.arrow: row 1: must be an object with 'id'" ]
    run -2 --separate-stderr tokenize --tokenizer model --key id no.parquet
    [ "$stderr" = 'tokenize: no.parquet: No such file or directory' ]
    echo text >broken.parquet
    run -2 --separate-stderr tokenize --tokenizer model --key id broken.parquet
    [[ $stderr == "tokenize: broken.parquet: "* ]]
}

@test "a table whose offsets or text are damaged is refused before it is read" {
    need tokenizers
    need pyarrow
    # A damaged offset points 16 MB behind the text and the memory map.
    python3 - <<'END'
import pyarrow
import pyarrow.feather
import pyarrow.parquet

words = ["good day"] * 20
table = pyarrow.table({"text": words})
with pyarrow.ipc.new_stream("table.arrow", table.schema) as out:
    out.write_table(table)
pyarrow.feather.write_feather(table, "table.feather", compression="uncompressed")
pyarrow.parquet.write_table(table, "table.parquet", use_dictionary=False,
                            compression="none")


def damage(name, old, new, at):
    data = bytearray(open(name, "rb").read())
    place = data.index(old) + at
    data[place:place + len(new)] = new
    open(name.replace("table", f"bad{at}"), "wb").write(data)


offsets = b"".join(n.to_bytes(4, "little") for n in (0, 8, 16, 24, 32))
text = b"good daygood day"
for name in ("table.arrow", "table.feather"):
    damage(name, offsets, b"\1", 15)
    damage(name, text, b"\xb5", 9)
damage("table.parquet", b"\x08\0\0\0good day", b"\xb5", 6)
END
    local file
    for file in bad15.arrow bad15.feather bad9.arrow bad9.feather bad6.parquet; do
        run --separate-stderr tokenize --tokenizer model --key text $file
        echo "$file: $status: $stderr"
        [ "$status" -eq 2 ]
        [ -z "$output" ]
        [[ $stderr == "tokenize: $file: In column 0: Invalid: "* ]]
        [ "${#stderr_lines[@]}" -eq 1 ]
    done
}

@test "a value of another type is refused at its record" {
    need tokenizers
    need jinja2
    local turn='"messages": [{"role": "user", "content": "day"}]' case
    for case in "{$turn, \"images\": 5}=pictures must be names of files,\
 data: URLs or bytes" \
        "{$turn, \"audio\": {}, \"audios\": true}=clips of audio must be\
 names of files, data: URLs or bytes" \
        "{$turn, \"images\": \"http://a/b\"}='http://a/b': is on the network;\
 give a file" \
        '{"conversations": [{"from": [], "value": "good"}]}=messages must be'"\
 objects with 'role' and 'content'" \
        '{"prompt": [], "completion": 5}=messages must be objects with'"\
 'role' and 'content'" \
        '{"instruction": 5, "output": "day"}='"'instruction' and 'input' must\
 be strings"; do
        run -2 --separate-stderr tokenize --tokenizer model --chat \
            <<<"${case%%=*}"
        echo "$stderr"
        [ "$stderr" = "tokenize: -: line 1: ${case#*=}" ]
    done
    for case in '[5]' '{"chat_template": {}}' '{"chat_template": [5]}' \
        '{"chat_template": 5}'; do
        echo "$case" >model/tokenizer_config.json
        run -2 --separate-stderr tokenize --tokenizer model --chat <<<"{$turn}"
        [[ $stderr == 'tokenize: model/tokenizer_config.json: '* ]]
        [ "${#stderr_lines[@]}" -eq 1 ]
    done
}

# PP_MUTANTS is the number of mutants of each file.
@test "damaged files are taken, or refused with one line" {
    need tokenizers
    need jinja2
    need pyarrow
    jq -nc 'range(3) | {messages: [{role: "user", content: "good"},
        {role: "assistant", content: "day"}]}' >lines.jsonl
    jq -sc . lines.jsonl >list.json
    gzip -k lines.jsonl
    python3 - <<'END'
import json
import pyarrow
import pyarrow.feather
import pyarrow.parquet

table = pyarrow.Table.from_pylist(list(map(json.loads, open("lines.jsonl"))))
pyarrow.parquet.write_table(table, "table.parquet")
pyarrow.feather.write_feather(table, "table.feather")
with pyarrow.ipc.new_stream("table.arrow", table.schema) as out:
    out.write_table(table)
END
    local file
    for file in lines.jsonl list.json lines.jsonl.gz table.parquet table.feather \
        table.arrow model/tokenizer.json model/tokenizer_config.json; do
        "$SRCDIR/tests/cli/mutate" "${PP_MUTANTS:-2}" $file \
            tokenize --tokenizer model --chat \
            "$([[ $file == model/* ]] && echo lines.jsonl || echo $file)"
    done
}

# with_images adds an image token and an image processor to the model.
with_images() {
    jq '.added_tokens += [{"id": 7, "content": "<image>", "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false,
        "special": true}] | .model.vocab += {"<image>": 7}' \
        model/tokenizer.json >with && mv with model/tokenizer.json
    echo '{"model_type": "llava", "image_token_id": 7,
        "vision_config": {"patch_size": 2}}' >model/config.json
    echo "$1" >model/preprocessor_config.json
    mkdir -p in
    # Black, white, red and red above blue.
    { printf 'P6 4 2 255\n\0\0\0\377\377\377\377\0\0\377\0\0'
      printf '\0\0\377\0\0\377\0\0\377\0\0\377'; } >in/cat.ppm
}

@test "--images makes arrays of pictures for pppack" {
    need tokenizers
    need jinja2
    need transformers
    need numpy
    need PIL
    with_images '{"image_processor_type": "CLIPImageProcessor",
        "do_resize": false, "do_center_crop": false, "do_rescale": true,
        "rescale_factor": 0.00392156862745098, "do_normalize": true,
        "image_mean": [0, 0, 0], "image_std": [0.5, 1, 1]}'
    echo '{"image": "cat.ppm", "conversations": [{"from": "human",
        "value": "<image> good"}, {"from": "gpt", "value": "day"}]}' |
        jq -c . >in/chats.jsonl
    tokenize --tokenizer model --chat --images arrays in/chats.jsonl \
        >out.jsonl
    # Two patches, so the token is there twice.
    [ "$(jq -c '[(.input_ids | map(select(. == 7)) | length), .images,
        (.loss_mask | length) - (.input_ids | length)]' out.jsonl)" = \
        '[2,["arrays/00000000.npy"],0]' ]
    pppack -q -l 32 --image-token 7 --patch 2 -o packed out.jsonl
    # Red, green and blue of the left patch; red counts twice.
    [ "$(od -An -v -t f4 -w48 packed/pixels | head -n 1 | tr -s ' ')" = \
        ' 0 2 0 0 0 1 0 0 0 1 1 1' ]
    # The same picture in a part of a message, in three ways.
    template "{% for m in messages %}{{ m.role + ': ' }}{% for p in m.content %}\
{{ '<image> ' if p.type == 'image' else p.text + ' ' }}{% endfor %}{{ eos_token + \
' ' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    local source
    for source in '"cat.ppm"' '{"path": "cat.ppm"}' \
        "\"data:image/x-portable-pixmap;base64,$(base64 -w0 in/cat.ppm)\""; do
        jq -nc --argjson source "$source" '{messages: [{role: "user", content: [
            {type: "image", image: $source}, {type: "text", text: "good"}]},
            {role: "assistant", content: "day"}]}' >in/parts.jsonl
        tokenize --tokenizer model --chat --images parts in/parts.jsonl |
            jq -e '.input_ids | map(select(. == 7)) | length == 2'
        cmp arrays/00000000.npy parts/00000000.npy
    done
    template "{% for m in messages %}{{ m.role + ': ' + m.content + ' ' }}{% endfor %}"
    # And three times if a class token has a feature, too.
    sed -i 's/{/{"vision_feature_select_strategy": "full", /' model/config.json
    tokenize --tokenizer model --chat --images arrays in/chats.jsonl |
        jq -e '[.input_ids[] | select(. == 7)] | length == 3'
    run ! tokenize --tokenizer model --chat in/chats.jsonl
    [[ $output == *"has pictures; give --images and a folder for them" ]]
    sed 's/<image> //' in/chats.jsonl >in/none.jsonl
    run ! tokenize --tokenizer model --chat --images arrays in/none.jsonl
    [[ $output == *"line 1: '0' tokens for 1 pictures" ]]
}

@test "--images takes the grids of a processor that makes patches" {
    need tokenizers
    need jinja2
    need transformers
    need numpy
    need PIL
    with_images '{"image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": 2, "merge_size": 2, "temporal_patch_size": 2,
        "min_pixels": 32, "max_pixels": 256}'
    echo '{"images": ["cat.ppm", "cat.ppm"], "messages": [{"role": "user",
        "content": "<image> good <image>"}, {"role": "assistant",
        "content": "day"}]}' | jq -c . >in/chats.jsonl
    tokenize --tokenizer model --chat --images arrays in/chats.jsonl \
        >out.jsonl
    n=$(jq '[.images[].grid | .[0] * .[1] * .[2] / 4] | add' out.jsonl)
    [ "$n" -ge 2 ]
    [ "$(jq '.input_ids | map(select(. == 7)) | length' out.jsonl)" = "$n" ]
    pppack -q -l 64 --image-token 7 --merge 2 -o packed out.jsonl
    [ "$(pppack --stats packed | jq -c '[.images, .patches / 4]')" = "[2,$n]" ]
}

# with_audio adds a token and a feature extractor to the model, and clips: a
# tone of 1 kHz for 250 ms and then silence for 155 ms, of one channel and two.
with_audio() {
    jq '.added_tokens += [{"id": 7, "content": "<audio>", "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false,
        "special": true}] | .model.vocab += {"<audio>": 7}' \
        model/tokenizer.json >with && mv with model/tokenizer.json
    echo '{"model_type": "qwen2_5_omni", "thinker_config":
        {"audio_token_index": 7}}' >model/config.json
    echo '{"feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": 20, "sampling_rate": 16000, "hop_length": 160,
        "chunk_length": 1, "n_fft": 400}' >model/preprocessor_config.json
    mkdir -p in
    python3 - <<'END'
import math, struct, wave
import numpy
tone = [0.5 * math.sin(2 * math.pi * 1000 * t / 16000) for t in range(4000)]
tone += [0.0] * 2480
def write(name, form, channels, rate=16000, scale=2**15, add=0):
    with wave.open("in/" + name, "wb") as f:
        f.setnchannels(channels)
        f.setsampwidth(struct.calcsize(form))
        f.setframerate(rate)
        for x in tone:
            f.writeframes(struct.pack(form, int(x * scale) + add) +
                          struct.pack(form, add) * (channels - 1))
write("one.wav", "<h", 1)
write("long.wav", "<i", 1, scale=2**31)
write("short.wav", "<B", 1, scale=2**7, add=128)
write("two.wav", "<h", 2)
write("slow.wav", "<h", 1, rate=8000)
numpy.save("in/tone.npy", numpy.array(tone))
numpy.save("in/many.npy", numpy.zeros(16001))
numpy.save("in/rows.npy", numpy.zeros((2, 9)))
END
}

# chat_with writes a record with those clips, one token for each.
chat_with() {
    jq -nc '{audio: $ARGS.positional, messages: [
        {role: "user", content: ($ARGS.positional | map("<audio>") + ["good"] |
         join(" "))}, {role: "assistant", content: "day"}]}' --args "$@" \
        >in/chats.jsonl
}

@test "--audio makes spectrograms of clips for pppack" {
    need tokenizers
    need jinja2
    need transformers
    need numpy
    with_audio
    chat_with one.wav two.wav tone.npy long.wav short.wav
    tokenize --tokenizer model --chat --audio arrays in/chats.jsonl >out.jsonl
    # 6480 samples are 41 frames, 21 rows and 10 features.
    [ "$(jq -c '[(.input_ids | map(select(. == 7)) | length), .audio[1],
        (.loss_mask | length) - (.input_ids | length)]' out.jsonl)" = \
        '[50,{"features":"arrays/00000001.npy","frames":41},0]' ]
    pppack -q -l 64 --audio-token 7 -o packed out.jsonl
    [ "$(pppack --stats packed | jq -c '[.audio, .patches]')" = '[5,105]' ]
    # The spectrum of Whisper from its definition: squares of a Fourier sum
    # through a triangle of frequencies. Half a tone has a quarter of the power.
    python3 - <<'END'
import cmath, math
import numpy
made = [numpy.load(f"arrays/{i:08}.npy") for i in range(5)]
assert all(a.shape == (20, 43) and a.dtype == numpy.float32 for a in made)
def mel(f):
    return f / (200 / 3) if f < 1000 else 15 + math.log(f / 1000) * 27 / math.log(6.4)
def hertz(m):
    return m * 200 / 3 if m < 15 else 1000 * math.exp((m - 15) * math.log(6.4) / 27)
edges = [hertz(mel(8000) * i / 21) for i in range(22)]
def triangle(i, f):
    a, b, c = edges[i:i + 3]
    return max(0, min((f - a) / (b - a), (c - f) / (c - b))) * 2 / (c - a)
tone = numpy.load("in/tone.npy")
at = 12 * 160
power = [abs(sum(tone[at - 200 + t] * (0.5 - 0.5 * math.cos(2 * math.pi * t / 400))
                 * cmath.exp(-2j * math.pi * k * t / 400) for t in range(400))) ** 2
         for k in range(201)]
want = [math.log10(max(1e-10, sum(p * triangle(i, 40 * k)
                                  for k, p in enumerate(power)))) for i in range(20)]
loud = max(range(20), key=lambda i: want[i])
got = made[2] * 4 - 4
assert abs(got[loud, 12] - want[loud]) < 1e-3, (got[loud, 12], want[loud])
assert numpy.argmax(got[:, 12]) == loud
assert got[loud, 12] - got[loud, 35] > 7.9  # silence is at the floor
assert abs(made[0] - made[2])[loud].max() < 1e-2
assert abs(made[3] - made[2]).max() < 1e-3
assert abs(made[4] - made[2])[loud, :20].max() < 1e-2
quiet = (made[0] - made[1])[loud, 12] * 4
assert abs(quiet - math.log10(4)) < 1e-2, quiet
END
}

@test "--audio refuses what the model does not take" {
    need tokenizers
    need jinja2
    need transformers
    need numpy
    with_audio
    refused() {
        chat_with "$1"
        run -2 --separate-stderr tokenize --tokenizer model --chat \
            --audio arrays in/chats.jsonl
        [ -z "$output" ]
        [ "$stderr" = "tokenize: in/chats.jsonl: line 1: $2" ]
    }
    refused slow.wav "in/slow.wav: has '8000' samples a second, but the model \
takes 16000"
    refused many.npy "in/many.npy: has '16001' samples, but the model takes 16000"
    refused rows.npy "in/rows.npy: must be one row of floating-point samples"
    refused no.wav "in/no.wav: No such file or directory"
    echo 'text that is no wave' >in/text.wav
    refused text.wav "in/text.wav: cannot be read: file does not start with \
RIFF id"
    : >in/text.wav
    refused text.wav "in/text.wav: cannot be read: it ends too early"
    sed 's/<audio> //' in/chats.jsonl >in/none.jsonl
    run -2 --separate-stderr tokenize --tokenizer model --chat --audio arrays \
        in/none.jsonl
    [ "$stderr" = "tokenize: in/none.jsonl: line 1: '0' tokens for 1 clips of \
audio" ]
    run -2 --separate-stderr tokenize --tokenizer model --chat in/chats.jsonl
    [ "$stderr" = "tokenize: in/chats.jsonl: line 1: has clips of audio; give \
--audio and a folder for them" ]
    run -2 --separate-stderr tokenize --tokenizer model --audio arrays in/text
    [ "$stderr" = "tokenize: --audio needs --chat" ]
}

# shown CHAT [OPTION...]: what --show prints of a chat behind its first line,
# with ; for the end of a line.
shown() {
    local chat=$1
    shift
    tokenize --tokenizer model --chat --show 1 "$@" <<<"$chat" 2>notes |
        tail -n +2 | tr '\n' ';'
}

# chatml writes a template like Qwen3's: a list of parts vanishes, thoughts stay
# in the last turn, and calls of tools are JSON.
chatml() {
    cat >chatml.jinja <<'END'
{%- for m in messages %}
    {%- set content = m.content if m.content is string else '' %}
    {{- '<' + m.role + '> ' }}
    {%- if loop.last and m.reasoning_content %}
        {{- '<think> ' + m.reasoning_content + ' </think> ' }}
    {%- endif %}
    {{- content }}
    {%- for call in m.tool_calls or [] %}
        {{- (' ' if content else '') + '<call> ' + call.function.name + ' ' }}
        {{- call.function.arguments | tojson + ' </call>' }}
    {%- endfor %}
    {{- ' <end>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<assistant> ' }}
    {%- if enable_thinking %}{{ '<think> ' }}{% endif %}
{%- endif %}
END
}

@test "--chat scores all that the assistant says, and the token that ends it" {
    need tokenizers
    need jinja2
    chatml
    # A chat, with three names to be replaced, and what is shown.
    local user='{"role":"user","content":"q"}' ok='{"role":"assistant","content":"a"}'
    local call='"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":'
    local chat want n=0
    while IFS='=' read -r chat want; do
        [ -n "$chat" ] || continue
        chat=${chat//USER/$user}
        chat=${chat//OK/$ok}
        chat=${chat//CALL/$call}
        n=$((n + 1))
        echo "$chat"
        shown "$chat" --chat-template chatml.jinja | tee got
        cat notes
        [ "$(<got)" = "$want" ]
    done <<'END'
{"messages":[USER,OK,USER,OK]}=<user> q <end>;<assistant> [[a <end>]];<user> q <end>;<assistant> [[a <end>]];;
{"messages":[USER,{"role":"assistant","content":null,CALL{"x":"y"}}}]},USER]}=<user> q <end>;<assistant> [[<call> f {"x": "y"} </call> <end>]];<user> q <end>;;
{"messages":[USER,{"role":"assistant","content":"b",CALL"{\"x\":1}"}}]}]}=<user> q <end>;<assistant> [[b <call> f {"x": 1} </call> <end>]];;
{"messages":[USER,{"role":"assistant","content":"b","thinking":"t"}]}=<user> q <end>;<assistant> [[<think> t </think> b <end>]];;
{"messages":[USER,{"role":"assistant","content":"b","thinking":"t"},USER,OK]}=<user> q <end>;<assistant> [[b <end>]];<user> q <end>;<assistant> [[a <end>]];;
{"messages":[USER,OK],"chat_template_kwargs":{"enable_thinking":true}}=<user> q <end>;<assistant> [[a <end>]];;
{"messages":[USER,{"role":"assistant","content":[{"type":"text","text":"x"},"y"]}]}=<user> q <end>;<assistant> [[xy <end>]];;
{"messages":[USER,{"role":"assistant","content":"b","train":false},USER,OK]}=<user> q <end>;<assistant> b <end>;<user> q <end>;<assistant> [[a <end>]];;
{"messages":[USER,{"role":"assistant","content":"b","weight":0},USER,OK]}=<user> q <end>;<assistant> b <end>;<user> q <end>;<assistant> [[a <end>]];;
{"system":"s","conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"b"}]}=<system> s <end>;<user> q <end>;<assistant> [[b <end>]];;
{"instruction":"i","output":"o","system":"s","history":[["q","b"]]}=<system> s <end>;<user> q <end>;<assistant> [[b <end>]];<user> i <end>;<assistant> [[o <end>]];;
{"prompt":[USER,OK,USER],"completion":[{"role":"assistant","content":"b"}]}=<user> q <end>;<assistant> a <end>;<user> q <end>;<assistant> [[b <end>]];;
END
    [ "$n" -eq 12 ]
    # A template that ends no turn: texts get the tokenizer's token.
    echo '{% for m in messages %}{{ m.role + ": " + m.content + " " }}{% endfor %}' \
        >open.jinja
    [ "$(shown '{"instruction":"i","output":"o"}' --chat-template open.jinja)" = \
        'user: i assistant: [[o]] [[</s>]];' ]
    [ "$(shown '{"instruction":"i","output":"o"}' --chat-template open.jinja \
        --no-end)" = 'user: i assistant: [[o]] ;' ]
}

@test "--chat notes keys and thoughts that nothing uses" {
    need tokenizers
    need jinja2
    chatml
    local chat='{"id":5,"messages":[{"role":"user","content":"q","n":1},
        {"role":"assistant","content":"a","reasoning":"t"},
        {"role":"user","content":"q"},{"role":"assistant","content":"a"}]}'
    printf '%s\n' "${chat//$'\n'/}" "${chat//$'\n'/}" >chats
    run -0 --separate-stderr tokenize --tokenizer model --chat \
        --chat-template chatml.jinja chats
    echo "$stderr"
    [ "$stderr" = "tokenize: note: not used, with the number of lines: 'id' (2),\
 'n' (2)
tokenize: note: 2 turns of the assistant have 'reasoning' that the chat template\
 does not render" ]
    run -2 --separate-stderr tokenize --tokenizer model --chat --chat-template \
        chatml.jinja <<<'{"messages":[{"role":"assistant","content":"a","weight":0.5}]}'
    [ "$stderr" = "tokenize: -: line 1: '0.5': a 'weight' must be 0 or 1: no\
 objective takes weights of tokens" ]
}

@test "chats have the text of transformers with templates of each form" {
    need tokenizers
    need jinja2
    need transformers
    "$SRCDIR/tests/cli/chat_forms"
}

@test "calls and tools of tables and of JSON in a string are objects" {
    need tokenizers
    need jinja2
    need pyarrow
    chatml
    sed -i '1i {%- for t in tools or [] %}{{ t.function.name }}{% endfor %}' \
        chatml.jinja
    python3 - <<'END'
import json
import pyarrow
import pyarrow.parquet

def row(**arguments):
    call = {"function": {"name": "f", "arguments": arguments}}
    return {"tools": json.dumps([{"function": {"name": "tool"}}]), "messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "tool_calls": [call]}]}

pyarrow.parquet.write_table(pyarrow.Table.from_pylist(
    [row(x="y"), row(n=1)]), "calls.parquet")
END
    tokenize --tokenizer model --chat --show 2 --chat-template chatml.jinja \
        calls.parquet | tee got
    [ "$(grep -v -e --- got | tr '\n' ';')" = \
        'tool<user> q <end>;<assistant> [[<call> f {"x": "y"} </call> <end>]];;'\
'tool<user> q <end>;<assistant> [[<call> f {"n": 1} </call> <end>]];;' ]
}

@test "a prompt and a completion are plain text without a chat template" {
    need tokenizers
    echo '{"eos_token": "</s>"}' >model/tokenizer_config.json
    run -0 --separate-stderr tokenize --tokenizer model --chat \
        <<<'{"prompt":"good","completion":" day"}'
    [ "$output" = '{"input_ids":[0,5,6,1],"loss_mask":[0,0,1,1]}' ]
    run -2 --separate-stderr tokenize --tokenizer model --chat \
        <<<'{"instruction":"good","output":" day"}'
    [ "$stderr" = "tokenize: model/tokenizer_config.json: no 'chat_template';\
 --chat-template names a file with one" ]
}

@test "a note counts texts that have other tokens in transformers" {
    need tokenizers
    mkdir hidden
    cat >hidden/transformers.py <<'END'
class AutoTokenizer:
    def from_pretrained(*args, **options):
        return lambda text, **options: {"input_ids": [0, 5]}
END
    jq '.tokenizer_class = "T"' model/tokenizer_config.json >new
    mv new model/tokenizer_config.json
    printf 'good\nday\nday\n' >text
    PYTHONPATH=hidden run -0 --separate-stderr tokenize --tokenizer model \
        --lines text
    [ "$stderr" = "tokenize: note: 2 of the first 3 texts have other tokens in\
 transformers (function)" ]
}
