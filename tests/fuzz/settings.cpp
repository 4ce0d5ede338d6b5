// Files of settings that extend each other, and one setting of a command line: files main, one, two, and `set`.

#include "transformer/base/settings.h"

#include "fuzz/fuzz.h"
#include "transformer/base/error.h"

using namespace transformer;

namespace {

struct Every {  // a setting of every kind
  enum class Kind { sinusoidal, learned };
  int64_t width = 512, encoder_layers = 6, decoder_layers = 6;
  uint64_t seed = 1;
  double dropout = 0.1, any = 0;
  bool bias = false;
  Kind kind = Kind::sinusoidal;
  std::string name = "run";
  std::vector<std::string> files;
  std::vector<double> weights;
  static void describe(Fields<Every>& field) {
    field("width", &Every::width, "", at_least(1));
    field.pair("layers", {"encoder_layers", "decoder_layers"}, "");
    field("encoder_layers", &Every::encoder_layers, "", at_least(1));
    field("decoder_layers", &Every::decoder_layers, "", between(1, 100));
    field("seed", &Every::seed, "");
    field("dropout", &Every::dropout, "", fraction());
    field("any", &Every::any, "");
    field("bias", &Every::bias, "");
    field("kind", &Every::kind, "", {{"sinusoidal", Kind::sinusoidal}, {"learned", Kind::learned}});
    field("name", &Every::name, "");
    field("files", &Every::files, "");
    field("weights", &Every::weights, "", at_least(0));
  }
};

struct Bound {
  Every values;
  Settings settings;
  Bound() { settings.section("model", values, "The model"); }
  Bound(const Bound&) = delete;
};

const fuzz::Target target("settings", [](std::string_view input) {
  auto files = fuzz::files_of(input);
  if (const auto whole = files.find(""); files.size() == 1) files["main"] = whole->second;
  const auto folder = fuzz::write_folder("settings", files);
  for (const auto unknown : {UnknownSections::rejected, UnknownSections::ignored}) {
    Bound given;
    try {
      given.settings.load(folder / "main", unknown);
      if (const auto set = files.find("set"); set != files.end()) given.settings.set({std::string(set->second)});
    } catch (const Error&) {
      continue;
    }
    // What is saved is what was read.
    Bound saved, set;
    saved.settings.load(fuzz::write_scratch("saved.yaml", given.settings.yaml()));
    fuzz::require(saved.settings.values() == given.settings.values(), "settings are saved as they are");
    std::vector<std::string> overrides;
    for (const auto& [name, value] : given.settings.values()) overrides.push_back(name + "=" + value);
    set.settings.set(overrides);
    fuzz::require(set.settings.values() == given.settings.values(), "set() takes every value that values() gives");
  }
});

}  // namespace
