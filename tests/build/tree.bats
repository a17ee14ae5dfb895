#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# tree - rules about the source tree (pp-hacking(7)), whatever is built from it.
# Each test prints the offenders.

bats_require_minimum_version 1.5.0

load tree_helpers

setup() {
    cd "$SRCDIR"
}

@test "every file names its licence at the top" {
    {
        find $(files c h cu cuh cpp in 1 5 7 bats bash) -empty
        awk 'FNR == 1 { if (NR > 1 && !named) print last
                        last = FILENAME; named = 0 }
             /SPDX-License-Identifier: MIT/ { named = 1 }
             FNR == 2 { nextfile }
             END { if (!named) print last }' \
            $(files c h cu cuh cpp in 1 5 7 bats bash) \
            $(scripts 'sh|bash|python3')
        awk 'FNR == 1 && $0 != "/* SPDX-License-Identifier: MIT */" {
                 print FILENAME
             }
             { nextfile }' $(files c h cu cuh cpp)
    } | none 'no SPDX line'
}

@test "every label is that of a test" {
    comm -23 <(sed -n "/^threaded = /,/]/p; /^numbers = /,/]/p" tests/meson.build |
        grep -o "'[a-z0-9_]*'" | tr -d "'" | sort) \
        <(jq -r '.[].name | sub("^cli-"; "")' "$BUILDDIR/meson-info/intro-tests.json" |
            sort) | none 'no test has this name'
}

@test "text has LF, no trailing blanks, a final newline and no tabs" {
    texts=$({ files c h cu cuh cpp bats bash 1 5 7 md build
              scripts 'sh|bash|python3'; } | sort -u)
    {
        grep -nP '\r|[ \t]$' $texts || true
        grep -zLP '\n\z' $texts || true
        grep -nP '\t' $(grep -v '\.[157]$' <<<"$texts") || true
    } | none 'white space'
}

@test "only products of warpgroups have code for one generation of GPUs" {
    # scripts/test compiles for another.
    grep -nE '__CUDA_ARCH|__CUDA_MINIMUM_ARCH' kernels/* |
        grep -v '^kernels/attention_wgmma.cuh:' | none 'generations'
}

@test "nothing in the tree knows the machine it was written on" {
    files | xargs grep -nIE '/(work|root|home/[a-z]+)/' |
        none 'machine paths'
}

# The folders inside a room belong to it.
inside='packed/ jsonl/ tensors/ attention/ experts/ head/ encoder/'

# The rooms of lib and the other rooms that each may include.
arrows() {
    cat <<'END'
base
draw base
schedule/ir base
schedule/kinds base schedule/ir
schedule/check base schedule/ir
schedule/memory base schedule/ir
schedule/files base schedule/ir
schedule/simulate base schedule/ir schedule/memory
schedule/bound base schedule/ir schedule/memory schedule/simulate
schedule/search base schedule/ir schedule/kinds schedule/memory schedule/simulate schedule/bound
schedule/offload base schedule/ir schedule/memory schedule/simulate
schedule/reroute base schedule/ir
schedule/draw base draw schedule/ir schedule/memory schedule/simulate
model base
cost base data model schedule/ir schedule/simulate
split base model cost schedule/ir schedule/kinds schedule/memory schedule/simulate schedule/search
mesh base model cost schedule/ir schedule/kinds schedule/simulate split
pack base
manifest base model cost schedule/files schedule/ir schedule/simulate
data base
device base
comm base device
run/settings base
run/timing base device
run/objectives base data run/settings
run/parameters base model data device run/settings
run/parts base model device comm schedule/memory run/settings run/timing run/parameters
run/checkpoint base model data comm run/settings run/parameters
run/execute base model data device comm schedule/ir schedule/memory run/settings run/parameters run/objectives run/parts run/timing
run/train base model data device comm schedule/ir schedule/memory schedule/simulate run/timing run/parameters run/objectives run/parts run/checkpoint run/execute
run/verify base model run/parameters run/execute
END
}

@test "includes point one way through lib" {
    arrows | while read -r room others; do
        grep -rnE '^#include "[a-z_]+/' "lib/$room" |
            grep -vE "\"($room|${others// /|})/(${inside// /|})?[a-z0-9_]+\.h\"" || true
        # A bare name is a kernel's, or the room's own. kernel_sizes.h names no
        # kernel.
        [[ $room == run/* || $room == device ]] ||
            find "lib/$room" -name '*.[ch]' -exec \
                sed -nE 's,^#include "([^"/]+)".*,\1,p' {} + | while read -r header; do
                [[ -f "lib/$room/$header" || $header == kernel_sizes.h ]] || echo "lib/$room includes $header"
            done
    done | none 'against the arrows'
    diff <(arrows | cut -d' ' -f1 | sort) \
        <(find lib -name meson.build -printf '%h\n' | cut -c5- | sort)
}

@test "kernels include nothing above them" {
    grep -nE '^#include "[a-z_]+/' kernels/*.{c,h,cu,cuh} |
        grep -v '"base/' | none 'against the arrows'
}

@test "only lib/manifest knows JSON" {
    grep -lE '#include [<"]jansson' $(files c h) | grep -v '^lib/manifest/' |
        grep -v '^tests/' | none 'includes jansson'
}

@test "lib and kernels never print, exit or read the environment" {
    grep -nE '\b(printf|puts|putchar|perror|exit|_exit|getenv|setenv) ?\(' \
        $(find lib -name '*.c' ! -path lib/base/alloc.c) \
        kernels/*.{c,cu,cuh} | none 'belongs in cmd'
}

# pp_shard_heads and its kin have the sizes of a rank.
@test "no layer reads the heads or columns of the whole model" {
    grep -nE '(->|\.)(n_heads|n_kv_heads|intermediate)\>|moe(->|\.)shared\>' \
        $(find lib/run/parts -name '*.[ch]') | none 'sizes of the whole model'
}

@test "no leftovers: TODO, FIXME, #if 0" {
    grep -nE '\b(TODO|FIXME|XXX|HACK)\b|^ *# *if 0' \
        $(files c h cu cuh cpp 1 5 7) $(scripts 'sh|bash|python3') |
        none leftovers
}

@test "every source and every test is in a meson.build" {
    awk -v names="$(files c cu cpp bats)" '
        { text[FILENAME] = text[FILENAME] $0 "\n" }
        END {
            n = split(names, file, "\n")
            for (i = 1; i <= n; i++) {
                build = name = file[i]
                sub("[^/]*$", "meson.build", build)
                sub(".*/", "", name)
                stem = name
                sub("[.][^.]*$", "", stem)
                # The sources of a program, and of a folder inside a room, are
                # listed one folder higher.
                if (file[i] ~ "^cmd/.*/" || !(build in text)) {
                    sub("[^/]*/meson.build$", "meson.build", build)
                    name = file[i]
                    sub("meson.build$", "", build)
                    name = substr(file[i], length(build) + 1)
                    build = build "meson.build"
                }
                if (!index(text[build], "\47" name "\47") &&
                    !index(text[build], "\47" stem "\47"))
                    print file[i]
            }
        }' $(files build) | none 'never built or run'
}

@test "C is formatted by clang-format 14" {
    need_program clang-format-14
    clang-format-14 --dry-run -Werror $(files c h cu cuh cpp)
}

@test "shellcheck finds nothing in the scripts" {
    need_program shellcheck
    shellcheck $(scripts 'sh|bash')
}

@test "shellcheck finds nothing in the bats files" {
    need_program shellcheck
    # Every test is a subshell (2030, 2031) under set -e (2164), bats sets
    # variables (2154), and lists of our own file names are words (2046).
    shellcheck -s bats -S warning -e SC2030,SC2031,SC2046,SC2154,SC2164 \
        $(files bats)
    shellcheck -s bash -S warning $(files bash)
}
