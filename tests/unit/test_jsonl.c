/* SPDX-License-Identifier: MIT */
/* test_jsonl - reads documents from JSON Lines, and refuses malformed lines. */
#include "data/readers.h"
#include "data/packed/packed.h"
#include "data/pieces.h"
#include "tap.h"

static int make(const struct pp_documents *d, uint32_t capacity, uint32_t align,
                enum pp_oversize oversize, bool drop_empty,
                struct pp_pieces *out, struct pp_err *err)
{
    const struct pp_piece_options o = {.capacity = capacity,
                                       .align = align,
                                       .oversize = oversize,
                                       .drop_empty = drop_empty};
    return pp_pieces_make(d, &o, out, err);
}

static int read_text(const char *text, size_t n, bool bytes,
                     struct pp_documents *d, struct pp_err *err)
{
    /* A copy of the exact size lets a sanitizer find a read past its end. */
    char *copy = malloc(n + 1);
    memcpy(copy, text, n);
    FILE *f = fmemopen(copy, n, "r");
    struct pp_jsonl j = {.name = "in", .bytes = bytes};
    memset(d, 0, sizeof *d);
    int rc = pp_jsonl_read(&j, f, d, err);
    fclose(f);
    free(copy);
    return rc;
}

/* Returns "1,2|3" for two documents, then "/" and the labels if there are
 * any. */
static void is_read(const char *text, bool bytes, const char *want,
                    const char *what)
{
    struct pp_documents d;
    struct pp_err err = {0};
    char got[1024] = "";
    size_t at = 0;
    if (read_text(text, strlen(text), bytes, &d, &err) != 0)
        snprintf(got, sizeof got, "%s", err.text);
    for (int k = 0; k < (d.labels ? 2 : 1); k++)
        for (size_t i = 0; err.code == 0 && i < d.n; i++) {
            const char *between = i ? "|" : k ? "/" : "";
            at += (size_t)snprintf(got + at, sizeof got - at, "%s", between);
            for (size_t t = d.first[i]; t < d.first[i + 1]; t++)
                at += (size_t)snprintf(got + at, sizeof got - at, "%s%d",
                                       t > d.first[i] ? "," : "",
                                       (k ? d.labels : d.ids)[t]);
        }
    is_str(got, want, what);
    pp_documents_finish(&d);
}

static void test_good(void)
{
    is_read("{\"input_ids\": [1, 2,3]}\n{\"input_ids\":[0]}\n", false,
            "1,2,3|0", "ids");
    is_read("{\"input_ids\":[5]}", false, "5", "a last line without a newline");
    is_read("\n{\"input_ids\":[5]}\r\n  \n", false, "5", "blank lines");
    is_read(" { \"input_ids\" : [ 1 , 2 ] } ", false, "1,2", "white space");
    is_read("{\"input_ids\":[1]}\n{\"input_ids\":[2,3],\"labels\":[-100,9]}",
            false, "1|2,3/1|-100,9", "labels from the second document on");
    is_read("{\"labels\":[-100,9],\"input_ids\":[2,3]}\n{\"input_ids\":[4]}",
            false, "2,3|4/-100,9|4", "labels first, then a line without");
    is_read("{\"input_ids\":[7,8,9],\"loss_mask\":[0,true,false]}", false,
            "7,8,9/-100,8,-100", "loss_mask of numbers and words");
    is_read("{\"input_ids\":[7,8],\"completion_mask\":[0,1]}", false,
            "7,8/-100,8", "the mask of a completion");
    is_read("{\"input_ids\":[7,8],\"assistant_masks\":[0,1]}", false,
            "7,8/-100,8", "the mask of an assistant");
    is_read("{\"input_ids\":[7,8],\"labels\":[1,2],\"loss_mask\":[1,0]}", false,
            "7,8/1,-100", "labels and loss_mask together");
    is_read("{\"labels\":null,\"input_ids\":[7,8],\"loss_mask\": null}", false,
            "7,8", "null is as if absent");
    is_read("{\"attention_mask\":[1,1,0],\"input_ids\":[7,8,0]}", false, "7,8",
            "padding on the right");
    is_read("{\"input_ids\":[0,0,7,8],\"attention_mask\":[0,false,true,1],"
            "\"labels\":[0,0,-100,8]}",
            false, "7,8/-100,8", "padding on the left, with labels");
    is_read("{\"input_ids\":[0,7,0],\"attention_mask\":[0,1,0]}\n"
            "{\"input_ids\":[9],\"attention_mask\":[1]}",
            false, "7|9", "padding on both sides, and none");
    is_read("{\"x\":{\"a\":[1,-2.5e+3,{},[],[[\"\\n\"]]],\"b\":null},\"y\":tru"
            "e,\"input_ids\":[4],\"text\":\"q\"}",
            false, "4", "other keys are skipped");
    is_read("{\"input\\u005fids\":[4]}", false, "4", "an escaped key");
    is_read("{\"text\":\"ab\"}\n{\"text\":\"\"}", true, "97,98,256|256",
            "bytes and the end of document");
    is_read("{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\"}", true,
            "34,92,47,8,12,10,13,9,0,256", "escapes");
    is_read("{\"text\":\"\\u00e9\\u20AC\\ud83d\\ude00\xc3\xa9\"}", true,
            "195,169,226,130,172,240,159,152,128,195,169,256",
            "escapes beyond ASCII, a surrogate pair, raw UTF-8");
    is_read("{\"text\":\"a\",\"input_ids\":[\"not looked at\"]}", true,
            "97,256", "with bytes, input_ids is another key");
    is_read("{\"input_ids\":[2147483646]}", false, "2147483646",
            "the largest id");
    is_read("", false, "", "an empty file");
}

/* Lines of tools that know images are read if they have none. */
static void test_images(void)
{
    static const char text[] = "the line has images, but the id of their "
                               "placeholders is not known";
    char want[160];
    is_read("{\"images\":null,\"pixel_values\": [ ],\"input_ids\":[1]}", false,
            "1", "no images");
    snprintf(want, sizeof want, "in: line 1: %s", text);
    is_read("{\"images\":[\"cat.npy\"],\"input_ids\":[1]}", false, want,
            "an image in a list");
    is_read("{\"input_ids\":[1],\"image\":\"cat.npy\"}", false, want,
            "the path of an image");
    is_read("{\"messages\":[{\"pixel_values\":[[0.5]],\"input_ids\":[1]}]}",
            false,
            "in: line 1, column 54: 'images' must be a field of the line, not "
            "of a turn or a side",
            "an image in a turn");
}

static void test_bad(void)
{
    is_read("{\"input_ids\":[1]}\n{\"input_ids\":[1,x]}", false,
            "in: line 2, column 17: expected a token id, got 'x'",
            "a word among the ids");
    is_read("{\"input_ids\":[1,-1]}", false,
            "in: line 1, column 17: expected a token id, got '-1'",
            "a negative id");
    is_read("{\"input_ids\":[1.0]}", false,
            "in: line 1, column 15: expected a token id, got '1.0'",
            "a fraction");
    is_read("{\"input_ids\":[01]}", false,
            "in: line 1, column 15: expected a token id, got '01'",
            "a leading zero");
    is_read("{\"input_ids\":[2147483647]}", false,
            "in: line 1, column 15: expected a token id, got '2147483647'",
            "an id too large");
    is_read("{\"input_ids\":[99999999999999999999999]}", false,
            "in: line 1, column 15: expected a token id, got "
            "'99999999999999999999999'",
            "an id beyond 64 bits");
    is_read("{\"input_ids\":[1,]}", false,
            "in: line 1, column 17: expected a token id, got ']'",
            "a comma too many");
    is_read("{\"input_ids\":[1 2]}", false,
            "in: line 1, column 17: expected ',' or ']', got '2'",
            "a comma too few");
    is_read("{\"input_ids\":[1,2", false,
            "in: line 1, column 18: expected ',' or ']', got the end",
            "a line cut short");
    is_read("{\"input_ids\":[1]} x", false,
            "in: line 1, column 19: expected the end, got 'x'",
            "more on the line");
    is_read("[1]", false,
            "in: line 1, column 1: expected '{', got '['; jq -c '.[]' makes "
            "lines of a list",
            "not an object");
    is_read(
        "{\"text\":\"a\"}", false,
        "in: line 1: no 'input_ids'; scripts/tokenize makes them from text, "
        "and a model of bytes needs none",
        "text only");
    is_read("{\"input_ids\":[1]}", true,
            "in: line 1: no 'text', which the byte tokenizer needs",
            "ids only");
    is_read("{\"input_ids\":[]}", false, "in: line 1: 'input_ids' is empty",
            "no tokens");
    is_read("{\"input_ids\":[1],\"input_ids\":[2]}", false,
            "in: line 1, column 30: repeated 'input_ids'", "a key twice");
    is_read("{\"input_ids\":[1,2],\"labels\":[1]}", false,
            "in: line 1: '1' labels for 2 tokens", "too few labels");
    is_read("{\"input_ids\":[1],\"labels\":[-5]}", false,
            "in: line 1: '-5' is not a label (0 or more, or -100)",
            "a negative label");
    is_read("{\"input_ids\":[1],\"loss_mask\":[2]}", false,
            "in: line 1, column 31: expected 0 or 1, got '2'", "a mask of 2");
    is_read("{\"input_ids\":[1,2],\"attention_mask\":[1]}", false,
            "in: line 1, column 37: attention_mask of '1' elements for 2 "
            "tokens",
            "a short attention mask");
    is_read("{\"input_ids\":[1,2,3],\"attention_mask\":[1,0,1]}", false,
            "in: line 1, column 39: attention_mask: '0' between tokens is not "
            "padding",
            "a hole in the attention mask");
    is_read("{\"input_ids\":[1,2],\"attention_mask\":[1,0],"
            "\"seq_lengths\":[2]}",
            false,
            "in: line 1: attention_mask: padding cannot be given beside the "
            "places of sequences",
            "padding in a row of several sequences");
    is_read("{\"input_ids\":[1],\"loss_mask\":[0,1]}", false,
            "in: line 1: loss_mask of '2' elements for 1 tokens",
            "a long mask");
    is_read("{\"a\":[1,}],\"input_ids\":[1]}", false,
            "in: line 1, column 9: expected a value, got '}'",
            "a skipped value is checked");
    is_read("{\"a\":-,\"input_ids\":[1]}", false,
            "in: line 1, column 7: expected a digit, got ','", "half a number");
    is_read("{\"text\":\"\\ud83d\"}", true,
            "in: line 1, column 16: incomplete surrogate pair", "half a pair");
    is_read("{\"text\":\"\\ud83d\\u0041\"}", true,
            "in: line 1, column 22: incomplete surrogate pair",
            "a wrong second half");
    is_read("{\"text\":\"\\x\"}", true,
            "in: line 1, column 11: expected an escape, got 'x'",
            "an unknown escape");
    is_read("{\"text\":\"a\tb\"}", true,
            "in: line 1, column 11: expected the end of a string, got byte 9",
            "a raw tab");
    is_read("{\"text\":\"\xc0\x80\"}", true,
            "in: line 1, column 10: expected UTF-8, got byte 192", "not UTF-8");
    is_read(
        "{\"input_ids\\u0000\":[4]}", false,
        "in: line 1: no 'input_ids'; scripts/tokenize makes them from text, "
        "and a model of bytes needs none",
        "a key with a NUL is another key");
    is_read("{\"text\":\"a", true,
            "in: line 1, column 11: expected the end of a string, got the end",
            "an open string");
}

/* Every prefix of a valid line, and every change of a byte, must be read or
 * refused, and never crash. */
static void test_damage(void)
{
    static const char line[] =
        "{\"k\\u0041\":[1,{\"b\":null}],\"input_ids\":[1,23],"
        "\"labels\":[-100,4],\"loss_mask\":[1,0],\"text\":\"\\ud83d\\ude00\"}";
    size_t n = sizeof line - 1, refused = 0;
    for (size_t i = 1; i < n; i++)
        for (int bytes = 0; bytes < 2; bytes++) {
            struct pp_documents d;
            struct pp_err err = {0};
            refused += read_text(line, i, bytes, &d, &err) != 0;
            pp_documents_finish(&d);
        }
    is_int((long long)refused, 2 * (long long)(n - 1),
           "every prefix of a line is refused");
    char copy[sizeof line];
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 256; c += 3) {
            struct pp_documents d;
            struct pp_err err = {0};
            memcpy(copy, line, n);
            copy[i] = (char)c;
            if (read_text(copy, n, c & 1, &d, &err) != 0)
                wrong += err.code != PP_EXIT_INPUT;
            pp_documents_finish(&d);
        }
    is_int((long long)wrong, 0, "a changed byte is the input's fault");
    char deep[2000] = "{\"a\":";
    memset(deep + 5, '[', sizeof deep - 6);
    is_read(deep, false, "in: line 1, column 206: nested deeper than 200",
            "deep nesting does not overflow the stack");
}

static void test_lengths(void)
{
    char text[] = "3\n\n0\r\n12", bad[] = "3\n4x\n";
    FILE *f = fmemopen(text, strlen(text), "r");
    struct pp_documents d = {0};
    struct pp_err err = {0};
    ok(pp_lengths_read("in", f, &d, NULL, NULL, &err) == 0 && d.n == 3 &&
           d.first[1] == 3 && d.first[2] == 3 && d.first[3] == 15,
       "lengths");
    fclose(f);
    f = fmemopen(bad, strlen(bad), "r");
    ok(pp_lengths_read("in", f, &d, NULL, NULL, &err) != 0, "a bad length");
    is_str(err.text, "in: line 2: length: '4x' is not an integer",
           "the message names it");
    fclose(f);
    pp_documents_finish(&d);
}

static void test_pieces(void)
{
    struct pp_documents d = {0};
    struct pp_pieces p;
    struct pp_err err = {0};
    static const size_t lengths[] = {25, 3, 0, 10, 20};
    for (size_t i = 0; i < 5; i++)
        if (pp_documents_add(&d, lengths[i], NULL, &err) != 0)
            ok(false, "%s", err.text);
    ok(make(&d, 11, 2, PP_OVERSIZE_SPLIT, true, &p, &err) == 0 && p.n == 7 &&
           p.counts.n_split == 2 && p.counts.n_empty == 1 && p.n_tokens == 58,
       "split into pieces that are aligned too");
    ok(p.piece[2].source == 0 && p.piece[2].start == 20 &&
           p.piece[2].length == 5 && p.padded[2] == 6 && p.piece[2].at == 20,
       "the rest of a document");
    ok(p.piece[3].source == 1 && p.piece[3].at == 25 && p.piece[3].padded == 4,
       "the document after it");
    pp_pieces_finish(&p);
    ok(make(&d, 10, 1, PP_OVERSIZE_TRUNCATE, false, &p, &err) == 0 &&
           p.n == 5 && p.counts.n_truncated == 2 && p.piece[4].length == 10,
       "truncate; empty documents kept");
    pp_pieces_finish(&p);
    ok(make(&d, 10, 1, PP_OVERSIZE_DROP, true, &p, &err) == 0 && p.n == 2 &&
           p.counts.n_dropped == 2,
       "drop");
    pp_pieces_finish(&p);
    ok(make(&d, 11, 4, PP_OVERSIZE_ERROR, true, &p, &err) != 0 &&
           err.code == PP_EXIT_INPUT,
       "error");
    is_str(err.text, "sequence 0 has '25' tokens, more than the 8 of a bin",
           "capacity is tested after alignment");
    pp_documents_finish(&d);
    is_int(pp_pieces_align(1, 1, 1), 1, "no alignment");
    is_int(pp_pieces_align(1, 1, 2), 2, "tp 2");
    is_int(pp_pieces_align(1, 4, 2), 8, "cp 4, tp 2");
    is_int(pp_pieces_align(1, 2, 4), 8, "cp 2, tp 4");
    is_int(pp_pieces_align(6, 2, 1), 12, "a multiple of 6 and cp 2");
    is_int(pp_pieces_align(INT32_MAX, 2, 1), 0, "too much");
}

int main(void)
{
    test_good();
    test_images();
    test_bad();
    test_damage();
    test_lengths();
    test_pieces();
    return done();
}
