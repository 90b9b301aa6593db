/* over.c - the stand-in of NCCL over the driver that the backend cuda is tested with (tests/gpu/standin): what
 * standin_nccl.c asks of its own driver, asked of that one, so that both plugins work in one process on one
 * driver, whose streams have kernels and messages in turn. */
#include "over.h"
#include "standin.h"

#include <stdlib.h>

void over_lock(void)
{
    (void)standin_lock();
}

void over_unlock(void)
{
    const int locked = 0;
    standin_unlock(&locked);
}

void *over_place(const void *address, uint64_t bytes)
{
    return standin_place((uintptr_t)address, bytes);
}

bool over_has_context(void)
{
    return standin_in_context();
}

void over_move(void)
{
    standin_run_all();
}

struct over {
    bool (*run)(void *);
    void *arg;
};

static CUresult move_on(void *arg)
{
    const struct over *o = arg;
    return o->run(o->arg) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

bool over_push(void *stream, bool (*run)(void *), void *arg)
{
    struct over *o = malloc(sizeof *o);
    if (!o)
        abort();
    *o = (struct over){ run, arg };
    return standin_queue(stream, move_on, o) == CUDA_SUCCESS;
}

EXPORT struct over_left standin_live(void)
{
    struct standin_left l = standin_left();
    return (struct over_left){ l.contexts, l.blocks, l.streams, l.events };
}

EXPORT uint64_t standin_taken(void)
{
    return standin_count()->taken;
}

EXPORT void standin_move(void)
{
    standin_run_all();
}
