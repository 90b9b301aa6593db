/* choices.h - the option values of the MX quantizer and of the MX codec. */
#ifndef TSR_PLUGINS_MX_CHOICES_H
#define TSR_PLUGINS_MX_CHOICES_H

#include "encode.h"

static const struct tsr_choice element_choices[] = {
    { "fp8_e4m3", "8 bits, to 448", TSR_MX_FP8_E4M3 },
    { "fp8_e5m2", "8 bits, to 57344", TSR_MX_FP8_E5M2 },
    { "fp6_e3m2", "6 bits, to 28", TSR_MX_FP6_E3M2 },
    { "fp6_e2m3", "6 bits, to 7.5", TSR_MX_FP6_E2M3 },
    { "fp5_e3m1", "5 bits, to 24", TSR_MX_FP5_E3M1 },
    { "fp5_e2m2", "5 bits, to 7", TSR_MX_FP5_E2M2 },
    { "fp5_e1m3", "5 bits, to 3.75", TSR_MX_FP5_E1M3 },
    { "fp4_e2m1", "4 bits, to 6: MXFP4", TSR_MX_FP4_E2M1 },
    { "fp4_e1m2", "4 bits, to 3.5", TSR_MX_FP4_E1M2 },
    { "fp3_e1m1", "3 bits, to 3", TSR_MX_FP3_E1M1 },
    { "int8", "sign and 1.xxxxxx", TSR_MX_INT(8) },
    { "int6", "sign and 1.xxxx", TSR_MX_INT(6) },
    { "int5", "sign and 1.xxx", TSR_MX_INT(5) },
    { "int4", "sign and 1.xx", TSR_MX_INT(4) },
    { "int3", "sign and 1.x", TSR_MX_INT(3) },
    { "int2", "sign and 1", TSR_MX_INT(2) },
};
static const struct tsr_choice rounding_choices[] = {
    { "even", "nearest, a half to the even code", TSR_ENCODE_EVEN },
    { "nearest", "nearest, a half away from zero", TSR_ENCODE_NEAREST },
    { "floor", "toward zero", TSR_ENCODE_FLOOR },
};
static const struct tsr_choice rule_choices[] = {
    { "floor", "the exponent of the block's largest number; what is above the grid saturates",
      TSR_ENCODE_SCALE_FLOOR },
    { "even", "the same after rounding that number to the element's mantissa",
      TSR_ENCODE_SCALE_EVEN },
    { "ceil", "the smallest scale at which nothing saturates", TSR_ENCODE_SCALE_CEIL },
};

#endif
