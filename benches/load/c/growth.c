/* growth HOST:PORT TICKETS KEYS: how much TICKETS acquires in flight from one thread cost, for
 * KEYS locks that another client holds. Prints one line of JSON.
 *
 * The server has to have room for so many waiters on one connection.
 */
#include "load.h"
#include "lockclient.h"

#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 120000, LEASE_MS = 240000, KEY_SIZE = 48 };

static void check(lockclient_status status, const char *what)
{
    if (status != LOCKCLIENT_OK)
        load_fail("%s: %s: %s", what, lockclient_status_name(status), lockclient_last_error());
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void pause_ms(long ms)
{
    struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

/* Memory that this process has in use. */
static uint64_t in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static lockclient *open_client(const char *server)
{
    lockclient *client;
    lockclient_config *config = lockclient_config_new();
    check(lockclient_config_add_endpoint(config, server), server);
    check(lockclient_config_set_queue_limit(config, 1048576), "queue limit");
    check(lockclient_open(config, &client), "open");
    lockclient_config_free(config);
    check(lockclient_wait_ready(client, 10000), "no server");
    return client;
}

static lockclient_stats stats(lockclient *client)
{
    lockclient_stats stats;
    check(lockclient_get_stats(client, &stats, sizeof stats), "stats");
    return stats;
}

static const char *key_of(long number)
{
    static char key[KEY_SIZE];
    snprintf(key, sizeof key, "bench/all/%04ld/lock/name", number);
    return key;
}

/* Takes every ticket's grant as it comes, and gives it back, so that the next one gets it. */
static void take_all(lockclient *client, long count, long keys)
{
    int descriptor = lockclient_completion_fd(client);
    for (long taken = 0; taken < count;) {
        struct pollfd readable = {.fd = descriptor, .events = POLLIN};
        if (poll(&readable, 1, 60000) != 1)
            load_fail("%ld of %ld tickets have no result", count - taken, count);
        for (lockclient_ticket *ticket; (ticket = lockclient_next_completed(client)) != NULL;) {
            lockclient_grant grant;
            check(lockclient_ticket_poll(ticket, &grant), "ticket");
            long number = (long)(intptr_t)lockclient_ticket_user(ticket);
            const char *key = key_of(number % keys);
            check(lockclient_release_start(client, key, LOCKCLIENT_NUL_TERMINATED, grant.token),
                  "release");
            lockclient_ticket_free(ticket);
            taken++;
        }
    }
}

int main(int arguments, char **argument)
{
    if (arguments != 4)
        load_fail("usage: growth HOST:PORT TICKETS KEYS");
    alarm(300); /* a run that hangs ends, and fails */
    const char *server = argument[1];
    long count = atol(argument[2]), keys = atol(argument[3]);
    lockclient *holder = open_client(server);
    uint64_t *tokens = calloc((size_t)keys, sizeof *tokens);
    for (long number = 0; number < keys; number++) {
        lockclient_grant grant;
        check(lockclient_acquire(holder, key_of(number), LOCKCLIENT_NUL_TERMINATED, 0, LEASE_MS, 0,
                                 &grant),
              "acquire");
        tokens[number] = grant.token;
    }
    lockclient *client = open_client(server);
    (void)lockclient_completion_fd(client);

    uint64_t memory = in_use();
    uint64_t begun = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t longest = 0, last = begun;
    for (long number = 0; number < count; number++) {
        lockclient_ticket *ticket;
        check(lockclient_acquire_start(client, key_of(number % keys), LOCKCLIENT_NUL_TERMINATED,
                                       WAIT_MS, LEASE_MS, 0, &ticket),
              "start");
        lockclient_ticket_set_user(ticket, (void *)(intptr_t)number);
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        if (now - last > longest)
            longest = now - last;
        last = now;
    }
    uint64_t started = last - begun;
    while (stats(client).in_flight_now != (uint64_t)count) {
        if (stats(client).indeterminate + stats(client).busy + stats(client).not_sent > 0)
            load_fail("the server has no room for so many");
        pause_ms(1);
    }
    uint64_t in_flight_cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    uint64_t ticket_memory = in_use() - memory;

    begun = clock_ns(CLOCK_MONOTONIC);
    cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (long number = 0; number < keys; number++)
        check(lockclient_release_start(holder, key_of(number), LOCKCLIENT_NUL_TERMINATED,
                                       tokens[number]),
              "release");
    take_all(client, count, keys);
    uint64_t taken = clock_ns(CLOCK_MONOTONIC) - begun;
    uint64_t taken_cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    check(lockclient_close(client, 10000), "close");
    check(lockclient_close(holder, 10000), "close");

    printf("{\"tickets\": %ld, \"start_ns\": %" PRIu64 ", \"longest_start_ns\": %" PRIu64
           ", \"in_flight_cpu_ns\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"taken_ns\": %" PRIu64
           ", \"taken_cpu_ns\": %" PRIu64 "}\n",
           count, started, longest, in_flight_cpu, ticket_memory, taken, taken_cpu);
    free(tokens);
    return 0;
}
