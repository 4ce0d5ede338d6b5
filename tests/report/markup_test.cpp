#include "transformer/report/markup.h"

#include "support.h"

using namespace transformer;

TEST_CASE("markup is escaped and text that is no UTF-8 made so") {
  CHECK(escape_markup("a <b> & \"c\" 'd'") == "a &lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  CHECK(escape_markup("Größe 日本 😀") == "Größe 日本 😀");
  CHECK(escape_markup("a\xff\xc3") == "a\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(escape_markup("\xed\xa0\x80x") == "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx");  // a surrogate
  CHECK(escape_markup(std::string("a\0\x1b\n\t", 5)) == "a\xef\xbf\xbd\xef\xbf\xbd\n\t");
}
