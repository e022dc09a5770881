/* Prints what wire_decoder.c makes of the test vectors in tests/wire, in the files' own words:
 *
 *     wire_vectors frames FILE      sender name frame outcome [| outcome]...
 *     wire_vectors keys FILE        name key verdict
 *
 * The outcomes in the file are not looked at. */
#include "wire_decoder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE 16384
#define MAX_BYTES 4096

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "wire_vectors: %s: %s\n", what, detail);
    exit(2);
}

static unsigned hex_digit(char digit, const char *text)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = digit == '\0' ? NULL : strchr(digits, digit);
    if (at == NULL)
        fail("not hex", text);
    return (unsigned)(at - digits);
}

static size_t unhex(const char *text, unsigned char out[MAX_BYTES])
{
    size_t len = 0;
    if (strcmp(text, "-") == 0)
        return 0;
    for (const char *at = text; *at != '\0'; at += 2) {
        if (len == MAX_BYTES)
            fail("too long", text);
        out[len++] = (unsigned char)(hex_digit(at[0], text) << 4 | hex_digit(at[1], text));
    }
    return len;
}

static void print_hex(const char *field, const unsigned char *bytes, size_t len)
{
    printf(" %s=", field);
    if (len == 0)
        putchar('-');
    for (size_t i = 0; i < len; i++)
        printf("%02x", (unsigned)bytes[i]);
}

static void print_owner(const struct wire_frame *frame)
{
    printf(" owner=%" PRIu64, frame->owner);
}

static void print_token(const struct wire_frame *frame)
{
    printf(" token=%" PRIu64, frame->token);
}

static void print_key(const struct wire_frame *frame)
{
    print_hex("key", frame->text, frame->text_len);
}

static void print_echo(const char *kind, const struct wire_frame *frame)
{
    fputs(kind, stdout);
    print_owner(frame);
    print_key(frame);
}

static void print_client_frame(const struct wire_frame *frame)
{
    switch (frame->op) {
    case 'A':
        printf("acquire wait=%u lease=%u", (unsigned)frame->wait, (unsigned)frame->lease);
        print_owner(frame);
        print_key(frame);
        break;
    case 'R':
        fputs("release", stdout);
        print_owner(frame);
        print_token(frame);
        print_key(frame);
        break;
    case 'H':
        fputs("proof", stdout);
        print_hex("nonce", frame->nonce, WIRE_BLOCK);
        print_hex("proof", frame->proof, WIRE_BLOCK);
        break;
    default: fail("a frame with an op", "that no client sends");
    }
}

static void print_server_frame(const struct wire_frame *frame)
{
    switch (frame->op) {
    case 'A':
        fputs("acquired", stdout);
        print_owner(frame);
        print_token(frame);
        print_key(frame);
        break;
    case 'T': print_echo("timed_out", frame); break;
    case 'B': print_echo("busy", frame); break;
    case 'R': print_echo("released", frame); break;
    case 'N': print_echo("not_held", frame); break;
    case 'M':
        fputs("moved", stdout);
        print_hex("leader", frame->text, frame->text_len);
        break;
    case 'L':
        fputs("leader", stdout);
        print_hex("leader", frame->text, frame->text_len);
        break;
    case 'E':
        fputs("error", stdout);
        print_hex("code", frame->text, frame->text_len);
        break;
    case 'C':
        fputs("challenge", stdout);
        print_hex("nonce", frame->nonce, WIRE_BLOCK);
        break;
    case 'H':
        fputs("accepted", stdout);
        print_hex("proof", frame->proof, WIRE_BLOCK);
        break;
    default: fail("a frame with an op", "that no server sends");
    }
}

static const char *error_name(enum wire_status status)
{
    switch (status) {
    case WIRE_UNKNOWN_OP: return "unknown_op";
    case WIRE_OVERSIZED: return "oversized";
    case WIRE_TRUNCATED: return "truncated";
    case WIRE_UNEXPECTED_TEXT: return "unexpected_text";
    case WIRE_ZERO_LEASE: return "zero_lease";
    case WIRE_ZERO_OWNER: return "zero_owner";
    case WIRE_ZERO_TOKEN: return "zero_token";
    case WIRE_MORE:
    case WIRE_FRAME: break;
    }
    return NULL;
}

/* The outcomes of a stream that ends after len bytes. */
static void print_outcomes(enum wire_sender sender, const unsigned char *bytes, size_t len)
{
    struct wire_decoder decoder;
    struct wire_frame frame;
    enum wire_status status = WIRE_MORE;
    const char *between = "";
    size_t start = 0;

    wire_decoder_init(&decoder, sender);
    for (size_t at = 0; at < len && error_name(status) == NULL; at++) {
        status = wire_decoder_push(&decoder, bytes[at], &frame);
        if (status == WIRE_FRAME) {
            unsigned char again[WIRE_FROM_CLIENT_LIMIT];
            size_t frame_len = at + 1 - start;
            size_t again_len = wire_encode(&frame, again);
            fputs(between, stdout);
            if (sender == WIRE_CLIENT)
                print_client_frame(&frame);
            else
                print_server_frame(&frame);
            if (again_len != frame_len || memcmp(again, bytes + start, frame_len) != 0)
                print_hex("again", again, again_len);
            between = " | ";
            start = at + 1;
        }
    }
    if (error_name(status) == NULL)
        status = wire_decoder_end(&decoder);
    if (error_name(status) != NULL)
        printf("%serror=%s", between, error_name(status));
    putchar('\n');
}

static void frames_line(char *line)
{
    static unsigned char bytes[MAX_BYTES];
    const char *sender = strtok(line, " ");
    const char *name = strtok(NULL, " ");
    const char *frame = strtok(NULL, " ");
    enum wire_sender from = WIRE_CLIENT;
    size_t len;

    if (frame == NULL)
        fail("short line", line);
    if (strcmp(sender, "server") == 0)
        from = WIRE_SERVER;
    else if (strcmp(sender, "client") != 0)
        fail("no such sender", sender);
    printf("%s %s %s ", sender, name, frame);
    len = unhex(frame, bytes);
    print_outcomes(from, bytes, len);
}

static void keys_line(char *line)
{
    static const char *const verdicts[] = {"ok",    "empty",   "too_long", "not_utf8",
                                           "space", "newline", "cr"};
    static unsigned char bytes[MAX_BYTES];
    const char *name = strtok(line, " ");
    const char *key = strtok(NULL, " ");
    size_t len;

    if (key == NULL)
        fail("short line", line);
    len = unhex(key, bytes);
    printf("%s %s %s\n", name, key, verdicts[wire_check_key(bytes, len)]);
}

int main(int argc, char **argv)
{
    static char line[MAX_LINE];
    void (*print)(char *) = NULL;
    FILE *file;

    if (argc == 3 && strcmp(argv[1], "frames") == 0)
        print = frames_line;
    else if (argc == 3 && strcmp(argv[1], "keys") == 0)
        print = keys_line;
    else
        fail("usage", "wire_vectors frames|keys FILE");
    file = fopen(argv[2], "r");
    if (file == NULL)
        fail("cannot open", argv[2]);
    while (fgets(line, sizeof line, file) != NULL) {
        size_t len = strlen(line);
        if (len == 0 || line[len - 1] != '\n')
            fail("a line is too long or has no end", line);
        line[len - 1] = '\0';
        if (len > 1 && line[0] != '#')
            print(line);
    }
    if (ferror(file) != 0 || fclose(file) != 0)
        fail("cannot read", argv[2]);
    if (fflush(stdout) != 0)
        fail("cannot write", "standard output");
    return 0;
}
