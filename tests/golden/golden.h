/* golden.h - recorded cases of tests/golden/models and what tests of the engine share. */
#ifndef TSR_TEST_GOLDEN_H
#define TSR_TEST_GOLDEN_H

#include "engine/engine.h"

struct golden_case {
    char     *name;
    uint32_t *prompt, *greedy;
    uint64_t  n_prompt, n_greedy;
    bool      whole_prompt_only;
    float    *logits; /* [n_prompt, vocab], recorded */
    double    range;  /* max - min of them */
};
struct golden {
    struct tsr_model   *model;
    struct golden_case *cases;
    uint64_t            n;
};

extern const char *const golden_names[]; /* NULL behind the last */
/* Families whose parts are those of the others in another choice: for the test of logits alone. */
extern const char *const golden_more_names[];

/* Fail the running test on any error. */
void golden_load(struct golden *g, const char *name);
void golden_free(struct golden *g);

/* A KV cache of a plugin's codec, for kv_dtype. */
uint32_t golden_codec(const char *text);

/* A registry over this build's plugins, and the plugin file `extra` if not NULL, on a pool of
 * `threads`. */
struct tsr_registry *golden_registry(unsigned threads, const char *extra, struct tsr_pool **pool);
void                 golden_registry_close(struct tsr_registry *r, struct tsr_pool *pool);

struct tsr_engine *golden_engine(struct tsr_registry *r, const struct tsr_model *m,
                                 const struct tsr_model_overlay *o, struct tsr_engine_options opt);

/* Logits of all tokens as one sequence in slot 0, in one call or one call per token. */
float *golden_forward(struct tsr_engine *e, const uint32_t *ids, uint64_t n, bool step);

/* Fails unless every logit lies within tolerance * range of the recorded one. */
void golden_compare(const char *what, const struct golden_case *c, const float *logits,
                    uint64_t vocab, double tolerance);

/* Runs all cases greedily through the engine's slots and compares the tokens. */
void golden_generate(const char *what, struct tsr_engine *e, const struct golden *g);

#endif
