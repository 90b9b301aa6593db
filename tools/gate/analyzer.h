/* gate/analyzer.h - put in front of every file that clang-tidy reads.
 *
 * The analyzer does not look into variadic functions nor into other files, so it would follow
 * paths on which tsr_fail() returns TSR_OK.  Here the status is visible. */
#if __has_include("tessera/plugin.h") /* the HTTP program has none of these */
#include "tessera/plugin.h"
#define tsr_fail(err, st, ...) ((void)tsr_fail(err, st, __VA_ARGS__), (st))

#if __has_include("base/err.h")
#include "base/err.h"
#define tsr_fail_nomem(...)          ((void)tsr_fail_nomem(__VA_ARGS__), TSR_E_NOMEM)
#define tsr_fail_errno(...)          ((void)tsr_fail_errno(__VA_ARGS__), TSR_E_IO)
#define tsr_err_prefix(err, st, ...) ((void)tsr_err_prefix(err, st, __VA_ARGS__), (st))
#define tsr_err_copy(err, st, ...)   ((void)tsr_err_copy(err, st, __VA_ARGS__), (st))
#endif
#endif
