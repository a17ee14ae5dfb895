#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# scripts/package: the package is complete, and lintian accepts it. The kernels
# compile for all generations of GPUs.

bats_require_minimum_version 1.5.0

@test "a package has programs, pages, completion and scripts" {
    command -v dpkg-shlibdeps >/dev/null ||
        skip "dpkg-shlibdeps is not installed: try 'scripts/need dpkg-dev'"
    mkdir "$BATS_TEST_TMPDIR/tree"
    tar -c -C "$SRCDIR" --exclude "./build*" --exclude ./.git . |
        tar -x -C "$BATS_TEST_TMPDIR/tree"
    cd "$BATS_TEST_TMPDIR/tree"
    export DEBEMAIL=packages@debian.org
    package=$(scripts/package -Dcuda=disabled)
    dpkg-deb --fsys-tarfile "$package" | tar -x -C "$BATS_TEST_TMPDIR"
    cd "$BATS_TEST_TMPDIR/usr"
    for tool in ppmesh pppack pprun ppsched ppscore ppsplit; do
        bin/$tool -V | grep -q "^$tool "
        [ -s share/man/man1/$tool.1.gz ]
        [ -s share/bash-completion/completions/$tool ]
    done
    [ -x share/pptools/tokenize ]
    [ -x share/pptools/train-node.sbatch ]
    command -v lintian >/dev/null || skip 'there is no lintian'
    lintian --allow-root --fail-on error,warning "$package"
}

@test "the kernels compile for all generations of GPUs" {
    cd "$BATS_TEST_TMPDIR"
    meson setup all "$SRCDIR" -Dtests=false -Dfuzz=disabled
    grep -q 'code=sm_80.*code=sm_90.*code=sm_100' all/build.ninja ||
        skip 'there is no nvcc'
    ninja -C all kernels/libkernels_cuda.a
}
