/* engine/device_internal.h - declarations shared by the files of the device. */
#ifndef TSR_ENGINE_DEVICE_INTERNAL_H
#define TSR_ENGINE_DEVICE_INTERNAL_H

#include "engine/device.h"

/* Room for one more pointer in a list. */
bool tsr_engine_device_grow(void *list, uint64_t n, uint64_t *cap);
void tsr_engine_device_free_weight(struct tsr_engine_device *d, struct tsr_engine_weight *w);

/* tsr_engine_device_run() with weights that the device has. */
tsr_status tsr_engine_device_run_plain(struct tsr_engine_device *d, struct tsr_op *op,
                                       struct tsr_engine_weight *w, struct tsr_err *err);
/* device_kernel.c: LINEAR with one that its plugin multiplies. */
tsr_status tsr_engine_device_run_kernel(struct tsr_engine_device *d, const struct tsr_op *op,
                                        const struct tsr_engine_weight *w, struct tsr_err *err);

/* device_launch.c.  Puts w->own on the device, if its plugin has code for it; unplace() also after a failure. */
tsr_status tsr_engine_device_place(struct tsr_engine_device *d, struct tsr_engine_weight *w,
                                   struct tsr_err *err);
void       tsr_engine_device_unplace(struct tsr_engine_device *d, struct tsr_engine_weight *w);
void       tsr_engine_device_unload(struct tsr_engine_device *d); /* after all weights */
/* LINEAR with a weight that is there.  TSR_E_UNSUPPORTED, without a message: the host multiplies so many tokens. */
tsr_status tsr_engine_device_run_launch(struct tsr_engine_device *d, const struct tsr_op *op,
                                        const struct tsr_engine_weight *w, struct tsr_err *err);

/* A weight as tessera.int/1, with the same values and, under a8, the same sums. */
struct tsr_engine_integers {
    struct tsr_format      format;
    struct tsr_weight_desc desc; /* of codes and meta */
    unsigned char         *codes, *meta;
};
/* TSR_E_UNSUPPORTED, without a message, for another format than tessera.table/1 and for numbers that are not
 * whole.  The description points into *i. */
tsr_status tsr_engine_integers_make(struct tsr_engine_integers *i, const struct tsr_weight_desc *w,
                                    struct tsr_err *err);
void       tsr_engine_integers_free(struct tsr_engine_integers *i);

#endif
