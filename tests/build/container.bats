#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Containerfile: its steps, in Debian systems of debootstrap in place of images. The
# first passes quickstart, and the second, without a compiler, a task of the
# tutorial. SYSTEM may name a system of debootstrap that is there already.
bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_FILE_TMPDIR"
    [ "$(id -u)" -eq 0 ] && unshare -m true || skip 'needs root and mounts'
    [ "$SYSTEM" ] || command -v debootstrap >/dev/null ||
        skip "debootstrap is not installed: try 'scripts/need debootstrap'"
    [ "$SYSTEM" ] || debootstrap --variant=minbase bookworm debian >log ||
        skip "debootstrap failed: $(tail -n 1 log)"
}

setup() { cd "$BATS_FILE_TMPDIR"; }

# within SYSTEM DIR COMMAND: runs a command of the shell in the system.
within() {
    # shellcheck disable=SC2016 # for the inner shell
    unshare -m sh -ec 'mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        exec chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            sh -ec "cd \"\$1\"; eval \"\$2\"" sh "$2" "$3"' sh "$@" </dev/null
}

# step WORD...: does what a line of the Containerfile says, in $system and $dir.
step() {
    case $1 in
    ARG) variables[${2%%=*}]=${2#*=} ;;
    FROM)
        system=stage$((++stages)) dir=/
        cp -a "${SYSTEM:-debian}" "$system"
        [ $# -lt 4 ] || ln -s "$system" "$4"
        ;;
    WORKDIR)
        dir=$2
        mkdir -p "$system$dir"
        ;;
    COPY)
        if [[ $2 == --from=* ]]; then
            # shellcheck disable=SC2086 # a pattern
            cp "${2#--from=}"$3 "$system$4"
        else
            git -C "$SRCDIR" archive HEAD | tar -x -C "$system$dir"
        fi
        ;;
    RUN) within "$system" "$dir" "${*:2}" ;;
    *) return 1 ;;
    esac
}

@test "every step of the Containerfile succeeds" {
    local -A variables=()
    local line name words system='' dir=/ stages=0
    # The shell's read joins lines that a backslash continues.
    # shellcheck disable=SC2162
    while read line; do
        [[ $line == '#'* || ! $line ]] && continue
        for name in "${!variables[@]}"; do
            line=${line//"\${$name}"/"${variables[$name]}"}
        done
        echo "# $line"
        read -ra words <<<"$line"
        step "${words[@]}"
    done <"$SRCDIR/Containerfile"
    [ "$stages" -eq 2 ]
}

@test "the system that builds passes quickstart" {
    within stage1 /src 'scripts/quickstart -d /tmp/quickstart'
}

@test "the image has no compiler, and does the second task of the tutorial" {
    run ! within stage2 / 'command -v cc || command -v gcc'
    "$SRCDIR/tests/build/man_examples" "$SRCDIR/man/pp-tutorial.7" |
        sed -n '/^mkdir big/,/^mkdir own/p' | sed '$d' >stage2/data/task
    grep -q export stage2/data/task
    within stage2 /data '. ./task' >said
    grep -qx -e '--tensor-model-parallel-size 4' said
    within stage2 / 'ppsched -p 4 -s zbv -m 8 --stats | jq .makespan' | grep -qx 51
}
