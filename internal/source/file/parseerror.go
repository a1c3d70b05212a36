package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// fault is an error that makes a document, and with it its file, unusable.
type fault struct {
	// path of the field within the document, empty when it is about the whole.
	path string
	// line within the document, from 1; 0 when only the path is known.
	line   int
	object string
	reason string
	// unknown: the error is a field that no type of ours has.
	unknown bool
}

// below puts the path of an item in front of the path within it.
func (f fault) below(item string) fault {
	switch {
	case item == "":
	case f.path == "":
		f.path = item
	default:
		f.path = item + "." + f.path
	}
	return f
}

// problem tells a fault of a document as a problem of its file.
func (f fault) problem(file string, doc *document) Problem {
	p := Problem{File: file, Document: doc.number, Line: doc.line, Object: f.object, Reason: f.reason, BadFile: true}
	if f.path != "" {
		p.Reason = f.path + ": " + f.reason
	}
	if f.line == 0 && f.path != "" {
		f.line = locate(doc.text, f.path, doc.json)
	}
	if f.line > 0 {
		// The parser speaks of a line past the end when it misses something there.
		last := bytes.Count(bytes.TrimRight(doc.text, "\n"), []byte("\n")) + 1
		p.Line += min(f.line, last) - 1
	}
	return p
}

var yamlLine = regexp.MustCompile(`^line (\d+): (.*)$`)

// yamlFaults takes the parser's message apart: it is one line, or a heading with
// a line for every mistake, and each may begin with the number of its line.
func yamlFaults(err error) []fault {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n")
	var out []fault
	for line := range strings.SplitSeq(text, "\n") {
		f := fault{reason: strings.TrimSpace(line)}
		if m := yamlLine.FindStringSubmatch(f.reason); m != nil {
			f.line, _ = strconv.Atoi(m[1])
			f.reason = m[2]
		}
		out = append(out, f)
		if len(out) == maxReported {
			break
		}
	}
	return out
}

// jsonFault reports where a JSON decoder gave up.
func jsonFault(doc []byte, err error) fault {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return fault{reason: strings.TrimPrefix(err.Error(), "json: ")}
	}
	value, _, _ := strings.Cut(wrong.Value+" ", " ")
	article := "a"
	if strings.ContainsRune("aeo", rune(value[0])) {
		article = "an"
	}
	reason := fmt.Sprintf("%s %s where %s belongs", article, value, wrong.Type)
	switch {
	case wrong.Type.Kind() == reflect.String && (value == "bool" || value == "number"):
		// YAML takes n, no, on, yes and digits for something else than text.
		reason += ", quote it"
	case wrong.Value != value:
		reason = fmt.Sprintf("%s does not fit into %s", wrong.Value, wrong.Type)
	}
	return fault{path: pathAt(doc, wrong.Offset), reason: reason}
}

// step is one level of the way into a JSON value.
type step struct {
	array bool
	index int
	key   string
	// atKey: the next string is a key.
	atKey bool
}

// pathAt names the field that ends at, or encloses, an offset: the decoder's own
// idea of a path leaves out the indexes.
func pathAt(doc []byte, offset int64) (path string) {
	walk(doc, func(at string, _, end int64) bool {
		path = at
		return end < offset
	})
	return path
}

// walk visits every value of a JSON text with its path and the offsets at which
// its first token ends and began, until visit returns false.
func walk(doc []byte, visit func(path string, start, end int64) bool) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var steps []step
	for {
		start := dec.InputOffset()
		tok, err := dec.Token()
		if err != nil {
			return
		}
		if top := len(steps) - 1; top >= 0 && steps[top].atKey {
			if key, ok := tok.(string); ok {
				steps[top].key, steps[top].atKey = key, false
				continue
			}
		}
		if tok == json.Delim('}') || tok == json.Delim(']') {
			steps = steps[:len(steps)-1]
			advance(steps)
			continue
		}
		if !visit(pathOf(steps), start, dec.InputOffset()) {
			return
		}
		switch tok {
		case json.Delim('{'):
			steps = append(steps, step{atKey: true})
		case json.Delim('['):
			steps = append(steps, step{array: true})
		default:
			advance(steps)
		}
	}
}

// advance moves past a value, to the next index or key.
func advance(steps []step) {
	if len(steps) == 0 {
		return
	}
	top := &steps[len(steps)-1]
	if top.array {
		top.index++
	} else {
		top.atKey = true
	}
}

func pathOf(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		switch {
		case s.array:
			fmt.Fprintf(&b, "[%d]", s.index)
		case b.Len() > 0:
			b.WriteString("." + s.key)
		default:
			b.WriteString(s.key)
		}
	}
	return b.String()
}
