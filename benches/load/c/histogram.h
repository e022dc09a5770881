/* Counts of durations in buckets whose width is 1/128 of the duration: nothing is allocated or
 * sorted while something is measured, and no figure is off by more than 0.8 %.
 */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_BITS = 7, HISTOGRAM_OCTAVES = 36 };
enum { HISTOGRAM_BUCKETS = HISTOGRAM_OCTAVES << HISTOGRAM_BITS };

struct histogram {
    uint64_t total;
    uint32_t count[HISTOGRAM_BUCKETS];
};

static inline void histogram_add(struct histogram *histogram, uint64_t ns)
{
    uint64_t at = ns;
    if (ns >> HISTOGRAM_BITS != 0) {
        unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - HISTOGRAM_BITS;
        at = ((uint64_t)(shift + 1) << HISTOGRAM_BITS) + (ns >> shift) - (1u << HISTOGRAM_BITS);
        if (at >= HISTOGRAM_BUCKETS)
            at = HISTOGRAM_BUCKETS - 1;
    }
    histogram->count[at]++;
    histogram->total++;
}

static inline void histogram_merge(struct histogram *into, const struct histogram *from)
{
    into->total += from->total;
    for (int at = 0; at < HISTOGRAM_BUCKETS; at++)
        into->count[at] += from->count[at];
}

/* The middle of the bucket that the given share (0..1) of all durations does not exceed. */
static inline uint64_t histogram_quantile(const struct histogram *histogram, double share)
{
    uint64_t wanted = (uint64_t)(share * (double)histogram->total);
    uint64_t seen = 0;
    for (uint64_t at = 0; at < HISTOGRAM_BUCKETS; at++) {
        seen += histogram->count[at];
        if (seen > wanted || (seen == histogram->total && seen != 0)) {
            if (at < 1u << HISTOGRAM_BITS)
                return at;
            unsigned shift = (unsigned)(at >> HISTOGRAM_BITS) - 1;
            uint64_t low = ((at & ((1u << HISTOGRAM_BITS) - 1)) + (1u << HISTOGRAM_BITS)) << shift;
            return low + ((uint64_t)1 << shift) / 2;
        }
    }
    return 0;
}

#endif
