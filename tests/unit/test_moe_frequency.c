/* SPDX-License-Identifier: MIT */
/* test_moe_frequency - both forms of Megatron-LM's moe-layer-freq, and errors
 * in them. */
#include "model/moe_frequency.h"
#include "tap.h"

static void says(const char *text, size_t n, const char *want)
{
    struct pp_layer_set set;
    struct pp_err err = {0};
    char got[64] = "";
    int rc = pp_moe_frequency(text, n, &set, &err);
    for (size_t i = 0; i < n && !rc; i++)
        got[i] = pp_layer_set_has(&set, i) ? '1' : '0';
    is_str(rc ? err.text : got, want, text);
    is_int(err.code, rc ? PP_EXIT_INPUT : PP_EXIT_OK, "status");
}

int main(void)
{
    says("1", 5, "11111");
    says("2", 7, "1010101");
    says("3", 7, "1001001");
    says("9", 4, "1000");
    says("([0]*3+[1]*4)", 7, "0001111");
    says("[0]*3+[1]*4", 7, "0001111");
    says("([1]+[0]*2)*2", 6, "100100");
    says("[0, 1 ,1] + [0]", 4, "0110");
    says("([0,1]*2+[1])*1*2", 10, "0101101011");
    says("[1]*0+[0,1]+[]", 2, "01");
    says("([0]*3+[1]*4)", 8, "'([0]*3+[1]*4)' is for 7 layers, not 8");
    says("([0]*3+[1]*4)", 6, "'([0]*3+[1]*4)' is for more than the 6 layers");
    says("[1]*99999999999999999999", 6,
         "'[1]*99999999999999999999' is for more than the 6 layers");
    says("[]*99999999999999999999+[1]", 1, "1");
    says("0", 4, "'0' must be positive");
    says("2x", 4, "'2x': expected the end at character 2");
    says("", 4, "'': expected '[' or '(' at character 1");
    says("[2]", 1, "'[2]': expected 0 or 1 at character 2");
    says("[1 1]", 2, "'[1 1]': expected ',' or ']' at character 4");
    says("[1,]", 1, "'[1,]': expected a number at character 4");
    says("([1]", 1, "'([1]': expected ')' at character 5");
    says("[1])", 1, "'[1])': expected '+', '*' or the end at character 4");
    says("[1]*x", 1, "'[1]*x': expected a number at character 5");
    says("[1]+", 1, "'[1]+': expected '[' or '(' at character 5");
    says("((((((((([1])))))))))", 1,
         "'((((((((([1])))))))))': expected fewer nested parentheses at "
         "character 9");
    says("(((((((([1]))))))))", 1, "1");
    says("1", 1025,
         "the model has 1025 layers; a list of layers with experts is limited "
         "to 1024");
    return done();
}
