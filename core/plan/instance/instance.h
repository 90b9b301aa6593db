/* plan/instance/instance.h - planning problems as files: tessera.instance/1 and /2 in, tessera.solution/1 out
 * (docs/formats/instance.md). */
#ifndef TSR_PLAN_INSTANCE_INSTANCE_H
#define TSR_PLAN_INSTANCE_INSTANCE_H

#include "base/json.h"
#include "tessera/solver.h"

struct tsr_instance {
    struct tsr_solver_instance in;       /* tables belong to the instance */
    char                      *name;     /* "" if the file has none */
    uint64_t                   devices;  /* sum of the counts; of the pools */
    uint64_t                   features; /* TSR_SOLVER_* parts that it uses */
    struct tsr_instance_block *blocks;   /* owns the tables */
};

/* Reads and checks a file of at most 256 MiB; errors are TSR_E_INPUT with their place. */
tsr_status tsr_instance_load(struct tsr_instance **inst, const char *path, struct tsr_err *err);
/* The same from text; name is the file name in messages. */
tsr_status tsr_instance_parse(struct tsr_instance **inst, const char *name, const char *text,
                              uint64_t len, struct tsr_err *err);
void       tsr_instance_destroy(struct tsr_instance *inst);
/* TSR_SOLVER_* parts that tables use. */
uint64_t tsr_instance_features(const struct tsr_solver_instance *in);

/* "links, workspace": the parts in a mask, for people.  Returns buf. */
char *tsr_plan_solver_parts(uint64_t features, char *buf, size_t cap);

/* A solution with room for every plan of an instance; one block, released by free(). */
tsr_status tsr_plan_solution_create(struct tsr_solver_solution **s, const struct tsr_instance *inst,
                                    struct tsr_err *err);

/* The solution as tessera.solution/1; NULL when out of memory. */
json_t *tsr_plan_solution_json(const struct tsr_instance *inst, const struct tsr_solver_solution *s,
                               const char *solver, double time_s);

#endif
