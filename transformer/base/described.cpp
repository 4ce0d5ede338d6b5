#include "transformer/base/described.h"

#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/unreadable.h"

namespace transformer {

Described described_exception() {
  try {
    throw;
  } catch (const Unreadable& error) {
    return {error.what(), error.is_mistake()};
  } catch (const Error& error) {
    return {error.what(), true};
  } catch (const Failure& error) {
    return {error.what(), false};
  } catch (const std::filesystem::filesystem_error& error) {
    return {error.path1().string() + ": " + error.code().message(), is_no_path(error.code())};
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) return {error.what(), false};
    return {"threads: none could be started; raise what limits them (ulimit -u, -v; a container's pids)", false};
  } catch (const std::bad_alloc&) {
    return {"out of memory", false};
  } catch (const std::exception& error) {
    // Libraries append pages of context to the line that says what happened.
    const std::string text = error.what();
    return {text.substr(0, text.find('\n')), false};
  } catch (...) {
    return {"an unknown exception", false};
  }
}

}  // namespace transformer
