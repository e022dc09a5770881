/* A child may open clients of its own, whatever the parent's were doing. argv: a server */
#include "host.h"

#define FORKS 80
#define AT_ONCE 4
#define LOGGED 4
#define THREADS 3
#define OWN 5

static void ignores(void *user, int32_t level, const char *line)
{
    (void)user, (void)level, (void)line;
}

/* With a log callback, that is, with one more thread that mostly sleeps. */
static lockclient *open_logged(const char *endpoint)
{
    lockclient *client = NULL;
    lockclient_config *config = lockclient_config_new();
    CHECK(config != NULL);
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, endpoint));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_log(config, ignores, NULL));
    EXPECT(LOCKCLIENT_OK, lockclient_open(config, &client));
    lockclient_config_free(config);
    return client;
}

/* Any program's children differ a little in what lies where: so that these do too. */
static void scatter(unsigned *seed, unsigned most)
{
    for (unsigned i = (unsigned)rand_r(seed) % most; i > 0; i--) {
        volatile char *block = malloc(16 + (size_t)rand_r(seed) % 3000);
        CHECK(block != NULL);
        block[0] = 1;
    }
}

static void child_of(const char *endpoint, unsigned seed)
{
    lockclient *own[OWN];
    char key[40];
    alarm(60); /* ends it if it hangs */
    scatter(&seed, 400);
    for (int i = 0; i < OWN; i++) {
        own[i] = open_logged(endpoint);
        scatter(&seed, 50);
    }
    for (int i = 0; i < OWN; i++) {
        EXPECT(LOCKCLIENT_OK, lockclient_wait_ready(own[i], 30000));
        snprintf(key, sizeof key, "%d-of-%d", i, (int)getpid());
        EXPECT(LOCKCLIENT_OK, lockclient_release(own[i], key, NUL, hold(own[i], key)));
        EXPECT(LOCKCLIENT_OK, lockclient_close(own[i], 20000));
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    lockclient *logged[LOGGED];
    pthread_t threads[THREADS];
    pid_t children[AT_ONCE];
    CHECK(argc == 2);
    for (int i = 0; i < LOGGED; i++)
        logged[i] = open_logged(argv[1]);
    lockclient *client = open_ready(argv[1]);
    for (int i = 0; i < LOGGED; i++)
        EXPECT(LOCKCLIENT_OK, lockclient_wait_ready(logged[i], 30000));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, keeps_busy, client) == 0);

    for (int i = 0; i < FORKS; i += AT_ONCE) {
        for (int j = 0; j < AT_ONCE; j++) {
            children[j] = fork();
            if (children[j] == 0)
                child_of(argv[1], (unsigned)(i + j));
        }
        for (int j = 0; j < AT_ONCE; j++)
            reap(children[j]);
    }

    atomic_store(&busy_enough, true);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < LOGGED; i++)
        EXPECT(LOCKCLIENT_OK, lockclient_close(logged[i], 20000));
    lockclient_close(client, 5000);
    puts("done");
    return 0;
}
