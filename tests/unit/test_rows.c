/* SPDX-License-Identifier: MIT */
/* test_rows - reads chats, pairs and rollouts from JSON Lines: scored tokens,
 * groups, and the values of each token. */
#include "data/documents.h"
#include "data/readers.h"
#include "data/packed/packed.h"
#include "data/pieces.h"
#include "tap.h"

static int read_text(const char *text, size_t skip_bad, struct pp_documents *d,
                     struct pp_err *err)
{
    FILE *f = fmemopen((void *)(size_t)text, strlen(text), "r");
    struct pp_jsonl j = {.name = "in", .skip_bad = skip_bad};
    memset(d, 0, sizeof *d);
    int rc = pp_jsonl_read(&j, f, d, err);
    fclose(f);
    return rc;
}

static size_t print_column(const struct pp_documents *d, int c, char *out,
                           size_t size)
{
    size_t n = d->n, at;
    if (pp_columns[c].scope == PP_SCOPE_TOKEN)
        n = pp_documents_n_tokens(d);
    else if (pp_columns[c].scope == PP_SCOPE_SEQUENCE)
        n = d->n_sequences;
    at = (size_t)snprintf(out, size, " %s", pp_columns[c].name);
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%g", i ? "," : "=",
                               (double)d->columns[c][i]);
    return at;
}

/* Returns "pairs 1,2+3|4": '+' separates sequences of a document, and '|'
 * documents; tokens that are not scored are in parentheses; columns follow. */
static void is_read(const char *text, const char *want, const char *what)
{
    struct pp_documents d;
    struct pp_err err = {0};
    char got[1024] = "";
    if (read_text(text, 0, &d, &err) != 0) {
        snprintf(got, sizeof got, "%s", err.text);
    } else {
        size_t at =
            (size_t)snprintf(got, sizeof got, "%s ", pp_data_kinds[d.kind]);
        for (size_t i = 0; i < d.n; i++) {
            size_t end = pp_documents_sequence(&d, i + 1);
            for (size_t s = pp_documents_sequence(&d, i); s < end; s++)
                for (size_t t = d.first[s]; t < d.first[s + 1]; t++) {
                    bool first = t == d.first[s];
                    bool opens = s == pp_documents_sequence(&d, i);
                    const char *between = !first   ? ","
                                          : !opens ? "+"
                                          : i      ? "|"
                                                   : "";
                    bool scored = !d.labels || d.labels[t] != PP_LABEL_IGNORE;
                    at += (size_t)snprintf(got + at, sizeof got - at,
                                           scored ? "%s%d" : "%s(%d)", between,
                                           d.ids[t]);
                }
        }
        for (int c = 0; c < PP_N_COLUMNS; c++)
            if (d.columns[c])
                at += print_column(&d, c, got + at, sizeof got - at);
    }
    is_str(got, want, what);
    pp_documents_finish(&d);
}

static void test_chats(void)
{
    is_read("{\"messages\":[{\"role\":\"user\",\"input_ids\":[1,2]},{\"role\":"
            "\"assistant\",\"input_ids\":[3]}]}",
            "documents (1),(2),3", "the assistant's turns are scored");
    is_read("{\"messages\":[{\"role\":\"assistant\",\"train\":false,\"token_"
            "ids\":[1]},{\"train\":1,\"role\":\"user\",\"input_ids\":[2]},{"
            "\"input_ids\":[3]}]}",
            "documents (1),2,3",
            "turns with train, or without a role, are scored");
    is_read("{\"messages\":[{\"input_ids\":[1,2,3],\"loss_mask\":[0,1,0]},{"
            "\"role\":\"user\",\"input_ids\":[4,5],\"loss_mask\":[0,1]}]}",
            "documents (1),2,(3),(4),5", "token by token");
    is_read("{\"messages\":[{\"content\":\"hi\"}]}",
            "in: line 1, column 30: a turn needs 'input_ids'; scripts/tokenize "
            "makes them from text",
            "text");
}

static void test_pairs(void)
{
    is_read("{\"prompt\":[1],\"chosen\":[2,3],\"rejected\":[4]}",
            "pairs (1),2,3+(1),4", "a pair and its prompt");
    is_read("{\"rejected_input_ids\":[4],\"margin\":0.5,\"chosen_input_ids\":["
            "2]}\n{\"chosen\":[5],\"rejected\":[6],\"margin\":1}",
            "pairs 2+4|5+6 margins=0.5,1", "other names and order; margins");
    is_read(
        "{\"chosen\":{\"input_ids\":[1,2],\"labels\":[-100,2],\"ref_logprobs\":"
        "[0,-1]},\"rejected\":{\"input_ids\":[3],\"ref_logprobs\":-2}}",
        "pairs (1),2+3 ref_logprobs=0,-1,-2", "sides as objects");
    is_read("{\"chosen\":[{\"role\":\"user\",\"input_ids\":[1]},{\"role\":"
            "\"assistant\",\"input_ids\":[2]}],\"rejected\":[3],\"ref_chosen_"
            "logps\":-1.5,\"ref_rejected_logps\":-2}",
            "pairs (1),2+3 ref_logps=-1.5,-2", "a side of turns; sums");
    is_read("{\"chosen\":[1],\"rejected\":[2],\"margin\":null}", "pairs 1+2",
            "null is not there");
    is_read("{\"prompt\":\"Q\",\"chosen\":\"a\",\"rejected\":\"b\"}",
            "in: line 1, column 11: expected token ids, got text; "
            "scripts/tokenize makes them",
            "a pair of texts");
    is_read(
        "{\"chosen\":[1]}",
        "in: line 1, column 15: 'chosen' and 'rejected' must be given together",
        "half a pair");
    is_read("{\"chosen\":[1],\"rejected\":[]}",
            "in: line 1, column 28: a sequence needs at least one token",
            "an empty side");
    is_read("{\"input_ids\":[1]}\n{\"chosen\":[1],\"rejected\":[2]}",
            "in: line 2: 'pairs' cannot be mixed with the earlier documents; "
            "pack each apart",
            "one kind at a time");
    is_read("{\"chosen\":[1],\"rejected\":[2],\"margin\":1}\n{\"chosen\":[1],"
            "\"rejected\":[2]}",
            "in: line 2: has no 'margins', but earlier documents do",
            "all documents must have the column");
    is_read("{\"chosen\":[1],\"rejected\":[2]}\n{\"chosen\":[1],\"rejected\":["
            "2],\"margin\":1}",
            "in: line 2: has 'margins', but earlier documents do not",
            "or none may have it");
}

static void test_rollouts(void)
{
    is_read("{\"prompt\":[1],\"response\":[2,3],\"advantages\":[0.5,-1],"
            "\"logprobs\":[-9,-1,-2],\"reward\":1}",
            "rollouts (1),2,3 advantages=0,0.5,-1 logprobs=-9,-1,-2 rewards=1",
            "values for the response, or for all tokens");
    is_read(
        "{\"prompt\":[1],\"response\":[2],\"group\":\"a\"}\n{\"prompt\":[1],"
        "\"response\":[3],\"group\":\"a\"}\n{\"prompt\":[1],\"response\":[4],"
        "\"group\":\"b\"}\n{\"prompt\":[1],\"response\":[5],\"group\":\"a\"}",
        "rollouts (1),2+(1),3|(1),4|(1),5",
        "lines of one group, one after the other, stay together");
    is_read("{\"prompt\":[1],\"responses\":[[2,3],{\"response\":[4]}],"
            "\"rewards\":[1,0],\"advantages\":[[1,2],3]}",
            "rollouts (1),2,3+(1),4 advantages=0,1,2,0,3 rewards=1,0",
            "several responses in a line");
    is_read("{\"responses\":[[2],[3]],\"rewards\":[1]}",
            "in: line 1, column 37: '1' rewards are fewer than the responses",
            "too few values");
    is_read("{\"prompt\":[1],\"response\":[2,3],\"advantages\":[1,2,3,4]}",
            "in: line 1, column 45: '4' advantages for 2 tokens", "too many");
    is_read("{\"response\":[2],\"advantages\":\"x\"}",
            "in: line 1, column 30: expected a number, got '\"'", "a word");
    is_read("{\"response\":[2],\"advantages\":1e99}",
            "in: line 1, column 30: expected a number that a float can hold, "
            "got '1e99'",
            "a number that is too large");
    is_read("{\"input_ids\":[1,2],\"loss_mask\":[0,1],\"advantages\":[0,1]}",
            "documents (1),2 advantages=0,1", "documents have columns too");
}

static void test_packed_rows(void)
{
    is_read("{\"input_ids\":[1,2,3,4,5],\"position_ids\":[0,1,0,1,2]}",
            "documents 1,2|3,4,5", "positions that begin anew");
    is_read(
        "{\"input_ids\":[1,2,3],\"seq_lengths\":[1,0,2],\"labels\":[1,-100,3]}",
        "documents 1|(2),3", "lengths");
    is_read("{\"input_ids\":[1,2,3],\"seq_start_id\":[0,2]}", "documents 1,2|3",
            "starts");
    is_read("{\"input_ids\":[1,2],\"position_ids\":[0,2]}",
            "in: line 1: position_ids: '2' must be 0 or the previous position "
            "plus 1",
            "a gap");
    is_read("{\"input_ids\":[1,2],\"seq_lengths\":[1]}",
            "in: line 1, column 37: seq_lengths sum to '1' for 2 tokens",
            "too few");
    is_read("{\"input_ids\":[1,2],\"seq_lengths\":[3]}",
            "in: line 1, column 36: '3' ends after the row", "too many");
    is_read("{\"input_ids\":[1,2],\"seq_start_id\":[1]}",
            "in: line 1, column 37: '1' is not a start in this row",
            "a row begins at 0");
}

static void test_skipped(void)
{
    struct pp_documents d;
    struct pp_err err = {0};
    const char *text =
        "{\"chosen\":[1],\"rejected\":[2,3],\"margin\":1}\n{\"chosen\":[7],"
        "\"rejected\":[8]}\n{\"chosen\":[7],\"rejected\":[x]}\n{\"chosen\":[4],"
        "\"rejected\":[5],\"margin\":2}\n";
    ok(read_text(text, 2, &d, &err) == 0 && d.n == 2 && d.n_skipped == 2 &&
           d.n_sequences == 4 && d.first[4] == 5 && d.ids[3] == 4 &&
           d.columns[PP_COLUMN_MARGINS][1] == 2,
       "a malformed line leaves nothing: %s", err.text);
    pp_documents_finish(&d);
    ok(read_text(text, 1, &d, &err) != 0 && err.code == PP_EXIT_INPUT &&
           strstr(err.text, "line 3"),
       "one more malformed line is an error: %s", err.text);
    pp_documents_finish(&d);
    err = (struct pp_err){0};
    ok(read_text("{\"chosen\":[7],\"rejected\":[8],\"margin\":[]}\n{\"input_"
                 "ids\":[4]}",
                 1, &d, &err) == 0 &&
           d.n == 1 && !d.columns[PP_COLUMN_MARGINS] && !d.member && !d.labels,
       "a skipped first line decides nothing: %s", err.text);
    pp_documents_finish(&d);
}

static void test_pieces(void)
{
    struct pp_documents d;
    struct pp_pieces p;
    struct pp_err err = {0};
    struct pp_piece_options o = {.capacity = 8, .align = 2};
    if (!ok(read_text("{\"chosen\":[1,2,3],\"rejected\":[4]}\n{\"chosen\":[1,2,"
                      "3,4,5],\"rejected\":[4,5,6]}",
                      0, &d, &err) == 0,
            "pairs of 6 and 10 positions"))
        return;
    ok(pp_pieces_make(&d, &o, &p, &err) != 0 &&
           strstr(err.text, "pair 1 has '10' tokens, more than the 8"),
       "a pair that is too long: %s", err.text);
    err = (struct pp_err){0};
    o.oversize = PP_OVERSIZE_DROP;
    ok(pp_pieces_make(&d, &o, &p, &err) == 0 && p.n == 1 && p.padded[0] == 6 &&
           p.piece[0].length == 4 && p.counts.n_dropped == 1 &&
           p.counts.dropped_tokens == 8 && p.counts.tokens == 12 &&
           p.counts.sequences == 4,
       "it is dropped and counted");
    pp_pieces_finish(&p);
    pp_documents_finish(&d);
}

/* Tokens in a file without a name must be the same as in memory. */
static void test_spill(void)
{
    struct pp_documents d = {.spill = "/tmp", .spill_bytes = 4096};
    struct pp_err err = {0};
    bool good = true;
    for (int i = 0; i < 5000 && good; i++) {
        int32_t labels[3] = {i, PP_LABEL_IGNORE, i + 1}, *ids;
        ids = pp_documents_reserve(&d, 3, &err);
        good = ids != NULL;
        for (int k = 0; good && k < 3; k++)
            ids[k] = 3 * i + k;
        good =
            good && pp_documents_add(&d, 3, i < 9 ? NULL : labels, &err) == 0;
    }
    pp_documents_release(&d);
    ok(good && d.grow_ids.fd && d.grow_labels.fd, "tokens spill %s", err.text);
    for (int i = 0; i < 15000 && good; i++)
        good = d.ids[i] == i &&
               (i < 27 ? d.labels[i] == i
                       : d.labels[i] == (i % 3 == 1 ? PP_LABEL_IGNORE
                                                    : i / 3 + i % 3 / 2));
    ok(good, "and are all there");
    pp_documents_finish(&d);
    d = (struct pp_documents){.spill = "/nonexistent", .spill_bytes = 64};
    ok(!pp_documents_reserve(&d, 100, &err) && err.code == PP_EXIT_SYSTEM,
       "nowhere to spill: %s", err.text);
    pp_documents_finish(&d);
}

int main(void)
{
    test_chats();
    test_pairs();
    test_rollouts();
    test_packed_rows();
    test_skipped();
    test_pieces();
    test_spill();
    return done();
}
