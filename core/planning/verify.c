/* The key `verify` of a plan step, and what a verification found, for people. */
#include "base/mem.h"
#include "pipeline/step.h"
#include "planning/planning.h"
#include "planning/table.h"

#include <string.h>

static const struct tsr_option options[] = {
    { .name = "text",
      .help = "File that the KL of the whole is measured on.",
      .type = TSR_OPT_STRING,
      .unit = "FILE",
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(struct tsr_planning_verify_keys, text, const char *),
      .def = { .s = "" } },
    TSR_OPTION_INT(struct tsr_planning_verify_keys, window, 0, 0, 1 << 30, "tokens",
                   "Tokens in a window; 0: those of a sequence of the indicators."),
    TSR_OPTION_INT(struct tsr_planning_verify_keys, max_windows, 0, 0, 1 << 30, "windows",
                   "Stop after this many windows; 0: all."),
    TSR_OPTION_ENUM(struct tsr_planning_verify_keys, act, TSR_ACT_F32, tsr_act_choices,
                    "How activations enter packed weights."),
};

bool tsr_planning_verifies(const struct tsr_planning_plan_keys *k)
{
    return k->verify && k->verify->kind != TSR_CONFIG_NODE_NULL;
}

void tsr_planning_verify_fill(struct tsr_planning_verify_keys     *v,
                              const struct tsr_planning_plan_keys *k, struct tsr_diag *d)
{
    struct tsr_config_optset set = { options, sizeof options / sizeof *options, sizeof *options,
                                     v };
    *v = (struct tsr_planning_verify_keys){ 0 };
    tsr_config_options_fill(&set, 1, NULL, k->verify, "verify", d);
}

void tsr_planning_verify_read(const struct tsr_planning *pl, const struct tsr_pipeline_job *job,
                              const struct tsr_planning_plan_keys *k, struct tsr_diag *d)
{
    struct tsr_planning_verify_keys v;
    if (!tsr_planning_verifies(k))
        return;
    tsr_planning_verify_fill(&v, k, d);
    tsr_pipeline_check_input(job, k->verify, "text", d);
    if (!pl->options.indicators || !*pl->options.indicators)
        tsr_config_diag_error(d, &k->verify->mark,
                              "add quality: {indicators: FILE} of tessera indicators --measure kl",
                              "'verify' compares with the KL that the plan promises, and nothing "
                              "says what the candidates cost in KL");
    if (pl->cluster && tsr_planning_copies(pl, k))
        tsr_config_diag_error(d, &k->verify->mark, NULL,
                              "'verify' is about one copy of the model; %llu nodes are planned in "
                              "copies",
                              (unsigned long long)pl->cluster->n_nodes);
}

void tsr_planning_verify_print(const json_t *r, FILE *to)
{
    const json_t *v = json_object_get(r, "verify"), *list = json_object_get(v, "attempts");
    size_t        n = json_array_size(list);
    const json_t *first = json_array_get(list, 0), *last = n ? json_array_get(list, n - 1) : NULL;
    char          text[TSR_TABLE_SENTENCE];
    size_t        at;
    if (!last)
        return;
    at = (size_t)snprintf(text, sizeof text, "measured %.4g",
                          tsr_planning_table_real(last, "measured"));
    if (json_is_number(json_object_get(last, "measured_half")))
        at += (size_t)snprintf(text + at, sizeof text - at, " +-%.2g",
                               tsr_planning_table_real(last, "measured_half"));
    at += (size_t)snprintf(text + at, sizeof text - at,
                           " nats per token on %.300s, promised %.4g, at most %.4g",
                           tsr_planning_table_text(v, "text"), tsr_planning_table_real(last, "kl"),
                           tsr_planning_table_real(v, "target"));
    if (n > 1)
        (void)snprintf(text + at, sizeof text - at,
                       "; solved %zu times, the first plan promised %.4g and measured %.4g", n,
                       tsr_planning_table_real(first, "kl"),
                       tsr_planning_table_real(first, "measured"));
    tsr_planning_table_wrap(to, "verified", text);
}
