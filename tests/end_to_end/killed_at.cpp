// Preloaded, ends a program by SIGKILL before the call number KILLED_AT of those that change which names there are.

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

void count_call() {
  static const int killed_at = std::getenv("KILLED_AT") ? std::atoi(std::getenv("KILLED_AT")) : 0;
  static std::atomic<int> calls = 0;
  if (++calls == killed_at) ::kill(::getpid(), SIGKILL);
}

/// Calls the C library's function of that name.
template <class Function, class... Arguments>
auto pass_on(Function*, const char* name, Arguments... arguments) {
  count_call();
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name))(arguments...);
}

}  // namespace

extern "C" {

int rename(const char* from, const char* to) noexcept {
  return pass_on(&::rename, "rename", from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return pass_on(&::renameat2, "renameat2", from_folder, from, to_folder, to, flags);
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  return pass_on(&::linkat, "linkat", from_folder, from, to_folder, to, flags);
}

int unlink(const char* path) noexcept {
  return pass_on(&::unlink, "unlink", path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  return pass_on(&::unlinkat, "unlinkat", folder, path, flags);
}

int remove(const char* path) noexcept {
  return pass_on(&::remove, "remove", path);
}

int rmdir(const char* path) noexcept {
  return pass_on(&::rmdir, "rmdir", path);
}

int mkdir(const char* path, mode_t mode) noexcept {
  return pass_on(&::mkdir, "mkdir", path, mode);
}

}  // extern "C"
