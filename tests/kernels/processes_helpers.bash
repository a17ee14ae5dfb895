# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Jobs whose ranks are processes with an emulated device each. The tests also load
# ../parity/helpers.

# Writes a model and packed data for it.
set_up_processes() {
    export PPRUN="$BUILDDIR/tests/kernels/pprun_emulated"
    export PPRUN_NCCL="$BUILDDIR/tests/emulator/libemulated_nccl.so"
    mkdir model
    cat >model/config.json <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4,
 "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
 "vocab_size": 67, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
 "hidden_act": "silu", "max_position_embeddings": 128,
 "attention_bias": false, "initializer_range": 0.1,
 "tie_word_embeddings": true}
END
    data 1 12 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
}

# Finds a free port.
free_port() {
    local port
    for ((port = 20000 + RANDOM % 8000; ; port++)); do
        (exec 9<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}

# launch N ARGS...: starts N ranks. $pids has their processes, out.R and err.R
# their output. $vars is the launcher whose variables are set: srun, mpirun,
# mpiexec or torchrun. $input is a file for standard input, of rank $only or of
# all. $each[R] is a variable of rank R, $dirs[R] an option for its directory.
launch() {
    local n=$1 r in
    shift
    pids=()
    rm -f out.* err.*
    export MASTER_PORT
    MASTER_PORT=$(free_port)
    for ((r = 0; r < n; r++)); do
        in=/dev/null
        [ -z "${only:-}" ] || [ "$only" -eq $r ] && in=${input:-/dev/null}
        case ${vars:-torchrun} in
        torchrun) env="RANK=$r WORLD_SIZE=$n MASTER_ADDR=127.0.0.1" ;;
        srun) env="SLURM_PROCID=$r SLURM_STEP_NUM_TASKS=$n SLURM_LOCALID=$r
            SLURM_STEP_NUM_NODES=1 SLURM_JOB_ID=77 SLURM_STEP_ID=0" ;;
        mpirun) env="OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=$n
            OMPI_COMM_WORLD_LOCAL_SIZE=$n SLURM_PROCID=0
            SLURM_STEP_NUM_TASKS=1" ;;
        mpiexec) env="PMI_RANK=$r PMI_SIZE=$n MASTER_ADDR=localhost" ;;
        esac
        # shellcheck disable=SC2086 # a list; and in place, for the pid
        env ${dirs[r]:-} $env ${each[r]:-} "$PPRUN" --device cuda --transport nccl "$@" \
            <"$in" >out.$r 2>err.$r 3>&- &
        pids+=($!)
    done
}

# Waits for all ranks, and sets $statuses to their exit statuses.
collect() {
    local pid
    statuses=
    for pid in "${pids[@]}"; do
        local rc=0
        wait "$pid" || rc=$?
        statuses+="$rc "
    done
    echo "statuses $statuses"
    grep . err.* || true
}

ranks() { launch "$@" && collect; }

# all STATUS N: N ranks have ended with this status.
all() { [ "$statuses" = "$(printf "$1 %.0s" $(seq "$2"))" ]; }
