#include "transformer/text/markup.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "text/text_support.h"
#include "transformer/base/unicode.h"
#include "transformer/text/lines.h"
#include "transformer/text/placeholders.h"

namespace transformer::test {

namespace {

using Strings = std::vector<std::string>;
using Links = std::vector<std::pair<size_t, size_t>>;

Strings tags_of(const MarkedText& marked) {
  Strings tags;
  for (const auto& tag : marked.tags) tags.push_back(tag.markup);
  return tags;
}

/// The tags of `marked` in a translation of one segment.
std::string placed(const std::string& marked, const std::string& translation, const Links& links,
                   const CarriedOver& carried = {}) {
  const auto source = parse_markup(marked, carried);
  const auto inner = trim(source.text);
  const size_t begin = inner.empty() ? 0 : static_cast<size_t>(inner.data() - source.text.data());
  const std::vector<AlignedSegment> segments = {{{begin, begin + inner.size()}, {0, translation.size()}, links}};
  return with_tags(source, translation, place_tags(source, translation, segments));
}

/// The tag that is around each tag, -1: none, where they are written in `order`; none at all where they do not nest.
std::vector<int64_t> parents(const MarkedText& marked, const std::vector<size_t>& order) {
  std::vector<int64_t> parent(marked.tags.size(), -2), open;
  for (const size_t tag : order) {
    const auto partner = marked.tags[tag].partner;
    if (partner >= 0 && static_cast<size_t>(partner) < tag) {
      if (open.empty() || open.back() != partner) return {};
      open.pop_back();
      parent[tag] = parent[static_cast<size_t>(partner)];
      continue;
    }
    parent[tag] = open.empty() ? -1 : open.back();
    if (partner >= 0) open.push_back(static_cast<int64_t>(tag));
  }
  return open.empty() ? parent : std::vector<int64_t>{};
}

/// What holds of tags wherever they are placed.
void check_placed(const MarkedText& source, const std::string& translation, const std::vector<PlacedTag>& tags) {
  REQUIRE(tags.size() == source.tags.size());
  std::vector<size_t> order, before(tags.size());
  size_t position = 0;
  bool ascending = true, between_characters = true;
  for (const auto& tag : tags) {
    ascending = ascending && tag.position >= position;
    position = tag.position;
    order.push_back(tag.tag);
    between_characters = between_characters && (position >= translation.size() ||
                                                (static_cast<unsigned char>(translation[position]) & 0xC0) != 0x80);
  }
  CHECK(ascending);
  CHECK(between_characters);
  CHECK(position <= translation.size());
  for (size_t i = 0; i < tags.size(); ++i) before[i] = i;
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  REQUIRE((sorted == before));
  const auto nesting = parents(source, before);
  CHECK(nesting.size() == tags.size());
  CHECK((parents(source, order) == nesting));
}

const CarriedOver placeholders_alone{.tags = false, .placeholders = true}, all_carried{.placeholders = true};

Strings placeholders_of(std::string_view text) {
  Strings all;
  for (const auto& span : find_placeholders(text)) all.emplace_back(span.of(text));
  std::sort(all.begin(), all.end());
  return all;
}

std::string without_blanks(std::string_view text) {
  std::string result;
  for (const auto word : split_words(text)) result += word;
  return result;
}

/// Elements in elements around words, the same for the same seed.
std::string random_markup(std::mt19937& random, int depth, bool whole_words,
                          const Strings& words = {"ba", "Do.", "ki,", "\"lu\"", "mé", "你好。", "1"}) {
  static const Strings names = {"b", "i", "a", "span", "p", "li"};
  std::string text;
  for (size_t count = random() % 5; count > 0; --count) {
    const auto kind = random() % 10;
    if (!whole_words && random() % 3 == 0) text += ' ';
    if (kind < 5 || depth == 0) {
      if (whole_words && !text.empty() && !text.ends_with(' ')) text += ' ';
      text += words[random() % words.size()];
      if (!whole_words && random() % 4 == 0) text += " &amp; &eacute;&lt;";
    } else if (kind < 9) {
      const auto name = names[random() % names.size()];
      const auto inside = random_markup(random, depth - 1, whole_words, words);
      if (whole_words && (inside.empty() || inside.starts_with(' '))) continue;
      if (whole_words && !text.empty() && !text.ends_with(' ')) text += ' ';
      text += fmt::format("<{0} x='>'>{1}</{0}>", name, inside);
    } else if (!whole_words) {
      static const Strings odd = {
          "<br/>", "<b>", "</i>", "<!-- <b> -->", "<", "&", "<img src=\"a>b\">", "</b", "<script>a</b></script>"};
      text += odd[random() % odd.size()];
    }
  }
  return text;
}

}  // namespace

TEST_CASE("markup is taken apart into text and tags") {
  const auto marked = parse_markup("A<p class=\"a > b\">x &lt;y&gt; &eacute;</P><br/>z<!-- <b> -->");
  CHECK(marked.text == "Ax <y> éz");
  CHECK(tags_of(marked) == Strings{"<p class=\"a > b\">", "</P>", "<br/>", "<!-- <b> -->"});
  CHECK(marked.tags[0].partner == 1);
  CHECK(marked.tags[1].partner == 0);
  CHECK(marked.tags[2].partner == -1);
  CHECK(marked.tags[0].position == 1);
  CHECK(marked.tags[1].position == 9);
  CHECK(marked.breaks() == std::vector<size_t>{1, 9, 9});
  CHECK(tags_of(parse_markup("<script>if (a < b) c(\"</p>\")</SCRIPT><style>x</style>")) ==
        Strings{"<script>if (a < b) c(\"</p>\")</SCRIPT>", "<style>x</style>"});
  CHECK(tags_of(parse_markup("<script>a=\"</scripts>\";</script-><b></script\t><style></styled></style/>")) ==
        Strings{"<script>a=\"</scripts>\";</script-><b></script\t>", "<style></styled></style/>"});
  CHECK(tags_of(parse_markup("<Zone>x</zone><a><z></aZ>")) == Strings{"<Zone>", "</zone>", "<a>", "<z>", "</aZ>"});
  CHECK(tags_of(parse_markup("<!DOCTYPE html><?xml version='1'?><![CDATA[<a>]]>")) ==
        Strings{"<!DOCTYPE html>", "<?xml version='1'?>", "<![CDATA[<a>]]>"});
}

TEST_CASE("what is no tag is text") {
  for (const std::string text :
       {"a < b", "<3", "< b>", "<b", "<b x=\"", "<!-- a", "</", "</>", "<", "<>", "<!", "<?x", "1<2>0"}) {
    const auto marked = parse_markup(text);
    CHECK(marked.tags.empty());
    CHECK(marked.text == text);
    CHECK(parse_markup(escaped_text(text)).text == text);
  }
  // Quotes that never end are none, and an unfinished comment hides nothing.
  CHECK(tags_of(parse_markup("<a title=\">x</a>")) == Strings{"<a title=\">", "</a>"});
  CHECK(tags_of(parse_markup("<!-- <b>x</b>")) == Strings{"<b>", "</b>"});
  CHECK(tags_of(parse_markup("<script>a<b>")) == Strings{"<script>", "<b>"});
}

TEST_CASE("what a line of a page leaves open goes on in the next") {
  using Page = std::vector<std::pair<std::string, std::string>>;  // lines, and what of each is text
  const auto page = GENERATE(Page{{"<!DOCTYPE html", ""},
                                  {"\"a\">One <!-- <b>", "One "},
                                  {"--> two<![CDATA[", " two"},
                                  {"<!--]] >", ""},
                                  {"]]><i", ""},
                                  {">three", "three"}},
                             Page{{"One <2> <p class=\"a\"", "One <2> "},
                                  {" id='b' lang=", ""},
                                  {"\t \"a > b\">two</p", "two"},
                                  {"> three <4<img alt=\"x > y", " three <4"},
                                  {"'z' > <b>\" src=z", ""},
                                  {"/>four", "four"}},
                             Page{{"<script src=a", ""},
                                  {">var one = 1 < 2;", ""},
                                  {"// <!-- ", ""},
                                  {"</b></Script>two", "two"},
                                  {"<style>p { }", ""},
                                  {"</styl", ""},
                                  {"</style", ""},
                                  {"a>three<script/>four", "threefour"},
                                  {"<script", ""},
                                  {"/>five", "five"}},
                             Page{{"one<!-- two", "one"}, {"--!>", ""}, {"", ""}, {"three", ""}});
  OpenMarkup open;
  for (const auto& [line, text] : page) {
    const auto marked = parse_markup(line, {}, open);
    CHECK(marked.text == text);
    size_t bytes = text.size();
    for (const auto& tag : marked.tags) bytes += tag.markup.size();
    CHECK(bytes == line.size());
  }
}

TEST_CASE("a page by its lines is the page as a whole") {
  std::mt19937 random(5);
  const Strings parts = {"<!-- a <b> c -->",
                         "<p class=\"a > b\" x='y'>",
                         "</p >",
                         "<br />",
                         "<script a>if (a < b) </ b>; </script >",
                         "<style >p > a { }</STYLE>",
                         "<?xml version='1' ?>",
                         "<![CDATA[ <a> ]]>",
                         "one two ",
                         "a < b ",
                         "&amp; c"};
  for (int round = 0; round < 300; ++round) {
    std::string page;
    for (int i = 0; i < 12; ++i) page += parts[random() % parts.size()];
    const auto whole = parse_markup(page);
    std::string markup;
    for (const auto& tag : whole.tags) markup += tag.markup;
    OpenMarkup open;
    std::string text, tags;
    for (size_t begin = 0; begin <= page.size();) {
      // Lines that end at blanks, which they keep.
      size_t end = page.find(' ', begin + random() % 20);
      end = end == std::string::npos ? page.size() : end + 1;
      const auto marked = parse_markup(page.substr(begin, end - begin), {}, open);
      text += marked.text;
      for (const auto& tag : marked.tags) tags += tag.markup;
      if (end == page.size()) break;
      begin = end;
    }
    INFO(page);
    CHECK(text == whole.text);
    CHECK(tags == markup);
    CHECK(open.kind == OpenMarkup::Kind::none);
  }
}

TEST_CASE("declarations and instructions of XML end where they end") {
  CHECK(tags_of(parse_markup("<?php if ($a > 3) echo 1; ?>a<?xml b>c")) ==
        Strings{"<?php if ($a > 3) echo 1; ?>", "<?xml b>"});
  const std::string declared = "<!DOCTYPE note [ <!ENTITY nbsp \"&#160;\"> ]>";
  CHECK(tags_of(parse_markup(declared + "<a>b</a>")) == Strings{declared, "<a>", "</a>"});
  CHECK(parse_markup(declared + "x").text == "x");
  CHECK(tags_of(parse_markup("<!DOCTYPE html>[1]>")) == Strings{"<!DOCTYPE html>"});
  CHECK(parse_markup("<!DOCTYPE a [ b").tags.empty());
}

TEST_CASE("elements that HTML does not end are pairs where they are ended") {
  const auto partners_of = [](const std::string& text) {
    std::vector<int64_t> partners;
    for (const auto& tag : parse_markup(text).tags) partners.push_back(tag.partner);
    return partners;
  };
  CHECK(partners_of("<source>a <Link>b</Link></source>") == std::vector<int64_t>{3, 2, 1, 0});
  CHECK(partners_of("<b>a<br>b<img src=c></b><hr>") == std::vector<int64_t>{3, -1, -1, 0, -1});
}

TEST_CASE("elements that do not end, or never began, are alone") {
  const auto crossed = parse_markup("<b>a<i>b</b>c</i><p>d<p>e</ul>");
  std::vector<int64_t> partners;
  for (const auto& tag : crossed.tags) partners.push_back(tag.partner);
  CHECK(partners == std::vector<int64_t>{2, -1, 0, -1, -1, -1, -1});
}

TEST_CASE("references are the characters that Python's html module knows") {
  const TemporaryDirectory folder;
  Strings lines = {"&amp;&lt;&gt;&quot;&apos;&nbsp;",
                   "&eacute;&Eacute;&euro;&mdash;&hellip;&sup2;&Alpha;&there4;",
                   "&amp;amp; &#38;#38;",
                   "&unknown &; & &# &#; &#x; &#xg; &1;",
                   "&copy 2020 &notit &ampere &AMP;&LT",
                   "&#8364;&#x20AC;&#X20ac;&#128;&#150;",
                   "&#0;&#55296;&#x110000;&#99999999999999999999;",
                   "&#1;&#7;&#xFFFE;a",
                   "&frac12&frac34;&ETHx",
                   "a&b c&d &copy.x&amp-y"};
  for (const char* name : {"alpha", "Aacute", "zwnj", "rarr", "hearts", "thorn", "yuml", "sigmaf", "lang", "rang"}) {
    lines.push_back(fmt::format("&{0}; &{0} &{0}x", name));
  }
  std::string text;
  for (const auto& line : lines) text += line + '\n';
  write_file(folder / "in", text);
  run_reference("html_references.py", fmt::format("'{}' '{}'", (folder / "in").string(), (folder / "out").string()));
  const auto expected = read_lines(folder / "out");
  REQUIRE(expected.size() == lines.size());
  for (size_t i = 0; i < lines.size(); ++i) CHECK(parse_markup(lines[i]).text == expected[i]);
  CHECK(parse_markup("a&#10;b&#13;c").text == "a b c");
}

TEST_CASE("references of names that are not known come back as they were") {
  const auto marked = parse_markup("Welcome to &brandShortName; or &copyCmd.label; with &a-b_c:d; &eacute;");
  CHECK(tags_of(marked) == Strings{"&brandShortName;", "&copyCmd.label;", "&a-b_c:d;"});
  CHECK(marked.text == "Welcome to or with é");
  CHECK(parse_markup("&brand", {}).text == "&brand");
  CHECK(parse_markup("&brand;", placeholders_alone).text == "&brand;");
  CHECK(placed("Restart &brandShortName;!", "Neu starten!", {{0, 0}, {0, 1}}) == "Neu starten &brandShortName;!");
  CHECK(placed("<b>About &vendor;</b> &amp; more", "Über & mehr", {{0, 0}, {1, 1}, {2, 2}}) ==
        "<b>Über &vendor;</b> &amp; mehr");
  CHECK(placed("Use {n} &app;s &lt; 3", "Nimm < 3", {{0, 0}, {2, 1}, {3, 2}}, all_carried).find("&app;") !=
        std::string::npos);
}

TEST_CASE("declarations that never end take no longer than their text") {
  for (const std::string behind : {"", "[", ">"}) {
    std::string text;
    while (text.size() < most_line_bytes) text += "<!a";
    text += behind;
    const auto start = std::chrono::steady_clock::now();
    const auto marked = parse_markup(text);
    // Ten minutes where each looks through all that is behind it.
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
    CHECK(marked.tags.size() == (behind == ">" ? 1 : 0));
  }
}

TEST_CASE("tags follow the words they are around") {
  CHECK(placed("The <b>red</b> car", "La voiture rouge", {{0, 0}, {2, 1}, {1, 2}}) == "La voiture <b>rouge</b>");
  CHECK(placed("<p>The <b>red</b> car</p>", "La voiture rouge", {{0, 0}, {2, 1}, {1, 2}}) ==
        "<p>La voiture <b>rouge</b></p>");
  CHECK(placed("I <i>have <b>seen</b></i> it.", "Ich habe es gesehen.", {{0, 0}, {1, 1}, {3, 2}, {2, 3}}) ==
        "Ich <i>habe<b></b></i> es gesehen.");
  CHECK(placed("<b>red</b> <i>car</i>", "voiture rouge", {{1, 0}, {0, 1}}) == "<i>voiture</i> <b>rouge</b>");
  // Commas stay where they were.
  CHECK(placed("Say <b>yes</b>, please", "Sag ja, bitte", {{0, 0}, {1, 1}, {2, 2}}) == "Sag <b>ja</b>, bitte");
  CHECK(placed("Say <b>yes,</b> please", "Sag ja, bitte", {{0, 0}, {1, 1}, {2, 2}}) == "Sag <b>ja,</b> bitte");
  CHECK(placed("Say (<b>yes</b>)", "Sag (ja)", {{0, 0}, {1, 1}}) == "Sag (<b>ja</b>)");
  // What is alone stays with its neighbour, and what is written is escaped.
  CHECK(placed("one<br> two", "eins zwei", {{0, 0}, {1, 1}}) == "eins<br> zwei");
  CHECK(placed("one <br>two", "zwei eins", {{1, 0}, {0, 1}}) == "<br>zwei eins");
  CHECK(placed("a &amp; <b>b</b>", "b & <a>", {{2, 0}, {1, 1}, {0, 2}}) == "<b>b</b> &amp; &lt;a&gt;");
  // Without any link nothing is lost.
  CHECK(placed("x <b>y</b> z", "u v w", {}) == "<b></b>u v w");
  CHECK(placed("<b>x</b>", "", {}) == "<b></b>");
  CHECK(placed("", "x", {}) == "x");
}

TEST_CASE("tags between sentences stay there, whatever becomes of the words") {
  const auto source = parse_markup("<p>One <b>two. Three</b> four.</p>\n<br><p>Five</p>");
  CHECK(source.text == "One two. Three four.\nFive");
  const std::string translation = "2 1. 4 3.\n5";
  const std::vector<AlignedSegment> segments = {
      {{0, 8}, {0, 4}, {{1, 0}, {0, 1}}}, {{9, 20}, {5, 9}, {{1, 0}, {0, 1}}}, {{21, 25}, {10, 11}, {{0, 0}}}};
  const auto tags = place_tags(source, translation, segments);
  check_placed(source, translation, tags);
  // What goes on behind a sentence does so in the translation, here round none of the words, which are at other ends.
  CHECK(with_tags(source, translation, tags) == "<p>2 1.<b> </b>4 3.</p>\n<br><p>5</p>");
}

TEST_CASE("what is between segments keeps the tags that are round it") {
  // Each segment: what it is a translation of, and the translation.
  using Sentences = std::vector<std::pair<std::string, std::string>>;
  const auto with = [](const std::string& marked, const Sentences& sentences) {
    const auto source = parse_markup(marked);
    std::string translation;
    std::vector<AlignedSegment> segments;
    size_t done = 0;
    for (const auto& [sentence, translated] : sentences) {
      const size_t begin = source.text.find(sentence, done);
      REQUIRE(begin != std::string::npos);
      translation += source.text.substr(done, begin - done);
      done = begin + sentence.size();
      segments.push_back({{begin, done}, {translation.size(), translation.size() + translated.size()}, {{0, 0}}});
      translation += translated;
    }
    translation += source.text.substr(done);
    const auto tags = place_tags(source, translation, segments);
    check_placed(source, translation, tags);
    return with_tags(source, translation, tags);
  };
  CHECK(with("<tr><td>Yes</td><td>✓</td><td><b>—</b></td></tr>\n<button>×</button>\n", {{"Yes", "Ja"}}) ==
        "<tr><td>Ja</td><td>✓</td><td><b>—</b></td></tr>\n<button>×</button>\n");
  CHECK(with("<p><strong>1.</strong> Good morning.</p><p><i>–</i></p>", {{"Good morning.", "Guten Morgen!"}}) ==
        "<p><strong>1.</strong> Guten Morgen!</p><p><i>–</i></p>");
  CHECK(with("<p>One.<b> </b><i>Two.</i></p>", {{"One.", "Eins."}, {"Two.", "Zwei."}}) ==
        "<p>Eins.<b> </b><i>Zwei.</i></p>");
  const std::string signs = "<td>–</td><td><b>—</b> <i>×<u></u></i></td><br>•<td></td>";
  CHECK(with(signs, {}) == signs);
  // Where it is not between the translations, round nothing.
  const auto source = parse_markup("<b>x</b><td>✓</td><i>y</i>");
  const std::vector<AlignedSegment> segments = {{{0, 1}, {0, 1}, {{0, 0}}}, {{4, 5}, {1, 2}, {{0, 0}}}};
  CHECK(with_tags(source, "uv", place_tags(source, "uv", segments)) == "<b>u</b><td></td><i>v</i>");
}

TEST_CASE("marks go with the signs and letters that they are behind") {
  CHECK(placed("<b>Love</b>\u2764\uFE0F it", "Liebe\u2764\uFE0F es", {{0, 0}, {1, 1}}) ==
        "<b>Liebe</b>\u2764\uFE0F es");
  CHECK(placed("<b>Love\u2764\uFE0F</b> it", "Liebe\u2764\uFE0F. es", {{0, 0}, {1, 1}}) ==
        "<b>Liebe\u2764\uFE0F.</b> es");
  CHECK(placed("<b>café</b> now", "cafe\u0301, jetzt", {{0, 0}, {1, 1}}) == "<b>cafe\u0301</b>, jetzt");
  const auto marked = parse_markup("Go \u2764\uFE0F{n}\u2764\uFE0F and %d\u20E3", placeholders_alone);
  CHECK(tags_of(marked) == Strings{"\u2764\uFE0F{n}\u2764\uFE0F", "%d\u20E3"});
  CHECK(marked.text == "Go and ");
}

TEST_CASE("with the text for its translation, markup comes back as it was") {
  std::mt19937 random(11);
  int compared = 0;
  for (int round = 0; round < 1000; ++round) {
    const auto text = random_markup(random, 4, true);
    const auto source = parse_markup(text);
    Links links;
    for (size_t word = 0; word < split_words(source.text).size(); ++word) links.emplace_back(word, word);
    if (source.text.empty()) continue;
    ++compared;
    CHECK(placed(text, source.text, links) == text);
  }
  CHECK(compared > 500);
}

TEST_CASE("placeholders stand beside the text, with what belongs to them") {
  const auto parts = [](std::string_view text, const CarriedOver& carried) {
    const auto marked = parse_markup(text, carried);
    Strings all = tags_of(marked);
    all.push_back(marked.text);
    return all;
  };
  for (const auto& [text, expected] : std::vector<std::pair<std::string, Strings>>{
           {"Delete {count} files?", {"{count}", "Delete files?"}},
           {"Cannot open \"{file}\".", {"\"{file}\"", "Cannot open."}},
           {"Page %d/%d of „%s“ (%s)", {"%d/%d", "„%s“", "(%s)", "Page of "}},
           {"Hello, {name}! Welcome.", {", {name}", "Hello! Welcome."}},
           {"Error: %s.", {": %s", "Error."}},
           {"A ~{n}~ B *%s* \\{m}\\ C", {"~{n}~", "*%s*", "\\{m}", "A B \\ C"}},
           {"Go. {name}! Stop", {"{name}!", "Go. Stop"}},
           {"{name}, welcome to %s%%", {"{name},", "%s%%", " welcome to "}},
           {"Files: {a}, {b} and {c}.", {"{a},", "{b}", "{c}", "Files: and."}},
           {"{n}% of #%d, $%.2f", {"{n}%", "#%d", "$%.2f", " of, "}},
           {"{x}MB, pre{y}", {"{x}", "{y}", "MB, pre"}},
           {"100 % sure { 5% d'accord", {"100 % sure { 5% d'accord"}}}) {
    CAPTURE(text);
    auto all = expected;
    CHECK(parts(text, placeholders_alone) == all);
  }
  // Tags end what belongs together, and references are characters, in placeholders' company, too.
  CHECK(parts("<b>{a}</b>{b} &amp; &lt;%s&gt; <a href='{c}'>{d}</a>", all_carried) ==
        Strings{"<b>", "{a}", "</b>", "{b}", "&lt;%s&gt;", "<a href='{c}'>", "{d}", "</a>", " & "});
  // Without tags & and < are text, and stay it.
  CHECK(parts("a < b && {c}", placeholders_alone) == Strings{"{c}", "a < b && "});
  CHECK(placed("a < b &amp; {c} d", "x <y>", {{0, 0}, {4, 1}}, placeholders_alone) == "x {c} <y>");
}

TEST_CASE("placeholders go where their neighbours go, with blanks where they had some") {
  const auto with = [](const std::string& text, const std::string& translation, const Links& links) {
    return placed(text, translation, links, placeholders_alone);
  };
  CHECK(with("Delete {count} files?", "Dateien löschen?", {{1, 0}, {0, 1}}) == "{count} Dateien löschen?");
  CHECK(with("Cannot open \"{file}\".", "Kann nicht öffnen.", {{0, 0}, {0, 1}, {1, 2}}) ==
        "Kann nicht öffnen \"{file}\".");
  CHECK(with("Hello {name}, welcome", "Hallo, willkommen", {{0, 0}, {1, 1}}) == "Hallo {name}, willkommen");
  CHECK(with("Hello, {name}! Go.", "Hallo! Los.", {{0, 0}, {1, 1}}) == "Hallo, {name}! Los.");
  CHECK(with("Go to {place}. Now", "Geh! Jetzt", {{0, 0}, {2, 1}}) == "Geh {place}! Jetzt");
  CHECK(with("Moved to %s", "Verschoben nach", {{0, 0}, {1, 1}}) == "Verschoben nach %s");
  CHECK(with("%s was moved", "wurde verschoben", {{0, 0}, {1, 1}}) == "%s wurde verschoben");
  CHECK(with("{n}MB free", "frei MB", {{1, 0}, {0, 1}}) == "frei {n}MB");
  CHECK(with("see http://a.b, please", "bitte sehen", {{1, 0}, {0, 1}}) == "bitte sehen http://a.b");
  CHECK(with("{a}{b}: {c}", "", {}) == "{a}{b}: {c}");
  CHECK(placed("Delete <b>{count}</b> files", "Dateien löschen", {{1, 0}, {0, 1}}, all_carried) ==
        "<b>{count}</b> Dateien löschen");
  CHECK(placed("Remove the <b>red %s</b> now", "Jetzt rot entfernen", {{3, 0}, {2, 1}, {0, 2}}, all_carried) ==
        "Jetzt <b>rot %s</b> entfernen");
}

TEST_CASE("with the text for its translation, placeholders come back where they were") {
  static const Strings words = {"ba",     "Do.",      "ki,",     "(lu)",  "mé!",     "\"no",  "ra\"",        "{x}",
                                "%s,",    "\"{y}\".", "({0})",   "%d/%d", "a{n}",    "{n}MB", "http://a.b;", "{a}{b}",
                                "(%1$s,", "%(z)d)",   "me@x.de", "{p}%",  "5% d'ac", "100 %"};
  std::mt19937 random(13);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (size_t count = 1 + random() % 9; count > 0; --count)
      text += (text.empty() ? "" : " ") + words[random() % words.size()];
    const auto source = parse_markup(text, placeholders_alone);
    const std::string inner(trim(source.text));
    Links links;
    for (size_t word = 0; word < split_words(inner).size(); ++word) links.emplace_back(word, word);
    CAPTURE(text, source.text);
    CHECK(placed(text, inner, links, placeholders_alone) == text);
  }
}

TEST_CASE("whatever the nesting, the links and the sentences, tags are kept, none is made, and they nest as before") {
  std::mt19937 random(12);
  const Strings with_placeholders = {"ba", "Do.",      "ki,",          "\"lu\"", "{x}",
                                     "%d", "\"{0}\",", "http://a.b/c", "%s:{n}", "50%"};
  for (int round = 0; round < 5000; ++round) {
    const auto carried = round < 3000 ? CarriedOver() : round < 4000 ? all_carried : placeholders_alone;
    const auto text =
        carried.placeholders ? random_markup(random, 5, false, with_placeholders) : random_markup(random, 5, false);
    CAPTURE(text);
    const auto source = parse_markup(text, carried);
    // Segments of the text, cut at blanks, each with a translation of other words and any links.
    std::string translation;
    std::vector<AlignedSegment> segments;
    const std::string_view all = source.text;
    const auto words = split_words(all);
    for (size_t first = 0; first < words.size();) {
      const size_t last = std::min(words.size(), first + 1 + random() % 6) - 1;
      const TextSpan span{static_cast<size_t>(words[first].data() - all.data()),
                          static_cast<size_t>(words[last].data() - all.data()) + words[last].size()};
      const size_t gap = segments.empty() ? 0 : segments.back().source.end;
      if (random() % 8 > 0) translation.append(all.substr(gap, span.begin - gap));
      AlignedSegment segment{span, {translation.size(), 0}, {}};
      const size_t count = random() % 6;
      for (size_t k = 0; k < count; ++k) {
        translation += k > 0 ? " " : "";
        translation += std::vector<std::string>{"xé", "(y)", "...", "<z>", "&"}[random() % 5];
        if (random() % 4 > 0) segment.links.emplace_back(random() % (last - first + 2), k + random() % 20 / 19);
      }
      segment.target.end = translation.size();
      segments.push_back(segment);
      first = last + 1;
    }
    if (round % 2 == 0) translation.append(all.substr(segments.empty() ? 0 : segments.back().source.end));
    CAPTURE(translation);
    const auto tags = place_tags(source, translation, segments);
    check_placed(source, translation, tags);
    const auto result = with_tags(source, translation, tags);
    if (carried.placeholders) {
      CAPTURE(result);
      CHECK(placeholders_of(result) == placeholders_of(text));
      // But for blanks beside them, what is between is the translation.
      std::string plain;
      size_t position = 0;
      for (const auto& tag : tags) {
        const auto between = std::string_view(translation).substr(position, tag.position - position);
        plain += (carried.tags ? escaped_text(between) : std::string(between)) + source.tags[tag.tag].markup;
        position = tag.position;
      }
      plain += carried.tags ? escaped_text(translation.substr(position)) : translation.substr(position);
      CHECK(without_blanks(result) == without_blanks(plain));
      continue;
    }
    const auto written = parse_markup(result);
    CHECK(written.text == translation);
    auto before = tags_of(source), after = tags_of(written);
    std::sort(before.begin(), before.end());
    std::sort(after.begin(), after.end());
    CHECK(before == after);
  }
}

TEST_CASE("thousands of tags, nested or not ended, are no trouble") {
  for (const auto& [open, close] : {std::pair<std::string, std::string>{"<b>a ", "</b>"},
                                    {"<p>", "</p>"},
                                    {"<b>", ""},
                                    {"</i>", ""},
                                    {"<b", ""},
                                    {"<a x=\"", ""},
                                    {"<a x=\"'><a x='\">", ""},
                                    {"<!--", ""},
                                    {"<script>", ""},
                                    {"&#", ""},
                                    {"<script></script", ""},
                                    {"<![CDATA[", ""},
                                    {"<!a", ""},
                                    {"&a", ""},
                                    {"&a;", ""},
                                    {"{x} ", "%s"},
                                    {"<b>{x}, ", "</b>"},
                                    {"(%s", ")"}}) {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += open;
    text += "word.";
    for (int i = 0; i < 2000; ++i) text += close;
    const auto source = parse_markup(text, all_carried);
    Links links;
    for (size_t word = 0; word < split_words(source.text).size(); ++word) links.emplace_back(word, word);
    const auto inner = trim(source.text);
    const std::string translation(inner);
    const std::vector<AlignedSegment> segments = {
        {{static_cast<size_t>(inner.data() - source.text.data()),
          static_cast<size_t>(inner.data() - source.text.data()) + inner.size()},
         {0, translation.size()},
         links}};
    const auto tags = place_tags(source, translation, segments);
    check_placed(source, translation, tags);
    CHECK(with_tags(source, translation, tags).size() >= text.size() - 2);
  }
}

}  // namespace transformer::test
