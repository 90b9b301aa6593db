/* The keys of a plan step. */
#include "planning/options.h"

const struct tsr_choice tsr_latency_choices[2] = {
    { "fit", "regressions over measured layers, rooflines where there are none",
      TSR_PLAN_LATENCY_FIT },
    { "table", "the measured layers themselves", TSR_PLAN_LATENCY_TABLE },
};

const struct tsr_option tsr_plan_step_options[TSR_PLAN_OPTIONS] = { TSR_PLAN_OPTION_LIST };
