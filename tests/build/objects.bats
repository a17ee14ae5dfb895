#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# objects - rules for the build: symbols, state, libraries, headers and the
# installed files.

bats_require_minimum_version 1.5.0

load tree_helpers

PLAN_TOOLS='ppsplit ppsched pppack'

@test "every global symbol of libpp.a begins with pp_" {
    [ "$(nm -g --defined-only "$BUILDDIR/libpp.a" | grep -c ' T pp_')" -gt 20 ]
    nm -g --defined-only "$BUILDDIR/libpp.a" |
        awk 'NF == 3 && $3 !~ /^pp_/' | none 'not ours by name'
}

# A file that others of its folder need lies below them. The folders named here
# still have circles.
@test "no files of a folder call each other in a circle" {
    cd "$SRCDIR"
    nm -A "$BUILDDIR"/libpp.a.p/*.o "$BUILDDIR"/cmd/*.p/*.o |
        awk -v except='lib/data/packed lib/model lib/run/execute lib/run/parts
                lib/run/train lib/split' '
            function folder(file) { sub("/[^/]*$", "", file); return file }
            BEGIN {
                n = split(except, names, "[ \n]+")
                while (n) skip[names[n--]] = 1
            }
            NR == FNR {
                object = $0
                sub("^cmd/", "", object)
                gsub("/", "_", object)
                source[object ".o"] = $0
                next
            }
            {
                object = $1
                sub("[.]o:.*", ".o", object)
                sub(".*/", "", object)
                file = source[object]
                if (!file) next
                if ($(NF - 1) ~ /^[A-TV-Z]$/) home[$NF] = file
                else if ($(NF - 1) ~ /U$/) uses[file " " $NF] = 1
            }
            END {
                for (use in uses) {
                    split(use, at, " ")
                    to = home[at[2]]
                    if (to && at[1] != to &&
                        folder(at[1]) == folder(to) && !(folder(to) in skip))
                        print at[1], to
                }
            }' <(find lib cmd -name '*.c') - >"$BATS_TEST_TMPDIR/calls"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/calls")" -gt 100 ]
    tsort "$BATS_TEST_TMPDIR/calls" 2>&1 >/dev/null | none 'circles'
}

# Objects of the archive and of the tools. Constant tables that hold pointers
# are in .data.rel.ro, which nm would call data.
@test "no global or static variable can be written" {
    [ -f "$BUILDDIR/libpp.a" ]
    objdump -t "$BUILDDIR/libpp.a" "$BUILDDIR"/cmd/*.p/*.o |
        awk '/file format/ { file = $1 }
             / \.t?(data|bss)[. \t]/ && !/ \.data\.rel\.ro/ && $2 != "d" &&
             $(NF - 2) !~ /^d$/ && $(NF - 1) !~ /^0+$/ { print file, $0 }' |
        # A signal handler can only use a static variable, and OpenBLAS, whose
        # buffers product_places counts, is one for the process.
        grep -vE ' (stop_signal|weights_signal|forced|fault_state|product_places)$' | none 'mutable state'
}

@test "plan tools need libc, libm, libjansson and libxxhash alone" {
    for tool in $PLAN_TOOLS; do
        [ -x "$BUILDDIR/cmd/$tool" ]
    done
    for tool in $PLAN_TOOLS; do
        objdump -p "$BUILDDIR/cmd/$tool" |
            awk -v tool="$tool" '$1 == "NEEDED" { print tool, $2 }'
    done | grep -vE ' (libc|libm|libjansson|libxxhash|ld-linux-[^ ]*)\.so\.[0-9]+$' |
        none 'further libraries'
}

# They must start on machines without MPI and NCCL, and open them if needed.
@test "pprun and ppscore link neither MPI nor NCCL; their module links MPI" {
    for tool in pprun ppscore; do
        objdump -p "$BUILDDIR/cmd/$tool" | awk '$1 == "NEEDED" { print $2 }' |
            grep -E '^lib(mpi|nccl|cublas)' | none "in $tool"
    done
    [ -f "$BUILDDIR/cmd/pprun-mpi.so" ] || skip 'this build has no MPI'
    objdump -p "$BUILDDIR/cmd/pprun-mpi.so" | grep -q 'NEEDED *libmpi'
    nm -D --defined-only "$BUILDDIR/cmd/pprun-mpi.so" |
        awk '{ print $3 }' | diff - <(echo pp_mpi_module)
}

@test "each header compiles alone" {
    cd "$SRCDIR"
    for header in $(find lib cmd -name '*.h') kernels/*.h tests/tap.h; do
        echo "$header"
        ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -DPP_REAL_F32 -Ilib -Ikernels -Icmd \
            -Wall -Wextra -Wpedantic -Werror -Wno-unused-function \
            -Wno-unused-const-variable -x c -fsyntax-only \
            -include "$header" /dev/null
    done
}

@test "installs tools, a module, scripts, manual pages and completion only" {
    DESTDIR=$BATS_TEST_TMPDIR/root \
        meson install -C "$BUILDDIR" --no-rebuild --quiet
    cd "$BATS_TEST_TMPDIR/root"
    find . -type f | sed -E 's,.*/(bin|man[157]|pptools)/,\1/,
        s,.*/((bash-completion|zsh|fish)/),\1,' | sort \
        >"$BATS_TEST_TMPDIR/got"
    {
        for tool in ppmesh ppsplit ppsched pppack pprun ppscore; do
            echo "bin/$tool"
            echo "bash-completion/completions/$tool"
            echo "zsh/site-functions/_$tool"
            echo "fish/vendor_completions.d/$tool.fish"
        done
        [ ! -f "$BUILDDIR/cmd/pprun-mpi.so" ] || echo pptools/pprun-mpi.so
        for file in costs log tokenize tokenize_{chats,input,items,show,template}.py \
            train-cpus.sbatch train-gpus.sbatch train-node.sbatch; do
            echo "pptools/$file"
        done
        for page in "$SRCDIR"/man/*.[157]; do
            echo "man${page##*.}/${page##*/}"
        done
    } | sort >"$BATS_TEST_TMPDIR/want"
    diff -u "$BATS_TEST_TMPDIR/want" "$BATS_TEST_TMPDIR/got"
    # pprun finds its module there, wherever the whole of it is moved to.
    [ ! -f "$BUILDDIR/cmd/pprun-mpi.so" ] ||
        "$(find . -path "*/bin/ppscore")" --transport mpi --eval nosuch nosuch.json \
            2>&1 </dev/null | grep -q 'nosuch.json: No such file'
}
