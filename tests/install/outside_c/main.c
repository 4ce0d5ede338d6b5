// outside_c MODEL: translates standard input.
#define _POSIX_C_SOURCE 200809L  // getline
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <transformer/interface/transformer.h>

int main(int argc, char** argv) {
  if (argc != 2 || transformer_abi() != TRANSFORMER_ABI) return 2;
  transformer_model* model;
  transformer_status status = transformer_load(argv[1], NULL, &model);
  char* text = NULL;
  size_t size = 0;
  while (status == TRANSFORMER_OK && getline(&text, &size, stdin) >= 0) {
    text[strcspn(text, "\n")] = '\0';
    const char* line = text;
    transformer_translations* translations;
    status = transformer_translate(model, &line, 1, NULL, &translations);
    if (status == TRANSFORMER_OK) puts(transformer_translation_text(translations, 0, 0));
    transformer_translations_free(translations);
  }
  if (status != TRANSFORMER_OK) fprintf(stderr, "%s\n", transformer_error());
  transformer_model_free(model);
  free(text);
  return status;
}
