/* het - the baseline of SplitQuant: one bit candidate for the whole model, and for it the best contiguous
 * partition by the times of both phases, over all device orders, options and bits. */
#include "common/one_bit.h"

ONE_BIT_PLUGIN(het, ONE_BIT_ANY,
               "One bit width for every layer, best contiguous partition over the devices.");
