package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// document is one YAML or JSON document of a file.
type document struct {
	// number counts documents with content, line the lines of the file; from 1.
	number, line int
	text         []byte
	// json: text is JSON and skips the YAML parser, which is several times slower.
	json bool
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// split cuts a file into its documents. Files named .json hold a stream of JSON
// values; in all others a document may be JSON or YAML.
func split(name string, text []byte) ([]document, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("not text in UTF-8")
	}
	text = bytes.TrimPrefix(text, byteOrderMark)
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("empty: it is being written, or should be deleted")
	}
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return nil, fmt.Errorf("line %d: a NUL byte", lineAt(text, i))
	}
	if strings.HasSuffix(name, ".json") {
		return splitJSON(text)
	}
	if i := hiddenMarker(text); i >= 0 {
		return nil, fmt.Errorf("line %d: a document marker after a line break that is not LF or CRLF", lineAt(text, i))
	}
	return splitYAML(text), nil
}

// hiddenMarker finds a document marker behind one of the other line breaks of
// YAML 1.1, -1 if there is none. The parser reads one document and would pass
// over what follows without a word.
func hiddenMarker(text []byte) int {
	for _, lineBreak := range []string{"\r", "\u0085", "\u2028", "\u2029"} {
		for _, marker := range []string{"---", "..."} {
			if i := bytes.Index(text, []byte(lineBreak+marker)); i >= 0 {
				return i
			}
		}
	}
	return -1
}

// splitYAML cuts at the markers "---" and "..." in the first column. YAML allows
// them nowhere else, not even within a block scalar, so lines are all it takes.
func splitYAML(text []byte) []document {
	var docs []document
	start, startLine := 0, 1
	flush := func(end int) {
		for _, d := range cut(text[start:end]) {
			d.number, d.line = len(docs)+1, startLine+d.line-1
			docs = append(docs, d)
		}
	}
	for pos, line := 0, 1; pos < len(text); line++ {
		next := pos + lineLen(text[pos:])
		switch m := marker(text[pos:next]); m {
		case "---":
			flush(pos)
			start, startLine = pos+len(m), line
		case "...":
			flush(pos)
			start, startLine = next, line+1
		}
		pos = next
	}
	flush(len(text))
	return docs
}

// cut makes documents of the text between two markers: none, one, or several if
// it is a stream of JSON values such as appending to a file leaves behind.
func cut(text []byte) []document {
	body := bodyOf(text)
	if len(body) == 0 {
		return nil
	}
	if body[0] == '{' {
		if docs, err := splitJSON(body); err == nil {
			above := lineAt(text, len(text)-len(body)) - 1
			for i := range docs {
				docs[i].line += above
			}
			return docs
		}
	}
	return []document{{line: 1, text: text}}
}

// lineLen is the length of the first line, its end included.
func lineLen(text []byte) int {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return i + 1
	}
	return len(text)
}

// marker returns the document marker that a line consists of or begins with.
func marker(line []byte) string {
	if len(line) < 3 || line[0] != '-' && line[0] != '.' {
		return ""
	}
	if len(line) > 3 && !bytes.ContainsRune([]byte(" \t\r\n"), rune(line[3])) {
		return ""
	}
	if m := string(line[:3]); m == "---" || m == "..." {
		return m
	}
	return ""
}

// bodyOf is a document from its first line on that is neither empty nor a comment
// or directive.
func bodyOf(doc []byte) []byte {
	for len(doc) > 0 {
		line := bytes.TrimSpace(doc[:lineLen(doc)])
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return bytes.TrimLeft(doc, " \t")
		}
		doc = doc[lineLen(doc):]
	}
	return nil
}

// splitJSON cuts a stream of JSON values, with or without white space between.
func splitJSON(text []byte) ([]document, error) {
	var docs []document
	dec := json.NewDecoder(bytes.NewReader(text))
	// The lines are counted once over the whole text, not again for each document.
	line, counted := 1, 0
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		end := int(dec.InputOffset())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", lineAt(text, syntaxOffset(err, end, len(text))), err)
		}
		line += bytes.Count(text[counted:end-len(raw)], []byte("\n"))
		counted = end - len(raw)
		docs = append(docs, document{number: len(docs) + 1, line: line, text: raw, json: true})
	}
}

// syntaxOffset is the place of a JSON syntax error: SyntaxError counts from the start of the
// stream, an unexpected end is the end of the text.
func syntaxOffset(err error, read, end int) int {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return min(max(int(syntax.Offset)-1, 0), end)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return end
	}
	return read
}

// lineAt is the line, from 1, of a byte of text.
func lineAt(text []byte, offset int) int { return bytes.Count(text[:offset], []byte("\n")) + 1 }
