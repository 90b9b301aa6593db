/* tessera/step.h - step: a part of a job's pipeline.  The component kind is "tessera.step/1", and the name of the component is
 * the name of the step in a job.
 *
 * The plugin implements struct tsr_step_v1 and declares as data what the step needs and what it produces.  The host implements
 * struct tsr_step_job: functions that read the results of earlier steps, the model and files, run the model, and take the
 * products and the step's section of the report.
 *
 *   a job is checked:  create -> check -> destroy
 *   a job runs:        create -> run -> destroy
 *
 * The functions of a job are valid inside the call of check() or run() that got it, on the thread of that call.  A failure of one
 * of them comes back from run() as it is.  Memory that they return belongs to the host and is valid until the call ends.
 *
 * Example: run() of a step that needs "eval" and has the product "loss", nats for each token.
 *
 *     #include <math.h>
 *     #include <string.h>
 *     static tsr_status run(void *self, const struct tsr_step_job *j, struct tsr_err *err)
 *     {
 *         struct tsr_step_value v;
 *         (void)self;
 *         memset(&v, 0, sizeof v);
 *         v.struct_size = sizeof v;
 *         tsr_status st = j->input(j->ctx, "eval", &v, err);
 *         if (st != TSR_OK)
 *             return st;
 *         j->member(j->ctx, &v, "perplexity", &v);
 *         return j->number(j->ctx, "loss", log(v.number), err);
 *     }
 */
#ifndef TSR_STEP_H
#define TSR_STEP_H

#include "tessera/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_KIND_STEP "tessera.step/1"

/* Bits of tsr_step_v1.needs. */
#define TSR_STEP_MODEL     (UINT64_C(1) << 0) /* model(), matrix(), rows(), logits()       */
#define TSR_STEP_TOKENIZER (UINT64_C(1) << 1) /* tokens(), evaluate(); with TSR_STEP_MODEL */

/* ---- values ------------------------------------------------------------------------------- */

/* tsr_step_value.type */
#define TSR_STEP_ABSENT 0u /* nothing is there */
#define TSR_STEP_NULL   1u
#define TSR_STEP_BOOL   2u
#define TSR_STEP_NUMBER 3u
#define TSR_STEP_TEXT   4u
#define TSR_STEP_LIST   5u
#define TSR_STEP_MAP    6u

/* A value of a tree: of a result, of the model's configuration, or of the step's options.  The caller zeroes the struct and sets
 * struct_size, once for all uses. */
struct tsr_step_value {
    uint32_t    struct_size;
    uint32_t    type;   /* TSR_STEP_*                                                      */
    double      number; /* NUMBER; BOOL: 0 or 1                                            */
    const char *text;   /* TEXT; in the options also NUMBER and BOOL, as the user wrote it */
    const char *key;    /* of a map's item(), else NULL                                    */
    uint64_t    n;      /* items of LIST, members of MAP, bytes of TEXT                    */
    const void *node;   /* the host's                                                      */
    uint64_t    tree;   /* the host's                                                      */
};

/* ---- the model ---------------------------------------------------------------------------- */

struct tsr_step_model {
    uint32_t    struct_size;
    uint32_t    reserved;
    const char *family; /* "llama"                                       */
    const char *hash;   /* of its configuration and weights              */
    uint64_t    layers, hidden, vocab, heads, kv_heads, head_dim;
    uint64_t    positions;  /* that it was trained for                   */
    uint64_t    parameters; /* as stored                                 */
    uint64_t
        matrices; /* linears of all layers, the embedding, and the head if it is another matrix */
};

struct tsr_step_matrix {
    uint32_t    struct_size;
    uint32_t    dtype;      /* of the original, TSR_F32, ... of tessera/dtype.h            */
    const char *name;       /* "model.layers.3.mlp.down_proj"                              */
    const char *format;     /* of the packed weights that an earlier step made; NULL: none */
    uint64_t    layer;      /* UINT64_MAX: of no layer                                     */
    uint64_t    rows, cols; /* outputs, inputs                                             */
};

/* tsr_step_job.rows(): which weights. */
#define TSR_STEP_ORIGINAL 0u
#define TSR_STEP_PACKED   1u /* as earlier steps left them; the original ones where none are packed */

/* A text through the model, as the step `eval` measures it, in F32 and without error compensation. */
struct tsr_step_evaluation {
    uint32_t    struct_size;
    uint32_t    kl;          /* 1: also KL and top-1 agreement with the original weights      */
    const char *text;        /* a file, relative to the job's                                 */
    const char *protocol;    /* "gptq-2048", "llamacpp-512", "lm-eval-wikitext"               */
    uint64_t    window;      /* tokens; 0: the protocol's, at most the model's                */
    uint64_t    max_windows; /* 0: all                                                        */
    /* out; NaN: not measured */
    double   perplexity;
    double   mean_nll; /* nats for each scored token                                          */
    double   kl_mean;  /* nats                                                                */
    double   top1;     /* share of positions with the original's first choice, 0 to 1         */
    uint64_t tokens, scored;
};

/* ---- the host's functions ------------------------------------------------------------------ */

struct tsr_step_job {
    uint32_t struct_size;
    uint32_t reserved;
    void    *ctx; /* the first argument of each function */

    /* The root of a tree: "options", the step's keys as the user wrote them; "config", the model's config.json, with
     * TSR_STEP_MODEL; or an entry of tsr_step_v1.inputs.  In check() only "options".
     * TSR_E_INVAL: the table does not declare it. */
    tsr_status (*input)(void *ctx, const char *name, struct tsr_step_value *v, struct tsr_err *err);
    /* The member of a map, the i-th item of a list or member of a map.  ABSENT where there is none, also if `of` is another type.
     * v may be `of`. */
    void (*member)(void *ctx, const struct tsr_step_value *of, const char *key,
                   struct tsr_step_value *v);
    void (*item)(void *ctx, const struct tsr_step_value *of, uint64_t i, struct tsr_step_value *v);
    /* An error at the place of a value of "options" (NULL: of the step) in the user's file, in one sentence.  The job does not run.
     * Only in check(); run() returns TSR_E_CONFIG instead. */
    void (*problem)(void *ctx, const struct tsr_step_value *at, const char *sentence);

    /* A whole file that the user names, relative to the job's file.  The job's manifest lists it with its hash. */
    tsr_status (*read)(void *ctx, const char *path, const void **data, uint64_t *bytes,
                       struct tsr_err *err);
    /* A file that an earlier step produced: an entry "step/product" of tsr_step_v1.inputs. */
    tsr_status (*file)(void *ctx, const char *input, const void **data, uint64_t *bytes,
                       struct tsr_err *err);

    /* A product of the form TSR_STEP_JSON, once: JSON of at most 64 MiB and a depth of 64, or a finite number.
     * TSR_E_INVAL: not declared, given twice, no JSON, not finite. */
    tsr_status (*put)(void *ctx, const char *product, const char *json, uint64_t bytes,
                      struct tsr_err *err);
    tsr_status (*number)(void *ctx, const char *product, double value, struct tsr_err *err);
    /* A product of the form TSR_STEP_FILE, once: written whole to a file in the job's folder.  The name is relative and does not
     * lead out of the folder. */
    tsr_status (*write)(void *ctx, const char *product, const char *name, const void *data,
                        uint64_t bytes, struct tsr_err *err);

    /* The step's section in the report and on the terminal, in the order of the calls: a paragraph; a figure with its unit (NULL:
     * none), finite; a table with the names of its columns, and a row of the last table.  Texts are UTF-8. */
    tsr_status (*text)(void *ctx, const char *paragraph, struct tsr_err *err);
    tsr_status (*figure)(void *ctx, const char *name, double value, const char *unit,
                         struct tsr_err *err);
    tsr_status (*table)(void *ctx, const char *const *columns, uint64_t n, struct tsr_err *err);
    tsr_status (*row)(void *ctx, const char *const *cells, uint64_t n, struct tsr_err *err);

    /* With TSR_STEP_MODEL.  rows() writes n decoded rows from `first` on, F32 [n, cols]; packed weights of a scheme that scales
     * columns (AWQ) are the scaled ones.  logits() writes F32 [n, vocab], the logits after each of n tokens of one sequence. */
    tsr_status (*model)(void *ctx, struct tsr_step_model *m, struct tsr_err *err);
    tsr_status (*matrix)(void *ctx, uint64_t i, struct tsr_step_matrix *m, struct tsr_err *err);
    tsr_status (*rows)(void *ctx, uint64_t i, uint32_t which, uint64_t first, uint64_t n,
                       float *out, struct tsr_err *err);
    tsr_status (*logits)(void *ctx, const uint32_t *tokens, uint64_t n, float *out,
                         struct tsr_err *err);
    /* With TSR_STEP_TOKENIZER.  The tokens of a text, with BOS where the model has one. */
    tsr_status (*tokens)(void *ctx, const char *text, uint64_t bytes, const uint32_t **ids,
                         uint64_t *n, struct tsr_err *err);
    tsr_status (*evaluate)(void *ctx, struct tsr_step_evaluation *e, struct tsr_err *err);
};

/* ---- the plugin's table -------------------------------------------------------------------- */

/* tsr_step_product.form */
#define TSR_STEP_JSON 1u /* a member of the step's result */
#define TSR_STEP_FILE 2u /* a file in the job's folder    */

struct tsr_step_product {
    uint32_t    struct_size;
    uint32_t    form; /* TSR_STEP_JSON, TSR_STEP_FILE                            */
    const char *name; /* [a-z][a-z0-9_]*, not "section" or "files"; unique       */
    const char *help; /* one sentence                                            */
};

struct tsr_step_v1 {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t needs; /* TSR_STEP_MODEL, TSR_STEP_TOKENIZER */
    /* Results of earlier steps: "compare", the newest one of that name, or one product of it, "compare/arms".  The host refuses a
     * job in which no earlier step makes one. */
    const char *const *inputs;
    uint64_t           n_inputs;
    /* What run() gives, each once, before it returns TSR_OK. */
    const struct tsr_step_product *const *products;
    uint64_t                              n_products;

    /* opts: the option struct of the component, already checked.  A string option with the flag TSR_OPT_JSON holds JSON, or "" if
     * the user left it out.  destroy() accepts NULL.
     * Returns TSR_OK, TSR_E_CONFIG, TSR_E_NOMEM, TSR_E_UNSUPPORTED.  [setup] */
    tsr_status (*create)(const struct tsr_host *host, const void *opts, void **self,
                         struct tsr_err *err);
    void (*destroy)(void *self);

    /* The step itself.  Its products are a function of its inputs, its options and the model: equal each time.
     * Returns TSR_OK, TSR_E_CONFIG, TSR_E_UNSUPPORTED, TSR_E_NUMERIC, TSR_E_NOMEM, TSR_E_CANCELLED, or what a function of the job
     * returned.  [setup] */
    tsr_status (*run)(void *self, const struct tsr_step_job *job, struct tsr_err *err);

    /* May be NULL.  Reports what is wrong with the options by problem(), all of it.  [setup] */
    tsr_status (*check)(const void *self, const struct tsr_step_job *job, struct tsr_err *err);

    /* The optional table with this id, or NULL.  The function may be NULL too.  [any] */
    const void *(*extension)(const void *self, const char *id);
};

#ifdef __cplusplus
}
#endif
#endif
