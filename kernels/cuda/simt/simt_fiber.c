/* simt_fiber.c - threads of a block as fibers: their stacks, and changing from one to another. */
#include "simt_block.h"

#include <sys/mman.h>

#if !defined(__x86_64__)
#error "the SIMT emulation switches stacks by hand: x86-64 only"
#endif

/* Sanitizers need a call at each switch of stacks: AddressSanitizer tracks the stacks, ThreadSanitizer
 * keeps a call stack. For the latter, a switch orders everything before it. */
#ifdef SIMT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SIMT_TSAN /* a fiber that ends does not return, so it must not record these as calls */
#include <sanitizer/tsan_interface.h>
#define NO_CALL __attribute__((disable_sanitizer_instrumentation))
#else
#define NO_CALL
#endif

/* Saves the registers that a call keeps, changes stacks, takes those of the other. */
void simt_switch(void **from, void *to);
__asm__(".text\n"
        ".globl simt_switch\n"
        ".hidden simt_switch\n"
        ".type simt_switch,@function\n"
        "simt_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size simt_switch,.-simt_switch\n");

NO_CALL void simt_to_scheduler(bool ends)
{
    struct simt_fiber *f = &simt_block.fibers[simt_block.current];
#ifdef SIMT_ASAN
    __sanitizer_start_switch_fiber(ends ? NULL : &f->fake, simt_block.scheduler_stack,
                                   simt_block.scheduler_bytes);
#else
    (void)ends;
#endif
#ifdef SIMT_TSAN
    __tsan_switch_to_fiber(simt_block.scheduler_calls, 0);
#endif
    simt_switch(&f->sp, simt_block.scheduler);
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(simt_block.fibers[simt_block.current].fake, NULL, NULL);
#endif
}

NO_CALL void simt_to_fiber(uint32_t i)
{
    simt_block.current = i;
#ifdef SIMT_ASAN
    __sanitizer_start_switch_fiber(&simt_block.scheduler_fake,
                                   simt_block.stacks + i * SIMT_STACK_BYTES, SIMT_STACK_BYTES);
#endif
#ifdef SIMT_TSAN
    simt_block.scheduler_calls = __tsan_get_current_fiber();
    if (!simt_block.fibers[i].calls)
        simt_block.fibers[i].calls = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(simt_block.fibers[i].calls, 0);
#endif
    simt_switch(&simt_block.scheduler, simt_block.fibers[i].sp);
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(simt_block.scheduler_fake, NULL, NULL);
#endif
}

NO_CALL static void fiber_main(void)
{
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(NULL, &simt_block.scheduler_stack, &simt_block.scheduler_bytes);
#endif
    simt_block.launch->kernel->entry(simt_block.launch->args);
    if (!simt_block.fibers[simt_block.current].waited)
        simt_report("it ends and has not waited for the launches before");
    simt_block.fibers[simt_block.current].state = DONE;
    simt_block.live--;
    simt_to_scheduler(true);
}

bool simt_make_stacks(void)
{
    if (simt_block.stacks)
        return true;
    uint8_t *p = mmap(NULL, SIMT_THREADS_MAX * SIMT_STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (p == MAP_FAILED)
        return false;
    for (uint32_t i = 0; i < SIMT_THREADS_MAX; i++)
        if (mprotect(p + i * SIMT_STACK_BYTES, 4096, PROT_NONE) != 0) {
            (void)munmap(p, SIMT_THREADS_MAX * SIMT_STACK_BYTES);
            return false;
        }
    simt_block.stacks = p;
    return true;
}

void simt_start_fiber(uint32_t i)
{
    struct simt_fiber *f = &simt_block.fibers[i];
    uint64_t          *top = (uint64_t *)(void *)(simt_block.stacks + (i + 1) * SIMT_STACK_BYTES);
    f->state = READY;
    f->warps = 0;
    f->waited = false;
    f->n_copies = f->first_copy = f->group = 0;
    f->fake = NULL;
    *--top = 0;                                /* fiber_main() does not return */
    *--top = (uint64_t)(uintptr_t)&fiber_main; /* the address that simt_switch() returns to */
    for (int r = 0; r < 6; r++)
        *--top = 0;
    f->sp = top;
}
