/* engine/device_internal.h - declarations shared by the files of the device. */
#ifndef TSR_ENGINE_DEVICE_INTERNAL_H
#define TSR_ENGINE_DEVICE_INTERNAL_H

#include "engine/device.h"

/* Room for one more pointer in a list. */
bool tsr_engine_device_grow(void *list, uint64_t n, uint64_t *cap);
void tsr_engine_device_free_weight(struct tsr_engine_device *d, struct tsr_engine_weight *w);

#endif
