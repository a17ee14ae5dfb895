#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# figures - recomputes the ratios in the README, which must say the same.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
}

# says TEXT: the README has it, across line ends too.
says() {
    echo "README: $1"
    tr -s ' \n' ' ' <"$SRCDIR/README.md" | grep -qF -- "$1"
}

# ratio A B: A / B to two digits.
ratio() {
    LC_ALL=C awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f\n", a / b }'
}

@test "splits of other systems take longer" {
    mkdir model
    cat >model/config.json <<'END'
{"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
 "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
 "num_key_value_heads": 8, "hidden_act": "silu",
 "max_position_embeddings": 4096}
END
    step() {
        ppsplit -q -p 8 "$@" model | ppsched -q -s 1f1b -m 32 --stats |
            jq .makespan
    }
    best=$(step -s 1f1b -m 32)
    ppsplit -v -p 8 -s 1f1b -m 32 -o /dev/null model 2>&1 | grep 'gap 0.00 %'
    says "takes $(ratio "$(step --method megatron)" "$best") times as long"
    says "default $(ratio "$(step --method weights)" "$best") times"
    says "\`parameters\` $(ratio "$(step --method parameters)" "$best") times"
}

@test "auto is faster than 1f1b in less memory" {
    ppsched -p 8 -m 24 -s 1f1b --stats >1f1b
    ppsched -p 8 -m 24 -s auto --max-in-flight 6 --stats >six
    ppsched -p 8 -m 24 -s auto --max-in-flight 4 --stats >four
    [ "$(jq '.peak[0]' 1f1b)" = 8 ]
    [ "$(jq .gap six)" = 0 ]
    makespan=$(jq .makespan 1f1b)
    says "$(ratio "$(jq .makespan six)" "$makespan") times the step of 1f1b"
    says "Half of the memory: $(ratio "$(jq .makespan four)" "$makespan") times"
}

@test "packing meets its bound, and other packers need more bins" {
    awk 'function uniform() {
             x = x * 16807 % 2147483647
             return x / 2147483647
         }
         BEGIN {
             x = 1
             for (i = 0; i < 20000; i++) {
                 z = sqrt(-2 * log(uniform())) * cos(6.2831853 * uniform())
                 n = int(exp(6 + z)) + 1
                 print n < 4096 ? n : 4096
             }
         }' >lengths
    pack() {
        pppack -q --lengths -l 4096 "$@" --stats lengths | jq "$field"
    }
    field=.bins
    best=$(pack)
    [ "$(field=.lower_bound pack)" = "$best" ]
    says "capacity 4096: $best bins"
    says "needs $(ratio "$(pack --compat torchtune)" "$best") times as many"
    says "for RL $(ratio "$(pack --compat megatron-rl)" "$best") times"
}

@test "the tests inject as many faults as it says" {
    n=$(grep -oh 'is("[a-z-]*")' "$SRCDIR"/tests/parity/inject*.c | sort -u |
        wc -l)
    says "The tests inject $n faults"
}
