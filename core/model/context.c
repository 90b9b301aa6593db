/* Contexts beyond the positions that a model was trained for. */
#include "base/log.h"
#include "model/bind.h"

tsr_status tsr_model_context(const struct tsr_model *m, uint64_t positions, struct tsr_err *err)
{
    static atomic_bool              other; /* of models that were made in memory, by tests */
    const struct tsr_model_hparams *hp = &m->hp;
    if (positions <= hp->max_positions)
        return TSR_OK;
    if (hp->positions == TSR_MODEL_POSITIONS_LEARNED)
        return tsr_fail(err, TSR_E_INPUT,
                        "%s: a context of %llu tokens is more than the model's %llu, and its "
                        "positions are learned; shorten the prompt or ask for fewer tokens",
                        m->path, (unsigned long long)positions,
                        (unsigned long long)hp->max_positions);
    if (!atomic_exchange(m->storage ? &m->storage->context_said : &other, true))
        tsr_logf(
            TSR_LOG_WARN,
            "%s: a context of %llu tokens is more than the %llu that the model was trained for; "
            "what it says there may be worse",
            m->path, (unsigned long long)positions, (unsigned long long)hp->max_positions);
    return TSR_OK;
}

void tsr_model_context_quiet(const struct tsr_model *m)
{
    if (m->storage)
        atomic_store(&m->storage->context_said, true);
}
