/* cli/eval.h - one call of `tessera eval`: its options, what it made and what it found. */
#ifndef TSR_CLI_EVAL_H
#define TSR_CLI_EVAL_H

#include "cli/cli.h"
#include "eval/choices.h"
#include "eval/kld.h"
#include "eval/paired.h"
#include "pipeline/codecs.h"
#include "pipeline/compare.h"
#include "pipeline/compensating.h"
#include "plan/plan_file.h"

#define EVAL_ALPHA 0.05

struct eval_options {
    struct tsr_eval_keys eval;
    const char          *against, *backend, *choices, *save_kld, *codec, *codec_state;
    int64_t              act, kv, chunk, numerics, simulate_tp, algorithm, gpu_layers;

    struct tsr_compensate_keys compensation;
};

/* Everything of one call; what is NULL was not made. */
struct eval_call {
    const struct eval_options *o;
    const char                *path;
    struct tsr_registry       *registry;
    struct tsr_model          *model, *reference;
    struct tsr_tokenizer      *tokenizer, *reference_tokenizer;
    struct tsr_windows        *windows;
    struct tsr_engine         *engine, *reference_engine;
    struct tsr_compensating    compensating; /* of the model, not of the reference */
    struct tsr_kld            *base;
    struct tsr_choices        *choices;
    struct tsr_codec_file     *codec_file;
    struct tsr_tp             *tp; /* simulated ranks of the model, not of the reference */
    struct tsr_choice_marks    marks, reference_marks;
    struct tsr_eval_result     result;
    struct tsr_paired          paired; /* with a reference */
};

/* How the engines of the model and of the reference run; the same figures are printed next to the results.
 * context: positions. */
struct tsr_engine_options eval_engine_options(const struct eval_call *c, uint64_t context);
struct tsr_engine_options eval_reference_options(const struct eval_call *c, uint64_t context);

/* Results of a call that succeeded, to stdout. */
tsr_status eval_print_json(const struct eval_call *c, struct tsr_err *err);
tsr_status eval_print_text(const struct eval_call *c, struct tsr_err *err);

#endif
