#include "tests/campaign/report.h"

#include <cstdio>

#include "tests/campaign/points.h"

namespace gristmill::campaign {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

// Collects "key": value pairs.
class Object {
 public:
  Object& add(std::string_view key, const std::string& value) {
    text_ += (text_.size() > 1 ? ", " : "") + quoted(key) + ": " + value;
    return *this;
  }
  Object& add(std::string_view key, std::uint64_t value) { return add(key, std::to_string(value)); }
  std::string text() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

std::string texts_of(const Result& result) {
  std::string all = "[";
  for (std::size_t i = 0; i < result.text_count; ++i) all += (i > 0 ? ", " : "") + quoted(result.texts[i]);
  return all + "]";
}

std::string histogram_of(const Histogram& histogram) {
  constexpr double kMs = 1e-6;
  Object object;
  object.add("count", histogram.count());
  for (const auto& [name, q] : {std::pair("p50", 0.5), std::pair("p99", 0.99), std::pair("p999", 0.999)}) {
    object.add(name, number(static_cast<double>(histogram.quantile(q)) * kMs));
  }
  return object.add("max", number(static_cast<double>(histogram.max()) * kMs)).text();
}

std::string part_of(Part part, const Result& result) {
  Object roles;
  for (std::size_t r = 0; r < kMaxRoles && result.roles[r][0] != '\0'; ++r) {
    Object hows;
    for (std::size_t h = 0; h < kHows; ++h) hows.add(kHowNames[h], result.faults[r][h]);
    roles.add(result.roles[r], hows.text());
  }
  Object measures;
  for (std::size_t m = 0; m < kMeasures; ++m) measures.add(kMeasureNames[m], result.measures[m]);
  Object findings;
  for (std::size_t f = 0; f < kFindings; ++f) findings.add(kFindingNames[f], result.findings[f]);
  Object points;
  for (const std::size_t p : points_of(part)) {
    points.add(all_points()[p].name,
               Object().add("kills", result.point_kills[p]).add("stops", result.point_stops[p]).text());
  }
  return Object()
      .add("kills", result.kills())
      .add("stops", result.stops())
      .add("violations", result.violations())
      .add("roles", roles.text())
      .add("measures", measures.text())
      .add("findings", findings.text())
      .add("stalls_ms", histogram_of(result.stalls))
      .add("net_stalls_ms", histogram_of(result.net_stalls))
      .add("late_ms", histogram_of(result.late))
      .add("noise_ms", histogram_of(result.noise))
      .add("points", points.text())
      .text();
}

}  // namespace

std::string round_line(const Plan& plan, const Result& result, double seconds) {
  Object cast;
  for (std::size_t r = 0; r < kMaxRoles && result.roles[r][0] != '\0'; ++r) {
    cast.add(result.roles[r], result.processes[r]);
  }
  return Object()
      .add("event", quoted("round"))
      .add("round", plan.number)
      .add("part", quoted(kPartNames[static_cast<std::size_t>(plan.part)]))
      .add("seconds", number(seconds))
      .add("cast", cast.text())
      .add("kills", result.kills())
      .add("stops", result.stops())
      .add("acknowledged", result.measures[static_cast<std::size_t>(Measure::kAcknowledged)])
      .add("longest_stall_ms", number(static_cast<double>(result.net_stalls.max()) * 1e-6))
      .add("violations", result.violations())
      .add("texts", texts_of(result))
      .add("again", quoted(plan.again()))
      .text();
}

std::string summary_line(std::uint64_t seed, std::uint64_t rounds, double seconds, const Result* totals) {
  Object parts;
  std::uint64_t kills = 0;
  std::uint64_t stops = 0;
  std::uint64_t violations = 0;
  for (std::size_t p = 0; p < kParts; ++p) {
    if (totals[p].measures[static_cast<std::size_t>(Measure::kLives)] == 0) continue;
    parts.add(kPartNames[p], part_of(static_cast<Part>(p), totals[p]));
    kills += totals[p].kills();
    stops += totals[p].stops();
    violations += totals[p].violations();
  }
  return Object()
      .add("event", quoted("summary"))
      .add("seed", seed)
      .add("rounds", rounds)
      .add("seconds", number(seconds))
      .add("kills", kills)
      .add("stops", stops)
      .add("violations", violations)
      .add("parts", parts.text())
      .text();
}

std::string points_line() {
  Object points;
  for (const Point& point : all_points()) {
    points.add(point.name, quoted(kPartNames[static_cast<std::size_t>(point.part)]));
  }
  return Object().add("event", quoted("points")).add("points", points.text()).text();
}

}  // namespace gristmill::campaign
