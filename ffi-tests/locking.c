/* Taking locks and giving them back. argv: a server, an address where nothing listens. */
#include "check.h"

static void one_lock(lockclient *mine, lockclient *other)
{
    lockclient_grant grant = garbage(), second = garbage();
    EXPECT(LOCKCLIENT_OK, acquire(mine, "one", 0, &grant));
    CHECK(grant.token != 0 && grant.owner != 0);
    CHECK(grant.remaining_ms > 20000 && grant.remaining_ms < LOCKCLIENT_DEFAULT_LEASE_MS);
    ZEROED(grant.reserved);

    /* Held: one attempt is answered at once, a wait when it is over. */
    uint64_t start = now_ms();
    EXPECT(LOCKCLIENT_TIMED_OUT, acquire(other, "one", 0, &second));
    ZEROED(second);
    EXPECT(LOCKCLIENT_TIMED_OUT, acquire(mine, "one", 0, &second));
    CHECK(now_ms() - start < 5000);
    start = now_ms();
    second = garbage();
    EXPECT(LOCKCLIENT_TIMED_OUT, acquire(other, "one", 700, &second)); /* a second, rounded up */
    ZEROED(second);
    CHECK(now_ms() - start >= 1000 && now_ms() - start < 20000);

    /* Only the token releases, whoever sends it. */
    EXPECT(LOCKCLIENT_NOT_HELD, lockclient_release(mine, "one", NUL, 0));
    EXPECT(LOCKCLIENT_NOT_HELD, lockclient_release(mine, "one", NUL, grant.token + 1));
    EXPECT(LOCKCLIENT_NOT_HELD, lockclient_release(mine, "another", NUL, grant.token));
    EXPECT(LOCKCLIENT_TIMED_OUT, acquire(other, "one", 0, &second));
    EXPECT(LOCKCLIENT_OK, lockclient_release(other, "one", NUL, grant.token));
    EXPECT(LOCKCLIENT_NOT_HELD, lockclient_release(mine, "one", NUL, grant.token));

    /* Tokens grow. */
    EXPECT(LOCKCLIENT_OK, acquire(other, "one", 0, &second));
    CHECK(second.token > grant.token && second.owner != 0);

    /* Released without waiting; an acquire of the same client comes after it. */
    EXPECT(LOCKCLIENT_OK, lockclient_release_start(other, "one", NUL, second.token));
    EXPECT(LOCKCLIENT_OK, acquire(other, "one", 0, &grant));
    EXPECT(LOCKCLIENT_OK, lockclient_release(mine, "one", NUL, grant.token));
}

static void a_lease_ends(lockclient *client)
{
    lockclient_grant grant = garbage(), next = garbage();
    EXPECT(LOCKCLIENT_OK, lockclient_acquire(client, "lease", NUL, 0, 1000, 0, &grant));
    CHECK(grant.remaining_ms >= 1 && grant.remaining_ms < 1000);
    EXPECT(LOCKCLIENT_OK, acquire(client, "lease", 20000, &next));
    CHECK(next.token > grant.token);
    EXPECT(LOCKCLIENT_NOT_HELD, lockclient_release(client, "lease", NUL, grant.token));
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "lease", NUL, next.token));
}

#define THREADS 4
#define ROUNDS 50

struct contender {
    lockclient *client;
    uint64_t *greatest; /* what the lock protects: the greatest token seen */
    int *inside;
};

static void *contend(void *argument)
{
    struct contender *self = argument;
    for (int i = 0; i < ROUNDS; i++) {
        lockclient_grant grant;
        EXPECT(LOCKCLIENT_OK, acquire(self->client, "contended", 200000, &grant));
        CHECK(++*self->inside == 1);
        CHECK(grant.token > *self->greatest);
        *self->greatest = grant.token;
        CHECK(--*self->inside == 0);
        EXPECT(LOCKCLIENT_OK, lockclient_release(self->client, "contended", NUL, grant.token));
    }
    return NULL;
}

/* Nothing but the lock keeps the threads apart: a data-race detector would see it fail. */
static void many_threads(lockclient *client)
{
    pthread_t threads[THREADS];
    uint64_t greatest = 0;
    int inside = 0;
    struct contender contender = {client, &greatest, &inside};
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, contend, &contender) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void nobody_there(const char *endpoint)
{
    lockclient_grant grant = garbage();
    lockclient *client = open_client(endpoint);
    uint64_t start = now_ms();
    errno = 4242;
    EXPECT(LOCKCLIENT_NOT_SENT, lockclient_wait_ready(client, 0));
    EXPECT(LOCKCLIENT_NOT_SENT, lockclient_wait_ready(client, 300));
    CHECK(strcmp(lockclient_last_error(), "No node serves yet.") == 0);
    CHECK(now_ms() - start >= 300 && now_ms() - start < 10000);
    start = now_ms();
    EXPECT(LOCKCLIENT_NOT_SENT, acquire(client, "k", 1000, &grant));
    ZEROED(grant);
    CHECK(now_ms() - start >= 1000 && now_ms() - start < 10000);
    CHECK(strstr(lockclient_last_error(), endpoint) != NULL);
    CHECK(strstr(lockclient_last_error(), "refused") != NULL);
    SAME(4242, errno);
    SAME(1, stats_of(client).not_sent);
    CHECK(stats_of(client).connects == 0 && stats_of(client).connects_failed > 0);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 1000));
}

static void counts(const char *endpoint)
{
    struct {
        lockclient_stats stats;
        unsigned char after[64];
    } larger;
    lockclient_stats stats;
    lockclient *client = open_ready(endpoint);
    lockclient_grant grant;
    uint64_t token = hold(client, "counted");
    EXPECT(LOCKCLIENT_OK, lockclient_wait_ready(client, 0));
    EXPECT(LOCKCLIENT_TIMED_OUT, acquire(client, "counted", 0, &grant));
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "counted", NUL, token));
    EXPECT(LOCKCLIENT_NOT_HELD, lockclient_release(client, "counted", NUL, token));
    AWAIT(client, not_held, 1);
    stats = stats_of(client);
    SAME(1, stats.acquired);
    SAME(1, stats.timed_out);
    SAME(1, stats.released);
    SAME(0, stats.indeterminate);
    SAME(0, stats.queued_now);
    CHECK(stats.connects >= 1 && stats.connections_now >= 1);

    /* A program with a shorter struct, and one with a longer one. */
    memset(&larger, 0xa5, sizeof larger);
    EXPECT(LOCKCLIENT_OK,
           lockclient_get_stats(client, &larger.stats, 2 * sizeof(uint64_t)));
    SAME(1, larger.stats.acquired);
    SAME(1, larger.stats.timed_out);
    SAME(0xa5a5a5a5a5a5a5a5, larger.stats.busy);
    memset(&larger, 0xa5, sizeof larger);
    EXPECT(LOCKCLIENT_OK, lockclient_get_stats(client, &larger.stats, sizeof larger));
    SAME(1, larger.stats.not_held);
    CHECK(is_zero(larger.after, sizeof larger.after));
    memset(&larger, 0xa5, sizeof larger);
    EXPECT(LOCKCLIENT_OK, lockclient_get_stats(client, &larger.stats, 0));
    SAME(0xa5a5a5a5a5a5a5a5, larger.stats.acquired);

    EXPECT(LOCKCLIENT_OK, lockclient_shutdown(client, 1000));
    SAME(1, stats_of(client).acquired);
    SAME(0, stats_of(client).connections_now);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 1000));
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    lockclient *mine = open_ready(argv[1]), *other = open_ready(argv[1]);
    one_lock(mine, other);
    a_lease_ends(mine);
    many_threads(mine);
    EXPECT(LOCKCLIENT_OK, lockclient_close(mine, 5000));
    EXPECT(LOCKCLIENT_OK, lockclient_close(other, 5000));
    counts(argv[1]);
    nobody_there(argv[2]);
    return done();
}
