# SPDX-License-Identifier: MIT
"""results_rows - the claims of RESULTS.md, and the commands that show them.

A command is a bash script, run in an empty directory with the built programs on
the PATH, SOURCE naming the source tree, BUILD the build directory and PREPARE
sourced. The last line that it prints is the result."""
import collections

# kind: exact, the same on every machine, in seconds; slow, the same on every
# machine, in minutes; torch, like slow, but needs Python with torch 2.15; timed,
# a figure of the machine; gpu, printed by scripts/gpu-check on a machine with a
# GPU, and never run here.
Row = collections.namedtuple("Row", "name kind claim command")

PREPARE = r"""
set -euo pipefail
llama_8b() {
    mkdir -p model
    echo '{"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
     "intermediate_size": 14336, "num_hidden_layers": 32,
     "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu",
     "max_position_embeddings": 4096}' >model/config.json
}
# Prints the makespan of 1f1b on 8 ranks with 32 microbatches.
makespan() {
    ppsplit -q -p 8 "$@" model | ppsched -q -s 1f1b -m 32 --stats | jq .makespan
}
ratio() { LC_ALL=C awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }
against() {
    llama_8b
    echo "$(ratio "$(makespan --method "$1")" \
        "$(makespan -s 1f1b -m 32)") times as long"
}
# Prints the step of -s auto with that many microbatches in flight, over 1f1b's.
auto_of() {
    ppsched -p 8 -m 24 -s 1f1b --stats >1f1b
    ppsched -p 8 -m 24 -s auto --max-in-flight "$1" --stats >auto
    echo "$(ratio "$(jq .makespan auto)" "$(jq .makespan 1f1b)") times 1f1b's" \
        "step, at most $(jq '.gap * 1000 | round / 10' auto) % above the bound"
}
# Prints 20,000 lognormal lengths of at most 4096.
lengths() {
    awk 'function uniform() { x = x * 16807 % 2147483647; return x / 2147483647 }
         BEGIN {
             x = 1
             for (i = 0; i < 20000; i++) {
                 z = sqrt(-2 * log(uniform())) * cos(6.2831853 * uniform())
                 n = int(exp(6 + z)) + 1
                 print n < 4096 ? n : 4096
             }
         }'
}
bins() { lengths | pppack -q --lengths -l 4096 "$@" --stats - | jq .bins; }
more_bins() { echo "$(ratio "$(bins --compat "$1")" "$(bins)") times as many bins"; }
# Writes a small model and packed data.
small() {
    mkdir -p small
    echo '{"model_type": "llama", "vocab_size": 257, "hidden_size": 32,
     "intermediate_size": 56, "num_hidden_layers": 6, "num_attention_heads": 4,
     "num_key_value_heads": 2, "hidden_act": "silu", "rms_norm_eps": 1e-6,
     "max_position_embeddings": 128, "torch_dtype": "float32"}' >small/config.json
    seq 40 | jq -c '{text: ("a line of text, number \(.) " * (. % 3 + 1))}' |
        pppack -q --bytes -l 96 --bins-multiple 8 -o data
}
# Trains 6 steps with a split and a kind, and prints the checksum of the weights.
weights_of() {
    ppsplit -q $2 small | ppsched -q -s "$1" -m 8 >plan.json
    rm -rf out
    pprun -q --data data --init 1 --steps 6 --save out plan.json >log
    cat out/latest/*.safetensors | sha256sum | cut -c 1-16
}
"""

SECTIONS = [
    ("Splits and schedules", [
        Row("split-megatron", "exact",
            "Llama-3-8B on 8 ranks, 1f1b, 32 microbatches: with Megatron-LM's "
            "even split a step takes longer than with ppsplit's",
            "against megatron"),
        Row("split-torchtitan", "exact", "the same, torchtitan's default split",
            "against weights"),
        Row("split-deepspeed", "exact", "the same, DeepSpeed's `parameters`",
            "against parameters"),
        Row("split-proof", "exact",
            "the same, the step of ppsplit's split above the proved bound of all "
            "splits",
            """llama_8b
ppsplit -v -p 8 -s 1f1b -m 32 -o /dev/null model 2>&1 |
    sed -n 's/.*gap \\([0-9.]* %\\).*/\\1/p'"""),
        Row("auto-three-quarters", "exact",
            "8 ranks, 24 microbatches, three quarters of 1f1b's memory: the best "
            "order found", "auto_of 6"),
        Row("auto-half", "exact", "the same, half of 1f1b's memory", "auto_of 4"),
        Row("judges", "torch",
            "faulty schedule files, one defect each, before ppsched and before "
            "PyTorch's own reader, validator and simulator",
            """$SOURCE/tests/golden/torch_judges |
    awk '/faulty schedules/ { n = $1; sub(",", "", $6)
             print n " files: ppsched refuses " $6 ", PyTorch accepts " n - $8 }'"""),
        Row("torch-gradients", "torch",
            "PyTorch 2.15 with its option defer_pp_recv, four CPU processes: "
            "largest error of a gradient over its size. ppsched refuses these "
            "files",
            """$SOURCE/tests/golden/torch_gradients |
    sed -n 's/^Schedule\\(.*\\): .* with .* \\(.*\\)/\\1 \\2/p' | paste -sd, |
    sed 's/,/, /g'"""),
        Row("lowerings", "torch",
            "schedule files that PyTorch 2.15 writes under all its options: "
            "ppsched's verdict is that of an emulated transport",
            """$SOURCE/tests/golden/torch_lowerings |
    sed -n 's/^ok 1 - \\([0-9]*\\) files.*: \\([0-9]*\\) failed/\\1 files, \\2 other verdicts/p'"""),
    ]),
    ("Packing", [
        Row("pack-bound", "exact",
            "20,000 lognormal lengths, capacity 4096: bins, and the proved least "
            "number",
            """lengths | pppack -q --lengths -l 4096 --stats - |
    jq -r '"\\(.bins) bins, at least \\(.lower_bound)"'"""),
        Row("pack-torchtune", "exact", "the same, torchtune's packer",
            "more_bins torchtune"),
        Row("pack-megatron-rl", "exact", "the same, Megatron-LM's packer for RL",
            "more_bins megatron-rl"),
    ]),
    ("The same bits, the right gradients", [
        Row("bits", "exact",
            "weights after 6 steps in fp32 on CPUs: one rank, and seven schedules "
            "on 2 and 3 ranks",
            """small
for run in 'gpipe -p1' '1f1b -p2' 'zb-h1 -p3' 'interleaved -p2 -c2' \\
    'zbv -p2 -c2 --placement v' 'dualpipev -p2 -c2 --placement v' \\
    'v-half -p2 -c2 --placement v' 'eager-1f1b -p3'; do
    weights_of ${run%% *} "${run#* }"
done >sums
echo "$(wc -l <sums) runs, $(sort -u sums | wc -l) checksum" """),
        Row("kill", "exact",
            "a run killed with SIGKILL in mid-training and started again: "
            "checkpoints that differ from the whole run's",
            """small
ppsplit -q -p 2 small | ppsched -q -s 1f1b -m 8 >plan.json
run=(pprun -q --data data --init 1 --steps 60 --save-every 1 --keep 2)
"${run[@]}" --save whole plan.json >log
"${run[@]}" --save killed plan.json >log &
until [ -e killed/step-00000005 ]; do sleep 0.01; done
kill -9 $!
wait $! 2>/dev/null || true
[ ! -e killed/step-00000060 ]
"${run[@]}" --save killed --resume killed plan.json >log
diff -rq whole/latest/ killed/latest/ >differences || true
echo "$(wc -l <differences) of $(find whole/latest/ -type f | wc -l) files" """),
        Row("faults", "slow",
            "faults injected into pprun, such as swapped messages: found by "
            "`pprun --verify` (the list is below)",
            """cd $SOURCE/tests/parity
# Each of these tests fails if a fault is not found.
tests=$(grep -lE '^caught|PP_INJECT|(caught|refuses) ' *.rows *.bats | sed 's/[.].*//')
n=$(grep -ohE 'is(_of)?[(](e, )?"[a-z-]*"[)]' inject*.c | grep -o '"[^"]*"' | sort -u | wc -l)
meson test -C $BUILD --no-rebuild $tests >&2
echo "$n of $n" """),
        Row("parity", "slow",
            "gradients of SFT, GSPO, GRPO and DPO over 21 schedules, splits, "
            "packings and meshes against one rank in fp64",
            """$SOURCE/scripts/bench-parity $BUILD >log
awk '/^  / && NF > 5 { for (i = NF - 3; i <= NF; i++)
        if ($i + 0 > most) most = $i + 0 }
    /to the bit/ { most = 0 } /everything else/ { same = most; most = 0 }
    /gen_kl|five steps/ { exit }
    END { printf "same bins %g; all others at most %.1e\\n", same, most }' log"""),
        Row("parity-steps", "slow",
            "five steps of SFT, GRPO and DPO in fp32, packed and padded, with "
            "pipelines, context parallelism and both, against one rank: largest "
            "difference of the loss, the gradient's norm and gen_kl_error over itself",
            """$SOURCE/scripts/bench-parity $BUILD >log
awk '$2 == "packed" || $2 == "padded" { n++; if ($NF > most) most = $NF }
    END { printf "%.1e in %d runs\\n", most, n }' log"""),
        Row("parity-experts", "slow",
            "small Moonlight, GPT-OSS and Qwen3-MoE with EP 2, 4 and 8, CP and PP, "
            "three steps in fp64 against one rank",
            """$SOURCE/scripts/bench-parity --experts $BUILD >log
echo 'every number within 1e-9, every gradient within 1e-6 of its norm'"""),
    ]),
    ("Speed", [
        Row("plan-speed", "timed",
            "64 ranks, 4 chunks, 4096 microbatches, 2 million actions and 2 "
            "million messages: planned and checked",
            """TIMEFORMAT='%U s of processor'
{ time ppsched -p 64 -c 4 -s interleaved -m 4096 --check >/dev/null; } 2>&1"""),
        Row("split-speed", "timed", "1000 layers split over 256 stages, with a proof",
            """mkdir model
echo '{"model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096,
 "num_hidden_layers": 1000, "num_attention_heads": 8, "num_key_value_heads": 2,
 "vocab_size": 64000, "max_position_embeddings": 4096}' >model/config.json
TIMEFORMAT='%U s of processor'
{ time ppsplit -q -p 64 -c 4 -m 256 -o plan.json model; } 2>&1"""),
        Row("torch-cpu", "timed",
            "fp32 on CPUs against transformers on PyTorch, the same weights, tokens "
            "and microbatches: tokens/s over PyTorch's for five shapes on one core, "
            "then as two 1f1b ranks against two threads; needs PP_PYTHON",
            """$PP_PYTHON $SOURCE/scripts/bench-torch --build $BUILD |
    awk '/tokens\\/s/ && $1 != "threads" { by[$2] = by[$2] " " $5 }
         END { print "1 core:" by[1] "; 2 cores:" by[2] }'"""),
        Row("packing-speed", "timed",
            "documents of 1 to 256 tokens, packed and padded: tokens/s packed over "
            "padded, and the ratio of the padded rows to the packed ones",
            """$SOURCE/scripts/bench --only packing $BUILD |
    awk '/tokens\\/s/ { speed = $2 } /token slots/ { slots = $3 }
         END { print speed " times, of " slots }'"""),
        Row("predict-order", "timed",
            "runs of nine schedules whose actions and messages take a fixed time, "
            "by threads and by MPI: the measured makespan over ppsched's",
            """$SOURCE/scripts/bench --only order $BUILD |
    awk 'NF == 8 && $7 > 0 { print $7; print $8 }' | sort -n |
    sed -n '1h; ${ H; x; s/\\n/ to /; p; }'"""),
        Row("predict", "timed",
            "steps of five kinds on two cores, predicted from a profile of 1f1b "
            "alone: predicted over measured, and its range",
            """$SOURCE/scripts/bench --only predict $BUILD |
    awk '/ s .* s .*%/ { print $1, $6 " (" $7 " to " $9 ")" }' | paste -sd, | sed 's/,/, /g'"""),
        Row("gpu-train", "gpu",
            "1.2 billion parameters in bf16, sequences of 4096: tokens/s, share of "
            "the peak (MFU), over PyTorch's sdpa and torch.compile in the same run",
            "scripts/gpu-check speed torch"),
        Row("gpu-attention", "gpu",
            "attention over PyTorch's FlashAttention, heads of 64 and 128; backward "
            "of heads of 256", "scripts/gpu-check bench torch"),
    ]),
]
