/* SPDX-License-Identifier: MIT */
/* resume - finds the checkpoint to resume from, compares its files with
 * their checksums, takes an earlier one if they are damaged, and compares its
 * settings. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "runner/runner.h"
#include "run/checkpoint/ckpt.h"

int runner_find_resume(struct runner *p)
{
    const char *dir = p->options.resume;
    if (dir && p->rank == 0) {
        if (pp_ckpt_find(dir, &p->resume, &p->tool->err))
            return -1;
        if (p->resume)
            tool_say(p->tool, TOOL_NOTE, "resuming from %s", p->resume);
        else
            tool_say(p->tool, TOOL_NOTE,
                     "no checkpoint in '%s' yet: starting a new run", dir);
    }
    p->job.resume = p->resume;
    return 0;
}

int runner_check_resume(struct runner *p)
{
    return p->resume ? pp_ckpt_verify(p->resume, NULL, p->rank, p->size,
                                      &p->tool->err)
                     : 0;
}

int runner_fall_back(struct runner *p)
{
    struct pp_err *err = &p->tool->err, failed = *err, none = {0};
    char *before = NULL;
    if (err->code != PP_EXIT_INPUT ||
        pp_ckpt_find_before(p->resume, &before, &none))
        return -1;
    *err = (struct pp_err){0};
    if (!before)
        return pp_fail(err, failed.code, "%s; there is no earlier checkpoint",
                       failed.text);
    if (!p->options.fall_back) {
        pp_fail(err, failed.code,
                "%s; the checkpoint before it is %s: give "
                "--fall-back to resume from it",
                failed.text, before);
        free(before);
        return -1;
    }
    if (p->rank == 0)
        tool_say(p->tool, TOOL_WARNING, "%s; resuming from %s instead",
                 failed.text, before);
    p->tool->told = false;
    free(p->resume);
    p->job.resume = p->resume = before;
    return 0;
}

/* Notes the settings of a checkpoint that this run changes. */
static int say_changes(const struct runner *p, const struct pp_ckpt_state *s)
{
    char other[PP_SETTINGS_LINES];
    if (pp_settings_compare(&p->job.settings, s->settings, other,
                            &p->tool->err))
        return pp_fail_at(&p->tool->err, "%s: ", p->resume);
    if (*other && p->rank == 0 && p->job.optim.steps > 0)
        tool_say(p->tool, TOOL_NOTE,
                 "%s was made with %s; the settings of this run apply from "
                 "the next step",
                 p->resume, other);
    return 0;
}

int runner_take_resumed(struct runner *p)
{
    struct pp_ckpt_state s = {0};
    struct pp_optim *o = &p->job.optim;
    if (p->resume && (pp_ckpt_state_read(p->resume, &s, &p->tool->err) ||
                      say_changes(p, &s)))
        return -1;
    if (o->lr >= 0)
        return 0;
    bool tunes = !p->resume && p->job.weights;
    bool is_preference = p->job.objective && p->job.settings.objective.number !=
                                                 PP_OBJECTIVE_DISTILL;
    o->lr = p->resume ? s.lr : !tunes ? 1e-3 : is_preference ? 1e-6 : 1e-5;
    if (p->rank == 0 && tunes && o->steps > 0)
        tool_say(p->tool, TOOL_NOTE,
                 "the learning rate is %g, as the run starts from weights; "
                 "--lr sets another",
                 o->lr);
    return 0;
}

int runner_check_weights(struct runner *p, const char *path)
{
    char *dir = strdup(path);
    if (!dir)
        return pp_fail(&p->tool->err, PP_EXIT_SYSTEM, "out of memory");
    char *slash = strrchr(dir, '/');
    if (!pp_file_is_dir(path))
        strcpy(slash ? slash : dir, slash ? "" : ".");
    struct pp_err *err = &p->tool->err;
    int rc = pp_ckpt_verify(dir, "model", p->rank, p->size, err);
    if (rc == 0 && p->model.generator)
        rc = pp_ckpt_verify(dir, "generator/", p->rank, p->size, err);
    free(dir);
    return rc;
}
