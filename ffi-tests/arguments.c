/* Every NULL and every argument that cannot be used: an error, `out` zeroed, nothing sent, errno as
 * it was. argv: a server. */
#include "check.h"

#define INVALID LOCKCLIENT_E_INVALID_ARGUMENT

static void a_log(void *user, int32_t level, const char *message)
{
    (void)user, (void)level, (void)message;
}

static void configuration(const char *endpoint)
{
    uint8_t secret[257] = {0};
    char port[32];
    lockclient_config *config = lockclient_config_new();
    CHECK(config != NULL);

    EXPECT(INVALID, lockclient_config_add_endpoint(NULL, endpoint));
    EXPECT(INVALID, lockclient_config_add_endpoint(config, NULL));
    CHECK(strcmp(lockclient_last_error(), "host_port is NULL") == 0);
    const char *bad[] = {"", ":", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "::1:1",
                         "[::1]", "a b:1", "host:-1", "h\xff:1", "[::1:1", "a\nb:1", "unix:", "unix:lockd.sock",
                         "unix:./x", "UNIX:/x", "/x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        EXPECT(INVALID, lockclient_config_add_endpoint(config, bad[i]));
        CHECK(strlen(lockclient_last_error()) > 10);
    }
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, "[::1]:1"));
    EXPECT(INVALID, lockclient_config_add_endpoint(config, "[0:0::1]:01"));
    for (int i = 1; i < 64; i++) {
        snprintf(port, sizeof port, "localhost:%d", i);
        EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, port));
    }
    EXPECT(INVALID, lockclient_config_add_endpoint(config, "localhost:99"));

    EXPECT(INVALID, lockclient_config_set_secret(NULL, secret, 16));
    EXPECT(INVALID, lockclient_config_set_secret(config, NULL, 16));
    EXPECT(INVALID, lockclient_config_set_secret(config, secret, 15));
    EXPECT(INVALID, lockclient_config_set_secret(config, secret, 257));
    EXPECT(INVALID, lockclient_config_set_secret(config, secret, SIZE_MAX));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_secret(config, secret, 16));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_secret(config, secret, 256));

    EXPECT(INVALID, lockclient_config_set_connections(NULL, 1));
    EXPECT(INVALID, lockclient_config_set_connections(config, 0));
    EXPECT(INVALID, lockclient_config_set_connections(config, 65));
    EXPECT(INVALID, lockclient_config_set_connections(config, UINT32_MAX));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_connections(config, 64));

    EXPECT(INVALID, lockclient_config_set_connect_timeout_ms(NULL, 1000));
    EXPECT(INVALID, lockclient_config_set_connect_timeout_ms(config, 9));
    EXPECT(INVALID, lockclient_config_set_connect_timeout_ms(config, 60001));
    EXPECT(INVALID, lockclient_config_set_connect_timeout_ms(config, UINT64_MAX));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_connect_timeout_ms(config, 10));

    EXPECT(INVALID, lockclient_config_set_response_grace_ms(NULL, 1000));
    EXPECT(INVALID, lockclient_config_set_response_grace_ms(config, 49));
    EXPECT(INVALID, lockclient_config_set_response_grace_ms(config, 60001));
    EXPECT(INVALID, lockclient_config_set_response_grace_ms(config, UINT64_MAX));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_response_grace_ms(config, 60000));

    EXPECT(INVALID, lockclient_config_set_idle_probe_ms(NULL, 1000));
    EXPECT(INVALID, lockclient_config_set_idle_probe_ms(config, 999));
    EXPECT(INVALID, lockclient_config_set_idle_probe_ms(config, 3600001));
    EXPECT(INVALID, lockclient_config_set_idle_probe_ms(config, UINT64_MAX));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_idle_probe_ms(config, 1000));

    EXPECT(INVALID, lockclient_config_set_queue_limit(NULL, 1));
    EXPECT(INVALID, lockclient_config_set_queue_limit(config, 0));
    EXPECT(INVALID, lockclient_config_set_queue_limit(config, 1048577));
    EXPECT(INVALID, lockclient_config_set_queue_limit(config, SIZE_MAX));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_queue_limit(config, 1048576));

    EXPECT(INVALID, lockclient_config_set_strict_deadline(NULL, true));
    EXPECT(INVALID, lockclient_config_set_enforce_budget(NULL, true));
    EXPECT(INVALID, lockclient_config_set_busy_retry(NULL, true));
    EXPECT(INVALID, lockclient_config_set_ordered_answers(NULL, true));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_strict_deadline(config, true));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_enforce_budget(config, true));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_busy_retry(config, true));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_ordered_answers(config, false));

    EXPECT(INVALID, lockclient_config_set_log(NULL, a_log, NULL));
    EXPECT(INVALID, lockclient_config_set_log(config, NULL, config));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_log(config, a_log, NULL));

    lockclient_config_free(config);
    lockclient_config_free(NULL);
}

static void opening(void)
{
    lockclient_config *config = lockclient_config_new();
    lockclient *client = (lockclient *)(uintptr_t)1;
    EXPECT(INVALID, lockclient_open(config, NULL));
    EXPECT(INVALID, lockclient_open(NULL, &client));
    CHECK(client == NULL);
    client = (lockclient *)(uintptr_t)1;
    EXPECT(INVALID, lockclient_open(config, &client)); /* it has no endpoint */
    CHECK(client == NULL);
    lockclient_config_free(config);
}

static void null_handles(lockclient *client)
{
    lockclient_grant grant;
    lockclient_ticket *ticket;
    lockclient_stats stats;

    EXPECT(INVALID, lockclient_wait_ready(NULL, 0));
    EXPECT(INVALID, lockclient_shutdown(NULL, 0));
    EXPECT(INVALID, lockclient_close(NULL, 0));

    grant = garbage();
    EXPECT(INVALID, lockclient_acquire(NULL, "k", NUL, 0, 1000, 0, &grant));
    ZEROED(grant);
    grant = garbage();
    EXPECT(INVALID, lockclient_acquire(client, NULL, NUL, 0, 1000, 0, &grant));
    ZEROED(grant);
    grant = garbage();
    EXPECT(INVALID, lockclient_acquire(client, NULL, 1, 0, 1000, 0, &grant));
    ZEROED(grant);
    EXPECT(INVALID, lockclient_acquire(client, "k", NUL, 0, 1000, 0, NULL));
    CHECK(strcmp(lockclient_last_error(), "out is NULL") == 0);

    EXPECT(INVALID, lockclient_release(NULL, "k", NUL, 1));
    EXPECT(INVALID, lockclient_release(client, NULL, NUL, 1));
    EXPECT(INVALID, lockclient_release_start(NULL, "k", NUL, 1));
    EXPECT(INVALID, lockclient_release_start(client, NULL, 0, 1));

    ticket = (lockclient_ticket *)(uintptr_t)1;
    EXPECT(INVALID, lockclient_acquire_start(NULL, "k", NUL, 0, 1000, 0, &ticket));
    CHECK(ticket == NULL);
    ticket = (lockclient_ticket *)(uintptr_t)1;
    EXPECT(INVALID, lockclient_acquire_start(client, NULL, NUL, 0, 1000, 0, &ticket));
    CHECK(ticket == NULL);
    EXPECT(INVALID, lockclient_acquire_start(client, "k", NUL, 0, 1000, 0, NULL));

    grant = garbage();
    EXPECT(INVALID, lockclient_ticket_wait(NULL, &grant));
    ZEROED(grant);
    grant = garbage();
    EXPECT(INVALID, lockclient_ticket_poll(NULL, &grant));
    ZEROED(grant);
    EXPECT(INVALID, lockclient_ticket_cancel(NULL));
    CHECK(lockclient_ticket_fd(NULL) == -1);
    CHECK(strcmp(lockclient_last_error(), "ticket is NULL") == 0);
    CHECK(lockclient_ticket_user(NULL) == NULL);
    lockclient_ticket_set_user(NULL, &grant);
    lockclient_ticket_free(NULL);

    CHECK(lockclient_completion_fd(NULL) == -1);
    CHECK(lockclient_next_completed(NULL) == NULL);

    memset(&stats, 0xa5, sizeof stats);
    EXPECT(INVALID, lockclient_get_stats(NULL, &stats, sizeof stats));
    ZEROED(stats);
    EXPECT(INVALID, lockclient_get_stats(client, NULL, sizeof stats));

    /* A ticket that lives, and no room for its result: the result stays. */
    EXPECT(LOCKCLIENT_OK, lockclient_acquire_start(client, "room", NUL, 0, 1000, 0, &ticket));
    EXPECT(INVALID, lockclient_ticket_wait(ticket, NULL));
    EXPECT(INVALID, lockclient_ticket_poll(ticket, NULL));
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_wait(ticket, &grant));
    lockclient_ticket_free(ticket);
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "room", NUL, grant.token));
}

/* All four functions that take a key say the same of it. */
static void bad_key(lockclient *client, const char *key, size_t key_len, const char *why)
{
    lockclient_grant grant = garbage();
    lockclient_ticket *ticket = (lockclient_ticket *)(uintptr_t)1;
    EXPECT(LOCKCLIENT_E_BAD_KEY, lockclient_acquire(client, key, key_len, 0, 1000, 0, &grant));
    ZEROED(grant);
    if (strstr(lockclient_last_error(), why) == NULL)
        fail(__FILE__, __LINE__, why);
    EXPECT(LOCKCLIENT_E_BAD_KEY,
           lockclient_acquire_start(client, key, key_len, 0, 1000, 0, &ticket));
    CHECK(ticket == NULL);
    EXPECT(LOCKCLIENT_E_BAD_KEY, lockclient_release(client, key, key_len, 1));
    EXPECT(LOCKCLIENT_E_BAD_KEY, lockclient_release_start(client, key, key_len, 1));
}

static void keys(lockclient *client)
{
    char longest[130];
    lockclient_grant grant;
    memset(longest, 'k', sizeof longest);
    longest[129] = '\0';

    bad_key(client, "", NUL, "empty");
    bad_key(client, "k", 0, "empty");
    bad_key(client, longest, NUL, "128");
    bad_key(client, longest, 129, "129");
    bad_key(client, "k", SIZE_MAX - 1, "128");
    bad_key(client, "k", SIZE_MAX / 2, "128");
    bad_key(client, "a b", NUL, "space");
    bad_key(client, "a\nb", NUL, "newline");
    bad_key(client, "a\r", NUL, "carriage return");
    bad_key(client, "\xff", NUL, "UTF-8");
    bad_key(client, "\xea\xb0\x80", 2, "UTF-8");

    longest[128] = '\0';
    EXPECT(LOCKCLIENT_OK, lockclient_acquire(client, longest, NUL, 0, 1000, 0, &grant));
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, longest, 128, grant.token));
    /* A counted key may hold a NUL, and is another than the one up to it. */
    EXPECT(LOCKCLIENT_OK, lockclient_acquire(client, "nul\0x", 5, 0, 1000, 0, &grant));
    EXPECT(LOCKCLIENT_NOT_HELD, lockclient_release(client, "nul\0x", NUL, grant.token));
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "nul\0x", 5, grant.token));
}

static void durations(lockclient *client)
{
    const uint64_t second = 1000, never = UINT64_MAX;
    const struct {
        uint64_t wait, lease, budget;
        lockclient_status status;
    } cases[] = {
        {255 * second + 1, second, 0, LOCKCLIENT_E_UNSUPPORTED_DURATION},
        {never, second, 0, LOCKCLIENT_E_UNSUPPORTED_DURATION},
        {never - 999, second, 0, LOCKCLIENT_E_UNSUPPORTED_DURATION},
        {0, 0, 0, LOCKCLIENT_E_UNSUPPORTED_DURATION},
        {0, 255 * second + 1, 0, LOCKCLIENT_E_UNSUPPORTED_DURATION},
        {0, never, 0, LOCKCLIENT_E_UNSUPPORTED_DURATION},
        {0, 255 * second, 250 * second + 1, LOCKCLIENT_E_UNSUPPORTED_DURATION},
        {0, 255 * second, never, LOCKCLIENT_E_UNSUPPORTED_DURATION},
        {0, second, second + 1, LOCKCLIENT_E_INSUFFICIENT_LEASE},
        {0, 30 * second, 31 * second, LOCKCLIENT_E_INSUFFICIENT_LEASE},
        {0, 1, 1, LOCKCLIENT_OK}, /* both are rounded up to a second */
        {255 * second, 255 * second, 250 * second, LOCKCLIENT_OK},
        {254 * second + 1, 254 * second + 1, 249 * second + 1, LOCKCLIENT_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lockclient_grant grant = garbage();
        lockclient_ticket *ticket = NULL;
        EXPECT(cases[i].status, lockclient_acquire(client, "time", NUL, cases[i].wait,
                                                   cases[i].lease, cases[i].budget, &grant));
        if (cases[i].status == LOCKCLIENT_OK) {
            uint64_t normalized = (cases[i].lease + 999) / 1000 * 1000;
            CHECK(grant.remaining_ms >= 1 && grant.remaining_ms < normalized);
            EXPECT(LOCKCLIENT_OK, lockclient_release(client, "time", NUL, grant.token));
            continue;
        }
        ZEROED(grant);
        EXPECT(cases[i].status, lockclient_acquire_start(client, "time", NUL, cases[i].wait,
                                                         cases[i].lease, cases[i].budget, &ticket));
        CHECK(ticket == NULL);
    }
}

static void statuses(void)
{
    for (int32_t i = -200; i < 200; i++) {
        CHECK(strncmp(lockclient_status_name(i), "LOCKCLIENT_", 11) == 0);
        CHECK(strlen(lockclient_status_text(i)) > 0);
    }
    CHECK(strcmp(lockclient_status_name(LOCKCLIENT_BUSY), "LOCKCLIENT_BUSY") == 0);
    CHECK(strcmp(lockclient_status_name(INT32_MIN), lockclient_status_name(INT32_MAX)) == 0);
    CHECK(lockclient_status_is_definite(LOCKCLIENT_OK));
    CHECK(lockclient_status_is_definite(LOCKCLIENT_E_WOULD_DEADLOCK));
    CHECK(!lockclient_status_is_definite(LOCKCLIENT_INDETERMINATE));
    CHECK(!lockclient_status_is_definite(LOCKCLIENT_PENDING));
    CHECK(!lockclient_status_is_definite(LOCKCLIENT_E_FORKED));
    CHECK(!lockclient_status_is_definite(LOCKCLIENT_E_TAKEN));
    CHECK(!lockclient_status_is_definite(LOCKCLIENT_E_PANIC));
    CHECK(!lockclient_status_is_definite(1000));
    SAME(LOCKCLIENT_ABI_VERSION, lockclient_abi_version());
    CHECK(strchr(lockclient_version(), '.') != NULL);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    CHECK(strcmp(lockclient_last_error(), "") == 0);
    lockclient *client = open_ready(argv[1]);
    errno = 4242;
    configuration(argv[1]);
    CHECK(errno == 4242);
    opening();
    CHECK(errno == 4242);
    null_handles(client);
    CHECK(errno == 4242);
    keys(client);
    CHECK(errno == 4242);
    durations(client);
    CHECK(errno == 4242);
    statuses();
    CHECK(errno == 4242);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
    CHECK(errno == 4242);
    return done();
}
