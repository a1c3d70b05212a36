package kube

// BoundLists has lists of a source that does not run yet be no longer than so many bytes.
func (s *Source) BoundLists(bytes int64) { s.mostList = bytes }
