package rules

// FilterTable is the filter table of a backend.
type FilterTable struct {
	Family  Family
	Backend Backend
	Table   SaveTable
	// Err is why the table could not be read; it is not empty then.
	Err error
}
