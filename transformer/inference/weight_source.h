#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transformer/architecture/weights.h"
#include "transformer/base/mapped_file.h"
#include "transformer/base/tensor_file.h"
#include "transformer/inference/packed_in.h"
#include "transformer/inference/packed_matrix.h"
#include "transformer/inference/precision.h"

namespace transformer {

/// A matrix of an InferenceModel: some rows of a weight, or all.
struct MatrixOf {
  std::string name;                           // of its own, in a file of packed weights
  std::string weight;                         // in a file of weights as they were trained
  int64_t first = 0, outputs = 0, depth = 0;  // rows from `first` on, `outputs` of them, of `depth` numbers each
};

/// The trained keys and values of attention over parameters: a record for each pair, the heads' keys and then their
/// values.
struct PairsOf {
  std::string name;                                // of the sub-layer
  int64_t heads = 0, pairs = 0, d_k = 0, d_v = 0;  // h_p, n_p, d_pk and d_pv
  float scale = 1;                                 // of keys and values: sqrt(D)

  /// Bytes of a record: of float32, in all other precisions of bf16.
  int64_t record_bytes(Precision precision) const { return heads * (d_k + d_v) * attended_bytes(precision); }
};

/// Where an InferenceModel's weights come from: it asks for each once, in the order in which it reads them.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  /// Some rows of a weight as a packed matrix, with `bias` [outputs] or null. Throws Error where a number is not
  /// finite.
  virtual PackedMatrix matrix(const MatrixOf& wanted, const float* bias) = 0;
  /// What is not in a matrix: biases, normalisations, learned positions. Throws Error where one is not finite.
  virtual std::vector<float> numbers(const std::string& name, const std::vector<int64_t>& shape) = 0;
  /// All records [pairs, record], one after the other.
  virtual Buffer<unsigned char> pairs(const PairsOf& wanted) = 0;
  /// Multiplies an attention's matrices of additive compatibility into its projections, which are asked for later.
  virtual void fold_additive(const std::string& attention, const std::vector<int64_t>& shape) = 0;
};

/// Weights as they were trained, packed now.
class TrainedWeights : public WeightSource {
 public:
  /// Throws Error naming the first that is missing, unknown, of another shape or of integers, with `origin` in front.
  TrainedWeights(const ModelSettings& settings, StoredWeights weights, Precision precision, std::string origin,
                 const Kernels& kernels);

  PackedMatrix matrix(const MatrixOf& wanted, const float* bias) override;
  std::vector<float> numbers(const std::string& name, const std::vector<int64_t>& shape) override;
  Buffer<unsigned char> pairs(const PairsOf& wanted) override;
  void fold_additive(const std::string& attention, const std::vector<int64_t>& shape) override;

 private:
  std::vector<float> all_of(const std::string& name) const;

  StoredWeights weights_;
  Precision precision_;
  std::string origin_;
  const Kernels& kernels_;
  std::shared_ptr<WeightMemory> memory_ = std::make_shared<WeightMemory>();
  std::vector<float> rows_;
};

/// Packs weights, and keeps what it hands out for a file of packed weights.
class PackedWeightsWriter : public WeightSource {
 public:
  /// `source` must outlive this, and packs in `precision`.
  PackedWeightsWriter(WeightSource& source, Precision precision) : source_(source), precision_(precision) {}

  PackedMatrix matrix(const MatrixOf& wanted, const float* bias) override;
  std::vector<float> numbers(const std::string& name, const std::vector<int64_t>& shape) override;
  Buffer<unsigned char> pairs(const PairsOf& wanted) override;
  void fold_additive(const std::string& attention, const std::vector<int64_t>& shape) override;

  /// Writes all that was asked for, with `metadata` and a word that it is packed.
  void write(const std::filesystem::path& file, std::map<std::string, std::string> metadata) const;

 private:
  struct Numbers {
    std::vector<float> values;
    std::vector<int64_t> shape;
  };
  struct Pairs {
    std::vector<unsigned char> bytes;
    std::vector<int64_t> shape;  // [pairs, record]
  };
  WeightSource& source_;
  Precision precision_;
  std::map<std::string, PackedMatrix> matrices_;
  std::map<std::string, Numbers> numbers_;
  std::map<std::string, Pairs> pairs_;
};

/// A file of packed weights. Whether numbers in its matrices and records are finite is left to the folder's checksums:
/// what is packed is not read to be loaded.
class PackedWeights : public WeightSource {
 public:
  /// The precision of a file of packed weights, by its metadata; nothing for weights as they were trained. Throws Error
  /// for what no version of this program writes.
  static std::optional<Precision> precision_of(const std::filesystem::path& file,
                                               const std::map<std::string, std::string>& metadata);

  /// Opens `file`. Throws Error where it is damaged, or its weights are of another precision.
  PackedWeights(const std::filesystem::path& file, Precision precision, const Kernels& kernels, PackedIn packed_in);

  PackedMatrix matrix(const MatrixOf& wanted, const float* bias) override;
  std::vector<float> numbers(const std::string& name, const std::vector<int64_t>& shape) override;
  Buffer<unsigned char> pairs(const PairsOf& wanted) override;
  void fold_additive(const std::string&, const std::vector<int64_t>&) override {}

  /// Throws Error where the file holds more than was asked for.
  void check_all_used() const;
  /// What the matrices lie in; null where they have memory of their own.
  std::shared_ptr<const MappedFile> mapping() const { return mapping_; }

 private:
  /// A tensor's bytes, which are of `type` and `shape`, until the next are asked for; `stays`: as long as what keeps
  /// the matrices.
  const unsigned char* tensor(const std::string& name, ElementType type, const std::vector<int64_t>& shape,
                              bool stays = false);

  std::filesystem::path file_;
  Precision precision_;
  const Kernels& kernels_;
  TensorReader reader_;
  std::shared_ptr<const MappedFile> mapping_;  // null: tensors are read
  std::vector<unsigned char> read_;            // the last that does not stay
  std::set<std::string> used_;
  std::shared_ptr<WeightMemory> memory_ = std::make_shared<WeightMemory>();
};

}  // namespace transformer
