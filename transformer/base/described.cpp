#include "transformer/base/described.h"

#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

#include "transformer/base/error.h"

namespace transformer {

Described described_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.what(), true};
  } catch (const Failure& error) {
    return {error.what(), false};
  } catch (const std::filesystem::filesystem_error& error) {
    // A path that cannot be is a mistake; what the disk refuses is none.
    const auto code = error.code();
    const bool mistaken = code == std::errc::filename_too_long || code == std::errc::not_a_directory ||
                          code == std::errc::too_many_symbolic_link_levels;
    return {error.path1().string() + ": " + code.message(), mistaken};
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
