/* uniform - the baseline of serving systems: one bit candidate for the whole model, and stages whose
 * layers differ by one at most; over all device orders, options and bits the best of these plans. */
#include "common/one_bit.h"

ONE_BIT_PLUGIN(uniform, ONE_BIT_EVEN,
               "One bit width for every layer and even stages, the best of these plans.");
