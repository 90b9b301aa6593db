#include "cli/jobs.h"

#include <string.h>

/* One line per verb, in the order of `tessera help`. */
extern const struct tsr_verb tsr_verb_help;
extern const struct tsr_verb tsr_verb_run;
extern const struct tsr_verb tsr_verb_batch;
extern const struct tsr_verb tsr_verb_journal;
extern const struct tsr_verb tsr_verb_serve;
extern const struct tsr_verb tsr_verb_config;
extern const struct tsr_verb tsr_verb_bench;
extern const struct tsr_verb tsr_verb_generate;
extern const struct tsr_verb tsr_verb_logits;
extern const struct tsr_verb tsr_verb_tokenize;
extern const struct tsr_verb tsr_verb_inspect;
extern const struct tsr_verb tsr_verb_plan;
extern const struct tsr_verb tsr_verb_eval;
extern const struct tsr_verb tsr_verb_search_codec;
extern const struct tsr_verb tsr_verb_roundtrip;
extern const struct tsr_verb tsr_verb_quantize;
extern const struct tsr_verb tsr_verb_convert;
extern const struct tsr_verb tsr_verb_rotate;
extern const struct tsr_verb tsr_verb_compare;
extern const struct tsr_verb tsr_verb_add_outliers;
extern const struct tsr_verb tsr_verb_plugin;
extern const struct tsr_verb tsr_verb_profile;
extern const struct tsr_verb tsr_verb_doctor;

static const struct tsr_verb *const verbs[] = {
    &tsr_verb_help,         &tsr_verb_run,      &tsr_verb_config,   &tsr_verb_bench,
    &tsr_verb_batch,        &tsr_verb_journal,  &tsr_verb_generate, &tsr_verb_logits,
    &tsr_verb_tokenize,     &tsr_verb_inspect,  &tsr_verb_plan,     &tsr_verb_eval,
    &tsr_verb_roundtrip,    &tsr_verb_quantize, &tsr_verb_convert,  &tsr_verb_compare,
    &tsr_verb_add_outliers, &tsr_verb_plugin,   &tsr_verb_profile,  &tsr_verb_doctor,
    &tsr_verb_search_codec, &tsr_verb_serve,    &tsr_verb_rotate,
};

#define N_VERBS     (sizeof verbs / sizeof *verbs)
#define MAX_STEPS   32u
#define MAX_OPTIONS 64u

/* Verbs of steps with their tables, made on first use and from one thread. */
struct made {
    struct tsr_verb   verb;
    struct tsr_option options[MAX_OPTIONS];
};
static struct made            made[MAX_STEPS];
static const struct tsr_verb *all[N_VERBS + MAX_STEPS];
static uint64_t               n_made, n_all;

static bool is_verb(const char *name)
{
    for (uint64_t i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i]->name, name) == 0 ||
            (verbs[i]->alias && strcmp(verbs[i]->step->name, name) == 0))
            return true;
    return false;
}

/* Taken: by an option before it, or by one of every verb, where --set STEP.NAME is left. */
static bool has(const struct made *m, const char *name)
{
    for (uint64_t i = 0; i < tsr_n_common_options; i++)
        if (strcmp(tsr_common_options[i].name, name) == 0)
            return true;
    for (uint64_t i = 0; i < m->verb.n_options; i++)
        if (strcmp(m->options[i].name, name) == 0)
            return true;
    return false;
}

/* keep: flags that stay. */
static void add_options(struct made *m, const struct tsr_option *o, uint64_t n, uint32_t keep)
{
    for (uint64_t i = 0; i < n && m->verb.n_options < MAX_OPTIONS; i++) {
        struct tsr_option *to = &m->options[m->verb.n_options];
        *to = o[i];
        to->flags &= keep;
        for (uint64_t k = 0; k < m->verb.n_renames; k++)
            if (strcmp(m->verb.renames[k].key, o[i].name) == 0)
                to->name = m->verb.renames[k].option;
        m->verb.n_options += !has(m, to->name);
    }
}

/* A preset value of the verb is the default in its help. */
static void preset(struct made *m, const char *pair)
{
    size_t len = strcspn(pair, "=");
    for (uint64_t i = 0; i < m->verb.n_options; i++) {
        struct tsr_option *o = &m->options[i], at = *o;
        if (strncmp(o->name, pair, len) != 0 || o->name[len])
            continue;
        at.offset = 0;
        (void)tsr_config_option_set(&at, &o->def, pair + len + 1, NULL);
    }
}

static const struct tsr_verb *make(const struct tsr_verb *v)
{
    struct made *m = &made[n_made++];
    m->verb = *v;
    add_options(m, v->own, v->n_own, ~0u);
    /* a job file may contain options that the command line omits */
    add_options(m, v->step->options, v->step->n_options, v->files ? ~TSR_OPT_REQUIRED : ~0u);
    if (v->before)
        add_options(m, v->before->options, v->before->n_options, ~TSR_OPT_REQUIRED);
    if (tsr_cli_takes_place(v->step))
        add_options(m, tsr_pipeline_run_on_options, TSR_PIPELINE_N_RUN_ON_OPTIONS, ~0u);
    for (uint64_t i = 0; v->presets && v->presets[i]; i++)
        preset(m, v->presets[i]);
    for (uint64_t i = 0; v->stated && v->stated[i]; i++)
        preset(m, v->stated[i]);
    m->verb.options = m->options;
    m->verb.name = v->name ? v->name : v->step->name;
    m->verb.summary = v->summary ? v->summary : v->step->summary;
    return &m->verb;
}

static const struct tsr_verb *of_step(const struct tsr_pipeline_step *step)
{
    struct tsr_verb v = {
        .args = "MODEL",
        .min_args = 1,
        .max_args = 1,
        .details = step->open
                       ? "A job of this one step.  Further --key VALUE are options of the plugin."
                       : "A job of this one step.",
        .run = tsr_cli_run_step,
        .jobs = true,
        .step = step,
        .own = tsr_cli_folder_options,
        .n_own = 2,
    };
    return make(&v);
}

const struct tsr_verb *tsr_verb_at(uint64_t i)
{
    if (n_all == 0) {
        for (; n_all < N_VERBS; n_all++)
            all[n_all] =
                verbs[n_all]->step && !verbs[n_all]->options ? make(verbs[n_all]) : verbs[n_all];
        for (uint64_t s = 0; s < tsr_n_steps && n_made < MAX_STEPS; s++)
            if (!tsr_steps[s]->later && !is_verb(tsr_steps[s]->name))
                all[n_all++] = of_step(tsr_steps[s]);
    }
    return i < n_all ? all[i] : NULL;
}

/* The verb that an alias finds: the step as a job file has it. */
static const struct tsr_verb *of_alias(const struct tsr_verb *shown)
{
    struct made *m = NULL;
    for (uint64_t i = 0; i < n_made && !m; i++)
        if (made[i].verb.shown == shown)
            m = &made[i];
    if (!m && n_made < MAX_STEPS) {
        m = &made[n_made];
        (void)of_step(shown->step);
        m->verb.shown = shown;
    }
    return m ? &m->verb : NULL;
}

const struct tsr_verb *tsr_verb_find(const char *name, const char **near)
{
    const char *names[128];
    uint64_t    n = 0;
    for (const struct tsr_verb *v; n < 128 && (v = tsr_verb_at(n)); n++) {
        if (strcmp(v->name, name) == 0)
            return v;
        if (v->alias && strcmp(v->step->name, name) == 0)
            return of_alias(v);
        names[n] = v->name;
    }
    if (near)
        *near = tsr_config_nearest(name, names, n);
    return NULL;
}
