/* The golden of a task: rows, and the requests, answers and metrics that another program makes of them. */
#include "conformance/task/task.h"

#include "base/json.h"

#include <string.h>

#define LEAST_ROWS 2u
#define MOST_SHOTS 1000

static tsr_status read_rows(const struct tsr_conformance_golden *g, const char *key, bool required,
                            struct tsr_tasks_rows *rows, struct tsr_err *err)
{
    json_t *list = NULL;
    TSR_TRY(tsr_json_sub(g->root, g->path, key, required, JSON_ARRAY, &list, err));
    size_t n = json_array_size(list);
    if (list && n < LEAST_ROWS)
        return tsr_fail(err, TSR_E_INPUT, "%s: \"%s\" has %zu entries; give %u rows or more",
                        g->path, key, n, LEAST_ROWS);
    for (size_t i = 0; i < n; i++)
        if (!json_is_object(json_array_get(list, i)))
            return tsr_fail(err, TSR_E_INPUT, "%s: %s[%zu] is not an object, as a row is", g->path,
                            key, i);
    *rows = (struct tsr_tasks_rows){ .list = list, .path = g->path };
    return TSR_OK;
}

static tsr_status check_request(const struct tsr_conformance_golden *g, size_t at, size_t i,
                                const json_t *r, struct tsr_err *err)
{
    bool text = json_is_string(json_object_get(r, "text"));
    bool pair = json_is_string(json_object_get(r, "context")) &&
                json_is_string(json_object_get(r, "continuation"));
    if (text != pair)
        return TSR_OK;
    return tsr_fail(err, TSR_E_INPUT,
                    "%s: cases[%zu].requests[%zu] is not an object with context and continuation, "
                    "or with text",
                    g->path, at, i);
}

static tsr_status check_case(const struct tsr_task_golden *tg, size_t at, struct tsr_err *err)
{
    const struct tsr_conformance_golden *g = &tg->g;
    const json_t                        *c = json_array_get(g->cases, at);
    json_t                              *requests = NULL, *other = NULL;
    int64_t                              shots = 0;
    TSR_TRY(tsr_json_int(c, g->path, "shots", false, 0, MOST_SHOTS, &shots, err));
    TSR_TRY(tsr_json_sub(c, g->path, "requests", true, JSON_ARRAY, &requests, err));
    TSR_TRY(tsr_json_sub(c, g->path, "answers", false, JSON_ARRAY, &other, err));
    TSR_TRY(tsr_json_sub(c, g->path, "metrics", false, JSON_OBJECT, &other, err));
    if (json_array_size(requests) == 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: cases[%zu].requests is empty", g->path, at);
    if (shots && !tg->shot_rows.list)
        return tsr_fail(err, TSR_E_INPUT, "%s: cases[%zu] has shots, and \"shot_rows\" is missing",
                        g->path, at);
    for (size_t i = 0; i < json_array_size(requests); i++)
        TSR_TRY(check_request(g, at, i, json_array_get(requests, i), err));
    return TSR_OK;
}

static tsr_status read_rest(struct tsr_task_golden *g, struct tsr_err *err)
{
    TSR_TRY(read_rows(&g->g, "rows", true, &g->rows, err));
    TSR_TRY(read_rows(&g->g, "shot_rows", false, &g->shot_rows, err));
    for (size_t i = 0; i < json_array_size(g->g.cases); i++)
        TSR_TRY(check_case(g, i, err));
    return TSR_OK;
}

tsr_status tsr_task_golden_read(struct tsr_task_golden *g, const char *path, struct tsr_err *err)
{
    *g = (struct tsr_task_golden){ 0 };
    TSR_TRY(tsr_conformance_golden_open(&g->g, path, TSR_TASK_GOLDEN, err));
    tsr_status st = read_rest(g, err);
    if (st != TSR_OK)
        tsr_conformance_golden_close(&g->g);
    return st;
}

void tsr_task_golden_need(struct tsr_conformance_case *c, struct tsr_task_golden *g)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    if (tsr_task_golden_read(g, c->path, &e.err) != TSR_OK)
        tsr_conformance_rule_skip(c, "needs a golden that keeps the rule task-golden");
}

struct tsr_task_case tsr_task_golden_case(const struct tsr_task_golden *g, size_t i)
{
    const json_t *c = json_array_get(g->g.cases, i);
    return (struct tsr_task_case){ .shots =
                                       (uint64_t)json_integer_value(json_object_get(c, "shots")),
                                   .requests = json_object_get(c, "requests"),
                                   .answers = json_object_get(c, "answers"),
                                   .metrics = json_object_get(c, "metrics") };
}
