/* The stack that the handler of signals runs on: a plugin may have used up the thread's own. */
#include "plugin/guard.h"

#include <signal.h>

#define STACK (32 * 1024) /* a frame with all vector registers takes 12 KiB */

void tsr_plugin_guard_stack(void)
{
#ifndef TSR_GUARD_SANITIZED
    static _Thread_local char stack[STACK];
    static _Thread_local int  there;
    stack_t                   now, mine = { .ss_sp = stack, .ss_size = sizeof stack };
    if (there)
        return;
    there = 1;
    if (sigaltstack(NULL, &now) == 0 && now.ss_flags & SS_DISABLE)
        (void)sigaltstack(&mine, NULL);
#endif
}
