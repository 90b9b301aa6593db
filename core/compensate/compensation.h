/* compensate/compensation.h - the residuals of a packed model and what calibration says of its inputs: format
 * tessera.compensation/1, docs/formats/compensation.md.
 *
 *   compensation.safetensors   in the folder of a packed model, mapped; a part of a prepacked file
 *   compensation.json          its hash and that of the packed model; last to be there
 */
#ifndef TSR_COMPENSATE_COMPENSATION_H
#define TSR_COMPENSATE_COMPENSATION_H

#include "base/hash.h"
#include "base/map.h"
#include "checkpoint/packed/packed_model.h"
#include "checkpoint/safetensors/safetensors.h"
#include "compensate/residual.h"
#include "tessera/draft/compensate.h"

#define TSR_COMPENSATION_FORMAT "tessera.compensation/1"
#define TSR_COMPENSATION_FILE   "compensation.safetensors"
#define TSR_COMPENSATION_INDEX  TSR_PACKED_RESIDUALS

/* Inputs of a site over the calibration, as its linears get them; [cols] each. */
struct tsr_compensate_site_profile {
    uint64_t     cols;
    const float *top;    /* largest |x| at each rank, descending (select.h) */
    const float *meansq; /* mean x^2 */
    const float
        *lost; /* mean x^2 times the energy of the quantization error of the site's linears in this
                * channel */
};

struct tsr_compensation {
    struct tsr_map         map; /* of the folder's file */
    struct tsr_safetensors st;
    char                  *path;
    char     hash[TSR_HASH_TEXT];    /* of the residuals' bytes; "": parse() was called alone */
    uint64_t layers, linears, sites; /* linears and sites of a layer, as in hparams */
    uint32_t bits;
    uint64_t bytes; /* of residuals in host memory */
    struct tsr_compensate_residual *
        *lin; /* [layers][hparams.linears]; codes NULL: the linear has none */
    struct tsr_compensate_site_profile *
        *site; /* [layers][hparams.sites]; top NULL: no linear of the site has */
};

/* Rows for the linears and sites of a model like m.  [setup] */
tsr_status tsr_compensation_new_layers(struct tsr_compensation *c, const struct tsr_model *m,
                                       struct tsr_err *err);

/* The linears that share the input of a site and can be compensated, in the order of their rows and outputs, absent ones
 * included; n is 0 where the layer does not have the site.  Routers keep their error. */
struct tsr_compensation_linears {
    uint32_t           n;
    enum tsr_linear_id id[TSR_COMPENSATE_LINEARS];
};
struct tsr_compensation_linears tsr_compensation_linears(const struct tsr_model *m, uint64_t layer,
                                                         enum tsr_site site);
/* The kind of input whose number of channels a site has, below TSR_MODEL_SITES: those of latent attention's rows have
 * that of attn_in, those of experts that of their layer. */
enum tsr_site tsr_compensation_kind(enum tsr_site site);
/* The number of them that the layer has, and the bytes of one joined row of their residuals.  Several linears
 * share one tensor of joined rows if all of them are packed. */
uint32_t tsr_compensation_row(const struct tsr_model *m, uint64_t layer, enum tsr_site site,
                              uint32_t bits, uint64_t *bytes);

/* The residuals that belong to a loaded model: of its folder, or of its prepacked file.  A model without
 * is TSR_E_INPUT with what to do.  m is only read here.  [setup] */
tsr_status tsr_compensation_of_model(struct tsr_compensation **c, const struct tsr_model *m,
                                     struct tsr_err *err);
/* Of the packed model in `folder`; m is any model with the same shapes and names. */
tsr_status tsr_compensation_open(struct tsr_compensation **c, const char *folder,
                                 const struct tsr_model *m, struct tsr_err *err);
/* Over bytes that stay the caller's and are aligned to 64; also for the fuzzer.  packed: the hash that the
 * file must name, or NULL. */
tsr_status tsr_compensation_parse(struct tsr_compensation *c, const char *path,
                                  const unsigned char *data, uint64_t bytes, const char *packed,
                                  const struct tsr_model *m, struct tsr_err *err);
/* Their head alone. */
tsr_status tsr_compensation_parse_bits(const char *path, const unsigned char *data, uint64_t bytes,
                                       uint32_t *bits, struct tsr_err *err);
void       tsr_compensation_close(struct tsr_compensation *c); /* of parse(): frees all but c */
void       tsr_compensation_destroy(struct tsr_compensation *c);
/* Call before results are written: the mapped file is the one whose hash was checked. TSR_E_INPUT
   where it changed. A prepacked model's own file is its model's to check. */
tsr_status tsr_compensation_unchanged(const struct tsr_compensation *c, struct tsr_err *err);
/* Bits of the residuals of a packed model's folder or prepacked file, from its headers alone; 0: it has none. */
tsr_status tsr_compensation_bits(const char *path, uint32_t *bits, struct tsr_err *err);
/* True if the folder contains residuals. */
bool tsr_compensation_there(const char *folder);

/* TSR_E_INVAL: a number of the profile of a layer's site, which is there, is negative or not finite.  Files are checked
 * where they are read; this is for every other source.  [any] */
tsr_status tsr_compensate_profile_check(const struct tsr_compensate_site_profile *p, uint64_t layer,
                                        const char *site, struct tsr_err *err);

/* Sums for a site's profile.  [setup] */
struct tsr_compensate_profile_sums {
    uint64_t  cols, rows;
    float    *top;    /* [cols] */
    double   *square; /* [cols] */
    uint32_t *scratch;
    uint64_t  room; /* rows of scratch */
};
tsr_status tsr_compensate_profile_create(struct tsr_compensate_profile_sums *s, uint64_t cols,
                                         struct tsr_err *err);
/* n rows, each element divided by scale[] (NULL: 1); which thread does what changes nothing. */
tsr_status tsr_compensate_profile_add(struct tsr_compensate_profile_sums *s, struct tsr_pool *pool,
                                      const float *x, uint64_t n, const float *scale,
                                      struct tsr_err *err);
void       tsr_compensate_profile_free(struct tsr_compensate_profile_sums *s);

#endif
