/* model/packed_table.h - equal tables of tessera.table/1. */
#ifndef TSR_MODEL_PACKED_TABLE_H
#define TSR_MODEL_PACKED_TABLE_H

#include "base/f16.h"
#include "tessera/format.h"

/* The same numbers, bit for bit: a table has no NaN. */
static inline bool tsr_model_same_table(const float *a, const float *b)
{
    for (uint32_t i = 0; i < TSR_TABLE_ENTRIES; i++)
        if (tsr_f32_bits(a[i]) != tsr_f32_bits(b[i]))
            return false;
    return true;
}

#endif
