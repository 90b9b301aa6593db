/* tessera add-outliers: a model with outliers that vary by token. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/add_outliers.h"
#include "model/model.h"

#include <stdlib.h>

struct add_outliers_options {
    const char *output;
    int64_t     triples, seed;
    double      strength;
};

#define S struct add_outliers_options
static const struct tsr_option options[] = {
    { .name = "output",
      .help = "Folder to write; it must not exist.",
      .type = TSR_OPT_STRING,
      .unit = "FOLDER",
      .flags = TSR_OPT_REQUIRED,
      .offset = TSR_FIELD(S, output, const char *),
      .def = { .s = "" } },
    TSR_OPTION_INT(S, triples, 128, 1, 1 << 24, NULL,
                   "Triples of neurons in each layer's feed-forward."),
    TSR_OPTION_REAL(S, strength, 9, 1e-3, 1e6, NULL,
                    "Their activation is strength * z^2, z standard normal and above 0."),
    TSR_OPTION_INT(S, seed, 0, 0, INT64_MAX, NULL, "Seed of their directions."),
};
#undef S

static tsr_status run(struct tsr_cli *c, const void *opts, char **args, int n_args,
                      struct tsr_err *err)
{
    const struct add_outliers_options *o = opts;
    struct tsr_checkpoint_outliers     how = { .triples = (uint64_t)o->triples,
                                               .strength = o->strength,
                                               .seed = (uint64_t)o->seed };
    char                              *folder = NULL;
    (void)n_args;
    if (tsr_path_exists(o->output))
        return tsr_fail(err, TSR_E_INPUT, "%s: exists already; choose another folder", o->output);
    TSR_TRY(tsr_model_resolve(args[0], &folder, err));
    tsr_status st = tsr_checkpoint_add_outliers(folder, o->output, &how, err);
    free(folder);
    if (st == TSR_OK && c->json)
        st = tsr_cli_print_json(json_pack("{s:s, s:I}", "output", o->output, "triples",
                                          (json_int_t)o->triples),
                                err);
    return st;
}

const struct tsr_verb tsr_verb_add_outliers = {
    .name = "add-outliers",
    .summary = "adds neurons to a model that are outliers for a few tokens and cancel each other",
    .args = "MODEL",
    .min_args = 1,
    .max_args = 1,
    .details =
        "For measuring how outliers are found: every feed-forward gets triples of neurons that "
        "are large for the tokens along a random direction, and whose contributions add up to "
        "zero as long as nothing is rounded.  MODEL is a Hugging Face folder of a family with "
        "gate_proj, up_proj and down_proj, or @demo.",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .options_size = sizeof(struct add_outliers_options),
    .run = run,
};
