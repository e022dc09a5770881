/* SIGPIPE at its default, and a server that resets connections under a burst of calls. The process
 * lives, and its dispositions and masks are as they were. argv: a server that does what the key
 * says. */
#include "check.h"

#include <signal.h>

#define THREADS 8
#define CALLS 10000

static lockclient *client;

static void *burst(void *argument)
{
    unsigned first = *(unsigned *)argument;
    for (unsigned i = first; i < CALLS; i += THREADS) {
        lockclient_grant grant;
        /* Some get the connection reset, with the others' frames on their way to it. Dials are
         * limited to ten a second, so not too many. */
        const char *key = i % 250 == 0 ? "reset/p" : "grant/p";
        lockclient_status status = acquire(client, key, 0, &grant);
        CHECK(status == LOCKCLIENT_OK || status == LOCKCLIENT_INDETERMINATE ||
              status == LOCKCLIENT_NOT_SENT);
        if (status == LOCKCLIENT_OK) {
            status = lockclient_release_start(client, key, NUL, grant.token);
            CHECK(status == LOCKCLIENT_OK || status == LOCKCLIENT_E_QUEUE_FULL);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    unsigned firsts[THREADS];
    struct sigaction before[64], after;
    sigset_t mask_before, mask_after;
    CHECK(argc == 2);
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    for (int i = 1; i < 64; i++)
        sigaction(i, NULL, &before[i]);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask_before) == 0);

    client = open_ready(argv[1]);
    for (unsigned i = 0; i < THREADS; i++) {
        firsts[i] = i;
        CHECK(pthread_create(&threads[i], NULL, burst, &firsts[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    lockclient_stats stats = stats_of(client);
    CHECK(stats.connections_closed >= 10 && stats.acquired > CALLS / 2);
    lockclient_close(client, 5000);

    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask_after) == 0);
    for (int i = 1; i < 64; i++) {
        CHECK(sigismember(&mask_before, i) == sigismember(&mask_after, i));
        memset(&after, 0, sizeof after);
        if (sigaction(i, NULL, &after) == 0)
            CHECK(after.sa_handler == before[i].sa_handler && after.sa_flags == before[i].sa_flags);
    }
    return done();
}
