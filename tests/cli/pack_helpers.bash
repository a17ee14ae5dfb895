# SPDX-License-Identifier: MIT
# Functions that the tests of pppack share.

setup() {
    cd "$BATS_TEST_TMPDIR" || return
}

# documents LENGTH...: prints a document of consecutive ids for each length.
documents() {
    jq -nc '$ARGS.positional[] | tonumber | {input_ids: [range(.) | . + 1]}' \
        --args "$@"
}

# lengths N...: writes a file of lengths.
lengths() {
    printf '%s\n' "$@" >lengths
}

# little BYTES NUMBER...: prints the numbers in little endian.
little() {
    local bytes=$1 n i
    shift
    for n; do
        for ((i = 0; i < bytes; i++)); do
            printf "\\x$(printf %02x $((n >> 8 * i & 255)))"
        done
    done
}

# nothing_left: fails if a half-written directory is left.
nothing_left() {
    [ -z "$(find . -name '*.tmp')" ]
}

# refused MESSAGE ARGUMENT...: expects status 2, that message and no output.
refused() {
    local want=$1
    shift
    run --separate-stderr pppack "$@"
    # shellcheck disable=SC2154 # set by run
    echo "$status: $stderr"
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    # shellcheck disable=SC2154
    [ "${stderr_lines[0]}" = "pppack: $want" ]
    nothing_left
}
