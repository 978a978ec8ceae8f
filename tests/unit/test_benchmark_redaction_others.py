"""The test cases of gitleaks and trufflehog are read from Go as Go reads them."""

from pathlib import Path

import pytest

from benchmarks.redaction import gitleaks_tests, trufflehog_tests
from benchmarks.redaction.draw import Sample
from benchmarks.redaction.go_source import FUNCTIONS, Reader, Unknown, tokens
from benchmarks.redaction.others import half, sets

TEMPLATES = """
samples := map[string]string{
    "ini": "{i}Token=\\"{s}\\"",
    // TODO: "xml": "<{i}Token>{s}</{i}Token>",
    "escaped": `{"x": "{I}_TOKEN={s}\\nB=1"}`,
}
replacer := strings.NewReplacer()
"""
RULE = """
package rules
var known = []string{`acme = "k1"`, "two" + "parts"}
func Acme() *config.Rule {
    r := config.Rule{RuleID: "acme-key", Regex: utils.Hex("4")}
    tps := utils.GenerateSampleSecrets("acme", "ak_"+secrets.NewSecret(utils.Hex("12")))
    tps = append(tps, known...)
    fps := []string{
        `ak_xxx`, unknown(1), // ak_comment
        "wrong = " + secrets.NewSecret(`[a-z]{20}`),
        `acme = "k1"`,
    }
    return utils.Validate(r, tps, fps)
}
"""
DETECTOR = """
package acme
var (
    validPattern = "s3cr3t-one"
    keyword = "acme"
)
func TestAcme(t *testing.T) {
    tests := []struct{ name, input string; want []string }{
        {name: "valid", input: fmt.Sprintf("%s token = '%s'\\n", keyword, validPattern), want: []string{validPattern}},
        {name: "raw", input: `a \\n "b"` + "c", want: nil},
        {name: "computed", input: compute(), want: []string{"x"}},
        {name: "joined", input: "a b", want: []string{"ab"}},
    }
}
"""


def test_strings_sums_and_calls_of_go_are_evaluated() -> None:
    def value(text: str) -> object:
        return Reader(tokens(text), FUNCTIONS, {"a": "x"}).value(0)[0]

    assert value(r'"q\"\n\u00e9\x41" + `raw\n` + a') == 'q"\n\u00e9Araw\\nx'
    assert value('fmt.Sprintf("%s-%d%%", a, "7")') == "x-7%"
    assert value('[]string{"1", unknown(), a, // c\n "2"}') == ["1", "x", "2"]
    with pytest.raises(Unknown):
        value("unknown(a)")


def test_gitleaks_tests_are_secrets_in_templates_and_harmless_texts(tmp_path: Path) -> None:
    rules = tmp_path / "cmd/generate/config/rules"
    rules.mkdir(parents=True)
    (rules / "acme.go").write_text(RULE)
    (tmp_path / "cmd/generate/config/utils").mkdir()
    (tmp_path / gitleaks_tests.TEMPLATES).write_text(TEMPLATES)
    tests = gitleaks_tests.read(tmp_path, 1)
    (bare,) = tests.bare
    assert (bare.rule, bare.word, bare.secret[:3], len(bare.secret)) == ("acme-key", "acme", "ak_", 15)
    assert [one.text for one in tests.in_templates()] == [
        f'acmeToken="{bare.secret}"', f'{{"x": "ACME_TOKEN={bare.secret}\\nB=1"}}',
    ]  # fmt: skip
    assert tests.literal == (("acme-key", 'acme = "k1"'), ("acme-key", "twoparts"))
    assert len(tests.refused) == 3 and tests.harmless == (("acme-key", "ak_xxx"),)
    assert gitleaks_tests.read(tmp_path, 1) == tests != gitleaks_tests.read(tmp_path, 2)


def test_trufflehog_tests_are_texts_and_the_secrets_in_them(tmp_path: Path) -> None:
    (tmp_path / "pkg/detectors/acme").mkdir(parents=True)
    (tmp_path / "pkg/detectors/acme/acme_test.go").write_text(DETECTOR)
    tests = trufflehog_tests.read(tmp_path)
    assert tests.secret == (Sample("acme", "acme token = 's3cr3t-one'\n", ("s3cr3t-one",)),)
    assert tests.refused == (Sample("acme", 'a \\n "b"c'),) and tests.unread == 2
    assert sets(None, tmp_path, 1) == {"trufflehog": list(tests.secret)} and sets(None, None, 1) == {}


def test_a_detector_is_in_one_half_and_always_in_the_same() -> None:
    samples = [Sample(f"kind {n % 40}", str(n)) for n in range(400)]
    seen, held = half(samples, 0), half(samples, 1)
    assert len(seen) + len(held) == 400 and min(len(seen), len(held)) > 100
    assert not {one.kind for one in seen} & {one.kind for one in held}
