#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "apps/output.h"
#include "transformer/base/error.h"
#include "transformer/base/settings.h"

namespace transformer {

/// --settings and --settings-reference, which tell what there is to set and end. Must outlive the parsing.
class SettingsListing {
 public:
  /// `page`: what --settings-reference writes, for --help.
  SettingsListing(CLI::App& app, const std::string& page) : app_(app) {
    app.add_flag("--settings", list_, "Print every setting, its default and meaning, and end");
    reference_ = app.add_option("--settings-reference", file_, page)->type_name("FILE");
  }
  SettingsListing(const SettingsListing&) = delete;
  SettingsListing& operator=(const SettingsListing&) = delete;

  /// After parsing: whether one of them was given.
  bool asked() const { return list_ || reference_->count() > 0; }

  /// Does what was asked. Throws Error where a page is asked for and something else is given, too: it might be the
  /// file.
  void show(const Settings& settings) const {
    if (reference_->count() == 0) {
      std::cout << settings.help();
      return;
    }
    for (const auto* option : app_.get_options()) {
      if (option->count() == 0 || option == reference_) continue;
      throw Error(reference_->get_name(), fmt::format("stands alone, and {} is given", option->get_name()),
                  "leave that out");
    }
    check_output(reference_->get_name(), file_, {});
    Output page(file_);
    page.write(settings.reference());
    page.commit();
  }

 private:
  CLI::App& app_;
  bool list_ = false;
  std::string file_;
  CLI::Option* reference_ = nullptr;
};

}  // namespace transformer
