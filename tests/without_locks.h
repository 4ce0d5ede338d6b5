#pragma once

#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace transformer::test {

/// While it lives, flock() fails with `error_number` in the whole program: ENOLCK as on a file system without locks.
class WithoutLocks {
 public:
  explicit WithoutLocks(int error_number = ENOLCK) { error_number_ = error_number; }
  ~WithoutLocks() { error_number_ = 0; }
  WithoutLocks(const WithoutLocks&) = delete;
  WithoutLocks& operator=(const WithoutLocks&) = delete;

  static int error_number() { return error_number_; }

 private:
  static inline std::atomic<int> error_number_ = 0;
};

}  // namespace transformer::test

/// Stands in the C library's place wherever this header is part of a program.
extern "C" __attribute__((used)) inline int flock(int descriptor, int operation) noexcept {
  const int error_number = transformer::test::WithoutLocks::error_number();
  if (error_number == 0) return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
  errno = error_number;
  return -1;
}
