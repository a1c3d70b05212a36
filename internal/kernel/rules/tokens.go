package rules

import "strings"

// token is one word of a rule. raw keeps the spelling (quotes included) for
// parts of a rule the normaliser does not know.
type token struct{ val, raw string }

// bare: not empty and spelled without quotes, so it prints as it reads.
func (t token) bare() bool { return t.val != "" && t.val == t.raw }

// split cuts a rule into words the way iptables-restore does: double quotes
// group, a backslash inside them protects the next character. It refuses an
// open quote.
func split(rule string) ([]token, bool) {
	var out []token
	for i := 0; i < len(rule); {
		if isSpace(rule[i]) {
			i++
			continue
		}
		end, val, ok := word(rule, i)
		if !ok {
			return nil, false
		}
		out = append(out, token{val: val, raw: rule[i:end]})
		i = end
	}
	return out, true
}

// Words cuts a rule into the words a command line takes, quotes resolved. Of
// a rule with an open quote there are none.
func Words(rule string) []string {
	tokens, _ := split(rule)
	words := make([]string, len(tokens))
	for i, t := range tokens {
		words[i] = t.val
	}
	return words
}

// word reads the word that starts at i and returns where it ends.
func word(rule string, i int) (end int, val string, ok bool) {
	var b strings.Builder
	quoted := false
	for ; i < len(rule); i++ {
		switch c := rule[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\' && i+1 < len(rule):
			i++
			b.WriteByte(rule[i])
		case !quoted && isSpace(c):
			return i, b.String(), true
		default:
			b.WriteByte(c)
		}
	}
	return i, b.String(), !quoted
}

// spaces are the separators between two words of a rule. Unicode has more; to iptables those are
// letters of a word.
const spaces = " \t\n\r"

func isSpace(c byte) bool { return strings.IndexByte(spaces, c) >= 0 }

// trim removes the spaces around a rule.
func trim(rule string) string { return strings.Trim(rule, spaces) }

// Quote spells a free string as iptables-save does: bare if it has only letters, digits, '_' and
// '-'. Otherwise it is in double quotes, with both kinds of quotes and the backslash escaped.
// Comments need it.
func Quote(s string) string {
	if s != "" && strings.IndexFunc(s, needsQuote) < 0 {
		return s
	}
	return `"` + quoteEscapes.Replace(s) + `"`
}

var quoteEscapes = strings.NewReplacer(`"`, `\"`, `\`, `\\`, `'`, `\'`)

func needsQuote(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
		return false
	}
	return true
}
