#include "transformer/text/placeholders.h"

#include <random>

#include "text/text_support.h"

namespace transformer::test {

namespace {

using Strings = std::vector<std::string>;

Strings found(std::string_view text) {
  Strings all;
  for (const auto& span : find_placeholders(text)) all.emplace_back(span.of(text));
  return all;
}

// What localisation files of Python, C, Java, .NET, JavaScript, Ruby, Objective-C and of messages by ICU have.
const Strings placeholders = {"{name}",    "{0}",
                              "{}",        "{user.name}",
                              "{list[0]}", "{$count}",
                              "{ name }",  "{price:.2f}",
                              "{!r}",      "{0:yyyy-MM-dd HH:mm}",
                              "{0,-10}",   "{n, number}",
                              "{0,-8:F2}", "{d, date,x}",
                              "{{name}}",  "{{ a | b }}",
                              "${name}",   "{d, date, short}",
                              "%s",        "%d",
                              "%5.2f",     "%-10s",
                              "%05d",      "%lld",
                              "%zu",       "%@",
                              "%1$s",      "%2$d",
                              "%(name)s",  "%(n)03d",
                              "%{count}",  "%.*f",
                              "me@x.org",  "http://a.b",
                              "www.a.de",  "https://a.b/c?d=e&f#g",
                              "${a-b}",    "%s@%s"};

}  // namespace

TEST_CASE("placeholders are found whatever is around them") {
  for (const auto& placeholder : placeholders) {
    if (placeholder == "%s@%s") continue;
    for (const auto& [before, behind] : {std::pair<std::string, std::string>{"", ""},
                                         {"Delete ", " files?"},
                                         {"\"", "\"."},
                                         {"(", ")"},
                                         {"Hello, ", "!"},
                                         {"é", "\n"},
                                         {"删除", "，"}}) {
      if (before == "é" && placeholder == "me@x.org") continue;  // all of it an address
      CAPTURE(before + placeholder + behind);
      CHECK(found(before + placeholder + behind) == Strings{placeholder});
    }
  }
  CHECK(found("%d/%d, %s%s and {a}{b}") == Strings{"%d", "%d", "%s", "%s", "{a}", "{b}"});
  CHECK(found("%dpx %ss %d个 {n}MB") == Strings{"%d", "%s", "%d", "{n}"});
  CHECK(found("Windows 10 %s, 5 {n}, 3 %1$s") == Strings{"%s", "{n}", "%1$s"});
  CHECK(found("see http://a.b/c_(d), (http://e.f/) or <https://g.h>.") ==
        Strings{"http://a.b/c_(d)", "http://e.f/", "https://g.h"});
  CHECK(found("http://a.b/{id} {http://a.b/{id}}") == Strings{"http://a.b/{id}", "http://a.b/{id}"});
  CHECK(found("{{}}") == Strings{"{}"});
  CHECK(found("%%%s") == Strings{"%s"});
  // Of texts to choose from, what is a placeholder by itself.
  CHECK(found("{n, plural, one {{n} file} other {# files}}") == Strings{"{n}"});
}

TEST_CASE("addresses have letters of any writing that sets words apart") {
  for (const std::string address :
       {"müller@example.de", "émile@x.org", "e\u0301mile@x.org", "jürgen.öz+ä@bücher.de", "юзер2@2почта.рф",
        "म\u0947ल@उद\u093Eहरण.भ\u093Eरत", "x@münchen.de", "한국@한국.한국", "support@thế-giới.vn", "me@nhà.việt",
        "me@x.org.việtnam.vn", "việt@nhà-tôi.vie\u0323\u0302t", "x@bakıxəbər.az", "x@ƙasaɓa.ng", "x@hawaiʻi.org",
        "x@seⱡ.org", "x@maꞌa.org"}) {
    for (const auto& [before, behind] : {std::pair<std::string, std::string>{"", ""},
                                         {"schreibt an ", " oder"},
                                         {"(", ")."},
                                         {"an:", ", und"},
                                         {"删除", "，"}}) {
      CAPTURE(before + address + behind);
      CHECK(found(before + address + behind) == Strings{address});
    }
  }
  // Korean's particles are behind addresses, and Chinese is around them.
  CHECK(found("me@x.org로, a@b.com으로.") == Strings{"me@x.org", "a@b.com"});
  for (const std::string before : {"✉\uFE0F", "❤\uFE0F", "\u2060", "Mail:\u200D", "#\uFE0F\u20E3"}) {
    INFO(before);
    CHECK(found(before + "me@x.org\uFE0F.") == Strings{"me@x.org"});
  }
  // No word is so long.
  CHECK(found("자세한내용이나궁금하신점이있으시면언제든지아래주소me@x.org로") == Strings{"me@x.org"});
  CHECK(found("a@b.e\u0301").empty());
  CHECK(found("用户a@b.com的") == Strings{"a@b.com"});
  CHECK(found("me@x.org\u2060.") == Strings{"me@x.org"});
  for (const char* text : {"é@é", "ö@.de", "ö@b..de", "ö@b.2ä", "\u0301@b.de", "ß@"}) CHECK(found(text).empty());
  // Within words of Persian are joiners.
  CHECK(found("http://a.b/\u0645\u06CC\u200C\u062E\u0648 c") == Strings{"http://a.b/\u0645\u06CC\u200C\u062E\u0648"});
  CHECK(found("http://a.b/c\u200C\u200C d http://e\u200C. www.f\u2060") ==
        Strings{"http://a.b/c", "http://e", "www.f"});
}

TEST_CASE("what only looks like a placeholder is text") {
  for (const std::string text : {"100 % sure",
                                 "100% sure",
                                 "100%sure",
                                 "5% d'accord",
                                 "5 %d'accord",
                                 "5\xC2\xA0%d\xE2\x80\x99"
                                 "accord",
                                 "100%ige",
                                 "100 %ige",
                                 "eine %-ige",
                                 "50%",
                                 "%",
                                 "% d",
                                 "%%",
                                 "%%s",
                                 "100%%d",
                                 "%%(name)s",
                                 "%PATH%",
                                 "%(a b)s",
                                 "%{ a}",
                                 "%( a)s",
                                 "{d, date,  x}",
                                 "%()s",
                                 "{",
                                 "}",
                                 "{ }",
                                 "{{ }}",
                                 "{a set of words}",
                                 "{1, 2, 3}",
                                 "{a: 1, b: 2}",
                                 "{\"a\": 1}",
                                 "{-}",
                                 "{$}",
                                 "{name",
                                 "{{name}",
                                 "$5",
                                 "$",
                                 "${",
                                 "a@b",
                                 "@name",
                                 "a@.de",
                                 "a@b..de",
                                 "a@b.c",
                                 "www.",
                                 "http://",
                                 "http:// a",
                                 "awww.b.de",
                                 "{n, plural, one {# file} other {# files}}",
                                 "{a\nb}",
                                 "{\xC3\xA9}"}) {
    CAPTURE(text);
    if (text == "{{name}") {
      CHECK(found(text) == Strings{"{name}"});
    } else {
      CHECK(found(text).empty());
    }
  }
}

TEST_CASE("of texts of words and placeholders all placeholders are found, and nothing else") {
  static const Strings words = {"Hello", "5",   "%", "{", "d'accord", "100%ige", "$",   "mé",
                                "你好",  "a@b", "-", ",", "50%",      "(s)",     "%%s", "\xFF"};
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    Strings expected;
    for (size_t count = random() % 12; count > 0; --count) {
      const bool is_word = random() % 2 == 0;
      const auto& part = is_word ? words[random() % words.size()] : placeholders[random() % (placeholders.size() - 1)];
      if (!is_word) expected.push_back(part);
      text += part + ' ';
    }
    CAPTURE(text);
    CHECK(found(text) == expected);
  }
}

TEST_CASE("in markup an address ends before what stands for a bracket or a quotation mark") {
  const auto end = [](std::string_view text) { return text.substr(0, placeholder_end(text, 0, true)); };
  CHECK(end("https://a.b/c?d=e&amp;f=g&gt; x") == "https://a.b/c?d=e&amp;f=g");
  CHECK(end("https://a.b/c?d&quot;") == "https://a.b/c?d");
  CHECK(end("{a:<b>}") == "{a:<b>}");  // none: all of the text
  CHECK(placeholder_end("{a:<b>}", 0, true) == std::string_view::npos);
}

TEST_CASE("a megabyte of anything is searched in reasonable time") {
  for (const auto& unit :
       Strings{"{",  "{{", "{a",   "{a:", "%",    "%(", "%5", "%-",   "www.", "www.(", "http://",    "ftp://(",
               "a.", "a@", "a@b.", "aA1", "{{a ", "é",  "é@", "é@é.", "éé ",  "北",    "www.a\u00AD"}) {
    std::string text;
    while (text.size() < (1 << 20)) text += unit;
    CHECK(find_placeholders(text).size() <= text.size());
  }
}

}  // namespace transformer::test
