/* A verb that is a job of one step, or of one with another in front. */
#include "cli/jobs.h"

#include "base/mem.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

const struct tsr_option tsr_cli_folder_options[2] = {
    { .name = "out",
      .help = "the job folder, instead of out/<file stem>",
      .unit = "FOLDER",
      .type = TSR_OPT_STRING,
      .def = { .s = "" } },
    { .name = "again",
      .help = "forget what an earlier run left in the job folder and start anew",
      .type = TSR_OPT_BOOL },
};

static bool key_is(const char *pair, const char *key)
{
    size_t n = strlen(key);
    return strncmp(pair, key, n) == 0 && pair[n] == '=';
}

static bool has_key(const struct tsr_option *o, uint64_t n, const char *pair)
{
    for (uint64_t i = 0; i < n; i++)
        if (key_is(pair, o[i].name))
            return true;
    return false;
}

const char *tsr_cli_own(const struct tsr_cli_strings *all, const char *key)
{
    const char *value = NULL;
    for (uint64_t i = 0; i < all->n; i++)
        if (key_is(all->v[i], key))
            value = all->v[i] + strlen(key) + 1;
    return value;
}

/* "output=m.gguf" of a verb whose step calls it `to` is "to=m.gguf" with the flag that was typed. */
static tsr_status rename_pair(struct tsr_cli_step *s, const struct tsr_verb *v,
                              struct tsr_pipeline_step_pair *p, struct tsr_err *err)
{
    for (uint64_t i = 0; i < v->n_renames; i++) {
        const struct tsr_cli_rename *r = &v->renames[i];
        if (!key_is(p->text, r->option))
            continue;
        const char *value = strchr(p->text, '=');
        uint64_t    bytes = strlen(r->key) + strlen(value) + 1;
        char       *text = tsr_new(bytes, 1);
        if (!text)
            return tsr_fail_nomem(err, bytes, "an option");
        (void)snprintf(text, bytes, "%s%s", r->key, value);
        s->made[s->n_pairs] = text;
        p->text = text;
        p->flag = r->option;
        return TSR_OK;
    }
    return TSR_OK;
}

bool tsr_cli_takes_place(const struct tsr_pipeline_step *step)
{
    return !has_key(step->options, step->n_options, "backend=");
}

/* Of what was typed: the verb reads its own options itself; a key that the step does not have is the other step's,
 * or the head's, where they have it, else a plugin's. */
static tsr_status sort(struct tsr_cli_step *s, const struct tsr_verb *v,
                       const struct tsr_cli_strings *all, bool two, struct tsr_err *err)
{
    uint64_t n_presets = 0;
    while (v->presets && v->presets[n_presets])
        n_presets++;
    uint64_t most = n_presets + all->n + s->n_more;
    s->pairs = tsr_new(most, sizeof *s->pairs);
    s->made = tsr_new(most, sizeof *s->made);
    if (!s->pairs || !s->made)
        return tsr_fail_nomem(err, most * sizeof *s->pairs, "options");
    for (uint64_t i = 0; i < n_presets; i++)
        s->pairs[s->n_pairs++] =
            (struct tsr_pipeline_step_pair){ .step = v->step, .text = v->presets[i] };
    for (uint64_t i = 0; i < all->n; i++) {
        struct tsr_pipeline_step_pair p = { .step = v->step, .text = all->v[i] };
        if (has_key(v->own, v->n_own, p.text))
            continue;
        if (v->before && !has_key(v->step->options, v->step->n_options, p.text) &&
            has_key(v->before->options, v->before->n_options, p.text)) {
            if (!two)
                return tsr_fail(err, TSR_E_INPUT, "--%.*s is about step '%s'; give --%s with it",
                                (int)strcspn(p.text, "="), p.text, v->before->name, v->when);
            p.step = v->before;
        } else if (tsr_cli_takes_place(v->step) &&
                   has_key(tsr_pipeline_run_on_options, TSR_PIPELINE_N_RUN_ON_OPTIONS, p.text)) {
            p.step = NULL;
        }
        TSR_TRY(rename_pair(s, v, &p, err));
        s->pairs[s->n_pairs++] = p;
    }
    for (uint64_t i = 0; i < s->n_more; i++)
        s->pairs[s->n_pairs++] = s->more[i];
    return TSR_OK;
}

tsr_status tsr_cli_step_open(struct tsr_cli *c, struct tsr_cli_step *s,
                             const struct tsr_cli_strings *all, const char *arg,
                             struct tsr_err *err)
{
    const struct tsr_verb           *v = c->verb;
    const struct tsr_pipeline_step  *steps[2] = { v->before, v->step };
    bool                             two = v->before && tsr_cli_own(all, v->when);
    struct tsr_pipeline_job_options *o = &s->options;
    o->sets = c->sets;
    o->n_sets = c->n_sets;
    o->json = c->json;
    o->quiet = c->quiet;
    o->threads = c->threads;
    o->loose = o->loose || v->loose;
    if (v->lean) {
        /* glibc would raise these with every large block that is freed, up to 64 MiB that are kept: what a layer
         * gave back is to be gone, or the statement of memory would not hold.  Its first values, now fixed: every
         * arena keeps freed blocks below them (docs/decisions/memory.md). */
        (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
        (void)mallopt(M_TRIM_THRESHOLD, 128 << 10);
    }
    TSR_TRY(sort(s, v, all, two, err));
    TSR_TRY(tsr_config_diag_create(&s->diag, err));
    if (v->files && tsr_cli_is_yaml(arg)) {
        o->pairs = s->pairs;
        o->n_pairs = s->n_pairs;
        TSR_TRY(tsr_pipeline_job_load(&s->job, arg, o, s->diag, err));
    } else {
        TSR_TRY(tsr_pipeline_job_make_steps(&s->job, arg, two ? steps : steps + 1, two ? 2 : 1,
                                            s->pairs, s->n_pairs, o, s->diag, err));
    }
    return tsr_cli_check_job(c, s->job, s->diag, err);
}

tsr_status tsr_cli_step_said(struct tsr_cli *c, const struct tsr_cli_step *s, tsr_status st,
                             const char *what, struct tsr_err *err)
{
    if (!s->diag || (st != TSR_OK && !tsr_config_diag_errors(s->diag)))
        return st;
    tsr_status said = tsr_cli_diag(c, s->diag, what, err);
    return said != TSR_OK ? said : st;
}

void tsr_cli_step_close(struct tsr_cli_step *s)
{
    tsr_pipeline_job_destroy(s->job);
    tsr_config_diag_destroy(s->diag);
    for (uint64_t i = 0; s->made && i < s->n_pairs; i++)
        free(s->made[i]);
    free(s->made);
    free(s->pairs);
}

tsr_status tsr_cli_run_step(struct tsr_cli *c, const void *opts, char **args, int n_args,
                            struct tsr_err *err)
{
    struct tsr_cli_step s = { 0 };
    const char         *again = tsr_cli_own(opts, "again");
    (void)n_args;
    if (!c->verb->loose) {
        s.options.out = tsr_cli_own(opts, "out");
        s.options.again = again && strcmp(again, "true") == 0;
    }
    tsr_status st = tsr_cli_step_open(c, &s, opts, args[0], err);
    bool       file = c->verb->files && tsr_cli_is_yaml(args[0]);
    st = tsr_cli_step_said(c, &s, st, file ? args[0] : c->verb->name, err);
    if (st == TSR_OK)
        st = tsr_cli_run_job(c, s.job, err);
    tsr_cli_step_close(&s);
    return st;
}
