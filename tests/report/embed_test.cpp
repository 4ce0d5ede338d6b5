#include <cstddef>
#include <string>

#include "embedded/empty.txt.h"
#include "embedded/every-byte.txt.h"
#include "support.h"

using namespace transformer;

TEST_CASE("an embedded file is the file, whatever it holds and however long it is") {
  std::string expected;
  for (size_t time = 0; time < 300; ++time) {
    for (int byte = 1; byte < 256; ++byte) expected += static_cast<char>(byte);
  }
  CHECK(expected.size() > 65536);
  CHECK((embedded::every_byte_txt == expected));
  CHECK((test::read_file(std::string(TRANSFORMER_BINARY_DIR) + "/embedded/every-byte.txt") == expected));
  CHECK(embedded::empty_txt.empty());
}
