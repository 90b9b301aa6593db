#include <tessera/solver.h>
extern const struct tsr_solver_v1 table;
