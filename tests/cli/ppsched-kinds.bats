
@test "a plan beyond the limit is refused before it is made" {
    # Each of the three sizes counts.
    local sizes
    for sizes in "-p 2 -m 1000 --slices 32767" "-p 2048 -m 2049 --slices 1" \
        "-p 2 -m 65537 --slices 32"; do
        # shellcheck disable=SC2086 # words
        run timeout 20 ppsched -s seq1f1b --stats $sizes
        [ "$status" -eq 2 ]
        [[ "$output" == "ppsched: "*" stages, "*" microbatches and "*" slices make more than 4194304 forwards, the limit of a plan" ]]
    done
}
