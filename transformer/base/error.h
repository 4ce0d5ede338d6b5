#pragma once

#include <stdexcept>
#include <string>

namespace transformer {

/// A mistake of the user's or of the input: something that the person who runs the program can mend. Programs
/// catch it once, in `main`, print it as one line and end with status 2.
///
/// The line reads "where: what; remedy": `configs/a.yaml:7: unknown setting 'model.d_modle'; did you mean 'd_model'?`.
class Error : public std::runtime_error {
 public:
  /// `where` names a file, line, key or flag (may be empty); `what` is what was wrong and what was expected;
  /// `remedy` is what to do about it (may be empty).
  Error(const std::string& where, const std::string& what, const std::string& remedy = "")
      : std::runtime_error((where.empty() ? "" : where + ": ") + what + (remedy.empty() ? "" : "; " + remedy)) {}
};

/// Something failed while running that is neither the input's fault nor a broken invariant: a full disk, a loss that
/// is not finite. Programs print it as one line and end with status 1.
class Failure : public std::runtime_error {
 public:
  /// The three parts as Error has them.
  Failure(const std::string& where, const std::string& what, const std::string& remedy = "")
      : std::runtime_error((where.empty() ? "" : where + ": ") + what + (remedy.empty() ? "" : "; " + remedy)) {}
};

/// What `check` returns of settings that were read from `file`: an Error, which names their keys, names it as well.
template <class Check>
auto checked_of(const std::string& file, const Check& check) {
  try {
    return check();
  } catch (const Error& error) {
    throw Error(file, error.what());
  }
}

}  // namespace transformer
