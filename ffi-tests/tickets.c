/* Acquires in two halves. argv: a server, a server that does what the key says, an address where
 * nothing listens. */
#include "check.h"

static lockclient_ticket *start(lockclient *client, const char *key, uint64_t wait_ms)
{
    lockclient_ticket *ticket = NULL;
    EXPECT(LOCKCLIENT_OK, lockclient_acquire_start(client, key, NUL, wait_ms,
                                                   LOCKCLIENT_DEFAULT_LEASE_MS, 1000, &ticket));
    CHECK(ticket != NULL);
    return ticket;
}

static void taken_once(lockclient *client)
{
    lockclient_grant grant = garbage(), again = garbage();
    lockclient_ticket *ticket = start(client, "once", 10000);
    int descriptor = lockclient_ticket_fd(ticket);
    CHECK(descriptor >= 0 && descriptor == lockclient_ticket_fd(ticket));
    CHECK(readable(descriptor, 30000));
    CHECK(readable(descriptor, 0)); /* as long as it was not taken */
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_poll(ticket, &grant));
    CHECK(grant.token != 0 && grant.remaining_ms > 0);
    CHECK(!readable(descriptor, 0));

    EXPECT(LOCKCLIENT_E_TAKEN, lockclient_ticket_poll(ticket, &again));
    ZEROED(again);
    again = garbage();
    EXPECT(LOCKCLIENT_E_TAKEN, lockclient_ticket_wait(ticket, &again));
    ZEROED(again);
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_cancel(ticket)); /* too late to change anything */
    EXPECT(LOCKCLIENT_E_TAKEN, lockclient_ticket_poll(ticket, &again));
    lockclient_ticket_free(ticket);
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "once", NUL, grant.token));
}

static void waited_for(lockclient *client)
{
    lockclient_grant grant = garbage();
    uint64_t token = hold(client, "waited");
    lockclient_ticket *ticket = start(client, "waited", 60000);
    EXPECT(LOCKCLIENT_PENDING, lockclient_ticket_poll(ticket, &grant));
    ZEROED(grant);
    CHECK(!readable(lockclient_ticket_fd(ticket), 0));
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "waited", NUL, token));
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_wait(ticket, &grant));
    CHECK(grant.token > token);
    lockclient_ticket_free(ticket);
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "waited", NUL, grant.token));
}

static void *cancel_soon(void *ticket)
{
    sleep_ms(50);
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_cancel(ticket));
    return NULL;
}

static void cancelled(lockclient *client, const char *nowhere)
{
    lockclient_grant grant = garbage();
    pthread_t thread;

    /* Sent: its outcome is unknown from then on, and a blocked waiter learns it at once. */
    uint64_t token = hold(client, "cancelled"), began = now_ms();
    lockclient_ticket *ticket = start(client, "cancelled", 60000);
    AWAIT(client, in_flight_now, 1);
    CHECK(pthread_create(&thread, NULL, cancel_soon, ticket) == 0);
    EXPECT(LOCKCLIENT_INDETERMINATE, lockclient_ticket_wait(ticket, &grant));
    ZEROED(grant);
    CHECK(now_ms() - began < 30000);
    CHECK(pthread_join(thread, NULL) == 0);
    lockclient_ticket_free(ticket);
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "cancelled", NUL, token));

    /* Not sent: cancelled, definitely. */
    lockclient *lonely = open_client(nowhere);
    ticket = start(lonely, "k", 60000);
    EXPECT(LOCKCLIENT_PENDING, lockclient_ticket_poll(ticket, &grant));
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_cancel(ticket));
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_cancel(ticket));
    CHECK(readable(lockclient_ticket_fd(ticket), 0));
    EXPECT(LOCKCLIENT_CANCELLED, lockclient_ticket_poll(ticket, &grant));
    ZEROED(grant);
    lockclient_ticket_free(ticket);
    EXPECT(LOCKCLIENT_OK, lockclient_close(lonely, 1000));
}

/* What is freed with its grant untaken is given back; what is freed unfinished is cancelled. */
static void freed(lockclient *client)
{
    lockclient_ticket *ticket = start(client, "freed", 10000);
    CHECK(readable(lockclient_ticket_fd(ticket), 30000));
    lockclient_ticket_free(ticket);
    uint64_t token = hold(client, "freed");

    ticket = start(client, "freed", 60000);
    lockclient_ticket_free(ticket);
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "freed", NUL, token));
    token = hold(client, "freed");
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "freed", NUL, token));
    lockclient_ticket_free(NULL);
}

/* A grant that nobody takes by the deadline goes back by itself. */
static void untaken(lockclient *client)
{
    lockclient_grant grant = garbage();
    lockclient_ticket *ticket = start(client, "untaken", 1000);
    CHECK(readable(lockclient_ticket_fd(ticket), 30000));
    sleep_ms(1100);
    EXPECT(LOCKCLIENT_INDETERMINATE, lockclient_ticket_poll(ticket, &grant));
    ZEROED(grant);
    uint64_t token = hold(client, "untaken");
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "untaken", NUL, token));
    lockclient_ticket_free(ticket);
    CHECK(stats_of(client).late_grants >= 1 && stats_of(client).compensations >= 1);
}

static void other_outcomes(const char *scripted)
{
    lockclient_grant grant = garbage();
    lockclient *client = open_ready(scripted);
    const struct {
        const char *key;
        lockclient_status status;
    } cases[] = {
        {"busy/t", LOCKCLIENT_BUSY},
        {"timeout/t", LOCKCLIENT_TIMED_OUT},
        {"drop/t", LOCKCLIENT_INDETERMINATE},
        {"grant/t", LOCKCLIENT_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lockclient_ticket *ticket = start(client, cases[i].key, 20000);
        CHECK(readable(lockclient_ticket_fd(ticket), 30000));
        grant = garbage();
        EXPECT(cases[i].status, lockclient_ticket_wait(ticket, &grant));
        CHECK(cases[i].status == LOCKCLIENT_OK || is_zero(&grant, sizeof grant));
        lockclient_ticket_free(ticket);
    }

    /* Tickets outlive their client, and its end decides what they had not decided. */
    lockclient_ticket *sent = start(client, "silent/t", 200000);
    lockclient_ticket *granted = start(client, "grant/u", 200000);
    CHECK(readable(lockclient_ticket_fd(granted), 30000));
    AWAIT(client, in_flight_now, 1);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
    EXPECT(LOCKCLIENT_INDETERMINATE, lockclient_ticket_wait(sent, &grant));
    ZEROED(grant);
    CHECK(readable(lockclient_ticket_fd(granted), 0));
    lockclient_status status = lockclient_ticket_poll(granted, &grant);
    CHECK(status == LOCKCLIENT_OK || status == LOCKCLIENT_INDETERMINATE);
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_cancel(sent));
    lockclient_ticket_free(sent);
    lockclient_ticket_free(granted);
}

#define MANY 3000

/* Thousands in flight, one descriptor, one thread. */
static void completions(const char *endpoint)
{
    static lockclient_ticket *tickets[MANY];
    static unsigned char seen[MANY];
    static uint64_t tokens[MANY];
    char key[32];
    lockclient *client = open_ready(endpoint);
    int descriptor = lockclient_completion_fd(client);
    CHECK(descriptor >= 0 && descriptor == lockclient_completion_fd(client));
    CHECK(!readable(descriptor, 0));
    CHECK(lockclient_next_completed(client) == NULL);

    for (uintptr_t i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "many/%u", (unsigned)i);
        tickets[i] = start(client, key, 100000);
        CHECK(lockclient_ticket_user(tickets[i]) == NULL);
        lockclient_ticket_set_user(tickets[i], &seen[i]);
    }
    /* One in ten is freed with its result, before anybody looks: it must not come. (Freed without
     * one it would be cancelled, and take its connection's other requests with it.) */
    AWAIT(client, acquired, MANY);
    for (size_t i = 0; i < MANY; i += 10) {
        lockclient_ticket_free(tickets[i]);
        tickets[i] = NULL;
    }
    size_t left = MANY - (MANY + 9) / 10;
    while (left > 0) {
        CHECK(readable(descriptor, 60000));
        for (lockclient_ticket *ticket; (ticket = lockclient_next_completed(client)) != NULL;) {
            lockclient_grant grant = garbage();
            unsigned char *mark = lockclient_ticket_user(ticket);
            size_t i = (size_t)(mark - seen);
            CHECK(i < MANY && tickets[i] == ticket);
            CHECK(++*mark == 1);
            EXPECT(LOCKCLIENT_OK, lockclient_ticket_poll(ticket, &grant));
            tokens[i] = grant.token;
            CHECK(tokens[i] != 0);
            lockclient_ticket_free(ticket);
            left--;
        }
    }
    CHECK(!readable(descriptor, 0));
    /* Given back without waiting: when the lane is full, it has room again soon. */
    for (size_t i = 0; i < MANY; i++) {
        if (i % 10 == 0)
            continue;
        snprintf(key, sizeof key, "many/%u", (unsigned)i);
        uint64_t until = now_ms() + 60000;
        lockclient_status status;
        while ((status = lockclient_release_start(client, key, NUL, tokens[i])) ==
                   LOCKCLIENT_E_QUEUE_FULL &&
               now_ms() < until)
            sleep_ms(1);
        EXPECT(LOCKCLIENT_OK, status);
    }
    EXPECT(LOCKCLIENT_OK, lockclient_shutdown(client, 20000));
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 0));
}

/* A closing client's tickets come out of its queue too. */
static void completions_of_a_shut_client(const char *nowhere)
{
    lockclient_grant grant;
    lockclient *client = open_client(nowhere);
    lockclient_ticket *ticket = start(client, "k", 60000);
    int descriptor = lockclient_completion_fd(client);
    CHECK(!readable(descriptor, 0));
    EXPECT(LOCKCLIENT_OK, lockclient_shutdown(client, 1000));
    CHECK(readable(descriptor, 0));
    CHECK(lockclient_next_completed(client) == ticket);
    CHECK(lockclient_next_completed(client) == NULL);
    EXPECT(LOCKCLIENT_CANCELLED, lockclient_ticket_poll(ticket, &grant));
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 0));
    lockclient_ticket_free(ticket);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    lockclient *client = open_ready(argv[1]);
    taken_once(client);
    waited_for(client);
    cancelled(client, argv[3]);
    freed(client);
    untaken(client);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
    other_outcomes(argv[2]);
    completions(argv[1]);
    completions_of_a_shut_client(argv[3]);
    return done();
}
