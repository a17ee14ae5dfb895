#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The commands of --print-launch.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    mkdir model
    echo '{"model_type": "llama", "vocab_size": 4096, "hidden_size": 64,
     "intermediate_size": 128, "num_hidden_layers": 8, "num_attention_heads": 4,
     "num_key_value_heads": 4, "hidden_act": "silu",
     "max_position_embeddings": 512}' >model/config.json
    plan() { ppsplit -q "$@" model | ppsched -q -s 1f1b -m 4; }
    plan -p 2 --tp 2 >plain.json
    plan -p 2 --tp 4 --dp 2 --gpu h100 >"two nodes.json"
    plan -p 2 --tp 2 --gpu h100 >part.json
    plan -p 3 --tp 4 --gpu h100 >odd.json
}

setup() {
    cd "$BATS_FILE_TMPDIR"
}

# prints WORDS... : of --print-launch with the arguments.
prints() {
    run -0 pprun --print-launch "${@:2}"
    echo "$output"
    [ "$output" = "$1" ]
}

@test "ranks lie on the nodes of the machine" {
    prints "srun --nodes=2 --ntasks-per-node=8 --ntasks=16 --gpus-per-node=8 \
pprun --transport nccl --device cuda 'two nodes.json'" \
        srun --device cuda 'two nodes.json'
    prints "mpirun -n 16 --map-by ppr:8:node \
pprun --transport mpi 'two nodes.json'" mpirun 'two nodes.json'
    prints "srun --nodes=1 --ntasks-per-node=4 --ntasks=4 --gpus-per-node=4 \
pprun --transport nccl --device cuda part.json" srun --device cuda part.json
    prints "sbatch --nodes=2 --ntasks-per-node=8 --ntasks=12 --gpus-per-node=8 \
scripts/train-gpus.sbatch --device cuda odd.json" sbatch --device cuda odd.json
}

@test "without a machine there is only the number of ranks" {
    prints 'srun --mpi=pmix --ntasks=4 pprun --transport mpi plain.json' \
        srun plain.json
    prints "sbatch --ntasks=4 --gpus-per-task=1 \
scripts/train-gpus.sbatch --device cuda plain.json" sbatch --device cuda plain.json
}

@test "torchrun needs GPUs and full nodes" {
    prints "torchrun --nnodes=2 --node-rank=\"\$NODE_RANK\" \
--master-addr=\"\$MASTER_ADDR\" --nproc-per-node=8 --no-python \
pprun --transport nccl --device cuda 'two nodes.json'" \
        torchrun --device cuda 'two nodes.json'
    prints "torchrun --standalone --nproc-per-node=4 --no-python \
pprun --transport nccl --device cuda part.json" torchrun --device cuda part.json
    run -2 pprun --print-launch torchrun part.json
    [[ "$output" = *'needs --device cuda'* ]]
    run -2 pprun --print-launch torchrun --device cuda odd.json
    [[ "$output" = *'odd.json: 12 ranks do not fill nodes of 8'* ]]
}

@test "other options are passed on, however the option is spelt" {
    for option in '--print-launch mpirun' --print-launch=mpirun --print-l=mpirun; do
        # shellcheck disable=SC2086 # words
        run -0 pprun --data 'a b' $option --steps 3 plain.json
        [ "$output" = \
            "mpirun -n 4 pprun --transport mpi --data 'a b' --steps 3 plain.json" ]
    done
    run -2 pprun --print-launch srun --steps 3 <plain.json
    [[ "$output" = *'give the plan as a file'* ]]
}

@test "the file of --output is for the run" {
    echo kept >steps.jsonl
    prints 'mpirun -n 4 pprun --transport mpi -o steps.jsonl plain.json' \
        mpirun -o steps.jsonl plain.json
    [ "$(cat steps.jsonl)" = kept ]
    run -3 bash -c 'pprun --print-launch srun plain.json >/dev/full'
    [ "$output" = 'pprun: writing standard output failed: No space left on device' ]
}

# The printed command really starts the ranks.
@test "mpirun starts what is printed" {
    needs_mpirun
    seq 40 | jq -c '{input_ids: [range(. % 9 + 4)]}' |
        pppack -q -l 64 --tp 2 --bins-multiple 4 -o data
    launch=$(pprun --print-launch mpirun --data data --init 1 --steps 1 plain.json)
    run -0 --separate-stderr bash -c "${launch/mpirun/mpirun --allow-run-as-root --oversubscribe}"
    [ "$(jq .step <<<"$output")" = 1 ]
}
