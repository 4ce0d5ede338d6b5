// outside_c MODEL: translates standard input.
#include <stdio.h>
#include <string.h>
#include <transformer/interface/transformer.h>

int main(int argc, char** argv) {
  if (argc != 2 || transformer_abi() != TRANSFORMER_ABI) return 2;
  transformer_model* model;
  transformer_status status = transformer_load(argv[1], NULL, &model);
  char text[1000];
  while (status == TRANSFORMER_OK && fgets(text, sizeof text, stdin)) {
    text[strcspn(text, "\n")] = '\0';
    const char* line = text;
    transformer_translations* translations;
    status = transformer_translate(model, &line, 1, NULL, &translations);
    if (status == TRANSFORMER_OK) puts(transformer_translation_text(translations, 0, 0));
    transformer_translations_free(translations);
  }
  if (status != TRANSFORMER_OK) fprintf(stderr, "%s\n", transformer_error());
  transformer_model_free(model);
  return status;
}
