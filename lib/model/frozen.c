/* SPDX-License-Identifier: MIT */
#include "model/frozen.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "model/vision.h"

void pp_roles_of(const bool *frozen, size_t n, size_t second, size_t joined,
                 enum pp_role *roles)
{
    bool before = false, first = false;
    for (size_t i = 0; i < n; i++) {
        if (i == second) {
            first = before;
            before = false;
        }
        before |= i == joined && first;
        roles[i] = !frozen[i] ? PP_ROLE_TRAINED
                   : before   ? PP_ROLE_PASSED
                              : PP_ROLE_FORWARD;
        before |= !frozen[i];
    }
}

void pp_model_roles(const struct pp_model *m, const bool *frozen,
                    enum pp_role *roles)
{
    pp_roles_of(frozen, pp_model_n_units(m), pp_component_first(m, 1),
                pp_component_first(m, PP_LANGUAGE), roles);
}

bool pp_freeze_idle(const struct pp_model *m, bool *frozen)
{
    bool any = false;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        frozen[i] = !pp_unit_runs(m, u);
        any |= frozen[i];
    }
    return any;
}

static bool is_part(const struct pp_model *m, const char *word,
                    struct pp_unit_id u)
{
    bool encoder = pp_unit_is_vision(u);
    bool projector = u.kind == PP_UNIT_PROJECTOR && encoder;
    if (!strcmp(word, "language"))
        return !encoder;
    if (encoder && !strcmp(word, pp_vision_part(pp_unit_encoder(m, u))))
        return !projector;
    if (!strcmp(word, "projector"))
        return projector;
    if (!strcmp(word, "embedding"))
        return u.kind == PP_UNIT_EMBED;
    return !strcmp(word, "head") && u.kind == PP_UNIT_HEAD;
}

static int freeze_word(const struct pp_model *m, const char *word, bool *frozen,
                       struct pp_err *err)
{
    bool any = false;
    for (size_t i = 0; i < pp_model_n_units(m); i++) {
        struct pp_unit_id u = pp_model_unit(m, i);
        char fqn[PP_FQN_TEXT];
        pp_model_fqn(m, u, fqn);
        if (!is_part(m, word, u) && fnmatch(word, fqn, 0))
            continue;
        frozen[i] = any = true;
    }
    if (any)
        return 0;
    return pp_fail(
        err, PP_EXIT_INPUT,
        "'%s' is not a part of the model (language, vision or "
        "audio, projector, embedding, head), and no unit has this name",
        word);
}

int pp_freeze_units(const struct pp_model *m, const char *list, bool *frozen,
                    struct pp_err *err)
{
    char word[PP_FQN_TEXT];
    size_t n = pp_model_n_units(m), left = n;
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        if (freeze_word(m, word, frozen, err))
            return -1;
        at += length;
        if (!*at)
            break;
    }
    size_t embed = pp_model_n_first(m) - 1;
    if (m->tied && !m->table)
        frozen[embed] = frozen[n - 1] = frozen[embed] || frozen[n - 1];
    for (size_t i = 0; i < n; i++)
        left -= frozen[i];
    return left ? 0
                : pp_fail(err, PP_EXIT_INPUT,
                          "'%s' leaves no unit of the model to train", list);
}
