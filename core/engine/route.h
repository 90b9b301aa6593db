/* engine/route.h - which experts a token takes, and with what weights, from its router's scores. */
#ifndef TSR_ENGINE_ROUTE_H
#define TSR_ENGINE_ROUTE_H

#include "model/model.h"

/* scores [hp.experts] of one token; chosen and weight [hp.experts_used], in rising order of the expert.  correction
 * [hp.experts]: added in the choice of routers SOFTMAX and SIGMOID; NULL: none.  Equal scores: the lower expert or group first.
 * NaN among the scores gives weights of NaN.  The arithmetic is float with fixed order and its own exp(), so that every
 * machine chooses alike.  scratch: [hp.experts + hp.router_groups].  [any] */
void tsr_engine_route(const struct tsr_model_hparams *hp, const float *scores,
                      const float *correction, uint32_t *chosen, float *weight, float *scratch);
/* That exp(), for x <= 0; NaN for NaN.  [any] */
float tsr_engine_exp_below_0(float x);
/* 1 / (1 + e^-x) with the same exp().  [any] */
float tsr_engine_sigmoid(float x);

/* In place of that for measurements: the n-th token takes experts that are spread over all of them, over many tokens each
 * with the same chance, and with equal weights.  [any] */
void tsr_engine_route_spread(const struct tsr_model_hparams *hp, uint64_t n, uint32_t *chosen,
                             float *weight);

#endif
