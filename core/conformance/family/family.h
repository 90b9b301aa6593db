/* conformance/family/family.h - the rules for family files, by file; rules.c has their words. */
#ifndef TSR_CONFORMANCE_FAMILY_FAMILY_H
#define TSR_CONFORMANCE_FAMILY_FAMILY_H

#include "conformance/text.h"
#include "model/family.h"

#define TSR_FAMILY_GOLDEN "tessera.family-golden/1"

struct tsr_family_golden {
    struct tsr_conformance_golden g;
    char                         *model; /* folder or file of the model */
    double tolerance; /* largest difference of a logit, in parts of the range of all */
};
/* tokens: [n] ids, owned by the caller; logits: an array of n rows of equal length, borrowed. */
struct tsr_family_case {
    uint32_t     *tokens;
    uint64_t      n, vocab;
    const json_t *logits;
};

/* golden.c.  TSR_E_INPUT is one sentence for the author. */
tsr_status tsr_family_golden_read(struct tsr_family_golden *g, const char *path,
                                  struct tsr_err *err);
/* The same; a golden that family-golden refuses skips the rule. */
void tsr_family_golden_need(struct tsr_conformance_case *c, struct tsr_family_golden *g);
/* The i-th case of a golden that was read; ends the process where memory runs out. */
void tsr_family_golden_case(struct tsr_conformance_case *c, const struct tsr_family_golden *g,
                            size_t i, struct tsr_family_case *out);

/* file.c: the file as a family, which wins over all others in this process. */
const struct tsr_model_family *tsr_family_under_check(struct tsr_conformance_case *c);

/* model.c.  The golden's model, bound by this family; without one the rule is skipped. */
struct tsr_model *tsr_family_golden_model(struct tsr_conformance_case *c, bool headers_only);
void              tsr_family_rule_binds(struct tsr_conformance_case *c);
void              tsr_family_rule_window(struct tsr_conformance_case *c);
void              tsr_family_rule_logits(struct tsr_conformance_case *c);
/* vectors.c */
void tsr_family_rule_vectors(struct tsr_conformance_case *c);

#endif
