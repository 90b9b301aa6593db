/* Shots as lm-evaluation-harness draws them: a generator for each task, which here is a group of rows. */
#include "tasks/shots.h"

#include "base/json.h"
#include "base/mem.h"
#include "tasks/random.h"

#include <stdlib.h>
#include <string.h>

#define SEED       1234u
#define MAX_GROUPS 4096u

struct group {
    const char             *name; /* in the row that has it first */
    uint64_t               *from; /* rows that its shots come from */
    uint64_t                n_from;
    struct tsr_tasks_random random;
};

struct tsr_tasks_shots {
    const struct tsr_tasks_task *t;
    const struct tsr_tasks_rows *rows, *from;
    struct group                *groups;
    uint64_t                     n_groups, n;
    uint64_t                    *of;     /* [rows] the group of each */
    uint64_t                    *places; /* [n + 1] */
};

/* ---- groups ------------------------------------------------------------------------- */

static tsr_status group_name(const struct tsr_tasks_shots *s, const struct tsr_tasks_rows *rows,
                             uint64_t row, const char **name, struct tsr_err *err)
{
    *name = "";
    if (!*s->t->by)
        return TSR_OK;
    *name = tsr_json_word(json_object_get(json_array_get(rows->list, row), s->t->by));
    return *name ? TSR_OK
                 : tsr_fail(err, TSR_E_INPUT, "%s: row %llu has no text \"%s\"", rows->path,
                            (unsigned long long)row + 1, s->t->by);
}

/* The group of that name, n_groups if there is none. */
static uint64_t find_group(const struct tsr_tasks_shots *s, const char *name)
{
    uint64_t i = 0;
    while (i < s->n_groups && strcmp(s->groups[i].name, name) != 0)
        i++;
    return i;
}

static tsr_status group_rows(struct tsr_tasks_shots *s, struct tsr_err *err)
{
    uint64_t rows = json_array_size(s->rows->list);
    for (uint64_t i = 0; i < rows; i++) {
        const char *name;
        TSR_TRY(group_name(s, s->rows, i, &name, err));
        s->of[i] = find_group(s, name);
        if (s->of[i] < s->n_groups)
            continue;
        if (s->n_groups == MAX_GROUPS)
            return tsr_fail(err, TSR_E_INPUT, "%s: field \"%s\" has more than %u values",
                            s->rows->path, s->t->by, MAX_GROUPS);
        s->groups[s->n_groups++].name = name;
    }
    return TSR_OK;
}

static tsr_status group_shots(struct tsr_tasks_shots *s, struct tsr_err *err)
{
    uint64_t rows = s->n ? json_array_size(s->from->list) : 0;
    for (uint64_t g = 0; g < s->n_groups && s->n; g++) {
        s->groups[g].from = tsr_new(rows, sizeof *s->groups[g].from);
        if (!s->groups[g].from)
            return tsr_fail_nomem(err, rows * 8, "shots");
    }
    for (uint64_t i = 0; i < rows; i++) {
        const char *name;
        TSR_TRY(group_name(s, s->from, i, &name, err));
        uint64_t g = find_group(s, name);
        if (g < s->n_groups)
            s->groups[g].from[s->groups[g].n_from++] = i;
    }
    for (uint64_t g = 0; g < s->n_groups && s->n; g++)
        if (s->groups[g].n_from < s->n + s->t->spare)
            return tsr_fail(err, TSR_E_INPUT, "%s has %llu rows for %llu shots%s%s", s->from->path,
                            (unsigned long long)s->groups[g].n_from, (unsigned long long)s->n,
                            *s->t->by ? " of " : "", s->groups[g].name);
    return TSR_OK;
}

tsr_status tsr_tasks_shots_create(struct tsr_tasks_shots **out, const struct tsr_tasks_task *t,
                                  const struct tsr_tasks_rows *rows,
                                  const struct tsr_tasks_rows *from, uint64_t n,
                                  struct tsr_err *err)
{
    struct tsr_tasks_shots *s = tsr_new(1, sizeof *s);
    *out = NULL;
    if (!s)
        return tsr_fail_nomem(err, sizeof *s, "shots");
    *s = (struct tsr_tasks_shots){ .t = t, .rows = rows, .from = from, .n = n };
    s->groups = tsr_new(*t->by ? MAX_GROUPS : 1, sizeof *s->groups);
    s->of = tsr_new(json_array_size(rows->list), sizeof *s->of);
    s->places = tsr_new(n + 1, sizeof *s->places);
    tsr_status st =
        s->groups && s->of && s->places ? group_rows(s, err) : tsr_fail_nomem(err, 0, "shots");
    if (st == TSR_OK)
        st = group_shots(s, err);
    if (st != TSR_OK) {
        tsr_tasks_shots_destroy(s);
        return st;
    }
    tsr_tasks_shots_restart(s);
    *out = s;
    return TSR_OK;
}

void tsr_tasks_shots_destroy(struct tsr_tasks_shots *s)
{
    if (!s)
        return;
    for (uint64_t g = 0; s->groups && g < s->n_groups; g++)
        free(s->groups[g].from);
    free(s->groups);
    free(s->of);
    free(s->places);
    free(s);
}

void tsr_tasks_shots_restart(struct tsr_tasks_shots *s)
{
    for (uint64_t g = 0; g < s->n_groups; g++)
        tsr_tasks_random_seed(&s->groups[g].random, SEED);
}

uint64_t tsr_tasks_shots_groups(const struct tsr_tasks_shots *s)
{
    return s->n_groups;
}

const char *tsr_tasks_shots_group(const struct tsr_tasks_shots *s, uint64_t i)
{
    return s->groups[i].name;
}

/* ---- drawing ------------------------------------------------------------------------ */

tsr_status tsr_tasks_shots_next(struct tsr_tasks_shots *s, uint64_t row, const uint64_t **rows,
                                uint64_t *n, uint64_t *group, struct tsr_err *err)
{
    struct group *g = &s->groups[s->of[row]];
    uint64_t      drawn = s->n + s->t->spare;
    *group = s->of[row];
    *rows = s->places;
    *n = 0;
    if (s->n == 0)
        return TSR_OK;
    if (s->t->first)
        for (uint64_t i = 0; i < drawn; i++)
            s->places[i] = i;
    else
        TSR_TRY(tsr_tasks_random_sample(&g->random, g->n_from, drawn, s->places, err));
    const json_t *own = json_array_get(s->rows->list, row);
    for (uint64_t i = 0; i < drawn && *n < s->n; i++) {
        uint64_t at = g->from[s->places[i]];
        if (s->t->spare && json_equal(json_array_get(s->from->list, at), own))
            continue;
        s->places[(*n)++] = at;
    }
    return *n == s->n ? TSR_OK
                      : tsr_fail(err, TSR_E_INPUT, "the row stands twice among its own shots");
}
