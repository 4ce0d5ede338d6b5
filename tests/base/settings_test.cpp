#include "transformer/base/settings.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "error_of.h"
#include "support.h"
#include "transformer/base/error.h"

using namespace transformer;
using transformer::test::error_of;
using transformer::test::run_reference;
using transformer::test::TemporaryDirectory;
using transformer::test::write_file;

namespace {

struct NetSettings {
  enum class Kind { sinusoidal, learned };
  // `layers` stands before the settings that it sets, as describe() may have it.
  int64_t width = 512;
  int64_t encoder_layers = 6;
  int64_t decoder_layers = 6;
  double dropout = 0.1;
  Kind kind = Kind::sinusoidal;
  bool bias = false;
  static void describe(Fields<NetSettings>& field) {
    field("width", &NetSettings::width, "width of every layer (§3.1)", at_least(1));
    field.pair("layers", {"encoder_layers", "decoder_layers"}, "sets both");
    field("encoder_layers", &NetSettings::encoder_layers, "layers of the encoder", at_least(1));
    field("decoder_layers", &NetSettings::decoder_layers, "layers of the decoder", between(1, 100));
    field("dropout", &NetSettings::dropout, "P_drop", fraction());
    field("kind", &NetSettings::kind, "positions | §3.5",
          {{"sinusoidal", Kind::sinusoidal}, {"learned", Kind::learned}});
    field("bias", &NetSettings::bias, "biases");
  }
};

struct RunSettings {
  uint64_t seed = 1;
  double epsilon = 1e-9;
  double any = 0;
  int64_t offset = 0;
  std::string name = "run";
  std::vector<std::string> train_source;
  std::vector<double> weights;
  static void describe(Fields<RunSettings>& field) {
    field("seed", &RunSettings::seed, "random seed");
    field("epsilon", &RunSettings::epsilon, "epsilon", more_than(0));
    field("any", &RunSettings::any, "any number");
    field("offset", &RunSettings::offset, "any integer");
    field("name", &RunSettings::name, "name of the run").free();
    field("train_source", &RunSettings::train_source, "files");
    field("weights", &RunSettings::weights, "shares", at_least(0));
  }
};

struct Bound {
  NetSettings net;
  RunSettings run;
  Settings settings;
  Bound() {
    settings.section("net", net, "The net (§3)");
    settings.section("run", run, "The run");
  }
  Bound(const Bound&) = delete;
};

/// What loading `text` as FILE says, with FILE's folder cut off.
std::string load_error(const std::string& text) {
  TemporaryDirectory directory;
  write_file(directory / "a.yaml", text);
  Bound bound;
  std::string message = error_of([&] { bound.settings.load(directory / "a.yaml"); });
  const std::string folder = directory.path().string() + "/";
  for (size_t at; (at = message.find(folder)) != std::string::npos;) message.erase(at, folder.size());
  return message;
}

std::string set_error(const std::string& text) {
  Bound bound;
  return error_of([&] { bound.settings.set({text}); });
}

}  // namespace

TEST_CASE("a settings file sets what it names and leaves the rest") {
  TemporaryDirectory directory;
  write_file(directory / "a.yaml",
             "# comment\nnet:\n  width: 256\n  dropout: 0.25\n  kind: learned\n  bias: true\n"
             "run: {seed: 18446744073709551615, epsilon: 1e-3, name: \"a b\", train_source: [x.en, 'y z.en'],\n"
             "      offset: -3}\n");
  Bound bound;
  bound.settings.load(directory / "a.yaml");
  CHECK(bound.net.width == 256);
  CHECK(bound.net.encoder_layers == 6);
  CHECK(bound.net.dropout == 0.25);
  CHECK(bound.net.kind == NetSettings::Kind::learned);
  CHECK(bound.net.bias);
  CHECK(bound.run.seed == std::numeric_limits<uint64_t>::max());
  CHECK(bound.run.epsilon == 1e-3);
  CHECK(bound.run.name == "a b");
  CHECK(bound.run.offset == -3);
  CHECK(bound.run.train_source == std::vector<std::string>{"x.en", "y z.en"});
}

TEST_CASE("a scalar is a list of one") {
  TemporaryDirectory directory;
  write_file(directory / "a.yaml", "run:\n  train_source: a,b.en\n");
  Bound bound;
  bound.settings.load(directory / "a.yaml");
  CHECK(bound.run.train_source == std::vector<std::string>{"a,b.en"});
}

TEST_CASE("a list of numbers is checked number by number and saved exactly") {
  TemporaryDirectory directory;
  write_file(directory / "a.yaml", "run:\n  weights: [2, 0.5, 1e-3, 0]\n");
  Bound bound;
  bound.settings.load(directory / "a.yaml");
  CHECK(bound.run.weights == std::vector<double>{2, 0.5, 1e-3, 0});
  bound.run.weights.push_back(1.0 / 3);
  write_file(directory / "b.yaml", bound.settings.yaml());
  Bound again;
  again.settings.load(directory / "b.yaml");
  CHECK(again.run.weights == bound.run.weights);
  for (const auto& [text, numbers] : std::vector<std::pair<std::string, std::vector<double>>>{
           {"3", {3}}, {"1,2.5", {1, 2.5}}, {"[4, 5]", {4, 5}}, {"", {}}, {"[]", {}}}) {
    INFO(text);
    bound.settings.set({"run.weights=" + text});
    CHECK(bound.run.weights == numbers);
  }
  CHECK_THAT(set_error("run.weights=1,x"),
             Equals("--set run.weights=1,x: run.weights takes a list of numbers, each at least 0, found 'x' in it"));
  CHECK_THAT(set_error("run.weights=1,,2"), Contains("found '' in it"));
  CHECK_THAT(set_error("run.weights=[nan]"), Contains("found 'nan' in it"));
  CHECK_THAT(set_error("run.weights=1,-1"),
             Contains("run.weights is out of range: -1; it takes a list of numbers, each at least 0"));
  CHECK_THAT(load_error("run:\n  weights: {a: 1}\n"), Contains("takes a list of numbers, each at least 0, found"));
  CHECK_THAT(load_error("run:\n  weights:\n"), Contains("found nothing"));
  CHECK_THAT(bound.settings.reference(),
             Contains("| `weights` | list of numbers | `[]` | each at least 0 | fixed | shares |"));
}

TEST_CASE("numbers are parsed as a whole") {
  Bound bound;
  const auto width = [&](const std::string& text) {
    bound.settings.set({"net.width=" + text});
    return bound.net.width;
  };
  CHECK(width("7") == 7);
  CHECK(width("1e5") == 100000);
  CHECK(width("2.5E3") == 2500);
  CHECK(width("9223372036854775807") == std::numeric_limits<int64_t>::max());
  for (const std::string text :
       {"x", "7x", " 7", "7 ", "0x10", "1.0", "1.5", "1e-1", "nan", "inf", "1_000", "--7", "1e", "true"}) {
    INFO(text);
    CHECK_THAT(set_error("net.width=" + text),
               Equals("--set net.width=" + text + ": net.width takes an integer, at least 1, found '" + text + "'"));
  }
  CHECK_THAT(set_error("net.width="), Contains("net.width takes an integer, at least 1, found nothing"));
  CHECK_THAT(set_error("net.width=9223372036854775808"), Contains("net.width is out of range: '9223372036854775808'"));
  CHECK_THAT(set_error("net.width=1e300"), Contains("out of range") && Contains("at most 9223372036854775807"));
  CHECK_THAT(set_error("run.seed=-1"), Contains("run.seed takes an integer of at least 0, found '-1'"));
  CHECK_THAT(set_error("run.seed=-1e1"), Contains("run.seed takes an integer of at least 0, found '-1e1'"));
  bound.settings.set({"run.seed=1e3", "run.any=-.5"});
  CHECK(bound.run.seed == 1000);
  CHECK(bound.run.any == -0.5);
  for (const std::string text : {"nan", "inf", "-inf", ".inf", "infinity", "1e999", "1,5", "1.5 ", "0x1p3", "false"}) {
    INFO(text);
    CHECK_THAT(set_error("run.any=" + text), Contains("run.any takes a number, found '" + text + "'"));
  }
}

TEST_CASE("a number out of range is answered with the range") {
  CHECK_THAT(set_error("net.width=0"),
             Equals("--set net.width=0: net.width is out of range: 0; it takes an integer, at least 1"));
  CHECK_THAT(set_error("net.dropout=1"),
             Contains("net.dropout is out of range: 1; it takes a number, from 0 to less than 1"));
  CHECK_THAT(set_error("net.dropout=-0.1"), Contains("out of range"));
  CHECK_THAT(set_error("net.decoder_layers=101"), Contains("an integer, from 1 to 100"));
  CHECK_THAT(set_error("run.epsilon=0"), Contains("it takes a number, more than 0"));
  // Of these, a double is the same.
  CHECK(between(0, 9007199254740992).contains(9007199254740992.0L));
  CHECK_FALSE(between(0, 9007199254740992).contains(9007199254740993.0L));
  Bound bound;
  bound.settings.set({"net.dropout=0", "net.decoder_layers=100", "net.width=1"});
  CHECK(bound.net.dropout == 0);
  CHECK(bound.net.decoder_layers == 100);
}

TEST_CASE("ranges contain their included ends only and say so") {
  struct Row {
    Range range;
    bool low, high;
    std::string text;
  };
  for (const auto& [range, low, high, text] : std::vector<Row>{
           {between(0, 1), true, true, "from 0 to 1"},
           {half_open(0, 1), true, false, "from 0 to less than 1"},
           {fraction(), true, false, "from 0 to less than 1"},
           {at_least(0), true, true, "at least 0"},
           {more_than(0), false, true, "more than 0"},
           {at_most(1), true, true, "at most 1"},
           {Range{.lowest = 0, .highest = 1, .lowest_excluded = true}, false, true, "more than 0 and at most 1"},
           {Range{.lowest = 0, .highest = 1, .lowest_excluded = true, .highest_excluded = true}, false, false,
            "more than 0 and less than 1"},
           {Range{}, true, true, ""},
       }) {
    INFO(text);
    CHECK(range.contains(0) == low);
    CHECK(range.contains(1) == high);
    CHECK(range.contains(0.5));
    CHECK(range.text() == text);
  }
  CHECK_FALSE(between(0, 1).contains(1.01));
  CHECK_FALSE(between(0, 1).contains(-0.01));
  CHECK_FALSE(between(0, 1).contains(std::nan("")));
}

TEST_CASE("a value of the wrong type is answered with what was expected and what was found") {
  CHECK_THAT(load_error("net:\n  width: [1]\n"),
             Equals("a.yaml:2: net.width takes an integer, at least 1, found a list"));
  CHECK_THAT(load_error("net:\n  width: {a: 1}\n"), Contains("found a mapping"));
  CHECK_THAT(load_error("net:\n  width:\n  bias: true\n"),
             Equals("a.yaml:2: net.width takes an integer, at least 1, found nothing"));
  CHECK_THAT(load_error("net:\n  bias: yes\n"), Equals("a.yaml:2: net.bias takes true or false, found 'yes'"));
  CHECK_THAT(load_error("net:\n  bias: 1\n"), Contains("net.bias takes true or false, found '1'"));
  CHECK_THAT(load_error("net:\n  kind: lerned\n"),
             Equals("a.yaml:2: net.kind takes one of: sinusoidal, learned, found 'lerned'; did you mean 'learned'?"));
  CHECK_THAT(load_error("net:\n  kind: rotary\n"),
             Equals("a.yaml:2: net.kind takes one of: sinusoidal, learned, found 'rotary'"));
  CHECK_THAT(load_error("run:\n  name: [a]\n"), Contains("run.name takes a text, found a list"));
  CHECK_THAT(load_error("run:\n  name: ~\n"), Contains("run.name takes a text, found nothing"));
  CHECK_THAT(load_error("run:\n  train_source: {a: b}\n"),
             Contains("run.train_source takes a list of texts, found a mapping"));
  // Where the name of a file would end.
  CHECK_THAT(load_error("run:\n  train_source: [b, \"a\\0b\"]\n"),
             Contains("a.yaml:2: run.train_source takes no character U+0000, found 'a\\x00b'"));
  CHECK_THAT(load_error("run:\n  train_source: [[a]]\n"), Contains("run.train_source takes a list of texts, found"));
  CHECK_THAT(load_error("net:\n  layers: x\n"), Contains("net.layers takes an integer, at least 1, found 'x'"));
}

TEST_CASE("unknown names fail with file, line and the nearest known name") {
  CHECK_THAT(load_error("net:\n  bias: true\n  widht: 3\n"),
             Equals("a.yaml:3: unknown setting 'net.widht'; did you mean 'net.width'?"));
  CHECK_THAT(load_error("net:\n  seed: 3\n"), Equals("a.yaml:2: unknown setting 'net.seed'; did you mean 'run.seed'?"));
  CHECK_THAT(load_error("net:\n  layer: 3\n"), Contains("did you mean 'net.layers'?"));
  CHECK_THAT(load_error("net:\n  zzzzzzz: 3\n"),
             Equals("a.yaml:2: unknown setting 'net.zzzzzzz'; the settings of 'net' are: width, layers, "
                    "encoder_layers, decoder_layers, dropout, kind, bias"));
  CHECK_THAT(load_error("\nnett:\n  width: 3\n"), Equals("a.yaml:2: unknown section 'nett'; did you mean 'net'?"));
  CHECK_THAT(load_error("width: 3\n"), Equals("a.yaml:1: unknown section 'width'; did you mean 'net.width'?"));
  CHECK_THAT(load_error("zzzzzzz: {}\n"), Equals("a.yaml:1: unknown section 'zzzzzzz'; the sections are: net, run"));
  CHECK_THAT(set_error("net.widht=3"),
             Equals("--set net.widht=3: unknown setting 'net.widht'; did you mean 'net.width'?"));
  CHECK_THAT(set_error("nte.width=3"), Equals("--set nte.width=3: unknown section 'nte'; did you mean 'net.width'?"));
  CHECK_THAT(set_error("zzzzzzz.yyyyyyy=3"), Contains("the sections are: net, run"));
  for (const std::string text : {"", "net", "net.width", "=", "=3"}) {
    INFO(text);
    CHECK_THAT(set_error(text), Contains("section.setting=value was expected"));
  }
  CHECK_THAT(set_error("width=3"), Equals("--set width=3: 'width' names no section; did you mean 'net.width'?"));
  CHECK_THAT(set_error("sead=3"), Equals("--set sead=3: 'sead' names no section; did you mean 'run.seed'?"));
  CHECK_THAT(set_error("zzzzzzz=a.b"), Equals("--set zzzzzzz=a.b: 'zzzzzzz' names no section; write section.setting"));
}

TEST_CASE("unknown sections can be passed over, unknown settings cannot") {
  TemporaryDirectory directory;
  Bound bound;
  write_file(directory / "a.yaml", "other: {x: 1}\nnet: {width: 3}\n");
  bound.settings.load(directory / "a.yaml", UnknownSections::ignored);
  CHECK(bound.net.width == 3);
  write_file(directory / "a.yaml", "other: {x: 1}\nnet: {widht: 3}\n");
  CHECK_THROWS_WITH(bound.settings.load(directory / "a.yaml", UnknownSections::ignored), Contains("net.widht"));
  write_file(directory / "a.yaml", "width: 3\n");
  CHECK_THROWS_WITH(bound.settings.load(directory / "a.yaml", UnknownSections::ignored), Contains("unknown section"));
}

TEST_CASE("files that are no settings fail in one line with the file and, where there is one, the line") {
  CHECK_THAT(load_error(""), Equals("a.yaml: the file is empty; it must hold sections of settings"));
  CHECK_THAT(load_error("# nothing\n"), Contains("a.yaml: the file is empty"));
  CHECK_THAT(load_error("---\n"), Contains("a.yaml: the file is empty"));
  CHECK_THAT(load_error("just text\n"), Contains("a.yaml:1: sections of settings were expected, found 'just text'"));
  CHECK_THAT(load_error("\n- a\n"), Contains("a.yaml:2: sections of settings were expected, found a list"));
  CHECK_THAT(load_error("net: {width: 3}\n---\nnet: {width: 4}\n"), Contains("a second YAML document"));
  // Where the YAML library finds empty documents for ever.
  CHECK_THAT(load_error(","), Contains(":1: this is not valid YAML: nothing can begin like this"));
  CHECK_THAT(load_error("net: {width: 3}\n...\n,"), Contains(":3: a second YAML document"));
  CHECK_THAT(load_error("net: 3\n"), Equals("a.yaml:1: 'net' is a section of settings, found '3'; write, for instance, "
                                            "'net: {width: 512}'"));
  CHECK_THAT(load_error("net: [width]\n"), Contains("'net' is a section of settings, found a list"));
  CHECK_THAT(load_error("net:\nrun: {}\n"), Contains("a.yaml:1: 'net' is a section of settings, found nothing"));
  CHECK_THAT(load_error("net:\n  width: 3\n  width: 4\n"),
             Equals("a.yaml:3: 'net.width' is given twice (first at a.yaml:2); remove one of them"));
  CHECK_THAT(load_error("net: {width: 3}\nnet: {bias: true}\n"), Contains("a.yaml:2: 'net' is given twice"));
  CHECK_THAT(load_error("net:\n  width: 3\n  bias: [true\nrun: {}\n"),
             Contains("a.yaml:") && Contains("this is not valid YAML"));
  CHECK_THAT(load_error("net:\n  width: 3\n bias: true\n"), Contains("a.yaml:3: this is not valid YAML"));
  CHECK_THAT(load_error("net:\n\twidth: 3\n"), Contains("a.yaml:2:1: YAML does not allow tabs for indentation"));
  CHECK_THAT(load_error("net: *nowhere\n"), Contains("a.yaml:1: this is not valid YAML"));
  CHECK_THAT(load_error("net: {[a]: 3}\n"), Contains("a name was expected before the colon, found a list"));
  CHECK_THAT(load_error(std::string("net:\0", 5)), Contains("a.yaml: this is no settings file: it is binary"));
  CHECK_THAT(load_error("net: \xff\xfe\n"), Contains("it is not UTF-8 text"));
  CHECK_THAT(load_error("net: \x1b\n"), Contains("it is not UTF-8 text"));
  CHECK_THAT(load_error(std::string(5 << 20, '#')), Contains("very large"));
  CHECK_THAT(load_error(std::string(200'000, '[')), Contains("a.yaml"));
  for (const std::string text :
       {"net:\n  width: 3\n bias: true\n", "net: \"open\n", "%BAD\n", "a: b: c\n", "{", "? [", "!!x"}) {
    INFO(text);
    CHECK_THAT(load_error(text), !Contains("\n") && !Equals(""));
  }
  TemporaryDirectory directory;
  Bound bound;
  CHECK_THAT(error_of([&] { bound.settings.load(directory / "none.yaml"); }),
             Equals((directory / "none.yaml").string() + ": no such file; check the path"));
  CHECK_THAT(error_of([&] { bound.settings.load(directory.path()); }),
             Equals(directory.path().string() + ": this is a folder; name a settings file (YAML)"));
}

TEST_CASE("a byte order mark and Windows line ends are read") {
  TemporaryDirectory directory;
  write_file(directory / "a.yaml", "\xef\xbb\xbfnet:\r\n  width: 3\r\n");
  Bound bound;
  bound.settings.load(directory / "a.yaml");
  CHECK(bound.net.width == 3);
}

TEST_CASE("a file that extends another holds what differs, whatever the order of its lines") {
  TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "sub");
  write_file(directory / "base.yaml", "net: {width: 3, dropout: 0.5, bias: true}\n");
  write_file(directory / "sub/middle.yaml", "net: {width: 4}\nrun: {seed: 9}\nextends: ../base.yaml\n");
  write_file(directory / "sub/top.yaml", "extends: middle.yaml\nnet: {bias: false}\n");
  Bound bound;
  bound.settings.load(directory / "sub/top.yaml");
  CHECK(bound.net.width == 4);
  CHECK(bound.net.dropout == 0.5);
  CHECK_FALSE(bound.net.bias);
  CHECK(bound.run.seed == 9);
}

TEST_CASE("mistakes around extends are named") {
  TemporaryDirectory directory;
  const std::string root = directory.path().string() + "/";
  const auto load = [&](const std::string& name) {
    Bound bound;
    return error_of([&] { bound.settings.load(directory / name); });
  };
  write_file(directory / "a.yaml", "net: {width: 3}\nextends: none.yaml\n");
  CHECK(load("a.yaml") == root + "a.yaml:2: extends " + root + "none.yaml: no such file; check the path");
  write_file(directory / "a.yaml", "extends: " + std::string(300, 'a') + "\n");
  CHECK_THAT(load("a.yaml"), Contains("a.yaml:1: extends ") && Contains("it cannot be opened: File name too long"));
  write_file(directory / "a.yaml", "extends: [b.yaml]\n");
  CHECK_THAT(load("a.yaml"), Contains("a.yaml:1: extends takes the path of a settings file, found a list"));
  write_file(directory / "a.yaml", "extends: ''\n");
  CHECK_THAT(load("a.yaml"), Contains("extends takes the path"));
  write_file(directory / "a.yaml", "extends: a.yaml\n");
  CHECK(load("a.yaml") ==
        root + "a.yaml:1: the files extend each other in a circle: a.yaml -> a.yaml; remove one 'extends'");
  write_file(directory / "a.yaml", "extends: b.yaml\n");
  write_file(directory / "b.yaml", "extends: c.yaml\n");
  write_file(directory / "c.yaml", "\nextends: ./b.yaml\n");
  CHECK(load("a.yaml") == root +
                              "c.yaml:2: the files extend each other in a circle: a.yaml -> b.yaml -> c.yaml -> "
                              "b.yaml; remove one 'extends'");
  write_file(directory / "c.yaml", "net: {widht: 1}\n");
  CHECK_THAT(load("a.yaml"), Contains(root + "c.yaml:1: unknown setting 'net.widht'"));
}

TEST_CASE("a name for several settings gives way to their own names in one source and to later sources") {
  TemporaryDirectory directory;
  Bound bound;
  const auto layers = [&] { return std::pair(bound.net.encoder_layers, bound.net.decoder_layers); };
  write_file(directory / "a.yaml", "net: {layers: 2}\n");
  bound.settings.load(directory / "a.yaml");
  CHECK(layers() == std::pair<int64_t, int64_t>(2, 2));
  for (const std::string text : {"net: {layers: 3, encoder_layers: 4}\n", "net: {encoder_layers: 4, layers: 3}\n"}) {
    write_file(directory / "a.yaml", text);
    bound.settings.load(directory / "a.yaml");
    CHECK(layers() == std::pair<int64_t, int64_t>(4, 3));
  }
  write_file(directory / "b.yaml", "extends: a.yaml\nnet: {layers: 5}\n");
  bound.settings.load(directory / "b.yaml");
  CHECK(layers() == std::pair<int64_t, int64_t>(5, 5));
  bound.settings.set({"net.decoder_layers=7", "net.layers=6"});
  CHECK(layers() == std::pair<int64_t, int64_t>(6, 7));
  bound.settings.set({"net.layers=8"});
  CHECK(layers() == std::pair<int64_t, int64_t>(8, 8));
  CHECK_THAT(bound.settings.yaml(), Contains("encoder_layers: 8") && !Contains(" layers:"));
  // The range of each setting holds for the common name too.
  CHECK_THAT(set_error("net.layers=101"), Contains("net.layers is out of range: 101") && Contains("from 1 to 100"));
}

TEST_CASE("overrides by --set win over files, and the later of two wins") {
  TemporaryDirectory directory;
  write_file(directory / "a.yaml", "net: {width: 3}\n");
  Bound bound;
  bound.settings.load(directory / "a.yaml");
  bound.settings.set({"net.width=4", "net.kind=learned", "net.bias=true", "run.name=a=b, [c] # d", "net.width=5"});
  CHECK(bound.net.width == 5);
  CHECK(bound.net.kind == NetSettings::Kind::learned);
  CHECK(bound.net.bias);
  CHECK(bound.run.name == "a=b, [c] # d");
  bound.settings.set({"run.name="});
  CHECK(bound.run.name == "");
}

TEST_CASE("overrides by --set take lists with commas or in brackets") {
  Bound bound;
  const auto list = [&](const std::string& text) {
    bound.settings.set({"run.train_source=" + text});
    return bound.run.train_source;
  };
  using List = std::vector<std::string>;
  CHECK(list("a") == List{"a"});
  CHECK(list("a,b c") == List{"a", "b c"});
  CHECK(list("[a, 'b,c']") == List{"a", "b,c"});
  CHECK(list("[]") == List{});
  CHECK(list("") == List{});
  CHECK_THAT(set_error("run.train_source=[a"), Contains("--set run.train_source=[a") && Contains("not valid YAML"));
  CHECK_THAT(set_error("run.train_source=[[a]]"), Contains("takes a list of texts"));
  // What follows a list is no part of it, and is not left out either.
  for (const std::string text : {"[a],b", "[a] b", "[a].en", "[a]\n---\nb"}) {
    INFO(text);
    CHECK_THAT(set_error("run.train_source=" + text),
               Contains("--set run.train_source=[a]") && Contains("stands behind the end"));
  }
  CHECK_THAT(set_error("run.name=\xff"), Contains("not UTF-8"));
}

TEST_CASE("saved settings are complete, in the order of declaration") {
  Bound bound;
  CHECK(bound.settings.yaml() ==
        "format: 1\n\nnet:\n  width: 512\n  encoder_layers: 6\n  decoder_layers: 6\n  dropout: 0.1\n"
        "  kind: sinusoidal\n  bias: false\n\nrun:\n  seed: 1\n  epsilon: 1.0e-09\n  any: 0.0\n  offset: 0\n"
        "  name: run\n  train_source: []\n  weights: []\n");
}

TEST_CASE("saved settings are read back exactly, here and by Python's yaml") {
  TemporaryDirectory directory;
  const std::vector<std::string> texts = {
      "",    " ",      "a b",    "true",   "No",     "null",       "~",    "1",
      "1e5", "-",      "- a",    "a: b",   "#c",     "a #b",       "'",    "\"",
      "\\",  "\\n",    "a\nb",   "\t",     "\r\n",   "[a]",        "{a}",  "&a",
      "*a",  "!a",     "%a",     "@a",     "`a",     "|",          ">",    "?",
      "=",   "<<",     ".inf",   "0x1f",   "1_000",  "2001-01-01", "ü",    "日本語",
      "😀",   "\u0085", "\u00a0", "\u2028", "\ufeff", "\x01",       "\x7f", "/data/train.en",
      "a,b"};
  Bound bound;
  bound.run.train_source = texts;
  bound.run.name = "line\nbreak: \"x\"";
  bound.run.seed = std::numeric_limits<uint64_t>::max();
  bound.run.offset = std::numeric_limits<int64_t>::min();
  bound.run.any = -5e-324;
  bound.run.epsilon = 0.1 + 0.2;
  bound.net.kind = NetSettings::Kind::learned;
  bound.net.bias = true;
  write_file(directory / "a.yaml", bound.settings.yaml());
  Bound again;
  again.settings.load(directory / "a.yaml");
  CHECK(again.run.train_source == texts);
  CHECK(again.run.name == bound.run.name);
  CHECK(again.run.any == -5e-324);
  CHECK(again.run.epsilon == 0.1 + 0.2);
  CHECK(again.settings.yaml() == bound.settings.yaml());
  for (double number : {1.0 / 3, 1e22, 123456789012345680.0, 1.7976931348623157e308, -0.0, 2.0, 1e-5}) {
    bound.run.any = number;
    write_file(directory / "b.yaml", bound.settings.yaml());
    again.settings.load(directory / "b.yaml");
    CHECK(again.run.any == number);
    CHECK(std::signbit(again.run.any) == std::signbit(number));
  }
  std::string hex;  // so that no shell or encoding stands between the two
  for (const auto& text : texts) {
    for (unsigned char byte : text) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", byte);
      hex += digits;
    }
    hex += "\n";
  }
  write_file(directory / "texts", hex);
  run_reference("settings_check.py", (directory / "a.yaml").string() + " " + (directory / "texts").string());
}

TEST_CASE("the format version of a file is checked") {
  CHECK(load_error("format: 1\nnet: {width: 3}\n").empty());
  CHECK_THAT(load_error("net: {widht: 3}\nformat: 2\n"),
             Contains("a.yaml:2: the file has format 2, written by a newer version of this program") &&
                 Contains("this one reads format 1"));
  CHECK_THAT(load_error("format: x\n"), Contains("format takes a version number, found 'x'"));
  CHECK_THAT(load_error("format: 0\n"), Contains("format takes a version number"));
}

TEST_CASE("settings know whether a source set them") {
  TemporaryDirectory directory;
  write_file(directory / "a.yaml", "net: {width: 512}\n");
  Bound bound;
  CHECK_FALSE(bound.settings.explicitly_set("net.width"));
  bound.settings.load(directory / "a.yaml");
  CHECK(bound.settings.explicitly_set("net.width"));
  CHECK_FALSE(bound.settings.explicitly_set("net.encoder_layers"));
  bound.settings.set({"net.layers=6"});
  CHECK(bound.settings.explicitly_set("net.encoder_layers"));
  CHECK(bound.settings.explicitly_set("net.layers"));
  CHECK_THROWS_AS(bound.settings.explicitly_set("net.widht"), std::invalid_argument);
  CHECK_THROWS_AS(bound.settings.explicitly_set("width"), std::invalid_argument);
}

TEST_CASE("the reference and the help list every setting with the defaults from before loading") {
  TemporaryDirectory directory;
  write_file(directory / "a.yaml", "net: {width: 3}\n");
  Bound bound;
  bound.settings.load(directory / "a.yaml");
  const std::string reference = bound.settings.reference();
  CHECK_THAT(reference,
             Contains("## `net`: The net (§3)\n\n| Setting | Type | Default | Allowed | In a run | Meaning |\n"));
  for (const std::string row :
       {"| `width` | integer | `512` | at least 1 | fixed | width of every layer (§3.1) |\n",
        "| `layers` | integer |  | at least 1 | fixed | sets both |\n",
        "| `dropout` | number | `0.1` | from 0 to less than 1 | fixed | P_drop |\n",
        "| `kind` | choice | `sinusoidal` | `sinusoidal`, `learned` | fixed | positions \\| §3.5 |\n",
        "| `bias` | true or false | `false` |  | fixed | biases |\n",
        "| `seed` | integer | `1` | at least 0 | fixed | random seed |\n",
        "| `name` | text | `run` |  | free | name of the run |\n",
        "| `train_source` | list of texts | `[]` |  | fixed | files |\n"}) {
    CHECK_THAT(reference, Contains(row));
  }
  const std::string help = bound.settings.help();
  CHECK_THAT(
      help,
      Contains(
          "net: The net (§3)\n  net.width=512\n      width of every layer (§3.1) (an integer, at least 1; fixed)\n"));
  CHECK_THAT(help, Contains("  net.layers\n      sets both (an integer, at least 1; fixed)\n"));
  CHECK_THAT(help, Contains("(one of: sinusoidal, learned; fixed)"));
}

namespace {
struct Twice {
  bool flag = false;
  static void describe(Fields<Twice>& field) {
    field("flag", &Twice::flag, "");
    field("flag", &Twice::flag, "");
  }
};
struct Dangling {
  static void describe(Fields<Dangling>& field) { field.pair("both", {"one"}, ""); }
};
}  // namespace

TEST_CASE("contradictory declarations are caught when they are made") {
  Bound bound;
  NetSettings other;
  Twice twice;
  Dangling dangling;
  CHECK_THROWS_AS(bound.settings.section("net", other, ""), std::logic_error);
  CHECK_THROWS_AS(bound.settings.section("extends", other, ""), std::logic_error);
  CHECK_THROWS_AS(bound.settings.section("twice", twice, ""), std::logic_error);
  CHECK_THROWS_AS(bound.settings.section("dangling", dangling, ""), std::logic_error);
}

TEST_CASE("files that are made to cost memory or the stack are refused in one line") {
  const auto nested = [](const std::string& part) {
    std::string text;
    for (int i = 0; i < 100000; ++i) text += part;
    return text;
  };
  for (const std::string part : {"[", "- ", "{a: ", "? ", "{? "}) {
    INFO(part);
    CHECK_THAT(load_error(nested(part)), Contains("nested hundreds deep") && !Contains("\n"));
  }
  // A million times a text of megabytes.
  const std::string text(2 << 20, 'x');
  CHECK_THAT(load_error("run:\n  train_source: [&a " + text + "," + nested("*a,") + "x]\n"),
             Contains("run.train_source") && Contains("aliases") && !Contains("xxxxx"));
  CHECK_THAT(load_error("run: &a [*a, *a]\n"), Contains("a.yaml:1") && !Contains("\n"));
  CHECK_THAT(load_error("run: {train_source: [a, b]\n"), Contains("a '{' without its '}'"));
  CHECK_THAT(load_error("run:\n  name: a: b\n"), Contains("a.yaml:2") && Contains("colon"));
  CHECK_THAT(load_error("net:\n  # fine\n  width: 3\n \t bias: true\n"),
             Contains("a.yaml:4:2: YAML does not allow tabs"));
}
