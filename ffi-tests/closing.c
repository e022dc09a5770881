/* The end of a client, while others use it. argv: a server, a server that does what the key says,
 * an address where nothing listens. */
#include "check.h"

#define BLOCKED 8

struct call {
    lockclient *client;
    const char *key;
    lockclient_status status;
    bool released;
};

static void *blocked(void *argument)
{
    struct call *call = argument;
    lockclient_grant grant = garbage();
    if (call->released) {
        call->status = lockclient_release(call->client, call->key, NUL, 7);
    } else {
        call->status = acquire(call->client, call->key, 200000, &grant);
        ZEROED(grant);
    }
    return NULL;
}

static void refused(lockclient *client)
{
    lockclient_grant grant = garbage();
    lockclient_ticket *ticket = (lockclient_ticket *)(uintptr_t)1;
    EXPECT(LOCKCLIENT_E_CLOSED, acquire(client, "k", 0, &grant));
    ZEROED(grant);
    EXPECT(LOCKCLIENT_E_CLOSED, lockclient_acquire_start(client, "k", NUL, 0, 1000, 0, &ticket));
    CHECK(ticket == NULL);
    EXPECT(LOCKCLIENT_E_CLOSED, lockclient_release(client, "k", NUL, 1));
    EXPECT(LOCKCLIENT_E_CLOSED, lockclient_release_start(client, "k", NUL, 1));
    EXPECT(LOCKCLIENT_E_CLOSED, lockclient_wait_ready(client, 1000));
}

static void wakes_blocked_callers(lockclient *client, const char *key, lockclient_status wanted)
{
    pthread_t threads[BLOCKED];
    struct call calls[BLOCKED];
    for (int i = 0; i < BLOCKED; i++) {
        calls[i] = (struct call){client, key, LOCKCLIENT_PENDING, false};
        CHECK(pthread_create(&threads[i], NULL, blocked, &calls[i]) == 0);
    }
    if (wanted == LOCKCLIENT_CANCELLED)
        AWAIT(client, queued_now, BLOCKED);
    else
        AWAIT(client, in_flight_now, BLOCKED);
    uint64_t start = now_ms();
    EXPECT(LOCKCLIENT_OK, lockclient_shutdown(client, 20000));
    CHECK(now_ms() - start < 15000); /* nothing was left to wait for */
    for (int i = 0; i < BLOCKED; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        EXPECT(wanted, calls[i].status);
    }
    refused(client);
    EXPECT(LOCKCLIENT_OK, lockclient_shutdown(client, 0));
    EXPECT(LOCKCLIENT_OK, lockclient_shutdown(client, UINT64_MAX));
    refused(client);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, UINT64_MAX));
}

/* Releases are waited for up to the limit, and what stays open is reported. */
static void unconfirmed(const char *scripted)
{
    lockclient *client = open_ready(scripted);
    EXPECT(LOCKCLIENT_OK, lockclient_release_start(client, "silent/r", NUL, 7));
    uint64_t start = now_ms();
    EXPECT(LOCKCLIENT_INDETERMINATE, lockclient_shutdown(client, 300));
    CHECK(now_ms() - start >= 270 && now_ms() - start < 4000);
    CHECK(strlen(lockclient_last_error()) > 0);
    EXPECT(LOCKCLIENT_INDETERMINATE, lockclient_close(client, 300));

    client = open_ready(scripted);
    EXPECT(LOCKCLIENT_OK, lockclient_release_start(client, "grant/r", NUL, 7));
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 20000));

    /* A blocked releaser is woken as well. */
    pthread_t thread;
    client = open_ready(scripted);
    struct call call = {client, "silent/blocked", LOCKCLIENT_PENDING, true};
    CHECK(pthread_create(&thread, NULL, blocked, &call) == 0);
    lockclient_grant grant; /* granted once the server has seen the release */
    lockclient_status status;
    while ((status = acquire(client, "seen/silent/blocked", 0, &grant)) == LOCKCLIENT_TIMED_OUT)
        sleep_ms(2);
    EXPECT(LOCKCLIENT_OK, status);
    EXPECT(LOCKCLIENT_INDETERMINATE, lockclient_shutdown(client, 100));
    CHECK(pthread_join(thread, NULL) == 0);
    EXPECT(LOCKCLIENT_INDETERMINATE, call.status);
    lockclient_close(client, 0);
}

static void *shuts(void *argument)
{
    struct call *call = argument;
    call->status = lockclient_shutdown(call->client, 10000);
    return NULL;
}

static void at_once_from_many_threads(const char *endpoint)
{
    pthread_t threads[BLOCKED];
    struct call calls[BLOCKED];
    lockclient *client = open_ready(endpoint);
    for (int i = 0; i < BLOCKED; i++) {
        calls[i] = (struct call){client, NULL, LOCKCLIENT_PENDING, false};
        CHECK(pthread_create(&threads[i], NULL, shuts, &calls[i]) == 0);
    }
    for (int i = 0; i < BLOCKED; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        EXPECT(LOCKCLIENT_OK, calls[i].status);
    }
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 0));
}

static void many_clients(const char *endpoint)
{
    for (int i = 0; i < 50; i++) {
        lockclient *one = open_client(endpoint), *two = open_client(endpoint);
        if (i % 5 == 0)
            EXPECT(LOCKCLIENT_OK, lockclient_wait_ready(two, 30000));
        /* No time at all: a thread that is slow to answer has confirmed nothing. */
        lockclient_status status = lockclient_close(one, 0);
        CHECK(status == LOCKCLIENT_OK || status == LOCKCLIENT_INDETERMINATE);
        EXPECT(LOCKCLIENT_OK, lockclient_close(two, 10000));
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    wakes_blocked_callers(open_ready(argv[2]), "silent/c", LOCKCLIENT_INDETERMINATE);
    wakes_blocked_callers(open_client(argv[3]), "k", LOCKCLIENT_CANCELLED);
    unconfirmed(argv[2]);
    at_once_from_many_threads(argv[1]);
    many_clients(argv[1]);
    return done();
}
