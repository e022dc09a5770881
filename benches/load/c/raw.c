/* The least that any lock over TCP can cost: frames of the same sizes, sent and read by a blocking
 * thread with a connection of its own, to an echo server that decides nothing.
 */
#include "frames.h"
#include "load.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *address;

static void open_raw(const char *server)
{
    address = server;
}

static void *join(int thread)
{
    (void)thread;
    int *state = malloc(sizeof *state);
    *state = load_connect(address);
    return state;
}

static void exchange(int connection, const char *request, size_t size, char *answer, size_t wanted)
{
    if (send(connection, request, size, MSG_NOSIGNAL) != (ssize_t)size)
        load_fail("the request did not go out");
    for (size_t have = 0; have < wanted;) {
        ssize_t count = recv(connection, answer + have, wanted - have, 0);
        if (count <= 0)
            load_fail("no answer");
        have += (size_t)count;
    }
}

static uint64_t acquire(void *state, const char *key, size_t length)
{
    char request[ACQUIRE_SIZE] = {'A', 5, 30}, answer[ACQUIRED_SIZE];
    if (length != KEY_LENGTH)
        load_fail("a key of another length");
    memcpy(request + ACQUIRE_SIZE - 1 - KEY_LENGTH, key, KEY_LENGTH);
    request[ACQUIRE_SIZE - 1] = '\n';
    exchange(*(int *)state, request, sizeof request, answer, sizeof answer);
    if (answer[0] != 'A')
        load_fail("another answer");
    return 1;
}

static void release(void *state, const char *key, size_t length, uint64_t token)
{
    char request[RELEASE_SIZE] = {'R'}, answer[RELEASED_SIZE];
    memcpy(request + 9, &token, sizeof token);
    memcpy(request + RELEASE_SIZE - 1 - KEY_LENGTH, key, length);
    request[RELEASE_SIZE - 1] = '\n';
    exchange(*(int *)state, request, sizeof request, answer, sizeof answer);
    if (answer[0] != 'R')
        load_fail("another answer");
}

static void leave(void *state)
{
    close(*(int *)state);
    free(state);
}

static void close_raw(void)
{
}

int main(int count, char **arguments)
{
    static const struct contender raw = {open_raw, join, acquire, release, leave, close_raw};
    return load_main(count, arguments, &raw);
}
