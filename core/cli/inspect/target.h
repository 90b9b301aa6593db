/* cli/inspect/target.h - what a name given to `tessera inspect` means: plugins' components or a model. */
#ifndef TSR_CLI_INSPECT_TARGET_H
#define TSR_CLI_INSPECT_TARGET_H

#include "cli/cli.h"
#include "plugin/registry.h"

/* All but a model have the registry at hand. */
struct tsr_inspect_target {
    struct tsr_registry *r;
    char                *real; /* a plugin's file, or NULL: a name */
    bool                 model;
};

/* A name goes before a file, a folder or a GGUF file is a model.  Closed also after a failure. */
tsr_status tsr_inspect_target_open(struct tsr_cli *c, const char *x, struct tsr_inspect_target *t,
                                   struct tsr_err *err);
void       tsr_inspect_target_close(struct tsr_inspect_target *t);
/* The n-th component that matches x. */
bool tsr_inspect_target_nth(const struct tsr_inspect_target *t, const char *x, uint64_t n,
                            struct tsr_plugin_found *f);
/* TSR_E_INPUT: nothing has the name x. */
tsr_status tsr_inspect_not_known(struct tsr_registry *r, const char *x, struct tsr_err *err);

#endif
