#include "plugin/internal.h"

#include "tessera/backend.h"
#include "tessera/codec.h"
#include "tessera/kv.h"
#include "tessera/quantizer.h"
#include "tessera/sampler.h"
#include "tessera/solver.h"
#include "tessera/step.h"
#include "tessera/transport.h"

#include <string.h>

#define Q(m)                                                                                       \
    {                                                                                              \
        offsetof(struct tsr_quantizer_v1, m), #m                                                   \
    }
#define C(m)                                                                                       \
    {                                                                                              \
        offsetof(struct tsr_codec_v1, m), #m                                                       \
    }
#define T(m)                                                                                       \
    {                                                                                              \
        offsetof(struct tsr_transport_v1, m), #m                                                   \
    }
#define S(m)                                                                                       \
    {                                                                                              \
        offsetof(struct tsr_solver_v1, m), #m                                                      \
    }
#define B(m)                                                                                       \
    {                                                                                              \
        offsetof(struct tsr_backend_v1, m), #m                                                     \
    }
#define P(m)                                                                                       \
    {                                                                                              \
        offsetof(struct tsr_sampler_v1, m), #m                                                     \
    }
#define E(m)                                                                                       \
    {                                                                                              \
        offsetof(struct tsr_step_v1, m), #m                                                        \
    }

#define K(m)                                                                                       \
    {                                                                                              \
        offsetof(struct tsr_kv_v1, m), #m                                                          \
    }

static const struct tsr_plugin_slot quantizer_slots[] = { Q(create), Q(destroy), Q(plan),
                                                          Q(quantize), Q(dequantize) };
static const struct tsr_plugin_slot codec_slots[] = { C(create),     C(destroy), C(exactness),
                                                      C(wire_bytes), C(encode),  C(decode),
                                                      C(decode_add) };
static const struct tsr_plugin_slot transport_slots[] = { T(world_bytes), T(create), T(destroy),
                                                          T(send),        T(recv),   T(all_gather),
                                                          T(all_to_all),  T(test),   T(wait),
                                                          T(abort) };
static const struct tsr_plugin_slot solver_slots[] = { S(create), S(destroy), S(solve) };
static const struct tsr_plugin_slot backend_slots[] = {
    B(create),   B(destroy),     B(properties),  B(buffer_alloc), B(buffer_free), B(upload),
    B(download), B(weight_load), B(weight_free), B(weight_bytes), B(run),         B(sync)
};
static const struct tsr_plugin_slot sampler_slots[] = { P(create), P(destroy), P(sizes),
                                                        P(start),  P(sample),  P(accept) };
static const struct tsr_plugin_slot kv_slots[] = { K(create), K(destroy), K(layout), K(encode),
                                                   K(decode) };
static const struct tsr_plugin_slot step_slots[] = { E(create), E(destroy), E(run) };

/* The last required slot of each list is also the last one in its table. */
#define KIND(kind, word, type, slots)                                                              \
    {                                                                                              \
        kind, word, sizeof(type), slots, sizeof(slots) / sizeof((slots)[0])                        \
    }

static const struct tsr_plugin_kind kinds[] = {
    KIND(TSR_KIND_QUANTIZER, "quantizer", struct tsr_quantizer_v1, quantizer_slots),
    KIND(TSR_KIND_CODEC, "codec", struct tsr_codec_v1, codec_slots),
    KIND(TSR_KIND_TRANSPORT, "transport", struct tsr_transport_v1, transport_slots),
    KIND(TSR_KIND_SOLVER, "solver", struct tsr_solver_v1, solver_slots),
    KIND(TSR_KIND_BACKEND, "backend", struct tsr_backend_v1, backend_slots),
    KIND(TSR_KIND_SAMPLER, "sampler", struct tsr_sampler_v1, sampler_slots),
    KIND(TSR_KIND_KV, "kv", struct tsr_kv_v1, kv_slots),
    KIND(TSR_KIND_STEP, "step", struct tsr_step_v1, step_slots),
};

const struct tsr_plugin_kind *tsr_plugin_kind_find(const char *id)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].id, id) == 0)
            return &kinds[i];
    return NULL;
}
