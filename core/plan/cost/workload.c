/* Workloads: a map of a job, and lengths of recorded prompts. */
#include "plan/cost/workload.h"

#include "base/f16.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "plugin/choices.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TOKENS 16777216
#define MOST_BATCH  1048576
#define FILE_CAP    (UINT64_C(1) << 30)
#define LINE_DEPTH  32

struct options {
    const struct tsr_config_node *prompt, *generate;
    const char                   *from;
    int64_t                       batch, concurrency, chunk, kv;
};

static const struct tsr_option options[] = {
    TSR_OPTION_NODE(struct options, prompt, "Tokens of a prompt, or a map of lengths to counts."),
    TSR_OPTION_NODE(struct options, generate, "Tokens to generate, or a map of lengths to counts."),
    TSR_OPTION_STRING(struct options, from, "", "JSONL file of prompts, in place of `prompt`."),
    TSR_OPTION_INT(struct options, batch, 1, 1, MOST_BATCH, "requests", "Requests of one batch."),
    TSR_OPTION_INT(
        struct options, concurrency, 0, 0, MOST_BATCH, "requests",
        "Requests resident at once; 0: the whole batch; left out: the step plan chooses."),
    TSR_OPTION_INT(struct options, chunk, 0, 0, MOST_TOKENS, "tokens",
                   "Tokens of a prompt that run at once; 0: all; left out: the step plan chooses."),
    TSR_OPTION_ENUM(struct options, kv, TSR_F16, tsr_kv_choices,
                    "Type of the KV cache; left out: the step plan chooses."),
};

/* ---- lengths ----------------------------------------------------------------------------------- */

/* Adds `count` of a length, kept ascending. */
static tsr_status put(struct tsr_plan_lengths *l, uint64_t length, uint64_t count,
                      struct tsr_err *err)
{
    uint64_t low = 0, high = l->n;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (l->length[mid] < length)
            low = mid + 1;
        else
            high = mid;
    }
    l->total += count;
    if (low < l->n && l->length[low] == length) {
        l->count[low] += count;
        return TSR_OK;
    }
    if ((l->n & (l->n - 1)) == 0) { /* full at every power of two */
        uint64_t  cap = l->n ? 2 * l->n : 1;
        uint64_t *a = tsr_renew(l->length, cap, sizeof *a);
        l->length = a ? a : l->length;
        uint64_t *b = a ? tsr_renew(l->count, cap, sizeof *b) : NULL;
        if (!b)
            return tsr_fail_nomem(err, cap * sizeof *b, "lengths of prompts");
        l->count = b;
    }
    memmove(l->length + low + 1, l->length + low, (l->n - low) * sizeof *l->length);
    memmove(l->count + low + 1, l->count + low, (l->n - low) * sizeof *l->count);
    l->length[low] = length;
    l->count[low] = count;
    l->n++;
    return TSR_OK;
}

static uint64_t mean_up(const struct tsr_plan_lengths *l)
{
    double sum = 0;
    for (uint64_t i = 0; i < l->n; i++)
        sum += (double)l->length[i] * (double)l->count[i];
    double   mean = sum / (double)l->total;
    uint64_t up = (uint64_t)mean;
    return (double)up < mean ? up + 1 : up;
}

static void finish(struct tsr_plan_workload *w)
{
    w->s = mean_up(&w->prompt);
    w->n = mean_up(&w->generate);
    if (w->prompt.n == 0 || w->generate.n == 0)
        return; /* records and maps have at least one */
    w->context = w->prompt.length[w->prompt.n - 1] + w->generate.length[w->generate.n - 1];
    w->distribution = w->prompt.n > 1 || w->generate.n > 1;
}

static bool whole(const char *text, uint64_t most, uint64_t *v)
{
    char *end = NULL;
    *v = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    return end && *end == '\0' && *v >= 1 && *v <= most;
}

/* 512, or {128: 10, 512: 30}. */
static tsr_status read_lengths(struct tsr_plan_lengths *l, const struct tsr_config_node *n,
                               const char *key, struct tsr_diag *d, struct tsr_err *err)
{
    uint64_t length, count;
    if (n->kind == TSR_CONFIG_NODE_SCALAR && whole(n->text, MOST_TOKENS, &length))
        return put(l, length, 1, err);
    bool ok = n->kind == TSR_CONFIG_NODE_MAP && n->n > 0;
    for (uint64_t i = 0; ok && i < n->n; i++) {
        ok = n->items[i]->kind == TSR_CONFIG_NODE_SCALAR &&
             whole(n->keys[i]->text, MOST_TOKENS, &length) &&
             whole(n->items[i]->text, MOST_BATCH, &count);
        if (ok)
            TSR_TRY(put(l, length, count, err));
    }
    if (!ok)
        tsr_config_diag_error(
            d, &n->mark, "as in 512, or {128: 10, 512: 30}",
            "'%s' must be a number of tokens from 1 to %d, or a map of such to counts", key,
            MOST_TOKENS);
    return TSR_OK;
}

/* ---- records ----------------------------------------------------------------------------------- */

/* The text of a record, or NULL. */
static const json_t *text_of(const json_t *o)
{
    static const char *const keys[] = { "prompt", "text" };
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_object_get(o, keys[i]);
        if (json_is_string(v))
            return v;
    }
    return NULL;
}

static tsr_status record(struct tsr_plan_workload *w, const char *where, const json_t *j,
                         uint64_t generate, const struct tsr_tokenizer *tok, struct tsr_err *err)
{
    int64_t       tokens = 0, most = (int64_t)generate;
    const json_t *body = json_is_object(j) ? json_object_get(j, "body") : NULL, *text;
    if (!json_is_object(j))
        return tsr_fail(err, TSR_E_INPUT, "%s: is not a JSON object", where);
    j = json_is_object(body) ? body : j;
    TSR_TRY(tsr_json_int(j, where, "prompt_tokens", false, 1, MOST_TOKENS, &tokens, err));
    TSR_TRY(tsr_json_int(j, where, "max_tokens", false, 1, MOST_TOKENS, &most, err));
    if (tokens == 0) {
        struct tsr_tokenizer_ids ids = { 0 };
        text = text_of(j);
        if (!text)
            return tsr_fail(
                err, TSR_E_INPUT,
                "%s: has neither \"prompt_tokens\" nor a text as \"prompt\" or \"text\"", where);
        if (!tok)
            return tsr_fail(err, TSR_E_INPUT,
                            "%s: to count its tokens the model needs a tokenizer; give "
                            "\"prompt_tokens\"",
                            where);
        tsr_status st = tsr_tokenize(tok, json_string_value(text), json_string_length(text),
                                     TSR_TOKENIZER_SPECIAL, &ids, err);
        tokens = (int64_t)ids.n;
        tsr_tokenizer_ids_free(&ids);
        if (st != TSR_OK)
            return tsr_err_prefix(err, st, "%s", where);
    }
    if (tokens < 1 || tokens > MOST_TOKENS || most < 1)
        return tsr_fail(err, TSR_E_INPUT, "%s: a prompt of %lld tokens; there must be 1 to %d",
                        where, (long long)tokens, MOST_TOKENS);
    TSR_TRY(put(&w->prompt, (uint64_t)tokens, 1, err));
    return put(&w->generate, (uint64_t)most, 1, err);
}

tsr_status tsr_plan_workload_records(struct tsr_plan_workload *w, const char *name,
                                     const char *text, uint64_t len, uint64_t generate,
                                     const struct tsr_tokenizer *tok, struct tsr_err *err)
{
    char     where[300];
    uint64_t line = 0;
    for (uint64_t at = 0; at < len; line++) {
        const char *end = memchr(text + at, '\n', len - at);
        uint64_t    n = end ? (uint64_t)(end - (text + at)) : len - at, blank = 0;
        while (blank < n && isspace((unsigned char)text[at + blank]))
            blank++;
        (void)snprintf(where, sizeof where, "%.240s:%llu", name, (unsigned long long)line + 1);
        if (blank < n) {
            json_t *j;
            TSR_TRY(tsr_json_parse(&j, where, text + at, n, LINE_DEPTH, err));
            tsr_status st = record(w, where, j, generate, tok, err);
            json_decref(j);
            TSR_TRY(st);
        }
        at += n + 1;
    }
    if (w->prompt.total == 0)
        return tsr_fail(err, TSR_E_INPUT, "%s: holds no prompt", name);
    finish(w);
    return TSR_OK;
}

static tsr_status read_file(struct tsr_plan_workload *w, const struct tsr_config_node *from,
                            const char *folder, uint64_t generate, const struct tsr_tokenizer *tok,
                            struct tsr_diag *d, struct tsr_err *err)
{
    struct tsr_errbuf e = TSR_ERRBUF(e);
    char             *path = *from->text == '/' || !folder || !*folder ? tsr_strdup(from->text)
                                                                       : tsr_path_join(folder, from->text);
    char             *text = NULL;
    uint64_t          len = 0;
    if (!path)
        return tsr_fail_nomem(err, strlen(from->text), from->text);
    tsr_status st = tsr_file_slurp(path, FILE_CAP, &text, &len, &e.err);
    if (st == TSR_OK)
        st = tsr_plan_workload_records(w, path, text, len, generate, tok, &e.err);
    free(path);
    free(text);
    if (st == TSR_E_INPUT) {
        tsr_config_diag_failure(d, &from->mark, &e.err);
        return TSR_OK;
    }
    return st == TSR_OK ? TSR_OK : tsr_err_copy(err, st, &e.err);
}

/* ---- the map ------------------------------------------------------------------------------------- */

static tsr_status read_map(struct tsr_plan_workload *w, const struct options *o,
                           const struct tsr_config_node *map, const char *folder,
                           const struct tsr_tokenizer *tok, struct tsr_diag *d, struct tsr_err *err)
{
    uint64_t before = tsr_config_diag_errors(d);
    bool     from = o->from && *o->from;
    if (from && o->prompt)
        tsr_config_diag_error(d, &o->prompt->mark, NULL,
                              "'prompt' and 'from' say the same thing twice");
    if (o->prompt && !from)
        TSR_TRY(read_lengths(&w->prompt, o->prompt, "prompt", d, err));
    if (o->generate)
        TSR_TRY(read_lengths(&w->generate, o->generate, "generate", d, err));
    if (o->concurrency > o->batch)
        tsr_config_diag_error(d, &tsr_config_node_get(map, "concurrency")->mark, NULL,
                              "'concurrency' is %lld, more than the batch of %lld",
                              (long long)o->concurrency, (long long)o->batch);
    if (from && o->generate && o->generate->kind != TSR_CONFIG_NODE_SCALAR)
        tsr_config_diag_error(
            d, &o->generate->mark, NULL,
            "with 'from', 'generate' is one number, for records without max_tokens");
    if (tsr_config_diag_errors(d) != before)
        return TSR_OK;
    if (from) {
        uint64_t most = w->generate.n ? w->generate.length[0] : 100;
        free(w->generate.length);
        free(w->generate.count);
        w->generate = (struct tsr_plan_lengths){ 0 };
        return read_file(w, tsr_config_node_get(map, "from"), folder, most, tok, d, err);
    }
    if (!o->prompt)
        TSR_TRY(put(&w->prompt, 512, 1, err));
    if (!o->generate)
        TSR_TRY(put(&w->generate, 100, 1, err));
    finish(w);
    return TSR_OK;
}

tsr_status tsr_plan_workload_read(struct tsr_plan_workload *w, const struct tsr_config_node *map,
                                  const char *folder, const struct tsr_tokenizer *tok,
                                  struct tsr_diag *d, struct tsr_err *err)
{
    struct options           o = { 0 };
    struct tsr_config_optset set = { options, sizeof options / sizeof *options, sizeof *options,
                                     &o };
    uint64_t                 before = tsr_config_diag_errors(d);
    *w = (struct tsr_plan_workload){ .from = "" };
    tsr_config_options_fill(&set, 1, NULL, map, "'workload'", d);
    if (tsr_config_diag_errors(d) != before)
        return TSR_OK;
    w->batch = (uint64_t)o.batch;
    w->concurrency = o.concurrency ? (uint64_t)o.concurrency : w->batch;
    w->chunk = (uint64_t)o.chunk;
    w->kv = (uint32_t)o.kv;
    w->from = o.from;
    tsr_status st = read_map(w, &o, map, folder, tok, d, err);
    if (st != TSR_OK)
        tsr_plan_workload_free(w);
    return st;
}

void tsr_plan_workload_free(struct tsr_plan_workload *w)
{
    free(w->prompt.length);
    free(w->prompt.count);
    free(w->generate.length);
    free(w->generate.count);
    *w = (struct tsr_plan_workload){ 0 };
}

tsr_status tsr_plan_workload_fixed(struct tsr_plan_workload *w, uint64_t s, uint64_t n,
                                   uint64_t batch, struct tsr_err *err)
{
    *w = (struct tsr_plan_workload){
        .batch = batch, .concurrency = batch, .kv = TSR_F16, .from = ""
    };
    if (s == 0 || n == 0 || batch == 0)
        return tsr_fail(err, TSR_E_INPUT,
                        "a workload has at least 1 token, 1 to generate, 1 request");
    tsr_status st = put(&w->prompt, s, 1, err);
    if (st == TSR_OK)
        st = put(&w->generate, n, 1, err);
    if (st == TSR_OK)
        finish(w);
    else
        tsr_plan_workload_free(w);
    return st;
}

double tsr_plan_workload_past(const struct tsr_plan_workload *w, bool paper)
{
    double   s = (double)w->s, n = (double)w->n;
    uint64_t half = w->n / 2; /* whole, as their code has it */
    if (paper)
        return s + (double)half;
    return w->n > 1 ? s + (n - 2) / 2 : s;
}

uint64_t tsr_plan_workload_chunks(const struct tsr_plan_workload *w, uint64_t *last)
{
    if (w->chunk == 0 || w->chunk >= w->s) {
        *last = w->s;
        return 1;
    }
    uint64_t n = (w->s + w->chunk - 1) / w->chunk;
    *last = w->s - (n - 1) * w->chunk;
    return n;
}

uint64_t tsr_plan_workload_piece(const struct tsr_plan_workload *w, uint64_t requests)
{
    uint64_t most = requests < TSR_PLAN_MOST_TOKENS ? TSR_PLAN_MOST_TOKENS / requests : 1;
    uint64_t chunk = w->chunk && w->chunk < w->s ? w->chunk : w->s;
    return chunk < most ? chunk : most;
}
