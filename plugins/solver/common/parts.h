/* parts.h - the optional parts of an instance that older hosts do not have: what kinds, links and options add to omega, codecs of links,
 * ends of an option, and the limit on prefill (docs/formats/instance.md, revision 2).  Pools are not among them. */
#ifndef TSR_SOLVER_COMMON_PARTS_H
#define TSR_SOLVER_COMMON_PARTS_H

#include "plan.h"

/* Codecs of which each link has one, at least 1. */
uint64_t plan_links(const struct tsr_solver_instance *in);
/* What layer l adds to omega on kind k, and codec v on the link after layer l. */
double plan_kind_omega(const struct tsr_solver_instance *in, uint64_t k, uint64_t l);
double plan_link_omega(const struct tsr_solver_instance *in, uint64_t v, uint64_t l);
bool   plan_has_link_omega(const struct tsr_solver_instance *in);
/* What the option adds to omega; memory of the ends under it. */
double   plan_option_omega(const struct tsr_solver_option *o);
uint64_t plan_embed_bytes(const struct tsr_solver_instance *in, const struct tsr_solver_option *o);
uint64_t plan_head_bytes(const struct tsr_solver_instance *in, const struct tsr_solver_option *o);
/* max_first_ms with the validator's tolerance; INFINITY without a limit. */
double plan_first_limit(const struct tsr_solver_instance *in);
/* Time of codec v from a stage of kind k to one of kind j. */
double plan_link_ms(const struct tsr_solver_instance *in, const struct tsr_solver_option *o,
                    uint64_t v, uint64_t k, uint64_t j, bool dec);
/* Whether the instance has any of these parts. */
bool plan_parts_any(const struct tsr_solver_instance *in);

#endif
