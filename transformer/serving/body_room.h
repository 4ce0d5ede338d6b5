#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace transformer {

/// How many bytes of requests' bodies a server holds, those that have not come whole among them. From any thread.
class BodyRoom {
 public:
  /// Of all bodies.
  size_t bytes() const { return bytes_; }

 private:
  friend class BodyShare;
  void take(size_t bytes);
  void give_back(size_t bytes);

  std::atomic<size_t> bytes_ = 0, most_ = 0;  // now, and since memory was given back last
};

/// What one body takes of it, until this goes.
class BodyShare {
 public:
  /// Nothing as yet.
  explicit BodyShare(std::shared_ptr<BodyRoom> room) : room_(std::move(room)) {}
  ~BodyShare() { room_->give_back(bytes_); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  /// So many more.
  void add(size_t bytes) {
    bytes_ += bytes;
    room_->take(bytes);
  }
  /// Of this body.
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<BodyRoom> room_;
  size_t bytes_ = 0;
};

}  // namespace transformer
