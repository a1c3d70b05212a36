package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// A page is written at once. Notes are not part of the output.
type page struct {
	out, notes io.Writer
	colour     bool
}

// encode writes a value for programs.
func (p page) encode(format string, v any) error {
	if format == "yaml" {
		text, err := yaml.Marshal(v)
		if err == nil {
			_, err = p.out.Write(text)
		}
		return err
	}
	enc := json.NewEncoder(p.out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// A screen shows pages.
type screen struct {
	out, notes       io.Writer
	terminal, colour bool
	pages            int
}

func newScreen(out, notes io.Writer) *screen {
	s := &screen{out: out, notes: notes}
	if f, ok := out.(*os.File); ok {
		s.terminal = term.IsTerminal(int(f.Fd()))
	}
	s.colour = s.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

// page returns a page that writes directly to the output.
func (s *screen) page() page { return page{s.out, s.notes, s.colour} }

// erase moves to the upper left corner of a terminal and clears it (ECMA-48, CUP and ED).
const erase = "\x1b[H\x1b[2J"

// compose draws a page in memory, so that it replaces the last one at once. On a terminal it includes the notes.
func (s *screen) compose(format string, draw func(page) error) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(s.between(format))
	notes := s.notes
	if s.terminal {
		notes = &b
	}
	err := draw(page{&b, notes, s.colour})
	return b.Bytes(), err
}

// between returns the separator before a page: a blank line, or that of documents of the format.
func (s *screen) between(format string) string {
	switch {
	case s.terminal:
		return erase
	case s.pages == 0 || format == "json":
		return ""
	case format == "yaml":
		return "---\n"
	}
	return "\n"
}

// put shows a page.
func (s *screen) put(text []byte) error {
	s.pages++
	_, err := s.out.Write(text)
	return err
}
