package diagnosis

// Report is the output of the checks of a node for a program
// (manifests/schemas/check.schema.json).
type Report struct {
	Items []Item `json:"items"`
	// Fit reports whether the node can carry Services.
	Fit bool `json:"fit"`
}

// An Item is one verdict of a Report.
type Item struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// NewReport returns the report of verdicts, in their order.
func NewReport(verdicts []Verdict, fit bool) Report {
	r := Report{Items: []Item{}, Fit: fit}
	for _, v := range verdicts {
		r.Items = append(r.Items, Item{Name: v.Name, State: v.State, Detail: v.Detail, Remedy: v.Fix})
	}
	return r
}
