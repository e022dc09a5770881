/* The load generator that all contenders share: threads that take and give back locks, and one way
 * of measuring them. A contender says how a lock is acquired and released, and nothing else.
 */
#ifndef LOAD_H
#define LOAD_H

#include <stddef.h>
#include <stdint.h>

struct contender {
    /* Once, before there are threads. `server` is HOST:PORT. */
    void (*open)(const char *server);
    /* On each thread, before it is timed; what it returns is passed to the others. */
    void *(*join)(int thread);
    /* Returns the token. Ends the program on any other outcome than a grant. */
    uint64_t (*acquire)(void *state, const char *key, size_t length);
    void (*release)(void *state, const char *key, size_t length, uint64_t token);
    void (*leave)(void *state);
    void (*close)(void);
};

/* Reads the arguments, runs, prints one line of JSON; returns the exit status. */
int load_main(int count, char **arguments, const struct contender *contender);

/* Prints a message like printf's, and ends the program. */
_Noreturn void load_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A blocking TCP connection to HOST:PORT, without delay. Ends the program on failure. */
int load_connect(const char *server);

/* Splits HOST:PORT. */
int load_split(const char *server, char *host, size_t size);

/* How often memory was asked for in this process: see allocations.c. */
uint64_t allocations(void);

#endif
