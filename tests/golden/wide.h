/* wide.h - models of every family, wide enough for four ranks to share a layer, of random weights. */
#ifndef TSR_TEST_WIDE_H
#define TSR_TEST_WIDE_H

#include "engine/engine.h"

#define WIDE_LAYERS 3u

extern const char *const wide_names[]; /* NULL behind the last */
/* Not among them, for their linears: latent attention. */
extern const char *const wide_latent_names[];
/* Not among them, for one sum more: queries and keys are normed over all heads. */
extern const char *const wide_norm_names[];
/* Not among them, for their linears: the gated delta rule, and gated attention between. */
extern const char *const wide_delta_names[];
/* Not among them, since a sum over ranks of experts is rounded otherwise than that of one, unless experts are whole: layers 0 and 2 have six
 * experts, of which a token takes two; layer 1 has a feed-forward. */
#define WIDE_EXPERTS "experts"
/* The same with latent attention and a shared expert in two layers. */
#define WIDE_SHARED_EXPERT "shared-expert"
/* Not among them, for its size: one layer of Llama where o and down have 5120 input channels, so that each of four
 * ranks has more than 1024 of them, and 40 outputs. */
#define WIDE_INPUTS "wide"

/* Writes the model into folder, which exists.  Fails the running test on any error. */
void wide_write(const char *name, const char *folder);
/* The same in a folder of its own, which `folder` names afterwards, loaded; streamed as
 * tsr_model_load_streamed() does.  wide_free() takes both away. */
struct tsr_model *wide_load(const char *name, bool streamed, char folder[64]);
void              wide_free(struct tsr_model *m, const char *folder);

/* Packs every decoder linear as a scheme in YAML says. */
struct tsr_model_overlay *wide_pack(struct tsr_registry *r, const struct tsr_model *m,
                                    const char *scheme);

#endif
