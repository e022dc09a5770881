/* A thread that stands still inside lockclient_next_completed, as one does that a debugger or a
 * garbage collector has stopped, delays no other call, and no ticket is lost over it. argv: a server. */
#include "host.h"

#include <signal.h>

#define ROUNDS 60

static atomic_bool stand_still, stands_still, over;
static _Atomic(lockclient_ticket *) fetched;

static void stop(int signal)
{
    (void)signal;
    struct timespec moment = {0, 1000000};
    atomic_store(&stands_still, true);
    while (atomic_load(&stand_still))
        nanosleep(&moment, NULL);
    atomic_store(&stands_still, false);
}

static void *fetches(void *client)
{
    for (unsigned turn = 0; !atomic_load(&over); turn++) {
        /* A tool that watches the program may deliver signals only in calls of the C library. */
        if (turn % 256 == 0)
            (void)now_ms();
        lockclient_ticket *ticket = lockclient_next_completed(client);
        if (ticket != NULL) {
            CHECK(atomic_load(&fetched) == NULL);
            atomic_store(&fetched, ticket);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    lockclient *client = open_ready(argv[1]);
    int fd = lockclient_completion_fd(client);
    CHECK(fd >= 0);
    pthread_t fetcher;
    CHECK(pthread_create(&fetcher, NULL, fetches, client) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        /* Somewhere in the call: often enough where it has to be alone. */
        atomic_store(&stand_still, true);
        CHECK(pthread_kill(fetcher, SIGUSR1) == 0);
        while (!atomic_load(&stands_still))
            sleep_ms(1);

        lockclient_ticket *ticket = NULL;
        EXPECT(LOCKCLIENT_OK,
               lockclient_acquire_start(client, "started", NUL, 0, 1000, 0, &ticket));
        lockclient_grant grant;
        uint64_t start = now_ms();
        EXPECT(LOCKCLIENT_OK, lockclient_acquire(client, "waited", NUL, 0, 1000, 0, &grant));
        EXPECT(LOCKCLIENT_OK, lockclient_release(client, "waited", NUL, grant.token));
        CHECK(now_ms() - start < 3000);
        EXPECT(LOCKCLIENT_OK, lockclient_ticket_wait(ticket, &grant));
        EXPECT(LOCKCLIENT_OK, lockclient_release(client, "started", NUL, grant.token));
        CHECK(now_ms() - start < 4000);
        /* One that is freed meanwhile never comes: the program would use what is gone. */
        lockclient_ticket *dropped = NULL;
        EXPECT(LOCKCLIENT_OK,
               lockclient_acquire_start(client, "dropped", NUL, 0, 1000, 0, &dropped));
        lockclient_ticket_free(dropped);
        CHECK(now_ms() - start < 5000);

        atomic_store(&stand_still, false);
        while (atomic_load(&stands_still))
            sleep_ms(1);
        while (atomic_load(&fetched) == NULL) {
            CHECK(now_ms() - start < 30000);
            sleep_ms(1);
        }
        CHECK(atomic_exchange(&fetched, NULL) == ticket);
        lockclient_ticket_free(ticket);
    }
    atomic_store(&over, true);
    CHECK(pthread_join(fetcher, NULL) == 0);
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    CHECK(poll(&poller, 1, 0) == 0);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 10000));
    puts("done");
    return 0;
}
