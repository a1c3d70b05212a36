package prose

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// KUBE_IPVS_PROSE_SAMPLE=SEED draws thirty sentences of comments, ten texts of programs and ten
// sentences of README.md, for a reader who has not seen the code.
func TestSample(t *testing.T) {
	text, asked := os.LookupEnv("KUBE_IPVS_PROSE_SAMPLE")
	if !asked {
		t.Skip("draws sentences: KUBE_IPVS_PROSE_SAMPLE=39")
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a draw that can be repeated
	comments, messages := goTexts(t)
	var readme []string
	for _, p := range plainMarkdown(read(t, root+"/README.md")) {
		readme = append(readme, sentences(p)...)
	}
	fmt.Printf("seed %d, of %d, %d and %d\n", seed, len(comments), len(messages), len(readme))
	for _, from := range []struct {
		name string
		all  []string
		n    int
	}{{"comment", comments, 30}, {"text", messages, 10}, {"README", readme, 10}} {
		for i, at := range random.Perm(len(from.all))[:min(from.n, len(from.all))] {
			fmt.Printf("%s %d: %s\n", from.name, i+1, from.all[at])
		}
	}
}

// goTexts are the sentences of comments, with their places, and the texts that programs print.
func goTexts(t *testing.T) (comments, messages []string) {
	t.Helper()
	files := map[string]string{}
	walk(t, ".go", func(path, source string) { files[path] = source })
	for _, path := range slices.Sorted(maps.Keys(files)) {
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, files[path], parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range f.Comments {
			for _, p := range commentParagraphs(set, group) {
				for _, s := range sentences(p.text) {
					if s = strings.Join(strings.Fields(s), " "); strings.Count(s, " ") > 3 {
						comments = append(comments, fmt.Sprintf("%s:%d: %s", path, p.line, s))
					}
				}
			}
		}
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, s := range literals(f) {
			if strings.Count(s.text, " ") > 3 && !strings.Contains(s.text, "\n") {
				messages = append(messages, fmt.Sprintf("%s:%d: %s", path, set.Position(s.at).Line, s.text))
			}
		}
	}
	return comments, messages
}

// plainMarkdown returns the paragraphs and list items of a page, without blocks, tables and headings.
func plainMarkdown(page string) (out []string) {
	fenced, open := false, false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			fenced, open = !fenced, false
		case fenced, line == "", strings.HasPrefix(line, "|"), strings.HasPrefix(line, "#"), strings.HasPrefix(line, "!"):
			open = false
		case open && !item.MatchString(line):
			out[len(out)-1] += " " + line
		default:
			out, open = append(out, item.ReplaceAllString(line, "")), true
		}
	}
	for i := range out {
		out[i] = link.ReplaceAllString(out[i], "$1")
	}
	return out
}
