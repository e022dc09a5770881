/* Every outcome that a server can cause, from a server that does what the key says.
 * argv: that server. */
#include "check.h"

/* On a machine under load a second may pass before there is a connection: then it is tried again,
 * which the statistics do not count among what is looked at here. */
static uint64_t timed(lockclient *client, const char *key, uint64_t wait_ms,
                      lockclient_status wanted)
{
    lockclient_grant grant = garbage();
    uint64_t start = now_ms();
    lockclient_status status = acquire(client, key, wait_ms, &grant);
    for (int tries = 1; status == LOCKCLIENT_NOT_SENT && tries < 30; tries++) {
        start = now_ms();
        status = acquire(client, key, wait_ms, &grant);
    }
    EXPECT(wanted, status);
    CHECK(wanted == LOCKCLIENT_OK || is_zero(&grant, sizeof grant));
    return now_ms() - start;
}

static void acquires(lockclient *client)
{
    CHECK(timed(client, "grant/1", 1000, LOCKCLIENT_OK) < 5000);
    CHECK(timed(client, "busy/1", 5000, LOCKCLIENT_BUSY) < 4000);
    CHECK(timed(client, "timeout/1", 5000, LOCKCLIENT_TIMED_OUT) < 4000);

    /* No answer: unknown, at the deadline and the grace. */
    uint64_t took = timed(client, "silent/1", 1000, LOCKCLIENT_INDETERMINATE);
    CHECK(took >= 1500 && took < 10000);
    CHECK(strstr(lockclient_last_error(), "deadline") != NULL);
    CHECK(!lockclient_status_is_definite(LOCKCLIENT_INDETERMINATE));

    /* A connection that ends under a request: unknown at once, and never tried again. */
    CHECK(timed(client, "drop/1", 20000, LOCKCLIENT_INDETERMINATE) < 10000);
    CHECK(strlen(lockclient_last_error()) > 0);
    CHECK(timed(client, "reset/1", 20000, LOCKCLIENT_INDETERMINATE) < 10000);
    CHECK(strstr(lockclient_last_error(), "reset by peer") != NULL);
    CHECK(timed(client, "malformed/1", 20000, LOCKCLIENT_INDETERMINATE) < 10000);

    /* And the client goes on. */
    CHECK(timed(client, "grant/2", 20000, LOCKCLIENT_OK) < 15000);
    lockclient_stats stats = stats_of(client);
    SAME(2, stats.acquired);
    SAME(1, stats.busy);
    SAME(1, stats.timed_out);
    SAME(4, stats.indeterminate);
}

static void releases(lockclient *client)
{
    uint64_t start = now_ms();
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "grant/1", NUL, 1));
    EXPECT(LOCKCLIENT_NOT_HELD, lockclient_release(client, "gone/1", NUL, 1));
    CHECK(strstr(lockclient_last_error(), "more than once") == NULL);
    CHECK(now_ms() - start < 4000);

    /* The first try's connection ends, the second meets a lock that is gone: maybe by the first. */
    EXPECT(LOCKCLIENT_NOT_HELD, lockclient_release(client, "retried/1", NUL, 1));
    CHECK(strstr(lockclient_last_error(), "more than once") != NULL);

    start = now_ms();
    EXPECT(LOCKCLIENT_INDETERMINATE, lockclient_release(client, "silent/1", NUL, 1));
    CHECK(now_ms() - start >= 5000 && now_ms() - start < 20000);
}

/* The settings arrive in the client. */
static void settings(const char *endpoint)
{
    lockclient_config *config = lockclient_config_new();
    lockclient *client = NULL;
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, endpoint));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_response_grace_ms(config, 2000));
    EXPECT(LOCKCLIENT_OK, lockclient_open(config, &client));
    CHECK(timed(client, "silent/1", 1000, LOCKCLIENT_INDETERMINATE) >= 3000);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 1000));

    EXPECT(LOCKCLIENT_OK, lockclient_config_set_response_grace_ms(config, 30000));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_strict_deadline(config, true));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_busy_retry(config, true));
    EXPECT(LOCKCLIENT_OK, lockclient_open(config, &client));
    uint64_t took = timed(client, "silent/1", 1000, LOCKCLIENT_INDETERMINATE);
    CHECK(took >= 1000 && took < 20000);
    took = timed(client, "busy/1", 1000, LOCKCLIENT_BUSY);
    CHECK(took < 10000);
    CHECK(stats_of(client).busy >= 1);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 1000));
    lockclient_config_free(config);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    lockclient *client = open_ready(argv[1]);
    acquires(client);
    releases(client);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
    settings(argv[1]);
    return done();
}
