#include "transformer/serving/translation_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/base/unicode.h"
#include "transformer/inference/marked_translation.h"
#include "transformer/inference/text_translation.h"
#include "transformer/serving/json_text.h"
#include "transformer/serving/request_checks.h"
#include "transformer/serving/request_error.h"
#include "transformer/serving/translation_call.h"

namespace transformer {

namespace {

using Json = nlohmann::ordered_json;

// Words of a line times those of its translation, up to which attention between them is told of, and the same of all
// lines of a request: a number for each pair takes more memory than everything else of it.
constexpr size_t most_attention = 250'000, most_attention_of_request = 1'000'000;

/// Where the words of a text end, ascending.
std::vector<size_t> ends_of_words(std::string_view text) {
  std::vector<size_t> ends;
  for (const auto word : alignment_words(text)) {
    ends.push_back(static_cast<size_t>(word.data() + word.size() - text.data()));
  }
  return ends;
}

/// How many words end at or before a place in their text: which word begins there, or goes on.
int64_t words_before(const std::vector<size_t>& ends, size_t position) {
  return std::upper_bound(ends.begin(), ends.end(), position) - ends.begin();
}

// Of a request, up to which reading it, and making pieces of its text, is quick.
constexpr size_t quick_bytes = 4096;
// Translations, up to which making their texts and JSON is.
constexpr size_t quick_translations = 16;

class TranslationTask : public HttpTask, public std::enable_shared_from_this<TranslationTask> {
 public:
  TranslationTask(ServingContext context, TranslationInterface interface, HttpRequest request,
                  std::shared_ptr<HttpReply> reply)
      : context_(std::move(context)), interface_(interface), request_(std::move(request)), reply_(std::move(reply)) {}

  void start() {
    auto work = [self = shared_from_this()] {
      if (self->is_given_up()) return;
      try {
        self->prepare();
      } catch (...) {
        self->reply_->send(answer_of_exception(), {});
      }
    };
    if (request_.body.size() + request_.query.size() <= quick_bytes) {
      context_.pool.post_quick(std::move(work));
    } else {
      context_.pool.post(std::move(work));
    }
  }

  void cancel() override {
    std::shared_ptr<Dispatcher::Ticket> ticket;
    std::vector<TurnQueue::Ticket> aligning;
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
      ticket = ticket_;
      aligning.swap(aligning_);
    }
    if (ticket) model_->dispatcher().cancel(*ticket);
    for (const auto& turns : aligning) context_.aligning.cancel(turns);
  }

  Served served() override {
    const std::lock_guard lock(mutex_);
    return ticket_ ? served_ : Served();  // else it may be being written
  }

  std::string last_part(const HttpResponse& error) override {
    return fmt::format("event: error\ndata: {}\n\n", error.body);
  }

 private:
  /// What is decoded at once: a line, or a part of one.
  struct Segment {
    size_t line;
    size_t pieces;
    std::string said = {};                                    // EncodedSegments::said
    std::vector<Translation> found = {};                      // best first
    std::vector<std::vector<AlignmentLink>> alignments = {};  // of each, where they are wanted
    size_t left = 0;                                          // turns in which these are found
  };
  struct Line {
    size_t text;  // that it belongs to
    std::string source;
    std::string end = {};  // what comes behind its translation
    MarkedText marked;     // of HTML
    SplitText split;
    size_t first = 0, left = 0;                      // its segments: the first one's place, how many are not done
    std::vector<std::string> outputs = {};           // best first
    std::vector<MarkedTranslation> translated = {};  // of HTML, what they are made of
    size_t turns = 0;                                // in which its words are looked at, that are not over
    WordAttention attention = {};                    // of the best, where it is wanted
  };

  /// Whether nobody waits any more.
  bool is_given_up() const { return is_over_; }

  // --- on the pool, before decoding

  void read_body() {
    const auto most = static_cast<size_t>(context_.settings.max_texts);
    // Some clients put the form's fields into the address.
    const bool libretranslate = interface_ == TranslationInterface::libretranslate;
    const bool is_query = libretranslate && request_.body.empty() && !request_.query.empty();
    if (is_query) request_.body.swap(request_.query);
    const bool is_form = is_query || request_.content_type == "application/x-www-form-urlencoded";
    if (!is_form || !libretranslate) check_is_json(request_);
    call_ = !libretranslate ? parse_translation(request_.body, most)
            : is_form       ? parse_libretranslate_form(request_.body, most)
                            : parse_libretranslate_json(request_.body, most);
    request_.forget_body();
  }

  /// How the model translates these languages, with the settings that the request gives.
  DecodingSettings search(const LanguagePair& languages) const {
    const auto usual = model_->search(languages);
    auto search = usual.with([&](DecodingSettings& changed) {
      Settings settings;
      settings.section("decoding", changed, "");
      settings.override_with(call_.decoding);
      const auto known = settings.values();
      for (const auto& name : call_.not_given) {
        if (!known.contains(name)) settings.override_with({{name, "", ""}});  // which says what it may have meant
      }
    });
    const auto& limits = model_->limits();
    if (call_.alternatives > 0) {
      // As many as the checks below let through.
      const auto most = std::min(limits.beam - limits.beam % search.beam_groups, limits.translations) - 1;
      if (call_.alternatives > most) {
        throw RequestError(
            400, fmt::format("{} alternatives are more than this server allows: {} at most", call_.alternatives, most));
      }
      search.n_best = call_.alternatives + 1;
      search.beam = std::max(search.beam, search.n_best);
      search.beam += (search.beam_groups - search.beam % search.beam_groups) % search.beam_groups;  // equal groups
    }
    const auto check = [&](const char* name, int64_t value, int64_t most) {
      if (value <= most) return;
      throw RequestError(400, fmt::format("{} of {} is more than this server allows: {}", name, value, most));
    };
    check("a beam", search.beam, limits.beam);
    check("a number of translations", search.n_best, limits.translations);
    check("an extra length", search.max_extra_length, limits.extra_length);
    if (search.batch_sentences != usual.batch_sentences) {
      throw RequestError(400, "decoding.batch_sentences is the server's to choose");
    }
    if (LanguagePair{search.source_language, search.target_language} !=
        LanguagePair{usual.source_language, usual.target_language}) {
      throw RequestError(400, "decoding.source_language and decoding.target_language follow from source and target");
    }
    if (!model_->translator().engine()) check_for_modules(search);
    return search.validated();
  }

  /// Whether lines are split into sentences, whatever their length.
  bool splits_lines() const { return call_.is_html || call_.document.value_or(context_.settings.document); }

  void split_lines() {
    for (size_t i = 0; i < call_.texts.size(); ++i) {
      first_lines_.push_back(lines_.size());
      if (call_.is_html) {
        OpenMarkup unended;  // as of a page, whose end ends it
        auto marked = parse_markup(call_.texts[i], {}, unended);
        // A quote that never ends is none, and takes no text with it.
        if (unended.kind == OpenMarkup::Kind::tag && marked.tags.back().markup.find('>') != std::string::npos) {
          marked = parse_markup(call_.texts[i]);
        }
        SplitText split(marked.text, SentenceLanguage::any, marked.breaks());
        lines_.push_back({.text = i, .source = call_.texts[i], .marked = std::move(marked), .split = std::move(split)});
        continue;
      }
      for (std::string_view rest = call_.texts[i];;) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        const bool is_last = end == rest.size();
        auto line = rest.substr(0, end);
        if (line.ends_with('\r')) line.remove_suffix(1);
        // All between sentences stays as it is.
        const std::string_view own_end = rest.substr(line.size(), end + 1 - line.size()),
                               usual_end = is_last ? "" : "\n";
        auto split = splits_lines() ? SplitText(std::string(line)) : SplitText::whole(std::string(trim(line)));
        lines_.push_back({.text = i,
                          .source = std::string(line),
                          .end = std::string(splits_lines() ? own_end : usual_end),
                          .marked = {},
                          .split = std::move(split)});
        if (is_last) break;
        rest.remove_prefix(end + 1);
      }
    }
    first_lines_.push_back(lines_.size());
  }

  EncodedSegments encoded(Line& line) const {
    const auto& translator = model_->translator();
    if (!splits_lines() && !line.split.segments().empty()) {
      auto whole = translator.encode({line.split.text()});
      if (std::ssize(whole.front()) <= translator.longest_source()) return {std::move(whole), {""}, 0};
      line.split = SplitText(line.split.text());
    }
    return encode_segments(translator, line.split);
  }

  void prepare() {
    read_body();
    check_key(context_, request_, call_.api_key);
    check_characters(context_.settings, call_.texts);
    auto route = context_.models->find(call_.source, call_.target, call_.model);
    model_ = std::move(route.model);
    languages_ = std::move(route.languages);
    const auto settings = search(languages_);
    if (call_.alignments || call_.attention || call_.is_html) aligner_.emplace(model_->aligner(settings));
    split_lines();

    std::vector<DecodingRequest> requests;
    std::vector<size_t> places;  // of the segments that are decoded
    for (size_t i = 0; i < lines_.size(); ++i) {
      auto& line = lines_[i];
      auto sources = encoded(line);
      line.first = segments_.size();
      for (size_t k = 0; k < sources.pieces.size(); ++k) {
        auto& source = sources.pieces[k];
        auto& segment =
            segments_.emplace_back(Segment{.line = i, .pieces = source.size(), .said = std::move(sources.said[k])});
        if (source.empty()) {
          segment.found.emplace_back();
          segment.alignments.emplace_back();
          continue;
        }
        ++line.left;
        requests.push_back(model_->translator().request(std::move(source), settings));
        places.push_back(segments_.size() - 1);
      }
    }
    served_.model = model_->name();
    if (context_.settings.log_texts) served_.texts = json_text(Json(call_.texts));

    std::vector<std::string> events;  // of lines without text
    for (size_t i = 0; i < lines_.size(); ++i) {
      left_ += lines_[i].left > 0;
      if (lines_[i].left > 0) continue;
      served_.lines += !lines_[i].split.segments().empty();
      join(lines_[i]);
      for (size_t rank = 0; rank < lines_[i].translated.size(); ++rank) mark(lines_[i], rank);
      if (call_.stream) events.push_back(line_event(i));
    }
    const bool all_done = left_ == 0;
    {
      const std::lock_guard lock(mutex_);  // what is done early waits until all is begun
      if (is_over_) return;
      if (!all_done) hand_over(std::move(requests), std::move(places));
      if (call_.stream) {
        reply_->begin({.status = 200,
                       .content_type = "text/event-stream",
                       .body = {},
                       .headers = {{"Cache-Control", "no-store"}}});
        for (auto& event : events) reply_->write(std::move(event));
      }
    }
    if (all_done) answer();
  }

  /// Hands the segments at `places` over, to be decoded. Called with the mutex. Throws what WaitingRoom::check throws.
  void hand_over(std::vector<DecodingRequest> requests, std::vector<size_t> places) {
    if (aligner_) context_.aligning.check(request_.client, requests.size());
    ticket_ = model_->dispatcher().submit(
        request_.client, std::move(requests),
        [self = shared_from_this(), places = std::move(places)](size_t index, DecodingResult result) {
          // Workers are for decoding.
          self->context_.pool.post_quick(self->step(
              [self, segment = places[index], result = std::move(result)] { self->decoded(segment, result); }));
        });
  }

  // --- on the pool, segment by segment

  /// Of what follows decoding: `work`, while somebody waits for it.
  template <class Work>
  std::function<void()> step(Work work) {
    return [self = shared_from_this(), work = std::move(work)] {
      if (self->is_given_up()) return;
      try {
        work();
      } catch (...) {
        self->fail(answer_of_exception());
      }
    };
  }

  /// Does what makes texts and JSON of so many translations where it is called, or, where they are many, where nobody
  /// waits for quick work.
  template <class Work>
  void make(size_t translations, Work work) {
    if (translations <= quick_translations) {
      work();
    } else {
      context_.pool.post(step(std::move(work)));
    }
  }

  /// For the request's client, in turns with others.
  void post_turns(std::vector<TurnQueue::Turn> turns) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    aligning_.push_back(context_.aligning.post_admitted(request_.client, model_->name(), std::move(turns)));
  }

  void decoded(size_t index, const DecodingResult& result) {
    if (result.error) std::rethrow_exception(result.error);
    auto& segment = segments_[index];  // nobody else's
    for (const auto& hypothesis : result.hypotheses)
      segment.found.push_back(model_->translator().translation(hypothesis));
    if (!call_.alignments) return end_segment(segment);

    segment.alignments.resize(segment.found.size());
    std::vector<TurnQueue::Turn> turns;
    for (size_t begin = 0, end = 0; begin < segment.found.size(); begin = end) {
      for (size_t pieces = 0; end < segment.found.size() && (end == begin || pieces < pieces_of_turn); ++end) {
        pieces += segment.pieces + segment.found[end].tokens.size();
      }
      turns.push_back({1, step([this, index, begin, end] { align(index, begin, end); })});
    }
    segment.left = turns.size();
    post_turns(std::move(turns));
  }

  /// Some of a segment's translations, while others of them may be aligned.
  void align(size_t index, size_t begin, size_t end) {
    auto& segment = segments_[index];
    const auto& line = lines_[segment.line];
    std::vector<const Translation*> found;
    for (size_t i = begin; i < end; ++i) found.push_back(&segment.found[i]);
    const std::vector<std::string> sources(found.size(), std::string(line.split.segment(index - line.first)));
    const std::vector<size_t> pieces(found.size(), segment.pieces);
    const std::vector<std::string> said(found.size(), segment.said);
    for (auto& links : aligner_->align_what_fits(sources, pieces, found, said)) {
      segment.alignments[begin++] = links.value_or(std::vector<AlignmentLink>());
    }
    {
      const std::lock_guard lock(mutex_);
      if (--segment.left > 0) return;
    }
    end_segment(segment);
  }

  void end_segment(const Segment& segment) {
    {
      const std::lock_guard lock(mutex_);
      if (is_over_) return;
      served_.source_tokens += static_cast<int64_t>(segment.pieces);
      served_.output_tokens += std::ssize(segment.found.front().tokens);
      if (--lines_[segment.line].left > 0) return;
      ++served_.lines;
    }
    const auto segments = lines_[segment.line].split.segments().size();
    make(segments * segment.found.size(), [this, index = segment.line] { end_segments(index); });
  }

  /// All of a line are done.
  void end_segments(size_t index) {
    auto& line = lines_[index];
    join(line);
    std::vector<TurnQueue::Turn> turns;
    if (call_.attention) turns.push_back({1, look(index, [this, &line] { watch(line); })});
    for (size_t rank = 0; rank < line.translated.size(); ++rank) {
      turns.push_back({1, look(index, [this, &line, rank] { mark(line, rank); })});
    }
    if (turns.empty()) return end_line(index);
    line.turns = turns.size();
    post_turns(std::move(turns));
  }

  /// Does what a line's words are needed for, while other such turns of the line may be at theirs.
  template <class Work>
  std::function<void()> look(size_t index, Work work) {
    return step([this, index, work = std::move(work)] {
      work();
      {
        const std::lock_guard lock(mutex_);
        if (--lines_[index].turns > 0) return;
      }
      end_line(index);
    });
  }

  void end_line(size_t index) {
    auto& line = lines_[index];
    if (is_given_up()) return;
    if (call_.stream) {
      reply_->write(line_event(index));
      line.attention = {};
    }
    bool last = false;
    {
      const std::lock_guard lock(mutex_);
      last = --left_ == 0;
    }
    // Without the lock, which `cancel` waits for: nobody else is at it any more.
    if (last && !is_given_up()) make(lines_.size() * line.outputs.size(), [this] { answer(); });
  }

  void fail(const HttpResponse& response) {
    cancel();
    Served served;
    {
      const std::lock_guard lock(mutex_);
      served = served_;
    }
    served.status = response.status;
    if (call_.stream) {
      reply_->write(last_part(response));
      reply_->end(std::move(served));
    } else {
      reply_->send(response, std::move(served));
    }
  }

  /// A line's segments, each in its translation of this rank, the best where it has fewer.
  struct Ranked {
    std::vector<const Translation*> translations;
    std::vector<const std::vector<AlignmentLink>*> alignments;  // where they are wanted
    std::vector<size_t> pieces;
    std::vector<std::string> said;
    SplitText::Joined joined;
  };
  Ranked ranked(const Line& line, size_t rank) const {
    Ranked result;
    std::vector<std::string> texts;
    for (size_t i = 0; i < line.split.segments().size(); ++i) {
      const auto& segment = segments_[line.first + i];
      const size_t own = rank < segment.found.size() ? rank : 0;
      result.translations.push_back(&segment.found[own]);
      if (call_.alignments) result.alignments.push_back(&segment.alignments[own]);
      result.pieces.push_back(segment.pieces);
      result.said.push_back(segment.said);
      texts.push_back(segment.found[own].text);
    }
    result.joined = line.split.join(texts);
    return result;
  }

  /// Makes a line's outputs, but for the tags of HTML.
  void join(Line& line) {
    size_t ranks = 1;
    for (size_t i = 0; i < line.split.segments().size(); ++i) {
      ranks = std::max(ranks, segments_[line.first + i].found.size());
    }
    line.outputs.resize(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
      auto found = ranked(line, rank);
      if (!call_.is_html) {
        line.outputs[rank] = std::move(found.joined.text);
        continue;
      }
      TranslatedText text{line.split, {}, std::move(found.pieces), std::move(found.said), std::move(found.joined), {},
                          {},         0};
      for (const auto* translation : found.translations) text.segments.push_back(*translation);
      line.translated.push_back({{}, line.marked, std::move(text)});
    }
  }

  /// Makes the output of this rank of HTML.
  void mark(Line& line, size_t rank) const {
    auto& translated = line.translated[rank];
    put_tags_back(*aligner_, {&translated, 1});
    line.outputs[rank] = std::move(translated.text);
    translated = {};
  }

  /// Of a line in one part.
  void watch(Line& line) {
    if (line.split.segments().size() != 1) return;
    const auto& segment = segments_[line.first];
    const auto& best = segment.found.front();
    if (!aligner_->problem(segment.pieces, best.tokens.size()).empty()) return;
    const std::string source(line.split.segment(0));
    const auto found = ranked(line, 0);
    const auto sources = ends_of_words(line.split.text()), targets = ends_of_words(found.joined.text);
    const auto pairs = sources.size() * targets.size();
    if (pairs > most_attention) return;
    if (attention_.fetch_add(pairs) + pairs > most_attention_of_request) {
      attention_ -= pairs;
      return;
    }
    const auto own = aligner_->attention({source}, {best.text}, {best.tokens}, {segment.said}).front();
    // Of the line's words, those before and behind the segment, as what marks an item, receive nothing.
    const auto first_source = static_cast<size_t>(words_before(sources, line.split.segments()[0].begin));
    const auto first_target = static_cast<size_t>(words_before(targets, found.joined.segments[0].begin));
    if (first_source + own.source_words > sources.size() || first_target + own.target_words > targets.size()) return;
    line.attention = {.source_words = sources.size(), .target_words = targets.size(), .weights = {}};
    line.attention.weights.resize(pairs);
    for (size_t target = 0; target < own.target_words; ++target) {
      std::copy_n(own.weights.begin() + static_cast<std::ptrdiff_t>(target * own.source_words), own.source_words,
                  line.attention.weights.begin() +
                      static_cast<std::ptrdiff_t>((first_target + target) * sources.size() + first_source));
    }
  }

  // --- the answer

  /// The links of a line's words, from those of its segments'.
  Json links_json(const Line& line, const Ranked& found) const {
    Json links = Json::array();
    const auto sources = ends_of_words(line.split.text()), targets = ends_of_words(found.joined.text);
    for (size_t i = 0; i < found.alignments.size(); ++i) {
      const auto source = words_before(sources, line.split.segments()[i].begin);
      const auto target = words_before(targets, found.joined.segments[i].begin);
      for (const auto& link : *found.alignments[i]) links.push_back({source + link.source, target + link.target});
    }
    return links;
  }

  /// A row for each word of the translation, with what each of the source's received, in thousandths.
  static Json attention_json(const WordAttention& attention) {
    Json rows = Json::array();
    for (size_t word = 0; word < attention.target_words; ++word) {
      Json row = Json::array();
      for (size_t i = 0; i < attention.source_words; ++i) {
        row.push_back(std::lround(attention.weights[word * attention.source_words + i] * 1000));
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  Json line_json(const Line& line) const {
    Json hypotheses = Json::array();
    for (size_t rank = 0; rank < line.outputs.size(); ++rank) {
      const auto found = ranked(line, rank);
      double score = 0, log_probability = 0;
      Json tokens = Json::array();
      for (const auto* translation : found.translations) {
        score += translation->score;
        log_probability += translation->log_probability;
        for (const auto id : translation->tokens) {
          tokens.push_back(model_->translator().vocabularies().target->piece(id));
        }
      }
      Json hypothesis = {{"text", line.outputs[rank]},
                         {"score", score},
                         {"log_probability", log_probability},
                         {"tokens", std::move(tokens)}};
      if (call_.alignments) hypothesis["alignment"] = links_json(line, found);
      if (call_.attention && rank == 0) hypothesis["attention"] = attention_json(line.attention);
      hypotheses.push_back(std::move(hypothesis));
    }
    Json json = {{"source", line.source}, {"hypotheses", std::move(hypotheses)}};
    if (const auto parts = line.split.segments().size(); parts > 1) json["parts"] = parts;
    return json;
  }

  std::string line_event(size_t index) const {
    const size_t text = lines_[index].text;
    Json event = {{"text", text}, {"line", index - first_lines_[text]}};
    event.update(line_json(lines_[index]));
    return fmt::format("event: line\ndata: {}\n\n", json_text(event));
  }

  /// A text as its lines' translations of this rank make it, the best where a line has fewer.
  std::string joined(size_t text, size_t rank) const {
    std::string whole;
    for (size_t i = first_lines_[text]; i < first_lines_[text + 1]; ++i) {
      whole += lines_[i].outputs[rank < lines_[i].outputs.size() ? rank : 0];
      whole += lines_[i].end;
    }
    return whole;
  }

  Json libretranslate_answer() const {
    std::vector<size_t> ranks(call_.texts.size());  // how many translations a text has
    for (const auto& line : lines_) ranks[line.text] = std::max(ranks[line.text], line.outputs.size());
    Json texts = Json::array(), alternatives = Json::array();
    for (size_t i = 0; i < call_.texts.size(); ++i) {
      texts.push_back(joined(i, 0));
      Json others = Json::array();
      for (size_t rank = 1; rank < ranks[i]; ++rank) others.push_back(joined(i, rank));
      alternatives.push_back(std::move(others));
    }
    Json answer;
    answer["translatedText"] = call_.is_list ? texts : texts[0];
    if (call_.alternatives > 0) answer["alternatives"] = call_.is_list ? alternatives : alternatives[0];
    return answer;
  }

  Json summary() const {
    return {{"model", model_->name()},
            {"source", languages_.source},
            {"target", languages_.target},
            {"source_tokens", served_.source_tokens},
            {"output_tokens", served_.output_tokens}};
  }

  Json own_answer() const {
    auto answer = summary();
    Json translations = Json::array();
    for (size_t i = 0; i < call_.texts.size(); ++i) {
      translations.push_back({{"text", joined(i, 0)}, {"lines", Json::array()}});
    }
    for (const auto& line : lines_) translations[line.text]["lines"].push_back(line_json(line));
    answer["translations"] = std::move(translations);
    return answer;
  }

  /// All lines are done.
  void answer() {
    is_over_ = true;
    if (call_.stream) {
      reply_->write(fmt::format("event: done\ndata: {}\n\n", json_text(summary())));
      reply_->end(served_);
      return;
    }
    const auto json = interface_ == TranslationInterface::own ? own_answer() : libretranslate_answer();
    reply_->send({.status = 200, .body = json_text(json)}, served_);
  }

  const ServingContext context_;
  const TranslationInterface interface_;
  HttpRequest request_;
  const std::shared_ptr<HttpReply> reply_;

  // Written before decoding:
  TranslationCall call_;
  std::shared_ptr<const ServedModel> model_;
  LanguagePair languages_;
  std::optional<WordAligner> aligner_;  // where words are asked for
  std::vector<Line> lines_;             // and by the `decoded` of their segments
  std::vector<Segment> segments_;       // and by their own `decoded`
  std::vector<size_t> first_lines_;     // of each text, and behind the last

  std::mutex mutex_;  // of what follows, once decoding has begun
  Served served_;     // of what is done
  size_t left_ = 0;   // lines that are not done, as Line::left is of their segments
  std::shared_ptr<Dispatcher::Ticket> ticket_;
  std::vector<TurnQueue::Ticket> aligning_;

  std::atomic<bool> is_over_ = false;  // answered, or nobody waits any more
  std::atomic<size_t> attention_ = 0;  // numbers, of all lines
};

}  // namespace

std::shared_ptr<HttpTask> start_translation(const ServingContext& context, TranslationInterface interface,
                                            HttpRequest request, std::shared_ptr<HttpReply> reply) {
  const auto task = std::make_shared<TranslationTask>(context, interface, std::move(request), std::move(reply));
  task->start();
  return task;
}

}  // namespace transformer
