// A configuration: YAML text, then overrides, each behind a zero byte.

#include <string>
#include <vector>

#include "rollout/config.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gristmill;
  using namespace gristmill::fuzz;
  std::string rest = Input(data, size).text();
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = rest.find('\0');
    parts.push_back(rest.substr(0, end));
    if (end == std::string::npos) break;
    rest.erase(0, end + 1);
  }
  const std::string yaml = parts.front();
  parts.erase(parts.begin());
  try {
    const ResolvedConfig resolved = parse_config(yaml, "fuzz.yaml", parts);
    const std::string dumped = dump_config(resolved.config);
    require(dump_config(parse_config(dumped, "again.yaml", {}).config) == dumped,
            "what is written reads back");
  } catch (const ConfigError&) {
  }
  return 0;
}
