/* The keys of a plan step. */
#include "planning/options.h"

const struct tsr_choice tsr_planning_experts_choices[3] = {
    { "rows", "some rows of every expert", TSR_PLAN_EXPERTS_ROWS },
    { "whole", "some experts, whole", TSR_PLAN_EXPERTS_WHOLE },
    { "any", "the faster of the two for each stage", TSR_PLAN_EXPERTS_ANY },
};
const struct tsr_choice tsr_latency_choices[2] = {
    { "fit", "regressions over measured layers, rooflines where there are none",
      TSR_PLAN_LATENCY_FIT },
    { "table", "the measured layers themselves", TSR_PLAN_LATENCY_TABLE },
};

const struct tsr_option tsr_plan_step_options[TSR_PLAN_OPTIONS] = { TSR_PLAN_OPTION_LIST };
