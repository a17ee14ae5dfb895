#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# run_fuzzer - the time that run-fuzzer gives to a fuzzer.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    mkdir -p tests/fuzz lib/data/packed corpus
    cp "$SRCDIR/tests/fuzz/run-fuzzer" tests/fuzz
    printf '#!/bin/sh\necho "$*" >&2\n' >program
    chmod +x program
    git init -q -b main .
    git config user.name tester
    git config user.email tester@example.org
    touch lib/data/packed/packed.c lib/data/packed/index.c lib/data/other.c
    commit '3 days ago'
    export PP_FUZZ_SOURCES='lib/data/packed* tests/fuzz/fuzz_packed.c'
    unset PP_FUZZ_SECONDS PP_FUZZ_BASE PP_FUZZ_READERS
}

commit() {
    git add .
    GIT_COMMITTER_DATE="$(date -d "$1" +@%s)" git commit -q -m change
}

# gives SECONDS: run-fuzzer passes this limit to the fuzzer.
gives() {
    run tests/fuzz/run-fuzzer ./program corpus -dict=words
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"-max_total_time=$1 "* && "$output" == *-dict=words* ]]
}

@test "a minute after a change of a reader, seconds else" {
    gives 20
    echo 1 >lib/data/other.c
    gives 20
    echo 1 >lib/data/packed/index.c # not yet committed
    gives 60
    commit '2 days ago'
    gives 60
    echo 2 >lib/data/other.c
    commit '4 hours ago'
    gives 20
    echo 2 >lib/data/packed/packed.c
    commit '3 hours ago'
    echo 3 >lib/data/other.c
    commit now
    gives 60
    PP_FUZZ_BASE=HEAD~1 gives 20
}

@test "on a branch, after what the branch changes" {
    git switch -q -c branch
    echo 1 >lib/data/packed/packed.c
    commit '2 days ago'
    gives 60
    PP_FUZZ_SOURCES=lib/data/other.c gives 20
}

@test "two changed readers or more share a minute" {
    local i readers=
    for i in 1 2 3 4 5 6 7 8; do
        touch "lib/data/reader_$i.c"
        readers+="tests/fuzz/$i.c lib/data/reader_$i.*,"
    done
    mkdir lib/csv
    touch lib/csv/csv.c
    commit '2 days ago'
    echo 1 >lib/data/other.c
    commit now
    export PP_FUZZ_READERS="$PP_FUZZ_SOURCES,$readers lib/csv"
    echo 2 | tee lib/data/packed/packed.c lib/data/reader_1.c >lib/data/other.c
    gives 30
    echo 1 >lib/csv/csv.c
    gives 20
    echo 1 | tee lib/data/reader_*.c >lib/data/packed/index.c
    gives 6
    PP_FUZZ_SECONDS=7 gives 7
    PP_FUZZ_LONG=1 gives 600
    PP_FUZZ_SOURCES=lib/data/pack gives 20
}

@test "without git, seconds; in the suite slow, as long as the user says" {
    rm -rf .git
    GIT_CEILING_DIRECTORIES=$PWD/.. gives 20
    PP_FUZZ_LONG=1 gives 600
    PP_FUZZ_LONG=1 PP_FUZZ_SECONDS=7200 gives 7200
}

@test "a failure prints the input" {
    cat >program <<'END'
#!/bin/sh
for option; do
    case $option in
    -artifact_prefix=*) printf abc >"${option#*=}crash" ;;
    esac
done
exit 1
END
    run tests/fuzz/run-fuzzer ./program corpus
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = YWJj ]
}
