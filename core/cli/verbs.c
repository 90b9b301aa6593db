#include "cli/jobs.h"

#include <string.h>

/* One line per verb, in the order of `tessera help`. */
extern const struct tsr_verb tsr_verb_help;
extern const struct tsr_verb tsr_verb_run;
extern const struct tsr_verb tsr_verb_batch;
extern const struct tsr_verb tsr_verb_journal;
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
extern const struct tsr_verb tsr_verb_compare;
extern const struct tsr_verb tsr_verb_plant;
extern const struct tsr_verb tsr_verb_plugin;
extern const struct tsr_verb tsr_verb_profile;
extern const struct tsr_verb tsr_verb_doctor;

static const struct tsr_verb *const verbs[] = {
    &tsr_verb_help,         &tsr_verb_run,      &tsr_verb_config,   &tsr_verb_bench,
    &tsr_verb_batch,        &tsr_verb_journal,  &tsr_verb_generate, &tsr_verb_logits,
    &tsr_verb_tokenize,     &tsr_verb_inspect,  &tsr_verb_plan,     &tsr_verb_eval,
    &tsr_verb_roundtrip,    &tsr_verb_quantize, &tsr_verb_convert,  &tsr_verb_compare,
    &tsr_verb_plant,        &tsr_verb_plugin,   &tsr_verb_profile,  &tsr_verb_doctor,
    &tsr_verb_search_codec,
};

#define N_VERBS     (sizeof verbs / sizeof *verbs)
#define MAX_STEPS   24u
#define MAX_OPTIONS 48u

/* Verbs made from steps, on first use and from one thread: names and tables are the step's. */
static struct tsr_verb   made[MAX_STEPS];
static struct tsr_option made_options[MAX_STEPS][MAX_OPTIONS];
static uint64_t          n_made;

static bool is_verb(const char *name)
{
    for (uint64_t i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return true;
    return false;
}

static void make_verb(const struct tsr_step *step)
{
    uint64_t                 n = 0, n_run;
    const struct tsr_option *run = tsr_cli_run_options(&n_run);
    struct tsr_option       *o = made_options[n_made];
    for (uint64_t i = 0; i < step->n_options && n + n_run < MAX_OPTIONS; i++)
        o[n++] = step->options[i];
    for (uint64_t i = 0; i < n_run; i++)
        o[n++] = run[i];
    made[n_made++] = (struct tsr_verb){
        .name = step->name,
        .summary = step->summary,
        .args = "MODEL",
        .min_args = 1,
        .max_args = 1,
        .details = step->open
                       ? "A job of this one step.  Further --key VALUE are options of the plugin."
                       : "A job of this one step.",
        .options = o,
        .n_options = n,
        .run = tsr_cli_run_step,
        .jobs = true,
        .step = step,
    };
}

const struct tsr_verb *tsr_verb_at(uint64_t i)
{
    static bool ready;
    for (uint64_t s = 0; !ready && s < tsr_n_steps && n_made < MAX_STEPS; s++)
        if (!tsr_steps[s]->later && !is_verb(tsr_steps[s]->name))
            make_verb(tsr_steps[s]);
    ready = true;
    if (i < N_VERBS)
        return verbs[i];
    return i - N_VERBS < n_made ? &made[i - N_VERBS] : NULL;
}

const struct tsr_verb *tsr_verb_find(const char *name, const char **near)
{
    const char *names[128];
    uint64_t    n = 0;
    for (const struct tsr_verb *v; n < 128 && (v = tsr_verb_at(n)); n++) {
        if (strcmp(v->name, name) == 0)
            return v;
        names[n] = v->name;
    }
    *near = tsr_nearest(name, names, n);
    return NULL;
}
