package file

import (
	"bytes"
	"strconv"
	"strings"
)

// maxLocated bounds the documents in which a line is looked for.
const maxLocated = 4 << 20

// locate finds the line, from 1, of a field in a document as it was written; 0
// when it cannot. It may answer with the line of a parent.
func locate(doc []byte, path string, isJSON bool) (line int) {
	if len(doc) > maxLocated {
		return 0
	}
	if !isJSON {
		return locateYAML(doc, path)
	}
	walk(doc, func(at string, _, end int64) bool {
		if at == path || strings.HasPrefix(path, at+".") || strings.HasPrefix(path, at+"[") {
			line = lineAt(doc, int(end))
		}
		return at != path
	})
	return line
}

// finder walks down the block style of a YAML document, line by line: that is
// how manifests are written, and the parser in use keeps no lines.
type finder struct {
	// rest is the path still to go.
	rest string
	// least and level are the indentation that children must have at least, and
	// that the first of them turned out to have; -1 before it was met.
	least, level int
	// passed counts the entries of a sequence that went by.
	passed int
}

func locateYAML(doc []byte, path string) (found int) {
	f := finder{rest: path, level: -1}
	line := 0
	for text := range bytes.SplitSeq(doc, []byte("\n")) {
		line++
		body := bytes.TrimLeft(text, " ")
		indent := len(text) - len(body)
		if body = bytes.TrimSpace(body); len(body) == 0 || body[0] == '#' {
			continue
		}
		hit, more := f.see(string(body), indent)
		if hit {
			found = line
		}
		if !more {
			return found
		}
	}
	return found
}

// see looks at one line of content. It reports whether the line is on the path, and whether the
// search should continue.
func (f *finder) see(body string, indent int) (hit, more bool) {
	if f.level < 0 {
		f.level = indent
	}
	switch {
	case indent < f.least || indent < f.level:
		return false, false
	case indent > f.level:
		return false, true
	case strings.HasPrefix(f.rest, "["):
		return f.seeEntry(body, indent)
	}
	return f.seeKey(body, indent)
}

func (f *finder) seeEntry(body string, indent int) (hit, more bool) {
	if !strings.HasPrefix(body, "-") {
		return false, false
	}
	number, rest, _ := strings.Cut(f.rest[1:], "]")
	if n, err := strconv.Atoi(number); err != nil || f.passed < n {
		f.passed++
		return false, err == nil
	}
	f.down(strings.TrimPrefix(rest, "."), indent+1)
	inner := strings.TrimLeft(body[1:], " ")
	if f.rest == "" || inner == "" {
		return true, f.rest != ""
	}
	_, more = f.see(inner, indent+len(body)-len(inner))
	return true, more
}

func (f *finder) seeKey(body string, indent int) (hit, more bool) {
	name, _, _ := strings.Cut(body, ":")
	name = strings.Trim(name, `"'`)
	rest, ok := strings.CutPrefix(f.rest, name)
	if !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
		return false, true
	}
	// A sequence may be at the indentation of its key.
	least := indent + 1
	if strings.HasPrefix(rest, "[") {
		least = indent
	}
	f.down(strings.TrimPrefix(rest, "."), least)
	return true, f.rest != ""
}

func (f *finder) down(rest string, least int) {
	f.rest, f.least, f.level, f.passed = rest, least, -1, 0
}
