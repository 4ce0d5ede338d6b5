#include "transformer/serving/languages.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "transformer/serving/iso_languages.h"

using namespace transformer;

namespace {

using Codes = std::vector<std::string>;

Codes words(std::string_view text) {
  Codes found(1);
  for (const char c : text) {
    if (c == ' ') {
      found.emplace_back();
    } else {
      found.back() += c;
    }
  }
  return found;
}

// The languages of the models that know most, as each calls them.
constexpr std::string_view nllb_codes =
    "ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab arb_Arab ars_Arab "
    "ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn bak_Cyrl bam_Latn ban_Latn bel_Cyrl "
    "bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn "
    "cjk_Latn ckb_Arab crh_Latn cym_Latn dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn "
    "est_Latn eus_Latn ewe_Latn fao_Latn pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn "
    "gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn hun_Latn hye_Armn "
    "ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn kac_Latn kam_Latn kan_Knda kas_Arab "
    "kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn "
    "kon_Latn kor_Hang kmr_Latn lao_Laoo lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn "
    "lua_Latn lug_Latn luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl plt_Latn mlt_Latn "
    "mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva nso_Latn nus_Latn "
    "nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn por_Latn prs_Arab pbt_Arab quy_Latn "
    "ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn "
    "sna_Latn snd_Arab som_Latn sot_Latn spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn "
    "szl_Latn tam_Taml tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn "
    "tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab uzn_Latn vec_Latn "
    "vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans zho_Hant zul_Latn";
constexpr std::string_view m2m100_codes =
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy "
    "id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru "
    "sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu";
constexpr std::string_view mbart50_codes =
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP "
    "nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN "
    "mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI";

}  // namespace

TEST_CASE("codes of ISO 639 mean what a model calls otherwise") {
  const auto nllb = words(nllb_codes);
  const auto meant = [&](const std::string& code) { return mean_language(code, nllb); };
  for (const auto& own : nllb) CHECK(meant(own) == Codes{own});
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"en", "eng_Latn"},       {"eng", "eng_Latn"},     {"EN", "eng_Latn"},      {"en-Latn", "eng_Latn"},
      {"fr", "fra_Latn"},       {"ar", "arb_Arab"},      {"acm", "acm_Arab"},     {"az", "azj_Latn"},
      {"fa", "pes_Arab"},       {"fas", "pes_Arab"},     {"ku", "kmr_Latn"},      {"lv", "lvs_Latn"},
      {"mn", "khk_Cyrl"},       {"ms", "zsm_Latn"},      {"sw", "swh_Latn"},      {"nb", "nob_Latn"},
      {"no", "nob_Latn"},       {"nn", "nno_Latn"},      {"zh", "zho_Hans"},      {"zh-Hans", "zho_Hans"},
      {"en-", "eng_Latn"},      {"zh-Hant", "zho_Hant"}, {"zh_hant", "zho_Hant"}, {"yue", "yue_Hant"},
      {"ks", "kas_Arab"},       {"ks-Deva", "kas_Deva"}, {"kr", "knc_Latn"},      {"taq", "taq_Latn"},
      {"taq-Tfng", "taq_Tfng"}, {"sr", "srp_Cyrl"},      {"sr-Cyrl", "srp_Cyrl"}, {"sat", "sat_Beng"},
      {"ko", "kor_Hang"},
  };
  for (const auto& [code, own] : expected) {
    INFO(code);
    CHECK(meant(code) == Codes{own});
  }
  for (const char* unknown :
       {"", "e", "tlh", "sr-Latn", "zh-Latn", "zh-TW", "en-US", "eng_Cyrl", "xx", "auto", "-", "_Latn", "English"}) {
    INFO(unknown);
    CHECK(meant(unknown).empty());
  }
  CHECK(mean_language("en", Codes{"de_DE", "en_XX"}) == Codes{"en_XX"});
  CHECK(mean_language("zh-Hans", Codes{"zh"}) == Codes{"zh"});
  CHECK(mean_language("zh-Hant", Codes{"zh"}).empty());
  CHECK(mean_language("nb", Codes{"no"}) == Codes{"no"});
  CHECK(mean_language("no", Codes{"nb", "no"}) == Codes{"no"});
  CHECK(mean_language("zh", Codes{"zho_Hant"}) == Codes{"zho_Hant"});
  CHECK(mean_language("pt", Codes{"pt_BR", "pt_PT"}) == Codes{"pt_BR", "pt_PT"});
  CHECK(mean_language("pt-PT", Codes{"pt_BR", "pt_PT"}) == Codes{"pt_PT"});
  CHECK(mean_language("por", Codes{"pt", "pt_BR"}) == Codes{"pt"});
}

TEST_CASE("each language is listed by a code of its own, which means it") {
  for (const auto codes : {nllb_codes, m2m100_codes, mbart50_codes}) {
    const auto own = words(codes);
    const auto tags = ServedLanguages(own, {}).tags();
    std::set<std::string> names;
    for (size_t i = 0; i < own.size(); ++i) {
      INFO(own[i] << " as " << tags[i]);
      CHECK(mean_language(tags[i], own) == Codes{own[i]});
      CHECK(language_name(tags[i]) != tags[i]);
      CHECK(names.insert(language_name(tags[i])).second);
      CHECK(tags[i].size() <= (own[i].find('_') == std::string::npos ? own[i].size() : 8));
    }
  }
  const std::vector<std::pair<Codes, Codes>> lists = {
      {{"ace_Arab", "ace_Latn", "acm_Arab", "arb_Arab", "azb_Arab", "azj_Latn", "eng_Latn", "kas_Arab", "kas_Deva",
        "nob_Latn", "pes_Arab", "prs_Arab", "sat_Beng", "yue_Hant", "zho_Hans", "zho_Hant"},
       {"ace-Arab", "ace", "acm", "ar", "azb", "az", "en", "ks", "ks-Deva", "nb", "fa", "prs", "sat", "yue", "zh",
        "zh-Hant"}},
      {{"ar_AR", "cs_CZ", "en_XX", "zh_CN"}, {"ar", "cs", "en", "zh"}},
      {{"ast", "en", "no", "ns", "zh"}, {"ast", "en", "no", "ns", "zh"}},
      {{"pt_BR", "pt_PT", "xx_Latn", "??"}, {"pt-BR", "pt-PT", "xx_Latn", "??"}},
      {{"en", "eng_Latn"}, {"en", "en-Latn"}},
  };
  for (const auto& [own, listed] : lists) {
    const ServedLanguages languages(own, {});
    CHECK(languages.tags() == listed);
    for (size_t i = 0; i < own.size(); ++i) CHECK(mean_language(listed[i], own) == Codes{own[i]});
  }
  const ServedLanguages one({"eng_Latn", "zho_Hant"});
  CHECK(one.text() == "en to zh-Hant");
  CHECK(one.find("en", "zh-Hant") == LanguagePair{"eng_Latn", "zho_Hant"});
  CHECK(one.find("", "zh") == LanguagePair{"eng_Latn", "zho_Hant"});
  CHECK_FALSE(one.find("zh", "en"));
  const ServedLanguages many({"en", "pt_BR", "pt_PT"}, {"en", ""});
  CHECK_FALSE(many.find("", "pt"));
  CHECK(many.ambiguity("", "pt") == "'pt' is each of pt-BR, pt-PT");
  CHECK(many.ambiguity("en", "pt-BR").empty());
  CHECK_FALSE(ServedLanguages(words(nllb_codes), {}).find("eng", "en"));
}

TEST_CASE("languages have names") {
  CHECK(language_name("de") == "German");
  CHECK(language_name("deu") == "German");
  CHECK(language_name("pt-BR") == "Portuguese (BR)");
  CHECK(language_name("zh-Hant") == "Chinese (traditional)");
  CHECK(language_name("ace-Arab") == "Acehnese (Arabic)");
  CHECK(language_name("ns") == "Northern Sotho");
  CHECK(language_name("xx") == "xx");
  CHECK(language_name("") == "");
}

TEST_CASE("the table of languages is ISO 639's") {
  std::set<std::string> seen, names;
  for (const auto& language : iso_languages()) {
    INFO(language.codes);
    CHECK_FALSE(language.name.empty());
    CHECK(names.insert(std::string(language.name)).second);
    CHECK((language.script.empty() || language.script.size() == 4));
    for (const auto& code : words(language.codes)) {
      CHECK(seen.insert(code).second);
      CHECK(find_iso_language(code) == &language);
    }
  }
  const std::filesystem::path registry = "/usr/share/iso-codes/json/iso_639-3.json";  // Debian's iso-codes
  if (!std::filesystem::exists(registry)) {
    WARN("not compared with ISO 639: Debian's package iso-codes is not here");
    return;
  }
  std::ifstream file(registry);
  std::map<std::string, std::string> two_of_three, scope;
  const auto registered = nlohmann::json::parse(file);
  for (const auto& entry : registered.at("639-3")) {
    const auto three = entry["alpha_3"].get<std::string>();
    two_of_three[three] = entry.value("alpha_2", "");
    scope[three] = entry["scope"].get<std::string>();
  }
  for (const auto& language : iso_languages()) {
    INFO(language.codes);
    auto codes = words(language.codes);
    std::erase(codes, "ns");  // M2M100's, of nso
    const bool has_two = codes.front().size() == 2;
    // A code of two letters is that of the first one of three, and what follows has none of its own: it is a member of
    // this macrolanguage.
    REQUIRE(codes.size() > (has_two ? 1 : 0));
    CHECK(two_of_three.at(codes[has_two ? 1 : 0]) == (has_two ? codes.front() : ""));
    for (size_t i = has_two ? 2 : 1; i < codes.size(); ++i) {
      CHECK(two_of_three.at(codes[i]).empty());
      CHECK(scope.at(codes[1]) == "M");
      CHECK(scope.at(codes[i]) == "I");
    }
  }
}
