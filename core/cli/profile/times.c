/* tessera profile --times: every repeat and every probe, a JSON line each time. */
#include "base/json.h"
#include "cli/profile/profile.h"

#include <stdlib.h>

tsr_status profile_times_open(struct profile *p, struct tsr_err *err)
{
    return *p->o->times ? tsr_writer_open(&p->times, p->o->times, err) : TSR_OK;
}

/* Takes over j; the writer keeps errors of the file until commit. */
static tsr_status put_line(struct profile *p, json_t *j, struct tsr_err *err)
{
    char      *text;
    uint64_t   n;
    tsr_status st = tsr_json_text(j, JSON_COMPACT, &text, &n, err);
    json_decref(j);
    if (st != TSR_OK)
        return st;
    tsr_writer_put(&p->times, text, n);
    tsr_writer_put(&p->times, "\n", 1);
    free(text);
    return TSR_OK;
}

static json_t *numbers(const double *v, uint64_t n)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < n; i++)
        tsr_json_add(&list, json_real(v[i]));
    return list;
}

tsr_status profile_times_peak(struct profile *p, const char *probe, const double *rates, uint64_t n,
                              struct tsr_err *err)
{
    if (!p->times.file)
        return TSR_OK;
    return put_line(p,
                    json_pack("{s:s, s:s, s:o}", "time_of", "peak", "probe", probe, "rates",
                              numbers(rates, n)),
                    err);
}

tsr_status profile_times_point(struct profile *p, const struct profile_model *m,
                               const struct profile_scheme *s, const struct profile_point *at,
                               const struct profile_taken *x, struct tsr_err *err)
{
    if (!p->times.file)
        return TSR_OK;
    json_t *repeats = json_array();
    for (uint64_t i = 0; i < x->n; i++)
        tsr_json_add(&repeats, json_pack("{s:f, s:I}", "ms", x->repeat[i].ms, "interrupted",
                                         (json_int_t)x->repeat[i].interrupted));
    json_t *j = json_pack(
        "{s:s, s:I, s:s, s:I, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o}",
        "time_of", "layer", "round", (json_int_t)s->rounds + 1, "model", m->path, "first_layer",
        (json_int_t)profile_first(m), "scheme", s->text, "kernel", s->kernel, "phase",
        at->phase == TSR_PLAN_DECODE ? "decode" : "prefill", "grid", at < s->points + s->n_grid,
        "layer_bytes", (json_int_t)s->layer_bytes, "sequences", (json_int_t)at->v, "tokens",
        (json_int_t)at->s, "past", (json_int_t)at->t, "warm_up_ms", 1e3 * x->warm, "repeats",
        repeats, "before", numbers(x->before, 2), "after", numbers(x->after, 2));
    return put_line(p, j, err);
}

tsr_status profile_times_codec(struct profile *p, const struct profile_codec *c,
                               struct tsr_err *err)
{
    if (!p->times.file)
        return TSR_OK;
    return put_line(p,
                    json_pack("{s:s, s:s, s:I, s:f, s:f}", "time_of", "codec", "codec", c->text,
                              "message", (json_int_t)c->bytes, "encode", c->encode, "decode",
                              c->decode),
                    err);
}

tsr_status profile_times_end(struct profile *p, const struct profile_model *m,
                             const struct profile_end *at, const double *ms, uint64_t n,
                             struct tsr_err *err)
{
    if (!p->times.file)
        return TSR_OK;
    return put_line(p,
                    json_pack("{s:s, s:s, s:I, s:o}", "time_of", at->head ? "head" : "embed",
                              "model", m->path, "tokens", (json_int_t)at->tokens, "repeats",
                              numbers(ms, n)),
                    err);
}
