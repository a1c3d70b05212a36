package file

import (
	"cmp"
	"fmt"
	"strings"
)

// maxReported bounds how many mistakes of one file are listed.
const maxReported = 10

// Problem is one thing wrong with a manifest.
type Problem struct {
	// File is the name within the directory.
	File string `json:"file"`
	// Document counts the documents of the file that have content, from 1; Line
	// counts the file's lines, from 1. 0 means that it is not known.
	Document int `json:"document,omitempty"`
	Line     int `json:"line,omitempty"`
	// Object is the kind, namespace and name, empty when not known.
	Object string `json:"object,omitempty"`
	// Reason is a sentence, beginning with the path of the field if it is about one.
	Reason string `json:"reason"`
	// BadFile: nothing of the file as it is now is used; its last good content
	// stays. Otherwise all but the part named in Reason works.
	BadFile bool `json:"badFile"`
}

// String prints file, place, object and reason on one line.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Document > 0 {
		fmt.Fprintf(&b, ": document %d", p.Document)
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, ", line %d", p.Line)
	}
	if p.Object != "" {
		b.WriteString(": " + p.Object)
	}
	b.WriteString(": " + p.Reason)
	return b.String()
}

func compareProblems(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Document, b.Document),
		cmp.Compare(a.Line, b.Line), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason))
}

// reasons prints at most maxReported problems for one log line.
func reasons(list []Problem) []string {
	out := make([]string, 0, min(len(list), maxReported)+1)
	for i, p := range list {
		if i == maxReported {
			return append(out, fmt.Sprintf("and %d more", len(list)-i))
		}
		out = append(out, p.String())
	}
	return out
}
