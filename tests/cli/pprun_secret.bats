#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The secret of a job whose ranks are processes, and --join-timeout. The ranks
# have a launcher's variables but no launcher, so they end when they have joined:
# MPI does not know them.

bats_require_minimum_version 1.5.0
load ../parity/helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    model llama true
    data 1 12 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 2 >two.json
    (umask 077 && echo 'a secret of thirty bytes or so' >secret)
    (umask 077 && echo 'short' >short)
    cp secret readable
    chmod 644 readable
}

setup() {
    [[ "$(pprun -V)" == *'transports: threads mpi'* ]] ||
        skip 'this pprun was built without MPI'
    cd "$BATS_FILE_TMPDIR"
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
}

# rank R [NAME=VALUE...] ARGS...: runs a rank of two. Its messages go to err.R
# without their prefix, its status to status.R. MPI has a directory of its own
# (needs_mpirun).
rank() {
    local r=$1 vars=() status=0
    shift
    while [[ "$1" == *=* ]]; do
        vars+=("$1")
        shift
    done
    mkdir -p mpi.$r
    env RANK="$r" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" \
        OMPI_MCA_orte_tmpdir_base="$PWD/mpi.$r" "${vars[@]}" \
        pprun --transport mpi two.json --data packed --init 1 --steps 1 "$@" \
        >out.$r 2>message.$r </dev/null 3>&- || status=$?
    echo $status >status.$r
    sed 's/^pprun[^ ]* [^ ]*: //' message.$r >err.$r
}

# both STATUS STATUS: the statuses of the ranks that have run.
both() {
    wait
    grep . message.?
    [ "$(cat status.0 status.1)" = "$1
$2" ]
}

joined='rank 0 of 2 is rank 0 of 1 in MPI: *'

free_port() { port=$((15000 + (RANDOM + $$) % 9000)); }

@test "a name that no machine has is refused, and MASTER_ADDR named" {
    free_port
    # Slurm's own name of a node, which the resolver does not know.
    rank 0 MASTER_ADDR=n1.invalid
    rank 1 MASTER_ADDR=n1.invalid
    both 2 2
    [[ "$(<err.1)" == "'n1.invalid' is not an address: "*"; set MASTER_ADDR to \
the address of rank 0's machine" ]]
}

@test "ranks with the same secret join" {
    free_port
    rank 0 --secret-file secret &
    rank 1 --secret-file secret &
    both 2 2
    # shellcheck disable=SC2053
    [[ "$(cat err.0 err.1)" == $joined ]]
}

@test "a rank with another secret does not join" {
    free_port
    rank 0 --join-timeout 6 --secret-file secret &
    rank 1 PPRUN_SECRET='another one of thirty bytes ..' --join-timeout 3 &
    both 3 2
    [ "$(cat err.0)" = '1 of 2 ranks did not join in time, for example rank 1; '\
'other programs connected, or ranks of another job or with another secret' ]
    [ "$(cat err.1)" = "rank 0 at 127.0.0.1:$port is of another job, or has \
another secret" ]
}

@test "a file that is no secret" {
    free_port
    for file in readable short nosuch .; do
        rank 0 --secret-file $file &
        rank 1 --secret-file $file &
        both 2 2
        sort -u err.0 err.1 >err
        case $file in
        readable) want="other users have access to this secret; use chmod 600" ;;
        short) want="a secret has at least 16 bytes, not 5" ;;
        nosuch) want='No such file or directory' ;;
        .) want='is not a file' ;;
        esac
        [ "$(cat err)" = "$file: $want" ]
    done
}

@test "another program at the port, and --join-timeout" {
    free_port
    rank 1 --join-timeout 1
    [ "$(cat status.1)" -eq 3 ]
    [ "$(cat err.1)" = "rank 0 does not answer at 127.0.0.1:$port: Connection \
refused" ]
}

@test "a rank that cannot start proves that it belongs to the job" {
    free_port
    rank 0 --secret-file secret -o nosuch/log &
    rank 1 --secret-file secret -o nosuch/log &
    both 3 3
    [ "$(cat err.0)" = 'nosuch/log: No such file or directory' ]
    [ ! -s err.1 ]
    # This one does not know its number.
    rank 0 PPRUN_SECRET='a secret of thirty bytes or so' -q &
    rank 1 PPRUN_SECRET='a secret of thirty bytes or so' LOCAL_RANK=x -q &
    both 2 2
    [[ "$(cat err.0)" == "rank 1 on $(hostname) cannot start: LOCAL_RANK: 'x' "* ]]
}
