/* faults/campaign/plan.c - which faults a trial meets, and when: a function of its numbers alone. */
#include "campaign.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const fault_name[FAULTS] = {
    "kill",        "kill-call", "kill-child", "freeze", "stop",   "race",  "race-other", "input",
    "input-again", "full",      "disk",       "call",   "memory", "place", "stdout"
};

uint64_t draw(uint64_t *rng) /* splitmix64 */
{
    uint64_t z = *rng += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double draw_real(uint64_t *rng)
{
    return (double)(draw(rng) >> 11) * 0x1p-53;
}

bool fault_applies(enum fault f, const struct campaign_case *c)
{
    if (words_have(&c->skip, fault_name[f]))
        return false;
    if (f == FAULT_RACE_OTHER)
        return c->other.n > 0;
    if (f == FAULT_RACE || f == FAULT_PLACE || f == FAULT_DISK)
        return c->final.n > 0;
    if (f == FAULT_KILL_CHILD)
        return c->children;
    if (f == FAULT_INPUT || f == FAULT_INPUT_AGAIN)
        return c->inputs.n > 0;
    return true;
}

/* One call of a class that the command makes. */
static void take_call(struct plan *p, const struct reference *r, uint32_t which)
{
    uint64_t count = r->calls[which];
    p->call_class = which;
    p->call_at = count ? 1 + draw(&p->rng) % count : 0;
    p->call_from = draw(&p->rng) % 3 == 0;
}

static void take_error(struct plan *p, const struct reference *r)
{
    static const struct {
        uint32_t which;
        int32_t  error;
    } some[] = { { INJECT_WRITE, EIO },   { INJECT_WRITE, ENOSPC },  { INJECT_SYNC, EIO },
                 { INJECT_OPEN, EMFILE }, { INJECT_OPEN, EIO },      { INJECT_OPEN, ENOMEM },
                 { INJECT_RENAME, EIO },  { INJECT_RENAME, ENOSPC }, { INJECT_MAP, ENOMEM },
                 { INJECT_READ, EIO },    { INJECT_MAKE, EIO },      { INJECT_MAKE, ENOSPC },
                 { INJECT_UNLINK, EIO },  { INJECT_SPAWN, EAGAIN },  { INJECT_SPAWN, ENOMEM },
                 { INJECT_SYNC, ENOSPC } };
    for (int tries = 0; tries < 40 && p->call_at == 0; tries++) {
        uint64_t i = draw(&p->rng) % (sizeof some / sizeof some[0]);
        take_call(p, r, some[i].which);
        p->error = some[i].error;
    }
}

static void take_change(struct plan *p, const struct reference *r)
{
    p->change = (enum change)(draw(&p->rng) % CHANGES);
    p->change_at = draw_real(&p->rng) * r->seconds;
}

static void take_fault(struct plan *p, enum fault f, const struct campaign_case *c,
                       const struct reference *r)
{
    static const int stops[] = { SIGTERM, SIGINT, SIGHUP };
    const double     when = draw_real(&p->rng) * 1.1 * r->seconds;
    switch (f) {
    case FAULT_KILL:
    case FAULT_KILL_CHILD:
    case FAULT_INPUT_AGAIN:
        p->signal = SIGKILL;
        p->signal_at = when;
        p->to_child = f == FAULT_KILL_CHILD;
        p->to_group = f != FAULT_KILL_CHILD && draw(&p->rng) % 3 == 0;
        if (f == FAULT_INPUT_AGAIN) {
            take_change(p, r);
            p->change_between = true;
        }
        break;
    case FAULT_FREEZE:
        p->signal = SIGSTOP;
        p->signal_at = when;
        p->to_child = draw(&p->rng) % 3 == 0;
        p->frozen = 0.01 + 0.3 * draw_real(&p->rng) * draw_real(&p->rng);
        break;
    case FAULT_STOP:
        p->signal = stops[draw(&p->rng) % 3];
        p->signal_at = when;
        p->to_group = draw(&p->rng) % 2 == 0;
        break;
    case FAULT_RACE:
    case FAULT_RACE_OTHER:
        p->other = f == FAULT_RACE_OTHER;
        p->racers = 2 + (int)(draw(&p->rng) % 2);
        for (int i = 0; i < 3; i++)
            p->delay[i] = i == 0 ? 0 : draw_real(&p->rng) * draw_real(&p->rng) * r->seconds;
        break;
    case FAULT_INPUT:
        take_change(p, r);
        break;
    case FAULT_KILL_CALL: {
        for (int tries = 0; tries < 40 && p->call_at == 0; tries++)
            take_call(p, r, (uint32_t)(draw(&p->rng) % INJECT_ALLOC));
        p->error = INJECT_KILL;
        break;
    }
    case FAULT_FULL: {
        static const uint32_t some[] = { INJECT_WRITE, INJECT_WRITE, INJECT_SYNC, INJECT_MAKE };
        for (int tries = 0; tries < 40 && p->call_at == 0; tries++)
            take_call(p, r, some[draw(&p->rng) % 4]);
        p->call_from = true;
        p->error = ENOSPC;
        break;
    }
    case FAULT_CALL:
        take_error(p, r);
        break;
    case FAULT_MEMORY:
        take_call(p, r, INJECT_ALLOC);
        p->error = ENOMEM;
        break;
    case FAULT_DISK:
        p->disk = draw_real(&p->rng);
        break;
    case FAULT_PLACE:
        p->place = 1 + (int)(draw(&p->rng) % 4);
        p->place_part = draw(&p->rng) % 2 == 0;
        break;
    case FAULT_STDOUT:
        p->stdout_full = true;
        break;
    case FAULTS:
        break;
    }
    (void)c;
}

void plan_make(struct plan *p, uint64_t seed, uint64_t trial, const struct campaign_case *c,
               const struct reference *r, enum fault fault)
{
    *p = (struct plan){ .rng = seed * 0x100000001b3u ^ trial,
                        .fault = fault,
                        .second = -1,
                        .signal_at = -1,
                        .change_at = -1,
                        .disk = -1,
                        .racers = 1 };
    (void)draw(&p->rng);
    p->threads = draw(&p->rng) % 4 == 0 ? 2 : 1;
    take_fault(p, fault, c, r);
    if (draw(&p->rng) % 4 != 0)
        return;
    /* a second one that does not use what the first one does */
    static const enum fault more[] = { FAULT_FREEZE, FAULT_KILL, FAULT_CALL, FAULT_STOP,
                                       FAULT_RACE };
    enum fault              f = more[draw(&p->rng) % 5];
    const bool              signals = f == FAULT_FREEZE || f == FAULT_KILL || f == FAULT_STOP;
    if ((signals && p->signal_at >= 0) || (f == FAULT_CALL && (p->call_at || p->place)) ||
        (f == FAULT_RACE && (p->racers > 1 || p->place || p->change_at >= 0)) ||
        !fault_applies(f, c))
        return;
    p->second = (int)f;
    take_fault(p, f, c, r);
}

void plan_say(const struct plan *p, char *to, size_t room)
{
    static const char *const classes[] = { "write", "sync", "open",   "rename", "map",
                                           "read",  "make", "unlink", "spawn",  "allocation" };
    static const char *const changes[] = { "byte", "cut", "rename", "replace" };
    static const char *const places[] = { "", "FIFO", "link to a file", "link to nothing",
                                          "folder" };
    size_t                   n = 0;
#define SAY(...)                                                                                   \
    do {                                                                                           \
        int k = snprintf(to + n, room - n, __VA_ARGS__);                                           \
        n = k > 0 && (size_t)k < room - n ? n + (size_t)k : n;                                     \
    } while (0)
    SAY("%s%s%s", fault_name[p->fault], p->second >= 0 ? "+" : "",
        p->second >= 0 ? fault_name[p->second] : "");
    if (p->signal_at >= 0)
        SAY(", signal %d%s at %.0f ms", p->signal,
            p->to_child   ? " to a child"
            : p->to_group ? " to the group"
                          : "",
            p->signal_at * 1e3);
    if (p->racers > 1)
        SAY(", %d commands", p->racers);
    if (p->change_at >= 0)
        SAY(", input: %s", changes[p->change]);
    if (p->call_at)
        SAY(", %s %lu%s: %s", classes[p->call_class], (unsigned long)p->call_at,
            p->call_from ? " and later" : "",
            p->error == INJECT_KILL ? "kill" : strerror(p->error));
    if (p->place)
        SAY(", %s at the %s", places[p->place], p->place_part ? "part" : "output");
    if (p->disk >= 0)
        SAY(", room for %.0f %%", p->disk * 100);
    if (p->threads > 1)
        SAY(", %d threads", p->threads);
#undef SAY
}
