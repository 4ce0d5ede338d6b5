#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "transformer/architecture/weights.h"

namespace transformer {

/// The weights of another system's model by its own names, each read when it is asked for.
class ForeignWeights {
 public:
  /// Those of the file `origin`, of a model that messages call `kind` ("Marian's transformer").
  ForeignWeights(StoredWeights weights, std::string origin, std::string kind);

  /// Whether there is one of this name; to ask is not to use it.
  bool has(const std::string& name) const { return weights_.contains(name); }
  /// Its shape; an empty one where there is no such weight.
  std::vector<int64_t> shape(const std::string& name) const;

  /// All numbers of a weight. It counts as used. Throws Error unless it is there, of floating-point numbers, all
  /// finite, and of this shape, sizes of 1 aside.
  std::vector<float> read(const std::string& name, const std::vector<int64_t>& shape);
  /// Takes note that a weight means nothing here.
  void ignore(const std::string& name) { used_.insert(name); }

  /// Throws Error naming the first weight that nobody asked for.
  void check_all_used() const;
  /// Throws Error: of the file, what is wrong.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  StoredWeights weights_;
  std::string origin_, kind_;
  std::set<std::string> used_;
};

}  // namespace transformer
