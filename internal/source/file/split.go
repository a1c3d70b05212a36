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
	// json: text is JSON and needs no conversion.
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
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return nil, fmt.Errorf("line %d: a NUL byte", lineAt(text, i))
	}
	if strings.HasSuffix(name, ".json") {
		return splitJSON(text)
	}
	return splitYAML(text), nil
}

// splitYAML cuts at the markers "---" and "..." in the first column. YAML allows
// them nowhere else, not even within a block scalar, so lines are all it takes.
func splitYAML(text []byte) []document {
	var docs []document
	start, startLine := 0, 1
	flush := func(end int) {
		if doc := text[start:end]; !blank(doc) {
			docs = append(docs, document{number: len(docs) + 1, line: startLine, text: doc, json: isJSON(doc)})
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

// blank tells whether a document has nothing but comments and directives.
func blank(doc []byte) bool {
	for len(doc) > 0 {
		n := lineLen(doc)
		line := bytes.TrimSpace(doc[:n])
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
		doc = doc[n:]
	}
	return true
}

// isJSON tells whether a document can skip the YAML parser, several times slower.
func isJSON(doc []byte) bool {
	doc = bytes.TrimSpace(doc)
	return len(doc) > 0 && doc[0] == '{' && json.Valid(doc)
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

// syntaxOffset is where a JSON syntax error stands: SyntaxError counts from the
// start of the stream, an unexpected end is the end of the text.
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
