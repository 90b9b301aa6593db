#include "pipeline/step.h"

#include "base/file.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct tsr_choice tsr_act_choices[3] = {
    { "f32", "activations as they are", TSR_ACT_F32 },
    { "a16", "rounded to BF16", TSR_ACT_A16 },
    { "a8", "int8 with a scale per block of columns", TSR_ACT_A8 },
};

const char *tsr_act_name(uint32_t act)
{
    return act < 3 ? tsr_act_choices[act].name : "?";
}

bool tsr_json_put_act(json_t *object, uint32_t act, const uint64_t ran[3])
{
    return tsr_json_put_text(object, "act", tsr_act_name(act)) &&
           tsr_json_put(object, "packed_linears",
                        json_pack("{s:I, s:I, s:I}", "f32", (json_int_t)ran[TSR_ACT_F32], "a16",
                                  (json_int_t)ran[TSR_ACT_A16], "a8", (json_int_t)ran[TSR_ACT_A8]));
}

uint32_t tsr_act_ran(uint32_t act, const uint64_t ran[3])
{
    return ran[act] ? act : TSR_ACT_F32;
}

const char *tsr_act_also(const json_t *object, char text[64])
{
    const char *act = json_string_value(json_object_get(object, "act"));
    long long   f32 =
        json_integer_value(json_object_get(json_object_get(object, "packed_linears"), "f32"));
    text[0] = 0;
    if (act && strcmp(act, "f32") != 0 && f32 > 0) /* formats that have nothing else */
        (void)snprintf(text, 64, ", f32 on %lld packed linears", f32);
    return text;
}

bool tsr_json_put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) == 0;
}

bool tsr_json_put_real(json_t *object, const char *key, double value)
{
    return tsr_json_put(object, key, isfinite(value) ? json_real(value) : json_null());
}

bool tsr_json_put_int(json_t *object, const char *key, uint64_t value)
{
    return tsr_json_put(object, key, json_integer((json_int_t)value));
}

/* A path may hold any bytes; JSON only UTF-8. */
bool tsr_json_put_text(json_t *object, const char *key, const char *value)
{
    json_t *j = value ? json_string(value) : json_null();
    if (!j) {
        char *plain = tsr_strdup(value);
        for (char *p = plain; p && *p; p++)
            if ((unsigned char)*p >= 0x80)
                *p = '?';
        j = plain ? json_string(plain) : NULL;
        free(plain);
    }
    return tsr_json_put(object, key, j);
}

void tsr_check_strings(const struct tsr_node *list, const char *what, struct tsr_diag *d)
{
    if (!list)
        return;
    if (list->kind != TSR_NODE_LIST) {
        tsr_diag_error(d, &list->mark, "write [\"...\", \"...\"]", "%s is not a list", what);
        return;
    }
    for (uint64_t i = 0; i < list->n; i++)
        if (list->items[i]->kind != TSR_NODE_SCALAR)
            tsr_diag_error(d, &list->items[i]->mark, NULL, "item %llu of %s is not a string",
                           (unsigned long long)i + 1, what);
}

/* \n, \t and \\ as a shell or a YAML plain scalar hands them over. */
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

tsr_status tsr_eval_keys_windows(const struct tsr_eval_keys *k, const char *path,
                                 const struct tsr_tokenizer *t, const struct tsr_model *m,
                                 struct tsr_windows **w, struct tsr_err *err)
{
    char *join = unescape(k->join);
    if (!join)
        return tsr_fail_nomem(err, strlen(k->join) + 1, "the join");
    struct tsr_eval_options o = { .protocol = (enum tsr_protocol)k->protocol,
                                  .rows = (enum tsr_rows)k->rows,
                                  .join = join,
                                  .window = (uint64_t)k->window,
                                  .max_windows = (uint64_t)k->max_windows };
    tsr_status              st = tsr_windows_create(w, t, m, path, &o, err);
    free(join);
    return st;
}

json_t *tsr_windows_json(const struct tsr_windows *w, const char *text,
                         const struct tsr_tokenizer *t)
{
    json_t *j = json_object();
    if (tsr_json_put_text(j, "protocol", w->protocol_name) && tsr_json_put_text(j, "text", text) &&
        tsr_json_put_text(j, "text_hash", w->text_hash) &&
        tsr_json_put_text(j, "tokenizer_hash", tsr_tokenizer_hash(t)) &&
        tsr_json_put_text(j, "rows", tsr_rows_choices[w->opt.rows].name) &&
        tsr_json_put_int(j, "window", w->window) && tsr_json_put_text(j, "bos", w->bos) &&
        tsr_json_put_int(j, "windows", w->n))
        return j;
    json_decref(j);
    return NULL;
}

bool tsr_eval_result_put(json_t *o, const struct tsr_windows *w, const struct tsr_eval_result *r)
{
    bool ok = tsr_json_put_real(o, "perplexity", r->perplexity) &&
              tsr_json_put_int(o, "tokens", r->tokens) &&
              tsr_json_put_int(o, "scored", r->scored) &&
              tsr_json_put_real(o, "mean_nll", r->mean_nll);
    if (w->opt.protocol == TSR_PPL_LM_EVAL_WIKITEXT)
        ok = ok && tsr_json_put_real(o, "word_perplexity", r->word_perplexity) &&
             tsr_json_put_real(o, "byte_perplexity", r->byte_perplexity) &&
             tsr_json_put_real(o, "bits_per_byte", r->bits_per_byte) &&
             tsr_json_put_int(o, "words", w->words) && tsr_json_put_int(o, "bytes", w->bytes);
    if (ok && isfinite(r->kl_mean)) {
        json_t *kl = json_object();
        ok = tsr_json_put_real(kl, "mean", r->kl_mean) &&
             tsr_json_put_real(kl, "median", r->kl_median) &&
             tsr_json_put_real(kl, "p99", r->kl_p99) && tsr_json_put_real(kl, "max", r->kl_max);
        ok = tsr_json_put(o, "kl", kl) && ok;
        ok = ok && tsr_json_put_real(o, "top1", r->top1);
    }
    return ok && tsr_json_put_real(o, "seconds", r->seconds);
}

void tsr_check_input(const struct tsr_job *job, const struct tsr_node *map, const char *key,
                     struct tsr_diag *d)
{
    const struct tsr_node *n = map && map->kind == TSR_NODE_MAP ? tsr_node_get(map, key) : NULL;
    if (!n || n->kind != TSR_NODE_SCALAR || !*n->text)
        return;
    char *path = tsr_job_input(job, n->text);
    if (path && !tsr_path_exists(path))
        tsr_diag_error(d, &n->mark, job->verb ? NULL : "paths are relative to the job file",
                       "no such file: '%s'", path);
    free(path);
}
