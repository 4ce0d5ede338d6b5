// The C interface as a program in C uses it: interface_test MODEL TRANSLATE OTHER_MODEL.
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transformer/interface/transformer.h"

static void fail(int line, const char* what) {
  fprintf(stderr, "interface_test.c:%d: %s\n  transformer_error: %s\n", line, what, transformer_error());
  exit(1);
}

#define REQUIRE(condition) ((condition) ? (void)0 : fail(__LINE__, #condition))

/// A call that is refused with `status`, and whose message has `part` in it.
#define REFUSED(call, status, part)                                                                \
  do {                                                                                             \
    REQUIRE((call) == (status));                                                                   \
    if (!strstr(transformer_error(), (part))) fail(__LINE__, #call " says nothing of '" part "'"); \
  } while (0)

static const char* directory;
static const char* translate_program;
static const char* other_directory;  // of another vocabulary

enum { sentence_count = 5 };
static const char* const sentences[sentence_count] = {"Good morning.", "Where is the train station?", "",
                                                      "The children are playing in the garden.", "Caf\xC3\xA9 or tea?"};

static transformer_model* load(const char* precision, size_t threads) {
  transformer_options options = {0};
  options.size = sizeof options;
  options.precision = precision;
  options.threads = threads;
  transformer_model* model;
  REQUIRE(transformer_load(directory, &options, &model) == TRANSFORMER_OK);
  REQUIRE(strcmp(transformer_error(), "") == 0);
  return model;
}

static transformer_search search_of(const transformer_model* model) {
  transformer_search search;
  memset(&search, 0xAB, sizeof search);
  search.size = sizeof search;
  REQUIRE(transformer_search_defaults(model, &search) == TRANSFORMER_OK);
  REQUIRE(search.size == sizeof search);
  return search;
}

/// What the program writes for the sentences; the caller frees it.
static char* output_of_program(const char* arguments) {
  char file[] = "/tmp/interface_test_XXXXXX";
  const int descriptor = mkstemp(file);
  REQUIRE(descriptor >= 0);
  FILE* input = fdopen(descriptor, "w");
  for (size_t i = 0; i < sentence_count; ++i) fprintf(input, "%s\n", sentences[i]);
  REQUIRE(fclose(input) == 0);
  char command[4096];
  snprintf(command, sizeof command, "'%s' --model '%s' %s --input %s", translate_program, directory, arguments, file);
  FILE* output = popen(command, "r");
  REQUIRE(output != NULL);
  char* text = calloc(1, 1 << 16);
  REQUIRE(text != NULL);
  const size_t length = fread(text, 1, (1 << 16) - 1, output);
  REQUIRE(length > 0 && pclose(output) == 0);
  unlink(file);
  return text;
}

static void translations_are_the_programs(void) {
  static const char* const precisions[] = {"float32", "bf16", "int8"};
  for (size_t p = 0; p < 3; ++p) {
    char arguments[100];
    snprintf(arguments, sizeof arguments, "--scores --precision %s", precisions[p]);
    char* expected = output_of_program(arguments);
    transformer_model* model = load(precisions[p], 2);
    transformer_translations* translations;
    REQUIRE(transformer_translate(model, sentences, sentence_count, NULL, &translations) == TRANSFORMER_OK);
    transformer_model_free(model);  // translations are kept
    char text[1 << 14] = "";
    REQUIRE(transformer_translations_lines(translations) == sentence_count);
    for (size_t i = 0; i < sentence_count; ++i) {
      REQUIRE(transformer_translations_of_line(translations, i) == 1);
      snprintf(text + strlen(text), sizeof text - strlen(text), "%.6f\t%s\n",
               transformer_translation_score(translations, i, 0), transformer_translation_text(translations, i, 0));
    }
    REQUIRE(strcmp(text, expected) == 0);
    transformer_translations_free(translations);
    free(expected);
  }
}

static void n_best_are_the_programs(void) {
  char* expected = output_of_program("--beam 6 --n-best 3 --alpha 0 --length-penalty power --stop beam_finished");
  transformer_model* model = load(NULL, 0);
  transformer_search search = search_of(model);
  search.beam = 6;
  search.n_best = 3;
  search.alpha = 0;
  search.length_penalty = TRANSFORMER_LENGTH_PENALTY_POWER;
  search.stop = TRANSFORMER_STOP_BEAM_FINISHED;
  transformer_translations* translations;
  REQUIRE(transformer_translate(model, sentences, sentence_count, &search, &translations) == TRANSFORMER_OK);
  char text[1 << 14] = "";
  for (size_t i = 0; i < sentence_count; ++i) {
    const size_t count = transformer_translations_of_line(translations, i);
    REQUIRE(count == (sentences[i][0] ? 3 : 1));
    for (size_t rank = 0; rank < count; ++rank) {
      const double score = transformer_translation_score(translations, i, rank);
      // Without a length penalty the score is the log-probability.
      REQUIRE(score == transformer_translation_log_probability(translations, i, rank));
      snprintf(text + strlen(text), sizeof text - strlen(text), "%zu ||| %s ||| %.6f\n", i,
               transformer_translation_text(translations, i, rank), score);
    }
  }
  REQUIRE(strcmp(text, expected) == 0);
  free(expected);

  REQUIRE(transformer_translation_text(translations, sentence_count, 0) == NULL);
  REQUIRE(strstr(transformer_error(), "line 5"));
  REQUIRE(transformer_translation_text(translations, 0, 3) == NULL);
  REQUIRE(strstr(transformer_error(), "rank 3"));
  REQUIRE(isnan(transformer_translation_score(translations, 2, 1)));
  REQUIRE(isnan(transformer_translation_log_probability(translations, 2, 1)));
  REQUIRE(transformer_translations_of_line(translations, sentence_count) == 0);
  transformer_translations_free(translations);
  transformer_model_free(model);
}

static void any_setting_can_be_named(void) {
  char* expected = output_of_program("--search sampling --seed 7 --no-repeat-ngram 2");
  transformer_model* model = load(NULL, 0);
  transformer_search search = search_of(model);
  search.settings = "search=sampling\n\nseed=7\nno_repeat_ngram=2\nbeam=2\n";
  transformer_translations* translations;
  REQUIRE(transformer_translate(model, sentences, sentence_count, &search, &translations) == TRANSFORMER_OK);
  char text[1 << 14] = "";
  for (size_t i = 0; i < sentence_count; ++i) {
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n", transformer_translation_text(translations, i, 0));
  }
  REQUIRE(strcmp(text, expected) == 0);
  free(expected);
  transformer_translations_free(translations);
  search.settings = "seed=7";
  REFUSED(transformer_translate(model, sentences, 1, &search, &translations), TRANSFORMER_MISTAKE, "decoding.seed");
  search.settings = "sede=7";
  REFUSED(transformer_translate(model, sentences, 1, &search, &translations), TRANSFORMER_MISTAKE, "sede");
  search.settings = "seed";
  REFUSED(transformer_translate(model, sentences, 1, &search, &translations), TRANSFORMER_MISTAKE, "seed");
  transformer_model_free(model);
}

static void a_draft_changes_nothing(void) {
  static const char* const settings[] = {"beam=1", "search=sampling\nseed=3", "beam=1\nproposals=64",
                                         "beam=4\nn_best=2"};
  transformer_model* plain = load(NULL, 2);
  transformer_options options = {sizeof options, NULL, 2, directory};  // the best guesses that there are: its own
  transformer_model* drafted;
  REQUIRE(transformer_load(directory, &options, &drafted) == TRANSFORMER_OK);
  for (size_t s = 0; s < sizeof settings / sizeof *settings; ++s) {
    transformer_search search = search_of(plain);
    search.settings = settings[s];
    transformer_translations *expected, *found;
    REQUIRE(transformer_translate(plain, sentences, sentence_count, &search, &expected) == TRANSFORMER_OK);
    REQUIRE(transformer_translate(drafted, sentences, sentence_count, &search, &found) == TRANSFORMER_OK);
    for (size_t i = 0; i < sentence_count; ++i) {
      const size_t count = transformer_translations_of_line(expected, i);
      REQUIRE(transformer_translations_of_line(found, i) == count);
      for (size_t rank = 0; rank < count; ++rank) {
        REQUIRE(strcmp(transformer_translation_text(found, i, rank), transformer_translation_text(expected, i, rank)) ==
                0);
        REQUIRE(transformer_translation_score(found, i, rank) == transformer_translation_score(expected, i, rank));
      }
    }
    transformer_translations_free(expected);
    transformer_translations_free(found);
  }
  transformer_model_free(plain);
  transformer_model_free(drafted);
  options.draft = other_directory;
  REFUSED(transformer_load(directory, &options, &drafted), TRANSFORMER_MISTAKE, "another vocabulary");
  REQUIRE(drafted == NULL && strstr(transformer_error(), other_directory));
  options.draft = "/nowhere/draft";
  REFUSED(transformer_load(directory, &options, &drafted), TRANSFORMER_MISTAKE, "/nowhere/draft");
  // A program that was compiled before there were drafts.
  options.size = offsetof(transformer_options, draft);
  REQUIRE(transformer_load(directory, &options, &drafted) == TRANSFORMER_OK);
  transformer_model_free(drafted);
}

static void scores_are_those_of_search(void) {
  transformer_model* model = load("float32", 2);
  transformer_search search = search_of(model);
  search.n_best = 2;
  transformer_translations* translations;
  REQUIRE(transformer_translate(model, sentences, sentence_count, &search, &translations) == TRANSFORMER_OK);
  const char *sources[sentence_count], *targets[sentence_count];
  double expected[sentence_count], found[sentence_count];
  size_t tokens[sentence_count], count = 0;
  for (size_t i = 0; i < sentence_count; ++i) {
    if (transformer_translations_of_line(translations, i) < 2) continue;
    sources[count] = sentences[i];
    targets[count] = transformer_translation_text(translations, i, 1);
    expected[count++] = transformer_translation_log_probability(translations, i, 1);
  }
  REQUIRE(count == 4);
  REQUIRE(transformer_score(model, sources, targets, count, found, tokens) == TRANSFORMER_OK);
  for (size_t i = 0; i < count; ++i) {
    REQUIRE(fabs(found[i] - expected[i]) < 1e-4);
    REQUIRE(tokens[i] >= 2 && tokens[i] < 40);
    double alone;
    REQUIRE(transformer_score(model, sources + i, targets + i, 1, &alone, NULL) == TRANSFORMER_OK);
    REQUIRE(alone == found[i]);
  }
  // Another sentence's translation is far less likely.
  double other;
  REQUIRE(transformer_score(model, sources, targets + 1, 1, &other, NULL) == TRANSFORMER_OK);
  REQUIRE(other < found[0] - 5);
  REQUIRE(transformer_score(model, NULL, NULL, 0, NULL, NULL) == TRANSFORMER_OK);
  REQUIRE(transformer_score_with(model, "beam=1\nalpha=0", sources, targets, 1, &other, NULL) == TRANSFORMER_OK);
  REQUIRE(other == found[0]);
  REFUSED(transformer_score_with(model, "target_language=de", sources, targets, 1, &other, NULL), TRANSFORMER_MISTAKE,
          "decoding.target_language");
  transformer_translations_free(translations);
  transformer_model_free(model);
}

static void what_is_wrong_is_named(void) {
  transformer_model* model = (transformer_model*)&directory;
  REFUSED(transformer_load("/nowhere/model", NULL, &model), TRANSFORMER_MISTAKE, "/nowhere/model");
  REQUIRE(model == NULL);
  REFUSED(transformer_load(NULL, NULL, &model), TRANSFORMER_MISTAKE, "directory: is NULL");
  REFUSED(transformer_load("", NULL, &model), TRANSFORMER_MISTAKE, "directory: is empty");
  REFUSED(transformer_load(directory, NULL, NULL), TRANSFORMER_MISTAKE, "model: is NULL");
  // A message is UTF-8, and one line, whatever is in it.
  REFUSED(transformer_load("/no\xFF\nwhere", NULL, &model), TRANSFORMER_MISTAKE, "/no\\xff\\x0awhere");
  char long_name[10000];
  memset(long_name, 'x', sizeof long_name - 1);
  long_name[sizeof long_name - 1] = '\0';
  REFUSED(transformer_load(long_name, NULL, &model), TRANSFORMER_MISTAKE, "xxx");
  REQUIRE(strlen(transformer_error()) < 4096);

  transformer_options options = {0};
  REFUSED(transformer_load(directory, &options, &model), TRANSFORMER_MISTAKE, "set it to sizeof(transformer_options)");
  options.size = sizeof options;
  options.precision = "fp64";
  REFUSED(transformer_load(directory, &options, &model), TRANSFORMER_MISTAKE, "bf16, int8, found 'fp64'");
  options.precision = NULL;
  options.threads = (size_t)-1;
  REFUSED(transformer_load(directory, &options, &model), TRANSFORMER_MISTAKE, "threads");

  options = (transformer_options){(size_t)1 << 40, NULL, 1, NULL};
  REFUSED(transformer_load(directory, &options, &model), TRANSFORMER_MISTAKE, "in no version");
  options.size = sizeof options - 4;  // in the middle of a pointer
  REFUSED(transformer_load(directory, &options, &model), TRANSFORMER_MISTAKE, "in no version");

  // A program that was compiled with a later header: what it leaves at 0 is as if it were not there.
  struct {
    transformer_options known;
    size_t later;
  } grown = {{sizeof grown, NULL, 1, NULL}, 0};
  REQUIRE(transformer_load(directory, &grown.known, &model) == TRANSFORMER_OK);
  transformer_model* none;
  grown.later = 1;
  REFUSED(transformer_load(directory, &grown.known, &none), TRANSFORMER_MISTAKE, "does not know");

  transformer_search search = {0};
  REFUSED(transformer_search_defaults(model, &search), TRANSFORMER_MISTAKE, "set it to sizeof(transformer_search)");
  search.size = (size_t)1 << 40;  // as memory that nobody set
  REFUSED(transformer_search_defaults(model, &search), TRANSFORMER_MISTAKE, "set it to sizeof(transformer_search)");
  REFUSED(transformer_search_defaults(NULL, &search), TRANSFORMER_MISTAKE, "model: is NULL");
  REFUSED(transformer_search_defaults(model, NULL), TRANSFORMER_MISTAKE, "search: is NULL");

  const char* lines[2] = {"Good morning.", NULL};
  transformer_translations* translations = (transformer_translations*)&directory;
  REFUSED(transformer_translate(model, lines, 2, NULL, &translations), TRANSFORMER_MISTAKE, "line 2 of lines: is NULL");
  REQUIRE(translations == NULL);
  REFUSED(transformer_translate(model, NULL, 1, NULL, &translations), TRANSFORMER_MISTAKE, "lines: is NULL");
  REFUSED(transformer_translate(NULL, lines, 1, NULL, &translations), TRANSFORMER_MISTAKE, "model: is NULL");
  REFUSED(transformer_translate(model, lines, 1, NULL, NULL), TRANSFORMER_MISTAKE, "translations: is NULL");
  REQUIRE(transformer_translate(model, NULL, 0, NULL, &translations) == TRANSFORMER_OK);
  REQUIRE(transformer_translations_lines(translations) == 0);
  transformer_translations_free(translations);

  lines[1] = "Gr\xFC\xDF Gott";
  REFUSED(transformer_translate(model, lines, 2, NULL, &translations), TRANSFORMER_MISTAKE,
          "line 2 of lines: not UTF-8 (byte 3 is 0xFC)");
  const size_t mebibyte = (size_t)1 << 20;
  char* text = malloc(mebibyte + 2);
  REQUIRE(text != NULL);
  memset(text, 'x', mebibyte + 1);
  text[mebibyte + 1] = '\0';
  lines[1] = text;
  REFUSED(transformer_translate(model, lines, 2, NULL, &translations), TRANSFORMER_MISTAKE, "longer than 1 MiB");
  for (size_t i = 0; i < 20000; ++i) text[i] = i % 2 ? ' ' : 'q';
  text[20000] = '\0';
  REFUSED(transformer_translate(model, lines, 2, NULL, &translations), TRANSFORMER_MISTAKE, "takes at most");
  double score = 7;
  REFUSED(transformer_score(model, lines, lines + 1, 1, &score, NULL), TRANSFORMER_MISTAKE, "line 1 of targets");
  REFUSED(transformer_score(model, lines, lines, 1, NULL, NULL), TRANSFORMER_MISTAKE, "log_probabilities: is NULL");
  REQUIRE(score == 7);
  free(text);

  const transformer_search defaults = search_of(model);
  search = defaults;
  search.beam = 0;
  REFUSED(transformer_translate(model, lines, 1, &search, &translations), TRANSFORMER_MISTAKE, "decoding.beam");
  search.beam = (size_t)-1;
  REFUSED(transformer_translate(model, lines, 1, &search, &translations), TRANSFORMER_MISTAKE, "decoding.beam");
  search = defaults;
  search.n_best = search.beam + 1;
  REFUSED(transformer_translate(model, lines, 1, &search, &translations), TRANSFORMER_MISTAKE, "decoding.n_best");
  search = defaults;
  search.alpha = NAN;
  REFUSED(transformer_translate(model, lines, 1, &search, &translations), TRANSFORMER_MISTAKE, "decoding.alpha");
  search = defaults;
  search.stop = 2;
  REFUSED(transformer_translate(model, lines, 1, &search, &translations), TRANSFORMER_MISTAKE, "decoding.stop");
  // What went well clears what was said.
  REQUIRE(transformer_translate(model, lines, 1, &defaults, &translations) == TRANSFORMER_OK);
  REQUIRE(strcmp(transformer_error(), "") == 0);
  transformer_translations_free(translations);
  transformer_model_free(model);

  transformer_model_free(NULL);
  transformer_translations_free(NULL);
  REQUIRE(transformer_translations_lines(NULL) == 0 && transformer_translations_of_line(NULL, 0) == 0);
  REQUIRE(transformer_translation_text(NULL, 0, 0) == NULL);
}

/// In a process of its own, with less and less room above what it has: never a crash, and what is missing is named.
static void running_out_of_memory_is_told(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  int refused = 0;
  for (size_t megabytes = 1; megabytes <= 40; megabytes += 3) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      FILE* statm = fopen("/proc/self/statm", "r");
      unsigned long pages = 0;
      if (!statm || fscanf(statm, "%lu", &pages) != 1) _exit(9);
      fclose(statm);
      const rlim_t room = pages * (rlim_t)sysconf(_SC_PAGESIZE) + megabytes * 1000000;
      const struct rlimit limit = {room, room};
      setrlimit(RLIMIT_AS, &limit);
      transformer_options options = {sizeof options, NULL, 1, NULL};
      transformer_model* model;
      transformer_translations* translations = NULL;
      transformer_status status = transformer_load(directory, &options, &model);
      if (status == TRANSFORMER_OK) {
        status = transformer_translate(model, sentences, sentence_count, NULL, &translations);
      }
      const int told = status == TRANSFORMER_OK || strlen(transformer_error()) > 5;
      transformer_translations_free(translations);
      transformer_model_free(model);
      _exit(!told ? 8 : status == TRANSFORMER_OK ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
    refused += WEXITSTATUS(status);
  }
  REQUIRE(refused > 0);
#endif
}

struct Work {
  const transformer_model* model;
  const char* expected;
  size_t beam;
  int wrong;
};

static void* translate_often(void* given) {
  struct Work* work = given;
  transformer_search search = {0};
  search.size = sizeof search;
  work->wrong += transformer_search_defaults(work->model, &search) != TRANSFORMER_OK;
  search.beam = work->beam;
  for (int i = 0; i < 5; ++i) {
    // A thread's errors are its own.
    transformer_translations* translations;
    const char* broken = "\xFF";
    work->wrong += transformer_translate(work->model, &broken, 1, NULL, &translations) != TRANSFORMER_MISTAKE;
    work->wrong += !strstr(transformer_error(), "0xFF");
    if (transformer_translate(work->model, sentences + 3, 1, &search, &translations) != TRANSFORMER_OK) {
      ++work->wrong;
      continue;
    }
    work->wrong += strcmp(transformer_translation_text(translations, 0, 0), work->expected) != 0;
    work->wrong += strcmp(transformer_error(), "") != 0;
    transformer_translations_free(translations);
  }
  return NULL;
}

static void threads_share_a_model(void) {
  enum { thread_count = 8 };
  transformer_model* model = load("float32", 1);
  transformer_translations* expected[2];
  transformer_search search = search_of(model);
  for (size_t i = 0; i < 2; ++i) {
    search.beam = i ? 4 : 1;
    REQUIRE(transformer_translate(model, sentences + 3, 1, &search, &expected[i]) == TRANSFORMER_OK);
  }
  pthread_t threads[thread_count];
  struct Work work[thread_count];
  for (size_t i = 0; i < thread_count; ++i) {
    work[i] = (struct Work){model, transformer_translation_text(expected[i % 2], 0, 0), i % 2 ? 4 : 1, 0};
    REQUIRE(pthread_create(&threads[i], NULL, translate_often, &work[i]) == 0);
  }
  for (size_t i = 0; i < thread_count; ++i) {
    REQUIRE(pthread_join(threads[i], NULL) == 0);
    REQUIRE(work[i].wrong == 0);
  }
  for (size_t i = 0; i < 2; ++i) transformer_translations_free(expected[i]);
  transformer_model_free(model);
}

static transformer_model* kept;
static char* first_words;

/// A sample of the kept model; the caller frees it.
static char* sample(void) {
  transformer_search search = search_of(kept);
  search.settings = "search=sampling\nseed=3\nno_repeat_ngram=2\nwrite_unknown=false\n";
  transformer_translations* translations;
  REQUIRE(transformer_translate(kept, sentences, sentence_count, &search, &translations) == TRANSFORMER_OK);
  char* text = strdup(transformer_translation_text(translations, 3, 0));
  REQUIRE(text && text[0]);
  transformer_translations_free(translations);
  return text;
}

/// When the process ends, behind everything of the library's that ends with it.
static void say_last_words(void) {
  if (!kept) return;
  char* last_words = sample();
  const int same = strcmp(first_words, last_words) == 0;
  free(last_words);
  free(first_words);
  transformer_model_free(kept);
  if (!same) {
    fprintf(stderr, "interface_test.c: other words at the end\n");
    _exit(1);
  }
}

/// A thread may be at work while the process ends: all that it needs lasts as long.
static void models_translate_to_the_end(void) {
  kept = load("bf16", 2);
  first_words = sample();
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  REQUIRE(atexit(say_last_words) == 0);  // before the library has made anything
  directory = argv[1];
  translate_program = argv[2];
  other_directory = argv[3];
  REQUIRE(transformer_abi() == TRANSFORMER_ABI);
  REQUIRE(transformer_version()[0] >= '0' && transformer_version()[0] <= '9');
  running_out_of_memory_is_told();  // first, while nothing is there that was freed
  translations_are_the_programs();
  n_best_are_the_programs();
  any_setting_can_be_named();
  a_draft_changes_nothing();
  scores_are_those_of_search();
  what_is_wrong_is_named();
  threads_share_a_model();
  models_translate_to_the_end();
  return 0;
}
