/* The end of a client while many threads block in it, start tickets, cancel them and read results.
 * argv: a server. */
#include "host.h"

#define ROUNDS 40
#define THREADS 6

static lockclient *client;

/* Uses the client until it says that it is closed. */
static void *uses(void *argument)
{
    uintptr_t kind = (uintptr_t)argument;
    for (;;) {
        lockclient_grant grant = garbage();
        lockclient_ticket *ticket = NULL;
        lockclient_status status;
        if (kind % 2 == 0) {
            status = acquire(client, "raced", 60000, &grant);
            if (status == LOCKCLIENT_OK)
                status = lockclient_release(client, "raced", NUL, grant.token);
            else
                ZEROED(grant);
        } else {
            status = lockclient_acquire_start(client, "raced", NUL, 60000, 1000, 0, &ticket);
            if (status == LOCKCLIENT_OK) {
                if (kind == 1)
                    status = lockclient_ticket_wait(ticket, &grant);
                else if (kind == 3)
                    EXPECT(LOCKCLIENT_OK, lockclient_ticket_cancel(ticket));
                else
                    status = lockclient_ticket_poll(ticket, &grant);
                if (status == LOCKCLIENT_OK && grant.token != 0 && kind == 1)
                    lockclient_release_start(client, "raced", NUL, grant.token);
                lockclient_ticket_free(ticket);
            }
            lockclient_next_completed(client);
        }
        if (status == LOCKCLIENT_E_CLOSED)
            return NULL;
    }
}

static void *nothing(void *unused)
{
    return unused;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    /* Some tools start a thread of their own together with the first of the program's. */
    pthread_t first;
    CHECK(pthread_create(&first, NULL, nothing, NULL) == 0 && pthread_join(first, NULL) == 0);
    sleep_ms(50);
    int before = running_threads();
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        client = open_ready(argv[1]);
        for (uintptr_t i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, uses, (void *)i) == 0);
        sleep_ms((uint64_t)round % 10);
        lockclient_status status = lockclient_shutdown(client, 10000);
        CHECK(status == LOCKCLIENT_OK || status == LOCKCLIENT_INDETERMINATE);
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        lockclient_close(client, 1000);
    }
    AWAIT_THREADS(before);
    return done();
}
