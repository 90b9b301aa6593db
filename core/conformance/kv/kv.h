/* conformance/kv/kv.h - what the files of the rules for KV-cache codecs share. */
#ifndef TSR_CONFORMANCE_KV_H
#define TSR_CONFORMANCE_KV_H

#include "conformance/guard.h"
#include "conformance/helpers.h"
#include "conformance/rule.h"
#include "tessera/kv.h"

#define TSR_KV_UNITS 3u /* of a trial */

/* Units of one side and head dimension. */
struct tsr_kv_trial {
    const struct tsr_kv_v1 *t;
    void                   *self;
    uint32_t                side;
    uint64_t                dim;
    struct tsr_kv_layout    l;
    uint64_t                each;     /* elements of a unit */
    uint64_t                bytes;    /* of all units */
    float                  *x, *back; /* [TSR_KV_UNITS * each], roomy */
    unsigned char          *units;    /* [bytes], roomy */
};

/* An instance; the rule fails if it cannot be made. */
void *tsr_kv_made(struct tsr_conformance_case *c);
/* Calls each(c, trial) for both sides and some head dimensions, those that the codec takes, with normal elements in x. */
void tsr_kv_each(struct tsr_conformance_case *c, void *self,
                 void (*each)(struct tsr_conformance_case *c, struct tsr_kv_trial *k));
/* The layout that a side and head dimension have; false: TSR_E_UNSUPPORTED with a sentence. */
bool tsr_kv_layout_of(struct tsr_conformance_case *c, void *self, uint32_t side, uint64_t dim,
                      struct tsr_kv_layout *l);
/* The call must succeed. */
void tsr_kv_encode(struct tsr_conformance_case *c, const struct tsr_kv_trial *k, uint64_t n,
                   const float *x, void *units);
void tsr_kv_decode(struct tsr_conformance_case *c, const struct tsr_kv_trial *k, uint64_t n,
                   const void *units, float *x);
/* "keys of 80 elements" in a buffer that the next call overwrites. */
const char *tsr_kv_text(const struct tsr_kv_trial *k);

void tsr_kv_rule_layout(struct tsr_conformance_case *c);
void tsr_kv_rule_encode_writes(struct tsr_conformance_case *c);
void tsr_kv_rule_decode_writes(struct tsr_conformance_case *c);
void tsr_kv_rule_every_byte(struct tsr_conformance_case *c);
void tsr_kv_rule_repeats(struct tsr_conformance_case *c);
void tsr_kv_rule_alone(struct tsr_conformance_case *c);
void tsr_kv_rule_error(struct tsr_conformance_case *c);
void tsr_kv_rule_type(struct tsr_conformance_case *c);
void tsr_kv_rule_not_finite(struct tsr_conformance_case *c);
void tsr_kv_rule_damaged(struct tsr_conformance_case *c);
void tsr_kv_rule_threads(struct tsr_conformance_case *c);
void tsr_kv_rule_score(struct tsr_conformance_case *c);
void tsr_kv_rule_mix(struct tsr_conformance_case *c);

#endif
