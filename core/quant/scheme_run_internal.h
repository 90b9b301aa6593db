/* quant/scheme_run_internal.h - applying a scheme: scheme_rules.c finds the quantizer of a linear, scheme_site.c
 * quantizes those of a site, scheme_fold.c runs the searches over a layer, scheme_tune.c lets quantizers pack it
 * whole, scheme_run.c quantizes it. */
#ifndef TSR_QUANT_SCHEME_RUN_INTERNAL_H
#define TSR_QUANT_SCHEME_RUN_INTERNAL_H

#include "quant/block.h"
#include "quant/remarks.h"
#include "quant/scheme_internal.h"
#include "quant/scheme_run.h"
#include "quant/tune.h"

#include <pthread.h>

#define TSR_QUANT_HEAD_NAME "lm_head"

/* A plugin with one set of options, alive while the scheme runs. */
struct tsr_quant_scheme_instance {
    bool                *flags; /* [n_rules] that lead here; owned */
    struct choice        choice;
    struct tsr_quantizer q;
};

struct tsr_scheme_run {
    const struct tsr_quant_scheme     *s;
    struct tsr_registry               *registry;
    const struct tsr_model            *m;
    bool                             **layers;  /* [n_rules] -> [layers], or NULL: all */
    bool                             **experts; /* [n_rules] -> [experts], or NULL: all linears */
    uint64_t                           total;
    pthread_mutex_t                    lock; /* guards the rest */
    struct tsr_quant_scheme_instance **instances;
    uint64_t                           n_instances, cap;
    uint64_t                          *matches; /* [n_rules] */
    bool                              *flags;   /* [n_rules] scratch */
    struct tsr_quant_remarks           remarks;
    uint64_t                           done;
};

/* NULL: the linear is not quantized. */
tsr_status tsr_quant_scheme_instance(struct tsr_scheme_run *a, uint64_t layer, const char *name,
                                     struct tsr_quant_scheme_instance **in, struct tsr_err *err);

/* A linear of a site together with who quantizes it. */
struct tsr_quant_site_item {
    enum tsr_linear_id                id;
    bool                              quantize;
    struct tsr_quant_scheme_instance *instance;
    uint64_t                          need;
};

/* One layer while it is quantized. */
struct tsr_quant_layer_work {
    struct tsr_scheme_run              *a;
    uint64_t                            layer;
    const struct tsr_quant_layer_stats *stats; /* or NULL */
    struct tsr_model_overlay           *o;
    /* [linears] each */
    const struct tsr_matrix      **w;     /* the packed matrix; rows 0: absent */
    const struct tsr_model_slice **part;  /* of the model's, or NULL: all */
    uint8_t                       *bound; /* 1: what cannot stay as it was */
    struct tsr_quant_site_item    *items; /* room for a site's */
    const struct tsr_quantizer   **q;     /* of the layer */
};

tsr_status tsr_quant_layer_work_new(struct tsr_quant_layer_work *k, struct tsr_err *err);
void       tsr_quant_layer_work_free(struct tsr_quant_layer_work *k);

/* The quantizer and the purpose for a linear; *it is unchanged if there is none. */
tsr_status tsr_quant_scheme_choose(struct tsr_scheme_run *a, uint64_t layer, enum tsr_linear_id id,
                                   const struct tsr_matrix *w, struct tsr_quant_site_item *it,
                                   struct tsr_err *err);
/* Quantizes the linears of a site. */
tsr_status tsr_quant_scheme_site(struct tsr_quant_layer_work *k, enum tsr_site site,
                                 struct tsr_err *err);
/* What a search changed of a layer; zeroed: nothing. */
struct tsr_quant_layer_fold {
    struct tsr_quant_block_fold  fold;
    struct tsr_quant_layer_stats stats;
};
/* Lets block searches choose scales and clips: folded norms and routers go into the overlay, folded
 * weights and statistics take the place of the originals in k. */
tsr_status tsr_quant_layer_fold_search(struct tsr_quant_layer_work  *k,
                                       struct tsr_quant_calibration *c, uint64_t need,
                                       struct tsr_quant_layer_fold *f, struct tsr_err *err);
/* Packs the linears of quantizers that pack blocks.  A layer that one cannot pack stops the run, whatever
 * on_unsupported says: linears that were tuned together do not stay alone. */
tsr_status tsr_quant_layer_tune(struct tsr_quant_layer_work *k, struct tsr_quant_calibration *c,
                                struct tsr_err *err);
/* One linear is done, or is not quantized. */
void tsr_quant_scheme_count(struct tsr_scheme_run *a);
/* Frees f; if the layer is done, its scales go into the overlay. */
void tsr_quant_layer_fold_end(struct tsr_quant_layer_work *k, struct tsr_quant_layer_fold *f,
                              bool done);
/* TSR_E_UNSUPPORTED keeps the original if the scheme allows it. */
tsr_status tsr_quant_scheme_or_keep(const struct tsr_scheme_run *a, tsr_status st, const char *name,
                                    struct tsr_err *err);
/* Something is packed now: the remarks until here are said. */
void tsr_quant_scheme_say_remarks(struct tsr_scheme_run *a);

#endif
