/* SIGPIPE at its default, and a server that resets connections under a burst of calls. The process
 * lives, and its dispositions and masks are as they were. argv: a server that does what the key
 * says. */
#include "check.h"

#include <signal.h>

#define THREADS 8
#define ROUNDS 50
#define EACH 25 /* 8 * 50 * 25 = 10,000 calls */

static const char *endpoint;

/* Requests leave one after the other while the server ends their connection: in each round one asks
 * it to, with an end of stream and then a reset, so that a send in between meets a broken pipe. */
static void *burst(void *unused)
{
    lockclient *client = open_ready(endpoint);
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        lockclient_ticket *tickets[EACH];
        for (int i = 0; i < EACH; i++)
            EXPECT(LOCKCLIENT_OK, lockclient_acquire_start(client, i == 3 ? "break/p" : "grant/p",
                                                           NUL, 20000, 30000, 0, &tickets[i]));
        for (int i = 0; i < EACH; i++) {
            lockclient_grant grant;
            lockclient_status status = lockclient_ticket_wait(tickets[i], &grant);
            CHECK(status == LOCKCLIENT_OK || status == LOCKCLIENT_INDETERMINATE);
            if (status == LOCKCLIENT_OK) {
                status = lockclient_release_start(client, "grant/p", NUL, grant.token);
                CHECK(status == LOCKCLIENT_OK || status == LOCKCLIENT_E_QUEUE_FULL);
            }
            lockclient_ticket_free(tickets[i]);
        }
    }
    CHECK(stats_of(client).connections_closed >= ROUNDS);
    lockclient_close(client, 5000);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    struct sigaction before[64], after;
    sigset_t mask_before, mask_after;
    CHECK(argc == 2);
    CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    for (int i = 1; i < 64; i++)
        sigaction(i, NULL, &before[i]);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask_before) == 0);

    endpoint = argv[1];
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, burst, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);

    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask_after) == 0);
    for (int i = 1; i < 64; i++) {
        CHECK(sigismember(&mask_before, i) == sigismember(&mask_after, i));
        memset(&after, 0, sizeof after);
        if (sigaction(i, NULL, &after) == 0)
            CHECK(after.sa_handler == before[i].sa_handler && after.sa_flags == before[i].sa_flags);
    }
    return done();
}
