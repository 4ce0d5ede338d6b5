#include "apps/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <string_view>

#include "apps/manual.h"
#include "apps/messages.h"
#include "transformer/base/described.h"
#include "transformer/base/error.h"
#include "transformer/base/unicode.h"

namespace transformer {

namespace {

/// What is asked for in place of a program's work.
struct Printed {
  std::string text;
};

/// Takes the places of standard streams that are closed, so that no file or connection of the program's comes to lie
/// there, among what it reads, prints and logs. Reading and writing them stays the error that it is for closed ones.
void take_closed_streams() {
  for (const int stream : {0, 1, 2}) {
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
  }
}

/// Takes signals that this program was started with blocked, as who blocks them for itself may leave them: it would end
/// by none. Those that are ignored (nohup) stay so.
void unblock_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGTSTP, SIGCHLD, SIGXFSZ}) sigaddset(&signals, signal);
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
}

/// Has standard output and error wait where the pipe or terminal that they lead to takes no more just now. One that
/// another program has left so that it does not wait is opened anew: the descriptor that there is others share, who may
/// want it so. What cannot be opened, as a socket, stays as it is.
void wait_for_readers() {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    const int flags = ::fcntl(stream, F_GETFL);
    if (flags < 0 || (flags & O_NONBLOCK) == 0 || (flags & O_ACCMODE) == O_RDONLY) continue;
    struct stat status = {};
    const bool pipe = ::fstat(stream, &status) == 0 && S_ISFIFO(status.st_mode);
    // The other end of a terminal would come to be that of a new one.
    if (!pipe && (::isatty(stream) == 0 || ::ptsname(stream) != nullptr)) continue;
    // Opening does not wait for a reader, who may have gone.
    const int own = ::open(fmt::format("/proc/self/fd/{}", stream).c_str(),
                           (flags & O_ACCMODE) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own < 0) continue;
    if (::fcntl(own, F_SETFL, flags & ~O_NONBLOCK) == 0) ::dup2(own, stream);
    ::close(own);
  }
}

/// Throws what is asked for, by itself, by who installs: of the declarations alone, whatever else they require. Throws
/// Error where anything else is given with it. Parsing answers a shell of another name, or none.
void answer_who_installs(const CLI::App& app, std::span<char* const> words) {
  for (const std::string_view word : words) {
    if (word == "--") return;
    const auto name = word.substr(0, word.find('='));
    if (name != "--man" && name != "--completion") continue;
    if (word != words.front() || words.size() > (word == "--completion" ? 2 : 1)) {
      throw Error(std::string(name), "stands alone", "leave out what else was given");
    }
    if (name == "--man") throw Printed{man_page(app, TRANSFORMER_VERSION)};
    if (word == "--completion=bash" || words.back() == std::string_view("bash")) throw Printed{bash_completion(app)};
  }
}

/// Parsing throws Error where a file, folder, device or anything else is given without a name, or nothing in place of
/// an argument without a flag, as an unset variable of a shell gives it: taken as not given, it would do something
/// else; and where a folder is named as a standard stream is.
void check_names(CLI::App& command) {
  for (auto* option : command.get_options()) {
    const auto kind = option->get_option_text().empty() ? option->get_type_name() : option->get_option_text();
    const auto is = [&](const char* name) { return kind.starts_with(name); };
    const bool folder = is("DIR"), path = folder || is("FILE") || is("PATH") || is("PROGRAM");
    const bool named = path || is("NAME") || is("DEVICE") || is("KIND") || is("STEP|") || kind == "N";
    if (!named && !option->get_positional()) continue;
    const char* remedy = folder ? "name a folder" : path ? "name a file" : "give something, or leave it out";
    option->check([name = option->get_name(), remedy, folder](const std::string& text) {
      if (text.empty()) throw Error(name, "is empty", remedy);
      if (folder && text == "-")
        throw Error(name, "is a folder, and - a standard stream", "name it (./- if so it is called)");
      return std::string();
    });
  }
  for (auto* subcommand : command.get_subcommands([](const CLI::App*) { return true; })) {
    check_names(*subcommand);
  }
}

/// Throws Error for --name= with nothing behind it, which would take the next word for its value.
void refuse_unfinished(std::span<char* const> words) {
  for (const std::string_view word : words) {
    if (word == "--") return;
    const auto equals = word.find('=');
    if (!word.starts_with("--") || equals + 1 != word.size()) continue;
    throw Error(printable(word.substr(0, equals)), "is empty", "give something, or leave it out");
  }
}

/// Whether standard output is a pipe that nobody reads any more, so that there is nobody to tell.
bool reader_has_gone() {
  pollfd output = {STDOUT_FILENO, 0, 0};
  return ::poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0;
}

}  // namespace

int run_program(int argc, char** argv, const ProgramBody& body) {
  take_closed_streams();
  unblock_signals();
  wait_for_readers();
  // A parent may have SIGPIPE ignored; `program | head` should end quietly all the same.
  std::signal(SIGPIPE, SIG_DFL);
  // A file that may grow no further (ulimit -f) is told of as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  const std::string name = std::filesystem::path(argc > 0 ? argv[0] : "program").filename().string();
  const auto fail = [&](const std::string& message, int status) {
    std::cout.flush();
    // In one piece: others may write there, too.
    std::cerr << fmt::format("{}: error: {}\n", one_line(name), one_line(message)) << std::flush;
    return status;
  };

  CLI::App app;
  app.name(name);
  app.set_version_flag("--version", name + " " TRANSFORMER_VERSION);
  std::string completion;
  app.add_option("--completion", completion, "Print a script that completes commands and options, and end")
      ->type_name("SHELL")
      ->check(CLI::IsMember({"bash"}))
      ->option_text("{bash}");
  bool man = false;
  app.add_flag("--man", man, "Print a page for man(1), and end");
  app.footer(examples_of(name));
  try {
    const auto parse = [&] {
      const std::span<char* const> words(argv + std::min(argc, 1), argv + argc);
      answer_who_installs(app, words);
      check_names(app);
      refuse_unfinished(words);
      app.parse(argc, argv);
    };
    const int status = body(app, parse);
    std::cout.flush();
    if ((!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && !reader_has_gone()) {
      throw Failure("standard output", "could not be written");
    }
    return status;
  } catch (const Printed& printed) {
    std::cout << printed.text << std::flush;
    return std::cout ? 0 : fail("standard output: could not be written", 1);
  } catch (const CLI::Success& asked) {
    const int status = app.exit(asked);
    std::cout.flush();
    return std::cout ? status : fail("standard output: could not be written", 1);
  } catch (const CLI::ParseError& error) {
    return fail(argument_mistake(app, {argv, static_cast<size_t>(argc)}, error), 2);
  } catch (...) {
    const auto described = described_exception();
    return fail(described.text, described.mistake ? 2 : 1);
  }
}

void parse_beside_settings(const CLI::App& app, const std::function<void()>& parse, const Settings& settings) {
  try {
    parse();
  } catch (const CLI::ParseError&) {
    for (const auto& word : app.remaining()) {
      if (word == "--") break;
      if (!word.starts_with("--")) continue;
      auto name = word.substr(2, word.find('=') - 2);
      std::replace(name.begin(), name.end(), '-', '_');
      for (const auto& [setting, value] : settings.values()) {
        if (setting.substr(setting.find('.') + 1) != name && setting != name) continue;
        throw Error(printable(word), "is no option, but a setting", fmt::format("write --set {}=VALUE", setting));
      }
    }
    throw;
  }
}

}  // namespace transformer
