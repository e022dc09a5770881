/* Host threads with small stacks. argv: a server. */
#include "host.h"

#include <limits.h>

static lockclient *client;

static void *starts(void *unused)
{
    (void)unused;
    return (void *)(uintptr_t)lockclient_abi_version();
}

static void *locks(void *unused)
{
    (void)unused;
    lockclient_grant grant;
    for (int i = 0; i < 20; i++) {
        EXPECT(LOCKCLIENT_E_BAD_KEY, acquire(client, "a b", 0, &grant));
        EXPECT(LOCKCLIENT_OK, lockclient_release(client, "small", NUL, hold(client, "small")));
    }
    return (void *)(uintptr_t)1;
}

static void with_stack(size_t size, void *(*body)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;
    void *result = NULL;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, size) == 0);
    CHECK(pthread_create(&thread, &attributes, body, NULL) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == (void *)(uintptr_t)1);
    pthread_attr_destroy(&attributes);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    /* The least that the system allows: what the library keeps for each thread comes out of it. */
    with_stack(16 * 1024, starts);
    client = open_ready(argv[1]);
    with_stack(16 * 1024, starts);
    with_stack(128 * 1024, locks);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
    return done();
}
