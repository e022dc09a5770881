/* The first calls of a process, on several threads at once, while another thread forks: the child's
 * calls return, and errno is as it was. Each trial is a process that has not called the library. */
#include "host.h"

#define TRIALS 1500
#define THREADS 3
#define ERRNO 4242

static atomic_bool go;
static unsigned delay;

static void *calls(void *unused)
{
    (void)unused;
    while (!atomic_load(&go))
        ;
    for (volatile unsigned i = 0; i < delay; i++)
        ;
    errno = ERRNO;
    (void)lockclient_abi_version();
    SAME(ERRNO, errno);
    return NULL;
}

static void trial(unsigned number)
{
    pthread_t threads[THREADS];
    delay = (unsigned)rand_r(&number) % 60000; /* about as long as a fork takes */
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, calls, NULL) == 0);
    atomic_store(&go, true);
    pid_t child = fork();
    if (child == 0) {
        alarm(20); /* ends it if it hangs */
        (void)lockclient_abi_version();
        _exit(0);
    }
    reap(child);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    _exit(0);
}

int main(void)
{
    for (unsigned i = 0; i < TRIALS; i++) {
        pid_t subject = fork();
        if (subject == 0)
            trial(i);
        reap(subject);
    }
    puts("done");
    return 0;
}
