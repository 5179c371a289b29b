package redact

// rule recognises a kind of token by its format.
type rule struct {
	name   string
	prefix string
	set    charset
	least  int  // bytes after the prefix
	exact  bool // exactly that many
	word   bool // the prefix begins a word
	pem    bool
	check  func(k *token) bool
}

// rules lists the recognised formats. A prefix that is also an ordinary word has a check.
var rules = [...]rule{
	{name: "github-token", prefix: "ghp_", set: alnum, least: 36},
	{name: "github-token", prefix: "gho_", set: alnum, least: 36},
	{name: "github-token", prefix: "ghu_", set: alnum, least: 36},
	{name: "github-token", prefix: "ghs_", set: wordSet | dotSet | dashSet, least: 36},
	{name: "github-token", prefix: "ghr_", set: alnum, least: 36},
	{name: "github-token", prefix: "github_pat_", set: wordSet, least: 36},
	{name: "gitlab-token", prefix: "glpat-", set: wordSet | dashSet | dotSet, least: 20},
	{name: "gitlab-token", prefix: "gldt-", set: wordSet | dashSet, least: 20},
	{name: "gitlab-token", prefix: "glrt-", set: wordSet | dashSet | dotSet, least: 20},
	{name: "gitlab-token", prefix: "glptt-", set: wordSet | dashSet, least: 40},
	{name: "aws-key", prefix: "AKIA", set: upper | digit, least: 16, exact: true, word: true},
	{name: "aws-key", prefix: "ASIA", set: upper | digit, least: 16, exact: true, word: true},
	{name: "anthropic-key", prefix: "sk-ant-", set: wordSet | dashSet, least: 20, word: true},
	{name: "api-key", prefix: "sk-", set: wordSet | dashSet, least: 32, word: true, check: mixed},
	{name: "openai-key", prefix: "sk-proj-", set: wordSet | dashSet, least: 24, word: true, check: mixed},
	{name: "slack-token", prefix: "xoxa-", set: alnum | dashSet, least: 20},
	{name: "slack-token", prefix: "xoxb-", set: alnum | dashSet, least: 20},
	{name: "slack-token", prefix: "xoxc-", set: alnum | dashSet, least: 20},
	{name: "slack-token", prefix: "xoxd-", set: alnum | dashSet | percentSet, least: 20},
	{name: "slack-token", prefix: "xoxe-", set: alnum | dashSet, least: 20},
	{name: "slack-token", prefix: "xoxe.", set: alnum | dashSet | dotSet, least: 20},
	{name: "slack-token", prefix: "xoxo-", set: alnum | dashSet, least: 20},
	{name: "slack-token", prefix: "xoxp-", set: alnum | dashSet, least: 20},
	{name: "slack-token", prefix: "xoxr-", set: alnum | dashSet, least: 20},
	{name: "slack-token", prefix: "xoxs-", set: alnum | dashSet, least: 20},
	{name: "slack-token", prefix: "xapp-", set: alnum | dashSet, least: 20, check: mixed},
	{name: "npm-token", prefix: "npm_", set: alnum, least: 36},
	{name: "pypi-token", prefix: "pypi-AgE", set: wordSet | dashSet, least: 50},
	{name: "jwt", prefix: "eyJ", set: wordSet | dashSet | dotSet, least: 24, word: true, check: twoParts},
	{name: "private-key", prefix: "-----BEGIN ", pem: true},
	{name: "google-key", prefix: "AIza", set: wordSet | dashSet, least: 35, word: true},
	{name: "google-token", prefix: "ya29.", set: wordSet | dashSet, least: 30, word: true},
	{name: "google-secret", prefix: "GOCSPX-", set: wordSet | dashSet, least: 24},
	{name: "huggingface-token", prefix: "hf_", set: alnum, least: 30, word: true},
	{name: "digitalocean-token", prefix: "dop_v1_", set: alnum, least: 60},
	{name: "digitalocean-token", prefix: "doo_v1_", set: alnum, least: 60},
	{name: "digitalocean-token", prefix: "dor_v1_", set: alnum, least: 60},
	{name: "sendgrid-key", prefix: "SG.", set: wordSet | dashSet | dotSet, least: 50, word: true, check: twoParts},
	{name: "stripe-key", prefix: "sk_live_", set: alnum, least: 16},
	{name: "stripe-key", prefix: "rk_live_", set: alnum, least: 16},
	{name: "stripe-key", prefix: "sk_test_", set: alnum, least: 16},
	{name: "stripe-key", prefix: "rk_test_", set: alnum, least: 16},
	{name: "shopify-token", prefix: "shpat_", set: alnum, least: 32},
	{name: "shopify-token", prefix: "shpca_", set: alnum, least: 32},
	{name: "shopify-token", prefix: "shppa_", set: alnum, least: 32},
	{name: "shopify-token", prefix: "shpss_", set: alnum, least: 32},
	{name: "vault-token", prefix: "hvs.", set: wordSet | dashSet, least: 24, word: true},
	{name: "vault-token", prefix: "hvb.", set: wordSet | dashSet, least: 24, word: true},
	{name: "docker-token", prefix: "dckr_pat_", set: wordSet | dashSet, least: 27},
	{name: "age-key", prefix: "AGE-SECRET-KEY-1", set: upper | digit, least: 58},
	{name: "rubygems-key", prefix: "rubygems_", set: alnum, least: 48},
	{name: "linear-key", prefix: "lin_api_", set: alnum, least: 40},
	{name: "groq-key", prefix: "gsk_", set: alnum, least: 50, word: true},
	{name: "nvidia-key", prefix: "nvapi-", set: wordSet | dashSet, least: 60},
	{name: "grafana-token", prefix: "glsa_", set: wordSet, least: 36},
	{name: "atlassian-token", prefix: "ATATT3", set: wordSet | dashSet | equalsSet, least: 100, word: true},
	{name: "tailscale-key", prefix: "tskey-", set: alnum | dashSet, least: 24, word: true},
	{name: "e2b-key", prefix: "e2b_", set: alnum, least: 40, word: true},
}

// mixed distinguishes random characters from words joined by dashes.
func mixed(k *token) bool {
	return k.digits > 0 && (k.lowers > 0 || k.uppers > 0) || k.uppers > 2 && k.lowers > 2
}

// twoParts requires a dot with enough characters on either side.
func twoParts(k *token) bool { return k.dots > 0 && k.body >= 24 && k.sinceDot >= 10 }

// charset is a set of bytes as a sum of classes.
type charset uint16

const (
	digit charset = 1 << iota
	lower
	upper
	underSet
	dashSet
	dotSet
	percentSet
	equalsSet
	pemRest // further bytes in a PEM block

	alnum   = digit | lower | upper
	wordSet = alnum | underSet
	pemBody = alnum | dashSet | equalsSet | pemRest
)

func (c charset) has(b byte) bool {
	var class charset
	switch {
	case '0' <= b && b <= '9':
		class = digit
	case 'a' <= b && b <= 'z':
		class = lower
	case 'A' <= b && b <= 'Z':
		class = upper
	case b == '_':
		class = underSet
	case b == '-':
		class = dashSet
	case b == '.':
		class = dotSet
	case b == '%':
		class = percentSet
	case b == '=':
		class = equalsSet
	case b == '+', b == '/', b == '\n', b == '\r', b == ' ', b == '\t', b == '\\', b == ':', b == ',':
		// The backslash is for line ends inside JSON, the last two are for the headers of an
		// encrypted key.
		class = pemRest
	}
	return c&class != 0
}
