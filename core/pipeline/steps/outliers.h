/* pipeline/steps/outliers.h - what the parts of the step `outliers` share. */
#ifndef TSR_PIPELINE_STEPS_OUTLIERS_H
#define TSR_PIPELINE_STEPS_OUTLIERS_H

#include "compensate/compensation.h"
#include "pipeline/step.h"

struct tsr_step_outliers_options {
    const char *prompt;
    int64_t     layer, expert, tokens, at, site, seed;
    double      share;
};

extern const struct tsr_choice tsr_step_outliers_sites[TSR_MODEL_SITES];

struct tsr_step_outliers_run {
    struct tsr_pipeline_job                *job;
    const struct tsr_step_outliers_options *o;
    struct tsr_compensation                *c;
    const struct tsr_model                 *m;
    uint64_t                                layer, token; /* token: 0 while the prompt is read */
    bool                                    sparse;  /* gate, up and down are those of `expert` */
    bool                                    looking; /* for the expert */
    uint64_t                                expert;
    uint64_t                                taken;              /* tokens that reached the site */
    bool                                    reached;            /* at `at` */
    float                                  *x[TSR_MODEL_SITES]; /* at `at`; owned */
    uint32_t *list, *last, *fixed, *scratch; /* of the site: now, before, by the calibration */
    uint64_t  count;                         /* channels that are large */
    uint32_t *times;                         /* [cols] how often each was */
    double    overlap, recall;
    json_t   *large; /* per token, of the first SHOWN channels */
};

/* The place in the layer of one of the four kinds of inputs. */
enum tsr_site tsr_step_outliers_place(const struct tsr_step_outliers_run *w, int kind);
/* Adds to the list how the error of a site at the token `at` falls, by magnitude and in a random order. */
tsr_status tsr_step_outliers_site(struct tsr_step_outliers_run *w, int site, json_t *list,
                                  struct tsr_err *err);

#endif
