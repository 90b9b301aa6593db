/* fuse_linear.c - LINEARs on matrix units that join: those of one input, and the ACT of their outputs with its quantization. */
#include "fuse.h"

/* ---- LINEAR of one input ------------------------------------------------------------------------ */

int tsr_cuda_takes_some(enum tsr_cuda_kernel kernel)
{
    return kernel >= KERNEL_k_tile8_int && kernel <= KERNEL_k_block_int;
}

static struct view result_of(const struct k_linear *a)
{
    return floats(a->out, a->ldo, a->tokens, a->w.rows);
}

/* Whether no block of one reads what one of the other writes; their input is the same. */
static int are_side_by_side(const struct k_linear *a, const struct k_linear *b)
{
    const struct view out[2] = { result_of(a), result_of(b) };
    const struct view bias[2] = { floats(a->bias, 0, 1, a->w.rows),
                                  floats(b->bias, 0, 1, b->w.rows) };
    return is_apart(&out[0], &out[1]) && is_apart(&out[0], &bias[1]) && is_apart(&out[1], &bias[0]);
}

/* Linears of the same activations, each with its blocks. */
int tsr_cuda_linear_linear(const struct tsr_cuda_launch *first, const struct tsr_cuda_launch *next,
                           struct tsr_cuda_fused *f)
{
    const struct k_linears *all = first->args, *more = next->args;
    const struct k_linear  *last = &more->each[0];
    if (all->end.q.q || all->n == K_LINEARS || more->n != 1 || first->grid[1] != next->grid[1] ||
        first->grid[0] > INT32_MAX - next->grid[0])
        return 0;
    for (uint32_t i = 0; i < all->n; i++) {
        const struct k_linear *a = &all->each[i];
        if (a->x != last->x || a->q != last->q || a->ldq != last->ldq || a->sa != last->sa ||
            a->tokens != last->tokens || a->blocks != last->blocks || !are_side_by_side(a, last))
            return 0;
    }
    f->args.linears = *all;
    f->args.linears.each[all->n] = *last;
    f->args.linears.first[all->n] = first->grid[0];
    f->args.linears.n++;
    launch_as(f, first->kernel, (uint64_t)first->grid[0] + next->grid[0], first->grid[1],
              first->threads, sizeof f->args.linears);
    return 1;
}

/* ---- LINEAR, ACT and the quantization ------------------------------------------------------------- */

/* Whether ACT takes the outputs of all the linears, and one without a second input that of one. */
static int takes_outputs(const struct k_rows *act, const struct k_linears *all)
{
    const struct view x = input_of(act), y = second_of(act), first = result_of(&all->each[0]),
                      second = result_of(&all->each[1]);
    if (all->n == 1)
        return !act->b && is_same(&x, &first);
    return all->n == 2 && ((is_same(&x, &first) && is_same(&y, &second)) ||
                           (is_same(&x, &second) && is_same(&y, &first)));
}

/* Whether what the end of a block of threads writes is apart from all that others read and write; its ACT may take the
 * place of its inputs. */
static int is_apart_at_end(const struct k_linears *all, const struct k_act_step *end)
{
    const struct k_quantize *q = &end->q;
    const struct view        x = input_of(&end->act), y = second_of(&end->act);
    const struct view        written[3] = { out_of(&end->act),
                                            { q->q, 0, 1, q->tokens * q->ldq },
                                            floats(q->sa, 0, 1, (uint64_t)q->tokens * q->blocks) };
    if (!is_same_or_apart(&written[0], &x) || !is_same_or_apart(&written[0], &y))
        return 0;
    for (uint32_t i = 0; i < all->n; i++) {
        const struct k_linear *a = &all->each[i];
        /* outliers take the activations in F32 */
        const struct view read[4] = { { a->q, 0, 1, a->tokens * a->ldq },
                                      floats(a->sa, 0, 1, (uint64_t)a->tokens * a->blocks),
                                      floats(a->x, a->ldx, a->tokens, a->w.cols),
                                      floats(a->bias, 0, 1, a->w.rows) };
        for (int k = 0; k < 3; k++)
            for (int j = 0; j < 4; j++)
                if (!is_apart(&written[k], &read[j]))
                    return 0;
    }
    return 1;
}

/* Blocks of activations must have whole panels, and a counter each. */
int tsr_cuda_linear_act(const struct tsr_cuda_launch *first, const struct tsr_cuda_launch *next,
                        struct tsr_cuda_fused *f)
{
    const struct k_linears  *all = first->args;
    const struct k_act_step *end = next->args;
    const struct k_quantize *q = &end->q;
    if (first->kernel == KERNEL_k_block_int || all->end.q.q || q->tokens > K_END_TOKENS ||
        (q->segment < q->cols && q->segment % K_PANEL) ||
        (uint64_t)first->grid[1] * q->blocks > K_DONE || !takes_outputs(&end->act, all) ||
        !is_apart_at_end(all, end))
        return 0;
    f->args.linears = *all;
    f->args.linears.end = *end;
    launch_as(f, first->kernel, first->grid[0], first->grid[1], first->threads,
              sizeof f->args.linears);
    return 1;
}

uint64_t tsr_cuda_read_before_act(const struct tsr_cuda *c, uint64_t x)
{
    const struct tsr_cuda_list *q = &c->queue;
    if (q->n < 2 || q->l[q->n - 1].kernel != KERNEL_k_act ||
        !tsr_cuda_takes_some(q->l[q->n - 2].kernel))
        return 0;
    const struct k_rows   *act = q->l[q->n - 1].args;
    const struct k_linear *a = ((const struct k_linears *)q->l[q->n - 2].args)->each;
    if (act->out != x || a->tokens > K_END_TOKENS)
        return 0;
    /* `found` is their last part (linear.c) */
    return cuda_ceil(a->found + 4 * (uint64_t)a->tokens - c->work, 256) * 256;
}
