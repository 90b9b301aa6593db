/* plugin/spec.h - a plugin with options as one argument: "uniform:labels=64,..." */
#ifndef TSR_PLUGIN_SPEC_H
#define TSR_PLUGIN_SPEC_H

#include "plugin/registry.h"

struct tsr_spec {
    char            *text; /* option strings point into it */
    struct tsr_found found;
    void            *options; /* the component's struct, filled */
};

/* NAME[:key=value,...]; an option that is unknown, wrong or missing is TSR_E_INPUT.  After a
 * failure too tsr_spec_close() is allowed. */
tsr_status tsr_spec_open(struct tsr_spec *s, struct tsr_registry *r, const char *kind,
                         const char *text, struct tsr_err *err);
/* All defaults of a component that was found already; the first required option is an error. */
tsr_status tsr_spec_defaults(struct tsr_spec *s, const struct tsr_found *found,
                             struct tsr_err *err);
void       tsr_spec_close(struct tsr_spec *s);

#endif
