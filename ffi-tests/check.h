/* What the test programs share. A program prints "done" and exits 0, or says what failed. */
#ifndef CHECK_H
#define CHECK_H

#include "lockclient.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NUL LOCKCLIENT_NUL_TERMINATED

static inline _Noreturn void fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s\n  last error: %s\n", file, line, what, lockclient_last_error());
    _exit(1);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail(__FILE__, __LINE__, #condition);                                                  \
    } while (0)

static inline void expect(const char *file, int line, const char *what, lockclient_status wanted,
                          lockclient_status got)
{
    if (wanted == got)
        return;
    fprintf(stderr, "%s:%d: %s\n  wanted %s, got %s (%" PRId32 ")\n", file, line, what,
            lockclient_status_name(wanted), lockclient_status_name(got), got);
    fail(file, line, "an unexpected status");
}

#define EXPECT(wanted, call) expect(__FILE__, __LINE__, #call, (wanted), (call))

/* Compares two numbers, and shows both. */
#define SAME(wanted, got)                                                                          \
    do {                                                                                           \
        uint64_t wanted_ = (uint64_t)(wanted), got_ = (uint64_t)(got);                             \
        if (wanted_ != got_) {                                                                     \
            fprintf(stderr, "wanted %" PRIu64 ", got %" PRIu64 "\n", wanted_, got_);               \
            fail(__FILE__, __LINE__, #got);                                                        \
        }                                                                                          \
    } while (0)

static inline uint64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static inline void sleep_ms(uint64_t ms)
{
    struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

/* A grant full of garbage, to see that it is overwritten. */
static inline lockclient_grant garbage(void)
{
    lockclient_grant grant;
    memset(&grant, 0xa5, sizeof grant);
    return grant;
}

static inline bool is_zero(const void *memory, size_t size)
{
    const unsigned char *bytes = memory;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

#define ZEROED(value) CHECK(is_zero(&(value), sizeof(value)))

/* A client of one server, with the defaults. */
static inline lockclient *open_client(const char *endpoint)
{
    lockclient_config *config = lockclient_config_new();
    lockclient *client = NULL;
    CHECK(config != NULL);
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, endpoint));
    EXPECT(LOCKCLIENT_OK, lockclient_open(config, &client));
    CHECK(client != NULL);
    lockclient_config_free(config);
    return client;
}

/* The same, and waits until the server serves. */
static inline lockclient *open_ready(const char *endpoint)
{
    lockclient *client = open_client(endpoint);
    EXPECT(LOCKCLIENT_OK, lockclient_wait_ready(client, 30000));
    return client;
}

/* An acquire with the usual durations. */
static inline lockclient_status acquire(lockclient *client, const char *key, uint64_t wait_ms,
                                        lockclient_grant *grant)
{
    return lockclient_acquire(client, key, NUL, wait_ms, LOCKCLIENT_DEFAULT_LEASE_MS, 1000, grant);
}

/* The token of a lock that must be free. */
static inline uint64_t hold(lockclient *client, const char *key)
{
    lockclient_grant grant = garbage();
    EXPECT(LOCKCLIENT_OK, acquire(client, key, 10000, &grant));
    return grant.token;
}

static inline lockclient_stats stats_of(lockclient *client)
{
    lockclient_stats stats;
    EXPECT(LOCKCLIENT_OK, lockclient_get_stats(client, &stats, sizeof stats));
    return stats;
}

/* Waits until a count reaches a number: counts are kept by another thread. */
#define AWAIT(client, field, number)                                                               \
    do {                                                                                           \
        uint64_t until_ = now_ms() + 30000;                                                        \
        while (stats_of(client).field != (uint64_t)(number) && now_ms() < until_)                  \
            sleep_ms(2);                                                                           \
        SAME(number, stats_of(client).field);                                                      \
    } while (0)

static inline bool readable(int descriptor, int wait_ms)
{
    struct pollfd poller = {.fd = descriptor, .events = POLLIN, .revents = 0};
    int ready;
    do
        ready = poll(&poller, 1, wait_ms);
    while (ready < 0 && errno == EINTR);
    CHECK(ready >= 0 && (poller.revents & POLLNVAL) == 0);
    return ready == 1;
}

static inline int done(void)
{
    printf("done\n");
    fflush(stdout);
    return 0;
}

#endif
