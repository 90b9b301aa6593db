/* Stored results of a finished arm in the job folder: compare/NAME.json with its result and its
 * inputs, and compare/NAME.safetensors with the values of every token.  The JSON is written last
 * and contains the other's hash, so a partial arm is never taken as finished.  The original leaves
 * compare/original.states there as long as arms remain. */
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "checkpoint/safetensors/safetensors.h"
#include "compare/compare.h"
#include "pipeline/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT    "tessera.arm/2"
#define MAX_BYTES (64u << 20)
#define MAX_DEPTH 64u

tsr_status compare_keep_open(struct compare *c, struct tsr_err *err)
{
    unsigned nth = 1;
    char     key[40] = "compare";
    while (json_object_get(c->job->results, key))
        (void)snprintf(key, sizeof key, "compare[%u]", ++nth);
    (void)snprintf(key, sizeof key, nth > 1 ? "compare-%u" : "compare", nth);
    c->folder = tsr_path_join(c->job->out, key);
    return c->folder ? tsr_make_dirs(c->folder, err) : tsr_fail_nomem(err, 64, "a path");
}

static char *path_of(const struct compare *c, const struct compare_arm *a, const char *end)
{
    char name[96];
    (void)snprintf(name, sizeof name, "%.60s%s", a->name, end);
    return tsr_path_join(c->folder, name);
}

char *compare_states_path(const struct compare *c)
{
    return path_of(c, &c->arms[0], ".states");
}

char *compare_stored_path(const struct compare *c, const struct compare_arm *a)
{
    return path_of(c, a, ".packed");
}

char *compare_turned_path(const struct compare *c, const struct compare_arm *a)
{
    return path_of(c, a, ".rotated");
}

void compare_states_end(struct compare *c)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char             *path = compare_states_path(c);
    tsr_eval_states_close(c->states);
    c->states = NULL;
    if (path && tsr_output_remove(path, &e.err) != TSR_OK)
        tsr_logf(TSR_LOG_WARN, "%s", e.text);
    free(path);
}

/* ---- traces ------------------------------------------------------------------------- */

static tsr_status write_trace(const char *path, const struct tsr_eval_trace *t, struct tsr_err *err)
{
    struct tsr_st_out *o;
    TSR_TRY(tsr_safetensors_create(&o, path, err));
    tsr_status st = tsr_safetensors_declare(o, "nll", TSR_F32, 1, &t->n, err);
    if (st == TSR_OK)
        st = tsr_safetensors_declare(o, "top1", TSR_U32, 1, &t->n, err);
    if (st == TSR_OK && t->kl)
        st = tsr_safetensors_declare(o, "kl", TSR_F32, 1, &t->n, err);
    if (st == TSR_OK)
        st = tsr_safetensors_begin(o, err);
    if (st != TSR_OK) {
        tsr_safetensors_abort(o);
        return st;
    }
    tsr_safetensors_put(o, t->nll, 4 * t->n);
    tsr_safetensors_put(o, t->top1, 4 * t->n);
    if (t->kl)
        tsr_safetensors_put(o, t->kl, 4 * t->n);
    return tsr_safetensors_commit(o, err);
}

static tsr_status read_one(const struct tsr_safetensors *st, const char *name, uint32_t dtype,
                           uint64_t n, void *into, struct tsr_err *err)
{
    const struct tsr_safetensors_tensor *t = tsr_safetensors_find(st, name);
    if (!t || t->dtype != dtype || t->rank != 1 || t->shape[0] != n)
        return tsr_fail(err, TSR_E_INPUT, "%s: '%s' does not have %llu numbers", st->file.path,
                        name, (unsigned long long)n);
    return tsr_safetensors_read(st, t, into, err);
}

static tsr_status read_trace(const char *path, uint64_t n, bool kl, struct tsr_eval_trace *t,
                             struct tsr_err *err)
{
    struct tsr_safetensors f;
    TSR_TRY(tsr_safetensors_open(&f, path, err));
    tsr_status st = tsr_eval_trace_create(t, n, kl, err);
    if (st == TSR_OK)
        st = read_one(&f, "nll", TSR_F32, n, t->nll, err);
    if (st == TSR_OK)
        st = read_one(&f, "top1", TSR_U32, n, t->top1, err);
    if (st == TSR_OK && kl)
        st = read_one(&f, "kl", TSR_F32, n, t->kl, err);
    tsr_safetensors_close(&f);
    if (st != TSR_OK)
        tsr_eval_trace_free(t);
    return st;
}

/* ---- arms --------------------------------------------------------------------------- */

tsr_status compare_keep_store(const struct compare *c, const struct compare_arm *a,
                              struct tsr_err *err)
{
    char       hash[TSR_HASH_TEXT] = "", states[TSR_HASH_TEXT] = "";
    char      *json = path_of(c, a, ".json"), *trace = path_of(c, a, ".safetensors");
    char      *rows = compare_states_path(c);
    tsr_status st = json && trace && rows ? TSR_OK : tsr_fail_nomem(err, 128, "a path");
    if (st == TSR_OK && a == &c->arms[0] && c->states)
        st = tsr_hash_file(rows, states, err);
    if (st == TSR_OK && a->at.n)
        st = write_trace(trace, &a->at, err);
    if (st == TSR_OK && a->at.n)
        st = tsr_hash_file(trace, hash, err);
    if (st == TSR_OK) {
        json_t *j =
            json_pack("{s:s, s:s, s:s, s:O, s:O, s:s}", "format", FORMAT, "trace", hash, "states",
                      states, "of", a->of, "result", a->json, "device", c->device);
        st = j ? tsr_json_store(json, j, JSON_INDENT(1) | JSON_REAL_PRECISION(17), err)
               : tsr_fail_nomem(err, 256, json);
        json_decref(j);
    }
    free(json);
    free(trace);
    free(rows);
    return st;
}

/* The original's stored hidden rows, if they match. */
static tsr_status take_states(struct compare *c, const json_t *j, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char              now[TSR_HASH_TEXT] = "";
    const char       *hash = json_string_value(json_object_get(j, "states"));
    char             *path = compare_states_path(c);
    if (!path)
        return tsr_fail_nomem(err, 64, "a path");
    tsr_status st = TSR_OK;
    if (hash && *hash && tsr_path_exists(path)) {
        st = tsr_hash_file(path, now, &e.err);
        if (st == TSR_OK && strcmp(now, hash) != 0)
            st = tsr_fail(&e.err, TSR_E_INPUT, "%s is not what was written", path);
        if (st == TSR_OK)
            st = tsr_eval_states_open(&c->states, path, c->job->registry, c->job->model,
                                      &c->job->on, c->windows->scored, &e.err);
        if (st != TSR_OK && st != TSR_E_NOMEM)
            tsr_logf(TSR_LOG_INFO, "the original is run again with the next arm: %s", e.text);
    }
    free(path);
    return st == TSR_E_NOMEM ? tsr_err_copy(err, st, &e.err) : TSR_OK;
}

/* An unusable file counts as missing: the arm runs again, and the log gives the reason. */
static tsr_status take(struct compare *c, struct compare_arm *a, const json_t *j, const char *trace,
                       struct tsr_err *err)
{
    char                   now[TSR_HASH_TEXT] = "";
    const char            *hash = json_string_value(json_object_get(j, "trace"));
    const char            *device = json_string_value(json_object_get(j, "device"));
    const char            *format = json_string_value(json_object_get(j, "format"));
    json_t                *result = json_object_get(j, "result");
    bool                   kl = json_object_get(result, "kl") != NULL;
    struct tsr_differences d = { 0 };
    if (!format || strcmp(format, FORMAT) != 0)
        return tsr_fail(err, TSR_E_INPUT, "its format is not " FORMAT);
    tsr_differences_add(&d, "", json_object_get(j, "of"), a->of);
    if (d.n)
        return tsr_fail(err, TSR_E_INPUT, "it is of other things (%s)", tsr_differences_text(&d));
    if (!json_is_object(result) || !hash || !device || (c->windows && !*hash))
        return tsr_fail(err, TSR_E_INPUT, "it is not whole");
    if (*hash) {
        TSR_TRY(tsr_hash_file(trace, now, err));
        if (strcmp(now, hash) != 0)
            return tsr_fail(err, TSR_E_INPUT, "%s is not what was written", trace);
        if (!c->windows)
            return tsr_fail(err, TSR_E_INPUT, "it was evaluated");
        TSR_TRY(read_trace(trace, c->windows->scored, kl, &a->at, err));
        if (a == &c->arms[0])
            TSR_TRY(take_states(c, j, err));
    }
    TSR_TRY(compare_tasks_take(c, a, result, "it", err));
    a->json = json_incref(result);
    if (!*c->device)
        (void)snprintf(c->device, sizeof c->device, "%s", device);
    return TSR_OK;
}

tsr_status compare_keep_load(struct compare *c, struct compare_arm *a, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    json_t           *j = NULL;
    char             *json = path_of(c, a, ".json"), *trace = path_of(c, a, ".safetensors");
    tsr_status        st = json && trace ? TSR_OK : tsr_fail_nomem(err, 128, "a path");
    if (st == TSR_OK && c->job->state->options.again)
        st = tsr_output_remove(json, err);
    if (st == TSR_OK && tsr_path_exists(json)) {
        tsr_status kept = tsr_json_load(&j, json, MAX_BYTES, MAX_DEPTH, &e.err);
        if (kept == TSR_OK)
            kept = take(c, a, j, trace, &e.err);
        if (kept == TSR_E_NOMEM)
            st = tsr_err_copy(err, kept, &e.err);
        else if (kept != TSR_OK)
            tsr_logf(TSR_LOG_INFO, "arm '%s' is run anew: %s: %s", a->name, json, e.text);
        else
            tsr_logf(TSR_LOG_INFO, "arm '%s' was finished by an earlier run", a->name);
    }
    json_decref(j);
    free(json);
    free(trace);
    return st;
}
