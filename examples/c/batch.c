/*
 * Continues many texts together: every line of standard input is one, of whatever length. All
 * sequences share the steps of the engine, and each has a sampler of its own.
 *
 *     batch [OPTIONS]     where OPTIONS are those of gannet_open, such as {"model": "model.gguf"}
 */
#include "gannet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXTS 32
#define MAX_LINE 4096
#define MAX_ANSWER 32
#define MAX_ENDS 16

/* The texts, and what is pushed next to each sequence that goes on. */
struct batch {
    gannet_sequence *sequences[MAX_TEXTS];
    gannet_sampler *samplers[MAX_TEXTS];
    const uint32_t *tokens[MAX_TEXTS];
    size_t lengths[MAX_TEXTS];
    size_t index[MAX_TEXTS];
    size_t count;
};

static char lines[MAX_TEXTS][MAX_LINE];
static uint32_t prompts[MAX_TEXTS][MAX_LINE];
static uint32_t answers[MAX_TEXTS][MAX_ANSWER];
static size_t answered[MAX_TEXTS];

static void check(gannet_status status)
{
    if (status != GANNET_OK) {
        fprintf(stderr, "%s\n", gannet_last_error());
        exit(1);
    }
}

static int is_end(uint32_t token, const uint32_t *ends, size_t count)
{
    size_t at;
    for (at = 0; at < count; at++)
        if (ends[at] == token)
            return 1;
    return 0;
}

/* Adds a sequence for a line, with its tokens to be pushed. */
static void add(gannet_engine *engine, struct batch *batch, size_t line)
{
    gannet_sampler_options options;
    size_t at = batch->count++;

    options.size = sizeof options;
    check(gannet_sampler_defaults(engine, &options));
    options.temperature = 0;
    check(gannet_sampler_new(engine, &options, &batch->samplers[at]));
    check(gannet_sequence_new(engine, NULL, &batch->sequences[at]));
    check(gannet_tokenize(engine, lines[line], strlen(lines[line]), 1, 0, prompts[line], MAX_LINE,
                          &batch->lengths[at]));
    batch->tokens[at] = prompts[line];
    batch->index[at] = line;
}

/* Pushes to all sequences and keeps those that go on, with the chosen token as the next. */
static void step(struct batch *batch, const uint32_t *ends, size_t end_count)
{
    uint32_t chosen[MAX_TEXTS];
    size_t at, kept = 0;

    check(gannet_push_batch(batch->count, batch->sequences, batch->tokens, batch->lengths,
                            batch->samplers, chosen, NULL));
    for (at = 0; at < batch->count; at++) {
        size_t line = batch->index[at];
        int ended = is_end(chosen[at], ends, end_count);
        if (!ended)
            answers[line][answered[line]++] = chosen[at];
        if (ended || answered[line] == MAX_ANSWER) {
            check(gannet_sequence_free(batch->sequences[at]));
            check(gannet_sampler_free(batch->samplers[at]));
            continue;
        }
        batch->sequences[kept] = batch->sequences[at];
        batch->samplers[kept] = batch->samplers[at];
        batch->tokens[kept] = &answers[line][answered[line] - 1];
        batch->lengths[kept] = 1;
        batch->index[kept++] = line;
    }
    batch->count = kept;
}

int main(int count, char **arguments)
{
    const char *options = count > 1 ? arguments[1] : "{}";
    static struct batch batch;
    uint32_t ends[MAX_ENDS];
    size_t end_count, texts = 0, line;
    gannet_engine *engine;

    check(gannet_open(GANNET_API_VERSION, options, strlen(options), &engine));
    check(gannet_end_tokens(engine, ends, MAX_ENDS, &end_count));
    while (texts < MAX_TEXTS && fgets(lines[texts], MAX_LINE, stdin) != NULL) {
        lines[texts][strcspn(lines[texts], "\n")] = 0;
        add(engine, &batch, texts++);
    }
    while (batch.count > 0)
        step(&batch, ends, end_count);
    for (line = 0; line < texts; line++) {
        static char text[64 * MAX_ANSWER];
        size_t length;
        check(gannet_detokenize(engine, answers[line], answered[line], 1, text, sizeof text,
                                &length));
        printf("%s|%.*s\n", lines[line], (int)length, text);
    }
    check(gannet_close(engine));
    return 0;
}
