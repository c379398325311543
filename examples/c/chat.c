/*
 * A conversation: every line of standard input is a question, whose answer is printed as it is
 * computed.
 *
 *     chat [OPTIONS]     where OPTIONS are those of gannet_open, such as {"model": "model.gguf"}
 */
#include "gannet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that grows. */
struct text {
    char *bytes;
    size_t length;
    size_t capacity;
};

static void add(struct text *text, const char *bytes, size_t length)
{
    if (text->length + length + 1 > text->capacity) {
        text->capacity = 2 * (text->length + length + 1);
        text->bytes = (char *)realloc(text->bytes, text->capacity);
        if (text->bytes == NULL)
            abort();
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = 0;
}

/* Adds the characters of a line to a string of JSON. */
static void add_escaped(struct text *json, const char *line)
{
    for (; *line != 0; line++) {
        char escaped[8];
        if (*line == '"' || *line == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", *line);
        else if ((unsigned char)*line < ' ')
            snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*line);
        else
            snprintf(escaped, sizeof escaped, "%c", *line);
        add(json, escaped, strlen(escaped));
    }
}

/* Prints a string of JSON. The server escapes quotes and control characters only. */
static void print_unescaped(const char *string, size_t length)
{
    size_t at;
    for (at = 0; at < length; at++) {
        if (string[at] != '\\') {
            putchar(string[at]);
            continue;
        }
        switch (string[++at]) {
        case 'n':
            putchar('\n');
            break;
        case 't':
            putchar('\t');
            break;
        case 'u':
            at += 4;
            break;
        default:
            putchar(string[at]);
        }
    }
    fflush(stdout);
}

/* The text in an event of a stream, still a string of JSON; NULL where it has none. */
static const char *delta(const char *event, size_t *length)
{
    static const char member[] = "\"content\":\"";
    const char *begin = strstr(event, member);
    const char *end;
    if (begin == NULL)
        return NULL;
    begin += sizeof member - 1;
    for (end = begin; *end != '"' && *end != 0; end++)
        if (*end == '\\' && end[1] != 0)
            end++;
    *length = (size_t)(end - begin);
    return begin;
}

/* Sends the conversation so far, prints the answer and adds it. */
static gannet_status answer(gannet_engine *engine, struct text *messages)
{
    static const char head[] = "{\"stream\": true, \"temperature\": 0, \"messages\": [";
    struct text body = {NULL, 0, 0};
    struct text reply = {NULL, 0, 0};
    gannet_call_handle *call;
    gannet_chunk chunk = {sizeof(gannet_chunk), NULL, NULL, 0};
    gannet_status status;
    int32_t http = 0;

    add(&body, head, sizeof head - 1);
    add(&body, messages->bytes, messages->length);
    add(&body, "]}", 2);
    status = gannet_call(engine, GANNET_TEXT("/v1/chat/completions"), body.bytes, body.length,
                         &call);
    free(body.bytes);
    if (status != GANNET_OK)
        return status;
    status = gannet_call_status(call, -1, &http, NULL);
    while (status == GANNET_OK && (status = gannet_call_next(call, -1, &chunk)) == GANNET_OK) {
        size_t length = 0;
        const char *text = delta(chunk.data, &length);
        if (http != 200)
            fprintf(stderr, "%d: %s\n", (int)http, chunk.data);
        else if (text != NULL) {
            print_unescaped(text, length);
            add(&reply, text, length);
        }
        gannet_chunk_free(&chunk);
    }
    gannet_call_free(call);
    printf("\n");
    add(messages, GANNET_TEXT(", {\"role\": \"assistant\", \"content\": \""));
    if (reply.length > 0)
        add(messages, reply.bytes, reply.length);
    add(messages, GANNET_TEXT("\"}"));
    free(reply.bytes);
    return status == GANNET_END ? GANNET_OK : status;
}

int main(int count, char **arguments)
{
    const char *options = count > 1 ? arguments[1] : "{}";
    struct text messages = {NULL, 0, 0};
    char line[4096];
    gannet_engine *engine;
    gannet_status status =
        gannet_open(GANNET_API_VERSION, options, strlen(options), &engine);

    if (status != GANNET_OK) {
        fprintf(stderr, "%s\n", gannet_last_error());
        return 1;
    }
    while (status == GANNET_OK && fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (messages.length > 0)
            add(&messages, ", ", 2);
        add(&messages, GANNET_TEXT("{\"role\": \"user\", \"content\": \""));
        add_escaped(&messages, line);
        add(&messages, GANNET_TEXT("\"}"));
        status = answer(engine, &messages);
    }
    if (status != GANNET_OK)
        fprintf(stderr, "%s\n", gannet_last_error());
    free(messages.bytes);
    gannet_close(engine);
    return status == GANNET_OK ? 0 : 1;
}
