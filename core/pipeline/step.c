#include "pipeline/step.h"

#include "base/file.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void tsr_pipeline_check_strings(const struct tsr_config_node *list, const char *what,
                                struct tsr_diag *d)
{
    if (!list)
        return;
    if (list->kind != TSR_CONFIG_NODE_LIST) {
        tsr_config_diag_error(d, &list->mark, "write [\"...\", \"...\"]", "%s is not a list", what);
        return;
    }
    for (uint64_t i = 0; i < list->n; i++)
        if (list->items[i]->kind != TSR_CONFIG_NODE_SCALAR)
            tsr_config_diag_error(d, &list->items[i]->mark, NULL, "item %llu of %s is not a string",
                                  (unsigned long long)i + 1, what);
}

/* \n, \t and \\ as a shell or a YAML plain scalar passes them. */
static char *unescape(const char *s)
{
    char *out = tsr_strdup(s), *o = out;
    for (; out && *s; s++) {
        if (s[0] == '\\' && (s[1] == 'n' || s[1] == 't' || s[1] == '\\'))
            *o++ = *++s == 'n' ? '\n' : *s == 't' ? '\t' : '\\';
        else
            *o++ = *s;
    }
    if (out)
        *o = '\0';
    return out;
}

tsr_status tsr_pipeline_eval_keys_windows(const struct tsr_pipeline_eval_keys *k, const char *path,
                                          const struct tsr_tokenizer *t, const struct tsr_model *m,
                                          struct tsr_eval_windows **w, struct tsr_err *err)
{
    char *join = unescape(k->join);
    if (!join)
        return tsr_fail_nomem(err, strlen(k->join) + 1, "the join");
    struct tsr_eval_options o = { .protocol = (enum tsr_protocol)k->protocol,
                                  .rows = (enum tsr_engine_rows)k->rows,
                                  .join = join,
                                  .window = (uint64_t)k->window,
                                  .max_windows = (uint64_t)k->max_windows,
                                  .no_bos = !k->add_bos };
    tsr_status              st = tsr_eval_windows_create(w, t, m, path, &o, err);
    free(join);
    return st;
}

json_t *tsr_pipeline_windows_json(const struct tsr_eval_windows *w, const char *text,
                                  const struct tsr_tokenizer *t)
{
    json_t *j = json_object();
    if (tsr_pipeline_json_put_text(j, "protocol", w->protocol_name) &&
        tsr_pipeline_json_put_text(j, "text", text) &&
        tsr_pipeline_json_put_text(j, "text_hash", w->text_hash) &&
        tsr_pipeline_json_put_text(j, "tokenizer_hash", tsr_tokenizer_hash(t)) &&
        tsr_pipeline_json_put_text(j, "rows", tsr_rows_choices[w->opt.rows].name) &&
        tsr_pipeline_json_put_int(j, "window", w->window) &&
        tsr_pipeline_json_put_text(j, "bos", w->bos) &&
        tsr_pipeline_json_put_int(j, "windows", w->n))
        return j;
    json_decref(j);
    return NULL;
}

bool tsr_pipeline_eval_result_put(json_t *o, const struct tsr_eval_windows *w,
                                  const struct tsr_eval_result *r)
{
    bool ok = tsr_pipeline_json_put_real(o, "perplexity", r->perplexity) &&
              tsr_pipeline_json_put_int(o, "tokens", r->tokens) &&
              tsr_pipeline_json_put_int(o, "scored", r->scored) &&
              tsr_pipeline_json_put_real(o, "mean_nll", r->mean_nll);
    if (w->opt.protocol == TSR_EVAL_PPL_LM_EVAL_WIKITEXT)
        ok = ok && tsr_pipeline_json_put_real(o, "word_perplexity", r->word_perplexity) &&
             tsr_pipeline_json_put_real(o, "byte_perplexity", r->byte_perplexity) &&
             tsr_pipeline_json_put_real(o, "bits_per_byte", r->bits_per_byte) &&
             tsr_pipeline_json_put_int(o, "words", w->words) &&
             tsr_pipeline_json_put_int(o, "bytes", w->bytes);
    if (ok && isfinite(r->kl_mean)) {
        json_t *kl = json_object();
        ok = tsr_pipeline_json_put_real(kl, "mean", r->kl_mean) &&
             tsr_pipeline_json_put_real(kl, "median", r->kl_median) &&
             tsr_pipeline_json_put_real(kl, "p99", r->kl_p99) &&
             tsr_pipeline_json_put_real(kl, "max", r->kl_max);
        ok = tsr_pipeline_json_put(o, "kl", kl) && ok;
        ok = ok && tsr_pipeline_json_put_real(o, "top1", r->top1);
    }
    return ok && tsr_pipeline_json_put_real(o, "seconds", r->seconds);
}

void tsr_pipeline_check_input(const struct tsr_pipeline_job *job, const struct tsr_config_node *map,
                              const char *key, struct tsr_diag *d)
{
    const struct tsr_config_node *n =
        map && map->kind == TSR_CONFIG_NODE_MAP ? tsr_config_node_get(map, key) : NULL;
    if (!n || n->kind != TSR_CONFIG_NODE_SCALAR || !*n->text)
        return;
    char *path = tsr_pipeline_job_input(job, n->text);
    if (path && !tsr_path_exists(path))
        tsr_config_diag_error(d, &n->mark, job->verb ? NULL : "paths are relative to the job file",
                              "no such file: '%s'", path);
    free(path);
}
