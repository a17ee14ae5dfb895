# SPDX-License-Identifier: MIT
# Functions that the tests of ppsplit share.

# llama LAYERS [VOCAB] [TIED]: prints a configuration without weights.
llama() {
    cat <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": $1,
 "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
 "vocab_size": ${2:-32000}, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "hidden_act": "silu", "max_position_embeddings": 2048,
 "tie_word_embeddings": ${3:-false}}
END
}

# small_llama LENGTH: prints a configuration of 12 layers with 16 heads, for
# sequences of at most LENGTH tokens.
small_llama() {
    cat <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 12,
 "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000,
 "max_position_embeddings": $1}
END
}

# refuses MESSAGE ARGS...: passes if ppsplit exits with 2 and MESSAGE.
refuses() {
    local message=$1
    shift
    run --separate-stderr ppsplit "$@"
    # shellcheck disable=SC2154 # set by run
    echo "$status: $stderr"
    [ "$status" -eq 2 ]
    [ -z "$output" ]
    # shellcheck disable=SC2154
    [ "${stderr_lines[0]}" = "ppsplit: $message" ]
}

# units ARGS...: prints the number of units of each stage, on one line.
units() {
    ppsplit "$@" | jq -c '[.stages[].units | length]'
}

# layers ARGS...: prints the number of decoder layers of each stage of m, on
# one line.
layers() {
    ppsplit "$@" m | jq -c '[.stages[].units | map(select(test("layers")))
        | length]'
}

# makespan KIND M [ARGS...]: prints the makespan that ppsched simulates for a
# run of a plan on standard input or in a file. jq would take longer to start than
# ppsched to answer.
makespan() {
    local kind=$1 m=$2
    shift 2
    ppsched -s "$kind" -m "$m" --depth auto --stats "$@" |
        sed -n 's/^  "at_depth": .*"makespan": \([^,]*\),.*/\1/p'
}

# holds TEXT: returns whether a comparison of numbers is true.
holds() { awk "BEGIN { exit !($1) }"; }

# splits STAGES MODEL: prints every split as names for --fqns, one on a line.
splits() {
    ppsplit -p 1 --export fqns "$2" |
        jq -c --argjson n "$1" '.[0] as $u | ($u | length) as $k
            | def cut($from; $left): if $left == 1 then [[$u[$from:]]] else
                [range($from + 1; $k - $left + 2) as $to
                 | cut($to; $left - 1)[] | [$u[$from:$to]] + .] end;
            cut(0; $n)[]'
}

# least_limit ARGS...: prints the least MiB of --memory that ppsplit ARGS fits
# into.
least_limit() {
    local low=1 high=16384 half
    while [ $((high - low)) -gt 1 ]; do
        half=$(((low + high) / 2))
        if ppsplit -q --memory "${half}M" "$@" >/dev/null 2>&1
        then high=$half; else low=$half; fi
    done
    echo "$high"
}
