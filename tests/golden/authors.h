/* authors.h - the plans that the authors of LLM-PQ published (tests/golden/planner/authors). */
#ifndef TSR_TEST_AUTHORS_H
#define TSR_TEST_AUTHORS_H

#include <stdbool.h>
#include <stdint.h>

#define AUTHORS_STAGES 8u
#define AUTHORS_LAYERS 128u

/* Bits are indices into {3, 4, 8, 16}. */
#define AUTHORS_BITS 4u

struct authors_plan {
    char     id[16], method[16], model[16];
    uint32_t cluster;
    char     device[AUTHORS_STAGES][12]; /* a stage each */
    uint64_t batch, prompt, tokens, prefill_mb, decode_mb;
    uint64_t stages, count[AUTHORS_STAGES]; /* layers of each */
    uint64_t layers;
    uint32_t bits[AUTHORS_LAYERS];
    uint64_t used_mib[AUTHORS_STAGES];   /* weights and KV, whole MiB for each layer */
    double   budget_mib[AUTHORS_STAGES]; /* what the authors' code leaves for that */
    bool     fits;
};

/* All of them, freed by the caller; fails the test where the file is not as it should be. */
struct authors_plan *authors_load(uint64_t *n);

#endif
