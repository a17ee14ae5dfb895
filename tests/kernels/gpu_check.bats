#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# scripts/gpu-check on the emulated device, without faults and with injected ones.
bats_require_minimum_version 1.5.0

setup_file() {
    export CHECK="$SRCDIR/scripts/gpu-check"
    export WHOLE="$BATS_FILE_TMPDIR/bundle"
    "$CHECK" --emulated --build "$BUILDDIR" --bundle "$WHOLE" >&2
}

setup() { cd "$BATS_TEST_TMPDIR"; }

# bundle SCRIPT: makes a bundle with this script as the kernel test.
bundle() {
    cp -rs "$WHOLE" faulty
    rm faulty/test_cuda
    printf '#!/bin/bash\n%s\n' "$1" >faulty/test_cuda
    chmod +x faulty/test_cuda
}

# check ARGS...: runs gpu-check so that it finds programs only in its bundle.
check() {
    run --separate-stderr env -i PATH=/usr/bin:/bin PYTHON=no-such-python \
        "$@"
    echo "$output"
    echo "$stderr"
}

says() { grep -qxE -- "$1" <<<"$output"; }

@test "a bundle runs alone, and prints why it skips a test" {
    # The test of the same name has the other kernels, and all cases of attention.
    bundle 'FEWER=40 exec "${0%/*}/kernels" rope attention'
    mv faulty some
    cp "$WHOLE/test_cuda" some/kernels
    cp --remove-destination "$WHOLE/gpu-check" some
    check some/gpu-check --logs logs --seconds 3000
    [ "$status" -eq 0 ]
    says '== figures \(EMULATED: not of a GPU\)'
    says 'attention_bwd dq +fp32 [0-9.e-]+ +bf16 [0-9.e-]+'
    says 'torch: skipped: the same by PyTorch: .*no-such-python.*'
    says 'bench: skipped: the speed of the kernels: there is no GPU'
    says 'tiny Llama: [0-9]+ tokens/s .*'
    says 'speed +[0-9]+ s +2 passed   0 failed   0 skipped  ok'
    says '[12] stages: gpipe by a profile of 1f1b: .* measured .* ratio [0-9.]+'
    says 'bits +[0-9]+ s +9 passed   0 failed   0 skipped  ok'
    says 'golden +[0-9]+ s +6 passed   0 failed   0 skipped  ok'
    says 'encoders +[0-9]+ s +1 passed   0 failed   0 skipped  ok'
    says 'bf16 +[0-9]+ s +4 passed   0 failed   0 skipped  ok'
    says 'plans +[0-9]+ s +13 passed   0 failed   0 skipped  ok'
    says 'predict +[0-9]+ s +2 passed   0 failed   0 skipped  ok'
    says 'padding +[0-9]+ s +2 passed   0 failed   0 skipped  ok'
    says 'packed [0-9]+ tokens/s, padded [0-9]+, ratio [0-9.]+; 30 % of .*'
    says 'nccl +[0-9]+ s +6 passed   0 failed   0 skipped  ok'
    says '== [0-9]+ passed, 0 failed, 5 skipped on emulated .*'
    grep -q '^ok' logs/kernels
}

@test "a bundle's programs find their libraries in it" {
    for program in pprun pppack ppsplit ppsched compare_tensors test_cuda; do
        run env LD_LIBRARY_PATH="$WHOLE/lib" ldd "$WHOLE/$program"
        echo "$output"
        [ "$status" -eq 0 ]
        others=$(grep '=> ' <<<"$output" | grep -v "=> $WHOLE/lib/" |
            grep -vE 'lib(c|m|pthread|dl|rt)\.so' || true)
        [ -z "$others" ]
    done
}

@test "a wrong kernel is reported" {
    bundle 'echo "ok 1 - cuda-f32 rope (NMSE 1.0e-13)"
echo "not ok 2 - cuda-f32 rope (NMSE 2.0e-02)"; echo "# bound 1.0e-12"
echo 1..2; exit 1'
    check "$CHECK" --from faulty kernels
    [ "$status" -eq 1 ]
    says 'rope +fp32 2.0e-02 +bf16 *'
    says 'kernels: not ok 2 - cuda-f32 rope \(NMSE 2.0e-02\)'
    says 'kernels +[0-9]+ s +1 passed   1 failed   0 skipped  FAILED'
    says '== 1 passed, 1 failed, 0 skipped on .*'
}

@test "a crash, a silent end and a failing status are reported" {
    bundle 'echo "ok 1 - cuda-f32 rope (NMSE 1.0e-13)"; kill -SEGV $$'
    check "$CHECK" --from faulty --seconds 3000 kernels overlap
    [ "$status" -eq 1 ]
    says 'kernels .*1 passed   0 failed   0 skipped  DIED of signal 11'
    says 'overlap .*2 passed   0 failed   1 skipped  ok'
    says '== 3 passed, 0 failed, 1 skipped, 1 parts broke on .*'
    rm -r faulty
    bundle 'echo "ok 1 - cuda-f32 rope (NMSE 1.0e-13)"'
    check "$CHECK" --from faulty kernels
    [ "$status" -eq 1 ]
    says 'kernels .*FAILED: its output is not complete'
    rm -r faulty
    bundle 'echo "ok 1 - cuda-f32 rope (NMSE 1.0e-13)"; echo 1..1; exit 1'
    check "$CHECK" --from faulty kernels
    [ "$status" -eq 1 ]
    says 'kernels .*FAILED with status 1'
}

@test "a hanging test is killed with its children, and the table is printed" {
    bundle 'echo "ok 1 - cuda-f32 rope (NMSE 1.0e-13)"
sleep 1003 & echo $! >'"$PWD"'/pid; trap "" TERM; wait; wait'
    check "$CHECK" --from faulty --seconds 11 kernels overlap
    [ "$status" -eq 1 ]
    says 'kernels .*KILLED after [0-9]+ s: it hung, or was too slow'
    says 'overlap .*no time was left'
    [ ! -e "/proc/$(cat pid)" ] ||
        grep -q '^State:.*Z' "/proc/$(cat pid)/status"
}

@test "a signal prints the table at once" {
    bundle 'echo "ok 1 - cuda-f32 rope (NMSE 1.0e-13)"; exec sleep 1004'
    "$CHECK" --from faulty --logs logs >out 3>&- &
    until [ -s logs/kernels ]; do sleep 0.1; done
    kill -TERM $!
    status=0
    wait $! || status=$?
    [ "$status" -eq 1 ]
    output=$(cat out)
    says 'kernels .*1 passed   0 failed   0 skipped  DIED of signal 15'
    says '== 1 passed, .*'
}

@test "without a GPU there is one line and status 3" {
    bundle 'echo "1..0 # skip no CUDA-capable device is detected"'
    rm faulty/emulated
    check "$CHECK" --from faulty
    [ "$status" -eq 3 ]
    [ "$stderr" = \
        'gpu-check: no GPU here: no CUDA-capable device is detected' ]
}

@test "a GPU that others use is reported as busy" {
    bundle 'echo "ok 1 - cuda-f32 rope (NMSE 1.0e-13)"; echo 1..1'
    rm faulty/emulated
    mkdir tools
    cat >tools/nvidia-smi <<'END'
#!/bin/sh
case $* in
*memory.used*) echo 31000 ;;
*name,*) echo 'NVIDIA H200, 143771 MiB, 580.1' ;;
esac
END
    chmod +x tools/nvidia-smi
    check "PATH=$PWD/tools:/usr/bin:/bin" "$CHECK" --from faulty kernels
    [ "$status" -eq 0 ]
    says '== figures \(THE GPU WAS BUSY\) *'
    says '== 1 passed, .* on NVIDIA H200, 143771 MiB, 580.1;busy: 31000 MB of .*'
}

@test "the speed of attention is compared with PyTorch" {
    mkdir logs
    echo 'kernels 0 3' >logs/parts
    printf 'ok 1 - cuda-f32 rope (NMSE nan)\nok 2 - cuda-f32 rope (NMSE 1.0e-13)\n1..2\n' \
        >logs/kernels
    echo 'NVIDIA H200' >logs/gpu
    echo '# attention_fwd 64       cuda-bf16      100.0 us    300.0 TFLOP/s' \
        >logs/bench
    echo '# attention_fwd 64       flash-bf16      75.0 us    400.0 TFLOP/s' \
        >logs/torch
    run "$SRCDIR/scripts/gpu-table" logs
    [ "$status" -eq 0 ]
    says 'attention_fwd 64 +pptools 300.0, flash 400.0 TFLOP/s, ratio 0.75'
    says 'rope +fp32 nan +bf16 *'
}

@test "misuse gives status 2" {
    for args in '--nonsense' '--seconds ten' '--from nowhere' 'nothing' \
        '--emulated' '--bundle'; do
        # shellcheck disable=SC2086 # words
        check "$CHECK" $args
        [ "$status" -eq 2 ]
        [ -n "$stderr" ]
        [ -z "$output" ]
    done
    if [ ! -e /dev/nvidiactl ]; then
        check "$CHECK"
        [ "$status" -eq 3 ]
        [[ "$stderr" == "gpu-check: no GPU here; "* ]]
    fi
}
