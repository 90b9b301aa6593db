/* tessera/guard.hpp - guard: C++ functions from which no exception reaches the host, for plugins in C++17 or later.
 *
 * tsr_guard<f> is a function with the arguments of f. An exception that leaves f becomes a status: TSR_E_NOMEM of
 * std::bad_alloc, else TSR_E_INVAL. If the last argument is a struct tsr_err, it gets a sentence with what(). Wrap each
 * function of a table that returns a status, and each body of host->parallel_for(). The other functions of a table
 * (destroy, extension) may not throw.
 *
 * Example: a table whose functions may use the standard library.
 *
 *     const tsr_codec_v1 table = {
 *         .struct_size = sizeof table, .create = tsr_guard<create>, .destroy = destroy,
 *         .encode = tsr_guard<encode>, .decode = tsr_guard<decode>,
 *     };
 */
#ifndef TSR_GUARD_HPP
#define TSR_GUARD_HPP

#include "tessera/status.h"

#include <exception>
#include <new>

/* The last argument if it is a struct tsr_err, else NULL.  [any] */
template <class Last> tsr_err *tsr_guard_err(Last) noexcept
{
    return nullptr;
}

inline tsr_err *tsr_guard_err(tsr_err *err) noexcept
{
    return err;
}

template <class First, class Second, class... Rest>
tsr_err *tsr_guard_err(First, Second second, Rest... rest) noexcept
{
    return tsr_guard_err(second, rest...);
}

template <auto f> struct tsr_guard_of;

template <class... Arguments, tsr_status (*f)(Arguments...)> struct tsr_guard_of<f> {
    static tsr_status call(Arguments... arguments) noexcept
    {
        try {
            return f(arguments...);
        } catch (const std::bad_alloc &) {
            return tsr_fail(tsr_guard_err(arguments...), TSR_E_NOMEM, "out of memory");
        } catch (const std::exception &e) {
            return tsr_fail(tsr_guard_err(arguments...), TSR_E_INVAL, "unexpected: %s", e.what());
        } catch (...) {
            return tsr_fail(tsr_guard_err(arguments...), TSR_E_INVAL, "unexpected: an exception");
        }
    }
};

/* f, without its exceptions.  [any] */
template <auto f> inline constexpr auto tsr_guard = tsr_guard_of<f>::call;

#endif
