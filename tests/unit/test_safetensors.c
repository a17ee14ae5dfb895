/* SPDX-License-Identifier: MIT */
/* test_safetensors - writes files and reads them back; malformed files, sharded
 * sets, conversions, failing disks. */
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "data/tensors/safetensors.h"
#include "tap.h"

/* The test runs in the directory of its files, so that messages begin with
 * plain names. */
static char dir[] = "/tmp/test_safetensors.XXXXXX";

static void put_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(name, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        exit(99);
}

/* Makes a file: size, header, then n bytes of data counting 0, 1, 2... */
static void put_tensors(const char *name, const char *header, size_t n)
{
    size_t length = strlen(header);
    unsigned char *p = calloc(1, 8 + length + n);
    if (!p)
        exit(99);
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(p + 8, header, length);
    for (size_t i = 0; i < n; i++)
        p[8 + length + i] = (unsigned char)i;
    put_file(name, p, 8 + length + n);
    free(p);
}

/* Returns the error of opening path, or "" if it opens. */
static const char *open_error(const char *path)
{
    static struct pp_err err;
    struct pp_tensors *t;
    memset(&err, 0, sizeof err);
    if (pp_tensors_open(path, &t, &err) == 0)
        pp_tensors_close(t);
    else if (err.code != PP_EXIT_INPUT)
        return "(wrong status)";
    return err.text;
}

static void refuse(const char *header, size_t n, const char *want)
{
    put_tensors("t.safetensors", header, n);
    is_str(open_error("t.safetensors"), want, want);
}

#define OFFSETS(a, b) "\"data_offsets\":[" #a "," #b "]"

static void test_headers(void)
{
    put_tensors("t.safetensors",
                "{\"__metadata__\":{\"format\":\"pt\"}, \"a\": {\"shape\": "
                "[2, 3],\"data_offsets\": [ 0, 24 ],\"dtype\":\"F32\"} } \n",
                24);
    is_str(open_error("t.safetensors"), "", "blanks and any order of keys");
    put_tensors("t.safetensors", "{}", 0);
    is_str(open_error("t.safetensors"), "", "no tensor at all");
    put_tensors(
        "t.safetensors",
        "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[3]," OFFSETS(0, 3) "}}", 3);
    is_str(open_error("t.safetensors"), "", "a dtype that is never read");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]," OFFSETS(0, 8) "}}", 7,
           "t.safetensors: 'a': data ends at 70, but the file ends at 69");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]," OFFSETS(0, 8) "}}", 9,
           "t.safetensors: the last 1 bytes belong to no tensor");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]," OFFSETS(4, 12) "}}", 12,
           "t.safetensors: 'a': 4 bytes before it belong to no tensor");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[3]," OFFSETS(0, 8) "}}", 8,
           "t.safetensors: 'a': has 8 bytes of data, but its shape needs 12");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]," OFFSETS(8, 0) "}}", 8,
           "t.safetensors: 'a': data_offsets 8, 0 are out of order");
    refuse(
        "{\"a\":{\"dtype\":\"F16\",\"shape\":[4294967296,4294967296]," OFFSETS(
            0, 0) "}}",
        0, "t.safetensors: 'a': the shape is too large");
    refuse("{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952]," OFFSETS(
               0, 0) "}}",
           0, "t.safetensors: 'a': the shape is too large");
    refuse("{\"a\":{\"dtype\":\"F4\",\"shape\":[3]," OFFSETS(0, 1) "}}", 1,
           "t.safetensors: 'a': has 1 bytes of data, but its shape needs 2");
    refuse("{\"a\":{\"dtype\":\"F31\",\"shape\":[2]," OFFSETS(0, 8) "}}", 8,
           "t.safetensors: 'a': unknown dtype 'F31'");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1]," OFFSETS(
               0, 4) "}}",
           4, "t.safetensors: 'a': more than 8 dimensions");
    refuse("{\"a\":{\"dtype\":\"F32\"," OFFSETS(0, 8) "}}", 8,
           "t.safetensors: 'a': no 'shape'");
    refuse("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 8,
           "t.safetensors: 'a': repeated 'dtype'");
    refuse("{\"a\":{\"type\":\"F32\"}}", 8,
           "t.safetensors: 'a': unknown key 'type'");
    refuse(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]," OFFSETS(
            0, 4) "},"
                  "\"b\":{\"dtype\":\"F32\",\"shape\":[1]," OFFSETS(2, 6) "}}",
        6, "t.safetensors: 'a' and 'b' overlap");
    refuse(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]," OFFSETS(
            0, 4) "},"
                  "\"b\":{\"dtype\":\"F32\",\"shape\":[1]," OFFSETS(0, 4) "}}",
        4, "t.safetensors: 'a' and 'b' overlap");
    refuse(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]," OFFSETS(
            0, 4) "},"
                  "\"a\":{\"dtype\":\"F32\",\"shape\":[1]," OFFSETS(4, 8) "}}",
        8, "t.safetensors: 'a' occurs twice");
}

/* Headers that are not JSON, or have the wrong contents. */
static void test_syntax(void)
{
#define AT(column) "t.safetensors: header: line 1, column " #column ": "
    refuse("[]", 0, AT(1) "expected '{', got '['");
    refuse("{} x", 0, AT(4) "expected the end, got 'x'");
    refuse("{\"a\" 1}", 0, AT(6) "expected ':', got '1'");
    refuse("{\"a\":1}", 0, AT(6) "expected '{', got '1'");
    refuse("{\"a\":{},}", 0, "t.safetensors: 'a': no 'dtype'");
    refuse("{\"__metadata__\":{\"a\":1}}", 0,
           AT(22) "expected a string, got '1'");
    refuse("{\"__metadata__\":{},}", 0, AT(20) "expected a string, got '}'");
    refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0,
           AT(35) "repeated '__metadata__'");
    refuse("{\"__metadata__\":{} \"a\"", 0,
           AT(20) "expected ',' or '}', got '\"'");
    refuse("{\"a", 0, AT(4) "expected the end of a string, got the end");
    refuse("{\"\\x\"", 0, AT(4) "expected an escape, got 'x'");
    refuse("{\"\\ud800\"", 0, AT(9) "incomplete surrogate pair");
    refuse("{\"\\ud800\\u0041\"", 0, AT(15) "incomplete surrogate pair");
    refuse("{\"\\u0000\"", 0, AT(10) "the name has a NUL");
    refuse("{\"\\u00g0\"", 0, AT(7) "expected a hexadecimal digit, got 'g0'");
    refuse("{\"\xc0\x80\"", 0, AT(3) "expected UTF-8, got byte 192");
    refuse("{\"\xed\xa0\x80\"", 0, AT(3) "expected UTF-8, got byte 237");
    refuse("{\"\n\"", 0, AT(3) "expected the end of a string, got byte 10");
    refuse("{\"a\":{\"shape\":[01]}}", 0,
           AT(16) "expected a whole number, got '01'");
    refuse("{\"a\":{\"shape\":[-1]}}", 0,
           AT(16) "expected a whole number, got '-1'");
    refuse("{\"a\":{\"shape\":[1.0]}}", 0,
           AT(16) "expected a whole number, got '1.0'");
    refuse("{\"a\":{\"shape\":[1 2]}}", 0,
           AT(18) "expected ',' or ']', got '2'");
    refuse("{\"a\":{\"shape\":[18446744073709551616]}}", 0,
           AT(16) "expected a whole number, got '18446744073709551616'");
    refuse("{\"a\":{\"data_offsets\":[1]}}", 0, AT(24) "expected ',', got ']'");
#undef AT
}

/* Every prefix of a good file must be refused. A changed byte must be read or
 * refused; a sanitizer watches. */
static void test_truncated(void)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"BF16\","
        "\"shape\":[2,2],\"data_offsets\":[0,8]},\"\\u00e9\":{\"dtype\":"
        "\"F32\","
        "\"shape\":[1],\"data_offsets\":[8,12]}}";
    unsigned char file[8 + sizeof header + 12];
    size_t n = 8 + sizeof header - 1 + 12;
    put_tensors("t.safetensors", header, 12);
    is_str(open_error("t.safetensors"), "", "the whole file opens");
    FILE *f = fopen("t.safetensors", "rb");
    if (!f || fread(file, 1, n, f) != n)
        exit(99);
    fclose(f);
    size_t refused = 0, named = 0;
    for (size_t i = 0; i < n; i++) {
        put_file("cut.safetensors", file, i);
        const char *text = open_error("cut.safetensors");
        refused += *text != '\0';
        named += !strncmp(text, "cut.safetensors: ", 17);
    }
    is_int((long long)refused, (long long)n, "every truncated file is refused");
    is_int((long long)named, (long long)n, "and named");
    size_t orderly = 0;
    for (size_t i = 0; i < n - 12; i++) {
        file[i] ^= 0x11;
        put_file("cut.safetensors", file, n);
        orderly += strcmp(open_error("cut.safetensors"), "(wrong status)") != 0;
        file[i] ^= 0x11;
    }
    is_int((long long)orderly, (long long)n - 12,
           "a changed byte is read or refused");
    put_file("t.safetensors", "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
    is_str(open_error("t.safetensors"),
           "t.safetensors: is not a safetensors file",
           "a size from a file of another kind");
    static const char *const others[][2] = {
        {"GGUF\3\0\0\0", "a GGUF file"},
        {"PK\3\4\0\0\x8\x8", "a zip file of PyTorch"},
        {"\x80\2\x8a\x0al\xfc\x9c\x46", "a pickle of PyTorch"},
        {"\x80\4\x95\0\0\0\0\1", "a pickle of PyTorch"},
        {"{\"a\": 1}", "is not a safetensors file"},
        {"PAR1\x15\4\x15\xd2", "a Parquet table"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        put_file("t.safetensors", others[i][0], 8);
        ok(strstr(open_error("t.safetensors"), others[i][1]), "%s",
           others[i][1]);
    }
    is_str(open_error("none.safetensors"),
           "none.safetensors: No such file or directory", "no file");
    is_str(open_error("."),
           ".: no model.safetensors and no model.safetensors.index.json",
           "a directory without weights");
    ok(!pp_tensors_exist("."), "holds none");
    put_file("model-Q4_0.gguf", "", 0);
    is_str(open_error("."),
           ".: has a GGUF file; take the model's own safetensors", "GGUF");
    put_file("adapter_config.json", "{}", 2);
    is_str(open_error("."),
           ".: is an adapter; merge it into its model with peft "
           "(merge_and_unload) and save that",
           "an adapter");
    put_file("pytorch_model.bin.index.json", "{}", 2);
    is_str(open_error("."),
           ".: has pytorch_model.bin, which is not safetensors; load and save "
           "it with transformers, which writes model.safetensors",
           "pickled shards");
    unlink("adapter_config.json");
    unlink("model-Q4_0.gguf");
    unlink("pytorch_model.bin.index.json");
}

static void test_round_trip(void)
{
    const struct pp_tensor_spec specs[] = {
        {"b", PP_DTYPE_F32, 2, {2, 3}},
        {"a", PP_DTYPE_F64, 1, {2}},
        {"scalar", PP_DTYPE_I64, 0},
        {"none", PP_DTYPE_F32, 2, {0, 7}},
        {"q\"\\\n\xc3\xa9", PP_DTYPE_BF16, 1, {3}},
    };
    const float b[] = {1, -2, 3.5f, 1e-40f, INFINITY, 0};
    const double a[] = {1e300, 0x1.fffffffffffffp-1};
    const int64_t scalar = -7;
    const uint16_t q[] = {0x3f80, 0xbf80, 0x7f80};
    struct pp_err err = {0};
    struct pp_tensor_writer *w;
    struct pp_tensors *t;
    ok(pp_tensor_writer_open("model.safetensors", specs, 5, &w, &err) == 0 &&
           pp_tensor_writer_put(w, b, sizeof b, &err) == 0 &&
           pp_tensor_writer_put(w, a, 8, &err) == 0 &&
           pp_tensor_writer_put(w, a + 1, 8, &err) == 0 &&
           pp_tensor_writer_put(w, &scalar, sizeof scalar, &err) == 0 &&
           pp_tensor_writer_put(w, q, sizeof q, &err) == 0 &&
           pp_tensor_writer_close(w, &err) == 0,
       "written: %s", err.text);
    ok(pp_tensors_exist("."), "the directory now has weights");
    if (!ok(pp_tensors_open(".", &t, &err) == 0, "opened: %s", err.text))
        return;
    const void *map;
    size_t bytes;
    if (pp_file_map("model.safetensors", &map, &bytes, &err))
        exit(99);
    const unsigned char *p = map;
    ok(p[0] % 8 == 0, "the header is padded to 8 bytes");
    ok(!memcmp(p + 8,
               "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":"
               "\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}",
               78),
       "metadata first, then the tensors in the order given");
    pp_file_unmap(map, bytes);
    is_int((long long)pp_tensors_n(t), 5, "five tensors");
    is_str(pp_tensors_at(t, 0)->name, "a", "sorted by name");
    const struct pp_tensor *x = pp_tensors_find(t, "b");
    float f[6];
    double d[6];
    ok(x && x->dtype == PP_DTYPE_F32 && x->n_dims == 2 && x->dims[0] == 2 &&
           x->dims[1] == 3 && x->n == 6 && x->bytes == 24,
       "shape of b");
    ok(x && pp_tensor_read_f32(x, 0, 6, f, &err) == 0 && !memcmp(f, b, 24),
       "bits of b");
    x = pp_tensors_find(t, "a");
    ok(x && pp_tensor_read_f64(x, 0, 2, d, &err) == 0 && !memcmp(d, a, 16),
       "bits of a");
    ok(x && pp_tensor_read_f32(x, 1, 1, f, &err) == 0 && f[0] == 1,
       "an element rounded to float");
    x = pp_tensors_find(t, "q\"\\\n\xc3\xa9");
    ok(x && pp_tensor_read_f64(x, 1, 2, d, &err) == 0 && d[0] == -1 &&
           isinf(d[1]),
       "a name with escapes, bf16 from its second element");
    x = pp_tensors_find(t, "none");
    ok(x && x->n == 0 && pp_tensor_read_f32(x, 0, 0, f, &err) == 0,
       "an empty tensor");
    ok(x && pp_tensor_read_f32(x, 0, 1, f, &err) != 0, "has no element");
    is_str(err.text, "'none' has 0 elements, but 1 from 0 on are needed",
           "which is said");
    memset(&err, 0, sizeof err);
    x = pp_tensors_find(t, "scalar");
    ok(x && x->n == 1 && x->n_dims == 0 && !memcmp(x->data, &scalar, 8),
       "a scalar");
    ok(x && pp_tensor_read_f32(x, 0, 1, f, &err) != 0,
       "an integer tensor is not read as float");
    is_str(err.text, "'scalar' must have dtype F64, F32, F16 or BF16",
           "which is said too");
    ok(!pp_tensors_find(t, "c"), "a name that is not there");
    pp_tensors_close(t);
    pp_tensors_close(NULL);
    unlink("model.safetensors");
}

/* Returns the value of a half by its definition. */
static double half(unsigned h)
{
    int e = (int)(h >> 10 & 31);
    double f = h & 1023, v;
    if (e == 31)
        v = f > 0 ? NAN : INFINITY;
    else
        v = e ? ldexp(1024 + f, e - 25) : ldexp(f, -24);
    return h & 0x8000 ? -v : v;
}

static bool same(double x, double y)
{
    return isnan(x) ? isnan(y) : x == y && signbit(x) == signbit(y);
}

static void test_conversions(void)
{
    /* One byte before it makes every element unaligned. */
    static unsigned char bytes[1 + 2 * 65536];
    static float f[65536], g[65536];
    static double d[65536];
    struct pp_err err = {0};
    for (unsigned i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        memcpy(bytes + 1 + 2 * i, &h, 2);
    }
    struct pp_tensor t = {"t",   PP_DTYPE_F16, 1,      {65536},
                          65536, bytes + 1,    131072, "F16"};
    int bad = pp_tensor_read_f32(&t, 0, 65536, f, &err) ||
              pp_tensor_read_f64(&t, 0, 65536, d, &err);
    long long right = 0;
    for (unsigned i = 0; i < 65536; i++)
        right += !bad && same(f[i], half(i)) && same(d[i], half(i));
    is_int(right, 65536, "every half is read exactly");
    t.dtype = PP_DTYPE_BF16;
    bad = pp_tensor_read_f32(&t, 0, 65536, f, &err) ||
          pp_tensor_read_f64(&t, 0, 65536, d, &err);
    right = 0;
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t word = i << 16;
        memcpy(&g[i], &word, 4);
        right += !bad && !memcmp(&f[i], &g[i], 4) && same(d[i], g[i]);
    }
    is_int(right, 65536, "every bfloat16 is read exactly");
    /* An odd header makes the data unaligned in the file as well. */
    put_tensors("odd.safetensors",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":"
                "[0,8]}} ",
                8);
    struct pp_tensors *s;
    if (!ok(pp_tensors_open("odd.safetensors", &s, &err) == 0, "odd header"))
        return;
    const struct pp_tensor *x = pp_tensors_at(s, 0);
    ok((uintptr_t)x->data % 4 != 0, "the data are unaligned");
    ok(pp_tensor_read_f32(x, 0, 2, f, &err) == 0 &&
           !memcmp(f, "\0\1\2\3\4\5\6\7", 8),
       "and read");
    pp_tensors_close(s);
}

#define ONE(name) \
    "{\"" name "\":{\"dtype\":\"I32\",\"shape\":[1]," OFFSETS(0, 4) "}}"

static void put_index(const char *weight_map)
{
    char text[512];
    int n = snprintf(text, sizeof text,
                     "{\"metadata\": {\"total_size\": 8, \"x\": [1.5e3, -0, "
                     "true, null, \"\\u00e9\"]},\n \"weight_map\": {%s}}\n",
                     weight_map);
    put_file("model.safetensors.index.json", text, (size_t)n);
}

static void refuse_index(const char *weight_map, const char *reason)
{
    char want[256];
    put_index(weight_map);
    snprintf(want, sizeof want, "./model.safetensors.index.json: %s", reason);
    is_str(open_error("."), want, reason);
}

static void test_shards(void)
{
    struct pp_err err = {0};
    struct pp_tensors *t;
    put_tensors("1.safetensors", ONE("a"), 4);
    put_tensors("2.safetensors", ONE("b"), 4);
    put_index("\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"");
    ok(pp_tensors_exist("."), "an index counts as weights");
    if (ok(pp_tensors_open(".", &t, &err) == 0, "a sharded set opens"))
        ok(pp_tensors_n(t) == 2 && pp_tensors_find(t, "a") &&
               pp_tensors_find(t, "b"),
           "it has both tensors");
    pp_tensors_close(t);
    is_str(open_error("model.safetensors.index.json"), "", "so does its index");
    refuse_index("\"a\": \"1.safetensors\", \"c\": \"2.safetensors\"",
                 "'c' is not in '2.safetensors'");
    refuse_index("\"a\": \"2.safetensors\", \"b\": \"1.safetensors\"",
                 "'a' is not in '2.safetensors'");
    refuse_index("\"a\": \"1.safetensors\", \"a\": \"1.safetensors\"",
                 "'a' occurs twice");
    refuse_index("\"a\": \"../1.safetensors\"",
                 "'../1.safetensors' is not in the directory of the index");
    refuse_index("\"a\": \"x/../1.safetensors\"",
                 "'x/../1.safetensors' is not in the directory of the index");
    refuse_index("\"a\": \"/etc/passwd\"",
                 "'/etc/passwd' is not in the directory of the index");
    refuse_index("\"a\": \"\"", "'' is not in the directory of the index");
    refuse_index("\"a\": 1", "line 2, column 22: expected a string, got '1'");
    put_tensors("2.safetensors", ONE("a"), 4);
    refuse_index("\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"",
                 "'a' occurs twice");
    put_index("\"a\": \"3.safetensors\"");
    is_str(open_error("."), "./3.safetensors: No such file or directory",
           "a shard that is missing");
    put_file("model.safetensors.index.json", "{\"metadata\":{}}", 15);
    is_str(open_error("."), "./model.safetensors.index.json: no 'weight_map'",
           "an index without a map");
    char deep[300] = "{\"x\":";
    memset(deep + 5, '[', 250);
    put_file("model.safetensors.index.json", deep, 255);
    is_str(open_error("."),
           "./model.safetensors.index.json: line 1, column 206: nested deeper "
           "than 200",
           "an index of brackets");
    unlink("model.safetensors.index.json");
}

static void test_added(void)
{
    struct pp_err err = {0};
    struct pp_tensors *t;
    put_tensors("1.safetensors", ONE("a"), 4);
    put_tensors("2.safetensors", ONE("b"), 4);
    if (!ok(pp_tensors_open("1.safetensors", &t, &err) == 0, "a set opens"))
        return;
    ok(pp_tensors_add(t, "2.safetensors", "x.", &err) == 0 &&
           pp_tensors_add(t, "1.safetensors", "x.y.", &err) == 0,
       "others are added to it");
    const struct pp_tensor *b = pp_tensors_find(t, "x.b");
    ok(pp_tensors_n(t) == 3 && pp_tensors_find(t, "a") && b && b->bytes == 4 &&
           !memcmp(b->data, "\0\1\2\3", 4) && pp_tensors_find(t, "x.y.a") &&
           !pp_tensors_find(t, "b"),
       "it has their tensors under longer names");
    ok(pp_tensors_add(t, "1.safetensors", "", &err) &&
           err.code == PP_EXIT_INPUT,
       "a name that is there already is refused");
    is_str(err.text, "1.safetensors: 'a' occurs twice", "and named");
    pp_tensors_close(t);
}

/* Writes put bytes where the header says 16. Returns message and status. */
static const char *write_error(const char *path, size_t put, int *code)
{
    static struct pp_err err;
    const struct pp_tensor_spec spec = {"a", PP_DTYPE_F32, 1, {4}};
    const char data[32] = {0};
    struct pp_tensor_writer *w = NULL;
    memset(&err, 0, sizeof err);
    if (pp_tensor_writer_open(path, &spec, 1, &w, &err) == 0) {
        if (pp_tensor_writer_put(w, data, put, &err) == 0) {
            if (pp_tensor_writer_close(w, &err) == 0)
                err.text[0] = '\0';
        } else {
            pp_tensor_writer_abort(w);
        }
    }
    *code = (int)err.code;
    return err.text;
}

static long file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (long)st.st_size : -1;
}

static void test_write_errors(void)
{
    int code;
    is_str(write_error("w.safetensors", 16, &code), "", "enough data");
    long whole = file_bytes("w.safetensors");
    ok(whole > 16, "the file is there");
    is_str(write_error("w.safetensors", 12, &code),
           "w.safetensors: has 12 bytes of data, but the header says 16",
           "too few bytes");
    is_int(file_bytes("w.safetensors"), whole, "the earlier file stays");
    is_str(write_error("w.safetensors", 20, &code),
           "w.safetensors: more data than the header's 16 bytes",
           "too many bytes");
    is_int(file_bytes("w.safetensors"), whole, "it stays again");
    unlink("w.safetensors");
    write_error("w.safetensors", 12, &code);
    ok(!pp_file_exists("w.safetensors"), "a failure makes no file");
    is_str(write_error("no/w.safetensors", 16, &code),
           "no/w.safetensors: No such file or directory", "no directory");
    is_int(code, PP_EXIT_SYSTEM, "status 3");
    is_str(write_error("/dev/full", 16, &code),
           "/dev/full: cannot write: No space left on device", "a full disk");
    is_int(code, PP_EXIT_SYSTEM, "status 3");
    ok(pp_file_exists("/dev/full"), "the device is not removed");
    pp_tensor_writer_abort(NULL);
}

int main(void)
{
    if (!mkdtemp(dir) || chdir(dir) != 0)
        return 99;
    test_headers();
    test_syntax();
    test_truncated();
    test_round_trip();
    test_conversions();
    test_shards();
    test_added();
    test_write_errors();
    static const char *const files[] = {
        "t.safetensors", "cut.safetensors", "odd.safetensors",
        "1.safetensors", "2.safetensors",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(files[i]);
    ok(chdir("/") == 0 && rmdir(dir) == 0, "nothing is left behind");
    return done();
}
