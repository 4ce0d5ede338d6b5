#include "apps/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <vector>

#include "apps/messages.h"
#include "transformer/base/ascii.h"

namespace transformer {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
}

/// Those that --help shows, positional ones or the others.
std::vector<const CLI::Option*> options_of(const CLI::App& app, bool positional) {
  std::vector<const CLI::Option*> shown;
  for (const auto* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    const bool named = option->nonpositional();
    if (named != positional) shown.push_back(option);
  }
  return shown;
}

/// "--help" and "-h".
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const auto& name : option.get_snames()) names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

/// The few values that there are; none where there are others. Those that a shell would read otherwise are left out.
std::vector<std::string> values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  std::vector<std::string> values;
  for (const auto& value : CLI::detail::split(type.substr(open + 1, close - open - 1), ',')) {
    const auto plain = [](char c) { return is_ascii_alphanumeric(c) || c == '-' || c == '_' || c == '.' || c == '+'; };
    if (!value.empty() && std::all_of(value.begin(), value.end(), plain)) values.push_back(value);
  }
  return values;
}

// --- roff
// ---------------------------------------------------------------------------------------------------------------

std::string roff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

/// What stands for an option's value: as --help names it, or VALUE where that says what it may be instead.
std::string placeholder(const CLI::Option& option) {
  const std::string& shown = option.get_option_text();
  const std::string type = shown.empty() ? option.get_type_name() : shown.substr(0, shown.find(' '));
  const auto name = type.substr(0, type.find(':'));
  const bool plain = !name.empty() && name.find_first_of("{ ") == std::string::npos;
  return plain ? name : "VALUE";
}

std::string described(const CLI::Option& option) {
  std::string text = option.get_description();
  std::vector<std::string> notes;
  if (takes_value(option)) {
    if (const auto values = values_of(option); !values.empty()) {
      notes.push_back(fmt::format("one of {}", fmt::join(values, ", ")));
    } else if (const auto expected = option_expectation(option); expected != "another value") {
      notes.push_back(expected);
    }
  }
  if (!option.get_default_str().empty()) notes.push_back("default " + option.get_default_str());
  if (option.get_required()) notes.push_back("required");
  if (!notes.empty()) text += fmt::format(" ({})", fmt::join(notes, "; "));
  return text;
}

void add_options(std::string& out, const CLI::App& app) {
  for (const auto* option : options_of(app, /*positional=*/true)) {
    const std::string name = option->get_name(true);
    fmt::format_to(std::back_inserter(out), ".TP\n.I {}\n{}\n", roff(name), roff(described(*option)));
  }
  // Groups in the order of their first option, as --help has them.
  std::vector<std::string> groups;
  const auto options = options_of(app, /*positional=*/false);
  for (const auto* option : options) {
    if (std::find(groups.begin(), groups.end(), option->get_group()) == groups.end()) {
      groups.push_back(option->get_group());
    }
  }
  for (const auto& group : groups) {
    if (group != "Options") fmt::format_to(std::back_inserter(out), ".PP\n{}:\n", roff(group));
    for (const auto* option : options) {
      if (option->get_group() != group) continue;
      std::vector<std::string> names;
      for (const auto& name : names_of(*option)) names.push_back(fmt::format("\\fB{}\\fR", roff(name)));
      fmt::format_to(std::back_inserter(out), ".TP\n{}{}\n{}\n", fmt::join(names, ", "),
                     takes_value(*option) ? fmt::format(" \\fI{}\\fR", roff(placeholder(*option))) : "",
                     roff(described(*option)));
    }
  }
}

std::string first_sentence(const std::string& text) {
  const size_t end = std::min(text.find(": "), text.find(". "));
  auto sentence = text.substr(0, std::min(end, text.find('\n')));
  if (sentence.ends_with('.')) sentence.pop_back();
  return sentence;
}

}  // namespace

std::string examples_of(const std::string& program) {
  static const std::map<std::string, std::vector<std::string_view>> examples = {
      {"attend",
       {"attend --model data/model-en-de --words --output page.html \"She lost her keys.\"",
        "attend --model data/model-en-de --heat-map --kind cross --output maps.svg \"Good morning.\""}},
      {"average",
       {"average --last 5 --output runs/mean runs/en-fr",
        "average --precision bf16 --output runs/mean runs/one runs/other"}},
      {"distill",
       {"distill --model runs/big --source train.en --target train.de --n-best 4 --output runs/taught",
        "distill --model runs/big --source train.en --search sampling --seed 7 --output runs/taught"}},
      {"evaluate",
       {"evaluate bleu --reference reference.de --input translations.de",
        "evaluate perplexity --model runs/en-de --source text.en --target text.de"}},
      {"evaluate bleu",
       {"evaluate bleu --reference reference.de --input translations.de",
        "translate --model runs/en-de --input text.en | evaluate bleu --reference reference.de"}},
      {"evaluate brackets",
       {"evaluate brackets --reference data/gum/dev.mrg.gz --input dev.parsed",
        "parse --model runs/parsing-tiny --input words | evaluate brackets --reference trees.mrg"}},
      {"evaluate chrf",
       {"evaluate chrf --reference reference.de --input translations.de",
        "evaluate chrf --word-order 2 --reference reference.de --input translations.de"}},
      {"evaluate compare",
       {"evaluate compare --reference reference.de --baseline one.de --system other.de",
        "evaluate compare --samples 10000 --reference text.de --baseline one.de --system other.de"}},
      {"evaluate describe",
       {"evaluate describe --model data/model-en-de", "evaluate describe --format json --model data/model-en-de"}},
      {"evaluate mbr",
       {"evaluate mbr --best --input n-best",
        "translate --model runs/en-de --n-best 4 < text.en | evaluate mbr --probabilities score"}},
      {"evaluate perplexity",
       {"evaluate perplexity --model runs/en-de --source text.en --target text.de",
        "evaluate perplexity --model runs/nllb --from eng_Latn --to deu_Latn --source a --target b"}},
      {"evaluate rescore",
       {"evaluate rescore --model runs/other --weight 0.5 --source text.en --input n-best",
        "evaluate rescore --model runs/de-en --reverse --source text.en --best < n-best"}},
      {"evaluate score",
       {"evaluate score --model runs/en-de --source text.en --target text.de",
        "evaluate score --format jsonl --model runs/en-de --source text.en --target - < text.de"}},
      {"evaluate speed",
       {"evaluate speed data/model-en-de --precision float32,int8 --source a.en --reference a.de",
        "evaluate speed runs/big runs/small --source a.en --reference a.de --picture speed.svg"}},
      {"export",
       {"export --to ctranslate2 --model data/model-en-de --output runs/exported",
        "export --to packed --precision int8 --model data/model-en-de --output runs/packed"}},
      {"import",
       {"import --from hugging-face opus-mt-en-de --output runs/opus",
        "import --from marian en-fi/model.npz --vocabularies en-fi/vocab.yml --output runs/en-fi"}},
      {"parse",
       {"parse --model runs/parsing-tiny --pretty < sentences.txt",
        "parse --model runs/parsing-tiny --input sentences.txt --output trees.mrg"}},
      {"report", {"report runs/en-de runs/other --output runs.html", "report runs/en-de --watch 30 --output run.html"}},
      {"serve",
       {"serve --model data/model-en-de --languages en:de", "serve --model runs/en-fr --set serving.port=8080"}},
      {"shortlist",
       {"shortlist --model runs/en-de --source text.en --target text.de --output runs/en-de/list",
        "shortlist --model runs/en-de --frequent 100 --source a.en --target a.de --output list"}},
      {"sweep", {"sweep configs/sweeps/table3-tiny.yaml --jobs 2", "sweep configs/sweeps/table3-tiny.yaml --dry-run"}},
      {"train", {"train configs/demo.yaml --dry-run", "train my.yaml --output runs/en-fr --set training.steps=40000"}},
      {"translate",
       {"translate --model data/model-en-de < in.en > out.de",
        "translate --model data/model-en-de --precision int8 --input in.en --output out.de"}},
      {"treebank",
       {"treebank words --output train.words data/gum/train.mrg.gz",
        "treebank linearize --copy-words --output train.trees data/gum/train.mrg.gz"}},
      {"treebank clean",
       {"treebank clean --output dev.mrg data/gum/dev.mrg.gz", "gzip -dc data/gum/dev.mrg.gz | treebank clean -"}},
      {"treebank linearize",
       {"treebank linearize --output train.trees data/gum/train.mrg.gz",
        "treebank linearize --copy-words --output train.trees data/gum/train.mrg.gz"}},
      {"treebank words",
       {"treebank words --output train.words data/gum/train.mrg.gz", "treebank words data/gum/dev.mrg.gz | head"}}};
  // As a package calls one whose own name is another's there.
  const std::string_view prefix = program.starts_with("transformer-") ? "transformer-" : "";
  const auto found = examples.find(program.substr(prefix.size()));
  if (found == examples.end()) return "";
  std::string text = "Examples:\n";
  for (const auto& example : found->second) text += fmt::format("  {}{}\n", prefix, example);
  return text;
}

std::string man_page(const CLI::App& app, const std::string& version) {
  const auto& name = app.get_name();
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(), ascii_upper);
  std::string out = fmt::format(".TH {} 1 \"\" \"transformer {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n", upper,
                                roff(version), roff(name), roff(first_sentence(app.get_description())));
  const auto commands = commands_of(app);
  fmt::format_to(std::back_inserter(out), ".SH SYNOPSIS\n.B {}\n[OPTIONS]{}", roff(name),
                 commands.empty() ? "" : " COMMAND [OPTIONS]");
  for (const auto* option : options_of(app, /*positional=*/true)) {
    const auto shown = fmt::format("\\fI{}\\fR", roff(option->get_name(true)));
    out += option->get_required() ? " " + shown : fmt::format(" [{}]", shown);
  }
  fmt::format_to(std::back_inserter(out), "\n.SH DESCRIPTION\n{}\n.SH OPTIONS\n", roff(app.get_description()));
  add_options(out, app);
  if (!commands.empty()) out += ".SH COMMANDS\n";
  for (const auto* command : commands) {
    fmt::format_to(std::back_inserter(out), ".SS {}\n{}\n", roff(command->get_name()),
                   roff(command->get_description()));
    add_options(out, *command);
  }
  if (const auto examples = examples_of(name); !examples.empty()) {
    fmt::format_to(std::back_inserter(out), ".SH EXAMPLES\n.nf\n{}.fi\n",
                   roff(examples.substr(examples.find('\n') + 1)));
  }
  out +=
      ".SH EXIT STATUS\n0: done. 1: a failure while running, with nothing lost that was done. 2: a mistake in what was "
      "given. Either is one line on standard error.\n";
  return out;
}

std::string bash_completion(const CLI::App& app) {
  const auto& name = app.get_name();
  std::vector<std::string> command_names;
  std::string values, words;
  const auto add = [&](const CLI::App& command, const std::string& label, const std::vector<std::string>& more) {
    auto known = more;
    for (const auto* option : options_of(command, /*positional=*/false)) {
      const auto names = names_of(*option);
      known.insert(known.end(), names.begin(), names.end());
      if (const auto choices = values_of(*option); takes_value(*option) && !choices.empty()) {
        for (const auto& given : names) {
          fmt::format_to(std::back_inserter(values), "    \"{} {}\") words='{}' ;;\n", label, given,
                         fmt::join(choices, " "));
        }
      } else if (takes_value(*option)) {
        for (const auto& given : names)
          fmt::format_to(std::back_inserter(values), "    \"{} {}\") return ;;\n", label, given);
      }
    }
    fmt::format_to(std::back_inserter(words), "      \"{}\") words='{}' ;;\n", label, fmt::join(known, " "));
  };
  for (const auto* command : commands_of(app)) command_names.push_back(command->get_name());
  add(app, "", command_names);
  for (const auto* command : commands_of(app)) add(*command, command->get_name(), {});

  std::string find_command;
  if (!command_names.empty()) {
    find_command = fmt::format(
        "  for word in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n"
        "    case $word in {}) command=$word; break ;; esac\n"
        "  done\n",
        fmt::join(command_names, " | "));
  }
  // Where nothing is completed here, `-o default` completes names of files.
  return fmt::format(
      "# bash completion for {0}, written by `{0} --completion bash`.\n"
      "_transformer_{0}() {{\n"
      "  local word command= words= current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  COMPREPLY=()\n"
      "{1}"
      "  case \"$command $before\" in\n"
      "{2}"
      "    *)\n"
      "      case $command in\n"
      "{3}"
      "      esac\n"
      "      [[ $current == -* || $words != -* ]] || return\n"
      "      ;;\n"
      "  esac\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
      "}}\n"
      "complete -o default -F _transformer_{0} {0}\n",
      name, find_command, values, words);
}

}  // namespace transformer
