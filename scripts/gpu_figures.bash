# SPDX-License-Identifier: MIT
# gpu_figures - the parts of scripts/gpu-check that measure. scripts/gpu-runs reads
# it, so that its variables and functions are known here; gpu-check takes query.
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of gpu-runs

# query MEMBERS [FORMAT]: asks for members of this GPU.
query() {
    timeout 20 nvidia-smi -i "$CUDA_VISIBLE_DEVICES" --query-gpu="$1" \
        --format=csv,noheader"${2-}" 2>/dev/null
}

# Prints the peak of the GPU in bf16 without sparsity, or 0 if it is unknown.
peak_flops() {
    case $(query name) in
    *H100*PCIe*) echo 756e12 ;;
    *H100\ NVL*) echo 835e12 ;;
    *H100* | *H200*) echo 989e12 ;;
    *A100*) echo 312e12 ;;
    *B200*) echo 2250e12 ;;
    *L40S*) echo 362e12 ;;
    *) echo 0 ;;
    esac
}

# room MB WHAT: succeeds if the GPU has this much free memory. Otherwise skips
# WHAT.
room() {
    local free
    [ ! "$emulated" ] || return 0
    free=$(query memory.free ,nounits)
    [ "${free:-$1}" -ge "$1" ] && return 0
    skip "$2" "it needs $1 MB, but $free MB are free"
    return 1
}

# rate LENGTH LAYERS HIDDEN KV_WIDTH INTERMEDIATE VOCABULARY NAME: prints the rate
# of the last steps in large.log, and MFU as pp-slurm(7) defines it.
# scripts/bench-torch computes the same from the tensors.
rate() {
    numbers large.log tokens_per_s | tail -n 4 | awk -v peak="$(peak_flops)" \
        -v T="$1" -v L="$2" -v C="$3" -v KV="$4" -v F="$5" -v V="$6" \
        -v name="$7" '
        { s += 1 / $1 }
        END {
            if (!NR) exit
            rate = NR / s
            flops = 6 * (L * (2 * C * C + 2 * C * KV + 3 * C * F) + C * V)
            flops += 6 * L * T * C
            printf "# %s: %.0f tokens/s", name, rate
            if (peak) printf ", MFU %.1f %%", 100 * rate * flops / peak
            printf " (%.3f GFLOP a token)\n", flops / 1e9
        }'
}

# Trains a model of 1.2 billion parameters in bf16 on sequences of 4096 tokens.
speed() {
    local what='a model of 1.2 billion parameters trains in bf16' m=8
    local shape=(4096 16 2048 512 8192 128256 '1.2B Llama, bf16, 4096 tokens')
    mkdir large
    if [ "$emulated" ]; then
        m=2 what='a tiny model trains in bf16'
        shape=(24 2 16 8 24 67 'tiny Llama')
        config 16 24 2 2 1 8 67 >large/config.json
    else
        config 2048 8192 16 32 8 64 128256 >large/config.json
    fi
    room 60000 "$what" || return
    sequences $m "${shape[0]}" "${shape[5]}" |
        pppack -q -l "${shape[0]}" -o long
    ppsplit -q -p 1 large | ppsched -q -s 1f1b -m $m >large.json
    pprun large.json --data long --init 1 --device cuda --dtype bf16 \
        --steps 6 >large.log 2>err &
    while kill -0 $! 2>/dev/null; do
        [ "$emulated" ] || query power.draw,clocks.sm ,nounits >>power
        sleep 0.5
    done
    wait $!
    result $? "$what"
    [ "$(numbers large.log host_waits | tail -n 1)" = 1 ]
    result $? "its host waits for the GPU once a step"
    rate "${shape[@]}"
    [ ! -s power ] || sort -n power | tail -n 4 | awk -F, '
        { watts += $1; clock += $2 }
        END { printf "# its power and clock: %.0f W, %.0f MHz\n", watts / NR,
                  clock / NR }'
}

# foresee STAGES MICROBATCHES: predicts steps of gpipe from a profile of 1f1b, and
# measures them. On a GPU they must agree within a factor of 2; the emulated device
# has no bound.
foresee() {
    local p=$1 m=$2 step what="$1 stages: gpipe by a profile of 1f1b"
    local options=(--device cuda --dtype bf16 --data uneven --init 1 --steps 4)
    ppsplit -q -p "$p" middle | ppsched -q -s 1f1b -m "$m" >profiled.json
    pprun profiled.json "${options[@]}" --profile costs.json >/dev/null 2>err &&
        ppsplit -q -p "$p" --costs costs.json middle 2>err |
        ppsched -q -s gpipe -m "$m" >foreseen.json &&
        pprun foreseen.json "${options[@]}" >foreseen.log 2>err &&
        for step in 3 4; do
            ppsched --stats --data uneven --step $step foreseen.json 2>err ||
                break
        done >stats &&
        paste <(numbers stats step) <(numbers foreseen.log seconds | tail -n 2) |
        awk -v what="$what" -v bound=${emulated:+1e9} '
            { predicted += $1; measured += $2 }
            END {
                if (NR != 2 || !predicted || !measured) exit 1
                ratio = predicted / measured
                printf "# %s: %.4f s a step, measured %.4f s, ratio %.2f\n",
                    what, predicted / 2, measured / 2, ratio
                if (!bound) bound = 2
                exit ratio > bound || ratio < 1 / bound
            }'
    result $? "$what"
}

# Compares predicted step times with measured ones.
predict() {
    local p m=8
    mkdir middle
    if [ "$emulated" ]; then
        m=2
        config 16 24 2 2 1 8 67 >middle/config.json
        sequences 12 24 67 1 | pppack -q -l 32 -o uneven
    else
        config 1024 2816 8 16 8 64 32000 >middle/config.json
        sequences 64 2048 32000 1 | pppack -q -l 4096 -o uneven
    fi
    for p in 1 2; do
        foresee $p $m
    done
}

# padded LENGTH: pads sequences to this length with tokens that are not scored.
padded() {
    awk -F '[][]' -v length_="$1" '{
        n = split($2, ids, ",")
        printf "{\"input_ids\": [%s", $2
        for (t = n; t < length_; t++) printf ",0"
        printf "], \"labels\": [%s", $2
        for (t = n; t < length_; t++) printf ",-100"
        print "]}"
    }'
}

# Compares the rates of packed and padded sequences, in tokens that are not
# padding.
against_padding() {
    local name rates=() length=2048 m=8
    mkdir middle
    if [ "$emulated" ]; then
        m=2 length=24
        config 16 24 2 2 1 8 67 >middle/config.json
        sequences 12 24 67 1 >packed.jsonl
    else
        config 1024 2816 8 16 8 64 32000 >middle/config.json
        sequences 64 2048 32000 1 >packed.jsonl
    fi
    padded $length <packed.jsonl >padded.jsonl
    ppsplit -q -p 1 middle | ppsched -q -s 1f1b -m $m >plan.json
    for name in packed padded; do
        pppack -q -l $((2 * length)) -o $name $name.jsonl &&
            pprun plan.json --device cuda --dtype bf16 --data $name --init 1 \
                --steps 4 >$name.log 2>err
        result $? "$name sequences train"
        rates+=("$(numbers $name.log tokens_per_s | tail -n 3 |
            awk '{ s += 1 / $1 } END { if (s) print NR / s }')")
    done
    awk -F, -v length_=$length -v packed="${rates[0]}" -v padded="${rates[1]}" '
        { n += NF }
        END {
            padded *= n / (NR * length_)
            if (padded)
                printf "# packed %.0f tokens/s, padded %.0f, ratio %.2f; %.0f %% \
of the padded tokens are padding\n", packed, padded, packed / padded,
                    100 - 100 * n / (NR * length_)
        }' packed.jsonl
}

# Compares the step time of two stages on one GPU with that of one stage, and
# checks that copies overlap kernels.
overlap() {
    local p seconds=()
    for p in 1 2; do
        pprun plan$p.json "${options[@]}" --dtype bf16 >$p.log 2>err
        result $? "bf16: $p stages on one GPU"
        seconds+=("$(numbers $p.log seconds | sort -g | head -n 1)")
    done
    echo "# the fastest step of 1 and 2 stages: ${seconds[0]} s and ${seconds[1]} s"
    have nsys 'copies run beside kernels' || return
    nsys profile -q -t cuda -o overlap pprun plan2.json "${options[@]}" \
        --dtype bf16 >/dev/null 2>err
    if ! nsys stats -q -r cuda_gpu_trace -f csv overlap.nsys-rep \
        >trace.csv 2>err; then
        skip 'copies run beside kernels' 'nsys made no report'
        return
    fi
    awk -F, 'NR > 1 {
            if (/memcpy.*Device-to-Device/) { b[++m] = $1; e[m] = $1 + $2 }
            else if (!/mem(cpy|set)/) { kb[++k] = $1; ke[k] = $1 + $2 }
        }
        END {
            for (i = 1; i <= m; i++)
                for (j = 1; j <= k; j++)
                    if (kb[j] < e[i] && ke[j] > b[i]) { both++; break }
            printf "# %d of %d copies ran beside a kernel\n", both, m
            exit !both
        }' trace.csv
    result $? 'copies run beside kernels'
}

# Measures the speed of each kernel.
bench() {
    have bench_cuda 'the speed of the kernels' || return
    bench_cuda >bench.log 2>err
    result $? 'the speed of the kernels'
    sed 's/^/# /' bench.log
}

# Runs the same model, and attention alone, in PyTorch.
with_torch() {
    local model=1b peak
    local device=(--device cuda --build "$bin")
    [ ! "$emulated" ] || { device+=(--emulated) model=tiny; }
    if ! with_python -c 'import torch, transformers, safetensors' 2>err ||
        ! { [ "$emulated" ] ||
            with_python -c 'import torch; torch.ones(1).cuda()' 2>err; }; then
        skip 'the same by PyTorch' "$(tail -n 1 err)"
        return
    fi
    peak=$(peak_flops)
    [ "$peak" != 0 ] || peak=
    [ "$emulated" ] || device+=(--attention --compile)
    room 60000 'the same model by PyTorch' || return
    with_python "$bin/bench-torch" "${device[@]}" --dtype bf16 \
        ${peak:+--peak "$peak"} $model >torch.log 2>err
    result $? 'the first loss is the one of PyTorch'
    sed 's/^/# /' torch.log
}

# Measures each kernel of a step of two layers, one after the other, and prints
# those that take longest.
profile() {
    local what='the time of each kernel of a step'
    have ncu "$what" || return
    mkdir large
    config 2048 8192 2 32 8 64 128256 >large/config.json
    sequences 2 4096 128256 | pppack -q -l 4096 -o long
    ppsplit -q -p 1 large | ppsched -q -s 1f1b -m 2 >large.json
    ncu --clock-control none --metrics gpu__time_duration.sum --csv \
        --print-units base --log-file kernels.csv pprun large.json \
        --data long --init 1 --device cuda --dtype bf16 --steps 1 \
        >large.log 2>err
    result $? "$what"
    awk -F'","' '
        NF > 3 && $(NF - 2) == "gpu__time_duration.sum" {
            name = $5
            sub(/^void /, "", name); sub(/\(.*/, "", name)
            ns = $NF; gsub(/[",]/, "", ns)
            time[name] += ns; calls[name]++; all += ns
        }
        END {
            printf "# kernels of a step of 2 layers: %.3f ms\n", all / 1e6
            fflush()
            for (n in time)
                printf "# %5.1f %% %9.3f ms %5d times %s\n",
                    100 * time[n] / all, time[n] / 1e6, calls[n],
                    substr(n, 1, 70) | "sort -rn -k2 | head -n 40"
        }' kernels.csv
}
