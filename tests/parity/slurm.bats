#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# slurm - jobs on a real Slurm cluster of three nodes on this machine: whatever
# ends a job or a node, the job goes on to the weights of one process. Slow.

bats_require_minimum_version 1.5.0
load helpers

# cluster DIR: starts a controller and the nodes n1 to n3, and waits for them.
cluster() {
    local name port=$((20000 + RANDOM % 4000))
    mkdir -p "$1"/{state,spool,log,run,tmp/n1,tmp/n2,tmp/n3}
    cat >"$1/slurm.conf" <<END
ClusterName=pp
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
SlurmctldPort=$port
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool/%n
SlurmctldPidFile=$1/run/slurmctld.pid
SlurmdPidFile=$1/run/slurmd.%n.pid
SlurmctldLogFile=$1/log/slurmctld.log
SlurmdLogFile=$1/log/slurmd.%n.log
TmpFS=$1/tmp/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=1,batch_sched_delay=0,sched_interval=1,bf_interval=1
SlurmdTimeout=5
SlurmctldTimeout=5
KillWait=20
MinJobAge=300
PartitionName=debug Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP
END
    for name in 1 2 3; do
        echo "NodeName=n$name NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + name)) CPUs=4 RealMemory=500 State=UNKNOWN" >>"$1/slurm.conf"
    done
    export SLURM_CONF=$1/slurm.conf
    slurmctld 3>&-
    for name in n1 n2 n3; do slurmd -N "$name" 3>&-; done
    wait_for 60 '[ "$(sinfo -h -t idle -o %D)" = 3 ]'
}

# wait_for SECONDS CONDITION
wait_for() {
    local end=$((SECONDS + $1))
    until eval "$2"; do
        [ "$SECONDS" -lt "$end" ] || { echo "in vain: $2" && return 1; }
        sleep 0.2
    done
}

setup_file() {
    local tool
    # bats runs teardown_file badly after a skip of setup_file: setup skips.
    export LACKS=
    [ "$(id -u)" -eq 0 ] || LACKS='the nodes of Slurm need root'
    for tool in slurmctld slurmd srun sbatch; do
        [ -n "$(command -v "$tool")" ] ||
            LACKS="$tool is not installed: try 'scripts/need slurm-wlm'"
    done
    [ -z "$LACKS" ] || return 0
    cd "$BATS_FILE_TMPDIR"
    # Those of a job or an mpirun around this test.
    unset "${!SLURM@}" "${!OMPI_@}"
    # Ranks of two nodes on one machine must not share memory: Open MPI hangs.
    export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=tcp,self
    # The names of the nodes are not those of machines.
    export MASTER_ADDR=127.0.0.1
    model llama false
    data 1 60 >data.jsonl
    pppack -q -l 48 -o packed data.jsonl
    ppsplit -q -p 4 model-llama | ppsched -q -s 1f1b -m 4 >four.json
    ppsplit -q -p 2 model-llama | ppsched -q -s 1f1b -m 4 >two.json
    # It ends in a few steps, or after more than a signal or a node needs.
    pprun four.json "${options[@]}" --steps 6 --save short -o short.log
    pprun four.json "${options[@]}" --steps "$LONG" --save long -o long.log
    cluster "$BATS_FILE_TMPDIR/cluster"
}

teardown_file() {
    local file
    # There is no cluster without Slurm.
    if [ -d "$BATS_FILE_TMPDIR/cluster" ]; then
        scancel -u root && wait_for 30 '[ -z "$(squeue -h)" ]' || true
        for file in "$BATS_FILE_TMPDIR"/cluster/run/*.pid; do
            [ ! -e "$file" ] || kill "$(cat "$file")" || true
        done
        # They remove these files last. They write to the directory until then.
        wait_for 30 '! ls "$BATS_FILE_TMPDIR"/cluster/run/*.pid 2>/dev/null' ||
            true
    fi
}

setup() {
    [ -z "$LACKS" ] || skip "$LACKS"
    needs_mpirun
    cd "$BATS_FILE_TMPDIR"
    rm -rf checkpoints steps.jsonl
}

LONG=${LONG-12000}
export LONG
options=(-q --data packed --init 5 --lr 3e-4 --warmup 100)

# submit OPTION... -- ARGUMENTS: submits the script that the users have, with
# arguments for pprun, and prints the number of the job.
submit() {
    local slurm=()
    while [ "$1" != -- ]; do
        slurm+=("$1")
        shift
    done
    shift
    sbatch --parsable --mem=50 -o job.out "${slurm[@]}" \
        "$SRCDIR/scripts/train-cpus.sbatch" "$@"
}

field() { scontrol -o show job "$1" | grep -o " $2=[^ ]*" | cut -d = -f 2; }

# finish JOB: waits for its end. Slurm holds a requeued job for two minutes; a
# few seconds are enough for the nodes to forget its earlier life.
finish() {
    local state=PENDING end=$((SECONDS + 400))
    while [[ "$state" == @(PENDING|RUNNING|COMPLETING|CONFIGURING|REQUEUED) ]]; do
        [ "$SECONDS" -lt "$end" ] || break
        if [ "$state" = PENDING ]; then
            sleep 5
            scontrol update jobid="$1" StartTime=now 2>/dev/null || true
        fi
        sleep 0.5
        state=$(field "$1" JobState)
    done
    echo "job $1: $state, $(field "$1" Restarts) restarts"
    cat job.out || true
    [ "$state" = COMPLETED ]
}

saved_step() { readlink checkpoints/latest 2>/dev/null | tr -dc 0-9 | sed 's/^0*//'; }

@test "srun: ranks of one node and of several have the bits of one process" {
    srun -N 1 -n 2 --mem=50 --mpi=pmix pprun two.json "${options[@]}" \
        --transport mpi --steps 6 --save one >log
    diff -r one/latest short/latest
    srun -N 2 --ntasks-per-node=2 --mem=50 --mpi=pmix pprun four.json \
        "${options[@]}" --transport mpi --steps 6 --save several >log
    diff -r several/latest short/latest
}

@test "sbatch: the script of the manual trains on two nodes" {
    local job
    job=$(submit -N 2 --ntasks-per-node=2 -- -q --init 5 --steps 6 four.json)
    finish "$job"
    diff -r checkpoints/latest short/latest
}

@test "--signal: a job that its time limit stops is requeued and goes on" {
    local job
    # The signal comes 105 s before the end, or up to a minute earlier.
    job=$(submit -N 2 --ntasks-per-node=2 --time=2 --signal=TERM@105 -- -q \
        --init 5 --steps "$LONG" four.json)
    finish "$job"
    [ "$(field "$job" Restarts)" -ge 1 ]
    grep -q 'exit code 75' job.out
    diff -r checkpoints/latest long/latest
}

@test "scontrol requeue: the job saves, ends and goes on" {
    local job
    job=$(submit -N 2 --ntasks-per-node=2 -- -q --init 5 --steps "$LONG" \
        four.json)
    wait_for 60 '[ -s steps.jsonl ]'
    scontrol requeue "$job"
    finish "$job"
    [ "$(field "$job" Restarts)" -ge 1 ]
    diff -r checkpoints/latest long/latest
}

# kill_node NAME JOB: kills the daemon of a node and all that runs there.
kill_node() {
    local pid found=0
    kill -9 "$(cat "cluster/run/slurmd.$1.pid")"
    for pid in $(pgrep -x pprun); do
        if tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "SLURMD_NODENAME=$1" &&
            tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "SLURM_JOB_ID=$2"; then
            kill -9 "$(ps -o ppid= -p "$pid" | tr -d ' ')" "$pid" || true
            found=$((found + 1))
        fi
    done
    [ "$found" -gt 0 ]
}

@test "a node that dies: the job is requeued on the others and goes on" {
    local job
    job=$(submit -N 2 --ntasks-per-node=2 -- -q --init 5 \
        --save-every 100 --steps "$LONG" four.json)
    wait_for 60 '[ -n "$(saved_step)" ]'
    kill_node n2 "$job"
    wait_for 120 '[ "$(field '"$job"' JobState)" = PENDING ]'
    finish "$job"
    slurmd -N n2 3>&-
    [ "$(field "$job" Restarts)" -ge 1 ]
    diff -r checkpoints/latest long/latest
}
