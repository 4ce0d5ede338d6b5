// The header of the C interface by itself, twice, in an old C++.
#include "transformer/interface/transformer.h"

transformer_status load_in_cpp(transformer_model** model) {
  transformer_options options = {};
  options.size = sizeof options;
  return transformer_load("model", &options, model);
}
