#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace transformer {

/// Numbers of a run for TensorBoard (`tensorboard --logdir runs`): an event file, TFRecords of Event messages.
///
/// Records are only ever appended, so a TensorBoard that watches the run reads on where it was. A run that goes on from
/// an earlier step first writes a restart record, upon which TensorBoard forgets what the file says about the steps
/// that will be done again: no step shows twice.
class EventFile {
 public:
  /// Opens `file`, or begins it with the format's version where it is missing. `first_step` is the first step that will
  /// be written: what the file says about it and later ones is revoked. A record that a crash left unfinished is cut
  /// off, with all that follows a damaged one, which no reader would get past, or one longer than a run's (1 MiB).
  /// Throws Failure naming the file when it cannot be read or written.
  EventFile(const std::filesystem::path& file, int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Appends `values` of `step` under their tags ("train/loss"; what stands before the slash groups them), with the
  /// present time. TensorBoard stores values as float32. They can be read as soon as this returns; throws Failure when
  /// they cannot be written (a full disk), and the file is then as it was.
  void write(int64_t step, const std::vector<std::pair<std::string, double>>& values);

 private:
  void append(std::string_view event);
  [[noreturn]] void fail(int error_number) const;

  std::filesystem::path file_;
  int descriptor_ = -1;
  int64_t bytes_ = 0;  // of whole records
};

/// CRC-32C (Castagnoli) of `bytes`, which guards the records of an event file.
uint32_t crc32c(std::string_view bytes);

}  // namespace transformer
