/* pipeedge - the baseline of PipeEdge: one bit candidate for the whole model, and a partition that
 * balances one phase only, decode.  Among the partitions with the fastest slowest step, and over
 * all device orders, options and bits, the best by the objective. */
#include "common/one_bit.h"

ONE_BIT_PLUGIN(
    pipeedge, ONE_BIT_DECODE,
    "One bit width for every layer, the partition with the fastest slowest decode step.");
