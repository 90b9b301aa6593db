/* report/report.h - what a job found (docs/formats/results.md) as one HTML page that needs nothing
 * else: no script, no font, no other file.  Plots are inline SVG in the page's own colours, light
 * or dark as the reader's system has it. */
#ifndef TSR_REPORT_REPORT_H
#define TSR_REPORT_REPORT_H

#include "base/output.h"

#include <jansson.h>

/* What stands above the results. */
struct tsr_report_head {
    const char *model; /* as the job names it */
    uint64_t    seed;
    const char *family, *hash; /* NULL: no model was loaded */
    uint64_t    parameters;
};

/* results: the object of that name in results.json.  Fields that are missing or of another type
 * leave out what would be made of them.  Errors stick to the writer; ENOMEM is one of them. */
void tsr_report_page(struct tsr_writer *w, const struct tsr_report_head *head,
                     const json_t *results);

#endif
