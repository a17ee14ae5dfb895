/* SPDX-License-Identifier: MIT */
/* rendezvous_beat - notices ranks that are alive for the kernel but do nothing:
 * a stopped process, a machine that stalls.
 *
 * The watching threads send beats to each other, so a rank that computes or
 * writes for long still beats. Rank 0 observes all ranks, and all ranks observe
 * rank 0. Two of them report it: rank 1, and the first rank on another machine
 * than rank 0, because rank 1 may be on the machine that stalls.
 *
 * The observer adds up the time in which it heard nothing. Time in which it was
 * stopped itself does not count, so a job that is suspended and continued as a
 * whole reports nothing. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "comm/rendezvous_state.h"

/* Beats of a time-out, and the most seconds between two. */
#define BEATS 10
static const double longest_interval = 3;

/* The watching thread looks this often for a request to stop. */
static const double stop_interval = 0.5;

/* Most beats to a rank that does not answer. More would fill its buffers, and
 * then the kernel would take its machine for lost. */
enum { MAX_UNANSWERED = 8 };

/* Most ranks that a report names. */
enum { MAX_NAMED = 32 };

static double interval(const struct pp_rendezvous *j)
{
    double s = j->observer.seconds / BEATS;
    return s > 0 && s < longest_interval ? s : longest_interval;
}

double pp_beat_wait(const struct pp_rendezvous *j)
{
    double s = interval(j);
    return s < stop_interval ? s : stop_interval;
}

static const char *place_of(const struct pp_rendezvous *j, int rank, char *own)
{
    if (rank != j->rank)
        return j->peers[rank].at;
    own[0] = '\0';
    if (j->observer.describe)
        j->observer.describe(j->observer.ctx, own, PP_RENDEZVOUS_AT);
    return own;
}

static void send_beats(struct pp_rendezvous *j)
{
    struct pp_err at = {0};
    (void)place_of(j, j->rank, at.text);
    for (int r = 0; r < j->size; r++)
        if (j->monitor[r] >= 0 && !j->gone[r] &&
            j->peers[r].unanswered < MAX_UNANSWERED) {
            j->peers[r].unanswered++;
            pp_note_send(j->monitor[r], PP_NOTE_BEAT, &at);
        }
}

/* Returns whether this rank reports the silence of another. */
static bool reports(const struct pp_rendezvous *j, int rank)
{
    int away = 1;
    if (!j->observer.say)
        return false;
    while (away < j->size && !strcmp(j->hosts[away], j->hosts[0]))
        away++;
    return j->rank == 0 || (rank == 0 && (j->rank == 1 || j->rank == away));
}

static void format_silence(const struct pp_rendezvous *j, int rank,
                           struct pp_err *err)
{
    const struct pp_rendezvous_peer *p = &j->peers[rank];
    char own[PP_RENDEZVOUS_AT];
    /* A beat is up to an interval old, and steps may be short. */
    bool went_on = *p->at && strcmp(p->observer_at, place_of(j, j->rank, own));
    pp_fail(err, PP_EXIT_SYSTEM,
            "rank %d on %s has not answered for %.3g s%s%s%s", rank,
            j->hosts[rank], p->quiet, *p->at ? "; it was at " : "", p->at,
            went_on ? " when it last answered, and went on" : "");
    pp_err_set_origin(err, PP_ORIGIN_RANK, rank);
    pp_err_set_origin(err, PP_ORIGIN_LOST, 0);
}

/* Says where the ranks are that still answer, and this one. */
static void say_places(const struct pp_rendezvous *j)
{
    char text[64 + MAX_NAMED * (PP_RENDEZVOUS_AT + 24)] = "meanwhile ";
    char own[PP_RENDEZVOUS_AT];
    size_t n = strlen(text);
    int named = 0, more = 0;
    for (int r = 0; r < j->size; r++) {
        if (r != j->rank && (j->monitor[r] < 0 || j->gone[r] ||
                             j->peers[r].stalled || !*j->peers[r].at))
            continue;
        if (named < MAX_NAMED)
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  "%srank %d is at %.*s", named ? ", " : "", r,
                                  PP_RENDEZVOUS_AT, place_of(j, r, own));
        more += named++ >= MAX_NAMED;
    }
    if (more)
        snprintf(text + n, sizeof text - n, ", and %d more", more);
    j->observer.say(j->observer.ctx, text);
}

/* Reports the ranks that have become silent. */
static void report_silence(struct pp_rendezvous *j)
{
    int first = -1;
    bool said = false;
    for (int r = 0; r < j->size; r++) {
        struct pp_rendezvous_peer *p = &j->peers[r];
        struct pp_err err = {0};
        if (j->monitor[r] < 0 || j->gone[r] || p->stalled ||
            p->quiet < j->observer.seconds - interval(j))
            continue;
        p->stalled = true;
        first = first < 0 ? r : first;
        if (!reports(j, r) || (j->observer.abort && first == r))
            continue;
        format_silence(j, r, &err);
        j->observer.say(j->observer.ctx, err.text);
        said = true;
    }
    if (first < 0)
        return;
    if (said || (j->observer.abort && reports(j, first)))
        say_places(j);
    if (j->observer.abort) {
        struct pp_err err = {0};
        format_silence(j, first, &err);
        pp_rendezvous_end(j, &err, first);
    }
}

/* Adds the time since the last call, in which nothing was heard, to the silence
 * of each rank. If it is much more than this thread sleeps, this process was
 * stopped. */
static void count_silence(struct pp_rendezvous *j, double now)
{
    double passed = now - j->beat_last;
    j->beat_last = now;
    if (passed > 2 * interval(j))
        return;
    for (int r = 0; r < j->size; r++)
        j->peers[r].quiet += passed;
}

void pp_beat_tick(struct pp_rendezvous *j)
{
    double now = pp_clock();
    if (pp_rendezvous_aborted(j))
        return;
    if (j->rank != 0 && !j->stop_sent && j->observer.stopping &&
        j->observer.stopping(j->observer.ctx) && !j->gone[0]) {
        j->stop_sent = true;
        pp_note_send(j->monitor[0], PP_NOTE_STOP, NULL);
    }
    if (j->observer.seconds > 0) {
        count_silence(j, now);
        report_silence(j);
    }
    if (now >= j->beat_next) {
        j->beat_next = now + interval(j);
        send_beats(j);
    }
}

void pp_beat_heard(struct pp_rendezvous *j, int rank, const char *at)
{
    struct pp_rendezvous_peer *p = &j->peers[rank];
    char text[PP_RENDEZVOUS_HOST + 80], own[PP_RENDEZVOUS_AT];
    double quiet = p->quiet;
    p->quiet = 0;
    p->unanswered = 0;
    snprintf(p->at, sizeof p->at, "%.*s", PP_RENDEZVOUS_AT - 1, at);
    if (reports(j, rank))
        snprintf(p->observer_at, sizeof p->observer_at, "%s",
                 place_of(j, j->rank, own));
    if (!p->stalled)
        return;
    p->stalled = false;
    snprintf(text, sizeof text, "rank %d on %s answers again, after %.3g s",
             rank, j->hosts[rank], quiet);
    if (reports(j, rank))
        j->observer.say(j->observer.ctx, text);
}
