package printable

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// String escapes what cannot be printed, line ends and tabs included.
func String(s string) string {
	if clean(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if printable(r, n) {
			b.WriteString(s[:n])
		} else {
			escape(&b, r, s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func escape(b *strings.Builder, r rune, raw string) {
	if r == utf8.RuneError { // no rune at all
		fmt.Fprintf(b, `\x%02x`, raw)
		return
	}
	for _, unit := range utf16.AppendRune(nil, r) {
		fmt.Fprintf(b, `\u%04x`, unit)
	}
}

func clean(s string) bool {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !printable(r, n) {
			return false
		}
		i += n
	}
	return true
}

func printable(r rune, size int) bool {
	return unicode.IsPrint(r) && (r != utf8.RuneError || size > 1)
}

// Writer escapes what is written to another writer, line by line; line ends and tabs stay.
type Writer struct{ to io.Writer }

// NewWriter returns a Writer. A rune must not be divided between two calls of Write.
func NewWriter(to io.Writer) Writer { return Writer{to} }

// Write implements io.Writer.
func (w Writer) Write(p []byte) (int, error) {
	var out bytes.Buffer
	for i, line := range bytes.Split(p, []byte("\n")) {
		if i > 0 {
			out.WriteByte('\n')
		}
		for j, cell := range bytes.Split(line, []byte("\t")) {
			if j > 0 {
				out.WriteByte('\t')
			}
			out.WriteString(String(string(cell)))
		}
	}
	if _, err := w.to.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// OneLine returns the text of an error with its line ends replaced, as an Event shows it.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
