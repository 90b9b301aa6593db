/* conformance/helpers.h - helpers shared by the rules of codecs, transports, solvers and backends. */
#ifndef TSR_CONFORMANCE_HELPERS_H
#define TSR_CONFORMANCE_HELPERS_H

#include "conformance/rule.h"

/* Fails the rule unless st is TSR_OK: "WHAT: TSR_E_NOMEM, SENTENCE". */
void tsr_conformance_rule_ok(struct tsr_conformance_case *c, tsr_status st,
                             const struct tsr_errbuf *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Fails the rule unless st is `want` and has a message. */
void tsr_conformance_rule_refused(struct tsr_conformance_case *c, tsr_status st, tsr_status want,
                                  const struct tsr_errbuf *e, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* n normally distributed numbers of the rule's seed; each stream has its own. */
void tsr_conformance_rule_normal(const struct tsr_conformance_case *c, uint64_t stream, float *x,
                                 uint64_t n);
/* A number below n of the rule's seed. */
uint64_t tsr_conformance_rule_below(const struct tsr_conformance_case *c, uint64_t stream,
                                    uint64_t index, uint64_t n);

/* CPU seconds that this thread has used: a loaded machine does not add to them. */
double tsr_conformance_rule_cpu_s(void);

/* Zeroed memory that a plugin writes, with room around it: an overrun is another rule's. */
void *tsr_conformance_rule_room(uint64_t bytes);

/* First i with a[i] != b[i], or n. */
uint64_t tsr_conformance_rule_differ(const void *a, const void *b, uint64_t n);

#endif
