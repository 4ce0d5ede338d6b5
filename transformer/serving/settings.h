#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transformer/base/settings.h"
#include "transformer/inference/precision.h"

namespace transformer {

/// What a server serves, to whom, and how much of it (settings section `serving`).
struct ServingSettings {
  std::vector<std::string> models;
  std::vector<std::string> languages;
  std::vector<std::string> drafts;
  std::string host = "127.0.0.1";
  int64_t port = 5000;
  /// What weights and activations are rounded to.
  enum class Rounding { stored, float32, bf16, int8 };
  Rounding precision = Rounding::stored;  // stored: as a model is, float32 or what it was packed to
  int64_t threads = 0;                    // 0: OMP_NUM_THREADS, or one for each core
  int64_t batch_sentences = 0;            // 0: as the model's config.yaml says
  double batch_wait_ms = 0;               // that a sentence waits for others, where none is translated
  std::string api_keys;
  bool trust_proxy = false;
  std::string allow_origin;
  bool document = false;
  bool page = true;
  bool log_texts = false;

  int64_t max_connections = 4000;
  int64_t max_header_bytes = 16384;
  int64_t max_body_bytes = 2 << 20;
  int64_t max_bodies_bytes = 256 << 20;
  int64_t max_texts = 1000;
  int64_t max_characters = 50000;
  int64_t max_beam = 32;
  int64_t max_extra_length = 1000;
  int64_t max_waiting = 20000;
  int64_t max_waiting_of_client = 10000;

  double deadline_seconds = 60;
  double idle_seconds = 60;
  double receive_seconds = 20;
  double send_seconds = 30;
  double drain_seconds = 30;

  static void describe(Fields<ServingSettings>& field);

  /// `precision` as a model is opened with.
  std::optional<Precision> asked_precision() const;

  /// These settings, checked. Throws Error naming the first that is out of range or contradicts another.
  ServingSettings validated() const;
};

}  // namespace transformer
