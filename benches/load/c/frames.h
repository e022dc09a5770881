/* The sizes of the lock protocol's frames for the keys that are used here. */
#ifndef FRAMES_H
#define FRAMES_H

enum {
    KEY_LENGTH = 24,
    ACQUIRE_SIZE = 1 + 10 + KEY_LENGTH + 1,
    ACQUIRED_SIZE = 1 + 16 + KEY_LENGTH + 1,
    RELEASE_SIZE = 1 + 16 + KEY_LENGTH + 1,
    RELEASED_SIZE = 1 + 8 + KEY_LENGTH + 1,
};

#endif
