package prose

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// longest is how many words a sentence may have, and widest how many characters a line of Markdown.
const (
	longest = 30
	widest  = 100
)

// rules are the expressions that a sentence must not match. A question may begin with what or who.
var rules = []struct {
	name string
	bad  *regexp.Regexp
}{
	{"nobody", regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|whoever|whomever)\b`)},
	{"tells whether", regexp.MustCompile(`(?i)\btells? (whether|if)\b`)},
	{"headless", regexp.MustCompile(`^(What|Who|Whatever)\b[^?]*$|(?i)(; |: |, and )(who|whoever)\b[^?]*$|(?i)(; |: )(what|whatever) (is|was|has|had|comes?|came|goes|cannot|can|fails|fits|stays)\b[^?]*$|(?i)\b(for|to|of|from|by|with|than|at|but) who\b|\bwho (asks|looks|reads|writes|comes|has|is|does|dials|wants|waits)\b[^,]*\b(is|has|gets|may|can|must|waits|goes)\b$`)},
	{"says", regexp.MustCompile(`\b(type|field|value|row|constant|[Ee]rr[A-Z]\w*) says\b|^\w\w+ says (whether|that|how|why|which|where|whose|what)\b`)},
	{"data", regexp.MustCompile(`^\w\w+ (remembers|forgets)\b|\b(IPVS|kernel|connection tracking|conntrack|table|map|cache|list) (remembers|forgets)\b`)},
	{"dialect", regexp.MustCompile(`(?i)\b(anew|by and by|herald|sentry|who asks|that is a program|is nothing to|(lets?|let) (itself|themselves) be|one by one waits|(this|each|every|a|other|another|the) room (has|knows|may|is|that)|rooms)\b`)},
}

// sentence returns the rules that a sentence breaks.
func sentence(text string, line int, prose bool) (out []finding) {
	text = strings.Join(strings.Fields(text), " ")
	for _, r := range rules {
		if r.bad.MatchString(text) {
			out = append(out, finding{line, r.name + ": " + text})
		}
	}
	if prose && len(strings.Fields(text)) > longest {
		out = append(out, finding{line, "long: " + text})
	}
	return out
}

var ends = regexp.MustCompile(`[.!?](["')]*)(\s+|$)`)

// sentences splits a paragraph. Each sentence keeps a question mark at its end.
func sentences(paragraph string) (out []string) {
	for len(paragraph) > 0 {
		at := ends.FindStringIndex(paragraph)
		if at == nil {
			return append(out, strings.TrimSpace(paragraph))
		}
		one := strings.TrimSpace(paragraph[:at[1]])
		out = append(out, strings.TrimSuffix(one, "."))
		paragraph = paragraph[at[1]:]
	}
	return out
}

var (
	code = regexp.MustCompile("`[^`]*`")
	link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	item = regexp.MustCompile(`^\s*([-*]|\d+\.) +`)
)

// paragraph is text that belongs together, and the line on which it begins.
type paragraph struct {
	text string
	line int
}

// markdown returns the findings of a page. Blocks of code are no prose; cells of tables are, but
// for their length.
func markdown(page string) (out []finding) {
	var now paragraph
	flush := func() {
		for _, s := range sentences(link.ReplaceAllString(code.ReplaceAllString(now.text, "x"), "$1")) {
			out = append(out, sentence(s, now.line, true)...)
		}
		now = paragraph{}
	}
	fenced, n := false, 0
	for line := range strings.Lines(page) {
		n++
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
			flush()
			continue
		case fenced || strings.HasPrefix(line, "    ") && now.text == "":
			continue
		case strings.HasPrefix(line, "|"):
			flush()
			for cell := range strings.SplitSeq(line, "|") {
				out = append(out, sentence(code.ReplaceAllString(cell, "x")+"?", n, false)...) // a cell may be headless
			}
			continue
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			flush()
		case item.MatchString(line):
			flush()
			now = paragraph{item.ReplaceAllString(line, ""), n}
		case now.text == "":
			now = paragraph{line, n}
		default:
			now.text += " " + line
		}
		if utf8.RuneCountInString(line) > widest {
			out = append(out, finding{n, "line: " + strconv.Itoa(utf8.RuneCountInString(line)) + " characters"})
		}
	}
	flush()
	return out
}

// goSource returns the findings in the comments of a file, and in the texts that it prints.
func goSource(t *testing.T, path, source string) (out []finding) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range f.Comments {
		for _, p := range commentParagraphs(set, group) {
			for _, s := range sentences(p.text) {
				out = append(out, sentence(s, p.line, true)...)
			}
		}
	}
	if strings.HasSuffix(path, "_test.go") {
		return out
	}
	for _, l := range literals(f) {
		for _, s := range sentences(l.text) {
			out = append(out, sentence(s, set.Position(l.at).Line, false)...)
		}
	}
	return out
}

// literal is a text of a program, and where it is.
type literal struct {
	text string
	at   token.Pos
}

// literals are the texts of a file that have at least three words.
func literals(f *ast.File) (out []literal) {
	ast.Inspect(f, func(n ast.Node) bool {
		l, ok := n.(*ast.BasicLit)
		if !ok || l.Kind != token.STRING {
			return true
		}
		if text, err := strconv.Unquote(l.Value); err == nil && strings.Count(text, " ") > 1 {
			out = append(out, literal{text, l.Pos()})
		}
		return true
	})
	return out
}

// commentParagraphs are the paragraphs of a comment, without pictures, examples and directives.
func commentParagraphs(set *token.FileSet, group *ast.CommentGroup) (out []paragraph) {
	var now paragraph
	flush := func() {
		if now.text != "" {
			out = append(out, now)
		}
		now = paragraph{}
	}
	for _, c := range group.List {
		line := strings.TrimPrefix(c.Text, "//")
		switch {
		case strings.HasPrefix(line, "\t"), strings.HasPrefix(line, "   "), !strings.HasPrefix(line, " ") && line != "":
			flush()
		case strings.TrimSpace(line) == "":
			flush()
		case item.MatchString(line):
			flush()
			now = paragraph{item.ReplaceAllString(line, ""), set.Position(c.Pos()).Line}
		case now.text == "":
			now = paragraph{line, set.Position(c.Pos()).Line}
		default:
			now.text += line
		}
	}
	flush()
	return out
}

// lines returns the findings of a script or a manifest: words alone, line by line.
func lines(text string) (out []finding) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		out = append(out, sentence(strings.TrimLeft(line, "# "), n, false)...)
	}
	return out
}
