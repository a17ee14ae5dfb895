#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# tools - tests the table of options that all programs share:
# synonyms, sizes, hints for mistakes, --help, and shell completion.

bats_require_minimum_version 1.5.0

TOOLS='ppmesh ppsplit ppsched pppack pprun ppscore'

setup() {
    cd "$BATS_TEST_TMPDIR"
}

# fails MESSAGE TOOL ARGS...: status 2, the message, and a pointer to --help.
fails() {
    local message=$1 tool=$2
    shift
    run --separate-stderr "$@" </dev/null
    echo "$stderr"
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    [ "$stderr" = "$tool: $message
try '$tool --help'" ]
}

# notes NOTE TOOL ARGS...: with -v the note is on stderr, without it is not.
notes() {
    local note=$1
    shift
    "$@" >plain 2>err </dev/null || true
    run ! grep -qF -- "$note" err
    "$@" -v >verbose 2>err </dev/null || true
    cat err
    grep -qxF -- "$1: $note" err
}

model() {
    cp -r "$SRCDIR/tests/golden/llama/model" m
}

@test "an unknown option and the one that was meant" {
    fails "unknown option '--memroy'; did you mean '--memory'?" \
        ppsplit --memroy=80G
    fails "unknown option '--Timeline'; did you mean '--timeline'?" \
        ppsched -p 2 --Timeline
    fails "unknown option '--micro-batches'; did you mean '--microbatches'?" \
        ppsched --micro-batches 8
    fails "unknown option '--oversized'; did you mean '--oversize'?" \
        pppack --oversized drop
    # Nothing resembles these. The second is longer than any name.
    fails "unknown option '--num-layers'" pprun --num-layers 4
    long=$(printf 'x%.0s' {1..200})
    fails "unknown option '--${long:0:39}'" pprun "--$long"
    fails "unknown option '-X'" pppack -X
}

@test "options of other systems that are not accepted" {
    fails "unknown option '--bf16'; did you mean '--dtype bf16'?" pprun --bf16
    fails "unknown option '--micro-batch-size'; did you mean \
'--capacity TOKENS'?" pppack --micro-batch-size 1
    fails "--global-batch needs -s or --import" ppsched --global-batch-size 64
    fails "unknown option '--recompute-activations'; did you mean \
'--recompute selective'?" ppsplit --recompute-activations
    fails "unknown option '--max-length'; did you mean '--capacity TOKENS'?" \
        pppack --max-length 4096
    fails "unknown option '--learning_rate'; did you mean '--lr'?" \
        pprun --learning_rate 1
}

@test "options that are cut short or have too much" {
    fails "option '--st' could be any of: --step, --stats" ppsched --st
    fails "option '--check' takes no argument" ppsched --check=plan.json
    fails "option '--timel' takes no argument" ppsched --timel=1
    fails "option '--steps' needs an argument" pprun --steps
    ppsched --vers | grep -q '^ppsched'
}

@test "names and words of other systems are accepted" {
    model
    ppsplit -p 2 -c 2 --tp 2 --seq-len 64 -t m >want
    ppsplit --pp 2 --vpp 2 --tp-size 2 --seq-length 64 -t m | diff want -
    ppsplit --pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 \
        --num-virtual-stages-per-pipeline-rank 2 --seq-len 64 -t m | diff want -
    ppsplit -p 2 --dtype bf16 -s 1f1b -t m >want
    ppsplit -p 2 --dtype bfloat16 --schedule 1F1B -t m | diff want -
    ppsched -p 2 -s zbv -m 4 --stats >want
    ppsched --pp 2 -s ZBV -m 4 --stats | diff want -
    ppsched -p 2 -s ZBVZeroBubble -m 4 --stats | diff want -
    [ "$(ppsched -p 2 -c 2 -m 4 -s Interleaved1F1B --stats | jq -r .kind)" = \
        interleaved ]
    ppsched -p 2 -m 4 --compare ZBV,1F1B | grep -q '^1f1b '
    fails "--lr needs --steps" pprun --learning-rate 1e-3
    fails "--dtype: 'fp16' is not one of: fp32, fp64, bf16, bf16-grads, \
bf16-moments, bf16-state" \
        ppsplit -p 2 --dtype fp16 m
}

@test "sizes have units" {
    model
    for size in 1024M 1024m 1G 1g 1GiB 1gib 1.0G 1048576K 1073741824B; do
        ppsplit -p 2 --memory $size -t m >$size
        cmp 1024M $size
    done
    run --separate-stderr ppsplit -p 2 --memory 10KB m
    [[ "$stderr" == *'limit of 9.77 KiB'* ]]
    run --separate-stderr ppsplit -p 2 --memory 10K m
    [[ "$stderr" == *'limit of 10.00 KiB'* ]]
    for size in G 1.5 1KBit -1G 1E ''; do
        run --separate-stderr ppsplit -p 2 --memory "$size" m
        [ "$status" -eq 2 ]
        [ "$stderr" = "ppsplit: --memory: '$size' is not a size (such as \
80GiB, 80G or 512M)" ]
    done
    fails "--memory: '0G' must be positive" pprun --print-memory --memory 0G
    run --separate-stderr ppsplit -p 2 --seq-len 4KB m
    [ "$stderr" = "ppsplit: --seq-len: '4KB' is not a count (such as 4096 or \
4K)" ]
}

@test "a bare --memory is in bytes, with a note under -v" {
    model
    notes '--memory 1073741824 is in bytes; give a unit, such as 1073741824G' \
        ppsplit -p 2 --memory 1073741824 -t m
    ppsplit -p 2 --memory 1G -t m | diff plain -
    run -1 ppsched -q -p 4 -s 1f1b -m 8 --max-in-flight 3
    run -0 ppsched -q -p 4 -s 1f1b -m 8 --max-in-flight 4
    fails '--max-in-flight and --memory exclude each other' \
        ppsched -p 2 -s 1f1b -m 4 --memory 3 --max-in-flight 3
    run --separate-stderr pprun --max-in-flight 0
    [ "$stderr" = "pprun: --max-in-flight: '0' is not between 1 and 2147483647" ]
}

# refuses MESSAGE TOOL ARGS...: the same without the pointer to --help.
refuses() {
    local message=$1
    shift
    run --separate-stderr "$@" </dev/null
    echo "$stderr"
    [ "$status" -eq 2 ]
    [ "$stderr" = "$1: $message" ]
}

@test "numbers outside the range of an option, which the message names" {
    model
    local betas eps
    for betas in 1,1 0.9,1.0 -0.1,0.9 0.9 0.9,0.9,0.9; do
        refuses "--betas: '$betas' must be two numbers, at least 0 and below 1,\
 such as 0.9,0.999" pprun --steps 1 --betas=$betas
    done
    for eps in 0 -0 1e-50; do
        refuses "--eps: '$eps' is not between 1e-37 and 1e+06" \
            pprun --steps 1 --eps=$eps
    done
    refuses "--lr: '0x1' is not a finite number" pprun --steps 1 --lr 0x1
    refuses "--comm: '' is not a finite number" \
        ppsched -p 2 -s 1f1b -m 4 --comm 1,
    echo 8 >lengths
    refuses "--split: '' is not a finite number" \
        pppack -l 8 --split 1, -o packed --lengths lengths
    refuses "--flops: '1e-320' is not between 1 and 1e+30" \
        ppsplit -p 2 --flops 1e-320 m
}

@test "options that need or exclude others" {
    fails '--lenient needs --import' ppsched --lenient --check
    fails '--dialect needs --import or --export csv-comms' \
        ppsched --dialect pytorch --check
    fails '-m needs -s or --import' ppsched -m 4 --check
    fails '--group needs -s interleaved' ppsched -s 1f1b -m 4 --group 2
    fails '--stages needs --method weights or automodel' \
        ppsplit -p 2 --stages multi m
    fails '--round needs --layers-per-stage' \
        ppsplit -p 2 --method automodel --round up m
    fails '--betas needs --optimizer adamw' \
        pprun --steps 1 --optimizer sgd --betas 0.9,0.9
    fails '--init and --weights exclude each other' \
        pprun --steps 1 --init 1 --weights w
    fails '--rows and --balance tokens exclude each other' \
        pppack -l 8 -a none --rows 2 --balance tokens
    # --list ignores other options.
    ppsched --list --lenient | grep -q '^1f1b '
}

@test "--help is grouped and fits 80 columns" {
    for tool in $TOOLS; do
        "$tool" --help all >help
        [ -z "$(awk 'length > 80' help)" ]
        [ "$(grep -c '^[A-Z][A-Za-z, ()-]*:$' help)" -ge 5 ]
        [ "$(grep '^[A-Z][A-Za-z, ()-]*:$' help | tail -n 2 | xargs)" = \
            'Output: General:' ]
        # Every option is described.
        [ -z "$(grep -E '^  +-' help | grep -vE '^.{30}[a-zA-Z1-9]' |
            awk 'length <= 30')" ]
    done
}

@test "--help shows everyday options, --help GROUP a group" {
    for tool in $TOOLS; do
        "$tool" --help >help
        [ "$(wc -l <help)" -le 42 ]
        grep -qx 'Everyday options:' help
        [ "$(grep -c '^ \{2,6\}-' help)" -ge 15 ]
        # A group's options are those in --help all, and it has a first word.
        "$tool" --help all >all
        sed -n '/^Memory:$\|^Bins:$/,/^$/p' all >want
        "$tool" --help "$(head -n 1 want | tr -d : | tr 'MB' 'mb')" >group
        sed -n '/^Memory:$\|^Bins:$/,/^$/p' group | diff want -
        [ "$(grep -c '^[A-Z][A-Za-z]*:$' group)" -eq 1 ]
        "$tool" --help=output | grep -qx 'Output:'
        "$tool" -h output | grep -qx 'Output:'
        fails "--help: 'chips' is neither a group of options nor all" \
            "$tool" "$tool" --help chips
        # Another option that follows is not a group.
        "$tool" --help --verbose | diff help -
    done
}

@test "the sequence length of a plan travels in the manifest" {
    model
    most=$(jq .max_position_embeddings m/config.json)
    [ "$(ppsplit -p 2 m | jq .microbatch.seq_len)" = "$most" ]
    ppsplit -p 2 --seq-len 32 m >split.json
    ppsched -s 1f1b -m 4 split.json | jq -e '.microbatch.seq_len == 32'
    ppsched -s 1f1b -m 4 --seq-len 16 split.json >plan.json
    jq -e '.microbatch == {tokens: 16, seq_len: 16}' plan.json
    ppsched --stats --seq-len 16 split.json -s 1f1b -m 4 >want
    ppsched --stats plan.json | diff want -
}

# completes WANT WORD...: bash completes the last word to WANT.
completes() {
    local want=$1
    shift
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    "_$1"
    echo "${COMPREPLY[*]}"
    [ "${COMPREPLY[*]}" = "$want" ]
}

@test "bash completes options and their words" {
    for tool in $TOOLS; do
        # shellcheck disable=SC1090
        . <("$tool" --completion bash)
    done
    completes '--memory --microbatches --minimize --max-in-flight' ppsched --m ||
        completes '--microbatches --minimize --memory --max-in-flight' \
            ppsched --m
    completes 'zb-h1 zb-h2 zb-interleaved zbv' ppsched -s zb
    completes 'zb-h1 zb-h2 zb-interleaved zbv' ppsplit --schedule = zb
    completes 'fp32 fp64 bf16' pprun --dtype ''
    completes 'fp32 fp64 bf16' pprun --dtype =
    completes '' pprun --steps ''
    completes '--dp' pppack --dp
    # Former names are not offered.
    completes '--print-metadata-hash --print-launch --print-memory' pprun --pri
    completes '--profile' pprun --pro
    mkdir data && touch data.jsonl
    completes 'data' pprun --data da
    completes 'data data.jsonl' pppack -l 8 da ||
        completes 'data.jsonl data' pppack -l 8 da
}

@test "zsh and fish accept their completions" {
    for tool in $TOOLS; do
        "$tool" --completion zsh >"_$tool"
        head -n 1 "_$tool" | grep -qx "#compdef $tool"
        "$tool" --completion fish >"$tool.fish"
        run ! grep -v "^complete -c $tool " "$tool.fish"
        ! command -v zsh || zsh -n "_$tool"
        ! command -v fish || fish -n "$tool.fish"
    done
    ! command -v fish || [ "$(fish -c 'source ppsched.fish
        complete -C "ppsched --dialect "' | cut -f 1 | sort | xargs)" = \
        'no-wait pytorch' ]
    fails "--completion: 'tcsh' is not one of: bash, zsh, fish" \
        pppack --completion tcsh
}
