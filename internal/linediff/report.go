package linediff

import "io"

// Report is the output of diff for a program (manifests/schemas/diff.schema.json).
type Report struct {
	Mode string `json:"mode"`
	// Equal reports whether both sides have the same rows.
	Equal bool  `json:"equal"`
	Rows  []Odd `json:"rows"`
}

// An Odd is a row that only one side has.
type Odd struct {
	Kind string `json:"kind"`
	Side Side   `json:"side"`
	Row  string `json:"row"`
}

// Side is where a row is.
type Side string

// The sides.
const (
	// Kernel: the row is orphaned, and the agent deletes it.
	Kernel Side = "kernel"
	// Desired: the row is missing.
	Desired Side = "desired"
)

// Add appends the lines of one kind.
func (r *Report) Add(kind string, lines []Line) {
	for _, l := range lines {
		side := Desired
		if l.Kernel {
			side = Kernel
		}
		r.Rows = append(r.Rows, Odd{Kind: kind, Side: side, Row: l.Text})
	}
	r.Equal = len(r.Rows) == 0
}

// WriteText prints the rows of each kind below a heading, as Write does.
func (r Report) WriteText(w io.Writer) error {
	for rest := r.Rows; len(rest) > 0; {
		kind, n := rest[0].Kind, 0
		var lines []Line
		for ; n < len(rest) && rest[n].Kind == kind; n++ {
			lines = append(lines, Line{Kernel: rest[n].Side == Kernel, Text: rest[n].Row})
		}
		if err := Write(w, kind, lines); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}
