/* Counts how often this process asks for memory. Linked into a program, these functions take the
 * place of the C library's in all of it: in shared libraries, in Rust code, and on every thread.
 */
#include "load.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* glibc's own names for what is replaced here. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static _Atomic uint64_t count;

uint64_t allocations(void)
{
    return atomic_load(&count);
}

static void asked(void)
{
    atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
}

void *malloc(size_t size)
{
    asked();
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    asked();
    return __libc_calloc(number, size);
}

void *realloc(void *memory, size_t size)
{
    asked();
    return __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    asked();
    return __libc_memalign(alignment, size);
}

void *memalign(size_t alignment, size_t size)
{
    return aligned_alloc(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *memory = aligned_alloc(alignment, size);
    if (memory == NULL)
        return ENOMEM;
    *out = memory;
    return 0;
}
