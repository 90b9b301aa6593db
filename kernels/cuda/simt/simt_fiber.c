/* simt_fiber.c - threads of a block as fibers: their stacks, and changing from one to another. */
#include "simt_block.h"

#include <sys/mman.h>

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "the SIMT emulation switches stacks by hand: x86-64 and arm64 only"
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
#if defined(__aarch64__)
#define SAVED 20u /* words: x19 to x30 and d8 to d15 */
#define FIRST 11u /* of these the one that `ret` goes to, x30 */
__asm__(".text\n"
        ".globl simt_switch\n"
        ".hidden simt_switch\n"
        ".type simt_switch,%function\n"
        "simt_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size simt_switch,.-simt_switch\n");
#else
#define SAVED 7u /* words: six registers, and where `ret` goes to */
#define FIRST 6u
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
#endif

NO_CALL void simt_to_scheduler(bool ends)
{
    struct simt_fiber *f = &simt_now->fibers[simt_now->current];
#ifdef SIMT_ASAN
    __sanitizer_start_switch_fiber(ends ? NULL : &f->fake, simt_now->scheduler_stack,
                                   simt_now->scheduler_bytes);
#else
    (void)ends;
#endif
#ifdef SIMT_TSAN
    __tsan_switch_to_fiber(simt_now->scheduler_calls, 0);
#endif
    simt_switch(&f->sp, simt_now->scheduler);
#ifdef SIMT_ASAN /* the scheduler may have come from another thread of the host */
    __sanitizer_finish_switch_fiber(simt_now->fibers[simt_now->current].fake,
                                    &simt_now->scheduler_stack, &simt_now->scheduler_bytes);
#endif
}

NO_CALL void simt_to_fiber(uint32_t i)
{
    simt_now->current = i;
#ifdef SIMT_ASAN
    __sanitizer_start_switch_fiber(&simt_now->scheduler_fake,
                                   simt_now->stacks + i * SIMT_STACK_BYTES, SIMT_STACK_BYTES);
#endif
#ifdef SIMT_TSAN
    simt_now->scheduler_calls = __tsan_get_current_fiber();
    if (!simt_now->fibers[i].calls)
        simt_now->fibers[i].calls = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(simt_now->fibers[i].calls, 0);
#endif
    simt_switch(&simt_now->scheduler, simt_now->fibers[i].sp);
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(simt_now->scheduler_fake, NULL, NULL);
#endif
}

NO_CALL static void fiber_main(void)
{
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(NULL, &simt_now->scheduler_stack, &simt_now->scheduler_bytes);
#endif
    simt_now->launch->kernel->entry(simt_now->launch->args);
    if (!simt_now->fibers[simt_now->current].waited)
        simt_report("it ends and has not waited for the launches before");
    simt_now->fibers[simt_now->current].state = DONE;
    simt_now->live--;
    simt_to_scheduler(true);
}

bool simt_make_stacks(struct simt_block *b, uint32_t threads)
{
    if (b->n_stacks >= threads)
        return true;
    if (b->stacks)
        (void)munmap(b->stacks, b->n_stacks * SIMT_STACK_BYTES);
    b->stacks = NULL;
    b->n_stacks = 0;
    uint8_t *p = mmap(NULL, threads * SIMT_STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (p == MAP_FAILED)
        return false;
    for (uint32_t i = 0; i < threads; i++)
        if (mprotect(p + i * SIMT_STACK_BYTES, 4096, PROT_NONE) != 0) {
            (void)munmap(p, threads * SIMT_STACK_BYTES);
            return false;
        }
    b->stacks = p;
    b->n_stacks = threads;
    return true;
}

void simt_start_fiber(uint32_t i)
{
    struct simt_fiber *f = &simt_now->fibers[i];
    uint64_t          *top = (uint64_t *)(void *)(simt_now->stacks + (i + 1) * SIMT_STACK_BYTES);
    f->state = READY;
    f->warps = 0;
    f->waited = false;
    f->n_copies = f->first_copy = f->group = 0;
    f->fake = NULL;
    /* fiber_main() does not return: a word for its caller, and with x86-64 the alignment of a called function; arm64 aligns
     * by 16, too */
    top -= SAVED + (SAVED % 2 ? 1 : 2);
    for (uint32_t r = 0; r < SAVED + 1; r++)
        top[r] = 0;
    top[FIRST] = (uint64_t)(uintptr_t)&fiber_main; /* where simt_switch() returns to */
    f->sp = top;
}
