package printable_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/kube-ipvs/kube-ipvs/internal/printable"
)

func TestString(t *testing.T) {
	for in, want := range map[string]string{
		"":                    "",
		`shop/cart "a\b" ü 茶`: `shop/cart "a\b" ü 茶`,
		"\x1b[31mred":         `\u001b[31mred`,
		"a\u009b31m":          `a\u009b31m`,
		"a\u202eb":            `a\u202eb`,
		"two\nlines\tand\x7f": `two\u000alines\u0009and\u007f`,
		"a tag \U000e0001":    `a tag \udb40\udc01`,
		"not UTF-8: \xff":     `not UTF-8: \xff`,
		"the rune \ufffd":     "the rune \ufffd",
	} {
		if got := printable.String(in); got != want {
			t.Errorf("String(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestWriterKeepsLinesAndTabs(t *testing.T) {
	var b strings.Builder
	text := "a\tb\n\x1b[2Jc\u009b\n"
	if n, err := printable.NewWriter(&b).Write([]byte(text)); n != len(text) || err != nil {
		t.Errorf("Write = %d, %v", n, err)
	}
	if want := "a\tb\n\\u001b[2Jc\\u009b\n"; b.String() != want {
		t.Errorf("wrote %q, want %q", b.String(), want)
	}
}

func FuzzString(f *testing.F) {
	f.Add("a\x1b\u009b\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := printable.String(s)
		if i := strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("String(%q) = %q has what cannot be printed at %d", s, got, i)
		}
		if again := printable.String(got); again != got {
			t.Errorf("escaped twice: %q, then %q", got, again)
		}
	})
}
